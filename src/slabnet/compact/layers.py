"""What a compact network is made of: layers without what was cut, for their means or for their distribution.

`KeptLinear` and `KeptConv` hold the means that are left, by rows, and are plain modules. `Decided` is a spike-and-slab
layer whose indicators were decided: it holds mean and spread of the weights that are in, and draws and trains as the
full layer with a fixed selection does, with the noise that each weight had there.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slabnet.core.errors import refuse
from slabnet.kernels import local_draw
from slabnet.kernels.sparse import SparseChain, SparseLayer, applies, by_rows
from slabnet.kernels.sparse_local import Left, take
from slabnet.model.drawing import Drawable, Scope
from slabnet.model.layers import SlabLayer
from slabnet.model.posteriors import Block, Gaussian
from slabnet.model.priors import LayerPrior

# Measured (`python -m benchmarks.compact --rule`): under this density the C loop over what is left beats a dense
# product; a layer of few numbers costs little either way, and by rows it lets the whole network be one call of C.
SPARSE_BELOW = 0.1
FEW = 4096
AXES = (-1, 1)  # what a `Take` may read some of: features, or channels
_CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class Take(nn.Module):
    """Reads some of the features (dim -1) or channels (dim 1) of its input, and not the others."""

    index: Tensor
    reads: Tensor

    def __init__(self, index: Tensor, dim: int) -> None:
        super().__init__()
        if dim not in AXES:
            refuse("compact", "dim", "-1 (features) or 1 (channels)", dim)
        self.register_buffer("index", index, persistent=False)
        self.register_buffer("reads", index.to(torch.int32), persistent=False)
        self.dim = dim
        self.needs = int(index.max()) + 1 if len(index) else 0

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[self.dim] < self.needs:  # the C pass does not look
            refuse("compact", "x", f"at least {self.needs} wide where some of it is read", f"shape {tuple(x.shape)}")
        if x.ndim == 2 and torch.is_grad_enabled():  # training works feature by feature (kernels/sparse_local.py)
            return take(x, self.reads)
        return x.index_select(self.dim, self.index)

    def extra_repr(self) -> str:
        return f"{len(self.index)}, dim={self.dim}"


class _Sparse(nn.Module):
    """A weight of which only some entries are left: where they stand, by rows (int32) and one by one."""

    starts: Tensor
    columns: Tensor
    positions: Tensor

    def _remember(self, mask: Tensor, geometry: dict[str, Any]) -> None:
        self.shape, self.geometry = tuple(mask.shape), geometry
        starts, columns = by_rows(mask.flatten(1))
        self.register_buffer("starts", starts, persistent=False)
        self.register_buffer("columns", columns, persistent=False)
        self.register_buffer("positions", mask.flatten().nonzero()[:, 0], persistent=False)

    @property
    def mask(self) -> Tensor:
        entries = torch.zeros(math.prod(self.shape), dtype=torch.bool, device=self.positions.device)
        entries[self.positions] = True
        return entries.reshape(self.shape)

    @property
    def density(self) -> float:
        return len(self.positions) / max(1, math.prod(self.shape))  # units may have intercepts only

    @property
    def sparse(self) -> bool:
        """Whether this layer is computed by rows."""
        few = self.density < SPARSE_BELOW or math.prod(self.shape) < FEW
        return few and not self.geometry and len(self.positions) > 0

    def whole(self, values: Tensor) -> Tensor:
        """The whole matrix or kernel, zero where nothing is left; gradients reach only what is."""
        return values.new_zeros(math.prod(self.shape)).scatter(0, self.positions, values).reshape(self.shape)

    def product(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The affine map for a whole matrix or kernel."""
        geometry = self.geometry
        if not geometry:
            return F.linear(x, weight, bias)
        if any(geometry["edges"]):
            mode = "constant" if geometry["padding_mode"] == "zeros" else geometry["padding_mode"]
            x = F.pad(x, geometry["edges"], mode=mode)
        stride, dilation = tuple(geometry["stride"]), tuple(geometry["dilation"])
        out: Tensor = _CONVOLUTIONS[len(self.shape) - 2](x, weight, bias, stride=stride, dilation=dilation)
        return out

    def extra_repr(self) -> str:
        return f"{' x '.join(map(str, self.shape))}, {len(self.positions)} weights"


class Kept(_Sparse):
    """The means that are left of a layer: `values`, and an intercept for each unit."""

    bias: nn.Parameter | None

    def __init__(self, values: Tensor, mask: Tensor, bias: Tensor | None, geometry: dict[str, Any]) -> None:
        super().__init__()
        self._remember(mask, geometry)
        self.values = nn.Parameter(values.clone())
        self.register_parameter("bias", None if bias is None else nn.Parameter(bias.clone()))

    @property
    def weight(self) -> Tensor:
        """The whole matrix or kernel."""
        return self.whole(self.values)

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x, self.weight, self.bias)


class KeptLinear(Kept):
    """A linear layer of what is left: by rows in C where that is faster, else dense."""

    def __init__(self, values: Tensor, mask: Tensor, bias: Tensor | None) -> None:
        super().__init__(values, mask, bias, {})
        self._dense: tuple[int, Tensor] | None = None
        self._chain: SparseChain | None = None

    def rows(self) -> SparseLayer:
        """As the C chain takes it, on the memory of the parameters: changes are seen."""
        bias = None if self.bias is None else self.bias.detach()
        return SparseLayer(self.shape[1], self.starts, self.columns, self.values.detach(), bias)

    def forward(self, x: Tensor) -> Tensor:
        if torch.is_grad_enabled():
            return F.linear(x, self.weight, self.bias)
        if self.sparse and applies(x):
            if self._chain is None:
                everything = torch.arange(self.shape[1], dtype=torch.int32)
                self._chain = SparseChain(everything, [self.rows()])
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


class Decided(_Sparse, SlabLayer):
    """A spike-and-slab layer whose indicators were decided: mean and spread of the weights that are in, and no others.

    units, reads: which units and inputs of the full layer are left. full_units: how many it has. places: where in the
    full weight each weight stands, which keys its noise. with_bias: which of the units that are left have an intercept.
    """

    decided = True
    places: Tensor
    units: Tensor
    reads: Tensor
    with_bias: Tensor
    bias_places: Tensor

    def __init__(
        self,
        mask: Tensor,
        bias_mask: Tensor | None,
        places: Tensor,
        units: Tensor,
        reads: Tensor,
        full_units: int,
        prior: LayerPrior,
        geometry: dict[str, Any],
    ) -> None:
        Drawable.__init__(self)
        self._left: Left | None = None
        self._remember(mask, geometry)
        self.full_units, self.prior = full_units, prior
        self.weight = Gaussian((len(self.positions),))
        self.bias = None if bias_mask is None else Gaussian((int(bias_mask.sum()),))
        with_bias = (
            torch.zeros(0, dtype=torch.int32) if bias_mask is None else bias_mask.nonzero()[:, 0].to(torch.int32)
        )
        buffers = {
            "places": places,
            "units": units,
            "reads": reads,
            "with_bias": with_bias,
            "bias_places": units[with_bias.long()],
        }
        for name, value in buffers.items():
            self.register_buffer(name, value.contiguous(), persistent=False)

    def blocks(self) -> tuple[Block, ...]:
        weight, bias, buffers = self._modules["weight"], self._modules.get("bias"), self._buffers
        first: Block = weight.block()._replace(places=buffers["places"])  # type: ignore[union-attr, operator]
        if bias is None:
            return (first,)
        return first, bias.block()._replace(places=buffers["bias_places"])  # type: ignore[operator]

    def affine(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        every = bias
        if bias is not None and len(bias) < self.shape[0]:
            every = bias.new_zeros(self.shape[0]).scatter(0, self.with_bias.long(), bias)
        if self.sparse and not torch.is_grad_enabled() and applies(x):
            everything = torch.arange(self.shape[1], dtype=torch.int32)
            where = (self.shape[1], self.starts, self.columns)
            return SparseChain(everything, [SparseLayer(*where, weight, every)])(x)
        return self.product(x, self.whole(weight), every)

    def local(self, x: Tensor, scope: Scope, seed: Tensor) -> Tensor:
        if self.sparse:
            if self._left is None:
                self._left = Left(self.starts, self.columns, self.shape[0], self.shape[1], self.units, self.with_bias)
            answer = self.prior.sparse_local(scope.blocks(self), x, self._left, seed)
            if answer is not None:
                scope.note_kl(self, answer[1])
                return answer[0]
        weight, *bias = scope.moments(self)
        mean = self.affine(x, weight[0], bias[0][0] if bias else None)
        variance = self.affine(x * x, weight[1], bias[0][1] if bias else None)
        return local_draw(mean, variance, seed, places=self._row_places(mean))

    def _apply(self, *given: Any, **options: Any) -> Any:
        self._left = None  # the numbers move
        return super()._apply(*given, **options)  # type: ignore[no-untyped-call]

    def _row_places(self, mean: Tensor) -> Tensor:
        """Where in a row of the full layer's outputs each output stands."""
        if not self.geometry:
            before = torch.arange(math.prod(mean.shape[1:-1]), device=mean.device)
            return (before[:, None] * self.full_units + self.units).flatten()
        behind = math.prod(mean.shape[2:])
        return (self.units[:, None] * behind + torch.arange(behind, device=mean.device)).flatten()


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
