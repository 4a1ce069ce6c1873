"""`compact`: a chosen model as a small network, without the neurons, channels and inputs that are not in it.

At the means, what cut-off neurons still send is folded into intercepts (`folding.py`). With draws that amount is random
and shared by all who receive it, so such neurons stay; only what sends nothing at all, or to nobody, goes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, overload

import torch
from torch import Tensor, nn

from slabnet.compact.folding import _trim, path_model
from slabnet.compact.layers import Decided, Kept, KeptConv, KeptLinear, Take, plain_prior, ungroup
from slabnet.compact.parts import as_list, is_plain, plain_part, plain_spec
from slabnet.core.devices import device_of
from slabnet.core.errors import check_choice, refuse
from slabnet.core.records import Selection
from slabnet.kernels.sparse import IDENTITY, SparseChain, SparseLayer, applies
from slabnet.model.activations import in_c
from slabnet.model.attach import likelihood_of
from slabnet.model.drawing import Mask, drawable_layers
from slabnet.model.elementwise import Mixed, is_elementwise, sends_at_zero
from slabnet.model.gates import Gates
from slabnet.model.layers import SlabLayer
from slabnet.model.layers.conv import ConvNd
from slabnet.model.likelihoods import Likelihood
from slabnet.model.mixture import Mixture
from slabnet.model.networks import Network
from slabnet.model.paths import chain_of, flat_parts, per_weight, unit_edges, wanted_by, wanted_of
from slabnet.model.priors import LayerPrior
from slabnet.model.skips import Fork, Join, chained
from slabnet.selection.rules import describe

Keep = Literal["means", "distribution"]
GEOMETRY = ("stride", "dilation", "edges", "padding_mode")


class Compact(Network):
    """A chosen model without what is not in it: parts in the order of the data, and where they stood.

    inputs: positions of the inputs (or input channels) of the full network that are read.
    neurons: layer name -> positions of its units (or channels) that are left.
    """

    def __init__(
        self,
        parts: list[nn.Module],
        likelihood: Likelihood,
        spec: dict[str, Any],
        inputs: Tensor,
        neurons: dict[str, Tensor],
    ) -> None:
        super().__init__(chained(parts), likelihood, spec)
        self.inputs, self.neurons = inputs, neurons
        self._chain: SparseChain | Literal[False] | None = None  # False: not a chain that C takes

    @property
    def row_shape(self) -> tuple[int, ...] | None:
        shape = self.spec["row_shape"]
        return None if shape is None else tuple(shape)

    @property
    def reads(self) -> Tensor | None:
        return self.inputs if self.row_shape is not None and len(self.row_shape) == 1 else None

    @property
    def outputs(self) -> int:
        return int(self.spec["outputs"])

    @property
    def keep(self) -> Keep:
        keep: Keep = self.spec["keep"]
        return keep

    @property
    def layers(self) -> list[Kept | Decided]:
        """The layers that hold weights, in the order of the data."""
        return [part for part in self.body if isinstance(part, (Kept, Decided))]

    @property
    def weights(self) -> int:
        """Number of weights left, intercepts not counted."""
        return sum(len(layer.positions) for layer in self.layers)

    @torch.no_grad()
    def put_back(self, net: nn.Module) -> None:
        """Write what was learned since into `net`, the full network this one was made from with keep="distribution".

        With the selection fixed it then predicts as this one does; weights that are not in this one stay as they are.
        """
        if self.keep != "distribution":
            refuse("put_back", "keep", "distribution: means alone are no posterior", self.keep)
        full = drawable_layers(net)
        for name, layer in zip(self.neurons, self.layers, strict=True):
            whole = full[name]
            assert isinstance(layer, Decided)
            pairs = zip(layer.blocks(), whole.blocks(), strict=True)
            for mine, theirs in pairs:
                theirs.mu.view(-1)[mine.places] = mine.mu
                theirs.rho.view(-1)[mine.places] = mine.rho
        likelihood_of(net).load_state_dict(self.likelihood.state_dict())

    def forward(self, x: Tensor) -> Tensor:
        if not torch.is_grad_enabled() and self._chain is not False:
            rows = x.flatten(1) if x.ndim > 2 else x
            if applies(rows):
                if self._chain is None:
                    self._chain = _as_chain(self.body)
                if self._chain and self.row_shape == (rows.shape[1],):
                    return self._chain(rows)
        out: Tensor = self.body(x)
        return out

    def _apply(self, *given: Any, **options: Any) -> Any:
        self._chain = None  # the numbers move
        return super()._apply(*given, **options)  # type: ignore[no-untyped-call]

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_chain": None}  # a copy has memory of its own


@overload
def compact(net: Mixture, selection: Selection, keep: Keep = "means") -> Mixture: ...  # type: ignore[overload-overlap]


@overload
def compact(net: nn.Module, selection: Selection, keep: Keep = "means") -> Compact: ...


def compact(net: nn.Module, selection: Selection, keep: Keep = "means") -> Compact | Mixture:
    """A small network that gives what `net` gives with `selection` fixed, without what is dead in it.

    keep: "means" gives a deterministic network of the means, with what cut-off neurons send folded into intercepts;
        "distribution" keeps mean and spread of what is left: `predict` averages over its draws, which are those of
        the full network with `fixed(selection.masks, exact)`, and `fit` post-trains it, as `fit(fixed=selection)`
        post-trains the full one, at the price of the small one.

    Chains of layers only (`mlp`, `convnet`, any `nn.Sequential` of layers, activations and pooling); LayerNorm,
    BatchNorm, residual connections and code of your own are refused by name. A mixture
    gives a mixture of small networks.

    >>> from slabnet.model.networks import mlp
    >>> from slabnet.selection.rules import budget_model
    >>> net = mlp((20, 30, 2))
    >>> small = compact(net, budget_model(net, weights=40))
    >>> small(torch.zeros(3, 20)).shape, small.weights <= 40, len(small.neurons["body.1"]) < 30
    (torch.Size([3, 2]), True, True)
    """
    check_choice("compact", "keep", keep, ("means", "distribution"))
    if isinstance(net, Mixture) and isinstance(selection, Selection):
        given = selection.rule, selection.threshold
        chosen_of = [
            describe(m, selection_of_member, *given)
            for m, selection_of_member in zip(net.members, net.split(selection.masks), strict=True)
        ]
        each = [
            compact(member, selection_of_member, keep)
            for member, selection_of_member in zip(net.members, chosen_of, strict=True)
        ]
        return Mixture(each, net.weights).eval()
    _check(net, selection)
    if keep == "means":
        source, chosen = path_model(net, selection)
    else:
        source, chosen = net, _sending(net, selection)
    with torch.no_grad():
        return _build(source, chosen.masks, keep, likelihood_of(net))


def _check(net: nn.Module, selection: Selection) -> None:
    if not isinstance(net, nn.Module):
        refuse("compact", "net", "a network", type(net).__name__)
    if not isinstance(selection, Selection):
        refuse("compact", "selection", "a Selection, such as median_model(net) gives", type(selection).__name__)
    obstacle = _obstacle(net)
    if obstacle is not None:
        allowed = "a chain of spike-and-slab layers, activations, pooling and flattening"
        refuse("compact", "net", allowed, f"{obstacle}, which cannot be cut exactly")
    held = {name: layer.blocks() for name, layer in drawable_layers(net).items()}
    shapes = {name: [tuple(b.mu.shape) for b in blocks] for name, blocks in held.items() if blocks}
    came = {name: [tuple(part.shape) for part in mask] for name, mask in selection.masks.items()}
    if shapes != came:
        refuse("compact", "selection", "one of this network", f"masks for {', '.join(came)} of other names or shapes")
    if selection.feasible is False:
        allowed = 'a model in which an input reaches an output (median_model(net, infeasible="lower") finds one)'
        refuse("compact", "selection", allowed, f"one whose every path ends in {selection.broken}")


def _obstacle(net: nn.Module) -> str | None:
    """The part that makes `net` no chain, None if it is one."""
    if isinstance(net, Compact):
        return "Compact, a network that is small already"
    body = net.body if isinstance(net, Network) else net
    for name, part in body.named_modules():
        if isinstance(part, (nn.Sequential, Gates)):
            continue
        inside = name.rpartition(".")[0]
        if any(isinstance(body.get_submodule(above), SlabLayer) for above in _above(inside)):
            continue  # parameters and prior of a layer
        if not isinstance(part, SlabLayer) and not is_plain(part):
            return f"{type(part).__name__}{f' ({name})' if name else ''}"
    return None if chain_of(net) is not None else "a layer that is used twice"


def _above(name: str) -> list[str]:
    parts = name.split(".")
    return [".".join(parts[: i + 1]) for i in range(len(parts))] if name else []


@torch.no_grad()
def _sending(net: nn.Module, chosen: Selection) -> Selection:
    """The weights that carry something to an output in some draw: their source may send anything but zero."""
    names = {id(link.layer): link.name for link in chain_of(net) or []}
    masks: dict[str, Mask] = {}
    sends: Tensor | None = None
    again = torch.zeros(0)  # the same of the inputs that later layers read again
    for part in flat_parts(net) or [net]:
        if is_elementwise(part) and sends is not None:
            sends = sends | torch.as_tensor(sends_at_zero(part), device=sends.device)
        if isinstance(part, Fork):
            before = torch.ones(1, dtype=torch.bool, device=device_of(net)[0]) if sends is None else sends
            again = sends = before.repeat_interleave(part.features // len(before))
        elif isinstance(part, Join):
            assert sends is not None
            sends = torch.cat([sends, again])
        if not isinstance(part, SlabLayer):
            continue
        mask = chosen.masks[names[id(part)]]
        edges = unit_edges(part, mask[0])
        if sends is not None:
            edges = edges & sends.repeat_interleave(edges.shape[1] // len(sends))
        masks[names[id(part)]] = (mask[0] & per_weight(part, edges, mask[0]), *mask[1:])
        sends = edges.any(1) | (mask[1] if len(mask) > 1 else False)
    return _trim(net, describe(net, masks, chosen.rule, chosen.threshold))


def _build(net: nn.Module, masks: Mapping[str, Mask], keep: Keep, likelihood: Likelihood) -> Compact:
    chain = chain_of(net)
    assert chain is not None
    wanted = {link.name: unit_edges(link.layer, masks[link.name][0]).any(0) for link in chain}
    first, last = chain[0].layer, chain[-1]
    inputs = wanted_by(chain, 0, wanted)
    parts: list[nn.Module] = []
    specs: list[dict[str, Any]] = []
    neurons: dict[str, Tensor] = {}
    there = again = torch.ones_like(inputs)  # what of the full network still comes here, and of what is read again
    at, empty = 0, False  # empty: no unit is left of the layers so far, and the inputs pass by them

    def take(needed: Tensor, dim: int) -> None:
        if not torch.equal(needed, there):
            parts.append(Take(needed[there].nonzero()[:, 0], dim))
            specs.append({"part": "Take", "dim": dim})

    for part in flat_parts(net) or [net]:
        if isinstance(part, Fork):
            needed = wanted_by(chain, at, wanted)
            there = there.repeat_interleave(len(needed) // len(there))
            take(needed, -1)
            there = again = needed
            part = Fork(int(needed.sum()))
        elif isinstance(part, Join):
            there = torch.cat([there, again])
            if empty:
                empty = False
                continue
        if not isinstance(part, SlabLayer):
            if empty:
                continue
            part = part.part(there) if isinstance(part, Mixed) else part
            parts.append(plain_part(plain_spec(part)))
            specs.append(plain_spec(part))
            continue
        name = chain[at].name
        units = torch.ones(len(masks[name][0]), dtype=torch.bool, device=inputs.device)  # every output stays
        if part is not last.layer:
            units = wanted_of(chain, at, wanted)
        at += 1
        if keep == "means" and not bool(units.any()):  # skips carry all there is (draws take their noise in turn)
            there, empty = units, True
            continue
        there = there.repeat_interleave(len(wanted[name]) // len(there))
        take(wanted[name], 1 if isinstance(part, ConvNd) else -1)
        there, neurons[name] = units, units.nonzero()[:, 0]
        made, described = _layer(part, masks[name], units, wanted[name], keep)
        parts.append(made)
        specs.append(described | {"name": name})
    row_shape = net.row_shape if isinstance(net, Network) else None
    if row_shape is None and not isinstance(first, ConvNd):
        row_shape = (len(inputs),)
    spec = _specification(net, keep, likelihood, row_shape) | {"outputs": len(masks[last.name][0]), "parts": specs}
    return Compact(parts, likelihood, spec, inputs.nonzero()[:, 0], neurons).eval()


def _specification(
    net: nn.Module, keep: Keep, likelihood: Likelihood, row_shape: tuple[int, ...] | None
) -> dict[str, Any]:
    """What a compact network is, but for its parts."""
    method = net.spec["method"] if isinstance(net, Network) else "lbbnn"
    return {
        "kind": "compact",
        "keep": keep,
        "method": "deterministic" if keep == "means" else method,
        "likelihood": likelihood.spec(),
        "row_shape": None if row_shape is None else list(row_shape),
    }


def _layer(layer: SlabLayer, mask: Mask, units: Tensor, inputs: Tensor, keep: Keep) -> tuple[nn.Module, dict[str, Any]]:
    """One layer between the units and inputs that are left, and how it is described in a file."""
    groups = layer.groups
    geometry = {name: as_list(getattr(layer, name)) for name in GEOMETRY} if isinstance(layer, ConvNd) else {}
    shape = list(layer.weight.mu.shape)
    spec: dict[str, Any] = {"part": "layer", "of": shape, "groups": groups, "bias": layer.bias is not None, **geometry}
    spec["inputs"] = int(inputs.sum())
    left, mu, rho = (ungroup(t, groups)[units][:, inputs] for t in (mask[0], layer.weight.mu, layer.weight.rho))
    if keep == "means":
        intercepts = None if layer.bias is None else (layer.bias.mu * mask[1])[units]
        return kept_layer(mu[left], left, intercepts, geometry), spec
    bias = None
    if layer.bias is not None:
        has_bias = mask[1][units]
        bias = has_bias, layer.bias.mu[units][has_bias], layer.bias.rho[units][has_bias]
    places = units.nonzero()[:, 0], inputs.nonzero()[:, 0]
    made = decided_layer((left, mu[left], rho[left]), bias, *places, shape, plain_prior(layer.prior), geometry)
    return made, spec | {"prior": layer.prior.spec()}


def kept_layer(values: Tensor, mask: Tensor, bias: Tensor | None, geometry: dict[str, Any]) -> Kept:
    """A plain layer of what is left: the entries of `mask`, row by row."""
    return KeptConv(values, mask, bias, geometry) if geometry else KeptLinear(values, mask, bias)


@torch.no_grad()
def decided_layer(
    weight: tuple[Tensor, Tensor, Tensor],
    bias: tuple[Tensor, Tensor, Tensor] | None,
    units: Tensor,
    inputs: Tensor,
    shape: list[int],
    prior: LayerPrior,
    geometry: dict[str, Any],
) -> Decided:
    """A layer with the distribution of what is left: (mask, mu and rho of what is in it) of weights and intercepts."""
    mask, mu, rho = weight
    unit, read, *_ = entries = mask.nonzero(as_tuple=True)
    places = units[unit] * shape[1] + inputs[read] % shape[1]  # each group of a convolution reads its own inputs
    for at, size in zip(entries[2:], shape[2:], strict=True):
        places = places * size + at
    bias_mask = None if bias is None else bias[0]
    made = Decided(mask, bias_mask, places, units, inputs, shape[0], prior, geometry).to(mu)
    made.weight.mu.copy_(mu)
    made.weight.rho.copy_(rho)
    if bias is not None and made.bias is not None:
        made.bias.mu.copy_(bias[1])
        made.bias.rho.copy_(bias[2])
    return made


def _as_chain(body: nn.Sequential) -> SparseChain | Literal[False]:
    """All of it in one call of C, if it is linear layers that are faster by rows, and activations that C knows."""
    parts = [part for part in body if not isinstance(part, (nn.Flatten, nn.Dropout))]
    reads = None
    if parts and isinstance(parts[0], Take):
        reads, parts = parts[0].index.to(torch.int32), parts[1:]
    layers: list[SparseLayer] = []
    for part in parts:
        if isinstance(part, KeptLinear) and part.sparse:
            layers.append(part.rows())
        elif layers and layers[-1].activation.code == IDENTITY.code and (step := in_c(part)) is not None:
            layers[-1] = layers[-1]._replace(activation=step)
        else:
            return False
    if not layers:
        return False
    if reads is None:
        reads = torch.arange(next(p for p in parts if isinstance(p, KeptLinear)).shape[1], dtype=torch.int32)
    return SparseChain(reads, layers)
