"""How good a prediction is. Each number is checked against scikit-learn or torchmetrics in the tests."""

from __future__ import annotations

from typing import Literal, NamedTuple

import torch
from torch import Tensor

from slabnet.core.errors import check_choice, check_whole, refuse
from slabnet.core.records import Answer, Prediction, Predictive

CLASSES = (Answer.CLASSES, Answer.YES_OR_NO)


class Doubt(NamedTuple):
    """Accuracy among the rows that were decided at a threshold, and how many those are."""

    accuracy: float | None
    decided: int


class RiskCoverage(NamedTuple):
    """Error rate among the most confident share of the rows, for every share; `area` is the mean of it."""

    coverage: Tensor
    risk: Tensor
    area: float


class Bin(NamedTuple):
    """Rows whose confidence lies in (low, high]: how many, their mean confidence, and the share that is right."""

    low: float
    high: float
    rows: int
    confidence: float
    accuracy: float


class OutOfDomain(NamedTuple):
    """How well uncertainty tells out-of-distribution rows from in-distribution ones."""

    auroc: float
    aupr: float


class Interval(NamedTuple):
    """Share of the observations inside an interval, and its mean width."""

    coverage: float
    width: float


def accuracy(prediction: Prediction, y: Tensor) -> float:
    """Share of rows whose most probable class is right."""
    _check(prediction, y, "accuracy", CLASSES)
    return float((prediction.labels.reshape(-1) == y.reshape(-1)).double().mean())


def accuracy_with_doubt(prediction: Prediction, y: Tensor, threshold: float = 0.95) -> Doubt:
    """Accuracy where the largest averaged probability exceeds `threshold`; None if nothing is decided (sec. 4)."""
    _check(prediction, y, "accuracy_with_doubt", CLASSES)
    decided = prediction.decided(threshold).reshape(-1)
    right = (prediction.labels.reshape(-1) == y.reshape(-1))[decided]
    return Doubt(float(right.double().mean()) if len(right) else None, int(decided.sum()))


def negative_log_likelihood(prediction: Prediction, y: Tensor) -> float:
    """Mean of -log of the averaged probability of what happened: the log of a mean, not the mean of logs.

    For numbers the density is the mixture over the draws, so ask `predict` to keep them.
    """
    return float(-row_log_densities(prediction, y).mean())


def row_log_densities(prediction: Prediction, y: Tensor, event: Tensor | None = None) -> Tensor:
    """log of the averaged probability of what happened, for each row; all responses of a row together.

    event: 0 for times that were cut off at y, which count with P(Y > y).
    """
    _check(prediction, y, "negative_log_likelihood", tuple(Answer))
    tiny = torch.finfo(torch.float64).tiny
    if prediction.answer is Answer.CLASSES:
        chosen = prediction.mean.gather(1, y.reshape(-1, 1).long()).double()
        return chosen.clamp_min(tiny).log()[:, 0]
    if prediction.answer is Answer.YES_OR_NO:
        p, yes = prediction.mean.double(), y.reshape(prediction.mean.shape).bool()
        return torch.where(yes, p, 1 - p).clamp_min(tiny).log().sum(-1)
    mixture = _mixture(prediction, "negative_log_likelihood")
    return mixture.log_density(y.reshape(prediction.mean.shape).double(), None if event is None else event.cpu())


def brier(prediction: Prediction, y: Tensor) -> float:
    """Mean squared distance between the averaged probabilities and what happened, summed over the classes."""
    _check(prediction, y, "brier", (Answer.CLASSES,))
    happened = torch.nn.functional.one_hot(y.reshape(-1).long(), prediction.mean.shape[1])
    return float((prediction.mean.double() - happened).square().sum(-1).mean())


def calibration_error(
    prediction: Prediction, y: Tensor, bins: int = 15, kind: Literal["width", "mass"] = "width"
) -> float:
    """Expected calibration error: mean gap between confidence and accuracy over bins of equal width or equal mass."""
    _check(prediction, y, "calibration_error", (Answer.CLASSES,))
    check_whole("calibration_error", "bins", bins, at_least=1)
    check_choice("calibration_error", "kind", kind, ("width", "mass"))
    sure = prediction.confidence.double()
    right = (prediction.labels == y.reshape(-1)).double()
    if kind == "width":
        bin_of = (sure * bins).ceil().long().clamp(1, bins) - 1
    else:
        bin_of = (sure.argsort(stable=True).argsort(stable=True) * bins) // len(sure)
    gaps = torch.zeros(bins, dtype=torch.float64).index_add_(0, bin_of, sure - right)
    return float(gaps.abs().sum() / len(sure))


def reliability(prediction: Prediction, y: Tensor, bins: int = 15) -> list[Bin]:
    """The reliability diagram: confidence and accuracy in bins of equal width, those of `calibration_error`.

    Bins without rows are left out.

    >>> from slabnet.model.networks import mlp
    >>> from slabnet.prediction.predict import predict
    >>> found = reliability(predict(mlp((2, 2)), torch.zeros(5, 2)), torch.zeros(5, dtype=torch.long), bins=2)
    >>> sum(part.rows for part in found)
    5
    """
    _check(prediction, y, "reliability", (Answer.CLASSES,))
    check_whole("reliability", "bins", bins, at_least=1)
    sure = prediction.confidence.double()
    right = (prediction.labels == y.reshape(-1)).double()
    bin_of = (sure * bins).ceil().long().clamp(1, bins) - 1
    filled = []
    for index in range(bins):
        inside = bin_of == index
        if bool(inside.any()):
            means = float(sure[inside].mean()), float(right[inside].mean())
            filled.append(Bin(index / bins, (index + 1) / bins, int(inside.sum()), *means))
    return filled


def risk_coverage(prediction: Prediction, y: Tensor) -> RiskCoverage:
    """Decide the k most confident rows, for every k: the share decided, and the share of those that is wrong."""
    _check(prediction, y, "risk_coverage", (Answer.CLASSES,))
    order = prediction.confidence.argsort(descending=True, stable=True)
    wrong = (prediction.labels != y.reshape(-1))[order].double()
    count = torch.arange(1, len(wrong) + 1, dtype=torch.float64)
    risk = wrong.cumsum(0) / count
    return RiskCoverage(count / len(wrong), risk, float(risk.mean()))


def out_of_domain(
    in_distribution: Prediction, ood: Prediction, by: Literal["entropy", "mutual_information"] = "entropy"
) -> OutOfDomain:
    """Area under the ROC and precision-recall curves for telling OOD rows by entropy or mutual information."""
    check_choice("out_of_domain", "by", by, ("entropy", "mutual_information"))
    from sklearn.metrics import average_precision_score, roc_auc_score  # slow to import

    scores = [p.entropy if by == "entropy" else p.epistemic for p in (in_distribution, ood)]
    values = torch.cat(scores).numpy()
    truth = [0] * len(scores[0]) + [1] * len(scores[1])
    return OutOfDomain(float(roc_auc_score(truth, values)), float(average_precision_score(truth, values)))


def rmse(prediction: Prediction, y: Tensor) -> float:
    """Root of the mean squared error of the averaged response."""
    _check(prediction, y, "rmse", (Answer.NUMBERS,))
    return float((prediction.mean - y.reshape(prediction.mean.shape)).double().square().mean().sqrt())


def interval_coverage(prediction: Prediction, y: Tensor, level: float = 0.95) -> Interval:
    """How often predictive intervals cover what was observed, and how wide they are."""
    _check(prediction, y, "interval_coverage", (Answer.NUMBERS,))
    low, high = prediction.predictive_interval(level)
    y = y.reshape(low.shape)
    return Interval(float(((y >= low) & (y <= high)).double().mean()), float((high - low).double().mean()))


def crps(prediction: Prediction, y: Tensor) -> float:
    """Continuous ranked probability score of the mixture over draws, E|Y - y| - E|Y - Y'| / 2 in closed form.

    Ask `predict` to keep the draws. Memory is rows x draws^2 in blocks of rows.
    """
    _check(prediction, y, "crps", (Answer.NUMBERS,))
    mixture = _mixture(prediction, "crps")
    return float(mixture.crps(y.reshape(prediction.mean.shape).double()).mean())


def _mixture(prediction: Prediction, where: str) -> Predictive:
    if prediction.samples is None:
        refuse(where, "prediction", "made with keep_draws=True", "one without its draws")
    if prediction.mixture is None:
        refuse(where, "prediction", "of a response with a known distribution", prediction.kind)
    return prediction.mixture


def _check(prediction: Prediction, y: Tensor, where: str, answers: tuple[Answer, ...]) -> None:
    if not isinstance(y, Tensor):
        refuse(where, "y", "a tensor", type(y).__name__)
    if prediction.answer not in answers:
        allowed = f"of {' or '.join(answer.value for answer in answers)}"
        refuse(where, "prediction", allowed, f"a {prediction.kind} response")
    if len(prediction.mean) != len(y):
        refuse(where, "y", f"as long as the prediction, {len(prediction.mean)} rows", f"{len(y)} rows")
