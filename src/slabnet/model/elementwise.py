"""What acts on each number for itself: one activation for all units of a layer, or several side by side."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from slabnet.config.activations import ACTIVATIONS, Activations
from slabnet.core.errors import check_choice, check_whole, refuse
from slabnet.model.activations import activation_of, make_activation


class Mixed(nn.Module):
    """A layer with units (or channels) of several kinds: the first `counts[0]` have the first activation, and so on.

    kinds: names of activations; counts: how many units each has.

    >>> Mixed(("relu", "identity"), (1, 2))(torch.tensor([[-1.0, -2.0, 3.0]]))
    tensor([[ 0., -2.,  3.]])
    """

    def __init__(self, kinds: Sequence[str], counts: Sequence[int]) -> None:
        super().__init__()
        if not kinds or len(kinds) != len(counts):
            refuse("Mixed", "counts", f"a number of units for each of {len(kinds)} kinds", f"{len(counts)} numbers")
        self.kinds = tuple(check_choice("network", "activation", kind, ACTIVATIONS) for kind in kinds)
        self.counts = tuple(check_whole("Mixed", "counts", count, at_least=0) for count in counts)
        self._each = tuple(make_activation(kind) for kind in self.kinds)

    def forward(self, x: Tensor) -> Tensor:
        units = 0 if x.ndim == 1 else 1  # one row, or rows of units or channels
        pieces = torch.split_with_sizes(x, self.counts, units)
        return torch.cat([act(piece) for act, piece in zip(self._each, pieces, strict=True)], units)

    def part(self, units: Tensor) -> nn.Module:
        """The same for some of the units (a mask); a kind of which none is left goes."""
        left = [int(mask.sum()) for mask in torch.split_with_sizes(units, self.counts)]
        kinds = [kind for kind, count in zip(self.kinds, left, strict=True) if count]
        if len(kinds) < 2:
            return make_activation(kinds[0] if kinds else self.kinds[0])
        return Mixed(kinds, [count for count in left if count])

    def of_units(self) -> list[str]:
        """The name of each unit's activation."""
        return [kind for kind, count in zip(self.kinds, self.counts, strict=True) for _ in range(count)]

    def extra_repr(self) -> str:
        return ", ".join(f"{count} {kind}" for kind, count in zip(self.kinds, self.counts, strict=True))


def make_elementwise(activation: Activations, units: int) -> nn.Module:
    """The activation of a layer of so many units; of several names each gets as many units as the others, or one more.

    >>> make_elementwise(("relu", "tanh", "identity"), 5)
    Mixed(1 relu, 2 tanh, 2 identity)
    """
    if isinstance(activation, str):
        return make_activation(activation)
    kinds = len(activation)
    if units < kinds:
        refuse("network", "activation", f"at most {units} kinds for a layer of {units} units", list(activation))
    return Mixed(activation, [units * (i + 1) // kinds - units * i // kinds for i in range(kinds)])


def is_elementwise(part: nn.Module) -> bool:
    """Whether this acts on each number for itself, in prediction: an activation of the table, several, or dropout."""
    return isinstance(part, (nn.Dropout, Mixed)) or activation_of(part) is not None


def sends_at_zero(part: nn.Module) -> bool | Tensor:
    """Whether units that read nothing send something on: for all of them, or for each where they differ."""
    if isinstance(part, Mixed):
        return torch.tensor([ACTIVATIONS[kind].at_zero != 0 for kind in part.of_units()])
    row = activation_of(part)
    return row is not None and row.at_zero != 0
