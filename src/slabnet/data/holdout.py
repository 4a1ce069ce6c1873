"""Which rows of a table are held out to test a fit: a function of the answers, the share and the seed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slabnet.data.cells import as_label, is_missing, says_none


def split_rows(y: NDArray[Any], classes: bool, share: float, seed: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Positions of the training and the test rows; every class keeps its share where it has enough rows.

    >>> train, test = split_rows(np.array(["a", "a", "a", "b", "b"]), True, 0.4, 0)
    >>> len(train), len(test)
    (3, 2)
    """
    order = np.random.default_rng(seed).permutation(len(y))
    if not classes:
        count = round(share * len(y))
        return np.sort(order[count:]), np.sort(order[:count])
    test: list[int] = []
    for label in np.unique(y):
        rows = order[y[order] == label]
        test += rows[: min(round(share * len(rows)), len(rows) - 1)].tolist()
    aside = np.array(sorted(test), dtype=int)
    return np.setdiff1d(np.arange(len(y)), aside), aside


def with_answers(answers: Sequence[Any], classes: bool) -> list[int]:
    """Positions of the rows whose answer is known: the word "none" is a class, and no number.

    >>> with_answers(["1", "", "none", "2"], classes=False)
    [0, 3]
    """
    return [i for i, v in enumerate(answers) if not (is_missing(v) or (not classes and says_none(v)))]


def held_out(job: Any, path: Path, answers: Sequence[Any], classes: bool) -> NDArray[np.int64] | None:
    """Positions of the rows that were held out, in the very file that `job` fitted; None for any other file.

    answers: the target column of that file, row by row.
    """
    if not isinstance(job, Mapping) or job.get("sha256") != hashlib.sha256(path.read_bytes()).hexdigest():
        return None
    known = np.array(with_answers(answers, classes), dtype=np.int64)
    y = np.array([as_label(answers[i]) if classes else 0 for i in known])
    aside: NDArray[np.int64] = known[split_rows(y, classes, float(job["test_size"]), int(job["seed"]))[1]]
    return aside
