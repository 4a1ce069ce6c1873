"""What an estimator says of its model after a fit: which weights and inputs are in it, and how surely."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from slabnet.core.errors import check_number
from slabnet.core.records import Selection
from slabnet.estimators.effects import FeatureEffects, as_shares
from slabnet.estimators.frames import ReadsFrames
from slabnet.estimators.scaling import Array
from slabnet.model.drawing import Draw
from slabnet.model.gates import column_inclusion, named_groups
from slabnet.model.mixture import Mixture
from slabnet.model.networks import Network
from slabnet.prediction.importance import Slopes, input_reach, member_reach, prior_reach
from slabnet.selection.rules import slab_layers, threshold_model

REACH_DRAWS = 100


def within_fdr(inclusion: Mapping[str, float], fdr: float) -> list[str]:
    """The names with the largest probabilities, as many as keep the mean of 1 - probability at or below `fdr`.

    >>> within_fdr({"a": 0.99, "b": 0.2, "c": 0.9, "d": 0.5}, 0.1)
    ['a', 'c']
    """
    order = sorted(inclusion, key=lambda name: -inclusion[name])
    false, names = 0.0, []
    for count, name in enumerate(order, start=1):
        false += 1 - inclusion[name]
        if false > fdr * count:
            break
        names.append(name)
    return names


def _renamed(old: str, new: str) -> str:
    return f"{old} was renamed: it is {new} since 0.2.0, and {old} will go in 0.3.0"


class KnowsModel(ReadsFrames):
    """The part of an estimator that looks at its network."""

    network_: Network
    selection_: Selection | None
    feature_effects_: FeatureEffects
    method: str
    _seed: int

    def _draw(self) -> Draw:
        raise NotImplementedError(f"{type(self).__name__} must say how it draws")

    @property
    def chosen_(self) -> Selection:
        """The model that was chosen, or else the median model, feasible or not."""
        self._check_selects("chosen_")
        return threshold_model(self.network_, rule="median") if self.selection_ is None else self.selection_

    @property
    def inclusion_probabilities_(self) -> list[Array]:
        """For each layer (outputs, inputs): the probability that the weight is in the model; 0 or 1 once chosen.

        Of several members, the layers of the first one, then of the next.
        """
        self._check_selects("inclusion_probabilities_")
        if self.selection_ is not None:
            return [mask[0].double().numpy() for mask in self.selection_.masks.values()]
        return [layer.alpha.detach().double().numpy().copy() for layer in slab_layers(self.network_).values()]

    @property
    def column_inclusion_(self) -> dict[str, float]:
        """For each column, the posterior probability that it is in the model; needs gates="inputs".

        In a chosen model it is 1 or 0. Columns of an array are called x0, x1 and so on.
        """
        self._check_selects("column_inclusion_")
        inclusion = self._gated_columns()
        if inclusion is None:
            raise AttributeError('column_inclusion_ is known for estimators with gates="inputs"')
        return inclusion

    def _gated_columns(self) -> dict[str, float] | None:
        """The same; None where columns have no gates."""
        if "inputs" not in self.network_.gates:
            return None
        inclusion = column_inclusion(self.network_)
        groups = self._named_groups()
        if not set(inclusion) <= set(groups):  # inputs of a file's table, whose columns the network knows by name
            groups = named_groups(self.network_)
        if self.selection_ is not None:
            reached = self.selection_.inputs
            assert reached is not None
            inclusion = {name: float(reached[list(at)].any()) for name, at in groups.items() if at}
        return {name: inclusion.get(name, 0.0) for name in groups}

    def _effects(self, slopes: Slopes) -> tuple[Array, Array, list[str]]:
        """How far the answers move with each input, the signed slopes, both in their own units, and their names."""
        raise NotImplementedError(f"{type(self).__name__} must say how far its answers move")

    def select(self, fdr: float = 0.1) -> list[str]:
        """The most columns whose expected share of false ones is at most `fdr`, surest first; needs gates="inputs".

        The Bayesian false discovery rate of a set is the mean of 1 - alpha over its columns.
        """
        check_number("select", "fdr", fdr, above=0, below=1)
        return within_fdr(self.column_inclusion_, fdr)

    @property
    def density_(self) -> float:
        """The share of the weights that are active in the median model, or in the chosen one."""
        check_is_fitted(self)
        return self.chosen_.density if self.network_.method.selects else 1.0

    @property
    def n_weights_(self) -> int:
        """The number of active weights (on a path from an input to an output) of the chosen, or the median, model."""
        check_is_fitted(self)
        if self.network_.method.selects:
            return self.chosen_.weights
        return sum(p.numel() for name, p in self.network_.named_parameters() if p.ndim > 1 and not name.endswith("rho"))

    @property
    def selected_features_(self) -> Any:
        """Positions of the columns that are in the model.

        With gates="inputs" those whose posterior probability is above one half (`column_inclusion_`); without, those
        from which a path leads to an output in the median model. In a chosen model those that it reads.
        """
        return np.flatnonzero(self._get_support_mask())

    @property
    def feature_importances_(self) -> Array:
        """For each column its share of the effects of all, which sums to one (zeros where nothing has an effect).

        The effect is the size in `feature_effects_`: how far the answer moves per standard deviation of the column.
        Noise has a small share, not none: `column_inclusion_` says whether a column is in the model.
        """
        check_is_fitted(self)
        return as_shares(self.feature_effects_.sizes)

    @property
    def feature_reach_(self) -> Array:
        """For each column the share of drawn models in which a path leads from it to an output.

        Wide networks reach everything now and then: compare with `feature_reach_prior_`, what an input has before any
        data. Of a column with several inputs (levels of a category, gaps) the largest share of these.
        """
        check_is_fitted(self)
        return self._by_column(self._input_shares())

    def _input_shares(self) -> Array:
        """The same for each input of the network."""
        if not self.network_.method.selects:
            return np.ones(len(self._input_names()))
        return np.asarray(input_reach(self.network_, REACH_DRAWS, draw=self._draw(), seed=self._seed).numpy())

    @property
    def feature_reach_spread_(self) -> Array:
        """The standard deviation of `feature_reach_` over the members, by their weights; 0 for one network."""
        check_is_fitted(self)
        if not isinstance(self.network_, Mixture) or not self.network_.method.selects:
            return np.zeros(self.n_features_in_)
        shares = self.network_.weights.double().numpy()
        by_member = member_reach(self.network_, REACH_DRAWS, draw=self._draw(), seed=self._seed).numpy()
        mean = shares @ by_member
        return self._by_column(np.asarray(np.sqrt(shares @ (by_member - mean) ** 2)))

    @property
    def feature_reach_prior_(self) -> float:
        """The share of models drawn from the prior in which an input reaches an output, averaged over inputs."""
        self._check_selects("feature_reach_prior_")
        return prior_reach(self.network_, REACH_DRAWS, seed=self._seed)

    @property
    def feature_importances_spread_(self) -> Array:
        """The old name of `feature_reach_spread_`."""
        warnings.warn(_renamed("feature_importances_spread_", "feature_reach_spread_"), FutureWarning, stacklevel=2)
        return self.feature_reach_spread_

    @property
    def feature_importances_prior_(self) -> float:
        """The old name of `feature_reach_prior_`."""
        warnings.warn(_renamed("feature_importances_prior_", "feature_reach_prior_"), FutureWarning, stacklevel=2)
        return self.feature_reach_prior_

    def _get_support_mask(self) -> Any:
        check_is_fitted(self)
        if not self.network_.method.selects:
            return np.ones(self.n_features_in_, dtype=bool)
        inclusion = self._gated_columns()
        if self.selection_ is None and inclusion is not None and list(inclusion) == list(self._named_groups()):
            return np.array([probability > 0.5 for probability in inclusion.values()])
        return self._by_column(self._inputs_reached())

    def _inputs_reached(self) -> Any:
        """Which inputs of the network reach an output in the model that `chosen_` is."""
        inputs = self.chosen_.inputs
        assert inputs is not None  # our own networks are chains
        return inputs.numpy()

    def _check_selects(self, name: str) -> None:
        check_is_fitted(self)
        if not self.network_.method.selects:
            raise AttributeError(f"{name} is known for methods that select, not for {self.method!r}")
