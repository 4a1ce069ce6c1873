"""The coefficient table of a one-layer model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from slabnet.core.errors import refuse
from slabnet.selection.rules import slab_layers


@dataclass(frozen=True)
class Coefficient:
    """One weight of a one-layer model: its inclusion probability, and mean and sd over gamma and beta."""

    output: int
    input: str
    alpha: float
    mean: float
    sd: float
    mean_if_in: float
    sd_if_in: float


@torch.no_grad()
def coefficients(net: nn.Module, names: Sequence[str] | None = None) -> list[Coefficient]:
    """The coefficient table of a one-layer model, intercept first; `names` of the inputs where known."""
    layers = slab_layers(net)
    if len(layers) != 1:
        refuse("coefficients", "net", "a model of one layer", f"one of {len(layers)} layers")
    (layer,) = layers.values()
    shape = layer.weight.mu.shape
    if len(shape) != 2:
        refuse("coefficients", "net", "a linear model", f"a layer with weights of shape {tuple(shape)}")
    if names is not None and len(names) != shape[1]:
        refuse("coefficients", "names", f"one for each of the {shape[1]} inputs", f"{len(names)} names")
    blocks = layer.blocks()
    labels = [str(name) for name in (names if names is not None else range(shape[1]))]
    rows = []
    for output in range(shape[0]):
        if len(blocks) > 1:
            rows.append(_coefficient(output, "(intercept)", [p[output] for p in _columns(blocks[1])]))
        columns = _columns(blocks[0])
        rows += [_coefficient(output, label, [p[output, i] for p in columns]) for i, label in enumerate(labels)]
    return rows


def _columns(block: Any) -> list[Tensor]:
    alpha = torch.ones_like(block.mu) if block.omega is None else torch.sigmoid(block.omega)
    return [alpha, block.mu, torch.nn.functional.softplus(block.rho)]


def _coefficient(output: int, name: str, values: list[Tensor]) -> Coefficient:
    alpha, mu, sigma = (float(v) for v in values)
    sd = (alpha * (sigma**2 + (1 - alpha) * mu**2)) ** 0.5
    return Coefficient(output, name, alpha, alpha * mu, sd, mu, sigma)
