"""Choose one model from the posterior: the median probability model, its densities, and its paths."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from slabnet.checks import check_number, refuse
from slabnet.draws import Mask, drawable_layers
from slabnet.layers import Linear, SlabLayer
from slabnet.layers.conv import _ConvNd
from slabnet.networks import Network
from slabnet.records import Densities, Selection


@torch.no_grad()
def median_model(net: nn.Module, threshold: float = 0.5) -> Selection:
    """The median probability model: every weight and intercept with alpha > threshold (sec. 3, supplement B).

    >>> from slabnet.networks import mlp
    >>> median_model(mlp((4, 3, 2))).weights    # before training every alpha is above 0.88
    18
    """
    check_number("median_model", "threshold", threshold, at_least=0, below=1)
    masks = {
        name: tuple(_alpha(block.omega, block.mu) > threshold for block in layer.blocks())
        for name, layer in _layers(net).items()
    }
    rule = "median" if threshold == 0.5 else "threshold"
    return describe(net, masks, rule, threshold)


def describe(net: nn.Module, masks: Mapping[str, Mask], rule: str, threshold: float | None = None) -> Selection:
    """A `Selection` of these masks, with densities and, where the network is a chain, its paths."""
    paths = active_paths(net, masks)
    active = None if paths is None else paths[0]
    layers = {
        name: _densities(layer, masks[name], None if active is None else active[name])
        for name, layer in _layers(net).items()
    }
    return Selection(
        masks=dict(masks),
        rule=rule,
        threshold=threshold,
        total=_sum(list(layers.values())),
        layers=layers,
        feasible=None if paths is None else bool(paths[1].any()),
        unreachable=() if paths is None else tuple((~paths[1]).nonzero().flatten().tolist()),
        active=active,
    )


def densities(net: nn.Module, threshold: float = 0.5) -> Densities:
    """Densities of the whole network under the median model."""
    return median_model(net, threshold).total


def active_paths(net: nn.Module, masks: Mapping[str, Mask]) -> tuple[dict[str, Tensor], Tensor] | None:
    """Weights that lie on a path from an input to an output, and which outputs an input can reach.

    One pass forward (which units an input reaches) and one back (which units reach an output). None where
    the network is not a chain of layers, so that its paths are not known from its parts.
    """
    chain = _chain(net)
    if chain is None:
        return None
    edges = [_edges(masks[name][0]) for name, _ in chain]
    outputs = torch.ones(edges[0].shape[1], dtype=torch.bool, device=edges[0].device)
    sources: list[Tensor] = []
    for edge in edges:
        sources.append(_widen(outputs, edge.shape[1]))
        outputs = (edge & sources[-1]).any(1)
    wanted = torch.ones_like(outputs)
    active: dict[str, Tensor] = {}
    for (name, _), edge, source in zip(reversed(chain), reversed(edges), reversed(sources), strict=True):
        target = _narrow(wanted, edge.shape[0])
        on_path = edge & source & target[:, None]
        active[name] = _restore(on_path, masks[name][0])
        wanted = on_path.any(0)
    return {name: active[name] for name, _ in chain}, outputs


def _layers(net: nn.Module) -> dict[str, SlabLayer]:
    layers = {name: part for name, part in drawable_layers(net).items() if isinstance(part, SlabLayer)}
    if not layers:
        refuse("select", "net", "a network with indicators", "one without spike-and-slab layers")
    return layers


def _alpha(omega: Tensor | None, mu: Tensor) -> Tensor:
    return torch.ones_like(mu) if omega is None else torch.sigmoid(omega)


def _chain(net: nn.Module) -> list[tuple[str, SlabLayer]] | None:
    """The layers in the order of the data, if `net` is one of ours without grouped convolutions."""
    if not isinstance(net, Network):
        return None
    chain = [(name, layer) for name, layer in _layers(net).items()]
    if any(isinstance(layer, _ConvNd) and layer.groups > 1 for _, layer in chain):
        return None
    return chain if all(isinstance(layer, (Linear, _ConvNd)) for _, layer in chain) else None


def _edges(mask: Tensor) -> Tensor:
    """(outputs, inputs): whether any kernel position joins the two."""
    return mask.flatten(2).any(2) if mask.ndim > 2 else mask


def _widen(reached: Tensor, inputs: int) -> Tensor:
    """Channels as the features that flattening makes of them."""
    return reached if len(reached) == inputs else reached.repeat_interleave(inputs // len(reached))


def _narrow(wanted: Tensor, outputs: int) -> Tensor:
    """Features back to the channels they came from."""
    return wanted if len(wanted) == outputs else wanted.reshape(outputs, -1).any(1)


def _restore(on_path: Tensor, mask: Tensor) -> Tensor:
    return mask & on_path.reshape(on_path.shape + (1,) * (mask.ndim - 2))


def _densities(layer: SlabLayer, mask: Mask, active: Tensor | None) -> Densities:
    chosen, weights = int(mask[0].sum()), mask[0].numel()
    on_path = None if active is None else int(active.sum())
    return Densities(
        weights=weights,
        intercepts=mask[1].numel() if len(mask) > 1 else 0,
        median=chosen / weights,
        expected=float(layer.alpha.detach().mean(dtype=torch.float64)),
        median_weights=chosen,
        median_intercepts=int(mask[1].sum()) if len(mask) > 1 else 0,
        active=None if on_path is None else on_path / weights,
        active_weights=on_path,
    )


def _sum(parts: list[Densities]) -> Densities:
    weights, chosen = sum(p.weights for p in parts), sum(p.median_weights for p in parts)
    known = all(p.active_weights is not None for p in parts)
    active = sum(p.active_weights or 0 for p in parts) if known else None
    return Densities(
        weights=weights,
        intercepts=sum(p.intercepts for p in parts),
        median=chosen / weights,
        expected=sum(p.expected * p.weights for p in parts) / weights,
        median_weights=chosen,
        median_intercepts=sum(p.median_intercepts for p in parts),
        active=None if active is None else active / weights,
        active_weights=active,
    )
