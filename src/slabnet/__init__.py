"""slabnet: Bayesian neural networks that are uncertain about their own structure as well as their weights.

Names are loaded when they are first used, so that `import slabnet` does not load torch.

>>> import slabnet as sn
>>> net = sn.mlp((64, 100, 10))
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

from slabnet.version import __version__

if TYPE_CHECKING:
    from slabnet import data
    from slabnet.attach import likelihood_of
    from slabnet.calibration import DoubtThreshold, calibrate_doubt
    from slabnet.checkpoints import Checkpoints, Interrupted
    from slabnet.checks import ArgumentError, FileError, SlabnetError, TrainingDiverged
    from slabnet.compact import Compact, compact
    from slabnet.config import Beta, NetworkConfig, Prior, Recipe, Start, TrainConfig
    from slabnet.convert import conversion, convert
    from slabnet.criteria import criterion_model, dic, fic, waic
    from slabnet.draws import exact, fixed, local, median, median_drawn, relaxed, score, straight_through
    from slabnet.elbo import RunningMean, elbo, kl
    from slabnet.estimators import SlabClassifier, SlabRegressor, load_estimator, save_estimator
    from slabnet.export import export
    from slabnet.folding import path_model
    from slabnet.importance import input_effects, input_reach, prior_reach
    from slabnet.inspection import inspect_network
    from slabnet.layers import Conv1d, Conv2d, Conv3d, Linear
    from slabnet.likelihoods import Bernoulli, Categorical, Gaussian, InverseGamma, LogNormal
    from slabnet.methods import METHODS, ScaleMixture
    from slabnet.metrics import (
        accuracy,
        accuracy_with_doubt,
        brier,
        calibration_error,
        crps,
        interval_coverage,
        negative_log_likelihood,
        out_of_domain,
        reliability,
        risk_coverage,
        rmse,
    )
    from slabnet.networks import Network, convnet, mlp
    from slabnet.predict import predict
    from slabnet.pruning import prune
    from slabnet.records import Cut, Densities, Epoch, History, Prediction, Selection
    from slabnet.report.write import write_report
    from slabnet.scopes import drawing, mean
    from slabnet.select import InfeasibleModel, budget_model, median_model, most_probable_model
    from slabnet.store import load, load_selection, read_header, save, save_selection
    from slabnet.train import fit
    from slabnet.trust import Coefficient, ParetoK, Stability, coefficients, pareto_k, stability

_WHERE = {
    "attach": ["likelihood_of"],
    "calibration": ["DoubtThreshold", "calibrate_doubt"],
    "checkpoints": ["Checkpoints", "Interrupted"],
    "checks": ["ArgumentError", "FileError", "SlabnetError", "TrainingDiverged"],
    "compact": ["Compact", "compact"],
    "config": ["Beta", "NetworkConfig", "Prior", "Recipe", "Start", "TrainConfig"],
    "convert": ["conversion", "convert"],
    "criteria": ["criterion_model", "dic", "fic", "waic"],
    "draws": ["exact", "fixed", "local", "median", "median_drawn", "relaxed", "score", "straight_through"],
    "elbo": ["RunningMean", "elbo", "kl"],
    "estimators": ["SlabClassifier", "SlabRegressor", "load_estimator", "save_estimator"],
    "export": ["export"],
    "folding": ["path_model"],
    "importance": ["input_effects", "input_reach", "prior_reach"],
    "inspection": ["inspect_network"],
    "layers": ["Conv1d", "Conv2d", "Conv3d", "Linear"],
    "likelihoods": ["Bernoulli", "Categorical", "Gaussian", "InverseGamma", "LogNormal"],
    "metrics": [
        "accuracy",
        "accuracy_with_doubt",
        "brier",
        "calibration_error",
        "crps",
        "interval_coverage",
        "negative_log_likelihood",
        "out_of_domain",
        "reliability",
        "risk_coverage",
        "rmse",
    ],
    "methods": ["METHODS", "ScaleMixture"],
    "networks": ["Network", "convnet", "mlp"],
    "predict": ["predict"],
    "pruning": ["prune"],
    "records": ["Cut", "Densities", "Epoch", "History", "Prediction", "Selection"],
    "report.write": ["write_report"],
    "scopes": ["drawing", "mean"],
    "select": ["InfeasibleModel", "budget_model", "median_model", "most_probable_model"],
    "store": ["load", "load_selection", "read_header", "save", "save_selection"],
    "train": ["fit"],
    "trust": ["Coefficient", "ParetoK", "Stability", "coefficients", "pareto_k", "stability"],
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names}

__all__ = ["__version__", "data", *sorted(_MODULES)]


def __getattr__(name: str) -> Any:
    if name == "data":
        return importlib.import_module("slabnet.data")
    if name not in _MODULES:
        raise AttributeError(f"module 'slabnet' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"slabnet.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)


class _Package(ModuleType):
    """Importing `slabnet.predict` would put that module where the function `predict` belongs: not here."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _MODULES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
