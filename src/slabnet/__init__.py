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

from slabnet.core.threads import bound_waiting
from slabnet.core.version import __version__

bound_waiting()  # before torch is loaded

if TYPE_CHECKING:
    from slabnet import data, plots
    from slabnet.compact.folding import path_model
    from slabnet.compact.network import Compact, compact
    from slabnet.config.activations import ACTIVATIONS, Activation
    from slabnet.config.methods import METHODS
    from slabnet.config.settings import Beta, NetworkConfig, Prior, Recipe, Start, TrainConfig
    from slabnet.config.slabs import Laplace, ScaleMixture, SlabSettings, Student
    from slabnet.core.errors import ArgumentError, FileError, SlabnetError, TrainingDiverged
    from slabnet.core.records import Cut, Densities, Epoch, History, Prediction, Selection
    from slabnet.data.correlations import correlations
    from slabnet.estimators import SlabClassifier, SlabRegressor, load_estimator, save_estimator
    from slabnet.estimators.conformal import CrossConformal, cross_conformal
    from slabnet.estimators.pipelines import predict_distribution
    from slabnet.export import export
    from slabnet.model.activations import register_activation
    from slabnet.model.attach import likelihood_of
    from slabnet.model.convert import conversion, convert
    from slabnet.model.drawing import drawing, mean
    from slabnet.model.draws import (
        exact,
        fixed,
        local,
        median,
        median_drawn,
        register_draw,
        relaxed,
        score,
        straight_through,
    )
    from slabnet.model.elbo import RunningMean, elbo, kl
    from slabnet.model.gates import column_inclusion
    from slabnet.model.layers import Conv1d, Conv2d, Conv3d, Linear
    from slabnet.model.likelihoods import (
        Bernoulli,
        Categorical,
        Gamma,
        Gaussian,
        Heteroscedastic,
        InverseGamma,
        Likelihood,
        LogNormal,
        LogNormalResponse,
        NegativeBinomial,
        Ordinal,
        Poisson,
        StudentT,
        Target,
        Weibull,
        register_likelihood,
    )
    from slabnet.model.mixture import Mixture
    from slabnet.model.network import Network
    from slabnet.model.networks import convnet, mlp
    from slabnet.model.slabs import Slab, register_slab
    from slabnet.prediction.abstention import DoubtThreshold, calibrate_doubt
    from slabnet.prediction.coefficients import Coefficient, coefficients
    from slabnet.prediction.comparison import Compared, Comparison, compare
    from slabnet.prediction.curves import EffectCurve
    from slabnet.prediction.density import log_densities
    from slabnet.prediction.diagnostics import ParetoK, pareto_k
    from slabnet.prediction.evaluation import evaluate, register_metric
    from slabnet.prediction.evidence import Evidence, log_evidence
    from slabnet.prediction.explain import explain
    from slabnet.prediction.explanation import Explanation
    from slabnet.prediction.extrapolation import TrainingSupport
    from slabnet.prediction.importance import input_effects, input_reach, member_reach, prior_reach
    from slabnet.prediction.inspection import inspect_network
    from slabnet.prediction.metrics import (
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
    from slabnet.prediction.predict import predict
    from slabnet.prediction.stability import Stability, stability
    from slabnet.prediction.stacking import stack, stacking_weights
    from slabnet.prediction.structure import Structure, structure
    from slabnet.report.model_card import model_card
    from slabnet.report.write import write_report
    from slabnet.selection.criteria import criterion_model, dic, fic, waic
    from slabnet.selection.pruning import prune
    from slabnet.selection.refinement import refine
    from slabnet.selection.rules import InfeasibleModel, budget_model, median_model, most_probable_model
    from slabnet.store import load, load_selection, read_header, save, save_selection
    from slabnet.training.checkpoints import Checkpoints, Interrupted
    from slabnet.training.fit import fit
    from slabnet.training.trackers import to_mlflow, to_tensorboard

_WHERE = {
    "model.attach": ["likelihood_of"],
    "prediction.abstention": ["DoubtThreshold", "calibrate_doubt"],
    "training.checkpoints": ["Checkpoints", "Interrupted"],
    "core.errors": ["ArgumentError", "FileError", "SlabnetError", "TrainingDiverged"],
    "compact.network": ["Compact", "compact"],
    "config.settings": ["Beta", "NetworkConfig", "Prior", "Recipe", "Start", "TrainConfig"],
    "data.correlations": ["correlations"],
    "model.convert": ["conversion", "convert"],
    "selection.criteria": ["criterion_model", "dic", "fic", "waic"],
    "selection.refinement": ["refine"],
    "model.draws": [
        "exact",
        "fixed",
        "local",
        "median",
        "median_drawn",
        "register_draw",
        "relaxed",
        "score",
        "straight_through",
    ],
    "model.elbo": ["RunningMean", "elbo", "kl"],
    "estimators.conformal": ["CrossConformal", "cross_conformal"],
    "estimators": ["SlabClassifier", "SlabRegressor", "load_estimator", "save_estimator"],
    "estimators.pipelines": ["predict_distribution"],
    "export": ["export"],
    "compact.folding": ["path_model"],
    "prediction.curves": ["EffectCurve"],
    "prediction.explain": ["explain"],
    "prediction.explanation": ["Explanation"],
    "prediction.extrapolation": ["TrainingSupport"],
    "prediction.importance": ["input_effects", "input_reach", "member_reach", "prior_reach"],
    "prediction.inspection": ["inspect_network"],
    "model.gates": ["column_inclusion"],
    "model.layers": ["Conv1d", "Conv2d", "Conv3d", "Linear"],
    "model.likelihoods": [
        "Bernoulli",
        "Categorical",
        "Gamma",
        "Gaussian",
        "Heteroscedastic",
        "InverseGamma",
        "Likelihood",
        "LogNormal",
        "LogNormalResponse",
        "NegativeBinomial",
        "Ordinal",
        "Poisson",
        "StudentT",
        "Target",
        "Weibull",
        "register_likelihood",
    ],
    "prediction.metrics": [
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
    "config.activations": ["ACTIVATIONS", "Activation"],
    "model.activations": ["register_activation"],
    "config.methods": ["METHODS"],
    "model.mixture": ["Mixture"],
    "model.network": ["Network"],
    "model.networks": ["convnet", "mlp"],
    "config.slabs": ["Laplace", "ScaleMixture", "SlabSettings", "Student"],
    "model.slabs": ["Slab", "register_slab"],
    "prediction.predict": ["predict"],
    "selection.pruning": ["prune"],
    "core.records": ["Cut", "Densities", "Epoch", "History", "Prediction", "Selection"],
    "report.model_card": ["model_card"],
    "report.write": ["write_report"],
    "training.trackers": ["to_mlflow", "to_tensorboard"],
    "model.drawing": ["drawing", "mean"],
    "selection.rules": ["InfeasibleModel", "budget_model", "median_model", "most_probable_model"],
    "store": ["load", "load_selection", "read_header", "save", "save_selection"],
    "training.fit": ["fit"],
    "prediction.coefficients": ["Coefficient", "coefficients"],
    "prediction.diagnostics": ["ParetoK", "pareto_k"],
    "prediction.structure": ["Structure", "structure"],
    "prediction.stability": ["Stability", "stability"],
    "prediction.stacking": ["stack", "stacking_weights"],
    "prediction.density": ["log_densities"],
    "prediction.comparison": ["Compared", "Comparison", "compare"],
    "prediction.evaluation": ["evaluate", "register_metric"],
    "prediction.evidence": ["Evidence", "log_evidence"],
}
_MODULES = {name: module for module, names in _WHERE.items() for name in names}

__all__ = ["__version__", "data", *sorted(_MODULES)]


def __getattr__(name: str) -> Any:
    if name in ("data", "plots"):
        return importlib.import_module(f"slabnet.{name}")
    if name not in _MODULES:
        raise AttributeError(f"module 'slabnet' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"slabnet.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)


class _Package(ModuleType):
    """Importing `slabnet.prediction.predict` would put that module where the function `predict` belongs: not here."""

    def __setattr__(self, name: str, value: object) -> None:
        if not (name in _MODULES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
