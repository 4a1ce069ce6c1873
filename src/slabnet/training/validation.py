"""Held-out rows: which they are, and how well the network does on them."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from slabnet.core.errors import refuse
from slabnet.model.drawing import Draw, drawing, mean
from slabnet.model.draws import Fixed
from slabnet.model.likelihoods import Likelihood, Response
from slabnet.training.batches import TensorBatches

CHUNK = 1000


def hold_out(
    data: TensorBatches, share: float, batch_size: int, generator: torch.Generator
) -> tuple[TensorBatches, tuple[Tensor, Response]]:
    """A random share of the rows for validation, and the others to train on."""
    order = torch.randperm(data.n, generator=generator).to(data.x.device)
    count = max(1, round(data.n * share))
    held_out, rest = order[:count], order[count:]
    if len(rest) < batch_size:
        refuse("fit", "batch_size", f"at most the {len(rest)} rows left for training", batch_size)
    return TensorBatches(data.x[rest], data.y[rest], batch_size), (data.x[held_out], data.y[held_out])


@torch.no_grad()
def mean_log_likelihood(
    net: nn.Module, likelihood: Likelihood, draw: Draw, rows: tuple[Tensor, Response] | None
) -> float | None:
    """Mean log-likelihood of validation rows at the posterior mean of what `draw` trains, a steady measure."""
    if rows is None:
        return None
    x, y = rows
    net.eval()
    with drawing(net, Fixed(draw.masks) if isinstance(draw, Fixed) else mean):
        starts = range(0, len(x), CHUNK)
        parts = [likelihood.total(net(x[i : i + CHUNK]), y[i : i + CHUNK]) for i in starts]
    net.train()
    return float(torch.stack(parts).sum()) / len(x)
