"""What `slabnet fit` says of a model of a table: how good it is, what is in it, what is odd, what to do next."""

from __future__ import annotations

from typing import Any

import numpy as np

from slabnet.cli.held_out import DOUBT
from slabnet.core.errors import one_line
from slabnet.core.figures import written
from slabnet.estimators.base import SlabEstimator
from slabnet.model.mixture import members_in
from slabnet.model.skips import Fork
from slabnet.prediction.scores import headline
from slabnet.prediction.structure import structure

SHOWN = 10  # columns a summary names
DRAWS = 50  # networks of which it is seen what is linear in them
MOVING = 0.01  # share of inclusion probabilities that may still move
COVERAGE, ENOUGH = (0.90, 0.99), 50  # of 95% intervals, where so many rows were held out


def describe_model(model: SlabEstimator, names: list[str], groups: dict[str, tuple[int, ...]]) -> dict[str, Any]:
    """How sparse the model is, and what it makes of inputs and of columns; groups: the inputs of each column."""
    shares, effects, chosen = model.feature_reach_, model.feature_effects_.sizes, set(model.selected_features_.tolist())
    spread = model.feature_reach_spread_
    order = sorted(range(len(names)), key=lambda i: (-shares[i], -effects[i], i))
    selects = model.network_.method.selects
    return {
        "method": model.network_.method.name,
        "selects": selects,
        "hidden": list(model.network_.hidden),
        "members": len(members_in(model.network_)) or 1,
        "epochs": model.n_iter_,
        "weights": model.n_weights_,
        "density": model.density_,
        "inputs_selected": len(chosen),
        "share_before_data": model.feature_reach_prior_ if selects else None,
        "gates": "inputs" in model.network_.gates,
        "alpha_moving": model.history_[-1].alpha_moving,
        "importances": [
            {"input": names[i], "share": float(shares[i]), "spread": float(spread[i]), "effect": float(effects[i])}
            | {"selected": i in chosen}
            for i in order
        ],
        "columns": _columns(model, names, groups) if selects else [],
    }


def _columns(model: SlabEstimator, names: list[str], groups: dict[str, tuple[int, ...]]) -> list[dict[str, Any]]:
    """For each column of the table, surest first: how surely it is in, which way it acts, whether only linearly.

    inclusion: of its gate, or without gates the share of drawn models that use it. effect: of its input with the
    largest one, on the response or class that it moves most. linear: of models that use it, the share that does so only
    linearly; None where the network has no way for it, that is hidden layers and no skips.
    """
    gated = model.column_inclusion_ if "inputs" in model.network_.gates else {}
    shares, effects = model.feature_reach_, model.feature_effects_
    chosen, straight = set(model.selected_features_.tolist()), _straight(model, groups)
    rows = []
    for name, at in groups.items():
        sizes = np.zeros((len(at), 1)) if effects.effect is None else np.abs(effects.effect[list(at)])
        i, k = np.unravel_index(int(sizes.argmax()), sizes.shape)
        place = at[int(i)]
        row = {"column": name, "inclusion": float(gated.get(name, max(shares[i] for i in at)))}
        row |= {"selected": any(i in chosen for i in at), "input": names[place]}
        if effects.effect is not None and effects.low is not None and effects.high is not None:
            row |= {"output": effects.outputs[int(k)], "effect": float(effects.effect[place, k])}
            row |= {"effect_interval": [float(effects.low[place, k]), float(effects.high[place, k])]}
        rows.append(row | {"linear": None if straight is None else straight[name]})
    return sorted(rows, key=lambda row: (-row["inclusion"], -abs(row.get("effect", 0.0)), row["column"]))


def _straight(model: SlabEstimator, groups: dict[str, tuple[int, ...]]) -> dict[str, float | None] | None:
    """For each column, of the drawn models that use it, the share that does so only linearly."""
    if model.network_.hidden and not any(isinstance(part, Fork) for part in model.network_.modules()):
        return None
    drawn = structure(model.network_, DRAWS, columns=groups)
    return {column.name: column.linear / column.used if column.used else None for column in drawn.columns}


def next_steps(numbers: dict[str, Any]) -> list[str]:
    """What would help, where something would."""
    test, steps = numbers.get("test") or {}, []
    if numbers["selects"] and numbers["weights"] == 0:
        steps.append("No weight is in the median model: the columns say little of the target, or --epochs is small.")
    if numbers["alpha_moving"] > MOVING:
        moving = f"{numbers['alpha_moving']:.1%} of the inclusion probabilities still move"
        steps.append(f"{moving}: more may change with --epochs {2 * numbers['epochs']}.")
    linear = test.get("linear") or {}
    if linear.get("behind_interval") and max(linear["behind_interval"]) < 0:
        steps.append(f"{linear['name']} is better by more than chance: use it, or try --members 5 and more --epochs.")
    coverage = test.get("coverage")
    if coverage is not None and numbers["test_rows"] >= ENOUGH and not COVERAGE[0] <= coverage <= COVERAGE[1]:
        steps.append("Intervals miss their level: try --response auto, or `calibrate` in Python on rows of their own.")
    return steps


def summary(numbers: dict[str, Any], target: str) -> list[str]:
    """All of it for a person."""
    several = f"{numbers['members']} members of " if numbers["members"] > 1 else ""
    fitted = f"Fitted {numbers['rows']} rows and {numbers['inputs']} inputs with {several}{numbers['method']}"
    lines = [f"{fitted}{_answer(numbers, target)}.", *_how_good(numbers), *_odd(numbers)]
    if numbers["selects"]:
        lines += _what_is_in(numbers, target)
    return lines + [f"To do: {step}" for step in next_steps(numbers)]


def _answer(numbers: dict[str, Any], target: str) -> str:
    """What is predicted, and as what."""
    shown = one_line(target, 30)
    if numbers["task"] == "classification":
        return f" to predict {shown}, one of {len(numbers['classes'])} classes"
    return f" to predict {shown}, a number with {numbers.get('response', 'gaussian')} noise"


def _how_good(numbers: dict[str, Any]) -> list[str]:
    test, rows = numbers.get("test"), numbers["test_rows"]
    if test is None:
        return ["No rows were held out (--test-size), so how good it is on new rows is not known."]
    linear = test.get("linear")
    if numbers["task"] == "classification":
        lines = headline(test, rows, numbers["classes"])
        lines.append(
            f"  {linear['name']}: {linear['accuracy']:.3f} {_between(linear['accuracy_interval'])}, {_ahead(linear)}; "
            f"log-loss {linear['log_loss']:.3f}."
        )
        right = "" if test["accuracy_decided"] is None else f", of which {test['accuracy_decided']:.3f} right"
        return [*lines, f"Decided at {DOUBT}: {test['decided']} of {rows}{right}; the rest is in doubt."]
    if "rmse" not in test:
        seen = f"{rows} held-out rows, {test['events']} of them with the event"
        return [f"Log density of {seen}: {test['log_density']:.4g} a row."]
    explained = "" if test["r2"] is None else f"; R2 {test['r2']:.3f}"
    within = _between(test["rmse_interval"])
    lines = [f"RMSE on {rows} held-out rows: {written(test['rmse'])} {within}{explained}."]
    if linear is not None:
        lines.append(f"  ridge: {written(linear['rmse'])} {_between(linear['rmse_interval'])}, {_ahead(linear)}.")
    lines.append(f"  always saying the mean: {written(test['baseline'])} {_between(test['baseline_interval'])}.")
    width = written(test["interval_width"])
    return [*lines, f"95% prediction intervals cover {test['coverage']:.3f} of them, and are {width} wide on average."]


def _odd(numbers: dict[str, Any]) -> list[str]:
    """What there is to notice among the held-out rows."""
    rows, odd = numbers["test_rows"], numbers.get("odd_rows") or {}
    lines = []
    if odd.get("copies"):
        lines.append(f"{odd['copies']} of {rows} held-out rows are copies of fitted ones, so the scores are too good.")
    if odd.get("outside"):
        lines.append(f"{odd['outside']} of {rows} held-out rows lie outside the training data: those are extrapolated.")
    return lines


def _between(ends: list[float] | None) -> str:
    return "(one row says little)" if ends is None else f"(95% interval {written(ends[0])} to {written(ends[1])})"


def _ahead(linear: dict[str, Any]) -> str:
    """How the linear model compares; `behind` is how much worse it is."""
    by, ends = linear["behind"], linear["behind_interval"]
    if ends is None or min(ends) <= 0 <= max(ends):
        return "no different within chance"
    small, large = sorted(map(abs, ends))
    return f"{'worse' if by > 0 else 'better'} by {written(abs(by))} ({written(small)} to {written(large)})"


def _what_is_in(numbers: dict[str, Any], target: str) -> list[str]:
    columns = numbers["columns"]
    chosen = sum(row["selected"] for row in columns)
    regression = numbers["task"] == "regression"
    moved = one_line(target, 30) if regression else "the probability of a class"
    lines = [
        f"The median model keeps {numbers['weights']} weights ({numbers['density']:.2%}) "
        f"and {chosen} of {len(columns)} columns.",
        f"Columns: probability of being in the model{_before(numbers)},",
        f"and how far {moved} moves per standard deviation (95% interval):",
    ]
    for row in columns[:SHOWN]:
        mark = "*" if row["selected"] else " "
        lines.append(
            f"  {mark} {one_line(row['input'], 30):<30} {row['inclusion']:.2f}  {_effect(row, regression)}".rstrip()
        )
    rest = len(columns) - SHOWN
    return [*lines, f"  * in the median model{f'; --json has {rest} more' if rest > 0 else ''}"]


def _before(numbers: dict[str, Any]) -> str:
    return "" if numbers["gates"] else f" (before the data: {numbers['share_before_data']:.2f})"


def _effect(row: dict[str, Any], regression: bool) -> str:
    if "effect" not in row:
        return ""
    low, high = (_signed(end) for end in row["effect_interval"])
    whose = "" if regression else f"  {one_line(row['output'], 20)}"
    form = "" if row["linear"] is None else "  linear" if row["linear"] >= 0.5 else "  not linear"
    return f"{_signed(row['effect']):>9}  ({low} to {high}){whose}{form}"


def _signed(value: float) -> str:
    """A number with its sign, to three digits that matter."""
    return f"{'+' if value > 0 else ''}{written(value, 3)}"
