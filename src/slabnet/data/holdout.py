"""Which rows of a table are held out: a function of the answers, the share, the seed, and what makes rows depend.

Rows of one group are never on both sides, and with times the rows held out are the last ones.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slabnet.core.errors import check_whole, refuse
from slabnet.data.cells import as_label, is_missing, says_none
from slabnet.data.dependence import Rows, check_dependence, dependence_of


def split_rows(
    y: Rows, classes: bool, share: float, seed: int, groups: Rows | None = None, times: Rows | None = None
) -> tuple[Rows, Rows]:
    """Positions of the training and the test rows; every class keeps its share where it has enough rows.

    groups: a label for each row; whole groups are held out, at random, until they hold the share. times: a number for
        each row; those from some time on are held out. Either decides alone, whatever the classes.

    >>> train, test = split_rows(np.array(["a", "a", "a", "b", "b"]), True, 0.4, 0)
    >>> len(train), len(test)
    (3, 2)
    >>> split_rows(np.zeros(4), False, 0.5, 0, times=np.array([3, 1, 2, 3]))[1].tolist()
    [0, 3]
    """
    check_dependence("split_rows", len(y), groups, times)
    if groups is not None:
        return _by_mask(_last_groups(groups, share, seed))
    if times is not None:
        return _by_mask(_from_some_time(times, share))
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


def held_out(
    job: Any, path: Path, answers: Sequence[Any], classes: bool, columns: Mapping[str, Sequence[Any]]
) -> NDArray[np.int64] | None:
    """Positions of the rows that were held out, in the very file that `job` fitted; None for any other file.

    answers: the target column of that file, row by row; columns: those of groups or times, if one decided the split.
    """
    if not isinstance(job, Mapping) or job.get("sha256") != hashlib.sha256(path.read_bytes()).hexdigest():
        return None
    known = np.array(with_answers(answers, classes), dtype=np.int64)
    y = np.array([as_label(answers[i]) if classes else 0 for i in known])
    some = {name: [values[i] for i in known] for name, values in columns.items()}
    depends = dependence_of(some, job.get("group"), job.get("time"), (known + 1).tolist(), "held_out")
    share, seed = float(job["test_size"]), int(job["seed"])
    aside: NDArray[np.int64] = known[split_rows(y, classes, share, seed, depends.groups, depends.times)[1]]
    return aside


def fold_numbers(rows: int, folds: int, seed: int, groups: Rows | None = None) -> Rows:
    """The fold of each row, as even as may be; the rows of a group share theirs.

    >>> np.bincount(fold_numbers(7, 3, 0)).tolist()
    [3, 2, 2]
    """
    check_whole("fold_numbers", "folds", folds, at_least=2)
    check_dependence("fold_numbers", rows, groups, None)
    labels = np.arange(rows) if groups is None else np.unique(groups, return_inverse=True)[1]
    count = int(labels.max()) + 1
    if count < folds:
        refuse("fold_numbers", "folds", f"at most the {count} {'rows' if groups is None else 'groups'}", folds)
    of_label = np.empty(count, dtype=int)
    of_label[np.random.default_rng(seed).permutation(count)] = np.arange(count) % folds
    return of_label[labels]


def one_of_each(groups: Rows | None, rows: int, seed: int) -> Rows:
    """Positions of rows that do not depend on each other: all of them, or one at random of each group."""
    if groups is None:
        return np.arange(rows)
    order = np.random.default_rng(seed).permutation(rows)
    return np.sort(order[np.unique(np.asarray(groups)[order], return_index=True)[1]])


def _last_groups(groups: Rows, share: float, seed: int) -> Rows:
    labels, inverse, counts = np.unique(groups, return_inverse=True, return_counts=True)
    order = np.random.default_rng(seed).permutation(len(labels))
    before = np.concatenate([[0], counts[order].cumsum()[:-1]])
    chosen = order[before < round(share * len(groups))][: len(labels) - 1]  # somebody is left to train on
    return np.isin(inverse, chosen)


def _from_some_time(times: Rows, share: float) -> Rows:
    count = round(share * len(times))
    if count == 0:
        return np.zeros(len(times), dtype=bool)
    aside = np.asarray(times >= np.sort(times)[-count])
    if aside.all():
        refuse("split_rows", "times", "of more than one moment", "one moment for so many rows that none is left to fit")
    return aside


def _by_mask(aside: Rows) -> tuple[Rows, Rows]:
    return np.flatnonzero(~aside), np.flatnonzero(aside)
