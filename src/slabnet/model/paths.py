"""Paths from inputs to outputs through a chosen model: what is reached, what is on the way, what is missing.

A network is a *chain* if its layers follow one another (`mlp`, `convnet`, any `nn.Sequential` of layers,
activations, pooling and flattening); in an input-skip network layers read the inputs again, and a path may start at
any copy of them. Elsewhere (residual connections, code of your own) paths are not known from the parts, and the
functions here return None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from slabnet.model.baselines import InputNoise
from slabnet.model.drawing import Mask, drawable_layers
from slabnet.model.elementwise import is_elementwise
from slabnet.model.gates import Gates
from slabnet.model.layers import Linear, SlabLayer
from slabnet.model.layers.conv import ConvNd
from slabnet.model.mixture import Mixture
from slabnet.model.network import Network
from slabnet.model.skips import Fork, Join

POOLING = (
    nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.Flatten,
)  # fmt: skip


class Link(NamedTuple):
    """A layer of a chain; the last `again` of its inputs are those which layer number `reader` reads first."""

    name: str
    layer: SlabLayer
    again: int = 0
    reader: int = 0


@dataclass(frozen=True)
class Paths:
    """What the masks of a chain let through.

    active: layer name -> weights on some path from an input to an output.
    sources: layer name -> its inputs that some input of the network reaches.
    wanted: layer name -> its outputs (units or channels) from which an output of the network is reached.
    reach: (outputs, inputs): whether an input can reach an output.
    broken: the first layer behind which nothing is reached, None if some output is.
    entries: for each layer, the inputs of the network from which a path starts there: all of them in the first layer,
        in others of an input-skip network.
    """

    active: Mapping[str, Tensor]
    sources: Mapping[str, Tensor]
    wanted: Mapping[str, Tensor]
    reach: Tensor
    broken: str | None
    entries: Sequence[Tensor] = ()

    @property
    def linear(self) -> Tensor:
        """Which inputs of the network are in it only linearly: every path from them enters at the last layer."""
        *earlier, last = self.entries
        deeper = torch.stack(earlier).any(0) if earlier else torch.zeros_like(last)
        return last & ~deeper

    @property
    def depth(self) -> int:
        """Layers on the longest path from an input to an output; 0 where no output is reached."""
        first = next((i for i, entry in enumerate(self.entries) if bool(entry.any())), len(self.entries))
        return len(self.entries) - first

    @property
    def reached(self) -> Tensor:
        """Which outputs some input reaches."""
        return self.reach.any(1)

    @property
    def inputs(self) -> Tensor:
        """Which inputs of the network lie on a path."""
        return self.reach.any(0)

    @property
    def neurons(self) -> dict[str, Tensor]:
        """Layer name -> its units that lie on a path."""
        return {name: mask.flatten(1).any(1) for name, mask in self.active.items()}


def chain_of(net: nn.Module) -> list[Link] | None:
    """The layers of `net` in the order of the data, or None if it is not a chain."""
    body = net.body if isinstance(net, Network) else net
    if isinstance(body, (Linear, ConvNd)):
        return [Link(name, layer) for name, layer in drawable_layers(net).items() if isinstance(layer, SlabLayer)]
    names = {id(layer): name for name, layer in drawable_layers(net).items() if isinstance(layer, SlabLayer)}
    parts = None if any(layer.decided for layer in drawable_layers(net).values()) else flat_parts(body)
    if parts is None or len({id(part) for part in parts if id(part) in names}) != len(names):
        return None
    chain: list[Link] = []
    features = reader = again = 0
    for part in parts:
        if isinstance(part, Fork):
            features, reader = part.features, len(chain)
        elif isinstance(part, Join):
            again = features
        elif isinstance(part, SlabLayer):
            chain.append(Link(names[id(part)], part, again, reader if again else 0))
            again = 0
    return chain if len(chain) == len(names) and chain else None  # a layer used twice is no chain


def read_by(chain: Sequence[Link], at: int, sent: Sequence[Tensor], first: Tensor) -> Tensor:
    """What layer `at` reads: for each of its inputs an entry of what was sent before it, or of the network's own."""
    link = chain[at]
    width = len(_inputs(link.layer))
    before = _widen(sent[at - 1] if at else first, width - link.again)
    if not link.again:
        return before
    return torch.cat([before, _widen(sent[link.reader - 1] if link.reader else first, link.again)])


def wanted_by(chain: Sequence[Link], at: int, read: Mapping[str, Tensor]) -> Tensor:
    """Of what layer `at` reads first, what it or a later layer reads; `read`: which of its inputs each layer does."""
    columns = read[chain[at].name]
    wanted = columns[: len(columns) - chain[at].again]
    for link in chain[at + 1 :]:
        if link.again and link.reader == at:
            wanted = wanted | read[link.name][-link.again :]
    return wanted


def wanted_of(chain: Sequence[Link], at: int, read: Mapping[str, Tensor]) -> Tensor:
    """Which outputs (units or channels) of layer `at`, not the last, the later layers read."""
    return _narrow(wanted_by(chain, at + 1, read), len(chain[at].layer.weight.mu))


def find_paths(net: nn.Module, masks: Mapping[str, Mask]) -> Paths | None:
    """One pass forward (what is reached) and one back (what still matters); None where `net` is no chain.

    The paths of a mixture are those of its members; it is broken where one of them is.
    """
    if isinstance(net, Mixture):
        return _joined(net, [find_paths(*pair) for pair in zip(net.members, net.split(masks), strict=True)])
    chain = chain_of(net)
    if chain is None:
        return None
    edges = {link.name: unit_edges(link.layer, masks[link.name][0]) for link in chain}
    first = edges[chain[0].name]
    themselves = torch.eye(first.shape[1], dtype=torch.bool, device=first.device)
    reach: list[Tensor] = []
    sources: dict[str, Tensor] = {}
    broken: str | None = None
    for at, link in enumerate(chain):
        before = read_by(chain, at, reach, themselves)
        sources[link.name] = before.any(1)
        reach.append((edges[link.name].float() @ before.float()) > 0)
        broken = None if bool(reach[-1].any()) else broken or link.name
    wanted: dict[str, Tensor] = {}
    active: dict[str, Tensor] = {}
    read: dict[str, Tensor] = {}
    for at, link in reversed(list(enumerate(chain))):
        edge = edges[link.name]
        last = at == len(chain) - 1
        wanted[link.name] = torch.ones_like(edge[:, 0]) if last else wanted_of(chain, at, read)
        on_path = edge & sources[link.name] & wanted[link.name][:, None]
        active[link.name] = _restore(link.layer, on_path, masks[link.name][0])
        read[link.name] = on_path.any(0)
    order = [link.name for link in chain]
    entries = [_entering(chain, at, read, len(themselves)) for at in range(len(chain))]
    used, ends = {n: active[n] for n in order}, {n: wanted[n] for n in order}
    return Paths(used, sources, ends, reach[-1], broken, entries)


def _entering(chain: Sequence[Link], at: int, read: Mapping[str, Tensor], inputs: int) -> Tensor:
    """The inputs of the network from which a path starts at layer `at`; `read`: what each layer reads on a path."""
    link, columns = chain[at], read[chain[at].name]
    if at == 0:
        return _narrow(columns, inputs)
    if link.again and link.reader == 0:
        return columns[-link.again :]
    return torch.zeros(inputs, dtype=torch.bool, device=columns.device)


def _joined(net: Mixture, each: Sequence[Paths | None]) -> Paths | None:
    """The paths of all members, under the names their layers have in the mixture."""
    known = [paths for paths in each if paths is not None]
    if len(known) < len(each):
        return None
    ends = net.join({"": paths.broken} for paths in known)
    return Paths(
        active=net.join(paths.active for paths in known),
        sources=net.join(paths.sources for paths in known),
        wanted=net.join(paths.wanted for paths in known),
        reach=torch.stack([paths.reach for paths in known]).any(0),
        broken=next((f"{start}{broken}" for start, broken in ends.items() if broken is not None), None),
        entries=_aligned([paths.entries for paths in known]),
    )


def _aligned(each: Sequence[Sequence[Tensor]]) -> list[Tensor]:
    """The entries of members counted from the last layer: members may be of different depth."""
    masks: list[Tensor] = []
    for back in range(1, max(map(len, each)) + 1):
        there = [entries[-back] for entries in each if len(entries) >= back]
        masks.insert(0, torch.stack(there).any(0))
    return masks


def cheapest_path(net: nn.Module, masks: Mapping[str, Mask], output: int | None = None) -> dict[str, Tensor] | None:
    """The weights to add for the most probable path to `output` (None: to whichever is cheapest).

    A weight outside the masks costs log((1 - alpha)/alpha) = -omega, what its inclusion takes from log q(gamma);
    one inside costs nothing. Shortest path over the layers, one pass. Of a mixture, one in each member.
    """
    if isinstance(net, Mixture):
        each = [cheapest_path(*pair, output) for pair in zip(net.members, net.split(masks), strict=True)]
        return None if any(added is None for added in each) else net.join(added or {} for added in each)
    chain = chain_of(net)
    if chain is None:
        return None
    free = torch.zeros(len(_inputs(chain[0].layer)))  # an input costs nothing
    costs: list[Tensor] = []
    steps: list[Tensor] = []
    for at, link in enumerate(chain):
        price = _unit_prices(link.layer, masks[link.name][0])
        cost, best = (price + read_by(chain, at, costs, free)).min(1)
        costs.append(cost)
        steps.append(best)
    unit = int(costs[-1].argmin()) if output is None else output
    added = {link.name: torch.zeros_like(masks[link.name][0]) for link in chain}
    at = len(chain) - 1
    while at >= 0:
        link, source = chain[at], int(steps[at][unit])
        added[link.name] = _single(link.layer, masks[link.name][0], unit, source)
        units = len(_inputs(link.layer)) - link.again
        if source >= units:  # a copy: the path goes on before the layer that reads it first
            at, source, features = link.reader - 1, source - units, link.again
        else:
            at, features = at - 1, units
        if at >= 0:
            unit = source * len(chain[at].layer.weight.mu) // features
    return added


def unit_edges(layer: SlabLayer, mask: Tensor) -> Tensor:
    """(outputs, inputs): whether any kernel position joins the two; groups are blocks on the diagonal."""
    joined = mask.flatten(2).any(2) if mask.ndim > 2 else mask
    return _block_diagonal(layer, joined, False)


def _block_diagonal(layer: SlabLayer, by_group: Tensor, elsewhere: float) -> Tensor:
    """(outputs, inputs / groups) as (outputs, inputs): each group reads its own inputs."""
    groups = layer.groups
    if groups == 1:
        return by_group
    rows, columns = by_group.shape[0] // groups, by_group.shape[1]
    full = torch.full((by_group.shape[0], columns * groups), elsewhere, dtype=by_group.dtype, device=by_group.device)
    for group in range(groups):
        here = slice(group * rows, (group + 1) * rows)
        full[here, group * columns : (group + 1) * columns] = by_group[here]
    return full


def flat_parts(module: nn.Module) -> list[nn.Module] | None:
    """The parts of nested Sequentials in order; None if something in them is not known to act unit by unit."""
    if isinstance(module, Network):
        return flat_parts(module.body)
    if isinstance(module, nn.Sequential):
        parts: list[nn.Module] = []
        for child in module:
            inner = flat_parts(child)
            if inner is None:
                return None
            parts += inner
        return parts
    if isinstance(module, Gates):  # what it decides stands in the layers' alphas
        return []
    if isinstance(module, InputNoise):  # a factor on each input joins no units
        return flat_parts(module.inner)
    plain = isinstance(module, (SlabLayer, Fork, Join, *POOLING)) or is_elementwise(module)
    return [module] if plain else None


@torch.no_grad()
def masks_above(layers: Mapping[str, SlabLayer], threshold: float) -> dict[str, Mask]:
    """The weights and intercepts with alpha > threshold whose posterior the data have moved away from the prior."""
    masks = {}
    for name, layer in layers.items():
        blocks = layer.blocks()
        alphas = [torch.ones_like(one.mu) if one.omega is None else torch.sigmoid(one.omega) for one in blocks]
        masks[name] = tuple((a > threshold) & moved for a, moved in zip(alphas, layer.informed(blocks), strict=True))
    return masks


def _inputs(layer: SlabLayer) -> range:
    return range(layer.weight.mu.shape[1] * layer.groups)


def _widen(reach: Tensor, inputs: int) -> Tensor:
    """Channels as the features that flattening makes of them."""
    return reach if len(reach) == inputs else reach.repeat_interleave(inputs // len(reach), 0)


def _narrow(wanted: Tensor, outputs: int) -> Tensor:
    """Features back to the channels they came from."""
    return wanted if len(wanted) == outputs else wanted.reshape(outputs, -1).any(1)


def per_weight(layer: SlabLayer, by_unit: Tensor, mask: Tensor) -> Tensor:
    """(outputs, inputs) as the weight's own (outputs, inputs / groups, 1...)."""
    groups = layer.groups
    if groups > 1:
        rows, columns = mask.shape[0] // groups, mask.shape[1]
        blocks = [by_unit[g * rows : (g + 1) * rows, g * columns : (g + 1) * columns] for g in range(groups)]
        by_unit = torch.cat(blocks)
    return by_unit.reshape(by_unit.shape + (1,) * (mask.ndim - 2))


def _restore(layer: SlabLayer, on_path: Tensor, mask: Tensor) -> Tensor:
    return mask & per_weight(layer, on_path, mask)


def _prices(layer: SlabLayer, mask: Tensor) -> Tensor:
    """What each weight costs: nothing if it is in, else -omega (infinite where it was forced out)."""
    omega = layer.blocks()[0].omega
    price = torch.zeros(mask.shape) if omega is None else -omega.detach().cpu()
    pinned = layer.prior.pinned
    if pinned is not None:
        price = price.masked_fill(pinned.cpu() < 0, float("inf"))
    return price.clamp_min(0).masked_fill(mask.cpu(), 0.0)


def _unit_prices(layer: SlabLayer, mask: Tensor) -> Tensor:
    """(outputs, inputs): the cheapest kernel position between two units."""
    price = _prices(layer, mask)
    return _block_diagonal(layer, price.flatten(2).amin(2) if price.ndim > 2 else price, float("inf"))


def _single(layer: SlabLayer, mask: Tensor, output: int, source: int) -> Tensor:
    """A mask with just the cheapest weight between two units."""
    price = _prices(layer, mask)
    column = source % mask.shape[1]
    position = int(price[output, column].flatten().argmin())
    added = torch.zeros(mask.shape, dtype=torch.bool)
    added[output, column].view(-1)[position] = True
    return added.to(mask.device)
