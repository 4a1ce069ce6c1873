"""Which of several fitted models predicts better, and how surely: differences of expected log predictive density."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from slabnet.core.errors import one_line, refuse
from slabnet.core.noise import Seed
from slabnet.prediction.density import ScoresRows, log_densities


@dataclass(frozen=True)
class Compared:
    """One model beside the best one.

    elpd: sum over the rows of the log predictive density; error: its standard error. difference: from the best model,
    not above 0; difference_error: the standard error of that difference, row by row, so that what makes rows hard for
    all models cancels.
    """

    name: str
    elpd: float
    error: float
    difference: float
    difference_error: float


@dataclass(frozen=True)
class Comparison:
    """Models from best to worst, by rows that none of them was fitted to."""

    models: tuple[Compared, ...]
    rows: int

    def __str__(self) -> str:
        width = max(len("model"), *(len(model.name) for model in self.models))
        lines = [f"{'model':<{width}}  {'difference':>10}  {'s.e.':>8}  {'elpd':>10}  {'s.e.':>8}"]
        for m in self.models:
            numbers = f"{m.difference:>10.2f}  {m.difference_error:>8.2f}  {m.elpd:>10.2f}  {m.error:>8.2f}"
            lines.append(f"{one_line(m.name, width):<{width}}  {numbers}")
        return "\n".join([*lines, f"over {self.rows} rows; a difference of a few standard errors is one"])


def compare(models: Mapping[str, Any], X: Any, y: Any, *, draws: int = 100, seed: Seed = 0) -> Comparison:
    """Compare fitted models by the log density they gave to rows they were not fitted to.

    models: name -> a fitted estimator, or a network (which reads X and y in its own scale: compare networks with
        networks). Densities of the same y are comparable across methods, priors and responses; a density of
        counts and one of real numbers are not.
    X, y: at least two rows. draws: for networks; an estimator has its own number.

    >>> from slabnet.model.networks import mlp
    >>> found = compare({"a": mlp((2, 2)), "b": mlp((2, 2), seed=1)}, torch.zeros(9, 2), [0, 1, 1] * 3, draws=5)
    >>> found.models[0].difference, found.rows
    (0.0, 9)
    """
    if not isinstance(models, Mapping) or not models:
        refuse("compare", "models", "at least one fitted model by name", type(models).__name__)
    rows = {str(name): _rows_of(str(name), model, X, y, draws, seed) for name, model in models.items()}
    counts = {len(values) for values in rows.values()}
    if counts == {1}:
        refuse("compare", "X", "at least two rows, to say how surely", "one")
    order = sorted(rows, key=lambda name: -float(rows[name].sum()))
    best = rows[order[0]]
    compared = [Compared(name, *_sum(rows[name]), *_sum(rows[name] - best)) for name in order]
    return Comparison(tuple(compared), counts.pop())


def _rows_of(name: str, model: Any, X: Any, y: Any, draws: int, seed: Seed) -> Tensor:
    if isinstance(model, ScoresRows):
        return torch.as_tensor(model.log_densities(X, y), dtype=torch.float64)
    if isinstance(model, nn.Module):
        return log_densities(model, (X, y), draws, seed=seed).double()
    refuse("compare", f"models[{one_line(name)}]", "a fitted estimator or a network", type(model).__name__)


def _sum(values: Tensor) -> tuple[float, float]:
    """A sum over rows, and its standard error."""
    return float(values.sum()), float(values.std()) * math.sqrt(len(values))
