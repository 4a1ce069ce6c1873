"""Distributions through scikit-learn's `Pipeline` and `TransformedTargetRegressor`, exactly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from sklearn.compose import TransformedTargetRegressor
from sklearn.pipeline import Pipeline

from slabnet.core.errors import check_number, refuse
from slabnet.estimators.regressor import SlabRegressor
from slabnet.estimators.scaling import Array


class Distribution(Protocol):
    """What `predict_distribution` gives of each row."""

    def quantile(self, share: float) -> Array:
        """The value below which an observation lies with probability `share`."""

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """The central interval that holds an observation with probability `level`."""

    def cdf(self, y: Any) -> Array:
        """P(Y <= y)."""

    def exceeds(self, y: Any) -> Array:
        """P(Y > y)."""


def predict_distribution(model: Any, X: Any, exposure: Any = None) -> Distribution:
    """The distribution of a new observation in each row of X, through what stands around a `SlabRegressor`.

    model: a fitted `SlabRegressor`, a `Pipeline` that ends in one, or a `TransformedTargetRegressor` around either
    whose function is monotone: quantiles go through it as they are, so that nothing is approximated. A mean does not:
    what such a regressor gives as `predict` is no mean of y; take `quantile(0.5)`.

    >>> from sklearn.compose import TransformedTargetRegressor
    >>> x = np.linspace(-1, 1, 40)[:, None]
    >>> inside = SlabRegressor(hidden=(), epochs=20, random_state=0)
    >>> model = TransformedTargetRegressor(inside, func=np.log, inverse_func=np.exp).fit(x, np.exp(x[:, 0]))
    >>> low, high = predict_distribution(model, x).interval(0.9)
    >>> bool((0 < low).all() and (low < high).all())
    True
    """
    if isinstance(model, SlabRegressor):
        return model.predict_distribution(X, exposure)
    if isinstance(model, Pipeline) and len(model.steps) > 1:
        return predict_distribution(model[-1], model[:-1].transform(X), exposure)
    if isinstance(model, Pipeline):
        return predict_distribution(model[-1], X, exposure)
    if isinstance(model, TransformedTargetRegressor):
        return Transformed(predict_distribution(model.regressor_, X, exposure), model.transformer_)
    allowed = "a SlabRegressor, or a Pipeline or TransformedTargetRegressor around one"
    refuse("predict_distribution", "model", allowed, type(model).__name__)


@dataclass(frozen=True)
class Transformed:
    """A distribution of t(y), given as that of y; t: a scikit-learn transformer that is monotone."""

    inside: Distribution
    transformer: Any

    def quantile(self, share: float) -> Array:
        share = check_number("quantile", "share", share, above=0, below=1)
        return self._undone(self.inside.quantile(share if self._rises else 1 - share))

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        level = check_number("interval", "level", level, above=0, below=1)
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def cdf(self, y: Any) -> Array:
        """P(Y <= y)."""
        return self.inside.cdf(self._done(y)) if self._rises else self.inside.exceeds(self._done(y))

    def exceeds(self, y: Any) -> Array:
        """P(Y > y)."""
        return 1 - self.cdf(y)

    @property
    def _rises(self) -> bool:
        """Whether a larger number inside is a larger y, seen at two quantiles of every row."""
        low, high = (self._undone(self.inside.quantile(share)) for share in (0.3, 0.7))
        if not ((low <= high).all() or (low >= high).all()):
            refuse("predict_distribution", "func", "monotone", "one that rises and falls")
        return bool((low <= high).all())

    def _undone(self, values: Array) -> Array:
        return np.asarray(self.transformer.inverse_transform(values.reshape(len(values), -1))).reshape(values.shape)

    def _done(self, y: Any) -> Array:
        values = np.asarray(y, dtype=np.float64)
        table = values.reshape(-1, 1) if values.ndim < 2 else values
        return np.asarray(self.transformer.transform(table)).reshape(values.shape)
