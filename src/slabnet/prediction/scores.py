"""What a person needs beside one number: the baseline, and scores that see a rare class. Imports no torch.

Every command and page takes its figures from here, so that the same rows give the same numbers everywhere.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slabnet.core.errors import one_line

Array = NDArray[np.float64]
Places = NDArray[np.int64]


def class_scores(shares: Array, truth: Places, doubt: float, baseline: int | None = None) -> dict[str, Any]:
    """How good probabilities (rows, classes) are, for the places `truth` of the classes that happened.

    baseline: the place of the class that was most frequent in training; that of these rows where it is not known.
    balanced_accuracy: the share right within each class that happened, averaged over those classes.
    auc: the area under the ROC curve; of more than two classes each against the rest, averaged. None for one class.
    brier: the squared distance between probabilities and what happened, summed over classes, averaged over rows.
    never_predicted: places of classes that happened, and are predicted for no row.

    >>> found = class_scores(np.array([[0.9, 0.1], [0.8, 0.2]]), np.array([0, 1]), 0.95)
    >>> found["accuracy"], found["baseline"], found["balanced_accuracy"], found["auc"], found["never_predicted"]
    (0.5, 0.5, 0.5, 1.0, [1])
    """
    n, places = len(truth), np.arange(len(truth))
    best = shares.argmax(1)
    right, decided = best == truth, shares.max(1) > doubt
    happened, counts = np.unique(truth, return_counts=True)
    usual = int(happened[counts.argmax()]) if baseline is None else baseline
    hit = np.zeros_like(shares)
    hit[places, truth] = 1.0
    return {
        "accuracy": float(right.mean()),
        "accuracy_interval": wilson(int(right.sum()), n),
        "baseline": float((truth == usual).mean()),
        "balanced_accuracy": float(np.mean([right[truth == k].mean() for k in happened])),
        "log_loss": float(-np.log(np.maximum(shares[places, truth], np.finfo(float).tiny)).mean()),
        "brier": float(((shares - hit) ** 2).sum(1).mean()),
        "auc": _auc(shares, truth, happened),
        "decided": int(decided.sum()),
        "accuracy_decided": float(right[decided].mean()) if decided.any() else None,
        "never_predicted": [int(k) for k in happened if not (best == k).any()],
    }


def number_scores(mean: Array, y: Array, ends: tuple[Array, Array] | None, usual: float) -> dict[str, Any]:
    """How good predicted means are; ends: of their 95% intervals. usual: the mean of the training rows.

    >>> found = number_scores(np.array([1.0, 3.0]), np.array([1.0, 2.0]), None, 1.5)
    >>> round(found["r2"], 3), found["baseline"]
    (-1.0, 0.5)
    """
    squares = (mean - y) ** 2
    spread = float(((y - y.mean()) ** 2).sum())
    scores = {
        "rmse": math.sqrt(squares.mean()),
        "r2": 1 - float(squares.sum()) / spread if spread > 0 else None,
        "baseline": math.sqrt(((y - usual) ** 2).mean()),
    }
    if ends is None:
        return scores
    low, high = ends
    inside = {"coverage": float(((low <= y) & (y <= high)).mean()), "interval_width": float((high - low).mean())}
    return scores | inside


def headline(scores: dict[str, Any], rows: int, names: list[str]) -> list[str]:
    """What is said of a classification: first what tells it from always saying the same class."""
    low, high = scores["accuracy_interval"]
    lines = [
        f"Accuracy on {rows} held-out rows: {scores['accuracy']:.3f} (95% interval {low:.3f} to {high:.3f}); "
        f"always saying the most frequent class: {scores['baseline']:.3f}."
    ]
    area = "" if scores["auc"] is None else f", area under the ROC curve {scores['auc']:.3f}"
    lines.append(
        f"Balanced accuracy {scores['balanced_accuracy']:.3f} (guessing: {1 / max(len(names), 1):.3f}), "
        f"log-loss {scores['log_loss']:.3f}, Brier score {scores['brier']:.3f}{area}."
    )
    missed = [one_line(name, 40) for name in scores["never_predicted"]]
    if missed:
        lines.insert(0, f"It never predicts {' or '.join(missed)}, although {_these(missed)} among the held-out rows.")
    return lines


def _these(names: list[str]) -> str:
    return "it is" if len(names) == 1 else "they are"


def wilson(right: int, n: int, z: float = 1.96) -> list[float]:
    """Wilson's interval of a share.

    >>> [round(end, 3) for end in wilson(9, 10)]
    [0.596, 0.982]
    """
    share, add = right / n, z * z / n
    centre, half = share + add / 2, z * math.sqrt(share * (1 - share) / n + add / (4 * n))
    return [(centre - half) / (1 + add), (centre + half) / (1 + add)]


def _auc(shares: Array, truth: Places, happened: Places) -> float | None:
    """Chance that a row of a class has a higher probability of it than a row of another one (Mann-Whitney)."""
    if len(happened) < 2:
        return None
    classes = happened if shares.shape[1] > 2 else np.array([1])
    return float(np.mean([_area(shares[:, k], truth == k) for k in classes]))


def _area(score: Array, yes: NDArray[np.bool_]) -> float:
    _, place, counts = np.unique(score, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[place]  # of equal scores the mean one
    count = int(yes.sum())
    return float((ranks[yes].sum() - count * (count + 1) / 2) / (count * (len(yes) - count)))
