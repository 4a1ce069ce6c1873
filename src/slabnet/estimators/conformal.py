"""Intervals and sets with a guarantee around what an estimator predicts, on rows it was not fitted to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils import _safe_indexing
from sklearn.utils.validation import check_is_fitted

from slabnet.core.errors import check_number, check_whole, refuse
from slabnet.core.noise import Seed, seed_number
from slabnet.data.dependence import check_dependence
from slabnet.data.frames import is_frame
from slabnet.data.holdout import fold_numbers, one_of_each
from slabnet.estimators.scaling import Array
from slabnet.prediction.conformal import (
    Calibration,
    cross_ends,
    cross_guarantee,
    cumulative_shares,
    with_the_best,
)

METHODS = ("posterior", "conformal")
Sets = NDArray[np.bool_]


class Calibrates:
    """The part of an estimator that is calibrated on rows it was not fitted to (split-conformal)."""

    conformal_: Calibration | None
    _seed: int

    def calibrate(self, X: Any, y: Any, groups: Any = None) -> Self:
        """See how far the answers are off on rows that were not fitted: for `method="conformal"`.

        If these rows and a new one are exchangeable, its interval or set then holds it with probability at least the
        level, whether the model is right or not. 19 rows are the fewest for an interval at 0.95.

        groups: a label for each row, where rows of one label depend on each other: one row of each counts, and the
            guarantee is for a row of a new group. For rows in time no such guarantee is known; calibrate on the latest.
        """
        check_is_fitted(self)
        scores = self._scores(X, y)
        labels = None if groups is None else np.asarray(groups)
        check_dependence("calibrate", len(scores), labels, None)
        self.conformal_ = Calibration(scores[one_of_each(labels, len(scores), self._seed)])
        return self

    def _scores(self, X: Any, y: Any) -> Array:
        """For each row how far the answer is off."""
        raise NotImplementedError(f"{type(self).__name__} must score its answers")

    def _calibrated(self, where: str) -> Calibration:
        check_is_fitted(self)
        if self.conformal_ is None:
            refuse(where, "method", '"posterior" before `calibrate` has seen rows that were not fitted', "conformal")
        return self.conformal_


@dataclass(frozen=True)
class CrossConformal:
    """Fits of all folds but one, and what each row's answer was off by in the fit that did not see it.

    models: one for each fold. scores: of the rows that count; folds: the fold of each of them.
    """

    models: tuple[Any, ...]
    scores: Array
    folds: NDArray[np.int_]

    def guarantee(self, level: float = 0.95) -> float:
        """With what probability a new exchangeable row is inside at least: about 1 - 2a for the level 1 - a."""
        level = check_number("guarantee", "level", level, above=0, below=1)
        return cross_guarantee(level, len(self.models), len(self.scores))

    def predict_interval(self, X: Any, level: float = 0.95) -> tuple[Array, Array]:
        """(low, high) of each row, for one response."""
        level = check_number("predict_interval", "level", level, above=0, below=1)
        each = [model._centre_and_unit(X) for model in self.models]
        centres, units = (np.stack(part)[self.folds] for part in zip(*each, strict=True))
        return cross_ends(centres, units * self.scores[:, None], level)

    def predict_set(self, X: Any, level: float = 0.95) -> Sets:
        """(rows, classes): whether a class is in the set of each row."""
        level = check_number("predict_set", "level", level, above=0, below=1)
        shares = [model.predict_proba(X) for model in self.models]
        masses = np.stack([cumulative_shares(share) for share in shares])
        further = sum((self.scores[self.folds == k, None, None] >= masses[k]).sum(0) for k in range(len(self.models)))
        inside = (1 + np.asarray(further)) / (len(self.scores) + 1) > 1 - level + 1e-9
        return with_the_best(inside, cumulative_shares(np.mean(shares, axis=0)))


def cross_conformal(
    model: Any, X: Any, y: Any, folds: int = 5, *, groups: Any = None, seed: Seed = 0
) -> CrossConformal:
    """Intervals or sets from every row of a table, each scored by the fit that did not see it (CV+).

    model: an estimator with the settings to fit; it stays as it is. Each fold's score comes from a whole fit of the
        other folds, noise and weight of the KL included. groups: a label for each row; a group is in one fold, and one
        of its rows counts. What it guarantees is less than split-conformal does: `CrossConformal.guarantee`.

    >>> from slabnet.estimators import SlabRegressor
    >>> x = np.linspace(-1, 1, 60)[:, None]
    >>> found = cross_conformal(SlabRegressor(hidden=(), epochs=20), x, x[:, 0], folds=2)
    >>> low, high = found.predict_interval(x[:3])
    >>> bool((low < high).all()), len(found.scores)
    (True, 60)
    """
    if not isinstance(model, Calibrates):
        refuse("cross_conformal", "model", "a SlabRegressor or SlabClassifier", type(model).__name__)
    check_whole("cross_conformal", "folds", folds, at_least=2)
    table, target = X if is_frame(X) else np.asarray(X), np.asarray(y)
    labels = None if groups is None else np.asarray(groups)
    number = seed_number(seed, "cross_conformal") % 2**32
    fold_of = fold_numbers(len(target), folds, number, labels)
    counts = one_of_each(labels, len(target), number)
    models, scores = [], np.zeros(len(target))
    for fold in range(folds):
        inside, outside = np.flatnonzero(fold_of != fold), np.flatnonzero(fold_of == fold)
        inside_groups = None if labels is None else labels[inside]
        fitted = clone(model).fit(_rows(table, inside), target[inside], groups=inside_groups)
        scores[outside] = fitted._scores(_rows(table, outside), target[outside])
        models.append(fitted)
    return CrossConformal(tuple(models), scores[counts], fold_of[counts])


def _rows(table: Any, places: NDArray[np.int_]) -> Any:
    rows: Any = _safe_indexing(table, places)  # of data frames too
    return rows
