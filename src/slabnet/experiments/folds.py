"""Cross-validation: the training rows of a data set, one part of them kept to be predicted."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from sklearn.model_selection import StratifiedKFold

from slabnet.core.errors import refuse
from slabnet.data import Split


def fold_of(split: Split, fold: int, folds: int) -> Split:
    """Fold number `fold`, from 0, of `folds`: the same rows for every method and seed, classes in equal shares.

    The test rows of the data set are left alone.

    >>> from slabnet.data import load
    >>> part = fold_of(load("digits"), 0, 5)
    >>> len(part.train[1]), len(part.test[1])
    (1149, 288)
    """
    x, y = split.train
    rarest = int(torch.bincount(y).clamp(min=1).min())
    if folds > rarest:
        refuse("reproduce", "--folds", f"at most {rarest}, the rows of the rarest class", folds)
    parts = StratifiedKFold(folds, shuffle=True, random_state=0).split(np.zeros(len(y)), y.numpy())
    train, test = (torch.from_numpy(rows) for rows in list(parts)[fold])
    return dataclasses.replace(split, train=(x[train], y[train]), test=(x[test], y[test]))
