"""The distribution of a new observation: an equal mixture over draws of the network and of the dispersion."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from slabnet.core.errors import refuse
from slabnet.model.likelihoods.base import Conditional, Likelihood, Support

BISECTIONS = 50
DOUBLINGS = 200
Below = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Mixture:
    """Draws of the network's outputs, (draws, rows, outputs), each with its draw of the dispersion, (draws, any).

    Probabilities are means over the draws, and quantiles invert the averaged distribution function.
    """

    likelihood: Likelihood
    outputs: Tensor
    dispersions: Tensor

    @classmethod
    def of(cls, likelihood: Likelihood, outputs: Tensor, dispersions: Tensor) -> Self | None:
        """The mixture; None where the likelihood does not say how observations are distributed."""
        outputs = outputs.expand(len(dispersions), *outputs.shape[1:])
        return (
            None
            if likelihood.conditional(outputs[:, :1], dispersions) is None
            else cls(likelihood, outputs, dispersions)
        )

    @cached_property
    def each(self) -> Conditional:
        """The distribution under each draw."""
        found = self.likelihood.conditional(self.outputs.double(), self.dispersions.double())
        if found is None:
            refuse("Mixture", "likelihood", "one that gives a conditional distribution", self.likelihood.name)
        return found

    def rows(self, rows: slice | Tensor) -> Self:
        """The same for some of the rows."""
        return replace(self, outputs=self.outputs[:, rows])

    def log_density(self, y: Tensor) -> Tensor:
        """For each row the log of the averaged density, all responses of a row together."""
        each = self.each.log_prob(y).sum(-1)
        return torch.logsumexp(each, 0) - math.log(len(each))

    def cdf(self, y: Tensor) -> Tensor:
        """P(Y <= y), (rows, responses)."""
        return self.each.cdf(y).mean(0)

    def crps(self, y: Tensor) -> Tensor:
        """E|Y - y| - E|Y - Y'| / 2, (rows, responses); in closed form where the distribution of a draw has one."""
        return self.each.crps(y)

    def quantile(self, shares: Tensor) -> Tensor:
        """(shares, rows, responses), by bisection of the averaged distribution function; never outside the support."""
        each = self.each
        low, high = each.around()
        low, high = low.amin(0).expand(len(shares), *low.shape[1:]), high.amax(0).expand(len(shares), *high.shape[1:])
        wanted = shares.to(low.dtype).reshape(-1, *(1 for _ in low.shape[1:]))

        def below(points: Tensor) -> Tensor:
            return torch.stack([each.cdf(q).mean(0) for q in points]) < wanted

        if each.support is Support.COUNTS:
            found = _counts(high, below)
        elif each.support is Support.POSITIVE:
            found = _between(low.log(), high.log(), lambda points: below(points.exp())).exp()
        else:
            found = _between(low, high, below)
        return found.to(self.outputs.dtype)


def _between(low: Tensor, high: Tensor, below: Below) -> Tensor:
    """Where `below` turns from true to false: between two points, which are moved outwards while they are inside."""
    for _ in range(DOUBLINGS):
        over, under = ~below(low), below(high)
        if not bool((over | under).any()):
            break
        width = high - low
        low, high = torch.where(over, low - width, low), torch.where(under, high + width, high)
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        under = below(middle)
        low, high = torch.where(under, middle, low), torch.where(under, high, middle)
    return (low + high) / 2


def _counts(high: Tensor, below: Below) -> Tensor:
    """The smallest whole number at which `below` is false."""
    low, high = torch.full_like(high, -1.0), high.ceil().clamp_min(1)
    for _ in range(DOUBLINGS):
        under = below(high)
        if not bool(under.any()):
            break
        low, high = torch.where(under, high, low), torch.where(under, 2 * high, high)
    while bool((high - low > 1).any()):
        middle = ((low + high) / 2).floor()
        under = below(middle)
        low, high = torch.where(under, middle, low), torch.where(under, high, middle)
    return high
