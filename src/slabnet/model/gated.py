"""Layers whose columns stand behind gates (`model/gates.py` has the formulas)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

import torch
import torch.nn.functional as F
from torch import Tensor

from slabnet.core.errors import refuse
from slabnet.kernels import local_draw
from slabnet.maths.gated import behind_gate, jointly
from slabnet.model.drawing import Draw, Scope
from slabnet.model.draws import Score
from slabnet.model.gates import Gates
from slabnet.model.layers.base import SlabLayer
from slabnet.model.layers.conv import CONVOLUTIONS, Conv1d, Conv2d, Conv3d, ConvNd
from slabnet.model.layers.linear import Linear
from slabnet.model.posteriors import PIN, Block, Drawn

Reads = tuple[Gates | None, Tensor]


class Shared(NamedTuple):
    """The gates that several columns stand behind: which of `gates`, and their columns (-1 where one has fewer)."""

    gates: Gates
    which: Tensor
    columns: Tensor


def _shared(gates: Gates, group: Tensor, before: int) -> list[Shared]:
    """Gates of several columns, those of 2 to 4, of 5 to 16 and so on together: a long one lengthens few others."""
    order, sizes = group.argsort(stable=True), torch.bincount(group)
    starts, made, shortest = sizes.cumsum(0) - sizes, [], 2
    while len(sizes) and shortest <= int(sizes.max()):
        longest = 1 << 2 * (((shortest - 1).bit_length() + 1) // 2)  # 4, 16, 64
        which = ((sizes >= shortest) & (sizes <= longest)).nonzero()[:, 0]
        if len(which):
            offsets = torch.arange(int(sizes[which].max()))
            places = (starts[which, None] + offsets).clamp_max(len(order) - 1)
            there = offsets < sizes[which, None]
            made.append(Shared(gates, which, torch.where(there, order[places] + before, -1)))
        shortest = longest + 1
    return made


class Gated(SlabLayer):
    """A layer each of whose columns stands behind a gate.

    `alpha`, and all that is chosen by it, is the probability of a weight to be in the model, alpha_g alpha_ij;
    `weight.alpha` is alpha_ij, the probability where its gate is open.

    reads: for the columns one after the other, the gates they stand behind (None: none) and which of them each has.
    """

    reads: tuple[Reads, ...] = ()
    shared: tuple[Shared, ...] = ()

    def behind(self, *reads: Reads) -> Self:
        """This layer with its columns behind gates."""
        columns, wanted = sum(len(group) for _, group in reads), self.weight.mu.shape[1]
        if columns != wanted:
            refuse(type(self).__name__, "reads", f"a gate for each of {wanted} columns", columns)
        self.reads, before, shared = reads, 0, list[Shared]()
        for gates, group in reads:
            shared += [] if gates is None else _shared(gates, group, before)
            before += len(group)
        self.shared = tuple(shared)
        return self

    def by_column(self, value: Callable[[Gates], Tensor], no_gate: float) -> Tensor:
        """What each column's gate gives, `no_gate` where it has none; shaped as the weight, but for one unit."""
        like = self.weight.mu
        rows = [
            like.new_full((len(group),), no_gate) if gates is None else value(gates)[group.to(like.device)]
            for gates, group in self.reads
        ]
        return (rows[0] if len(rows) == 1 else torch.cat(rows)).reshape(-1, *(1 for _ in like.shape[2:]))

    def open_blocks(self) -> tuple[Block, ...]:
        """Weights and intercepts as they are where every gate is open."""
        weight, *bias = super().blocks()
        if not self.prior.counts:
            return weight, *bias
        opened = self.by_column(lambda gates: gates.alpha.detach(), 1.0)  # what the data say of psi, they say there
        omega = weight.omega.detach()  # type: ignore[union-attr]
        return weight._replace(counted=(opened * torch.sigmoid(omega), opened * torch.sigmoid(-omega))), *bias

    def blocks(self) -> tuple[Block, ...]:
        weight, *bias = self.open_blocks()
        assert weight.omega is not None
        both = jointly(weight.omega, self._omega_of_gates())
        both = both if weight.pinned is None else torch.where(weight.pinned, weight.omega, both)
        return weight._replace(omega=both), *bias

    def _omega_of_gates(self) -> Tensor:
        return self.by_column(lambda gates: gates.omega, PIN)

    def _joint(self) -> tuple[tuple[Block, ...], Tensor]:
        """`blocks()`, and what the divergence has more than that of these."""
        weight, *bias = blocks = self.open_blocks()
        assert weight.omega is not None
        off = self.prior.log_not_psi(blocks)
        both, more = behind_gate(weight.omega, self._omega_of_gates(), off, weight.pinned)
        return (weight._replace(omega=both), *bias), more

    @property
    def plain_prior(self) -> bool:
        return False

    def psi_now(self) -> Tensor:
        return self.prior.psi_now(self.open_blocks()) * self._psi_of_gates()

    def resting_alpha(self) -> Tensor:
        return self.prior.resting_alpha(self.open_blocks()) * self._psi_of_gates()

    def _psi_of_gates(self) -> Tensor:
        return self.by_column(lambda gates: gates.psi_now.expand_as(gates.omega), 1.0)

    def kl(self) -> Tensor:
        blocks, more = self._joint()
        return self.prior.kl(blocks) + more

    def divergence(self, scope: Scope, sampled: bool) -> Tensor:
        if sampled:
            refuse("elbo", "kl", '"exact" in a network with gates', "sampled")
        known = scope.kl(self, "exact")
        if known is not None:
            return known
        return self.prior.kl(scope.blocks(self)) if scope.decides(self) else self.kl()

    def informed(self, blocks: Sequence[Block]) -> list[Tensor]:
        masks = self.prior.informed(self.open_blocks())
        return [one if part.pinned is None else one | part.pinned for one, part in zip(masks, blocks, strict=True)]

    def drawn_parameters(self) -> Iterable[Tensor]:
        return [*super().drawn_parameters(), *(gates.omega for gates, _ in self.reads if gates is not None)]

    def drawn_by(self, draw: Draw, scope: Scope) -> tuple[tuple[Drawn, ...], Tensor | None]:
        if scope.decides(self) or not draw.draws_indicators:
            return super().drawn_by(draw, scope)
        if isinstance(draw, Score):
            refuse("drawing", "draw", "local, relaxed or straight_through in a network with gates", draw.name)
        blocks = self.open_blocks()
        weight, *bias = (draw.draw(block, scope.seed()) for block in blocks)
        opened = self.by_column(lambda gates: gates.drawn(scope), 1.0).expand_as(weight.value)
        if blocks[0].pinned is not None:
            opened = opened.masked_fill(blocks[0].pinned, 1.0)
        assert weight.gamma is not None
        return (weight._replace(value=weight.value * opened, gamma=weight.gamma * opened), *bias), None

    def local(self, x: Tensor, scope: Scope, seed: Tensor) -> Tensor:
        if scope.decides(self):
            return super().local(x, scope, seed)
        blocks, more = self._joint()
        made = None if self.shared else self._in_one_pass(blocks, x, scope, seed)
        if made is None:
            moments, terms = self.prior.moments(blocks)
            weight, *bias = moments
            mean = self.affine(x, weight[0], bias[0][0] if bias else None)
            variance = self.affine(x * x, weight[1], bias[0][1] if bias else None)
            for shared in self.shared:  # the variance of each column's own gate is in there; they share one
                variance = variance + self._together(x, shared)
            made = local_draw(mean, variance.clamp_min(0.0), seed, scope.place.first_row), terms
        if made[1] is not None:
            scope.note_kl(self, made[1] + more)
        return made[0]

    def _in_one_pass(
        self, blocks: Sequence[Block], x: Tensor, scope: Scope, seed: Tensor
    ) -> tuple[Tensor, Tensor | None] | None:
        """The drawn pre-activation and the divergence of independent weights, where there is such a pass."""
        return None

    def _together(self, x: Tensor, shared: Shared) -> Tensor:
        """sum over gates of alpha_g (1 - alpha_g) [M_g^2 - the part of it that every column's own gate would give]."""
        raise NotImplementedError(f"{type(self).__name__} must say what columns of one gate give together")

    def _means_and_spread(self, shared: Shared) -> tuple[Tensor, Tensor]:
        """alpha mu of each weight where its gate is open, nothing where it is decided; and alpha_g (1 - alpha_g)."""
        weight = self.open_blocks()[0]
        assert weight.omega is not None
        part = torch.sigmoid(weight.omega) * weight.mu
        if weight.pinned is not None:
            part = part.masked_fill(weight.pinned, 0.0)
        alpha = shared.gates.alpha[shared.which.to(part.device)]
        return part, alpha * (1 - alpha)


class GatedLinear(Gated, Linear):
    """A `Linear` layer each of whose columns stands behind a gate."""

    def _in_one_pass(
        self, blocks: Sequence[Block], x: Tensor, scope: Scope, seed: Tensor
    ) -> tuple[Tensor, Tensor | None] | None:
        return self.prior.local_linear(blocks, x, seed, scope.place.first_row)

    def _together(self, x: Tensor, shared: Shared) -> Tensor:
        part, spread = self._means_and_spread(shared)
        columns = shared.columns.to(x.device)  # -1 is the column of nothing at the end
        rows = F.pad(x, (0, 1))[:, columns].transpose(0, 1)
        means = F.pad(part, (0, 1))[:, columns].permute(1, 2, 0)
        together = torch.bmm(rows, means)
        squared = (spread[:, None, None] * means * means).flatten(0, 1)
        return (spread[:, None, None] * together**2).sum(0) - (rows * rows).transpose(0, 1).flatten(1) @ squared


class GatedConv(Gated, ConvNd):
    """A convolution each of whose input channels stands behind a gate."""

    def behind(self, *reads: Reads) -> Self:
        """This layer with its channels behind gates; every channel has as many weights as the kernel."""
        if self.groups != 1 or len(reads) != 1:
            refuse(type(self).__name__, "groups", "1, and all channels behind gates", self.groups)
        super().behind(*reads)
        gates, group = reads[0]
        self.shared = () if gates is None else (Shared(gates, group, torch.arange(len(group))[:, None]),)
        return self

    def _together(self, x: Tensor, shared: Shared) -> Tensor:
        part, spread = self._means_and_spread(shared)
        padded = F.pad(x, self.edges, mode="constant" if self.padding_mode == "zeros" else self.padding_mode)
        channels, kernel = part.shape[1], part.shape[2:]
        alone = part.transpose(0, 1).reshape(-1, 1, *kernel)
        options: dict[str, Any] = {"stride": self.stride, "dilation": self.dilation}
        convolve = CONVOLUTIONS[self.dimensions]
        each = convolve(padded, alone, None, groups=channels, **options)
        each = each.reshape(len(x), channels, len(part), *each.shape[2:])
        shown = spread.reshape(1, -1, *(1 for _ in kernel))
        out: Tensor = (each**2 * shown[:, :, None]).sum(1) - convolve(padded**2, part**2 * shown, None, **options)
        return out


class GatedConv1d(GatedConv, Conv1d):
    """`Conv1d` with its channels behind gates."""


class GatedConv2d(GatedConv, Conv2d):
    """`Conv2d` with its channels behind gates."""


class GatedConv3d(GatedConv, Conv3d):
    """`Conv3d` with its channels behind gates."""
