"""What a compact network is made of: layers without what was cut, for their means or for their distribution.

`KeptLinear` and `KeptConv` hold the numbers that are left, by rows, and are plain modules. The `Decided` layers are
spike-and-slab layers whose indicators were decided: they draw and train as the full layers with a fixed selection do,
with the noise that each weight had in the full network.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slabnet.kernels import local_draw, local_linear
from slabnet.kernels.sparse import SparseChain, SparseLayer, applies, by_rows
from slabnet.layers import Conv1d, Conv2d, Conv3d, Linear, SlabLayer
from slabnet.posteriors import PIN, Block, Gaussian
from slabnet.priors import LayerPrior
from slabnet.scopes import Scope

# Measured with `python -m benchmarks.compact --rule`: under these densities the C loop over what is left is the faster
# one for a row alone and for ten thousand; a matrix of few numbers is read faster than a dense product is started.
SPARSE_BELOW = 0.2
FEW = 4096
_CONVOLUTIONS: dict[int, Any] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class Take(nn.Module):
    """Reads some of the features (dim -1) or channels (dim 1) of its input, and not the others."""

    index: Tensor

    def __init__(self, index: Tensor, dim: int) -> None:
        super().__init__()
        self.register_buffer("index", index, persistent=False)
        self.dim = dim

    def forward(self, x: Tensor) -> Tensor:
        return x.index_select(self.dim, self.index)

    def extra_repr(self) -> str:
        return f"{len(self.index)}, dim={self.dim}"


class Kept(nn.Module):
    """A weight of which only some entries are left, held by rows: `values`, with int32 `starts` and `columns`."""

    starts: Tensor
    columns: Tensor
    positions: Tensor
    bias: nn.Parameter | None

    def __init__(self, weight: Tensor, mask: Tensor, bias: Tensor | None) -> None:
        super().__init__()
        self.shape = tuple(weight.shape)
        self.values = nn.Parameter(weight[mask].clone())
        self.register_parameter("bias", None if bias is None else nn.Parameter(bias.clone()))
        starts, columns = by_rows(mask.flatten(1))
        self.register_buffer("starts", starts, persistent=False)
        self.register_buffer("columns", columns, persistent=False)
        self.register_buffer("positions", mask.flatten().nonzero()[:, 0], persistent=False)

    @property
    def weight(self) -> Tensor:
        """The whole matrix or kernel, zero where nothing is left; gradients reach only what is."""
        size = math.prod(self.shape)
        return self.values.new_zeros(size).scatter(0, self.positions, self.values).reshape(self.shape)

    @property
    def mask(self) -> Tensor:
        found = torch.zeros(math.prod(self.shape), dtype=torch.bool, device=self.values.device)
        found[self.positions] = True
        return found.reshape(self.shape)

    @property
    def density(self) -> float:
        return len(self.values) / math.prod(self.shape)

    def extra_repr(self) -> str:
        return f"{' x '.join(map(str, self.shape))}, {len(self.values)} weights"


class KeptLinear(Kept):
    """A linear layer of what is left: by rows in C where that is faster, else dense."""

    def __init__(self, weight: Tensor, mask: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight, mask, bias)
        self._dense: tuple[int, Tensor] | None = None
        self._chain: SparseChain | None = None

    @property
    def sparse(self) -> bool:
        """Whether this layer is computed by rows."""
        return self.density < SPARSE_BELOW or math.prod(self.shape) < FEW

    def rows(self, activation: nn.Module) -> SparseLayer:
        """As the C chain takes it, on the memory of the parameters: changes are seen."""
        bias = None if self.bias is None else self.bias.detach()
        return SparseLayer(self.starts, self.columns, self.values.detach(), bias, activation)

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return F.linear(x, self.weight, self.bias)
        if self.sparse and applies(x):
            if self._chain is None:
                everything = torch.arange(self.shape[1], dtype=torch.int32)
                self._chain = SparseChain(everything, [self.rows(nn.Identity())])
            return self._chain(x)
        if self._dense is None or self._dense[0] != self.values._version:
            self._dense = self.values._version, self.weight
        return F.linear(x, self._dense[1], self.bias)

    def _apply(self, *given: Any, **options: Any) -> Any:
        self._chain = self._dense = None  # the numbers move
        return super()._apply(*given, **options)  # type: ignore[no-untyped-call]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_chain": None, "_dense": None}  # a copy has memory of its own


class KeptConv(Kept):
    """A convolution of the channels that are left; dense, groups spread out."""

    def __init__(self, weight: Tensor, mask: Tensor, bias: Tensor | None, geometry: dict[str, Any]) -> None:
        super().__init__(weight, mask, bias)
        self.geometry = geometry

    def forward(self, x: Tensor) -> Tensor:
        own = self.geometry
        if any(own["edges"]):
            mode = "constant" if own["padding_mode"] == "zeros" else own["padding_mode"]
            x = F.pad(x, own["edges"], mode=mode)
        out: Tensor = _CONVOLUTIONS[len(self.shape) - 2](
            x, self.weight, self.bias, stride=tuple(own["stride"]), dilation=tuple(own["dilation"])
        )
        return out


class Decided(SlabLayer):
    """A spike-and-slab layer whose indicators were decided, cut to the units and inputs that are left.

    units, reads: which units and inputs of the full layer; places: where in the full weight each weight stands, which
    keys its noise.
    """

    decided = True
    mask: Tensor
    places: Tensor
    units: Tensor
    reads: Tensor
    omega: Tensor
    pinned: Tensor
    bias_mask: Tensor | None
    bias_omega: Tensor | None

    def settle(
        self, mask: Tensor, bias_mask: Tensor | None, places: Tensor, units: Tensor, reads: Tensor, whole: int
    ) -> None:
        """Which weights and intercepts are in, and where they stood; `whole`: units of the full layer."""
        self.whole = whole
        self.register_buffer("reads", reads.contiguous(), persistent=False)
        self.register_buffer("units", units.contiguous(), persistent=False)
        self.register_buffer("places", places.contiguous(), persistent=False)
        parts = {"": mask} | ({} if bias_mask is None else {"bias_": bias_mask})
        if bias_mask is None:
            self.bias_mask = self.bias_omega = None
        for name, part in parts.items():
            omega = torch.where(part, PIN, -PIN).to(self.weight.mu)
            self.register_buffer(f"{name}mask", part.contiguous(), persistent=False)
            self.register_buffer(f"{name}omega", omega.contiguous(), persistent=False)
            self.register_buffer(f"{name}pinned", torch.ones_like(part), persistent=False)

    def blocks(self) -> tuple[Block, ...]:
        own: dict[str, Any] = self._buffers
        weight: Any = self._modules["weight"]
        bias: Any = self._modules.get("bias")
        first = weight.block()._replace(omega=own["omega"], pinned=own["pinned"], places=own["places"])
        if bias is None:
            return (first,)
        return first, bias.block()._replace(omega=own["bias_omega"], pinned=own["bias_pinned"], places=own["units"])

    def local(self, x: Tensor, scope: Scope, seed: Tensor) -> Tensor:
        if isinstance(self, Linear) and self.closed_form:
            parts, extra = self.prior.parts(scope.blocks(self))
            found = local_linear(x, parts, seed, places=self.units)
            if found is not None:
                scope.note_kl(self, found[1] if extra is None else extra + found[1])
                return found[0]
        weight, *bias = scope.moments(self)
        mean = self.affine(x, weight[0], bias[0][0] if bias else None)
        variance = self.affine(x * x, weight[1], bias[0][1] if bias else None)
        return local_draw(mean, variance, seed, places=self._row_places(mean))

    def _row_places(self, mean: Tensor) -> Tensor:
        """Where in a row of the full layer's outputs each output stands."""
        if isinstance(self, Linear):
            before = torch.arange(math.prod(mean.shape[1:-1]), device=mean.device)
            return (before[:, None] * self.whole + self.units).flatten()
        behind = math.prod(mean.shape[2:])
        return (self.units[:, None] * behind + torch.arange(behind, device=mean.device)).flatten()


class DecidedLinear(Decided, Linear):
    """A linear layer of what is left, with its distribution."""


class DecidedConv1d(Decided, Conv1d):
    """A convolution of the channels that are left, with its distribution."""


class DecidedConv2d(Decided, Conv2d):
    """A convolution of the channels that are left, with its distribution."""


class DecidedConv3d(Decided, Conv3d):
    """A convolution of the channels that are left, with its distribution."""


DECIDED: dict[int, Any] = {2: DecidedLinear, 3: DecidedConv1d, 4: DecidedConv2d, 5: DecidedConv3d}


def decided_layer(shape: Sequence[int], bias: bool, prior: LayerPrior, geometry: dict[str, Any]) -> Decided:
    """A layer of this shape, its parameters still to be filled in and its indicators to be settled."""
    kind = DECIDED[len(shape)]
    if len(shape) == 2:
        made: Decided = kind(shape[1], shape[0], bias, prior=prior, posterior=Gaussian)
        return made
    given = {name: tuple(geometry[name]) for name in ("stride", "dilation")}
    made = kind(
        shape[1],
        shape[0],
        tuple(shape[2:]),
        **given,
        bias=bias,
        padding_mode=geometry["padding_mode"],
        prior=prior,
        posterior=Gaussian,
    )
    made.edges = tuple(geometry["edges"])  # type: ignore[assignment]
    return made


def plain_prior(prior: LayerPrior) -> LayerPrior:
    """A copy of a prior without what it says of single weights: their indicators are decided."""
    made = copy.deepcopy(prior)
    for name in made._buffers:
        made._buffers[name] = None
    return made


def ungroup(part: Tensor, groups: int) -> Tensor:
    """A weight (outputs, inputs / groups, ...) as (outputs, inputs, ...): each group reads its own inputs."""
    if groups == 1:
        return part
    rows, columns = part.shape[0] // groups, part.shape[1]
    full = part.new_zeros(part.shape[0], columns * groups, *part.shape[2:])
    for group in range(groups):
        here = slice(group * rows, (group + 1) * rows)
        full[here, group * columns : (group + 1) * columns] = part[here]
    return full
