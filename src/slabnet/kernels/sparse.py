"""A chain of sparse linear layers and activations in one call of C, and the same readably in torch."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slabnet.core.errors import refuse
from slabnet.kernels import native


class Elementwise(NamedTuple):
    """What comes after a layer: a function, with its number and its options in sparse.h."""

    function: Callable[[Tensor], Tensor]
    code: int
    options: tuple[float, ...] = ()


IDENTITY = Elementwise(nn.Identity(), 0)


class SparseLayer(NamedTuple):
    """A matrix by rows (int32 `starts` and `columns`, float32 `values`), its intercepts, and what comes after it.

    inputs: its width; all `columns` are below it.
    """

    inputs: int
    starts: Tensor
    columns: Tensor
    values: Tensor
    intercepts: Tensor | None
    activation: Elementwise = IDENTITY

    @property
    def units(self) -> int:
        return len(self.starts) - 1


class SparseChain:
    """Layers one after the other; `reads` (int32) are the positions in a row of x that the first one takes.

    >>> where = torch.tensor([0, 1]).int(), torch.tensor([0]).int()
    >>> layer = SparseLayer(1, *where, torch.tensor([2.0]), None, Elementwise(nn.ReLU(), 1))
    >>> SparseChain(torch.tensor([1]).int(), [layer]).reference(torch.tensor([[5.0, 3.0]]))
    tensor([[6.]])
    """

    def __init__(self, reads: Tensor, layers: Sequence[SparseLayer]) -> None:
        _check_fit(len(reads), layers)
        self.reads, self.layers, self.outputs = reads, tuple(layers), layers[-1].units
        self._needs = int(reads.max()) + 1 if len(reads) else 0
        self._options = [torch.tensor([*layer.activation.options, 0.0]) for layer in layers]
        widest = max(len(reads), *(layer.units for layer in layers))
        described = [len(reads), reads.data_ptr(), len(layers), widest]
        for layer, options in zip(layers, self._options, strict=True):
            parts = (layer.starts, layer.columns, layer.values, layer.intercepts, options)
            described += [layer.units, layer.inputs, len(layer.values), layer.activation.code]
            described += [0 if p is None else p.data_ptr() for p in parts]
        self._described = torch.tensor(described, dtype=torch.int64)
        self._address = self._described.data_ptr()

    def __call__(self, x: Tensor) -> Tensor:
        """The outputs for rows of x: float32, on the CPU, without gaps (see `applies`)."""
        if x.shape[1] < self._needs:  # C does not look
            refuse("compact", "x", f"rows of at least {self._needs} numbers", f"shape {tuple(x.shape)}")
        rows, out = len(x), torch.empty(len(x), self.outputs)
        if rows:
            given = (rows, x.data_ptr(), x.shape[1], x.stride(0))
            native.run("chain", *given, self._address, self.outputs, out.data_ptr())
        return out

    def reference(self, x: Tensor) -> Tensor:
        """The same in torch."""
        x = x[:, self.reads.long()]
        for layer in self.layers:
            counts = (layer.starts[1:] - layer.starts[:-1]).long()
            dense = x.new_zeros(layer.units, x.shape[1])
            dense[torch.arange(layer.units).repeat_interleave(counts), layer.columns.long()] = layer.values.to(x)
            x = layer.activation.function(
                F.linear(x, dense, None if layer.intercepts is None else layer.intercepts.to(x))
            )
        return x


def applies(x: Tensor) -> bool:
    """Whether the C chain takes these rows."""
    return x.ndim == 2 and x.stride(1) == 1 and native.applies(x)


def by_rows(mask: Tensor) -> tuple[Tensor, Tensor]:
    """(starts, columns) of the entries of a matrix that are left, both int32."""
    counts = mask.sum(1)
    starts = torch.tensor([0, *itertools.accumulate(counts.tolist())], dtype=torch.int32, device=mask.device)
    return starts, mask.nonzero()[:, 1].to(torch.int32)


def _check_fit(width: int, layers: Sequence[SparseLayer]) -> None:
    """Refuse layers that do not take what the one before gives, and arrays of other lengths: C does not look."""
    for index, layer in enumerate(layers):
        intercepts = layer.units if layer.intercepts is None else len(layer.intercepts)
        if layer.inputs != width or len(layer.columns) != len(layer.values) or intercepts != layer.units:
            arrays = f"{layer.inputs} inputs, {len(layer.columns)} columns, {len(layer.values)} values, {intercepts}"
            refuse(
                "compact",
                f"layer {index}",
                f"a layer of {width} inputs and {layer.units} units",
                f"{arrays} intercepts",
            )
        width = layer.units
