"""Counts that vary more than their mean: a Poisson rate that differs from row to row in ways no input tells."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from slabnet.core.errors import refuse
from slabnet.model.likelihoods.base import Conditional, Head, Support, by_scipy, same_shape
from slabnet.model.likelihoods.counts import Counts
from slabnet.model.likelihoods.dispersion import Dispersion


@dataclass(frozen=True)
class SpreadCounts(Conditional):
    """Negative binomial with mean exp(log_mean) and variance mean + mean^2 / theta."""

    support = Support.COUNTS
    log_mean: Tensor
    theta: Tensor

    def log_prob(self, y: Tensor) -> Tensor:
        odds = self.log_mean - self.theta.log()
        chosen = torch.lgamma(y + self.theta) - torch.lgamma(self.theta) - torch.lgamma(y + 1)
        return chosen - self.theta * F.softplus(odds, threshold=40) - y * F.softplus(-odds, threshold=40)

    def cdf(self, y: Tensor) -> Tensor:
        share = torch.sigmoid(self.theta.log() - self.log_mean)
        count = (y.floor() + 1).clamp_min(1).to(share)
        inside = by_scipy("betainc", self.theta.expand_as(share), count.expand_as(share), share).to(share)
        return torch.where(y < 0, torch.zeros_like(share), inside)

    def around(self) -> tuple[Tensor, Tensor]:
        mean = self.log_mean.exp()
        return torch.zeros_like(mean), mean + 10 * (mean + mean**2 / self.theta).sqrt() + 10


class NegativeBinomial(Counts):
    """y ~ NB(exposure x exp(output), theta), variance mu + mu^2 / theta; theta has a log-normal posterior.

    >>> NegativeBinomial().theta.median.item()
    1.0
    """

    name = "negative-binomial"

    def __init__(self, outputs: int = 1) -> None:
        super().__init__()
        self.theta = Dispersion(outputs)

    @property
    def learns(self) -> bool:
        return True

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """E_q(theta) log NB(y; exp(output), theta), by Gauss-Hermite quadrature over log theta."""
        same_shape(output, y)
        points, weights = self.theta.nodes()
        each = SpreadCounts(output, points[:, None]).log_prob(y).sum(-1)
        return weights @ each

    def variance(self, output: Tensor) -> Tensor:
        mean = output.exp()
        return mean + mean**2 * self.theta.moment(-1).detach()

    def conditional(self, output: Tensor, dispersion: Tensor) -> Conditional:
        return SpreadCounts(output, dispersion[:, None])

    def draw_dispersion(self, generator: torch.Generator) -> Tensor:
        return self.theta.draw(generator)

    def kl(self) -> Tensor:
        return self.theta.kl()

    def targets(self, y: Tensor, outputs: int, dtype: torch.dtype, where: str) -> Tensor:
        if self.theta.log.shape[0] not in (1, outputs):
            refuse(where, "likelihood", f"NegativeBinomial(outputs={outputs})", f"outputs={self.theta.log.shape[0]}")
        return super().targets(y, outputs, dtype, where)

    def spec(self) -> dict[str, Any]:
        return {"name": self.name, "outputs": self.theta.log.shape[0]}

    @classmethod
    def built(cls, options: dict[str, Any], outputs: int) -> NegativeBinomial:
        return cls(**{"outputs": outputs, **options})

    def head(self, outputs: int) -> Head:
        inverse = self.theta.moment(-1).detach().expand(outputs).tolist()
        log, sd = (part.detach().expand(outputs).tolist() for part in (self.theta.log, self.theta.sd))
        return Head("negative-binomial", tuple(inverse), tuple(log), tuple(sd))
