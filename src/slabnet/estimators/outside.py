"""Which rows of a user's table lie outside the one an estimator was fitted to."""

from __future__ import annotations

from typing import Any

from slabnet.core.errors import refuse
from slabnet.estimators.frames import ReadsFrames
from slabnet.estimators.scaling import Array
from slabnet.prediction.extrapolation import Mask, TrainingSupport

IN_USE = 0.05  # an input that so many of the drawn models use counts as one that the model uses


class MarksExtrapolation(ReadsFrames):
    """The part of an estimator that summarises its training columns and marks rows outside them.

    support_: the summary; None for a model file of version 0.1, which holds none.
    """

    support_: TrainingSupport | None

    def extrapolates(self, X: Any) -> Mask:
        """Which rows lie outside the training data: in an input that the model uses, or in all of them together.

        It is a statement about the data; `predict_uncertainty` tells what the posterior says. See `TrainingSupport`.
        """
        outside = self._outside(self._check_x(X), X)
        if outside is None:
            allowed = "one that holds a summary of its training columns"
            refuse("extrapolates", "model", allowed, "one from a file of an earlier version")
        return outside

    def _outside(self, inputs: Array, X: Any) -> Mask | None:
        """The same for rows that were read already; levels that training never saw are outside too, where used."""
        if self.support_ is None:
            return None
        marks = self.support_.extrapolates(inputs)
        for name, rows in self._unseen(X).items():
            if self.support_.used[list(self.column_groups_[name])].any():
                marks[rows] = True
        return marks

    def _summarise(self, table: Array, shares: Array, more: bool) -> None:
        """Take in the rows of a fit, or `more` rows of a later one; shares: of drawn models that use each input."""
        used = shares >= IN_USE
        known = self.support_ if more else None
        self.support_ = TrainingSupport.of(table, used) if known is None else known.with_rows(table, used)

    def _check_x(self, X: Any) -> Array:
        raise NotImplementedError(f"{type(self).__name__} must check its tables")
