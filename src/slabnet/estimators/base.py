"""What both estimators share: from arrays to a fitted network, and from a network to what is asked of it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.feature_selection import SelectorMixin
from sklearn.utils import check_random_state
from sklearn.utils.metaestimators import available_if
from sklearn.utils.validation import check_is_fitted

from slabnet.compact.network import Compact, compact
from slabnet.config.activations import Activations
from slabnet.config.methods import METHODS
from slabnet.config.resolve import table_hidden, table_prior, table_structure, table_training
from slabnet.config.settings import Prior, Start, TrainConfig
from slabnet.core.errors import check_choice, check_whole, refuse
from slabnet.core.records import Prediction, Selection
from slabnet.data.dependence import INDEPENDENT, Dependence, check_dependence
from slabnet.estimators.checks import check_settings
from slabnet.estimators.chosen import KnowsModel
from slabnet.estimators.conformal import Calibrates
from slabnet.estimators.effects import FeatureEffects
from slabnet.estimators.responses import NOTHING, Given
from slabnet.estimators.scaling import Array, Scaling
from slabnet.estimators.summarises import Summarises
from slabnet.estimators.tempering import Keeping, Trial
from slabnet.estimators.units import KnowsUnits
from slabnet.estimators.warnings import warn_of_table
from slabnet.model.drawing import Draw
from slabnet.model.draws import exact, fixed
from slabnet.model.likelihoods import Likelihood, Target
from slabnet.model.mixture import Mixture
from slabnet.model.networks import Network, mlp
from slabnet.prediction.beyond import extend
from slabnet.prediction.density import ScoresRows
from slabnet.prediction.importance import Slopes, input_slopes
from slabnet.prediction.predict import predict
from slabnet.selection.rules import (
    budget_model,
    describe,
    median_model,
    most_probable_model,
)
from slabnet.training.batches import Rows
from slabnet.training.checkpoints import Checkpoints
from slabnet.training.fit import fit
from slabnet.training.progress import Show

EFFECT_ROWS, EFFECT_DRAWS = 200, 50
RULES = ("median", "threshold", "budget", "most probable")


class SlabEstimator(ScoresRows, Calibrates, KnowsUnits, KnowsModel, Summarises, SelectorMixin, BaseEstimator):  # type: ignore[misc]
    """A spike-and-slab network behind the interface of scikit-learn.

    As a transformer it hands on the selected inputs only.
    """

    network_: Network
    selection_: Selection | None
    compact_: Compact | Mixture | None
    trial_: Trial | None

    def __init__(
        self,
        hidden: Sequence[int] | None = None,
        *,
        method: str = "lbbnn",
        activation: Activations = "relu",
        skip: bool | None = None,
        gates: str | Sequence[str] | bool | None = None,
        psi_gate: Any = None,
        psi: Any = None,
        sigma_beta: Any = 1.0,
        prior: Prior | None = None,
        start: Start | None = None,
        options: dict[str, float] | None = None,
        members: int | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        lr: float | None = None,
        omega_lr: float | None = None,
        config: TrainConfig | None = None,
        response: str | None = None,
        draws: int = 100,
        standardize: bool = True,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.hidden = hidden
        self.method = method
        self.activation = activation
        self.skip = skip
        self.gates = gates
        self.psi_gate = psi_gate
        self.psi = psi
        self.sigma_beta = sigma_beta
        self.prior = prior
        self.start = start
        self.options = options
        self.members = members
        self.epochs = epochs
        self.batch_size = batch_size
        self.lr = lr
        self.omega_lr = omega_lr
        self.config = config
        self.response = response
        self.draws = draws
        self.standardize = standardize
        self.random_state = random_state
        self.verbose = verbose

    # What the two estimators say about their response.

    def _read(self, X: Any, y: Any, reset: bool, classes: Any = None, given: Given = NOTHING) -> tuple[Array, Any]:
        """X and y of a fit, y as the likelihood takes it (a `Target` where rows say more), and what is learned of y."""
        raise NotImplementedError(f"{type(self).__name__} must read its data")

    def _response(self) -> tuple[Likelihood | str, int]:
        """The likelihood or its name, and the number of outputs."""
        raise NotImplementedError(f"{type(self).__name__} must name its likelihood")

    # Fitting.

    def fit(
        self,
        X: Any,
        y: Any,
        groups: Any = None,
        times: Any = None,
        *,
        sample_weight: Any = None,
        exposure: Any = None,
        event: Any = None,
    ) -> Self:
        """Fit the network to a table `X` and the responses `y`.

        groups: a label for each row, where rows of one label depend on each other; times: a number for each row. Where
            some rows are held out to decide on settings, they are whole groups, or the latest rows.
        sample_weight: how often each row counts. exposure: over how much time, area or people a count was taken.
        event: for times, 1 where the event was seen and 0 where the row was cut off before it.
        """
        return self._fit(X, y, Dependence.of(groups, times), given=Given(sample_weight, exposure, event))

    def _fit(
        self,
        X: Any,
        y: Any,
        dependence: Dependence = INDEPENDENT,
        checkpoint: Checkpoints | None = None,
        resume: bool = False,
        given: Given = NOTHING,
    ) -> Self:
        before = dict(self.__dict__)
        try:
            return self._fit_anew(X, y, dependence, checkpoint, resume, given)
        except BaseException:  # what was fitted before stays as it was
            self.__dict__ = before
            raise

    def _fit_anew(
        self,
        X: Any,
        y: Any,
        dependence: Dependence,
        checkpoint: Checkpoints | None,
        resume: bool,
        given: Given,
    ) -> Self:
        table, target = self._read(X, y, reset=True, given=given)
        check_dependence("fit", len(table), dependence.groups, dependence.times)
        self._start(table, target.weight if isinstance(target, Target) else None)
        rows = (self._scale_x(table), target)
        config = self._training(len(table))
        self.trial_ = self._try_out(*rows, config, Keeping(self._show(), checkpoint, resume), dependence)
        if self.trial_ is not None:
            config = config.model_copy(update={"kl_weight": self.trial_.kl_weight})
        self.history_ = fit(self.network_, rows, config, progress=self._show(), checkpoint=checkpoint, resume=resume)
        return self._finish(table, len(table))

    def _try_out(self, x: Array, y: Any, config: TrainConfig, keeping: Keeping, dependence: Dependence) -> Trial | None:
        """What some rows say before all of them are fitted; None where nothing is asked of them."""
        return None

    def _tried_on(self, x: Array, y: Any) -> Trial | None:
        """What the trial says once rows that come now, and were not fitted yet, have been looked at too."""
        return self.trial_

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Self:
        """Go on with new rows: the first call is a whole fit, later ones pass once over the rows they are given.

        Every row counts as one of all the rows seen so far, and step sizes are those of the fit times the share that
        the new rows are of them: a single row moves little. Columns keep the scale of the first call, and the KL keeps
        its weight. classes: all the labels that will ever come, where the first rows do not hold them all.
        """
        if not hasattr(self, "network_"):
            self._known_classes = classes
            try:
                return self.fit(X, y)
            finally:
                del self._known_classes
        if self.selection_ is not None:
            refuse("partial_fit", "estimator", "one whose structure is still open", "a sparsified one")
        table, target = self._read(X, y, reset=False, classes=classes)
        seen = self.n_samples_seen_ + len(table)
        config = self._as_tempered(self._training(len(table)))
        share = len(table) / seen
        going_on = {"epochs": 1, "ramp_epochs": 0, "omega_hold": 0, "schedule": "constant"}
        going_on |= {"lr": config.lr * share, "omega_lr": config.omega_lr * share}
        config = config.model_copy(update=going_on)
        values, size = self._scale_x(table), config.batch_size
        self.trial_ = self._tried_on(values, target)
        parts = Rows([(values[i : i + size], target[i : i + size]) for i in range(0, len(values), size)])
        more = fit(self.network_, parts, config, n=seen, progress=self._show())
        self.history_ = replace(more, epochs=(*self.history_.epochs, *more.epochs))
        return self._finish(table, seen)

    def _start(self, table: Array, weight: Any = None) -> None:
        """A fresh network for this table, once every parameter has been looked at."""
        n, p = table.shape
        check_choice(type(self).__name__, "method", self.method, METHODS)
        check_whole(type(self).__name__, "draws", self.draws, at_least=1)
        check_settings(type(self).__name__, self.standardize, self.verbose, self.config, self.start)
        self._seed = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        likelihood, outputs = self._response()
        hidden = table_hidden(n, p, self.hidden)
        if isinstance(hidden, bool) or not isinstance(hidden, (int, np.integer, tuple, list)):
            refuse(type(self).__name__, "hidden", "widths, as in (50,) or (100, 50)", hidden)
        widths = (int(hidden),) if isinstance(hidden, (int, np.integer)) else tuple(hidden)
        open_prior = self.prior is None and self.psi is None
        shape = table_structure(n, p, widths, self.method, open_prior, self.skip, self.gates, self.members)
        psi = 0.5 if self.psi is None and shape.gates else self.psi
        net = mlp(
            (p, *widths, outputs),
            activation=self.activation,
            method=self.method,
            column_groups=self._gate_groups(shape.gates),
            psi_gate=self.psi_gate,
            prior=table_prior(n, p, len(widths) + 1, self.prior, psi, self.sigma_beta),
            start=self.start,
            likelihood=likelihood,
            options=self.options,
            **shape._asdict(),
            seed=self._seed,
        )
        warn_of_table(table, self._input_names())
        self.scaling_x_ = Scaling.of(table, weight) if self.standardize else Scaling.none(p)
        self._take(net, None)

    def _training(self, n: int) -> TrainConfig:
        """The rule for tables, over which go `config` and what was said one by one."""
        arguments = {"epochs": self.epochs, "batch_size": self.batch_size, "lr": self.lr, "omega_lr": self.omega_lr}
        return table_training(n, self.n_features_in_, self.config, arguments, self._seed, type(self).__name__)

    def _as_tempered(self, config: TrainConfig) -> TrainConfig:
        """The settings with the weight that the KL had in the fit."""
        return config.model_copy(update={"kl_weight": self.history_.kl_weight})

    def _finish(self, table: Array, seen: int) -> Self:
        self.n_samples_seen_, self.conformal_ = seen, None  # what rows said of an earlier fit
        self.n_iter_ = len(self.history_)
        self._keep_noise(self.network_)
        self.network_ = self.network_.cpu().double().eval()  # an answer then does not depend on how rows are grouped
        extend(self.network_, self._scale_x(table), self._seed)
        rows = table[:: max(1, len(table) // EFFECT_ROWS)][:EFFECT_ROWS]
        self.feature_effects_ = self._effects_of(rows)
        self._summarise(table, self._input_shares(), more=seen > len(table))
        return self

    def _keep_noise(self, net: Network, lower: bool = True) -> None:
        """The noise of rows that were not fitted, in place of that of residuals, or (`lower` False) the larger one."""
        if self.trial_ is not None and self.trial_.phi:
            residual = [0.0 if lower else phi for phi in net.likelihood.noise_variances()]
            phi = [max(pair) for pair in zip(self.trial_.phi, residual, strict=True)]
            net.likelihood.set_noise(phi, self.trial_.rows)

    def _show(self) -> Show:
        return "lines" if self.verbose else "off"

    # Choosing one model.

    # Before a fit scikit-learn would take it for the method of linear models that makes coef_ sparse.
    @available_if(lambda model: hasattr(model, "network_"))  # type: ignore[untyped-decorator]
    def sparsify(
        self,
        rule: str = "median",
        *,
        threshold: float = 0.5,
        weights: int | None = None,
        density: float | None = None,
        data: tuple[Any, Any] | None = None,
        epochs: int | None = None,
    ) -> Self:
        """A fitted estimator of one chosen model, whose small network `compact_` predicts; this one stays as it is.

        rule: "median" or "threshold" (every weight whose inclusion probability exceeds `threshold`), "budget" (the
            `weights`, or the share `density`, of largest probability) or "most probable". Where no input would reach
            an output, the most probable path is added.
        data: (X, y) on which the chosen weights are trained further, for `epochs` (by default a quarter of the rule's).
            Without it weights and noise stay those of the whole network: give it where the rule takes much away.
        """
        check_is_fitted(self)
        check_choice("sparsify", "rule", rule, RULES)
        if not self.network_.method.selects:
            can = ", ".join(name for name, method in METHODS.items() if method.selects)
            refuse("sparsify", "method", f"one that selects ({can})", self.method)
        net = copy.deepcopy(self.network_)
        if rule == "budget":
            chosen = budget_model(net, weights=weights, density=density, infeasible="path")
        elif rule == "most probable":
            chosen = most_probable_model(net)
        else:
            chosen = median_model(net, threshold, infeasible="path")
        small = copy.copy(self)
        if epochs is not None:
            check_whole("sparsify", "epochs", epochs, at_least=1)
        if data is not None and (not isinstance(data, (tuple, list)) or len(data) != 2):
            refuse("sparsify", "data", "a pair (X, y)", type(data).__name__)
        if data is not None:
            table, target = small._read(*data, reset=False)
            config = self._as_tempered(self._training(len(table)))
            config = config.model_copy(update={"epochs": epochs or max(1, config.epochs_for(len(table)) // 4)})
            fit(net, (self._scale_x(table), target), config, fixed=chosen, progress=self._show())
            self._keep_noise(net, lower=False)
            net = net.cpu().double().eval()
        small._take(net, describe(net, chosen.masks, chosen.rule, chosen.threshold))
        reached = small._get_support_mask()
        effects = self.feature_effects_ if data is None else small._effects_of(table[:EFFECT_ROWS])
        small.feature_effects_ = effects.only(reached, small._inputs_reached())
        small.support_ = None if self.support_ is None else self.support_.only(small._inputs_reached())
        return small

    def _take(self, net: Network, selection: Selection | None) -> None:
        """This network, or the model chosen from it, which then predicts without what is not in it."""
        self.network_, self.selection_, self.conformal_ = net, selection, None
        self.compact_ = None if selection is None else compact(net, selection, "distribution")

    # Predicting.

    def _draw(self) -> Draw:
        return exact if self.selection_ is None else fixed(self.selection_.masks, exact)

    def _exposures(self, exposure: Any, rows: int) -> Any:
        """What the network takes as exposure, where it takes one."""
        return exposure

    def _predict(self, X: Any, exposure: Any = None, **options: Any) -> Prediction:
        """The averaged prediction for rows of the user's table, in the network's own scale."""
        table = self._check_x(X)
        exposure = self._exposures(exposure, len(table))
        options |= {"seed": self._seed, "exposure": exposure}
        prediction = predict(self._predictor(), self._scale_x(table), self.draws, **options)
        outside = self._outside(table, X)
        return replace(prediction, extrapolates=None if outside is None else torch.as_tensor(outside))

    def _predictor(self) -> Network:
        return self.network_ if self.compact_ is None else self.compact_

    def _check_x(self, X: Any) -> Array:
        check_is_fitted(self)
        return self._inputs(X, reset=False)

    def _scale_x(self, table: Array) -> Array:
        return self.scaling_x_.apply(table)

    def _effects_of(self, table: Array) -> FeatureEffects:
        """How far the answers move with each column, at these rows."""
        sizes, signed, outputs = self._effects(self._slopes(table))
        columns = list(self._named_groups())
        inputs = self._input_names() if self.table_ is not None or len(columns) != signed.shape[2] else columns
        return FeatureEffects.of(columns, self._by_column(sizes), inputs, outputs, signed)

    def _slopes(self, table: Array) -> Slopes:
        """(outputs, inputs) in the network's own scale."""
        values = self._scale_x(table)
        return input_slopes(self._predictor(), values, EFFECT_DRAWS, seed=self._seed)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        tags.target_tags.required = True
        return tags
