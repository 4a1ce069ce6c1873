"""What is inside a fitted network: sizes, densities, paths, and how far alpha has come."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from slabnet.config.fit_card import FitCard
from slabnet.core.errors import one_line
from slabnet.core.noise import keyed_generator
from slabnet.core.records import Selection
from slabnet.data.tabular import Table
from slabnet.model.drawing import drawing
from slabnet.model.draws import exact
from slabnet.prediction.structure import Structure, structure
from slabnet.selection.rules import slab_layers, threshold_model

BINS = 10
MOST_COLUMNS = 20  # that are shown of the structure
ENOUGH, SMALL = 100, 50_000  # draws for the structure of a network of so few weights
BARS = " ▁▂▃▄▅▆▇█"


@torch.no_grad()
def inspect_network(net: nn.Module, card: FitCard | None = None, draws: int = 10) -> dict[str, Any]:
    """Everything `slabnet inspect` shows, as plain numbers; `card` is what a model file says of the fit."""
    chosen = threshold_model(net)  # an infeasible one is reported below
    used = _used(net, draws)
    layers = []
    for name, layer in slab_layers(net).items():
        numbers = chosen.layers[name]
        layers.append(
            {
                "layer": name,
                "shape": list(layer.weight.mu.shape),
                "weights": numbers.weights,
                "intercepts": numbers.intercepts,
                "median_weights": numbers.median_weights,
                "median_intercepts": numbers.median_intercepts,
                "active_weights": numbers.active_weights,
                "density_used": float(used[name].double().mean()),
                "density_median": numbers.median,
                "density_expected": numbers.expected,
                "density_active": numbers.active,
                "active_neurons": numbers.active_neurons,
                "neurons": numbers.neurons,
                "alpha_histogram": torch.histc(layer.alpha.detach().double(), BINS, 0.0, 1.0).long().tolist(),
            }
        )
    total = chosen.total
    count = sum(int(u.sum()) for u in used.values())
    fitted, names = (None, None) if card is None else (card.history, card.input_names)
    moving, resting = (_share(fitted, name) for name in ("alpha_moving", "alpha_at_prior"))
    inputs = _chosen_inputs(chosen)
    if chosen.inputs is None or names is None or len(names) != len(chosen.inputs):
        names = None  # those of another network
    return {
        "layers": layers,
        "total": {
            "weights": total.weights,
            "intercepts": total.intercepts,
            "median_weights": total.median_weights,
            "median_intercepts": total.median_intercepts,
            "active_weights": total.active_weights,
            "density_used": count / total.weights,
            "density_median": total.median,
            "density_expected": total.expected,
            "density_active": total.active,
            "active_neurons": total.active_neurons,
        },
        "counts": chosen.counts._asdict(),
        "draws": draws,
        "feasible": chosen.feasible,
        "broken": chosen.broken,
        "unreachable_outputs": list(chosen.unreachable),
        "inputs": None if chosen.inputs is None else len(chosen.inputs),
        "inputs_used": None if chosen.inputs is None else [names[i] if names else i for i in inputs],
        "alpha_moving": moving,
        "alpha_at_prior": resting,
        "structure": _structure(net, card, draws, chosen),
    }


def _structure(net: nn.Module, card: FitCard | None, draws: int, chosen: Selection) -> dict[str, Any] | None:
    """What drawn networks are made of, by the columns of the table; None where paths are not known."""
    if chosen.inputs is None:
        return None
    inputs, card = len(chosen.inputs), card or FitCard()
    groups = Table.from_dict(card.table).column_groups if card.table else {}
    columns = {name: at for name, at in groups.items() if at}
    if sorted(place for at in columns.values() for place in at) != list(range(inputs)):
        columns = {}
    names = card.input_names if card.input_names and len(card.input_names) == inputs else None
    enough = max(draws, ENOUGH) if chosen.total.weights <= SMALL else draws
    return structure(net, enough, names=None if columns else names, columns=columns or None).to_dict()


def _share(fitted: dict[str, Any] | None, name: str) -> float | None:
    value = None if fitted is None else fitted.get(name)
    return float(value) if isinstance(value, (int, float)) and 0 <= value <= 1 else None


def selection_text(described: dict[str, Any]) -> str:
    """A selection's own file for a person."""
    at = "" if described["threshold"] is None else f" at {one_line(described['threshold'])}"
    layers = described["layers"]
    lines = [f"{one_line(name)}: {counts['kept']} of {counts['weights']} weights" for name, counts in layers.items()]
    selected, weights = (sum(counts[key] for counts in layers.values()) for key in ("kept", "weights"))
    sentence = f"A selection, not a model: {one_line(described['rule'])}{at}, {selected} of {weights} weights."
    return "\n".join([sentence, *lines])


def as_text(described: dict[str, Any]) -> str:
    """The same for a person."""
    if "selection" in described:
        return selection_text(described["selection"])
    head = ("layer", "shape", "weights", "in model", "used", "median", "expected", "active", "alpha 0 to 1")
    rows = [head]
    for layer in [*described["layers"], {"layer": "all", "shape": [], **described["total"]}]:
        shape = " x ".join(str(size) for size in layer["shape"])
        on_path, share = layer["active_weights"], layer["density_active"]
        active = "?" if share is None else f"{share:.4f}"
        count = layer["median_weights"] if on_path is None else on_path
        shares = (f"{layer[f'density_{kind}']:.4f}" for kind in ("used", "median", "expected"))
        bars = histogram(layer["alpha_histogram"]) if "alpha_histogram" in layer else ""
        rows.append((layer["layer"], shape, str(layer["weights"]), str(count), *shares, active, bars))
    widths = [max(len(row[i]) for row in rows) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    lines += ["", "in model: weights of the median model on a path from an input to an output (active). used: in at"]
    lines += [f"least one of {described['draws']} draws. Intercepts are not counted as weights."]
    parts = described["counts"]
    if parts["kernels"]:
        both = f"{parts['kernels']} weights of kernels and {parts['linear']} of linear layers"
        lines.append(f"In model: {both}; {parts['intercepts']} intercepts beside them.")
    whole = "\n".join([*lines, *_sentences(described)])
    if described.get("structure") is None:
        return whole
    return f"{whole}\n\n{Structure.from_dict(described['structure']).as_text(MOST_COLUMNS)}"


def histogram(counts: list[int]) -> str:
    """Counts as a row of bars, by their logarithm: most weights sit at one end."""
    top = max(math.log1p(count) for count in counts) or 1.0
    return "|" + "".join(BARS[math.ceil(math.log1p(count) / top * (len(BARS) - 1))] for count in counts) + "|"


def _sentences(described: dict[str, Any]) -> list[str]:
    lines = []
    if described["feasible"] is None:
        lines.append("Paths are not known: the network is not a chain of layers.")
    elif not described["feasible"]:
        lines.append(f"The median model is infeasible: every path from an input ends in {described['broken']}.")
    else:
        cut = described["unreachable_outputs"]
        lines.append(
            f"Outputs that no input reaches: {', '.join(map(str, cut))}." if cut else "Every output is reached."
        )
        used = described["inputs_used"]
        named = ", ".join(one_line(str(i)) for i in used[:20]) + (", ..." if len(used) > 20 else "")
        lines.append(f"Inputs in use: {len(used)} of {described['inputs']} ({named}).")
    if described["alpha_moving"] is not None and described["alpha_at_prior"] is not None:
        sentence = (
            f"{described['alpha_moving']:.1%} of the inclusion probabilities were still moving at the end of training"
        )
        lines.append(f"{sentence}, {described['alpha_at_prior']:.1%} rested at the prior.")
    return lines


def _used(net: nn.Module, draws: int) -> dict[str, Tensor]:
    used: dict[str, Tensor] = {}
    for r in range(draws):
        with drawing(net, exact, keyed_generator(0, "draw", r), r) as scope:
            for name, layer in slab_layers(net).items():
                now = scope.used(layer)
                used[name] = now | used.get(name, torch.zeros_like(now))
    return used


def _chosen_inputs(chosen: Selection) -> list[int]:
    """Positions of the inputs on a path of a chosen model."""
    return [] if chosen.inputs is None else chosen.inputs.nonzero().flatten().tolist()
