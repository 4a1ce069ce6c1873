"""How good a fit is on the rows it did not see, beside a linear model and the baseline on the same rows."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, RidgeCV
from sklearn.preprocessing import StandardScaler

from slabnet.estimators import SlabClassifier, SlabRegressor
from slabnet.estimators.base import SlabEstimator
from slabnet.prediction.scores import class_scores, number_scores

LEVEL = DOUBT = 0.95
BOOTSTRAP, BOOTSTRAP_NUMBERS = 2000, 10**7  # times that rows are drawn again, and numbers drawn at once
PENALTIES = np.logspace(-3, 4, 15)  # of ridge; the best is chosen by leaving out one training row at a time
MOST_COMPARED = 100_000  # training rows of the linear model
Array = NDArray[np.float64]
Labels = NDArray[Any]


def tested(model: SlabEstimator, fitted: tuple[Array, Labels], x: Array, y: Labels, sides: dict[str, Any]) -> Any:
    """Scores on held-out rows `x, y`; fitted: the rows that the linear model is fitted to as well.

    linear: the same score of ridge or logistic regression, its interval, and how far it is behind with the interval of
    that, from drawing rows again in pairs. Nothing is compared where rows are cut off, or have an exposure.
    """
    _, seen = fitted
    if isinstance(model, SlabClassifier):
        values, counts = np.unique(seen, return_counts=True)
        usual = int(model.places(values[[counts.argmax()]])[0])
        shares, truth = model.predict_proba(x), model.places(y)
        scores = class_scores(shares, truth, DOUBT, usual)
        missed = [str(model.classes_[k]) for k in scores["never_predicted"]]
        theirs = _linear_shares(fitted[0], model.places(seen), x, shares.shape[1])
        linear = class_scores(theirs, truth, DOUBT, usual)
        rows = [np.asarray(part.argmax(1) == truth, dtype=float) for part in (shares, theirs)]
        behind = mean_interval(rows[0] - rows[1])
        beside = {name: linear[name] for name in ("accuracy", "accuracy_interval", "log_loss")}
        beside |= {"name": "logistic regression", "behind": float((rows[0] - rows[1]).mean())}
        return scores | {"never_predicted": missed, "usual": usual, "linear": beside | {"behind_interval": behind}}
    assert isinstance(model, SlabRegressor)
    density = {"log_density": model.log_density(x, y, **sides)}
    if "event" in sides:  # where a row was cut off there is no error to be had
        return density | {"events": int(sides["event"].sum())}
    mean, centre = model.predict(x, **sides), float(seen.mean())
    scores = number_scores(mean, y, model.predict_interval(x, LEVEL, **sides), centre)
    scores |= {"usual": centre, "rmse_interval": rmse_interval((mean - y) ** 2)} | density
    scores |= {"baseline_interval": rmse_interval((y - centre) ** 2)}
    return scores if sides else scores | {"linear": _ridge(fitted, x, y, (mean - y) ** 2)}


def odd_rows(model: SlabEstimator, fitted: tuple[Array, Labels], x: Array, y: Labels) -> dict[str, int]:
    """Of the held-out rows, those that are copies of fitted ones, and those that lie outside the training data."""
    rows = {(row.tobytes(), answer) for row, answer in zip(fitted[0], fitted[1].tolist(), strict=True)}
    copies = sum((row.tobytes(), answer) in rows for row, answer in zip(x, y.tolist(), strict=True))
    return {"copies": copies, "outside": int(model.extrapolates(x).sum())}


def _ridge(fitted: tuple[Array, Labels], x: Array, y: Labels, squares: Array) -> dict[str, Any]:
    scaler = StandardScaler().fit(fitted[0][:MOST_COMPARED])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        line = RidgeCV(PENALTIES).fit(scaler.transform(fitted[0][:MOST_COMPARED]), fitted[1][:MOST_COMPARED])
        theirs = (line.predict(scaler.transform(x)) - y) ** 2
    return {
        "name": "ridge",
        "rmse": math.sqrt(theirs.mean()),
        "rmse_interval": rmse_interval(theirs),
        "behind": math.sqrt(theirs.mean()) - math.sqrt(squares.mean()),
        "behind_interval": _drawn_again(
            lambda rows: np.sqrt(theirs[rows].mean(1)) - np.sqrt(squares[rows].mean(1)), len(x)
        ),
    }


def _linear_shares(x: Array, places: NDArray[np.int64], new: Array, classes: int) -> Array:
    """Probabilities of every class by logistic regression with a ridge penalty of 1; 0 for one it never saw."""
    scaler = StandardScaler().fit(x[:MOST_COMPARED])
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        line = LogisticRegression(max_iter=500).fit(scaler.transform(x[:MOST_COMPARED]), places[:MOST_COMPARED])
        known = line.predict_proba(scaler.transform(new))
    shares = np.zeros((len(new), classes))
    shares[:, line.classes_] = known
    return shares


def rmse_interval(squares: Array, level: float = LEVEL) -> list[float] | None:
    """The interval of a root mean square: its quantiles when rows are drawn again with replacement (bootstrap).

    >>> rmse_interval(np.full(10, 4.0))
    [2.0, 2.0]
    """
    return _drawn_again(lambda rows: np.sqrt(squares[rows].mean(1)), len(squares), level)


def mean_interval(values: Array, level: float = LEVEL) -> list[float] | None:
    """The same for a mean.

    >>> mean_interval(np.full(10, 4.0))
    [4.0, 4.0]
    """
    return _drawn_again(lambda rows: values[rows].mean(1), len(values), level)


def _drawn_again(score: Any, n: int, level: float = LEVEL) -> list[float] | None:
    """Quantiles of a score of rows that are drawn again; None for a single row, which says little."""
    if n < 2:
        return None
    generator = np.random.default_rng(0)
    at_once = max(1, BOOTSTRAP_NUMBERS // n)
    scores: list[float] = []
    while len(scores) < BOOTSTRAP:
        scores.extend(score(generator.integers(n, size=(min(at_once, BOOTSTRAP - len(scores)), n))).tolist())
    return [float(end) for end in np.quantile(scores, [(1 - level) / 2, (1 + level) / 2])]
