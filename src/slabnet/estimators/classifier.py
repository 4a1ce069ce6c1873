"""`SlabClassifier`: two or more classes, with doubt."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d

from slabnet.core.errors import check_number, one_line, refuse
from slabnet.core.records import Prediction
from slabnet.estimators.base import SlabEstimator
from slabnet.estimators.responses import NOTHING, Given, Sides, class_weights
from slabnet.estimators.scaling import Array
from slabnet.model.likelihoods import Likelihood, Ordinal
from slabnet.prediction.conformal import cumulative_shares, with_the_best
from slabnet.prediction.explain import Scale
from slabnet.prediction.importance import Slopes

ORDINAL = "ordinal"


class SlabClassifier(ClassifierMixin, SlabEstimator):  # type: ignore[misc]
    """Classification by a network that is uncertain about its own structure as well as its weights.

    Two classes have one output (the log-odds of the second), more have one each. Columns of X are standardised inside.
    response="ordinal" takes the classes for levels in the order of `levels` (sorted where that is left out): one output
    that moves along them. class_weight: "balanced", or a dict of class and weight. The other parameters, and what is
    known after a fit, are those of `SlabRegressor`; `classes_` holds the labels.

    >>> x = np.linspace(-1, 1, 60)[:, None]
    >>> y = np.where(x[:, 0] > 0, "up", "down")
    >>> model = SlabClassifier(hidden=(), epochs=100, random_state=0).fit(x, y)
    >>> model.predict([[0.9], [-0.9]]).tolist()
    ['up', 'down']
    """

    def __init__(
        self,
        hidden: Sequence[int] | None = None,
        *,
        levels: Sequence[Any] | None = None,
        class_weight: Mapping[Any, float] | str | None = None,
        **options: Any,
    ) -> None:
        super().__init__(hidden, **options)
        self.levels = levels
        self.class_weight = class_weight

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted({*SlabEstimator._get_param_names(), "levels", "class_weight"})

    def _read(self, X: Any, y: Any, reset: bool, classes: Any = None, given: Given = NOTHING) -> tuple[Array, Any]:
        if y is None:
            refuse(
                type(self).__name__,
                "y",
                "given: one label a row (requires y to be passed, but the target y is None)",
                None,
            )
        table = self._inputs(X, reset)
        labels = column_or_1d(y, warn=True)
        check_array(labels, ensure_2d=False, dtype=None, input_name="y", estimator=self)
        check_consistent_length(table, labels)
        gone = [row for row, label in enumerate(labels) if label is None] if labels.dtype == object else []
        if gone:
            refuse(type(self).__name__, "y", "a label in every row", f"None in row {gone[0]}")
        check_classification_targets(labels)
        labels = column_or_1d(labels, warn=True)
        classes = getattr(self, "_known_classes", classes)
        if reset:
            self.classes_ = self._levels_of(labels, classes)
            if len(self.classes_) < 2:
                refuse(
                    type(self).__name__,
                    "y",
                    "labels of at least 2 classes",
                    f"one class, {one_line(repr(str(self.classes_[0])))}",
                )
        elif classes is not None and not np.array_equal(np.unique(classes), np.sort(self.classes_)):
            refuse("partial_fit", "classes", "those of the first call", one_line(np.unique(classes).tolist()))
        places = self.places(labels)
        unknown = np.flatnonzero(self.classes_[places] != labels)
        if len(unknown):
            known = ", ".join(one_line(str(c)) for c in self.classes_[:10])
            refuse(type(self).__name__, "y", f"one of the classes {known}", one_line(repr(str(labels[unknown[0]]))))
        sides = class_weights(self.class_weight, labels, Sides.of(table, given))
        yes_or_no = self.response != ORDINAL and len(self.classes_) == 2
        if sides.soft is not None and yes_or_no:  # the probability of the second class
            sides = replace(sides, soft=sides.soft[:, 1:])
        for name in ("exposure", "event"):
            if getattr(given, name) is not None:
                refuse("fit", name, "left out for classes", "given")
        return table, sides.target(places.astype(np.int64), None)

    def places(self, labels: Any) -> Any:
        """Where each label stands in `classes_`; any place for one that is none of them."""
        order = np.argsort(self.classes_)
        return order[np.searchsorted(self.classes_, labels, sorter=order).clip(max=len(self.classes_) - 1)]

    def _levels_of(self, labels: Any, classes: Any) -> Any:
        """The classes: in the order of `levels` where that is given, else sorted."""
        name = type(self).__name__
        if self.response not in (None, "classes", ORDINAL):
            refuse(name, "response", f'None, "classes" or "{ORDINAL}"', self.response)
        if self.levels is None:
            return np.unique(labels) if classes is None else np.unique(classes)
        if self.response != ORDINAL:
            refuse(name, "levels", f'left out, or used with response="{ORDINAL}"', "given")
        levels = np.asarray(list(self.levels))
        if levels.ndim != 1 or len(levels) < 2 or len(np.unique(levels)) < len(levels):
            refuse(name, "levels", "at least 2 different ones, from low to high", one_line(self.levels))
        return levels

    def _response(self) -> tuple[Likelihood | str, int]:
        if self.response == ORDINAL:
            return Ordinal(len(self.classes_)), 1
        return ("bernoulli", 1) if len(self.classes_) == 2 else ("categorical", len(self.classes_))

    def predict_proba(self, X: Any) -> Array:
        """The probability of each class, averaged over drawn networks, in the order of `classes_`."""
        return self._both(self._predict(X).mean.numpy())

    def predict(self, X: Any) -> Any:
        """The most probable label of each row."""
        check_is_fitted(self)
        return self.classes_[self.predict_proba(X).argmax(1)]

    def predict_with_doubt(self, X: Any, threshold: float = 0.95, *, decide_outside: bool = False) -> tuple[Any, Any]:
        """The most probable labels, and a mask of the rows in doubt: no class has more than `threshold`.

        decide_outside: False leaves rows outside the training data (`extrapolates`) in doubt, however sure the network
            is of them; True decides them by `threshold` too.
        """
        threshold = check_number("predict_with_doubt", "threshold", threshold, at_least=0, at_most=1)
        prediction = self._predict(X)
        shares = self._both(prediction.mean.numpy())
        doubt = ~(shares.max(1) > threshold)
        if not decide_outside and prediction.extrapolates is not None:
            doubt |= prediction.extrapolates.numpy()
        return self.classes_[shares.argmax(1)], doubt

    def predict_interval(self, X: Any, level: float = 0.95) -> tuple[Array, Array]:
        """The credible interval (low, high) of each class probability, over drawn networks."""
        level = check_number("predict_interval", "level", level, above=0, below=1)
        return self._interval_of(self._predict(X, intervals=level), level)

    def predict_set(self, X: Any, level: float = 0.95) -> NDArray[np.bool_]:
        """(rows, classes), in the order of `classes_`: which classes are in the set of each row (adaptive sets).

        It holds the label of a new row with probability at least `level`, guaranteed by the rows of `calibrate`.
        """
        level = check_number("predict_set", "level", level, above=0, below=1)
        reach = self._calibrated("predict_set").quantile(level)
        masses = cumulative_shares(self.predict_proba(X))
        return with_the_best(masses <= reach, masses)

    def _scores(self, X: Any, y: Any) -> Array:
        """The probability of a row's label and of all more probable ones."""
        _, places = self._read(X, y, reset=False)
        return np.asarray(cumulative_shares(self.predict_proba(X))[np.arange(len(places)), places])

    def _interval_of(self, prediction: Prediction, level: float) -> tuple[Array, Array]:
        low, high = (end.numpy() for end in prediction.interval(level))
        if low.shape[1] > 1:
            return low, high
        return np.hstack([1 - high, low]), np.hstack([1 - low, high])

    def log_densities(self, X: Any, y: Any) -> Array:
        """The log of the averaged probability of each row's label."""
        check_is_fitted(self)
        table, places = self._read(X, y, reset=False)
        shares = self.predict_proba(X)[np.arange(len(table)), places]
        return np.asarray(np.log(np.maximum(shares, np.finfo(float).tiny)))

    def predict_uncertainty(self, X: Any) -> tuple[Array, Array, Array]:
        """Entropy of the averaged probabilities, and its two parts: of the response, and of the network."""
        prediction: Prediction = self._predict(X)
        total, aleatoric, epistemic = (
            part.numpy().reshape(len(prediction.mean))
            for part in (prediction.total, prediction.aleatoric, prediction.epistemic)
        )
        return total, aleatoric, epistemic

    def _effects(self, slopes: Slopes) -> tuple[Array, Array, list[str]]:
        """How far the class probabilities move per standard deviation of each input, in total variation."""
        sizes, signed = slopes.sizes.numpy(), slopes.signed.numpy()
        names = [str(label) for label in self.classes_]
        if len(sizes) == 1:  # the probability of the second of two classes
            return sizes[0], signed, names[-1:]
        return sizes.sum(0) / 2, signed, names

    def _response_told(self) -> str:
        shown = [one_line(str(label), 20) for label in self.classes_[:8]] + ["..."] * (len(self.classes_) > 8)
        return f"{self.network_.likelihood.name}, {len(self.classes_)} classes ({', '.join(shown)})"

    def _told_on(self, scale: Scale) -> tuple[list[str], list[float], list[float]]:
        labels = [str(label) for label in self.classes_]
        count = self.network_.outputs
        if scale == "response" and self.response == ORDINAL:
            count = len(labels)
        names = labels if count == len(labels) else ["level"] if self.response == ORDINAL else labels[-1:]
        return names, [1.0] * count, [0.0] * count

    def _both(self, mean: Array) -> Array:
        return np.hstack([1 - mean, mean]) if mean.shape[1] == 1 else mean
