"""Choose one model from the posterior. Every rule returns a `Selection`.

`median_model` (alpha > lambda, and moved from the prior), `budget_model` (so many weights), `most_probable_model`;
selection by WAIC, DIC or FIC is in `criteria.py`. A model no output of which can be reached is *infeasible*
(supplement B): see `infeasible`.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Literal

import torch
from torch import Tensor, nn

from slabnet.core.errors import SlabnetError, check_choice, check_number, check_whole, refuse
from slabnet.core.records import Densities, Selection
from slabnet.model.drawing import Mask, drawable_layers
from slabnet.model.layers import SlabLayer
from slabnet.model.paths import cheapest_path, find_paths, masks_above

Infeasible = Literal["raise", "lower", "path", "allow"]
WAYS_OUT = ("raise", "lower", "path", "allow")


class InfeasibleModel(SlabnetError):
    """A chosen model in which no input can reach any output."""


@torch.no_grad()
def median_model(net: nn.Module, threshold: float = 0.5, infeasible: Infeasible = "raise") -> Selection:
    """The median probability model: every weight and intercept with alpha > threshold (sec. 3, supplement B).

    A weight that rests at its prior is not in it, whatever its alpha: q(beta, gamma) of it lies within 0.01 nats of
    the prior, so the data say nothing about it. Where psi is one half, its alpha lies on either side of the threshold
    by chance alone. Counts (`chosen.weights`, `chosen.density`) are of *active* weights, those on a path from an
    input to an output; `chosen.total.median_weights` counts the others too.

    infeasible: what to do if no input can reach any output: "raise" an error that names the first layer that
    breaks every path; "lower" the threshold to the largest that is feasible; add the most probable "path";
    or "allow" it with a warning: a model of intercepts only.

    >>> from slabnet.model.networks import mlp
    >>> median_model(mlp((4, 3, 2))).weights    # before training every alpha is above 0.88
    18
    """
    check_number("median_model", "threshold", threshold, at_least=0, below=1)
    check_choice("median_model", "infeasible", infeasible, WAYS_OUT)
    chosen = threshold_model(net, threshold, "median" if threshold == 0.5 else "threshold")
    return _way_out(net, chosen, infeasible)


@torch.no_grad()
def threshold_model(net: nn.Module, threshold: float = 0.5, rule: str = "threshold") -> Selection:
    """Every weight and intercept with alpha > threshold that has left its prior, feasible or not."""
    return describe(net, masks_above(slab_layers(net), threshold), rule, threshold)


def _above(net: nn.Module, threshold: float) -> dict[str, Mask]:
    """Every weight and intercept with alpha > threshold, at rest at its prior or not."""
    return {
        name: tuple(_alpha(block.omega, block.mu) > threshold for block in layer.blocks())
        for name, layer in slab_layers(net).items()
    }


@torch.no_grad()
def most_probable_model(net: nn.Module, every_output: bool = False) -> Selection:
    """The model with the largest probability under q among those in which an input reaches an output.

    Indicators are independent under q, so without that condition it is the median model. Where that is
    infeasible the cheapest path is added (a shortest path, exact). `every_output` asks for a path to each
    output: they are added one after the other, cheapest first, which need not be the very best set.
    """
    chosen = threshold_model(net, 0.5, "most probable")
    if chosen.feasible is None:
        return chosen
    masks = dict(chosen.masks)
    if not chosen.feasible:
        masks = _with(masks, cheapest_path(net, masks))
    if every_output:
        for output in chosen.unreachable:
            paths = find_paths(net, masks)
            if paths is not None and not bool(paths.reached[output]):
                masks = _with(masks, cheapest_path(net, masks, output))
    return describe(net, masks, "most probable", 0.5)


@torch.no_grad()
def budget_model(
    net: nn.Module, *, weights: int | None = None, density: float | None = None, infeasible: Infeasible = "raise"
) -> Selection:
    """The most probable model with a given number of weights, or share of them: those of largest alpha.

    `chosen.total.median_weights` is that number; `chosen.weights` counts those of them on a path to an output.
    Intercepts are in where their alpha is above one half. Ties are broken by the position of the weight. With
    infeasible="path" the most probable path comes first and the rest of the budget after it; a budget that holds no
    path is exceeded by one, with a warning.

    >>> from slabnet.model.networks import mlp
    >>> budget_model(mlp((4, 3, 2)), weights=14).weights
    14
    """
    layers = slab_layers(net)
    total = sum(layer.weight.mu.numel() for layer in layers.values())
    if (weights is None) == (density is None):
        refuse("budget_model", "weights, density", "given one of the two", f"weights={weights}, density={density}")
    if density is not None:
        weights = round(check_number("budget_model", "density", density, above=0, at_most=1) * total)
    count = check_whole("budget_model", "weights", weights, at_least=1)
    if count > total:
        refuse("budget_model", "weights", f"at most the {total} there are", count)
    check_choice("budget_model", "infeasible", infeasible, ("raise", "path", "allow"))
    keys = torch.cat([_logit(layer).flatten() for layer in layers.values()])
    inside = torch.zeros(total, dtype=torch.bool, device=keys.device)
    inside[keys.argsort(descending=True, stable=True)[:count]] = True
    parts = torch.split(inside, [layer.weight.mu.numel() for layer in layers.values()])
    masks: dict[str, Mask] = {}
    for (name, layer), part in zip(layers.items(), parts, strict=True):
        moved = layer.informed(layer.blocks())
        rest = tuple(
            (_alpha(block.omega, block.mu) > 0.5) & apart
            for block, apart in zip(layer.blocks()[1:], moved[1:], strict=True)
        )
        masks[name] = (part.reshape(layer.weight.mu.shape), *rest)
    chosen = describe(net, masks, "budget")
    if infeasible != "path" or chosen.feasible is not False:
        return _way_out(net, chosen, infeasible)
    none: dict[str, Mask] = {name: (torch.zeros_like(mask[0]), *mask[1:]) for name, mask in masks.items()}
    path = _with(none, cheapest_path(net, none))
    on_path = torch.cat([mask[0].flatten() for mask in path.values()])
    longest = int(on_path.sum())
    if longest > count:
        message = f"budget model: {count} weights hold no path from an input to an output; it has the {longest} of one"
        warnings.warn(message, UserWarning, stacklevel=2)
    first = keys.masked_fill(on_path, torch.inf).argsort(descending=True, stable=True)[: max(count, longest)]
    parts = torch.split(torch.zeros_like(inside).index_fill_(0, first, True), [len(part) for part in parts])
    filled = {
        name: (part.reshape(masks[name][0].shape), *masks[name][1:]) for name, part in zip(masks, parts, strict=True)
    }
    return describe(net, filled, "budget + path")


def describe(net: nn.Module, masks: Mapping[str, Mask], rule: str, threshold: float | None = None) -> Selection:
    """A `Selection` of these masks, with densities and, where the network is a chain, its paths."""
    paths = find_paths(net, masks)
    layers = {
        name: _densities(layer, masks[name], None if paths is None else paths.active[name])
        for name, layer in slab_layers(net).items()
    }
    return Selection(
        masks=dict(masks),
        rule=rule,
        threshold=threshold,
        total=_sum(list(layers.values())),
        layers=layers,
        feasible=None if paths is None else paths.broken is None,
        unreachable=() if paths is None else tuple((~paths.reached).nonzero().flatten().tolist()),
        active=None if paths is None else paths.active,
        reach=None if paths is None else paths.reach,
        broken=None if paths is None else paths.broken,
    )


def slab_layers(net: nn.Module) -> dict[str, SlabLayer]:
    """The layers that have indicators or a posterior to choose from."""
    layers = {name: part for name, part in drawable_layers(net).items() if isinstance(part, SlabLayer)}
    if not layers:
        refuse("select", "net", "a network with indicators", "one without spike-and-slab layers")
    return layers


def _way_out(net: nn.Module, chosen: Selection, infeasible: str) -> Selection:
    if chosen.feasible is not False:
        return chosen
    if infeasible == "lower":
        return _lowered(net, chosen)
    if infeasible == "path":
        added = cheapest_path(net, chosen.masks)
        return describe(net, _with(dict(chosen.masks), added), f"{chosen.rule} + path", chosen.threshold)
    problem = f"{chosen.rule} model: no input can reach an output, every path ends in {chosen.broken}"
    if infeasible == "allow":
        warnings.warn(f"{problem}; it predicts from intercepts only", UserWarning, stacklevel=4)
        return chosen
    raise InfeasibleModel(f'{problem}; infeasible="lower", "path" or "allow" are the ways out')


def _lowered(net: nn.Module, chosen: Selection) -> Selection:
    """Bisection over the values alpha takes: feasibility can only be lost as the threshold rises.

    Where the weights that have left their prior make no path at any threshold, those at rest are taken too.
    """
    alphas = torch.cat([layer.alpha.detach().flatten() for layer in slab_layers(net).values()]).double()
    values = torch.unique(alphas[alphas <= (chosen.threshold or 0.5)]).tolist()
    rule = "lowered threshold"

    def resting_too(below: float) -> Selection:
        return describe(net, _above(net, below), rule, below)

    for model_at in (lambda below: threshold_model(net, below, rule), resting_too):
        low, high, best = 0, len(values) - 1, None
        while low <= high:
            middle = (low + high) // 2
            lowered = model_at(values[middle - 1] if middle else 0.0)
            if lowered.feasible:
                best, low = lowered, middle + 1
            else:
                high = middle - 1
        if best is not None:
            return best
    raise InfeasibleModel("median model: no threshold gives a path from an input to an output")


def _with(masks: dict[str, Mask], added: Mapping[str, Tensor] | None) -> dict[str, Mask]:
    assert added is not None
    return {name: (mask[0] | added[name], *mask[1:]) for name, mask in masks.items()}


def _logit(layer: SlabLayer) -> Tensor:
    block = layer.blocks()[0]
    return torch.zeros_like(block.mu) if block.omega is None else block.omega.detach()


def _alpha(omega: Tensor | None, mu: Tensor) -> Tensor:
    return torch.ones_like(mu) if omega is None else torch.sigmoid(omega)


def _densities(layer: SlabLayer, mask: Mask, active: Tensor | None) -> Densities:
    chosen, weights = int(mask[0].sum()), mask[0].numel()
    on_path = None if active is None else int(active.sum())
    units = None if active is None else int(active.flatten(1).any(1).sum())
    return Densities(
        weights=weights,
        intercepts=mask[1].numel() if len(mask) > 1 else 0,
        median=chosen / weights,
        expected=float(layer.alpha.detach().cpu().mean(dtype=torch.float64)),
        median_weights=chosen,
        median_intercepts=int(mask[1].sum()) if len(mask) > 1 else 0,
        active=None if on_path is None else on_path / weights,
        active_weights=on_path,
        neurons=mask[0].shape[0],
        active_neurons=units,
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
        neurons=sum(p.neurons for p in parts),
        active_neurons=sum(p.active_neurons or 0 for p in parts) if known else None,
    )
