"""Counts whose variance is their mean."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from slabnet.model.likelihoods.base import Conditional, Head, Support, same_shape
from slabnet.model.likelihoods.counts import Counts


@dataclass(frozen=True)
class PoissonCounts(Conditional):
    """Poisson(exp(log_rate))."""

    support = Support.COUNTS
    log_rate: Tensor

    def log_prob(self, y: Tensor) -> Tensor:
        return y * self.log_rate - self.log_rate.exp() - torch.lgamma(y + 1)

    def cdf(self, y: Tensor) -> Tensor:
        rate = self.log_rate.exp()
        inside: Tensor = torch.special.gammaincc((y.floor() + 1).clamp_min(1).expand_as(rate).to(rate), rate)
        return torch.where(y < 0, torch.zeros_like(rate), inside)

    def around(self) -> tuple[Tensor, Tensor]:
        rate = self.log_rate.exp()
        return torch.zeros_like(rate), rate + 10 * rate.sqrt() + 10


class Poisson(Counts):
    """y ~ Poisson(exposure x exp(output)): counts of events that do not come together.

    >>> Poisson().log_prob(torch.zeros(1, 1), torch.zeros(1, 1)).item()
    -1.0
    """

    name = "poisson"

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        same_shape(output, y)
        return PoissonCounts(output).log_prob(y).sum(-1)

    def variance(self, output: Tensor) -> Tensor:
        return output.exp()

    def conditional(self, output: Tensor, dispersion: Tensor) -> Conditional:
        return PoissonCounts(output)

    def head(self, outputs: int) -> Head:
        return Head("poisson", noise=(0.0,) * outputs)
