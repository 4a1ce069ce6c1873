"""Counts over drawn networks: which columns are used, which pass a unit that bends, which meet in one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from slabnet.core.devices import device_of
from slabnet.core.errors import refuse
from slabnet.core.noise import keyed_generator
from slabnet.model.activations import activation_of
from slabnet.model.drawing import Mask, drawing
from slabnet.model.draws import exact
from slabnet.model.elementwise import Mixed
from slabnet.model.layers import SlabLayer
from slabnet.model.mixture import Mixture
from slabnet.model.networks import Network
from slabnet.model.paths import Link, chain_of, find_paths, flat_parts, read_by, unit_edges
from slabnet.selection.rules import slab_layers

MOST_COLUMNS = 2000  # for which pairs are counted
STRAIGHT = "identity"
POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d)


@dataclass
class Counts:
    """In how many of `draws` networks each thing is so; `units` of hidden layers are how many there are.

    together: (columns, columns), None for very many columns. with_kind: networks in which an active unit has the
    activation; kinds: such units, summed over networks. parts, used_in: of outputs that stand for a mean and a noise,
    which they are, and in how many networks each column reaches them.
    """

    names: tuple[str, ...]
    used: Tensor
    linear: Tensor
    together: Tensor | None
    draws: int
    units: tuple[int, ...] = ()
    depth: Counter[int] = field(default_factory=Counter)
    width: tuple[Counter[int], ...] = ()
    with_kind: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    parts: Mapping[str, slice] = field(default_factory=dict)
    used_in: dict[str, Tensor] = field(default_factory=dict)


def count_structure(
    net: nn.Module,
    draws: int,
    seed: int,
    masks: Mapping[str, Mask] | None,
    names: Sequence[str] | None,
    columns: Mapping[str, Sequence[int]] | None,
) -> Counts:
    """The counts over drawn networks, or those of the one that `masks` choose."""
    each = [net] if not isinstance(net, Mixture) else list(net.members)
    hidden = [_hidden(member) for member in each]
    inputs = _inputs_of(each[0])
    of_column, named = _columns(inputs, names, columns)
    together = torch.zeros(len(named), len(named)) if len(named) <= MOST_COLUMNS else None
    zero = torch.zeros(len(named), dtype=torch.float64)
    most = max(hidden, key=len)
    units = tuple(max(len(layers[i][0]) for layers in hidden if i < len(layers)) for i in range(len(most)))
    counts = Counts(named, zero, zero.clone(), together, draws if masks is None else 1, units)
    counts.width = tuple(Counter() for _ in units)
    counts.kinds.update({kind: 0 for layers in hidden for layer, _ in layers for kind in layer})
    counts.parts = _parts(each[0])
    counts.used_in = {name: zero.clone() for name in counts.parts}
    device = device_of(net)[0]
    for r in range(counts.draws):
        if masks is not None:
            chosen = net.split(masks) if isinstance(net, Mixture) else [masks]
            parts = [_Drawn(*three) for three in zip(each, chosen, hidden, strict=True)]
        else:
            member = net.member_of(r) if isinstance(net, Mixture) else 0
            with drawing(net, exact, keyed_generator(seed, "draw", r, device=device), r) as scope:
                used = {name: (scope.used(layer),) for name, layer in slab_layers(each[member]).items()}
            parts = [_Drawn(each[member], used, hidden[member])]
        _add(counts, parts, of_column)
    return counts


class _Drawn:
    """One network: what its inputs reach, layer by layer."""

    def __init__(self, net: nn.Module, masks: Mapping[str, Mask], hidden: list[tuple[list[str], Tensor]]) -> None:
        chain, paths = chain_of(net), find_paths(net, masks)
        if chain is None or paths is None:
            refuse("structure", "net", "a chain of layers, whose paths are known", type(net).__name__)
        self.used, self.depth, self.hidden = paths.inputs.cpu(), paths.depth, hidden
        self.outputs = paths.reach.cpu()  # (outputs, inputs)
        self.reach: list[Tensor] = []  # for each hidden layer (units, inputs) along active weights
        self.active: list[Tensor] = []
        first = torch.eye(len(paths.inputs), device=paths.inputs.device)
        reach: list[Tensor] = []
        for at, link in enumerate(chain[:-1]):
            edges = unit_edges(link.layer, paths.active[link.name]).float()
            reach.append(((edges @ read_by(chain, at, reach, first)) > 0).float())
            self.reach.append(reach[-1].cpu())
            self.active.append((reach[-1] > 0).any(1).cpu())


def _add(counts: Counts, parts: Sequence[_Drawn], of_column: Tensor) -> None:
    """Add one network, or the members of a chosen mixture as one."""
    columns = len(counts.names)
    used = torch.zeros(columns, dtype=torch.bool)
    bent = torch.zeros(columns, dtype=torch.bool)
    pairs = torch.zeros(columns, columns, dtype=torch.bool)
    widths, kinds = [0] * len(counts.units), Counter[str]()
    for part in parts:
        used |= (part.used.float() @ of_column) > 0
        for i, ((names, bends), reach, active) in enumerate(zip(part.hidden, part.reach, part.active, strict=True)):
            widths[i] = max(widths[i], int(active.sum()))
            kinds.update(names[unit] for unit in active.nonzero()[:, 0].tolist())
            read = (reach[active & bends] @ of_column) > 0
            bent |= read.any(0)
            if counts.together is not None:
                pairs |= (read.float().T @ read.float()) > 0
    for name, outputs in counts.parts.items():
        reached = torch.stack([part.outputs[outputs].any(0) for part in parts]).any(0)
        counts.used_in[name] += (reached.float() @ of_column) > 0
    counts.used += used
    counts.linear += used & ~bent
    if counts.together is not None:
        counts.together += pairs.fill_diagonal_(False)
    counts.depth[max(part.depth for part in parts)] += 1
    for layer, width in zip(counts.width, widths, strict=True):
        layer[width] += 1
    counts.kinds.update(kinds)
    counts.with_kind.update(set(kinds))


def _hidden(net: nn.Module) -> list[tuple[list[str], Tensor]]:
    """For each hidden layer the activation of each unit, and whether what comes behind the unit is no straight line."""
    found: list[tuple[list[str], Tensor]] = []
    for part in flat_parts(net) or []:
        if isinstance(part, SlabLayer):
            units = len(part.weight.mu)
            found.append(([STRAIGHT] * units, torch.zeros(units, dtype=torch.bool)))
        elif found:
            names, bends = found[-1]
            row = activation_of(part)
            if isinstance(part, Mixed):
                names[:] = part.of_units()
            elif row is not None:
                names[:] = [row.name] * len(names)
            bends |= torch.tensor([isinstance(part, POOLS) or name != STRAIGHT for name in names])
    return found[:-1]


def _parts(net: nn.Module) -> Mapping[str, slice]:
    return net.likelihood.parts(net.outputs) if isinstance(net, Network) else {}


def _inputs_of(net: nn.Module) -> int:
    chain: list[Link] | None = chain_of(net)
    if chain is None:
        refuse("structure", "net", "a chain of layers, whose paths are known", type(net).__name__)
    first = chain[0].layer
    return int(first.weight.mu.shape[1]) * first.groups


def _columns(
    inputs: int, names: Sequence[str] | None, columns: Mapping[str, Sequence[int]] | None
) -> tuple[Tensor, tuple[str, ...]]:
    """(inputs, columns): one where an input belongs to a column; and the names of the columns."""
    if columns is None:
        single = [f"x{i}" for i in range(inputs)] if names is None else [str(name) for name in names]
        if len(single) != inputs:
            refuse("structure", "names", f"one for each of the {inputs} inputs", f"{len(single)} names")
        return torch.eye(inputs), tuple(single)
    if names is not None:
        refuse("structure", "names", "left out where columns are given", list(names))
    of_column = torch.zeros(inputs, len(columns))
    for i, (name, places) in enumerate(columns.items()):
        if any(not 0 <= place < inputs for place in places):
            refuse("structure", f"columns[{name}]", f"positions of inputs, 0 to {inputs - 1}", list(places))
        of_column[list(places), i] = 1.0
    return of_column, tuple(map(str, columns))
