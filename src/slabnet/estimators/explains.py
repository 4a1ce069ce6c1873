"""What an estimator says of its predictions: what each column contributes to a row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from slabnet.core.errors import check_whole, refuse
from slabnet.core.records import Answer
from slabnet.estimators.grids import PAIR_POINTS, Layout
from slabnet.estimators.outside import MarksExtrapolation
from slabnet.estimators.scaling import Array, Scaling
from slabnet.model.drawing import Draw
from slabnet.model.networks import Network
from slabnet.prediction.background import ColumnPoints
from slabnet.prediction.curves import EffectCurve, effect_curve
from slabnet.prediction.explain import Explainer, Framing, Question, Scale
from slabnet.prediction.explanation import Explanation


class Explains(MarksExtrapolation):
    """The part of an estimator that explains its predictions.

    background_: points that stand for the training columns (`ColumnPoints`), which are never training rows; None for a
        model file of an earlier version, which holds none.
    """

    network_: Network
    scaling_x_: Scaling
    background_: ColumnPoints | None
    draws: int
    _seed: int

    def explain(
        self,
        X: Any,
        background: Any = None,
        scale: Scale = "linear",
        *,
        draws: int | None = None,
        level: float = 0.95,
        pairs: int = 1,
        keep_draws: bool = False,
    ) -> Explanation:
        """What each column contributes to the prediction of each row, with an interval over drawn networks.

        background: rows that stand for not knowing a column; None takes a summary of the training columns
            (`background_`: quantiles and levels of each column alone, at most 32 points, never training rows).
        scale: "linear" explains the linear predictor in the units of the response (or of its logarithm, or log-odds),
            "response" what is predicted: probabilities, counts for an exposure of 1, times.
        draws: networks to draw; None takes those of the estimator. level: of the intervals. pairs: see `explain`.
        keep_draws: keep all numbers draw by draw.

        Contributions are exact Shapley values over the columns that a draw uses, up to 12 of them; see `sn.explain`.
        In every draw they sum to the prediction minus the mean prediction over the background. A category, or a column
        with gaps, is one column.

        >>> from slabnet import SlabRegressor
        >>> x = np.linspace(-1, 1, 50)[:, None]
        >>> model = SlabRegressor(hidden=(), epochs=50, random_state=0).fit(x, 3 * x[:, 0])
        >>> why = model.explain(x[:1])
        >>> bool(why.contributions.mean[0, 0, 0] < 0)
        True
        """
        inputs = self._check_x(X)
        behind = None if background is None else self._check_x(background)
        asked = Question(self.draws if draws is None else draws, self._draw(), scale, level, pairs, self._seed)
        return self.explain_inputs(inputs, behind, asked, keep_draws=keep_draws)

    def explain_inputs(
        self,
        inputs: Array,
        background: Array | None,
        asked: Question,
        groups: Mapping[str, Sequence[int]] | None = None,
        values: Sequence[Sequence[Any]] | None = None,
        keep_draws: bool = False,
    ) -> Explanation:
        """The same for rows of the network's inputs in the table's units.

        groups: which inputs belong to each column, where the estimator was fitted to a file's inputs; values: what the
        table holds in these columns.
        """
        asked.check("explain")
        for name, rows in (("X", inputs), ("background", background)):
            if rows is not None and not len(rows):
                refuse("explain", name, "at least one row", "none")
        groups = self._named_groups() if groups is None else groups
        if values is None and self.table_ is not None:
            known = self.table_.undo(inputs)
            values = [list(row) for row in zip(*(known.get(n, [None] * len(inputs)) for n in groups), strict=True)]
        behind = self.background_rows("explain") if background is None else background
        explainer = Explainer(self.network_, self.framing(groups, asked.scale), asked, keep_draws=keep_draws)
        scaled = [torch.as_tensor(self.scaling_x_.apply(part)) for part in (inputs, behind)]
        return explainer.explain(scaled[0], scaled[1], values)

    def effects(
        self,
        column: Any,
        background: Any = None,
        scale: Scale = "response",
        *,
        at: Any = None,
        points: int = 40,
        draws: int | None = None,
        level: float = 0.95,
    ) -> EffectCurve:
        """How the prediction goes with one column, or with two, with a band over drawn networks.

        column: a name, a position, or a pair of them. background: rows over which the other columns are averaged; None
            takes the stored summary of the training columns, in which columns do not go together (`background_`).
        scale: "response" or "linear", as in `explain`. at: values to look at; None takes `points` of them over the
            training range and a tenth beyond, or the levels of a category.
        draws: networks to draw; None takes those of the estimator. level: of the bands.

        The record has partial dependence and, for a column of numbers, accumulated local effects; it says which points
        lie outside the training data. `plot_effect` draws it.

        >>> from slabnet import SlabRegressor
        >>> x = np.linspace(-1, 1, 50)[:, None]
        >>> model = SlabRegressor(hidden=(), epochs=50, random_state=0).fit(x, 3 * x[:, 0])
        >>> curve = model.effects(0)
        >>> bool(curve.partial.mean[0, 0] < curve.partial.mean[-1, 0]), bool(curve.extrapolates[0])
        (True, True)
        """
        check_is_fitted(self)
        check_whole("effects", "points", points, at_least=2)
        pair = column if isinstance(column, (tuple, list)) else (column,)
        asked = Question(self.draws if draws is None else draws, self._draw(), scale, level, 1, self._seed)
        asked.check("effects")
        rows = self.background_rows("effects") if background is None else self._check_x(background)
        layout = Layout(self._named_groups(), self.table_, self.support_, rows)
        grid = layout.grid(pair, at, points if len(pair) == 1 else PAIR_POINTS)
        grid = replace(grid, inputs=torch.as_tensor(self.scaling_x_.apply(grid.inputs.numpy())))
        local = None if background is None else layout.numbers(grid.names[0])
        explainer = Explainer(self.network_, self.framing(self._named_groups(), scale), asked)
        return effect_curve(explainer, grid, torch.as_tensor(self.scaling_x_.apply(rows)), local)

    def background_rows(self, where: str) -> Array:
        """The stored summary as rows of inputs, in the table's units."""
        if self.background_ is None:
            refuse(where, "background", "given for a model from a file of an earlier version", None)
        return self.background_.points

    def framing(self, groups: Mapping[str, Sequence[int]], scale: Scale) -> Framing:
        """Columns, responses and their units, for what reads the network."""
        names, factor, shift = self._told_on(scale)
        classes = self.network_.likelihood.answer is not Answer.NUMBERS
        x = self.scaling_x_
        return Framing(groups, names, x.centre, x.scale, np.asarray(shift), np.asarray(factor), classes)

    def _told_on(self, scale: Scale) -> tuple[list[str], list[float], list[float]]:
        """What each output is called on this scale, and its factor and shift into the units of the response."""
        raise NotImplementedError(f"{type(self).__name__} must say in which units its answers are")

    def _draw(self) -> Draw:
        raise NotImplementedError(f"{type(self).__name__} must say how it draws")

    def _summarise(self, table: Array, shares: Array, more: bool) -> None:
        super()._summarise(table, shares, more)
        groups = list((self._groups_of_inputs or self.column_groups_).values())
        known = self.background_ if more else None
        self.background_ = ColumnPoints.of(table, groups) if known is None else known.with_rows(table, groups)
