"""The coefficient table of a one-layer model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from slabnet.core.errors import refuse
from slabnet.model.mixture import refuse_mixture
from slabnet.model.posteriors import Block
from slabnet.model.wrapped import Wrapped, Wraps, network_in
from slabnet.selection.rules import slab_layers

INTERCEPT = "(intercept)"


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
def coefficients(net: nn.Module | Wraps, names: Sequence[str] | None = None) -> list[Coefficient]:
    """The coefficient table of a one-layer model, intercept first.

    net: a network; or a fitted estimator with `hidden=()`, whose table is in the units of its columns and response (for
        classes: log-odds per unit of a column). Its intercept has no alpha: it is what all of them add up to.
    names: of the inputs; an estimator knows them.

    >>> from slabnet.model.networks import mlp
    >>> [row.input for row in coefficients(mlp((2, 1), likelihood="gaussian"), ["age", "dose"])]
    ['(intercept)', 'age', 'dose']
    """
    if isinstance(net, Wraps):
        return _in_units(net.wrapped(), names)
    refuse_mixture("coefficients", network_in("coefficients", net))
    layers = slab_layers(network_in("coefficients", net))
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
            rows.append(_coefficient(output, INTERCEPT, [p[output] for p in _columns(blocks[1])]))
        columns = _columns(blocks[0])
        rows += [_coefficient(output, label, [p[output, i] for p in columns]) for i, label in enumerate(labels)]
    return rows


def _in_units(known: Wrapped, names: Sequence[str] | None) -> list[Coefficient]:
    """The table of a network of standardised columns, with slopes in the units that went in."""
    table = coefficients(known.net, known.inputs if names is None else names)
    rows = []
    for output, scale in enumerate(known.scale_y.tolist()):
        slopes = [row for row in table if row.output == output and row.input != INTERCEPT]
        shifts = (known.centre_x / known.scale_x).tolist()
        parts = [row for row in table if row.output == output and row.input == INTERCEPT]
        parts += [_times(row, -shift) for row, shift in zip(slopes, shifts, strict=True)]
        sums = [sum(part.mean for part in parts), sum(part.mean_if_in for part in parts)]
        sds = [sum(part.sd**2 for part in parts) ** 0.5, sum(part.sd_if_in**2 for part in parts) ** 0.5]
        centre = float(known.centre_y[output])
        ends = (centre + scale * sums[0], scale * sds[0], centre + scale * sums[1], scale * sds[1])
        rows.append(Coefficient(output, INTERCEPT, 1.0, *ends))
        rows += [_times(row, scale / unit) for row, unit in zip(slopes, known.scale_x.tolist(), strict=True)]
    return rows


def _times(row: Coefficient, factor: float) -> Coefficient:
    means, sds = (factor * row.mean, factor * row.mean_if_in), (abs(factor) * row.sd, abs(factor) * row.sd_if_in)
    return replace(row, mean=means[0], sd=sds[0], mean_if_in=means[1], sd_if_in=sds[1])


def _columns(block: Block) -> list[Tensor]:
    alpha = torch.ones_like(block.mu) if block.omega is None else torch.sigmoid(block.omega)
    return [alpha, block.mu, torch.nn.functional.softplus(block.rho)]


def _coefficient(output: int, name: str, values: list[Tensor]) -> Coefficient:
    alpha, mu, sigma = (float(v) for v in values)
    sd = (alpha * (sigma**2 + (1 - alpha) * mu**2)) ** 0.5
    return Coefficient(output, name, alpha, alpha * mu, sd, mu, sigma)
