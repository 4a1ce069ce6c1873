"""A threshold for the doubt decision that keeps a promise about accuracy, with a bound that is valid.

Looking for the lowest threshold at which the validation accuracy is high enough, and quoting that accuracy, is
optimistic: the threshold was chosen on the same rows. Fixed-sequence testing (learn then test) is not.
"""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from slabnet.core.errors import check_number, refuse
from slabnet.core.records import Prediction

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
    prediction: Prediction, y: Tensor, accuracy: float = 0.99, confidence: float = 0.95
) -> DoubtThreshold:
    """The lowest threshold at which accuracy among the decided is at least `accuracy`, with `confidence`.

    For a fixed threshold the errors among the decided are binomial, so P(Bin(decided, 1 - accuracy) <= errors) is a
    valid p-value of "accuracy is lower". Thresholds are tested in an order fixed beforehand, from high to low, from
    several starts that share the error budget, each until its first failure: the chance of any false promise is
    at most 1 - confidence (Angelopoulos et al. 2021, fixed-sequence testing).
    """
    check_number("calibrate_doubt", "accuracy", accuracy, above=0, below=1)
    check_number("calibrate_doubt", "confidence", confidence, above=0, below=1)
    if len(prediction.mean) != len(y):
        refuse("calibrate_doubt", "y", f"as long as the prediction, {len(prediction.mean)} rows", f"{len(y)} rows")
    sure = prediction.confidence.reshape(-1).double()
    wrong = prediction.labels.reshape(-1) != y.reshape(-1)
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


def _p_value(decided: int, errors: int, error_rate: float) -> float:
    """P(Binomial(decided, error_rate) <= errors)."""
    if decided == 0:
        return 1.0
    from scipy.stats import binom  # comes with scikit-learn; slow to import

    return float(binom.cdf(errors, decided, error_rate))
