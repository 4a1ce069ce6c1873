"""Estimators as model files: the network in tensors, all else as plain JSON beside it. Nothing is unpickled."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from slabnet.config.fit_card import EstimatorCard, FitCard, ScalingCard
from slabnet.core.errors import FileError, SlabnetError, one_line, refuse
from slabnet.core.records import Epoch, History
from slabnet.data.tabular import Table
from slabnet.estimators.base import SlabEstimator
from slabnet.estimators.classifier import SlabClassifier
from slabnet.estimators.effects import FeatureEffects
from slabnet.estimators.regressor import SlabRegressor
from slabnet.estimators.scaling import Scaling
from slabnet.estimators.tempering import Trial
from slabnet.model.mixture import members_in
from slabnet.model.networks import Network
from slabnet.prediction.background import ColumnPoints
from slabnet.prediction.conformal import Calibration
from slabnet.prediction.extrapolation import TrainingSupport
from slabnet.store import load_selection, load_with_header, save

MOST_DRAWS = 10_000  # that a file asks for with every prediction
KINDS_OF_LABELS = "biufUO"  # numbers, texts, and objects that are one of them
LONGEST_KIND = 20  # characters that name such a type
MOST_BYTES = 2**20  # that labels may take for being stored wider than the longest of them
PARAMS = (
    "members",
    "skip",
    "gates",
    "psi_gate",
    "psi",
    "sigma_beta",
    "epochs",
    "batch_size",
    "lr",
    "omega_lr",
    "standardize",
    "random_state",
    "verbose",
    "response",
)
KINDS: dict[str, type[SlabEstimator]] = {"classifier": SlabClassifier, "regressor": SlabRegressor}


def save_estimator(model: SlabEstimator, path: str | Path, **about: Any) -> None:
    """Write a fitted estimator to a `.slab` file; `about` (numbers, text, lists) is kept beside it.

    >>> import tempfile
    >>> x = np.arange(20.0)[:, None]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_estimator(SlabRegressor(hidden=(), epochs=2).fit(x, x[:, 0]), f"{folder}/m.slab")
    ...     type(load_estimator(f"{folder}/m.slab")).__name__
    'SlabRegressor'
    """
    if not hasattr(model, "network_"):
        refuse("save_estimator", "model", "a fitted estimator", type(model).__name__)
    if model.draws > MOST_DRAWS:
        refuse("save_estimator", "draws", f"at most {MOST_DRAWS} in a file", model.draws)
    names = getattr(model, "feature_names_in_", None)
    estimator: dict[str, Any] = {
        "kind": "classifier" if isinstance(model, SlabClassifier) else "regressor",
        "draws": int(model.draws),
        "seed": model._seed,
        "samples_seen": model.n_samples_seen_,
        "scaling_x": model.scaling_x_.to_dict(),
        "feature_effects": model.feature_effects_.sizes.tolist(),
        "signed_effects": model.feature_effects_.to_dict(),
        "named": names is not None,
        "hidden_given": model.hidden is not None,
        "params": {name: value for name in PARAMS if _is_plain(value := getattr(model, name))},
    }
    if model.support_ is not None:
        estimator["support"] = model.support_.to_dict()
    if model.background_ is not None:
        estimator["background"] = model.background_.to_dict()
    if model.trial_ is not None:
        estimator["trial"] = [model.trial_.kl_weight, list(model.trial_.phi), model.trial_.rows]
    if model.conformal_ is not None:
        estimator["conformal"] = model.conformal_.scores.tolist()
    if isinstance(model, SlabClassifier):
        estimator |= {"classes": model.classes_.tolist(), "classes_type": model.classes_.dtype.str}
    elif isinstance(model, SlabRegressor):
        estimator |= {"scaling_y": model.scaling_y_.to_dict(), "flat": model._flat, "rate": model.rate_}
        estimator |= {"response": [model.response_, model.response_why_]}
    last = model.history_.to_dict()["epochs"][-1]
    last.pop("seconds")  # the same fit gives the same bytes
    inputs = model._input_names()
    if model.table_ is not None:
        estimator["columns"] = model._column_names()
        about = {"table": model.table_.to_dict()} | about
    save(
        model.network_,
        path,
        selection=model.selection_,
        **{"estimator": estimator, "history": last, "epochs": model.history_.columns(), "input_names": inputs} | about,
    )


def load_estimator(path: str | Path) -> SlabEstimator:
    """Read what `save_estimator` wrote: an estimator that predicts as the saved one did."""
    net, header = load_with_header(path)
    card = FitCard.of(header, path)
    if card.estimator is None:
        refuse("load_estimator", "path", "the file of an estimator or of a fitted table", f"{path}, one without")
    assert isinstance(net, Network)
    try:
        model = _filled(net, card.estimator, card)
        model._take(model.network_, None if header.get("rule") is None else load_selection(path, net))
        model.conformal_ = _calibration(card.estimator.conformal)
    except SlabnetError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, OverflowError, MemoryError) as error:
        raise FileError(f"load_estimator: {path} must describe an estimator, got: {one_line(repr(error))}") from None
    return model


def _filled(net: Network, settings: EstimatorCard, card: FitCard) -> SlabEstimator:
    hidden, names = net.hidden, card.input_names or []
    if settings.kind is None or settings.draws is None or settings.seed is None or settings.samples_seen is None:
        raise ValueError("no kind, draws, seed or number of rows")
    for name, value, most in (
        ("draws", settings.draws, MOST_DRAWS),
        ("seed", settings.seed, 2**63),
        ("samples_seen", settings.samples_seen, 2**63),
    ):
        if not 0 <= value <= most:
            raise ValueError(f"{name} {one_line(value)}")
    options: dict[str, Any] = {"method": net.method.name, "activation": net.activation, "draws": settings.draws}
    options |= {"members": len(members_in(net)) or 1, "skip": net.skip, "gates": net.gates or False}
    options |= {name: value for name, value in settings.params.items() if name in PARAMS and _is_plain(value)}
    model = KINDS[settings.kind](hidden if settings.hidden_given else None, **options)
    model.network_, model._seed, model.n_samples_seen_ = net.double(), settings.seed, settings.samples_seen
    model.scaling_x_ = _scaling(settings.scaling_x)
    inputs = int(np.prod(net.row_shape or 0))
    if len(model.scaling_x_.scale) != inputs or len(names) != inputs:
        raise ValueError(f"{len(model.scaling_x_.scale)} scales for {inputs} inputs")
    model.table_ = None if settings.columns is None else Table.from_dict(card.table or {})
    if model.table_ is not None and len(model.table_.inputs) != inputs:
        raise ValueError(f"columns of {len(model.table_.inputs)} inputs for a network of {inputs}")
    columns = np.asarray(names if settings.columns is None else settings.columns, dtype=object)
    model.n_features_in_ = len(columns)
    if settings.named:
        model.feature_names_in_ = columns
    model.support_ = None if settings.support is None else TrainingSupport.from_dict(settings.support, inputs)
    model.background_ = None if settings.background is None else ColumnPoints.from_dict(settings.background, inputs)
    groups = list(model._named_groups())
    of_inputs = groups if settings.columns is None else names
    model.feature_effects_ = FeatureEffects.from_dict(
        groups, settings.feature_effects, of_inputs, settings.signed_effects
    )
    history = card.history or {}
    if not all(isinstance(value, (int, float, type(None))) for value in history.values()):
        raise ValueError("a history that holds other things than numbers")
    last = Epoch(**history | {"seconds": 0.0})
    model.history_ = History((last,), model.n_samples_seen_, 0, last.kl_weight)
    model.n_iter_, model.trial_ = last.epoch, _trial(settings.trial, net)
    if isinstance(model, SlabClassifier):
        model.classes_ = _classes(settings.classes or [], settings.classes_type or "")
        if model._response()[1] != net.outputs:
            raise ValueError(f"{len(model.classes_)} classes for {net.outputs} outputs")
    elif isinstance(model, SlabRegressor):
        model.scaling_y_, model._flat = _scaling(settings.scaling_y), settings.flat
        model.rate_ = _rate(settings.rate)
        name, why = settings.response or ["gaussian", "the default"]  # files of 0.1 have none
        if name != net.likelihood.name:
            raise ValueError(f"a response {one_line(name)} with the likelihood {net.likelihood.name}")
        model.response_, model.response_why_ = name, why
    return model


def _rate(value: float | None) -> float | None:
    """The mean rate that exposures are counted in; None where there are no counts."""
    if value is not None and not 0 < value < math.inf:
        raise ValueError(f"a rate {one_line(value)}")
    return value


def _scaling(card: ScalingCard | None) -> Scaling:
    if card is None:
        raise ValueError("no scaling")
    return Scaling.from_dict(card.model_dump())


def _is_plain(value: Any) -> bool:
    """Whether a parameter is one that a file can hold: None, a number, a word, or some of them."""
    if isinstance(value, (list, tuple)):
        return all(isinstance(part, (int, float)) for part in value)
    return value is None or isinstance(value, (bool, int, float, str))


def _trial(written: Any, net: Network) -> Trial | None:
    """What the trial had found; where a file does not say, the noise in the network is all there is."""
    if written is None:
        return None
    weight, phi, rows = written
    if (phi and len(phi) != net.outputs) or not all(0 < float(value) < math.inf for value in (weight, rows, *phi)):
        raise ValueError(f"a trial of {one_line(written)}")
    return Trial(float(weight), tuple(float(value) for value in phi), int(rows), {})


def _calibration(written: Any) -> Calibration | None:
    """Scores of the rows that calibrated; None where none did."""
    if written is None:
        return None
    scores = np.asarray(written, dtype=np.float64)
    if scores.ndim != 1 or not len(scores) or not (scores >= 0).all():
        raise ValueError(f"scores {one_line(written)}")
    return Calibration(scores)


def _classes(labels: list[Any], kind: str) -> Any:
    """The labels as an array of the type they had."""
    plain = all(isinstance(label, (str, int, float)) for label in labels)
    if not plain or len(set(labels)) != len(labels) or not isinstance(kind, str):
        raise ValueError(f"classes {one_line(labels)} of type {one_line(kind)}")
    wanted = np.dtype(kind) if len(kind) <= LONGEST_KIND else np.dtype("V")
    if wanted.kind not in KINDS_OF_LABELS or wanted.shape:
        raise ValueError(f"classes of type {one_line(kind)}")
    if wanted.kind == "U" and wanted.itemsize * len(labels) > MOST_BYTES:
        return np.asarray(labels, dtype=np.str_)
    return np.asarray(labels, dtype=wanted)
