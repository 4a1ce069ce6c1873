"""Shapley values of one drawn network over the columns it uses: exact, or by pairs of permutations.

phi_j = sum over S without j of |S|! (d - |S| - 1)! / d! [v(S + j) - v(S)], with v(S) the mean over the background of
the output at (x_S, b_rest). They add up to f(x) minus the mean of f over the background (Lundberg & Lee 2017).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from slabnet.prediction.drawn import Drawn, Link

MOST_EXACT = 12  # columns, over whose 2^12 coalitions values are summed; of more, permutations are drawn


class Values(NamedTuple):
    """Shapley values (rows, columns, outputs), and the variance that drawing permutations gives each of them."""

    phi: Tensor
    variance: Tensor


def coalitions(columns: int) -> Tensor:
    """(2^columns, columns): every subset as a row of zeros and ones.

    >>> coalitions(2).int().tolist()
    [[0, 0], [1, 0], [0, 1], [1, 1]]
    """
    numbers = torch.arange(2**columns)
    return (numbers[:, None] >> torch.arange(columns)) & 1 == 1


def shapley_weights(columns: int) -> Tensor:
    """(columns, 2^columns): what each coalition's value counts in each column's Shapley value.

    >>> shapley_weights(2).tolist()
    [[-0.5, 0.5, -0.5, 0.5], [-0.5, -0.5, 0.5, 0.5]]
    """
    inside = coalitions(columns)
    size = inside.sum(1)
    share = torch.tensor([1 / (columns * math.comb(columns - 1, s)) for s in range(columns)], dtype=torch.float64)
    joins = share[(size - 1).clamp_min(0)]
    stays = share[size.clamp_max(columns - 1)]
    return torch.where(inside.T, joins, -stays)


def exact_values(part: Drawn, x: Tensor, background: Tensor, link: Link | None, used: Tensor) -> Tensor:
    """Shapley values over every coalition of the columns `used` (a mask)."""
    places = used.nonzero()[:, 0]
    masks = torch.zeros(2 ** len(places), len(used), dtype=torch.bool)
    masks[:, places] = coalitions(len(places))
    v = part.values(masks, x, background, link)
    phi = torch.zeros(len(x), len(used), v.shape[2], dtype=v.dtype)
    phi[:, places] = torch.einsum("ds,sno->ndo", shapley_weights(len(places)), v)
    return phi


def sampled_values(
    part: Drawn,
    x: Tensor,
    background: Tensor,
    link: Link | None,
    used: Tensor,
    pairs: int,
    generator: torch.Generator,
) -> Values:
    """The same by `pairs` permutations, each also in reverse order, for every row of the background.

    A permutation lets the columns enter one by one and gives each what it then changes: a permutation's terms add up to
    f(x) - f(b), so that the values add up exactly. Pairs in opposite order cancel what is odd in it (Mitchell et al.
    2022). The variance is that of the mean of the pairs, as if their background rows had been drawn too.
    """
    places = used.nonzero()[:, 0]
    count = len(places)
    pairs = max(pairs, math.ceil(2 / len(background)))  # a variance takes two
    total = squares = torch.zeros(())
    for row in background:
        for _ in range(pairs):
            order = torch.randperm(count, generator=generator)
            one = [_along(part, x, row[None], link, places[way], len(used)) for way in (order, order.flip(0))]
            mean = (one[0] + one[1]) / 2
            total, squares = total + mean, squares + mean**2
    trials = len(background) * pairs
    phi = total / trials
    variance = (squares / trials - phi**2).clamp_min(0) / (trials - 1)
    return Values(phi, variance)


def _along(part: Drawn, x: Tensor, row: Tensor, link: Link | None, order: Tensor, columns: int) -> Tensor:
    """What each column changes when it enters, in this order."""
    masks = torch.zeros(len(order) + 1, columns, dtype=torch.bool)
    masks[1:, order] = torch.tril(torch.ones(len(order), len(order), dtype=torch.bool))
    steps = part.values(masks, x, row, link).diff(dim=0)
    phi = torch.zeros(len(x), columns, steps.shape[2], dtype=steps.dtype)
    phi[:, order] = steps.transpose(0, 1)
    return phi


def shapley_values(
    parts: Sequence[Drawn],
    outputs: int,
    x: Tensor,
    background: Tensor,
    link: Link | None,
    pairs: int,
    generator: torch.Generator,
) -> Values:
    """Of a network that is the sum of `parts`, and a constant: each over its own columns only."""
    columns = len(parts[0].used) if parts else 0
    phi = torch.zeros(len(x), columns, outputs, dtype=torch.float64)
    variance = torch.zeros_like(phi)
    for part in parts:
        used = part.used
        if not bool(used.any()):
            continue
        if int(used.sum()) <= MOST_EXACT:
            phi += exact_values(part, x, background, link, used)
        else:
            sampled = sampled_values(part, x, background, link, used, pairs, generator)
            phi += sampled.phi
            variance += sampled.variance
    return Values(phi, variance)
