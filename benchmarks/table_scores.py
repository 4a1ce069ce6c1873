"""How good a fitted estimator of ours is on rows it did not see, as the benchmarks on tables count it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from sklearn.metrics import log_loss

LEVEL = 0.95
LEAST = 1e-12  # of a probability, before its logarithm is taken


def regression_scores(mean: Any, y: Any) -> dict[str, float]:
    return {"rmse": float(np.sqrt(np.mean((mean - y) ** 2)))}


def class_scores(shares: Any, y: Any, classes: Any) -> dict[str, float]:
    clipped = np.clip(shares, LEAST, 1.0)
    clipped /= clipped.sum(1, keepdims=True)
    accuracy = float(np.mean(np.asarray(classes)[shares.argmax(1)] == y))
    return {"log_loss": float(log_loss(y, clipped, labels=list(classes))), "accuracy": accuracy}


def normal_scores(mean: Any, sd: Any, y: Any) -> dict[str, float]:
    """Log-likelihood and coverage of normal predictions."""
    z = (y - mean) / sd
    density = -0.5 * z**2 - np.log(sd) - 0.5 * math.log(2 * math.pi)
    return {"log_likelihood": float(density.mean()), "coverage": float(np.mean(np.abs(z) <= 1.959963984540054))}


def scores_of_ours(model: Any, task: str, x: Any, y: Any) -> dict[str, Any]:
    """Of a `SlabRegressor` or a `SlabClassifier`: the averaged network, and how many weights are active in it."""
    weights = {"weights": model.n_weights_}
    if task == "classification":
        return class_scores(model.predict_proba(x), y, model.classes_) | weights
    low, high = model.predict_interval(x, LEVEL)
    found = regression_scores(model.predict(x), y) | {"log_likelihood": model.log_density(x, y)}
    return found | {"coverage": float(np.mean((low <= y) & (y <= high)))} | weights
