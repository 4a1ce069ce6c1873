"""Averages over a normal distribution by Gauss-Legendre quadrature."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache

import numpy as np
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

POINTS = 48  # on each side of zero
TAIL = 8.0  # standard deviations that are integrated over
AT_ONCE = 2**20  # values that are looked at, and kept for the way back, at once; more are computed again there


def normal_entropy(log_sigma: Tensor) -> Tensor:
    """Entropy of N(., sigma^2): log(2 pi e sigma^2) / 2."""
    return log_sigma + 0.5 * math.log(2 * math.pi * math.e)


def normal_average(function: Callable[[Tensor], Tensor], mu: Tensor, sigma: Tensor) -> Tensor:
    """E f(beta) over beta ~ N(mu, sigma^2), for each mu and sigma; f may have a kink or a peak at zero.

    The normal is cut at zero, and each side integrated for itself, with more points close to zero: their distances are
    the squares of those of Gauss and Legendre.

    >>> mu, sigma = torch.tensor([0.3, -2.0]), torch.tensor([1.0, 0.1])
    >>> torch.allclose(normal_average(torch.square, mu, sigma), mu**2 + sigma**2, atol=1e-5)
    True
    """
    with torch.no_grad():  # where the cut lies changes no value, so nothing depends on it
        cut = (-mu / sigma.clamp_min(torch.finfo(sigma.dtype).tiny)).clamp(-TAIL, TAIL)
    points, weights = (part.reshape(-1, *(1 for _ in mu.shape)) for part in _rule(mu.dtype, mu.device))
    few = max(1, AT_ONCE // max(mu.numel(), 1))
    total = torch.zeros_like(mu)
    for end in (-TAIL, TAIL):
        for at, weight in zip(torch.split(points, few), torch.split(weights, few), strict=True):
            part = (function, mu, sigma, cut, end - cut, at, weight)
            if few >= POINTS or not torch.is_grad_enabled():
                total = total + _terms(*part)
            else:
                total = total + checkpoint(_terms, *part, use_reentrant=False, preserve_rng_state=False)
    return total


def _terms(
    function: Callable[[Tensor], Tensor],
    mu: Tensor,
    sigma: Tensor,
    cut: Tensor,
    way: Tensor,
    at: Tensor,
    weight: Tensor,
) -> Tensor:
    z = cut + way * at * at
    density = torch.exp(-0.5 * z * z) * (2 * at * weight / math.sqrt(2 * math.pi))
    return (way.abs() * density * function(mu + sigma * z)).sum(0)


@cache
def _rule(dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor]:
    """Points and weights between 0 and 1."""
    points, weights = np.polynomial.legendre.leggauss(POINTS)
    with torch.inference_mode(False):
        return tuple(torch.tensor(part, dtype=dtype, device=device) for part in ((1 + points) / 2, weights / 2))  # type: ignore[return-value]
