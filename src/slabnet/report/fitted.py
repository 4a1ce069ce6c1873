"""A fitted estimator as the subject of a page, in the units and columns of the user's table."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from slabnet.core.errors import refuse
from slabnet.estimators import SlabClassifier, SlabRegressor
from slabnet.estimators.base import SlabEstimator
from slabnet.report.subject import Rows, Subject


def subject_of(model: SlabEstimator, test: tuple[Any, Any] | None, title: str, target: str | None) -> Subject:
    """What a page says of `model`; test: (X, y) as its `fit` takes them, rows that were not fitted."""
    known = model.wrapped()
    return Subject(
        net=known.net,
        title=title,
        test=None if test is None else _rows(model, test),
        selection=model.selection_,
        epochs=model.history_.columns(),
        input_names=known.inputs,
        class_names=[str(label) for label in model.classes_] if isinstance(model, SlabClassifier) else None,
        target=target,
        scale_x=model.scaling_x_,
        scale_y=model.scaling_y_ if isinstance(model, SlabRegressor) else None,
        settings={name: value for name, value in model.get_params().items() if value is not None},
        seed=model._seed,
        draws=model.draws,
        draws_seed=model._seed,
        effects=model.feature_effects_.sizes.tolist(),
        signed_effects=model.feature_effects_,
        rate=model.rate_ if isinstance(model, SlabRegressor) else None,
    )


def _rows(model: SlabEstimator, test: tuple[Any, Any]) -> Rows:
    """Rows and answers as the network takes them."""
    X, y = test
    rows = torch.as_tensor(model._scale_x(model._check_x(X)))
    answers = np.asarray(y)
    if len(answers) != len(rows):
        refuse("write_report", "y", f"as long as X, {len(rows)} rows", f"{len(answers)} rows")
    if isinstance(model, SlabClassifier):
        places = np.searchsorted(model.classes_, answers).clip(max=len(model.classes_) - 1)
        strange = answers[model.classes_[places] != answers]
        if len(strange):
            refuse("write_report", "y", "labels that were fitted", repr(strange.tolist()[0]))
        return rows, torch.as_tensor(places)
    assert isinstance(model, SlabRegressor)
    return rows, torch.as_tensor(model.scaling_y_.apply(answers.astype(np.float64).reshape(len(rows), -1)))
