"""Which response distribution an estimator fits, how a response is scaled for it, and what rows say besides it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from sklearn.utils.validation import _check_sample_weight, check_consistent_length, column_or_1d

from slabnet.core.errors import check_choice, refuse
from slabnet.core.records import Answer
from slabnet.estimators.scaling import Array, Scaling
from slabnet.model.likelihoods import LIKELIHOODS, Target, YScale, likelihood_from

AUTO = "auto"
LARGEST_COUNT = 100  # whole numbers of which half are larger are taken for measurements
WIDE = 10.0  # largest over smallest value of numbers above 0, from which a logarithm is worth it


@dataclass(frozen=True)
class Taken:
    """The response that was taken for some values, and why."""

    name: str
    why: str


def regression_responses() -> list[str]:
    """The likelihoods of numbers, ours and registered ones."""
    return [name for name, kind in LIKELIHOODS.items() if kind.answer is Answer.NUMBERS]


def taken_response(response: str | None, y: Array) -> Taken:
    """The response to fit: what was named, or what the values look like.

    >>> taken_response("auto", np.array([[0.0], [3.0], [1.0]])).name
    'negative-binomial'
    >>> taken_response("auto", np.array([[0.1], [3.0], [80.0]])).name
    'lognormal'
    """
    if response is None:
        return Taken("gaussian", "the default")
    if response != AUTO:
        check_choice("SlabRegressor", "response", response, [AUTO, *regression_responses()])
        return Taken(response, "as asked for")
    if (y < 0).any():
        return Taken("gaussian", "some values are below 0")
    whole = bool((y == np.round(y)).all())
    if whole and np.median(y) <= LARGEST_COUNT and len(np.unique(y)) > 1:
        return Taken(
            "negative-binomial",
            "whole numbers from 0, taken for counts; of the two, negative-binomial has poisson as its limit",
        )
    if (y > 0).all() and y.max() > WIDE * y.min():
        log, mean = np.log(y), y.mean(0)
        shape = np.maximum(mean**2 / np.maximum(y.var(0), 1e-300), 1e-6)
        better = "lognormal" if _lognormal(log) >= _gamma(y / mean, shape) - float(np.log(mean).sum()) else "gamma"
        other = {"lognormal": "gamma", "gamma": "lognormal"}[better]
        return Taken(better, f"numbers above 0 over a factor of {WIDE:g} and more; fits them better than {other}")
    if (y == 0).any():
        return Taken("gaussian", "some values are 0, which no response above 0 allows")
    return Taken("gaussian", f"the largest value is within a factor of {WIDE:g} of the smallest")


def _lognormal(log: Array) -> float:
    return float(-(0.5 * np.log(2 * np.pi * np.e * log.var(0)) + log.mean(0)).sum())


def _gamma(ratio: Array, shape: Array) -> float:
    """Mean log density of y under a gamma of its mean and variance, given y / mean, without log mean."""
    from scipy import stats

    return float(stats.gamma.logpdf(ratio, shape, scale=1 / shape).mean(0).sum())


class Given(NamedTuple):
    """The arguments of `fit` that say more of each row, as they came; teacher: what one expects of each row."""

    sample_weight: Any = None
    exposure: Any = None
    event: Any = None
    teacher: Any = None
    teacher_share: float = 0.5


NOTHING = Given()


@dataclass(frozen=True)
class Sides:
    """What rows say besides their response: `sample_weight`, `exposure` and `event` of `fit`, as arrays or None.

    soft, soft_share: what a teacher expects of each row, in the units of the response, and how much that counts.
    """

    weight: Array | None = None
    exposure: Array | None = None
    event: Array | None = None
    soft: Array | None = None
    soft_share: Array | None = None

    @classmethod
    def of(cls, X: Any, given: Given) -> Sides:
        """Checked against the rows of X."""
        weight = None
        if given.sample_weight is not None:
            weight = _check_sample_weight(given.sample_weight, X, dtype=np.float64, ensure_non_negative=True)
            if not (weight > 0).any():
                refuse("fit", "sample_weight", "above 0 for some row", "0 for all")
        columns: dict[str, Array | None] = {"exposure": None, "event": None}
        for name, value in (("exposure", given.exposure), ("event", given.event)):
            if value is not None:
                columns[name] = np.asarray(column_or_1d(value, dtype=np.float64))
                check_consistent_length(X, columns[name])
        if given.teacher is not None:
            columns["soft"], columns["soft_share"] = given.teacher, np.full(len(given.teacher), given.teacher_share)
        return cls(weight, **columns)

    def scaled(self, scaling: Scaling) -> Sides:
        """With what the teacher says in the units of a scaled response."""
        return self if self.soft is None else replace(self, soft=scaling.apply(self.soft.reshape(len(self.soft), -1)))

    def target(self, y: Any, rate: float | None) -> Any:
        """`y` with them, as `fit` takes it; `rate`: what exposures are counted in."""
        parts: dict[str, Any] = {name: part for name, part in vars(self).items() if part is not None}
        if rate is not None:
            parts["exposure"] = rate * (np.ones(len(y)) if self.exposure is None else self.exposure)
        return Target(y, **parts) if parts else y


def check_columns(name: str, y: Array, sides: Sides) -> None:
    """Refuse responses that a likelihood does not take, before anything is made of them."""
    kind = LIKELIHOODS[name]
    for side in ("exposure", "event"):
        value = sides.exposure if side == "exposure" else sides.event
        if value is not None and side not in kind.sides:
            refuse("fit", side, f"left out for a {name} response", "given")
    likelihood = likelihood_from(name, y.shape[1])
    likelihood.targets(torch.tensor(y), kind.outputs_for(y.shape[1]), torch.float64, "fit")


def scaling_of_response(name: str, y: Array, sides: Sides, standardize: bool) -> tuple[Scaling, float | None]:
    """Centre and scale of the response, and for counts the mean rate, which is then a part of every exposure."""
    kind, none = LIKELIHOODS[name].y_scale, Scaling.none(y.shape[1])
    if kind is YScale.RATE:
        exposure = np.ones(len(y)) if sides.exposure is None else sides.exposure
        weight = np.ones(len(y)) if sides.weight is None else sides.weight
        total = float((weight * y.mean(1)).sum() / max(float((weight * exposure).sum()), np.finfo(float).tiny))
        return none, (total if standardize and total > 0 else 1.0)
    if not standardize or kind is YScale.NONE:
        return none, None
    if kind is YScale.STANDARD:
        return Scaling.of(y, sides.weight), None
    if not (y > 0).all():
        return none, None  # refused by its row, a step later
    return Scaling(np.zeros(y.shape[1]), np.exp(np.average(np.log(y), axis=0, weights=sides.weight))), None


def class_weights(class_weight: Mapping[Any, float] | str | None, labels: Any, sides: Sides) -> Sides:
    """`sides` with each row's weight times that of its class."""
    if class_weight is None:
        return sides
    if not isinstance(class_weight, Mapping) and class_weight != "balanced":
        refuse("SlabClassifier", "class_weight", 'None, "balanced" or a dict of class and weight', class_weight)
    from sklearn.utils.class_weight import compute_sample_weight

    each = compute_sample_weight(class_weight, labels)
    return replace(sides, weight=each if sides.weight is None else each * sides.weight)
