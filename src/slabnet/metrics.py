"""How good a prediction is."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from slabnet.checks import refuse
from slabnet.records import Prediction


class Doubt(NamedTuple):
    """Accuracy among the rows that were decided at a threshold, and how many those are."""

    accuracy: float | None
    decided: int


def accuracy(prediction: Prediction, y: Tensor) -> float:
    """Share of rows whose most probable class is right."""
    _same_length(prediction, y)
    return float((prediction.labels.reshape(-1) == y.reshape(-1)).double().mean())


def accuracy_with_doubt(prediction: Prediction, y: Tensor, threshold: float = 0.95) -> Doubt:
    """Accuracy where the largest averaged probability exceeds `threshold`; None if nothing is decided (sec. 4)."""
    _same_length(prediction, y)
    decided = prediction.decided(threshold).reshape(-1)
    right = (prediction.labels.reshape(-1) == y.reshape(-1))[decided]
    return Doubt(float(right.double().mean()) if len(right) else None, int(decided.sum()))


def negative_log_likelihood(prediction: Prediction, y: Tensor) -> float:
    """Mean of -log of the averaged probability of what happened: the log of a mean, not the mean of logs."""
    _same_length(prediction, y)
    if prediction.kind != "categorical":
        refuse("negative_log_likelihood", "prediction", "of classes", prediction.kind)
    chosen = prediction.mean.gather(1, y.reshape(-1, 1).to(prediction.mean.device))
    return float(-chosen.double().clamp_min(torch.finfo(torch.float64).tiny).log().mean())


def rmse(prediction: Prediction, y: Tensor) -> float:
    """Root of the mean squared error of the averaged response."""
    _same_length(prediction, y)
    return float((prediction.mean.reshape(len(y), -1) - y.reshape(len(y), -1)).double().square().mean().sqrt())


def _same_length(prediction: Prediction, y: Tensor) -> None:
    if len(prediction.mean) != len(y):
        refuse("metrics", "y", f"as long as the prediction, {len(prediction.mean)} rows", f"{len(y)} rows")
