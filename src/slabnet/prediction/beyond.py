"""What a fitted network says outside of its training rows: its slopes may change there as they do inside."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from slabnet.core.devices import device_of
from slabnet.core.noise import keyed_generator
from slabnet.model.beyond import Beyond
from slabnet.model.drawing import drawing
from slabnet.model.draws import exact
from slabnet.model.mixture import Mixture
from slabnet.model.network import Network
from slabnet.training.batches import Prepare

ROWS, DRAWS = 100, 20  # at which slopes are taken


def extend(net: Network, x: Any, seed: int = 0) -> None:
    """Let `net`, fitted to the rows `x`, be less sure the farther an input leaves their range (`model/beyond.py`).

    Inside the range nothing changes. Rows of a later call widen it. Left out where answers are no differences or log
    odds, and for methods without a posterior of single weights.

    >>> from slabnet.model.networks import mlp
    >>> net = mlp((2, 8, 1), likelihood="gaussian")
    >>> extend(net, torch.rand(50, 2))
    >>> net.beyond.high.shape
    torch.Size([2])
    """
    networks = list(net.members) if isinstance(net, Mixture) else [net]
    free = net.likelihood.free_outputs(net.outputs)
    if free == 0 or any(one.method.posterior is None or one.method.wrapper is not None for one in networks):
        return
    device, dtype = device_of(net)
    rows = Prepare(net, net.likelihood, dtype, device, "extend").features(x)
    flat = rows.flatten(1)
    spread = _bend(net, rows[:: max(1, len(rows) // ROWS)][:ROWS], free, seed)
    low, high = flat.min(0).values, flat.max(0).values
    for one in networks:
        made = Beyond(flat.shape[1], one.outputs).to(device, dtype)
        before = one.beyond
        made.low.copy_(low if before is None else torch.minimum(low, before.low))
        made.high.copy_(high if before is None else torch.maximum(high, before.high))
        made.slopes[:free] = spread
        one.take_beyond(made)


def _bend(net: Network, rows: Tensor, free: int, seed: int) -> Tensor:
    """(outputs, inputs): the standard deviation of the slope over the rows, as it is in a drawn network."""
    total = rows.new_zeros(free, rows.flatten(1).shape[1])
    for r in range(DRAWS):
        at = rows.detach().clone().requires_grad_(True)
        with torch.enable_grad(), drawing(net, exact, keyed_generator(seed, "extend", r, device=rows.device), r):
            outputs = net(at)
            for k in range(free):
                (slopes,) = torch.autograd.grad(outputs[:, k].sum(), at, retain_graph=True, allow_unused=True)
                total[k] += 0 if slopes is None else slopes.flatten(1).var(0, correction=0)
    return torch.nan_to_num((total / DRAWS).sqrt(), posinf=0.0)
