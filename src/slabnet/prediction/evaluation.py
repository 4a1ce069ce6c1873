"""Metrics by name: those that a likelihood names, and those that a user registers. Pages and tables ask here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from slabnet.core.errors import check_choice, refuse
from slabnet.core.records import Answer, Prediction
from slabnet.model.likelihoods import LIKELIHOODS, Response, Target, response_of
from slabnet.prediction.metrics import (
    accuracy,
    accuracy_with_doubt,
    brier,
    calibration_error,
    crps,
    interval_coverage,
    negative_log_likelihood,
    rmse,
    row_log_densities,
)
from slabnet.prediction.response_metrics import (
    concordance,
    deviance,
    integrated_brier,
    quantile_loss,
    rank_probability_score,
)

LEVEL = 0.95
ANSWERS = tuple(answer.value for answer in Answer)
Measure = Callable[[Prediction, Tensor], float | None]


@dataclass(frozen=True)
class Metric:
    """One number about a prediction and what was observed.

    words: what a person reads. able: whether a prediction has what it takes (its draws, or an interval).
    in_unit: whether the number is in the unit of the response. answer: for a registered metric, what it is about.
    cut: the same where some times were cut off, given what was seen (`event`); None for what cannot be told of those.
    """

    name: str
    words: str
    measure: Measure
    able: Callable[[Prediction], bool] = lambda prediction: True
    in_unit: bool = False
    answer: Answer | None = None
    cut: Callable[[Prediction, Tensor, Tensor], float] | None = None


def _has_draws(prediction: Prediction) -> bool:
    return prediction.answer is not Answer.NUMBERS or (
        prediction.samples is not None and prediction.mixture is not None
    )


def _has_interval(prediction: Prediction) -> bool:
    return LEVEL in prediction.predictive


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("accuracy", "accuracy", accuracy),
        Metric(
            "accuracy_with_doubt",
            f"accuracy of rows decided at {LEVEL}",
            lambda p, y: accuracy_with_doubt(p, y).accuracy,
        ),
        Metric(
            "negative_log_likelihood",
            "negative log-likelihood",
            negative_log_likelihood,
            _has_draws,
            cut=lambda p, y, event: -float(row_log_densities(p, y, event).mean()),
        ),
        Metric("brier", "Brier score", brier),
        Metric("calibration_error", "calibration error", calibration_error),
        Metric("rank_probability_score", "rank probability score", rank_probability_score),
        Metric("rmse", "RMSE", rmse, in_unit=True),
        Metric("deviance", "Poisson deviance", deviance),
        Metric("gamma_deviance", "gamma deviance", lambda p, y: deviance(p, y, "gamma")),
        Metric("crps", "CRPS", crps, _has_draws, in_unit=True),
        Metric(
            "interval_coverage",
            f"coverage of {LEVEL:.0%} prediction intervals",
            lambda p, y: interval_coverage(p, y, LEVEL).coverage,
            _has_interval,
        ),
        Metric("quantile_loss", "quantile loss of the median", quantile_loss, _has_draws, in_unit=True),
        Metric("concordance", "concordance", concordance, cut=concordance),
        Metric("integrated_brier", "integrated Brier score", integrated_brier, _has_draws, cut=integrated_brier),
    )
}


def register_metric(
    name: str, measure: Measure, *, answer: str, words: str | None = None, in_unit: bool = False, draws: bool = False
) -> None:
    """Make a metric of yours known: `evaluate`, reports and the tables of `slabnet reproduce` show it from then on.

    name: what records and `evaluate` call it. measure: a function of a `Prediction` and the observed responses that
    gives one number, or None where there is none. answer: what it is about, "classes", "yes or no" or "numbers".
    words: what a person reads, the name if left out. in_unit: whether the number is in the unit of the response, so
    that a page may give it in the unit of a column. draws: whether it asks for `predict(..., keep_draws=True)`.

    >>> register_metric("share_of_ones", lambda prediction, y: float((prediction.labels == 1).double().mean()),
    ...                 answer="classes", words="rows predicted as 1")
    >>> METRICS.pop("share_of_ones").words
    'rows predicted as 1'
    """
    if not isinstance(name, str) or not name.isidentifier() or name in METRICS:
        refuse("register_metric", "name", "a name of its own, of letters, digits and _", repr(name))
    if not callable(measure):
        refuse("register_metric", "measure", "a function of a prediction and the responses", type(measure).__name__)
    check_choice("register_metric", "answer", answer, ANSWERS)
    able = _has_draws if draws else Metric.able
    METRICS[name] = Metric(name, words or name, measure, able, in_unit, Answer(answer))


def metrics_of(prediction: Prediction) -> list[Metric]:
    """The metrics that fit a prediction and that it has enough for: those of its likelihood first, then registered."""
    likelihood = LIKELIHOODS.get(prediction.kind)
    rows = [METRICS[name] for name in (likelihood.metrics if likelihood is not None else ())]
    rows += [metric for metric in METRICS.values() if metric.answer is prediction.answer]
    return [metric for metric in rows if metric.able(prediction)]


def registered_metrics(prediction: Prediction) -> list[Metric]:
    """Those of `metrics_of` that a user registered."""
    return [metric for metric in metrics_of(prediction) if metric.answer is not None]


def evaluate(prediction: Prediction, y: Response, metrics: Sequence[Metric] | None = None) -> dict[str, float]:
    """Every metric that fits the response, by name; one that a prediction has not enough for is left out.

    prediction: of `predict`; with `keep_draws=True` and `intervals=0.95` nothing is left out. y: what was observed, a
    row each, or a `Target` whose `event` says which times were seen: what cut-off times tell nothing of is then left
    out. metrics: rows of `METRICS`; left out, those that the likelihood names and those of `register_metric` for
    its kind of answer.

    >>> import torch
    >>> from slabnet.model.networks import mlp
    >>> from slabnet.prediction.predict import predict
    >>> net = mlp((2, 3, 1), likelihood="gaussian")
    >>> list(evaluate(predict(net, torch.zeros(5, 2), intervals=0.95, keep_draws=True), torch.zeros(5)))
    ['rmse', 'negative_log_likelihood', 'crps', 'interval_coverage']
    """
    chosen = metrics_of(prediction) if metrics is None else metrics
    event, observed = (y.event if isinstance(y, Target) else None), response_of(y)
    if event is not None and not bool((event > 0).all()):
        return {metric.name: float(metric.cut(prediction, observed, event)) for metric in chosen if metric.cut}
    values = {metric.name: metric.measure(prediction, observed) for metric in chosen}
    return {name: float(value) for name, value in values.items() if value is not None}
