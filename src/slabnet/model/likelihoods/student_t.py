"""A number with noise that has heavy tails: single responses far off do not pull the fit."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from slabnet.core.errors import check_number, refuse
from slabnet.model.likelihoods.base import (
    Conditional,
    Head,
    Likelihood,
    YScale,
    by_output,
    by_scipy,
    check_finite,
    same_shape,
)
from slabnet.model.likelihoods.dispersion import Dispersion

LEAST_DF = 2.0  # that a learned number of degrees of freedom has: the variance of the noise then exists
PRIOR_DF = 8.0


@dataclass(frozen=True)
class AroundT(Conditional):
    """centre + scale T, T Student's with df degrees of freedom."""

    centre: Tensor
    scale: Tensor
    df: Tensor

    def log_prob(self, y: Tensor) -> Tensor:
        z = (y - self.centre) / self.scale
        half = 0.5 * (self.df + 1)
        front = torch.lgamma(half) - torch.lgamma(0.5 * self.df) - 0.5 * (self.df.log() + math.log(math.pi))
        return front - self.scale.log() - half * torch.log1p(z * z / self.df)

    def cdf(self, y: Tensor) -> Tensor:
        z = (y - self.centre) / self.scale
        return by_scipy("stdtr", self.df.expand_as(z), z).to(z)

    def around(self) -> tuple[Tensor, Tensor]:
        return self.centre - 10 * self.scale, self.centre + 10 * self.scale


class StudentT(Likelihood):
    """y = output + scale x T with `df` degrees of freedom; the scale has a log-normal posterior.

    df: "learned", 2 + a number with a log-normal posterior, so that the noise has a variance; or a number above 0. With
    1 degree of freedom or fewer there is no mean, and the centre of the noise is its median.

    >>> StudentT(df=4.0).variance(torch.zeros(1, 1)).item() > 2
    True
    """

    name = "student-t"
    metrics = ("rmse", "negative_log_likelihood", "crps", "interval_coverage")
    y_scale = YScale.STANDARD

    def __init__(self, df: Literal["learned"] | float = "learned", outputs: int = 1) -> None:
        super().__init__()
        if isinstance(df, str) and df != "learned":
            refuse("StudentT", "df", '"learned" or a number above 0', df)
        self.df = df if isinstance(df, str) else check_number("StudentT", "df", df, above=0)
        self.scale = Dispersion(outputs)
        self.more_df = Dispersion(outputs, math.log(PRIOR_DF), 1.0) if isinstance(df, str) else None

    @property
    def learns(self) -> bool:
        return True

    def _df_nodes(self) -> tuple[Tensor, Tensor]:
        if self.more_df is None:
            assert not isinstance(self.df, str)
            return torch.full_like(self.scale.log, self.df)[None], torch.ones_like(self.scale.log[:1])
        points, weights = self.more_df.nodes()
        return LEAST_DF + points, weights

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """E_q log t(y; output, scale, df), by Gauss-Hermite quadrature over the logs of scale and df."""
        same_shape(output, y)
        (scale, by_scale), (df, by_df) = self.scale.nodes(), self._df_nodes()
        each = AroundT(output, scale[:, None, None], df[None, :, None]).log_prob(y).sum(-1)
        return torch.einsum("s,d,sdr->r", by_scale, by_df, each)

    def mean(self, output: Tensor) -> Tensor:
        return output

    def variance(self, output: Tensor) -> Tensor:
        if self.more_df is not None:
            ratio = 1 + LEAST_DF * self.more_df.moment(-1)
        else:
            assert not isinstance(self.df, str)
            ratio = torch.full_like(self.scale.log, self.df / (self.df - 2) if self.df > LEAST_DF else math.inf)
        return (self.scale.moment(2) * ratio).detach().expand_as(output)

    def conditional(self, output: Tensor, dispersion: Tensor) -> Conditional:
        scale, df = dispersion[:, None].chunk(2, -1)
        return AroundT(output, scale, df)

    def draw_dispersion(self, generator: torch.Generator) -> Tensor:
        scale = self.scale.draw(generator)
        if self.more_df is None:
            assert not isinstance(self.df, str)
            return torch.cat([scale, torch.full_like(scale, self.df)])
        return torch.cat([scale, LEAST_DF + self.more_df.draw(generator)])

    def kl(self) -> Tensor:
        return self.scale.kl() if self.more_df is None else self.scale.kl() + self.more_df.kl()

    def targets(self, y: Tensor, outputs: int, dtype: torch.dtype, where: str) -> Tensor:
        if self.scale.log.shape[0] not in (1, outputs):
            refuse(where, "likelihood", f"StudentT(outputs={outputs})", f"outputs={self.scale.log.shape[0]}")
        y = by_output(y, outputs, where).to(dtype)
        check_finite(y, where, "y")
        return y

    def spec(self) -> dict[str, Any]:
        return {"name": self.name, "df": self.df, "outputs": self.scale.log.shape[0]}

    @classmethod
    def built(cls, options: dict[str, Any], outputs: int) -> StudentT:
        return cls(**{"outputs": outputs, **options})

    def head(self, outputs: int) -> Head | None:
        if not isinstance(self.df, str) and self.df <= LEAST_DF:
            return None  # there is no variance to give
        log, sd = (part.detach().expand(outputs).tolist() for part in (self.scale.log, self.scale.sd))
        if self.more_df is None:
            assert not isinstance(self.df, str)
            more, more_sd = [math.log(self.df - LEAST_DF)] * outputs, [0.0] * outputs
        else:
            more, more_sd = (part.detach().expand(outputs).tolist() for part in (self.more_df.log, self.more_df.sd))
        noise = tuple(self.variance(torch.zeros(outputs)).tolist())
        return Head(self.name, noise, (*log, *more), (*sd, *more_sd))
