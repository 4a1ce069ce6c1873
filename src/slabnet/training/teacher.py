"""A teacher: predictions of something fitted before, from which a network learns beside y (distillation)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch

from slabnet.core.errors import check_number, refuse
from slabnet.model.likelihoods import Target
from slabnet.training.batches import Data, as_tensor, is_pair


@runtime_checkable
class Classifies(Protocol):
    """What gives probabilities of the classes, as scikit-learn's classifiers do."""

    def predict_proba(self, X: Any, /) -> Any: ...


@runtime_checkable
class Predicts(Protocol):
    """What gives a number for each row, as scikit-learn's regressors do."""

    def predict(self, X: Any, /) -> Any: ...


Teacher = Classifies | Predicts | np.ndarray | torch.Tensor


def taught(train: Data, teacher: Teacher, share: float) -> Data:
    """The same rows, with what the teacher expects of each and how much that counts."""
    check_number("fit", "teacher_share", share, above=0, at_most=1)
    if not is_pair(train):
        refuse("fit", "teacher", "used with (x, y); batches may give Target(y, soft=..., soft_share=...)", "batches")
    x, y = train
    soft = as_tensor(predictions_of(teacher, x), "fit", "teacher").detach().cpu()
    target = y if isinstance(y, Target) else Target(as_tensor(y, "fit", "y"))
    return x, replace(target, soft=soft, soft_share=torch.full((len(soft),), float(share)))


def predictions_of(teacher: Teacher, x: Any) -> Any:
    """What the teacher says of rows `x`."""
    if isinstance(teacher, torch.Tensor | np.ndarray):
        return teacher
    rows = x.detach().cpu().numpy() if isinstance(x, torch.Tensor) else np.asarray(x)
    if isinstance(teacher, Classifies):
        return teacher.predict_proba(rows.reshape(len(rows), -1))
    if isinstance(teacher, Predicts):
        return teacher.predict(rows.reshape(len(rows), -1))
    refuse("fit", "teacher", "something with predict_proba or predict, or predictions", type(teacher).__name__)
