"""A number above 0 whose logarithm has normal noise: prices, sizes, concentrations."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from slabnet.model.likelihoods.base import Conditional, Head, Point, Support, YScale, by_output, positive
from slabnet.model.likelihoods.gaussian import Gaussian
from slabnet.model.likelihoods.normal import REACH, Normal


@dataclass(frozen=True)
class LogOfNormal(Conditional):
    """exp(N(centre, sd^2))."""

    support = Support.POSITIVE
    centre: Tensor
    sd: Tensor

    def log_prob(self, y: Tensor) -> Tensor:
        inside = y > 0
        log_y = torch.where(inside, y, torch.ones_like(y)).log()
        log_density = Normal(self.centre, self.sd).log_prob(log_y) - log_y
        return torch.where(inside, log_density, torch.full_like(log_density, -math.inf))

    def cdf(self, y: Tensor) -> Tensor:
        return Normal(self.centre, self.sd).cdf(y.clamp_min(0).log())

    def around(self) -> tuple[Tensor, Tensor]:
        reach = REACH * self.sd
        return (self.centre - reach).exp(), (self.centre + reach).exp()


class LogNormalResponse(Gaussian):
    """log y ~ N(output, phi), with the posteriors and options that `Gaussian` has for phi.

    Under an uncertain phi the mean of y is infinite: the median is predicted, and variances are those of log y.

    >>> LogNormalResponse(phi=0.25).mean(torch.zeros(1, 1)).item()
    1.0
    """

    name = "lognormal"
    metrics = ("negative_log_likelihood", "crps", "interval_coverage", "quantile_loss")
    point = Point.MEDIAN
    baseline = "the median"
    y_scale = YScale.RATIO

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """E_q(phi) log f(y; output, phi), in closed form."""
        log_y = y.log()
        return super().log_prob(output, log_y) - log_y.sum(-1)

    def mean(self, output: Tensor) -> Tensor:
        return output.exp()

    def spread_scale(self, centre: Tensor) -> Tensor:
        return centre.log()

    def noise_variances(self) -> tuple[float, ...]:
        return ()

    def conditional(self, output: Tensor, dispersion: Tensor) -> Conditional:
        return LogOfNormal(output, dispersion.sqrt()[:, None, :].expand_as(output))

    def targets(self, y: Tensor, outputs: int, dtype: torch.dtype, where: str) -> Tensor:
        return positive(super().targets(by_output(y, outputs, where), outputs, dtype, where), where)

    def head(self, outputs: int) -> Head:
        return replace(super().head(outputs), name=self.name)
