"""One drawn network as a function of a table's columns, some of which may take the values of other rows.

For coalitions S of columns, `values` gives v(S) = mean over the background b of g(f(x_S, b_rest)). A chain of linear
layers is taken apart: weights of the draw without what is not in it, and the two shares of x_S and b_rest in each
layer that reads inputs added only then, so that no row is written down for each coalition.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import torch
from torch import Tensor, nn

from slabnet.config.activations import ACTIVATIONS
from slabnet.model.activations import activation_of
from slabnet.model.baselines import InputNoise
from slabnet.model.drawing import Scope
from slabnet.model.elementwise import Mixed
from slabnet.model.layers import Linear, SlabLayer
from slabnet.model.mixture import Mixture
from slabnet.model.network import Network
from slabnet.model.paths import POOLING, flat_parts
from slabnet.model.skips import Fork, Join

AT_ONCE = 2_000_000  # numbers of a layer held at once
PIECEWISE = (SlabLayer, Fork, Join, nn.Dropout, *POOLING)  # linear, or made of straight pieces
Link = Callable[[Tensor], Tensor]


class Columns:
    """Which inputs belong to each column: (columns, inputs), and the way from column to inputs."""

    def __init__(self, groups: Sequence[Sequence[int]], inputs: int) -> None:
        self.member = torch.zeros(len(groups), inputs, dtype=torch.bool)
        for number, places in enumerate(groups):
            self.member[number, list(places)] = True

    def touched(self, inputs: Tensor) -> Tensor:
        """Columns of which some of these inputs (a mask) are part."""
        return (self.member & inputs).any(1)

    def spread(self, masks: Tensor) -> Tensor:
        """Masks of columns as masks of inputs, as numbers."""
        return masks.double() @ self.member.double()


class Drawn(Protocol):
    """One drawn network, or a part of it whose outputs add up with those of the others."""

    @property
    def used(self) -> Tensor:
        """Columns (a mask) that it reads."""
        ...

    def __call__(self, x: Tensor) -> Tensor:
        """Outputs for rows of inputs."""
        ...

    def values(self, masks: Tensor, x: Tensor, background: Tensor, link: Link | None) -> Tensor:
        """(coalitions, rows, outputs): v(S) for masks (coalitions, columns)."""
        ...


@dataclass(frozen=True)
class Step:
    """One linear layer: what it reads of the units before it and of the inputs, and the activation behind it."""

    units: Tensor | None
    inputs: Tensor | None
    bias: Tensor
    after: tuple[nn.Module, ...] = ()

    @property
    def width(self) -> int:
        return len(self.bias)

    def finish(self, z: Tensor) -> Tensor:
        rows = z.reshape(z.shape[:-1].numel(), z.shape[-1])  # a layer may have no unit left
        for part in self.after:
            rows = part(rows)
        return rows.reshape(z.shape)

    def of(self, outputs: Tensor) -> Step:
        """The same for some of its units (a mask)."""
        units, inputs = (None if part is None else part[outputs] for part in (self.units, self.inputs))
        after = tuple(part.part(outputs) if isinstance(part, Mixed) else part for part in self.after)
        return Step(units, inputs, self.bias[outputs], after)


@dataclass(frozen=True)
class Chain:
    """A drawn chain of linear layers, as plain matrices."""

    steps: tuple[Step, ...]
    columns: Columns

    @property
    def used(self) -> Tensor:
        reads = [(step.inputs != 0).any(0) for step in self.steps if step.inputs is not None]
        read = torch.stack(reads).any(0) if reads else torch.zeros_like(self.columns.member[0])
        return self.columns.touched(read)

    def __call__(self, x: Tensor) -> Tensor:
        h = x
        for step in self.steps:
            z = step.bias
            z = z if step.units is None else z + h @ step.units.T
            h = step.finish(z if step.inputs is None else z + x @ step.inputs.T)
        return h if h.ndim > 1 else h.expand(len(x), -1)

    def values(self, masks: Tensor, x: Tensor, background: Tensor, link: Link | None) -> Tensor:
        width = max(step.width for step in self.steps)
        rows = max(1, AT_ONCE // (len(masks) * len(background) * width))
        parts = [self._values(masks, x[i : i + rows], background, link) for i in range(0, len(x), rows)]
        return torch.cat(parts, 1)

    def _values(self, masks: Tensor, x: Tensor, background: Tensor, link: Link | None) -> Tensor:
        inside = self.columns.spread(masks)
        h = torch.zeros(0)
        for step in self.steps:
            z = step.bias.expand(len(masks), len(x), len(background), step.width)
            if step.inputs is not None:
                here, there = _shares(inside, x, step.inputs), _shares(1 - inside, background, step.inputs)
                z = here[:, :, None] + (there + step.bias)[:, None]
            h = step.finish(z if step.units is None else z + h @ step.units.T)
        return (h if link is None else link(h)).mean(2)

    def pruned(self, wanted: Tensor | None = None) -> Chain:
        """The same without units that lead to none of the outputs (`wanted`: a mask of those that count)."""
        steps: list[Step] = []
        outputs = torch.ones(self.steps[-1].width, dtype=torch.bool) if wanted is None else wanted
        for step in reversed(self.steps):
            left = step.of(outputs)
            if left.units is not None:
                outputs = (left.units != 0).any(0)
                left = replace(left, units=left.units[:, outputs])
            steps.insert(0, left)
        return replace(self, steps=tuple(steps))

    def reads(self) -> Tensor:
        """(units, columns): which columns each unit before the last layer depends on."""
        before = torch.zeros(0, len(self.columns.member), dtype=torch.bool)
        for step in self.steps[:-1]:
            direct = torch.zeros(step.width, len(self.columns.member))
            if step.inputs is not None:
                direct = (step.inputs != 0).float() @ self.columns.member.T.float()
            if step.units is not None:
                direct = direct + (step.units != 0).float() @ before.float()
            before = direct > 0
        return before

    def summands(self) -> list[Chain]:
        """Chains whose outputs add up to those of this one, each of as few columns as can be.

        Units of the last hidden layer that read the same columns, or some of another's, stay together; what stands in
        the last layer by itself is one chain for each column.
        """
        *hidden, last = self.steps
        parts: list[Chain] = []
        if last.inputs is not None:
            for column in self.columns.touched((last.inputs != 0).any(0)).nonzero()[:, 0]:
                weight = last.inputs * self.columns.member[column]
                parts.append(Chain((Step(None, weight, torch.zeros_like(last.bias)),), self.columns))
        if last.units is None or not hidden:
            return parts
        reads = self.reads()
        left = reads.any(1)
        for unit in reads.sum(1).argsort(descending=True).tolist():
            if not left[unit]:
                continue
            together = left & ~(reads & ~reads[unit]).any(1)
            left = left & ~together
            alone = Step(last.units[:, together], None, torch.zeros_like(last.bias))
            parts.append(Chain((*Chain(tuple(hidden), self.columns).pruned(together).steps, alone), self.columns))
        return parts


def _shares(masks: Tensor, rows: Tensor, weight: Tensor) -> Tensor:
    """(coalitions, rows, units): what the inputs in each mask send."""
    read = (weight != 0).any(0)
    each = rows[:, read, None] * weight[:, read].T  # rows, inputs, units
    return torch.einsum("sp,npu->snu", masks[:, read], each)


@dataclass(frozen=True)
class Whole:
    """A drawn network as it is, called within its `drawing` block; rows are written down for each coalition."""

    net: nn.Module
    columns: Columns
    used: Tensor
    dtype: torch.dtype
    shape: tuple[int, ...]

    def __call__(self, x: Tensor) -> Tensor:
        output: Tensor = self.net(x.to(self.dtype).reshape(len(x), *self.shape))
        return output.double()

    def values(self, masks: Tensor, x: Tensor, background: Tensor, link: Link | None) -> Tensor:
        inside = self.columns.spread(masks).bool()
        each = max(1, AT_ONCE // (len(background) * x.shape[1]))
        out: list[Tensor] = []
        count = len(masks) * len(x)
        for start in range(0, count, each):
            place = torch.arange(start, min(start + each, count))
            coalition, row = place // len(x), place % len(x)
            mixed = torch.where(inside[coalition][:, None], x[row][:, None], background[None])
            h = self(mixed.flatten(0, 1))
            out.append((h if link is None else link(h)).reshape(*mixed.shape[:2], -1).mean(1))
        return torch.cat(out).reshape(len(masks), len(x), -1)


def drawn_network(net: nn.Module, scope: Scope, columns: Columns, dtype: torch.dtype, shape: tuple[int, ...]) -> Drawn:
    """The network of this draw; a `Chain` where it is one of linear layers."""
    one = net.members[net.member_of(scope.index)] if isinstance(net, Mixture) else net
    steps = _steps_of(one, scope)
    if steps is not None:
        return Chain(steps, columns).pruned()
    used = torch.ones(len(columns.member), dtype=torch.bool)
    if isinstance(one, Network) and one.reads is not None:
        mask = torch.zeros(columns.member.shape[1], dtype=torch.bool)
        mask[one.reads] = True
        used = columns.touched(mask)
    return Whole(net, columns, used, dtype, shape)


def _steps_of(net: nn.Module, scope: Scope) -> tuple[Step, ...] | None:
    """The layers of the draw; None where the network is no chain of linear ones."""
    if any(isinstance(part, InputNoise) for part in net.modules()):
        return None
    parts = flat_parts(net) or []
    steps: list[Step] = []
    again = False
    for part in parts:
        if isinstance(part, Join):
            again = True
        elif isinstance(part, Linear):
            weight, *bias = (one.value.detach().cpu().double() for one in scope.weights(part))
            units = 0 if not steps else steps[-1].width
            to_inputs = weight[:, units:] if again or not steps else None
            intercept = bias[0] if bias else weight.new_zeros(len(weight))
            steps.append(Step(weight[:, :units] if steps else None, to_inputs, intercept))
            again = False
        elif activation_of(part) is not None or isinstance(part, Mixed):
            if not steps:
                return None
            steps[-1] = replace(steps[-1], after=(*steps[-1].after, part))
        elif not isinstance(part, (nn.Flatten, nn.Dropout, Fork)):
            return None
    return tuple(steps) or None


def is_piecewise_linear(net: nn.Module) -> bool:
    """Whether the network is known to be linear within regions: nothing in it but layers and such activations."""
    members = net.members if isinstance(net, Mixture) else (net,)
    for member in members:
        parts = flat_parts(member)
        if parts is None:
            return False
        for part in parts:
            row = activation_of(part)
            kinds = part.kinds if isinstance(part, Mixed) else () if row is None else (row.name,)
            straight = bool(kinds) and all(ACTIVATIONS[kind].piecewise_linear for kind in kinds)
            if not straight and not isinstance(part, PIECEWISE):
                return False
    return True
