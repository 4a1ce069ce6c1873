"""The distribution of a new observation: an equal mixture over draws of the network and of the dispersion."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from torch import Tensor

from slabnet.core.errors import refuse
from slabnet.model.likelihoods.base import Conditional, Likelihood, Support
from slabnet.model.likelihoods.normal import Normal

BISECTIONS = 50
PIECES = (1e-9, 1e-6, 1e-4, 1e-3, 0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99, 0.999, 1 - 1e-4, 1 - 1e-6, 1 - 1e-9)
SCORE_POINTS = 12  # of the quadrature in each piece
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
        conditional = self.likelihood.conditional(self.outputs.double(), self.dispersions.double())
        if conditional is None:
            refuse("Mixture", "likelihood", "one that gives a conditional distribution", self.likelihood.name)
        return conditional

    def rows(self, rows: slice | Tensor) -> Self:
        """The same for some of the rows."""
        return replace(self, outputs=self.outputs[:, rows])

    def log_density(self, y: Tensor, event: Tensor | None = None) -> Tensor:
        """For each row the log of the averaged density, all responses of a row together.

        event: 0 for rows that were cut off at y, which count with P(Y > y).
        """
        each = self.each.log_prob(y)
        if event is not None:
            each = torch.where(event.reshape(-1, 1) > 0, each, self.each.log_survival(y))
        each = each.sum(-1)
        return torch.logsumexp(each, 0) - math.log(len(each))

    def exceeds(self, y: Tensor) -> Tensor:
        """P(Y > y), (rows, responses): for times the survival curve."""
        return self.each.log_survival(y).exp().mean(0)

    def cdf(self, y: Tensor) -> Tensor:
        """P(Y <= y), (rows, responses)."""
        return self.each.cdf(y).mean(0)

    def crps(self, y: Tensor) -> Tensor:
        """Continuous ranked probability score, the integral of (F(t) - 1{y <= t})^2, (rows, responses).

        As E|Y - y| - E|Y - Y'| / 2 in closed form under normal noise, else by quadrature.
        """
        if isinstance(self.each, Normal):
            return self.each.crps(y)
        return _counted_score(self, y) if self.each.support is Support.COUNTS else _integrated_score(self, y)

    def quantile(self, shares: Tensor) -> Tensor:
        """(shares, rows, responses), by bisection of the averaged distribution function; never outside the support."""
        each = self.each
        low, high = each.around()
        low, high = low.amin(0).expand(len(shares), *low.shape[1:]), high.amax(0).expand(len(shares), *high.shape[1:])
        wanted = shares.to(low.dtype).reshape(-1, *(1 for _ in low.shape[1:]))

        def below(points: Tensor) -> Tensor:
            return torch.stack([each.cdf(q).mean(0) for q in points]) < wanted

        if each.support is Support.COUNTS:
            values = _counts(high, below)
        elif each.support is Support.POSITIVE:
            values = _between(low.log(), high.log(), lambda points: below(points.exp())).exp()
        else:
            values = _between(low, high, below)
        return values.to(self.outputs.dtype)


def _integrated_score(mixture: Mixture, y: Tensor) -> Tensor:
    """The integral of (F - 1{y <= t})^2 over t, by Gauss-Legendre in pieces between quantiles, and y."""
    shares = torch.tensor(PIECES, dtype=torch.float64)
    edges = mixture.quantile(shares).double()
    edges = torch.cat([edges, y.double()[None]]).sort(0).values
    points, weights = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(SCORE_POINTS))
    total = torch.zeros_like(y, dtype=torch.float64)
    for low, high in itertools.pairwise(edges):
        half, middle = (high - low) / 2, (high + low) / 2
        for point, weight in zip(points, weights, strict=True):
            at = middle + half * point
            total += weight * half * (mixture.cdf(at) - (y <= at).double()) ** 2
    return total


def _counted_score(mixture: Mixture, y: Tensor) -> Tensor:
    """The same for counts, where it is a sum."""
    last = float(torch.maximum(mixture.quantile(torch.tensor([1 - 1e-9]))[0], y).max())
    total = torch.zeros_like(y, dtype=torch.float64)
    for k in range(int(last) + 1):
        total += (mixture.cdf(torch.full_like(y, float(k))) - (y <= k).double()) ** 2
    return total


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
