"""What an estimator says of itself as a whole: its summary."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from sklearn.utils.validation import check_is_fitted

from slabnet.core.errors import check_choice, check_whole, one_line, refuse
from slabnet.core.figures import written
from slabnet.core.records import History, Selection
from slabnet.data.columns import Column
from slabnet.estimators.effects import FeatureEffects
from slabnet.estimators.explains import Explains
from slabnet.estimators.formula import Formula, formula_of
from slabnet.estimators.scaling import Array
from slabnet.estimators.summary import ColumnSummary, ModelSummary, correlated
from slabnet.model.drawing import drawing, mean
from slabnet.model.draws import fixed, median
from slabnet.model.mixture import Mixture, members_in
from slabnet.model.wrapped import Wraps
from slabnet.prediction.coefficients import coefficients
from slabnet.prediction.diagnostics import pareto_k
from slabnet.prediction.drawn import Chain, Columns, drawn_network
from slabnet.prediction.explain import SCALES, Scale
from slabnet.prediction.structure import structure

SETTLED = 0.01  # share of the inclusion probabilities that may still move at the end
USABLE = 0.7  # k-hat above which q misses mass


class Summarises(Explains, Wraps):
    """The part of an estimator that prints its summary."""

    history_: History
    feature_effects_: FeatureEffects
    selection_: Selection | None
    n_samples_seen_: int
    method: str

    def summary(self, data: tuple[Any, Any] | None = None) -> ModelSummary:
        """What was fitted and how well, what is known of each column, and what is odd.

        data: (X, y), the rows that were fitted: then k-hat is computed too, which says whether the posterior can be
            believed.

        >>> from slabnet import SlabRegressor
        >>> x = np.linspace(-1, 1, 50)[:, None]
        >>> model = SlabRegressor(hidden=(), epochs=50, random_state=0).fit(x, 3 * x[:, 0])
        >>> [row.input for row in model.summary().coefficients]
        ['(intercept)', '0']
        """
        check_is_fitted(self)
        if data is not None and (not isinstance(data, (tuple, list)) or len(data) != 2):
            refuse("summary", "data", "a pair (X, y)", type(data).__name__)
        members = members_in(self.network_)
        k_hat = None if data is None or members else self._k_hat(*data)
        linear = not self.network_.hidden and not members and self.network_.method.selects
        chosen = "" if self.selection_ is None else f", the {self.selection_.rule} model"
        return ModelSummary(
            title=f"{type(self).__name__}{chosen}",
            about=self._about(k_hat, len(members)),
            columns=() if linear else self._columns_told(),
            coefficients=tuple(coefficients(self)) if linear else (),
            outputs=tuple(self._told_on("linear")[0]),
            warnings=tuple(self._odd(k_hat)),
        )

    def formula(self, *, member: int | None = None, scale: Scale = "response") -> Formula:
        """The median model (or the chosen one) as an expression, where it has at most 30 active weights.

        member: which member of a mixture. scale: "response" gives what is predicted, "linear" the linear predictor in
            the units of `explain`. `str` of it is for people; it has `python()`, `sql()` and `excel()`.

        >>> from slabnet import SlabRegressor
        >>> x = np.linspace(-1, 1, 50)[:, None]
        >>> model = SlabRegressor(hidden=(), epochs=100, random_state=0).fit(x, 3 * x[:, 0])
        >>> abs(eval(model.formula().python(), {"row": {"x0": 0.5}}) - 1.5) < 0.2
        True
        """
        check_is_fitted(self)
        check_choice("formula", "scale", scale, SCALES)
        members = members_in(self.network_)
        if bool(members) != (member is not None):
            allowed = f"one of 0 to {len(members) - 1}" if members else "left out for a model without members"
            refuse("formula", "member", allowed, member)
        net, masks = self.network_, None if self.selection_ is None else self.selection_.masks
        if member is not None:
            if check_whole("formula", "member", member, at_least=0) >= len(members):
                refuse("formula", "member", f"one of 0 to {len(members) - 1}", member)
            if isinstance(net, Mixture) and masks is not None:
                masks = net.split(masks)[member]
            net = members[member]
        draw = fixed(masks) if masks is not None else median if net.method.selects else mean
        columns = Columns([(place,) for place in range(len(self.scaling_x_.scale))], len(self.scaling_x_.scale))
        with torch.no_grad(), drawing(net, draw, self._seed) as scope:
            chain = drawn_network(net, scope, columns, torch.float64, (len(self.scaling_x_.scale),))
        if not isinstance(chain, Chain):
            refuse("formula", "model", "a chain of layers with indicators", net.method.name)
        names, factor, shift = self._told_on(scale)
        outputs = list(zip(names, factor, shift, strict=True))
        likelihood = None if scale == "linear" else net.likelihood
        x = self.scaling_x_
        return formula_of(chain, likelihood, outputs, (x.centre, x.scale), self._inputs_of_columns())

    def _inputs_of_columns(self) -> list[tuple[str, Column | None, int]]:
        """For each input its column, what was learned of it, and its place among the column's inputs."""
        known = {} if self.table_ is None else {column.name: column for column in self.table_.columns}
        places = {
            place: (name, known.get(name), number)
            for name, group in self._named_groups().items()
            for number, place in enumerate(group)
        }
        return [places[place] for place in range(len(self.scaling_x_.scale))]

    def _k_hat(self, X: Any, y: Any) -> float | None:
        if not self.network_.method.selects or self.selection_ is not None:
            return None
        table, target = self._read(X, y, reset=False)
        return pareto_k(self.network_, (self.scaling_x_.apply(table), target), seed=self._seed).k_hat

    def _read(self, X: Any, y: Any, reset: bool) -> tuple[Array, Any]:
        raise NotImplementedError(f"{type(self).__name__} must read its data")

    def _about(self, k_hat: float | None, members: int) -> dict[str, str]:
        """What stands above the table."""
        last, net = self.history_[-1], self.network_
        hidden = ", ".join(map(str, net.hidden)) or "none (a linear model)"
        several = f", {members} members" if members else ""
        about = {"Response": self._response_told(), "Rows": f"{self.n_samples_seen_}"}
        about["Columns"] = f"{len(self._named_groups())} ({len(self.scaling_x_.scale)} inputs)"
        about["Network"] = f"{net.method.name}, hidden layers: {hidden}{', skips' if net.skip else ''}{several}"
        if net.method.selects:
            about["Active weights"] = f"{self.n_weights_} ({self.density_:.1%})"
        shift = self.n_samples_seen_ * self._log_unit()
        about["Log-likelihood"] = f"{written(last.log_likelihood - shift, 6)} (expected, of the rows fitted)"
        bound = f"{written(last.elbo - shift, 6)} (KL {written(last.kl)})"
        tempered = f"; fitted with the KL at weight {written(last.kl_weight)}" if last.kl_weight != 1 else ""
        about["Evidence bound"] = bound + tempered
        noise = self._noise_told()
        about |= {"Noise sd": noise} if noise else {}
        return about | ({} if k_hat is None else {"Pareto k-hat": f"{k_hat:.2f}"})

    def _columns_told(self) -> tuple[ColumnSummary, ...]:
        effects, groups = self.feature_effects_, self._named_groups()
        known = {} if not self.network_.method.selects else {one.name: one for one in structure(self).columns}
        told = []
        for number, (name, places) in enumerate(groups.items()):
            at = known.get(name) or known.get(self._column_names()[number])
            place, output = self._largest(effects, list(places))
            parts = (effects.effect, effects.low, effects.high)
            ends = [None if place is None or part is None else float(part[place, output]) for part in parts]
            told.append(
                ColumnSummary(
                    name,
                    None if at is None else at.included,
                    None if at is None else at.used,
                    None if at is None else at.linear,
                    name if place is None else effects.inputs[place],
                    "" if not effects.outputs else effects.outputs[output],
                    ends[0],
                    ends[1],
                    ends[2],
                    {} if at is None else dict(at.partners),
                )
            )
        size = dict(zip(effects.columns, effects.sizes.tolist(), strict=True))
        return tuple(sorted(told, key=lambda one: (-(one.included or one.used or 0.0), -size.get(one.column, 0.0))))

    @staticmethod
    def _largest(effects: FeatureEffects, places: list[int]) -> tuple[int | None, int]:
        """Which input and output of a column have the largest average effect."""
        if effects.effect is None or not places or max(places) >= len(effects.effect):
            return None, 0
        some = np.abs(effects.effect[places])
        row, output = np.unravel_index(int(some.argmax()), some.shape)
        return places[int(row)], int(output)

    def _odd(self, k_hat: float | None) -> list[str]:
        """What to know before believing the rest."""
        lines = correlated(self.support_, list(self._named_groups().values()), self._input_names())
        moving, rows = self.history_[-1].alpha_moving, self.n_samples_seen_
        if self.network_.method.selects and moving > SETTLED:
            lines.append(
                f"Not settled: {moving:.1%} of the inclusion probabilities still moved at the end of training."
            )
        if k_hat is not None and k_hat > USABLE:
            lines.append(
                f"k-hat {k_hat:.2f} is above {USABLE}: the posterior misses mass, intervals may be too narrow."
            )
        if self.history_[-1].kl_weight != 1:
            lines.append("The KL did not weigh 1 in the fit, so that what was maximised is not this bound.")
        if len(self.scaling_x_.scale) > rows:
            lines.append(f"More inputs ({len(self.scaling_x_.scale)}) than rows ({rows}).")
        if self.network_.method.selects and self.n_weights_ == 0:
            lines.append("No column is in the median model.")
        return lines

    def _response_told(self) -> str:
        """What the response was taken for."""
        return one_line(self.network_.likelihood.name)

    def _log_unit(self) -> float:
        """By how much a row's log density is smaller in the units of the response."""
        return 0.0

    def _noise_told(self) -> str:
        return ""

    @property
    def n_weights_(self) -> int:
        raise NotImplementedError(f"{type(self).__name__} must count its weights")

    @property
    def density_(self) -> float:
        raise NotImplementedError(f"{type(self).__name__} must give its density")
