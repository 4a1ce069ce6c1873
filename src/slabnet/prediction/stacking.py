"""Stacking: weights of the members of a mixture by what each says of rows that were not fitted."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from slabnet.core.errors import refuse
from slabnet.core.noise import Seed
from slabnet.model.mixture import Mixture
from slabnet.prediction.density import log_densities

ROUNDS = 10_000
GAIN = 1e-9  # in mean log density, below which a round changes nothing any more


def stacking_weights(log_density: Tensor) -> Tensor:
    """w on the simplex that maximises sum_i log sum_k w_k p_k(y_i) (Yao et al. 2018).

    log_density: (members, rows), log p_k(y_i) of rows that no member was fitted to.

    By the EM algorithm of mixture weights: no round lowers the objective, which is concave.

    >>> stacking_weights(torch.tensor([[0.0, 0.0], [-9.0, -9.0]])).round(decimals=3).tolist()
    [1.0, 0.0]
    """
    if log_density.ndim != 2 or not log_density.numel() or bool(torch.isnan(log_density).any()):
        refuse("stacking_weights", "log_density", "numbers of shape (members, rows)", tuple(log_density.shape))
    logs = log_density.double()
    density = (logs - logs.amax(0)).exp()
    weights, before = torch.full((len(logs),), 1 / len(logs), dtype=torch.float64), -torch.inf
    for _ in range(ROUNDS):
        mixed = weights @ density
        value = float(mixed.log().mean())
        if value - before < GAIN:
            break
        before = value
        weights = weights * (density / mixed).mean(1)
    return weights


def stack(net: Mixture, data: tuple[Any, Any], draws: int = 100, *, seed: Seed = 0) -> Tensor:
    """Weigh the members of a mixture by `data` = (x, y), rows that none of them was fitted to; gives the weights.

    draws: of each member. Rows that decide here must not judge the result.

    >>> from slabnet.model.networks import mlp
    >>> net = mlp((4, 3), members=2)
    >>> stack(net, (torch.zeros(2, 4), [0, 1]), draws=5).shape
    torch.Size([2])
    """
    if not isinstance(net, Mixture):
        refuse("stack", "net", "a Mixture", type(net).__name__)
    each = [log_densities(member, data, draws, seed=seed) for member in net.members]
    weights = stacking_weights(torch.stack(each))
    net.weigh(weights)
    return weights
