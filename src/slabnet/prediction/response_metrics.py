"""Metrics of counts, numbers above 0, levels and times; each is checked against another route in the tests."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from slabnet.core.errors import check_choice, check_number, refuse
from slabnet.core.records import Answer, Prediction

FAMILIES = ("gaussian", "poisson", "gamma")
TIMES = 100  # at which a Brier score is integrated


class Fifth(NamedTuple):
    """One fifth of the rows by their prediction: its mean, and the share of observations inside the interval."""

    prediction: float
    coverage: float
    rows: int


def deviance(prediction: Prediction, y: Tensor, family: str = "poisson") -> float:
    """Mean unit deviance of the mean responses under `family` ("gaussian", "poisson" or "gamma")."""
    _check(prediction, y, "deviance")
    check_choice("deviance", "family", family, FAMILIES)
    return float(_deviance(prediction.mean.double(), y.reshape(prediction.mean.shape).double(), family))


def d2(prediction: Prediction, y: Tensor, family: str = "poisson") -> float:
    """The share of the deviance around the mean of y that the prediction takes away; R^2 for "gaussian"."""
    _check(prediction, y, "d2")
    check_choice("d2", "family", family, FAMILIES)
    y = y.reshape(prediction.mean.shape).double()
    alone = _deviance(y.mean(0).expand_as(y), y, family)
    return float(1 - _deviance(prediction.mean.double(), y, family) / alone)


def _deviance(mean: Tensor, y: Tensor, family: str) -> Tensor:
    if family == "gaussian":
        return ((y - mean) ** 2).mean()
    if family == "poisson":
        return (2 * (torch.xlogy(y, y / mean) - y + mean)).mean()
    return (2 * (-(y / mean).log() + y / mean - 1)).mean()


def quantile_loss(prediction: Prediction, y: Tensor, share: float = 0.5) -> float:
    """Mean pinball loss of the predictive quantile at `share`; ask `predict` to keep the draws."""
    _check(prediction, y, "quantile_loss")
    share = check_number("quantile_loss", "share", share, above=0, below=1)
    if prediction.mixture is None:
        refuse("quantile_loss", "prediction", "made with keep_draws=True", "one without its draws")
    quantile = prediction.mixture.quantile(torch.tensor([share], dtype=torch.float64))[0].double()
    gap = y.reshape(quantile.shape).double() - quantile
    return float(torch.maximum(share * gap, (share - 1) * gap).mean())


def coverage_by_fifths(prediction: Prediction, y: Tensor, level: float = 0.95) -> list[Fifth]:
    """The share of observations inside predictive intervals, in each fifth of the rows by their prediction."""
    _check(prediction, y, "coverage_by_fifths")
    low, high = (end.reshape(len(y), -1)[:, 0] for end in prediction.predictive_interval(level))
    centre = prediction.mean.reshape(len(y), -1)[:, 0]
    inside = ((y.reshape(len(y), -1)[:, 0] >= low) & (y.reshape(len(y), -1)[:, 0] <= high)).double()
    parts = torch.tensor_split(centre.argsort(stable=True), 5)
    return [Fifth(float(centre[part].mean()), float(inside[part].mean()), len(part)) for part in parts if len(part)]


def rank_probability_score(prediction: Prediction, y: Tensor) -> float:
    """Mean squared distance of the cumulative probabilities of ordered levels from what happened, summed over cuts."""
    if prediction.answer is not Answer.CLASSES:
        refuse("rank_probability_score", "prediction", "of classes", f"a {prediction.kind} response")
    below = prediction.mean.double().cumsum(-1)[:, :-1]
    happened = (y.reshape(-1, 1) <= torch.arange(below.shape[1])).double()
    return float(((below - happened) ** 2).sum(-1).mean())


def concordance(prediction: Prediction, y: Tensor, event: Tensor | None = None) -> float:
    """The share of pairs whose order in time is known that are predicted in that order; ties count half (Harrell).

    event: 1 where the event was seen, 0 where a row was cut off: a pair is known where the shorter time was seen.
    """
    _check(prediction, y, "concordance")
    times, predicted = y.reshape(-1).double(), prediction.mean.reshape(-1).double()
    seen = torch.ones_like(times) if event is None else event.reshape(-1).double()
    pairs, right = 0.0, 0.0
    for i in seen.nonzero()[:, 0].tolist():
        later = (times > times[i]) | ((times == times[i]) & (seen == 0))
        pairs += float(later.sum())
        right += float((predicted[later] > predicted[i]).sum()) + 0.5 * float((predicted[later] == predicted[i]).sum())
    if not pairs:
        refuse("concordance", "event", "1 for a row that others outlast", "no pair whose order is known")
    return right / pairs


def integrated_brier(prediction: Prediction, y: Tensor, event: Tensor | None = None) -> float:
    """Mean over time of the Brier score of P(T > t), weighted for censoring (Graf et al. 1999).

    Times run from 0 to the last one seen; the censoring distribution is Kaplan and Meier's. Ask `predict` to keep the
    draws.
    """
    _check(prediction, y, "integrated_brier")
    if prediction.mixture is None:
        refuse("integrated_brier", "prediction", "made with keep_draws=True", "one without its draws")
    times = y.reshape(-1).double()
    seen = torch.ones_like(times) if event is None else event.reshape(-1).double()
    grid = torch.linspace(0, float(times[seen > 0].max()), TIMES + 1, dtype=torch.float64)[1:]
    free = _KaplanMeier(times, 1 - seen)
    at_event = free(times, before=True).clamp_min(1e-12)
    total = []
    for t in grid:
        survives = prediction.mixture.exceeds(torch.full_like(prediction.mean, float(t)))[:, 0].double()
        gone, alive = ((times <= t) & (seen > 0)).double(), (times > t).double()
        weight = gone / at_event + alive / free(t[None]).clamp_min(1e-12)
        total.append((weight * (alive - survives) ** 2).mean())
    return float(torch.stack(total).mean())


class _KaplanMeier:
    """The share without an event up to a time, as a step function."""

    def __init__(self, times: Tensor, event: Tensor) -> None:
        self.at = torch.as_tensor(np.unique(times.numpy()))
        at_risk = (times[None] >= self.at[:, None]).sum(1)
        events = ((times[None] == self.at[:, None]) & (event[None] > 0)).sum(1)
        self.share = torch.cat([torch.ones(1, dtype=torch.float64), (1 - events.double() / at_risk).cumprod(0)])

    def __call__(self, t: Tensor, before: bool = False) -> Tensor:
        return self.share[torch.searchsorted(self.at, t, right=not before)]


def _check(prediction: Prediction, y: Tensor, where: str) -> None:
    if prediction.answer is not Answer.NUMBERS:
        refuse(where, "prediction", "of numbers", f"a {prediction.kind} response")
    if len(prediction.mean) != len(y):
        refuse(where, "y", f"as long as the prediction, {len(prediction.mean)} rows", f"{len(y)} rows")
