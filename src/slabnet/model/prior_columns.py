"""What a `Prior` says of single inputs or weights, spread over the weights of one layer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from slabnet.config.priors import Beta, Prior, WeightPsi
from slabnet.core.errors import refuse


class Again(NamedTuple):
    """That the last `columns` inputs of a layer are those which layer number `reader` reads first."""

    columns: int
    reader: int


def each_psi(prior: Prior, index: int, shape: tuple[int, ...]) -> Tensor | None:
    """psi of every weight of layer `index` where it is given for each, by a function or in a file; else None."""
    if not prior.by_weight:
        return None
    if len(shape) != 2:
        refuse("Prior", "psi", "one for each layer where there are convolutions", "one for each weight")
    if isinstance(prior.psi, WeightPsi):
        return torch.tensor(prior.psi.of_layer(index, shape), dtype=torch.float64).reshape(shape)
    assert callable(prior.psi)
    rows = [[prior.psi(index, unit, position) for position in range(shape[1])] for unit in range(shape[0])]
    for unit, row in enumerate(rows):
        for position, value in enumerate(row):
            good = isinstance(value, (int, float, np.floating)) and not isinstance(value, bool) and 0 < value < 1
            if not good:
                refuse("Prior", f"psi({index}, {unit}, {position})", "a number above 0 and below 1", value)
    return torch.tensor([[float(value) for value in row] for row in rows], dtype=torch.float64)


def per_input(values: Sequence[float] | None, shape: tuple[int, ...], groups: int) -> Tensor | None:
    if values is None:
        return None
    inputs = shape[1] * groups
    if len(values) != inputs:
        refuse("Prior", "input_psi", f"one number for each of the {inputs} inputs", f"{len(values)} numbers")
    return _by_weight(torch.tensor(values, dtype=torch.float64), shape, groups)


def again_psi(prior: Prior, index: int, layers: int, shape: tuple[int, ...], again: Again) -> Tensor | None:
    """psi of the weights that read inputs again, NaN for those that read units; None where all have the layer's."""
    given: float | Sequence[float] | Beta | None = prior.skip_psi
    if given is None:
        given = prior.input_psi if again.reader == 0 else None
    if given is None:
        given = prior.inclusion(again.reader, layers)
    if isinstance(given, Beta) or given == prior.inclusion(index, layers):
        return None
    values = [given] * again.columns if isinstance(given, float) else list(given)
    if len(values) != again.columns:
        refuse("Prior", "skip_psi", f"one number for each of the {again.columns} inputs", f"{len(values)} numbers")
    every = [math.nan] * (shape[1] - again.columns) + values
    return _by_weight(torch.tensor(every, dtype=torch.float64), shape, 1)


def again_pins(prior: Prior, shape: tuple[int, ...], again: Again) -> Tensor | None:
    """The pins of the inputs that are read again; units are free."""
    again_pinned = pins(prior, (shape[0], again.columns), 1) if again.reader == 0 else None
    return None if again_pinned is None else torch.nn.functional.pad(again_pinned, (shape[1] - again.columns, 0))


def pins(prior: Prior, shape: tuple[int, ...], groups: int) -> Tensor | None:
    """+1 where forced in, -1 where forced out, 0 where free; spread over the weight."""
    if not prior.include and not prior.exclude:
        return None
    inputs = shape[1] * groups
    forced = torch.zeros(inputs, dtype=torch.int8)
    for name, positions, value in (("include", prior.include, 1), ("exclude", prior.exclude, -1)):
        for position in positions:
            if not 0 <= position < inputs:
                refuse("Prior", name, f"positions of inputs, 0 to {inputs - 1}", position)
            forced[position] = value
    return _by_weight(forced, shape, groups)


def _by_weight(per_input: Tensor, shape: tuple[int, ...], groups: int) -> Tensor:
    """Spread one value per input over a weight of `shape` (outputs, inputs / groups, *kernel)."""
    by_group = per_input.reshape(groups, 1, shape[1]).expand(groups, shape[0] // groups, shape[1])
    flat = by_group.reshape(shape[0], shape[1], *(1 for _ in shape[2:]))
    return flat.expand(shape).contiguous()
