"""A number above 0 whose standard deviation grows with its mean: costs, durations, amounts of rain."""

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
    Support,
    YScale,
    by_output,
    positive,
    same_shape,
)
from slabnet.model.likelihoods.dispersion import Dispersion


@dataclass(frozen=True)
class GammaAround(Conditional):
    """Gamma with mean exp(log_mean) and variance mean^2 / shape."""

    support = Support.POSITIVE
    log_mean: Tensor
    shape: Tensor

    def log_prob(self, y: Tensor) -> Tensor:
        inside = y > 0
        ratio = torch.where(inside, y, torch.ones_like(y)).log() - self.log_mean
        k = self.shape
        log_density = k * k.log() - torch.lgamma(k) + k * (ratio - ratio.exp()) - (ratio + self.log_mean)
        return torch.where(inside, log_density, torch.full_like(log_density, -math.inf))

    def cdf(self, y: Tensor) -> Tensor:
        at = self.shape * y.clamp_min(0) * (-self.log_mean).exp()
        below: Tensor = torch.special.gammainc(self.shape.expand_as(at), at)
        return below

    def around(self) -> tuple[Tensor, Tensor]:
        mean = self.log_mean.exp()
        return mean * 1e-3, mean * (1 + 10 / self.shape.sqrt() + 10 / self.shape)


class Gamma(Likelihood):
    """y ~ Gamma(mean = exp(output), shape), variance mean^2 / shape; the shape has a log-normal posterior.

    >>> Gamma().variance(torch.zeros(1, 1)).item() > 1
    True
    """

    name = "gamma"
    metrics = ("rmse", "negative_log_likelihood", "gamma_deviance", "crps", "interval_coverage")
    y_scale = YScale.RATIO

    def __init__(self, outputs: int = 1) -> None:
        super().__init__()
        self.shape = Dispersion(outputs)

    @property
    def learns(self) -> bool:
        return True

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """E_q(k) of k log k - log Gamma(k) + k (log y - eta - y / mu) - log y: linear in k but for two numbers."""
        same_shape(output, y)
        points, weights = self.shape.nodes()
        k_log_k = self.shape.moment(1) * (self.shape.log + self.shape.sd**2)
        front = k_log_k - weights @ torch.lgamma(points)
        ratio = y.log() - output
        return (front + self.shape.moment(1) * (ratio - ratio.exp()) - y.log()).sum(-1)

    def mean(self, output: Tensor) -> Tensor:
        return output.exp()

    def variance(self, output: Tensor) -> Tensor:
        return (2 * output).exp() * self.shape.moment(-1).detach()

    def conditional(self, output: Tensor, dispersion: Tensor) -> Conditional:
        return GammaAround(output, dispersion[:, None])

    def draw_dispersion(self, generator: torch.Generator) -> Tensor:
        return self.shape.draw(generator)

    def kl(self) -> Tensor:
        return self.shape.kl()

    def targets(self, y: Tensor, outputs: int, dtype: torch.dtype, where: str) -> Tensor:
        if self.shape.log.shape[0] not in (1, outputs):
            refuse(where, "likelihood", f"Gamma(outputs={outputs})", f"outputs={self.shape.log.shape[0]}")
        return positive(by_output(y, outputs, where).to(dtype), where)

    def spec(self) -> dict[str, Any]:
        return {"name": self.name, "outputs": self.shape.log.shape[0]}

    @classmethod
    def built(cls, options: dict[str, Any], outputs: int) -> Gamma:
        return cls(**{"outputs": outputs, **options})

    def head(self, outputs: int) -> Head:
        inverse = self.shape.moment(-1).detach().expand(outputs).tolist()
        log, sd = (part.detach().expand(outputs).tolist() for part in (self.shape.log, self.shape.sd))
        return Head("gamma", tuple(inverse), tuple(log), tuple(sd))
