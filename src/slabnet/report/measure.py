"""The numbers behind the page of one model, each computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from slabnet.core.errors import ArgumentError
from slabnet.core.records import Answer, Prediction, Selection
from slabnet.model.drawing import Draw, drawable_layers, mean
from slabnet.model.draws import exact, fixed
from slabnet.model.layers import SlabLayer
from slabnet.model.mixture import members_in
from slabnet.prediction.evaluation import METRICS, evaluate, metrics_of
from slabnet.prediction.importance import input_effects, input_reach, prior_reach
from slabnet.prediction.metrics import accuracy, interval_coverage, rmse
from slabnet.prediction.predict import predict
from slabnet.prediction.scores import class_scores, number_scores
from slabnet.prediction.ways import DOUBT, plain_row, spike_slab_rows
from slabnet.report.subject import Subject
from slabnet.selection.rules import slab_layers, threshold_model

DRAWS = 100
WAYS_DRAWS = 10
EFFECT_ROWS, EFFECT_DRAWS = 200, 10
LEVELS = (0.5, 0.8, 0.9, 0.95, 0.99)
BINS = 20
SHOWN = {  # metrics that sentences and figures of the page give
    "accuracy",
    "accuracy_with_doubt",
    "negative_log_likelihood",
    "brier",
    "calibration_error",
    "rmse",
    "interval_coverage",
}
PLAIN = ("deterministic", "ensemble")  # weights without a posterior
FAMILIES = {
    "SIM": "structure and weights drawn",
    "ALL": "every weight",
    "MED": "the median model",
    "PRN": "the pruned model",
}
WAY_NAMES = {
    ("SIM", "SIM", False): "a single draw of structure and weights",
    ("SIM", "SIM", True): "draws of structure and weights, averaged",
    ("ALL", "EXP", False): "the posterior mean of every weight",
    ("ALL", "SIM", False): "a single draw of every weight",
    ("ALL", "SIM", True): "draws of every weight, averaged",
    ("MED", "SIM", False): "a single draw of the median model",
    ("MED", "SIM", True): "draws of the median model, averaged",
    ("MED", "EXP", False): "the median model at its means",
    ("PRN", "SIM", False): "a single draw of the pruned model",
    ("PRN", "SIM", True): "draws of the pruned model, averaged",
    ("PRN", "EXP", False): "the pruned model at its means",
}


@dataclass(frozen=True)
class Measured:
    """A subject, and what is found by looking at it."""

    subject: Subject
    seed: int = 0

    @property
    def net(self) -> nn.Module:
        return self.subject.net

    @cached_property
    def layers(self) -> dict[str, SlabLayer]:
        """Layers whose weights have a posterior."""
        return {name: part for name, part in drawable_layers(self.net).items() if isinstance(part, SlabLayer)}

    @cached_property
    def selects(self) -> bool:
        """Whether weights have inclusion probabilities."""
        return bool(self.layers) and all(layer.blocks()[0].omega is not None for layer in self.layers.values())

    @cached_property
    def chosen(self) -> Selection | None:
        """The model that was chosen, or the median model; None where nothing can be chosen."""
        if self.subject.selection is not None:
            return self.subject.selection
        return threshold_model(self.net, rule="median") if self.selects else None

    @cached_property
    def draw(self) -> Draw:
        """What a prediction averages over: the weights of the chosen model, or all there is."""
        if self.subject.draws is not None:  # an estimator's: the page gives its figures, whatever else it shows
            chosen = self.subject.selection
        else:
            chosen = None if self.chosen is None or self.chosen.feasible is False else self.chosen
        return exact if chosen is None else fixed(chosen.masks, exact)

    @property
    def model_name(self) -> str:
        """The model that predicts, in words."""
        if self.draw is exact:
            return "the whole network"
        assert self.chosen is not None
        return f"the {self.chosen.rule} model"

    @cached_property
    def prediction(self) -> Prediction | None:
        """The test rows, averaged over draws; a yes-or-no response as two classes."""
        if self.subject.test is None:
            return None
        return self.predict(self.subject.test[0])

    def predict(self, x: Tensor) -> Prediction:
        levels = LEVELS if self.subject.answer is Answer.NUMBERS else ()
        draws = DRAWS if self.subject.draws is None else self.subject.draws
        seed = self.seed if self.subject.draws_seed is None else self.subject.draws_seed
        exposure = self.subject.exposures(len(x))
        return as_classes(predict(self.net, x, draws, draw=self.draw, intervals=levels, seed=seed, exposure=exposure))

    @property
    def truth(self) -> Tensor:
        assert self.subject.test is not None
        return self.subject.test[1]

    @cached_property
    def ways(self) -> list[dict[str, Any]]:
        """Every way to predict: its name, how good it is, and the share of the weights it uses.

        Of the chosen model the active weights are counted, as everywhere else.
        """
        chosen = self.chosen
        if chosen is None or chosen.feasible is None:
            return self._measured_ways
        active = {"weights": chosen.weights, "density": chosen.density}
        return [way | (active if way["family"] == FAMILIES["MED"] else {}) for way in self._measured_ways]

    @property
    def _measured_ways(self) -> list[dict[str, Any]]:
        subject = self.subject
        if subject.rows is not None:
            return [_way(row, "accuracy") for row in subject.rows]
        if subject.test is None:
            return []
        post = subject.selection is not None
        if subject.answer is Answer.CLASSES:
            if self.chosen is not None:
                options: dict[str, Any] = {"post_trained": post, "draws": WAYS_DRAWS, "seed": self.seed}
                rows = spike_slab_rows(subject.method, self.net, self.net, self.chosen, subject.test, **options)
                rows = rows[3:] if post else rows  # the other weights were not trained with it
            else:
                rows = [plain_row(subject.method, self.net, subject.test, seed=self.seed)]
                if drawable_layers(self.net):
                    rows.insert(0, plain_row(subject.method, self.net, subject.test, draws=WAYS_DRAWS, seed=self.seed))
            return [_way(row.to_dict(), "accuracy") for row in rows]
        return [self._other_way(*way, post) for way in self._kinds(post)]

    def _kinds(self, post: bool) -> list[tuple[str, str, Draw, int]]:
        kinds: list[tuple[str, str, Draw, int]] = []
        if not post:
            gamma = "SIM" if self.selects else "ALL"
            kinds += [(gamma, "SIM", exact, 1), (gamma, "SIM", exact, WAYS_DRAWS)] if self.layers else []
            kinds += [("ALL", "EXP", mean, 1)]
        if self.chosen is not None:
            drawn = fixed(self.chosen.masks, exact)
            kinds += [("MED", "SIM", drawn, 1), ("MED", "SIM", drawn, WAYS_DRAWS)]
            kinds += [("MED", "EXP", fixed(self.chosen.masks), 1)]
        return kinds

    def _other_way(self, gamma: str, beta: str, draw: Draw, draws: int, post: bool) -> dict[str, Any]:
        """The same for a number (its RMSE, in the response's own unit) or for yes and no."""
        assert self.subject.test is not None
        x, y = self.subject.test
        exposure = self.subject.exposures(len(x))
        prediction = predict(self.net, x, draws, draw=draw, seed=self.seed, exposure=exposure)
        value = rmse(prediction, y) * self.unit if prediction.answer is Answer.NUMBERS else accuracy(prediction, y)
        row = {"gamma": gamma, "beta": beta, "draws": prediction.draws, "post_trained": post, "value": value}
        return _way(row | {"density_used": prediction.density_used, "weights": prediction.used_weights}, "value")

    @property
    def unit(self) -> float:
        """One standard deviation of the response, in its own unit."""
        return 1.0 if self.subject.scale_y is None else float(self.subject.scale_y.scale.reshape(-1)[0])

    @property
    def measure(self) -> str:
        return "RMSE" if self.subject.answer is Answer.NUMBERS else "accuracy"

    @cached_property
    def score(self) -> float | None:
        """How good the averaged prediction is on the test rows."""
        if self.prediction is None:
            return None
        if self.prediction.answer is Answer.NUMBERS:
            return rmse(self.prediction, self.truth) * self.unit
        return accuracy(self.prediction, self.truth)

    @cached_property
    def scores(self) -> dict[str, Any] | None:
        """Everything that is said of how good it is, by the functions that the command line asks; None without rows."""
        prediction = self.prediction
        if prediction is None or prediction.answer is Answer.YES_OR_NO:
            return None
        if prediction.answer is Answer.CLASSES:
            usual = None if self.subject.usual is None else int(self.subject.usual)
            truth = self.truth.reshape(-1).long().cpu().numpy()
            return class_scores(prediction.mean.double().cpu().numpy(), truth, DOUBT, usual)
        mean, truth = (self.in_own_unit(part) for part in (prediction.mean, self.truth))
        ends = prediction.predictive.get(DOUBT)
        inside = None if ends is None else (self.in_own_unit(ends[0]), self.in_own_unit(ends[1]))
        usual_mean = truth.mean() if self.subject.usual is None else self.subject.usual
        return number_scores(mean, truth, inside, float(usual_mean))

    @cached_property
    def further(self) -> list[tuple[str, float]]:
        """Metrics of the likelihood, and those that a user registered, that are shown nowhere else, in words."""
        if self.prediction is None:
            return []
        rows = [metric for metric in metrics_of(self.prediction) if metric.name not in SHOWN]
        values = evaluate(self.prediction, self.truth, rows)
        units = {metric.name: self.unit if metric.in_unit else 1.0 for metric in rows}
        return [(METRICS[name].words, value * units[name]) for name, value in values.items()]

    def in_own_unit(self, values: Tensor) -> NDArray[np.float64]:
        """Numbers of the first response in the unit of its column."""
        plain = values.reshape(len(values), -1)[:, 0].double().cpu().numpy()
        scale = self.subject.scale_y
        return plain if scale is None else plain * float(scale.scale[0]) + float(scale.centre[0])

    @cached_property
    def reach(self) -> NDArray[np.float64] | None:
        """For each input, the share of drawn models in which it reaches an output."""
        if not self.selects:
            return None
        try:
            return input_reach(self.net, DRAWS, **self._reach_draws).cpu().numpy()
        except ArgumentError:  # not a chain: paths are not known
            return None

    @cached_property
    def reach_before(self) -> float | None:
        seed = self._reach_draws.get("seed", self.seed)
        return None if self.reach is None else prior_reach(self.net, DRAWS, seed=seed)

    @property
    def _reach_draws(self) -> dict[str, Any]:
        """The draws in which paths are looked for: those of an estimator, so that its figures are given again."""
        known = self.subject.draws_seed
        return {"seed": self.seed} if known is None else {"seed": known, "draw": self.draw}

    @cached_property
    def effects(self) -> NDArray[np.float64] | None:
        """How far the response moves per unit of each input, averaged over outputs, drawn models and rows.

        Of an estimator, what it said itself: in units of the response, here in its standard deviations.
        """
        known = self.subject.effects
        if known is not None and len(known) == len(self.subject.inputs):
            return np.asarray(known, dtype=np.float64) / self.unit
        if self.subject.test is None or not self.layers:
            return None
        x = self.subject.test[0]
        some = x[:: max(1, len(x) // EFFECT_ROWS)][:EFFECT_ROWS]
        slopes = input_effects(self.net, some, EFFECT_DRAWS, draw=self.draw, seed=self.seed)
        return slopes.mean(0).flatten().double().cpu().numpy()

    @cached_property
    def histograms(self) -> dict[str, list[int]]:
        """Inclusion probabilities of each layer, counted in bins."""
        if not self.selects:
            return {}
        with torch.no_grad():
            alphas = {name: layer.alpha.detach().double().cpu() for name, layer in self.layers.items()}
        return {name: torch.histc(alpha, BINS, 0.0, 1.0).long().tolist() for name, alpha in alphas.items()}

    @cached_property
    def pixel_alpha(self) -> NDArray[np.float64] | None:
        """The largest inclusion probability of a weight that reads each input; the mean of it over members."""
        if not self.selects:
            return None
        firsts = [next(iter(slab_layers(part).values())) for part in members_in(self.net) or (self.net,)]
        alphas = [layer.alpha.detach() for layer in firsts]
        if any(alpha.ndim != 2 for alpha in alphas):
            return None
        return torch.stack([alpha.amax(0) for alpha in alphas]).double().mean(0).cpu().numpy()

    def intervals(self) -> list[tuple[float, float, float]]:
        """Level, share of the observations inside, mean width: of a number's predictive intervals, if it has any."""
        assert self.prediction is not None
        if not self.prediction.predictive:
            return []
        coverages = [(level, interval_coverage(self.prediction, self.truth, level)) for level in LEVELS]
        return [(level, part.coverage, part.width * self.unit) for level, part in coverages]


def as_classes(prediction: Prediction) -> Prediction:
    """One yes-or-no output as a prediction of two classes; anything else as it is."""
    if prediction.answer is not Answer.YES_OR_NO or prediction.mean.shape[-1] != 1:
        return prediction
    assert prediction.votes is not None
    yes, votes = prediction.mean, prediction.votes
    parts = {name: getattr(prediction, name).reshape(-1) for name in ("total", "aleatoric", "epistemic")}
    both = torch.cat([1 - yes, yes], -1)
    votes = torch.cat([prediction.draws - votes, votes], -1)
    return replace(prediction, kind="categorical", answer=Answer.CLASSES, mean=both, votes=votes, **parts)


def doubt_table(prediction: Prediction, truth: Tensor, thresholds: Sequence[float]) -> list[list[str]]:
    """Rows decided, their share and accuracy, at each threshold."""
    lines = []
    for threshold in thresholds:
        decided = prediction.decided(threshold)
        right = (prediction.labels == truth.reshape(-1))[decided]
        accurate = f"{float(right.double().mean()):.4f}" if len(right) else "–"
        lines.append([f"{threshold:g}", str(len(right)), f"{len(right) / len(decided):.4f}", accurate])
    return lines


def _way(row: Mapping[str, Any], key: str) -> dict[str, Any]:
    averaged = row["draws"] > 1
    name = WAY_NAMES.get((row["gamma"], row["beta"], averaged), f"{row['gamma']}, {row['beta']}")
    other = row.get("method", "lbbnn")
    plain = f"{other}: " if other in PLAIN else ""
    post = ", post-trained" if row["post_trained"] else ""
    return {
        "label": f"{plain}{name}{post}",
        "family": other if other in PLAIN else FAMILIES.get(row["gamma"], row["gamma"]),
        "means": row["beta"] == "EXP",
        "value": float(row[key]),
        "density": float(row["density_used"]),
        "weights": int(row["weights"]),
        "draws": int(row["draws"]),
        "post_trained": bool(row["post_trained"]),
    }


__all__ = ["DOUBT", "DRAWS", "Measured", "as_classes", "doubt_table"]
