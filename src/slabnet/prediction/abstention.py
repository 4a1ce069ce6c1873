"""A threshold for the doubt decision that keeps a promise about accuracy, with a bound that is valid.

Looking for the lowest threshold at which the validation accuracy is high enough, and quoting that accuracy, is
optimistic: the threshold was chosen on the same rows. Fixed-sequence testing (learn then test) is not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from slabnet.core.errors import check_number, one_line, refuse
from slabnet.core.records import Prediction
from slabnet.training.batches import as_tensor

GRID = tuple(round(1 - 0.5 * (i / 100) ** 2, 6) for i in range(1, 101))  # 0.99995 down to 0.5, denser at the top
STARTS = (0, 10, 20, 35, 50, 70)  # positions in the grid where a sequence of tests begins


@dataclass(frozen=True)
class DoubtThreshold:
    """A threshold above which decisions are right often enough, with confidence.

    threshold: decide where the averaged probability exceeds it; None if none can be promised.
    decided: share of the validation rows that are then decided; accuracy: the share right among those.
    promised: the accuracy that holds with `confidence` for rows like these.
    """

    threshold: float | None
    decided: float
    accuracy: float | None
    promised: float
    confidence: float


def calibrate_doubt(
    prediction: Prediction | Any, y: Any, accuracy: float = 0.99, confidence: float = 0.95, *, classes: Any = None
) -> DoubtThreshold:
    """The lowest threshold at which accuracy among the decided is at least `accuracy`, with `confidence`.

    prediction: of rows that were not fitted, as `predict` gives it; or their probabilities, one column a class, as an
        estimator's `predict_proba` does.
    y: the classes of those rows: whole numbers from 0 beside a `Prediction`, labels beside probabilities.
    classes: the labels in the order of the columns (`estimator.classes_`), where `y` does not hold all of them.

    For a fixed threshold the errors among the decided are binomial, so P(Bin(decided, 1 - accuracy) <= errors) is a
    valid p-value of "accuracy is lower". Thresholds are tested in an order fixed beforehand, from high to low, from
    several starts that share the error budget, each until its first failure: the chance of any false promise is
    at most 1 - confidence (Angelopoulos et al. 2021, fixed-sequence testing).

    >>> proba = np.array([[0.99, 0.01], [0.02, 0.98]] * 300)
    >>> calibrate_doubt(proba, ["no", "yes"] * 300).accuracy
    1.0
    """
    check_number("calibrate_doubt", "accuracy", accuracy, above=0, below=1)
    check_number("calibrate_doubt", "confidence", confidence, above=0, below=1)
    if isinstance(prediction, Prediction):
        sure, wrong = _of_prediction(prediction, y)
    else:
        sure, wrong = _of_probabilities(prediction, y, classes)
    lowest: float | None = None
    for start in STARTS:
        for threshold in GRID[start:]:
            decided = sure > threshold
            if _p_value(int(decided.sum()), int((wrong & decided).sum()), 1 - accuracy) > (1 - confidence) / len(
                STARTS
            ):
                break
            lowest = threshold if lowest is None else min(lowest, threshold)
    if lowest is None:
        return DoubtThreshold(None, 0.0, None, accuracy, confidence)
    decided = sure > lowest
    share = float(decided.double().mean())
    return DoubtThreshold(lowest, share, float((~wrong[decided]).double().mean()), accuracy, confidence)


def _of_prediction(prediction: Prediction, y: Any) -> tuple[Tensor, Tensor]:
    """How sure each row is, and whether it is wrong."""
    truth = as_tensor(y, "calibrate_doubt", "y")
    _check_length(len(prediction.mean), len(truth))
    return prediction.confidence.reshape(-1).double(), prediction.labels.reshape(-1) != truth.reshape(-1)


def _of_probabilities(given: Any, y: Any, classes: Any) -> tuple[Tensor, Tensor]:
    """The same for a table of probabilities and labels."""
    shares = as_tensor(given, "calibrate_doubt", "prediction").double()
    near_one = shares.ndim == 2 and bool(torch.allclose(shares.sum(-1), torch.ones(len(shares)).double(), atol=1e-3))
    if not near_one or bool((shares < 0).any()):
        allowed = "a Prediction, or probabilities: one column a class, rows that sum to one"
        refuse("calibrate_doubt", "prediction", allowed, f"shape {tuple(shares.shape)}")
    labels = np.asarray(y).reshape(-1)
    _check_length(len(shares), len(labels))
    known = np.unique(labels) if classes is None else np.asarray(classes)
    if len(known) != shares.shape[1]:
        allowed = f"the {shares.shape[1]} labels in the order of the columns, as estimator.classes_"
        refuse("calibrate_doubt", "classes", allowed, f"{len(known)} labels" if classes is not None else "none")
    strange = labels[~np.isin(labels, known)]
    if len(strange):
        refuse(
            "calibrate_doubt",
            "y",
            f"one of the classes {one_line(known.tolist())}",
            one_line(repr(strange.tolist()[0])),
        )
    wrong = known[shares.argmax(1).numpy()] != labels
    return shares.amax(1), torch.as_tensor(wrong)


def _check_length(rows: int, came: int) -> None:
    if rows != came:
        refuse("calibrate_doubt", "y", f"as long as the prediction, {rows} rows", f"{came} rows")


def _p_value(decided: int, errors: int, error_rate: float) -> float:
    """P(Binomial(decided, error_rate) <= errors)."""
    if decided == 0:
        return 1.0
    from scipy.stats import binom  # comes with scikit-learn; slow to import

    return float(binom.cdf(errors, decided, error_rate))
