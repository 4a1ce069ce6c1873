"""Paths from inputs to outputs through a chosen model: what is reached, what is on the way, what is missing.

A network is a *chain* if its layers follow one another (`mlp`, `convnet`, any `nn.Sequential` of layers,
activations, pooling and flattening). Elsewhere (residual connections, code of your own) paths are not known
from the parts, and the functions here return None.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from slabnet.model.activations import is_elementwise
from slabnet.model.baselines import InputNoise
from slabnet.model.drawing import Mask, drawable_layers
from slabnet.model.layers import Linear, SlabLayer
from slabnet.model.layers.conv import ConvNd
from slabnet.model.mixture import Mixture
from slabnet.model.network import Network

POOLING = (
    nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.Flatten,
)  # fmt: skip


@dataclass(frozen=True)
class Paths:
    """What the masks of a chain let through.

    active: layer name -> weights on some path from an input to an output.
    sources: layer name -> its inputs that some input of the network reaches.
    wanted: layer name -> its outputs (units or channels) from which an output of the network is reached.
    reach: (outputs, inputs): whether an input can reach an output.
    broken: the first layer behind which nothing is reached, None if some output is.
    """

    active: Mapping[str, Tensor]
    sources: Mapping[str, Tensor]
    wanted: Mapping[str, Tensor]
    reach: Tensor
    broken: str | None

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


def chain_of(net: nn.Module) -> list[tuple[str, SlabLayer]] | None:
    """The layers of `net` in the order of the data, or None if it is not a chain."""
    body = net.body if isinstance(net, Network) else net
    if isinstance(body, (Linear, ConvNd)):
        return list(drawable_layers(net).items())  # type: ignore[arg-type]
    names = {id(layer): name for name, layer in drawable_layers(net).items() if isinstance(layer, SlabLayer)}
    parts = None if any(layer.decided for layer in drawable_layers(net).values()) else flat_parts(body)
    if parts is None or len({id(part) for part in parts if id(part) in names}) != len(names):
        return None
    chain = [(names[id(part)], part) for part in parts if isinstance(part, SlabLayer)]
    return chain if len(chain) == len(names) and chain else None  # a layer used twice is no chain


def find_paths(net: nn.Module, masks: Mapping[str, Mask]) -> Paths | None:
    """One pass forward (what is reached) and one back (what still matters); None where `net` is no chain.

    The paths of a mixture are those of its members; it is broken where one of them is.
    """
    if isinstance(net, Mixture):
        return _joined(net, [find_paths(*pair) for pair in zip(net.members, net.split(masks), strict=True)])
    chain = chain_of(net)
    if chain is None:
        return None
    edges = {name: unit_edges(layer, masks[name][0]) for name, layer in chain}
    reach, sources, broken = None, {}, None
    for name, _ in chain:
        edge = edges[name]
        if reach is None:
            reach = torch.eye(edge.shape[1], dtype=torch.bool, device=edge.device)
        reach = _widen(reach, edge.shape[1])
        sources[name] = reach.any(1)
        reach = (edge.float() @ reach.float()) > 0
        if broken is None and not bool(reach.any()):
            broken = name
    assert reach is not None
    wanted, active, ahead = {}, {}, torch.ones(len(reach), dtype=torch.bool, device=reach.device)
    for name, layer in reversed(chain):
        edge = edges[name]
        wanted[name] = _narrow(ahead, edge.shape[0])
        on_path = edge & sources[name] & wanted[name][:, None]
        active[name] = _restore(layer, on_path, masks[name][0])
        ahead = on_path.any(0)
    order = [name for name, _ in chain]
    return Paths({n: active[n] for n in order}, sources, {n: wanted[n] for n in order}, reach, broken)


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
    )


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
    cost, steps = None, []
    for name, layer in chain:
        price = _unit_prices(layer, masks[name][0])
        here = torch.zeros(price.shape[1]).to(price) if cost is None else _widen(cost[:, None], price.shape[1])[:, 0]
        total = price + here
        cost, best = total.min(1)
        steps.append(best)
    assert cost is not None
    unit = int(cost.argmin()) if output is None else output
    added: dict[str, Tensor] = {}
    for (name, layer), best in zip(reversed(chain), reversed(steps), strict=True):
        source = int(best[unit])
        added[name] = _single(layer, masks[name][0], unit, source)
        unit = source
        position = [n for n, _ in chain].index(name)
        if position > 0:
            before = chain[position - 1][1].weight.mu.shape[0]
            unit = source * before // len(_inputs(layer))
    return added


def unit_edges(layer: SlabLayer, mask: Tensor) -> Tensor:
    """(outputs, inputs): whether any kernel position joins the two; groups are blocks on the diagonal."""
    joined = mask.flatten(2).any(2) if mask.ndim > 2 else mask
    return _block_diagonal(layer, joined, False)


def _block_diagonal(layer: SlabLayer, by_group: Tensor, elsewhere: float) -> Tensor:
    """(outputs, inputs / groups) as (outputs, inputs): each group reads its own inputs."""
    groups = int(getattr(layer, "groups", 1))
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
    if isinstance(module, InputNoise):  # a factor on each input joins no units
        return flat_parts(module.inner)
    return [module] if isinstance(module, (SlabLayer, *POOLING)) or is_elementwise(module) else None


def _inputs(layer: SlabLayer) -> range:
    return range(layer.weight.mu.shape[1] * int(getattr(layer, "groups", 1)))


def _widen(reach: Tensor, inputs: int) -> Tensor:
    """Channels as the features that flattening makes of them."""
    return reach if len(reach) == inputs else reach.repeat_interleave(inputs // len(reach), 0)


def _narrow(wanted: Tensor, outputs: int) -> Tensor:
    """Features back to the channels they came from."""
    return wanted if len(wanted) == outputs else wanted.reshape(outputs, -1).any(1)


def per_weight(layer: SlabLayer, by_unit: Tensor, mask: Tensor) -> Tensor:
    """(outputs, inputs) as the weight's own (outputs, inputs / groups, 1...)."""
    groups = int(getattr(layer, "groups", 1))
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
