"""`SlabRegressor`: numbers, with the noise learned and intervals that cover."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_array, check_consistent_length, check_is_fitted, column_or_1d

from slabnet.config.settings import TrainConfig
from slabnet.core.errors import check_choice, check_number, refuse
from slabnet.core.figures import written
from slabnet.core.records import Prediction
from slabnet.data.dependence import Dependence
from slabnet.estimators.base import SlabEstimator
from slabnet.estimators.checks import look_at_numbers
from slabnet.estimators.conformal import METHODS
from slabnet.estimators.distribution import PredictedDistribution
from slabnet.estimators.responses import (
    NOTHING,
    Given,
    Sides,
    check_columns,
    scaling_of_response,
    taken_response,
)
from slabnet.estimators.scaling import Array, Scaling
from slabnet.estimators.tempering import KL_WEIGHTS, MOST_ASIDE, Keeping, Trial, noise_around, try_out, worth_trying
from slabnet.estimators.warnings import warn_of_target
from slabnet.model.likelihoods import LIKELIHOODS, Likelihood, Point, Target
from slabnet.model.mixture import members_in
from slabnet.prediction.explain import Scale
from slabnet.prediction.importance import Slopes
from slabnet.prediction.metrics import row_log_densities
from slabnet.prediction.predict import predict as predict_network

FEWEST_EVENTS = 20  # so that some are held out and some are left
CLOSEST = 1e-12  # to certainty, for a level of an interval


class SlabRegressor(RegressorMixin, SlabEstimator):  # type: ignore[misc]
    """Regression by a network that is uncertain about its own structure as well as its weights.

    One or several responses, normal around the network's output with a variance that is learned, or with another
    `response`. Columns of X and y are scaled inside, and every output is in the units that came in.

    hidden: widths of the hidden layers, () for a linear model; None takes the rule (`slabnet.config.tables`).
    skip: every layer reads the inputs again (an input-skip network), so that a linear relation takes a weight for each
        input. None takes the rule (it has skips), False leaves them out.
    gates: "inputs" puts an indicator above all weights that read one column (psi = 0.5 below it); `column_inclusion_`
        then gives the posterior probability of each column, and `select(fdr=0.1)` a set of them. None takes the rule
        (it has gates unless psi or prior is given), False leaves them out. psi_gate: the chance
        of a column to be in the model before the data, a number or `Beta(a, b)`; None learns it from `Beta(1, 1)`.
    method: a row of `METHODS`; options: settings of that method. psi, sigma_beta: chance of a weight to be in the
        model (None takes the rule), and scale of those that are; prior: a `Prior` in place of both.
    members: posteriors from as many starts, fitted one after the other and averaged as one (`Mixture`); None takes the
        rule (one).
    epochs, batch_size, lr, omega_lr: None takes the rule; config: a `TrainConfig` for everything else.
    response: a likelihood of numbers by name ("gaussian" where it is left out; "heteroscedastic", "student-t",
        "lognormal", "gamma", "poisson", "negative-binomial", "weibull"), or "auto": `response_` is what it took, and
        `response_why_` why.
    draws: networks that a prediction is averaged over. standardize: False takes X and y as they come.
    verbose: 0 is silent, 1 shows progress.

    Fitted: `network_`, `history_`, `feature_importances_` (shares of effect),
    `feature_effects_` (signed, with intervals), `feature_reach_`, `selected_features_`,
    `inclusion_probabilities_`, `density_`, `n_weights_`, `n_features_in_`, `feature_names_in_`, `noise_std_`,
    `trial_` (what held-out rows said of the KL's weight and of the noise; None where there was no trial).

    >>> x = np.linspace(-1, 1, 50)[:, None]
    >>> model = SlabRegressor(hidden=(), epochs=100, random_state=0).fit(x, 3 * x[:, 0])
    >>> low, high = model.predict_interval(x)
    >>> bool((low < model.predict(x)).all())
    True
    """

    def _read(self, X: Any, y: Any, reset: bool, classes: Any = None, given: Given = NOTHING) -> tuple[Array, Any]:
        if y is None:
            refuse(
                type(self).__name__,
                "y",
                "given: one number a row (requires y to be passed, but the target y is None)",
                None,
            )
        table = self._inputs(X, reset)
        look_at_numbers(type(self).__name__, y)
        target = check_array(y, ensure_2d=False, dtype="numeric", input_name="y", estimator=self)
        check_consistent_length(table, target)
        target = np.asarray(target, dtype=np.float64)
        columns, sides = target.reshape(len(target), -1), Sides.of(table, given)
        if reset:
            taken = taken_response(self.response, columns)
            self.response_, self.response_why_ = taken.name, taken.why
            check_columns(taken.name, columns, sides)
            self.scaling_y_, self.rate_ = scaling_of_response(taken.name, columns, sides, self.standardize)
            self._flat = target.ndim == 1
            warn_of_target(columns)
        elif columns.shape[1] != len(self.scaling_y_.scale):
            refuse("partial_fit", "y", f"{len(self.scaling_y_.scale)} numbers a row, as before", columns.shape[1])
        return table, sides.scaled(self.scaling_y_).target(self.scaling_y_.apply(columns), self.rate_)

    def _response(self) -> tuple[Likelihood | str, int]:
        columns = len(self.scaling_y_.scale)
        return self.response_, LIKELIHOODS[self.response_].outputs_for(columns)

    def _exposures(self, exposure: Any, rows: int) -> Any:
        if self.rate_ is None:
            return exposure
        each = np.ones(rows) if exposure is None else np.asarray(column_or_1d(exposure), dtype=np.float64)
        return self.rate_ * each

    def _try_out(self, x: Array, y: Any, config: TrainConfig, keeping: Keeping, dependence: Dependence) -> Trial | None:
        """Deep enough a network, and enough rows: see what the KL should weigh, and how large the noise is."""
        given = self.config is not None and "kl_weight" in self.config.model_fields_set
        weights = (config.kl_weight,) if given else KL_WEIGHTS
        if isinstance(y, Target) and y.weight is not None:
            rows = np.flatnonzero(np.asarray(y.weight))  # those that count
            x, y, dependence = x[rows], y[rows], dependence.of_rows(rows)
        if isinstance(y, Target) and y.event is not None and np.sum(np.asarray(y.event)) < FEWEST_EVENTS:
            return None
        if not self.network_.hidden or weights == (1.0,) or not worth_trying(len(x), self.n_features_in_):
            return None
        if given and not self.network_.likelihood.noise_variances():
            return None  # nothing is left to be found
        alone = members_in(self.network_)[0] if members_in(self.network_) else self.network_  # decides for all
        return try_out(alone, x, y, config, weights, self.draws, self._seed, keeping, dependence)

    def _tried_on(self, x: Array, y: Any) -> Trial | None:
        noise = self.network_.likelihood.noise_variances()
        if not noise or isinstance(y, Target):
            return self.trial_
        trial = self.trial_ or Trial(self.history_.kl_weight, tuple(noise), self.n_samples_seen_, {})
        some = slice(0, MOST_ASIDE)
        samples = predict_network(self.network_, x[some], self.draws, seed=self._seed, keep_draws=True).samples
        assert samples is not None
        return trial.with_rows(noise_around(samples.numpy(), y[some], trial.phi), len(y[some]))

    def predict(self, X: Any, return_std: bool = False, exposure: Any = None) -> Any:
        """The mean response of each row, or its median where a mean does not exist (lognormal, weibull).

        return_std: also the standard deviation of a new observation (of its logarithm where the median is predicted).
        exposure: over which counts are predicted; 1 where it is left out.
        """
        prediction = self._predict(X, exposure)
        mean = self._shape(self.scaling_y_.undo(prediction.mean.numpy()))
        return (mean, self._shape(self._spread(prediction.total))) if return_std else mean

    def predict_distribution(self, X: Any, exposure: Any = None) -> PredictedDistribution:
        """The distribution of a new observation in each row: quantiles, P(Y <= y), P(Y > y), densities.

        >>> x = np.linspace(-1, 1, 50)[:, None]
        >>> model = SlabRegressor(hidden=(), epochs=50, response="poisson", random_state=0).fit(x, np.arange(50) % 4)
        >>> found = model.predict_distribution(x[:3])
        >>> bool(np.allclose(found.cdf(2.0) + found.exceeds(2.0), 1))
        True
        """
        prediction = self._predict(X, exposure, keep_draws=True)
        if prediction.mixture is None:
            refuse("predict_distribution", "response", "one with a known distribution", self.response_)
        return PredictedDistribution(prediction.mixture, self.scaling_y_, len(prediction.mean), self._flat)

    def predict_interval(
        self,
        X: Any,
        level: float = 0.95,
        method: Literal["posterior", "conformal"] = "posterior",
        exposure: Any = None,
    ) -> tuple[Array, Array]:
        """The interval (low, high) that holds a new observation with probability `level`.

        method: "posterior" believes the model; "conformal" has its guarantee from the rows of `calibrate`.
        """
        level = check_number("predict_interval", "level", level, above=0, below=1)
        if check_choice("predict_interval", "method", method, METHODS) == "conformal":
            if exposure is not None:
                refuse("predict_interval", "exposure", 'left out with method="conformal"', "given")
            return self._conformal_interval(X, self._calibrated("predict_interval").quantile(level))
        low, high = self._predict(X, exposure, intervals=level).predictive_interval(level)
        ends = [self._shape(self.scaling_y_.undo(end.numpy())) for end in (low, high)]
        return ends[0], ends[1]

    def _conformal_interval(self, X: Any, reach: float) -> tuple[Array, Array]:
        """Predictive standard deviations around the mean, or central intervals of the predictive distribution."""
        if self._noise_is_constant:
            centre, unit = self._centre_and_unit(X)
            return centre - reach * unit, centre + reach * unit
        share = min(reach, 1 - CLOSEST)
        low, high = self._predict(X, intervals=share).predictive_interval(share)
        ends = [self._shape(self.scaling_y_.undo(end.numpy())) for end in (low, high)]
        return ends[0], ends[1]

    @property
    def _noise_is_constant(self) -> bool:
        return bool(self.network_.likelihood.noise_variances())

    def _centre_and_unit(self, X: Any) -> tuple[Array, Array]:
        """Mean and standard deviation of a new observation in each row."""
        mean, sd = self.predict(X, return_std=True)
        if mean.ndim > 1:
            refuse("predict_interval", "method", '"posterior" for several responses', "conformal")
        return np.asarray(mean), np.asarray(sd)

    def _scores(self, X: Any, y: Any) -> Array:
        """|y - mean| / sd; where the noise differs from row to row, |2 F(y) - 1| of the predictive distribution."""
        target = np.asarray(y, dtype=np.float64)
        if self._noise_is_constant:
            centre, unit = self._centre_and_unit(X)
            if target.shape != centre.shape or not np.isfinite(target).all():
                refuse("calibrate", "y", f"{len(centre)} finite numbers", f"shape {target.shape}")
            return np.asarray(np.abs(target - centre) / unit)
        mixture = self._predict(X, keep_draws=True).mixture
        if mixture is None or not self._flat:
            refuse("calibrate", "model", "one of one response with a known distribution", type(self).__name__)
        below = mixture.cdf(torch.as_tensor(self.scaling_y_.apply(target.reshape(-1, 1))))
        return np.asarray(np.abs(2 * below.numpy()[:, 0] - 1))

    def log_density(self, X: Any, y: Any, exposure: Any = None, event: Any = None) -> float:
        """Mean log density of observations under the predictive mixture, in the units of y."""
        return float(self.log_densities(X, y, exposure, event).mean())

    def log_densities(self, X: Any, y: Any, exposure: Any = None, event: Any = None) -> Array:
        """The same for each row; one that was cut off (`event` 0) counts with log P(Y > y)."""
        return self.densities_of(self._predict(X, exposure, keep_draws=True), y, event)

    def densities_of(self, prediction: Prediction, y: Any, event: Any = None) -> Array:
        """log p(y) under a prediction of this model that kept its draws, in the units of y."""
        target = self.scaling_y_.apply(np.asarray(y, dtype=np.float64).reshape(len(prediction.mean), -1))
        seen = np.ones(len(target)) if event is None else np.asarray(event, dtype=np.float64)
        cut = None if event is None else torch.as_tensor(seen)
        rows = row_log_densities(prediction, torch.as_tensor(target), cut).double().numpy()
        return np.asarray(rows - seen * float(np.log(self.scaling_y_.scale).sum()))

    @property
    def noise_std_(self) -> Any:
        """The standard deviation of the noise, in the units of y."""
        check_is_fitted(self)
        variances = self.network_.likelihood.noise_variances()
        if not variances:
            raise AttributeError(f"noise_std_ is one number for all rows, which {self._response()[0]} has not")
        values = np.sqrt(variances) * self.scaling_y_.scale
        return float(values[0]) if self._flat else values

    def _effects(self, slopes: Slopes) -> tuple[Array, Array, list[str]]:
        """How far the response moves per standard deviation of each input, in its own units (a mean over several)."""
        unit = (1.0 if self.rate_ is None else self.rate_) * self.scaling_y_.scale[:, None]
        names = ["response"] if self._flat else [f"response {k}" for k in range(len(unit))]
        return (slopes.sizes.numpy() * unit).mean(0), slopes.signed.numpy() * unit, names

    def _response_told(self) -> str:
        return f"{self.response_} ({self.response_why_})"

    def _log_unit(self) -> float:
        return float(np.log(self.scaling_y_.scale).sum())

    def _noise_told(self) -> str:
        if not self.network_.likelihood.noise_variances():
            return ""
        return ", ".join(written(float(value)) for value in np.atleast_1d(self.noise_std_))

    def _told_on(self, scale: Scale) -> tuple[list[str], list[float], list[float]]:
        y, log_rate = self.scaling_y_, 0.0 if self.rate_ is None else float(np.log(self.rate_))
        if scale == "response":
            factor = (y.scale * (1.0 if self.rate_ is None else self.rate_)).tolist()
            each = [("", part, shift) for part, shift in zip(factor, y.centre.tolist(), strict=True)]
        else:
            each = self.network_.likelihood.in_units(self.network_.outputs, y.centre.tolist(), y.scale.tolist())
        count, more = len(y.scale), log_rate if scale == "linear" else 0.0
        numbered = [f" {k % count}" if count > 1 else "" for k in range(len(each))]
        names = [f"{name or 'response'}{number}" for (name, _, _), number in zip(each, numbered, strict=True)]
        return names, [factor for _, factor, _ in each], [shift + more for _, _, shift in each]

    def _spread(self, variance: torch.Tensor) -> Array:
        """The standard deviation that a variance of the network stands for."""
        likelihood = self.network_.likelihood
        unit = self.scaling_y_.scale if likelihood.point is Point.MEAN else 1.0  # logarithms have no unit
        return np.asarray(variance.sqrt().numpy() * unit)

    def _scale_of_outputs(self) -> Scaling:
        scale = self.scaling_y_.scale * (1.0 if self.rate_ is None else self.rate_)
        centres, units = self.network_.likelihood.output_units(self.scaling_y_.centre.tolist(), scale.tolist())
        return Scaling(np.array(centres), np.array(units))

    def _shape(self, values: Array) -> Array:
        return values[:, 0] if self._flat else values

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags
