"""A time until an event, which for some rows was not seen because watching ended before (right-censored)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from slabnet.core.errors import refuse
from slabnet.model.likelihoods.base import (
    Conditional,
    Head,
    Likelihood,
    Point,
    Support,
    YScale,
    by_output,
    positive,
    same_shape,
)
from slabnet.model.likelihoods.dispersion import Dispersion
from slabnet.model.likelihoods.target import Response, Target


@dataclass(frozen=True)
class WeibullTimes(Conditional):
    """P(T > t) = exp(-(t / exp(log_scale))^shape)."""

    support = Support.POSITIVE
    log_scale: Tensor
    shape: Tensor

    def log_prob(self, y: Tensor) -> Tensor:
        inside = y > 0
        log_y = torch.where(inside, y, torch.ones_like(y)).log()
        u = self.shape * (log_y - self.log_scale)
        log_density = self.shape.log() + u - log_y - u.exp()
        return torch.where(inside, log_density, torch.full_like(log_density, -math.inf))

    def log_survival(self, y: Tensor) -> Tensor:
        return -torch.exp(self.shape * (y.clamp_min(0).log() - self.log_scale))

    def cdf(self, y: Tensor) -> Tensor:
        return -torch.expm1(self.log_survival(y))

    def around(self) -> tuple[Tensor, Tensor]:
        return tuple(  # type: ignore[return-value]
            torch.exp(self.log_scale + math.log(-math.log1p(-share)) / self.shape) for share in (0.01, 0.99)
        )


class Weibull(Likelihood):
    """Accelerated failure time: T = exp(output) E^(1 / shape), E ~ Exp(1); the shape has a log-normal posterior.

    Rows with `event` 0 count with log P(T > y) (`Target(y, event=...)`). Under an uncertain shape T has no finite mean:
    the median is predicted, and variances are those of log T.

    >>> Weibull().log_prob(torch.zeros(1, 1), torch.ones(1, 1)).item() < -0.9
    True
    """

    name = "weibull"
    metrics = ("negative_log_likelihood", "concordance", "integrated_brier")
    point = Point.MEDIAN
    baseline = "the median"
    y_scale = YScale.RATIO
    sides = ("event",)

    def __init__(self, outputs: int = 1) -> None:
        super().__init__()
        self.shape = Dispersion(outputs)

    @property
    def learns(self) -> bool:
        return True

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        return self._each(output, y, torch.ones_like(y[:, :1]))

    def log_likelihood(self, output: Tensor, y: Response) -> Tensor:
        if isinstance(y, Tensor) or y.event is None:
            return super().log_likelihood(output, y)
        return self._each(output, y.y, y.event[:, None])

    def _each(self, output: Tensor, y: Tensor, event: Tensor) -> Tensor:
        """event log f(y) + (1 - event) log P(T > y), in expectation over log shape (Gauss-Hermite)."""
        same_shape(output, y)
        points, weights = self.shape.nodes()
        u = y.log() - output
        hazard = torch.einsum("n,nrk->rk", weights, torch.exp(points[:, None] * u))
        return (event * (self.shape.log + self.shape.moment(1) * u - y.log()) - hazard).sum(-1)

    def mean(self, output: Tensor) -> Tensor:
        return torch.exp(output + math.log(math.log(2)) / self.shape.median)

    def variance(self, output: Tensor) -> Tensor:
        return (math.pi**2 / 6 * self.shape.moment(-2)).detach().expand_as(output)

    def spread_scale(self, centre: Tensor) -> Tensor:
        return centre.log()

    def conditional(self, output: Tensor, dispersion: Tensor) -> Conditional:
        return WeibullTimes(output, dispersion[:, None])

    def draw_dispersion(self, generator: torch.Generator) -> Tensor:
        return self.shape.draw(generator)

    def kl(self) -> Tensor:
        return self.shape.kl()

    def targets(self, y: Tensor, outputs: int, dtype: torch.dtype, where: str) -> Tensor:
        if self.shape.log.shape[0] not in (1, outputs):
            refuse(where, "likelihood", f"Weibull(outputs={outputs})", f"outputs={self.shape.log.shape[0]}")
        return positive(by_output(y, outputs, where).to(dtype), where)

    def check_rows(self, target: Target, where: str) -> None:
        if target.event is not None and not bool((target.event > 0).any()):
            refuse(where, "event", "1 for some row", "0 for all: no event was seen")

    def spec(self) -> dict[str, Any]:
        return {"name": self.name, "outputs": self.shape.log.shape[0]}

    @classmethod
    def built(cls, options: dict[str, Any], outputs: int) -> Weibull:
        return cls(**{"outputs": outputs, **options})

    def head(self, outputs: int) -> Head:
        noise = self.variance(torch.zeros(outputs)).tolist()
        log, sd = (part.detach().expand(outputs).tolist() for part in (self.shape.log, self.shape.sd))
        return Head(self.name, tuple(noise), tuple(log), tuple(sd))
