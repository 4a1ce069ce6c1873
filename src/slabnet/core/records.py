"""What calculations hand on: small frozen records with named fields."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from slabnet.core.errors import check_number, refuse
from slabnet.core.figures import written
from slabnet.core.html_table import MOST_ROWS, html_table, some


@dataclass(frozen=True)
class Densities:
    """Shares of the weights (intercepts are counted apart) in four meanings, for a layer or in total.

    used: in at least one of the draws of a prediction; median: in the masks of the chosen model;
    expected: mean alpha; active: on a path from an input to an output (None where paths are unknown).
    `used` belongs to a prediction and stands there. neurons: units of the layer, active_neurons: on a path.
    """

    weights: int
    intercepts: int
    median: float
    expected: float
    median_weights: int
    median_intercepts: int
    active: float | None = None
    active_weights: int | None = None
    neurons: int = 0
    active_neurons: int | None = None


class Counts(NamedTuple):
    """Weights of kernels, weights of linear layers and intercepts, counted apart; those of units on a path."""

    kernels: int
    linear: int
    intercepts: int


@dataclass(frozen=True)
class Selection:
    """A model that was chosen: which weights and intercepts of each layer are in it.

    masks: layer name -> (mask of the weight, mask of the intercept where there is one).
    active: layer name -> the weights of `masks` that lie on a path from an input to an output.
    unreachable: outputs that no input can reach; the model is feasible if at least one is reached.
    broken: the first layer behind which nothing is reached, where the model is infeasible.
    reach: (outputs, inputs), whether an input can reach an output.
    looked_at: how many models were compared, where it was chosen from several.
    """

    masks: Mapping[str, tuple[Tensor, ...]]
    rule: str
    threshold: float | None
    total: Densities
    layers: Mapping[str, Densities]
    feasible: bool | None = None
    unreachable: tuple[int, ...] = ()
    active: Mapping[str, Tensor] | None = None
    reach: Tensor | None = None
    broken: str | None = None
    looked_at: int | None = None

    @property
    def inputs(self) -> Tensor | None:
        """Which inputs lie on a path to an output."""
        return None if self.reach is None else self.reach.any(0)

    @property
    def weights(self) -> int:
        """Number of weights on a path from an input to an output, intercepts not counted.

        Where paths are not known, every weight of the masks counts; `total.median_weights` always counts those.
        """
        return self.total.median_weights if self.total.active_weights is None else self.total.active_weights

    @property
    def counts(self) -> Counts:
        """Weights of convolutional kernels, weights of linear layers, and intercepts of units on a path."""
        kernels = linear = intercepts = 0
        for name, (weight, *bias) in self.masks.items():
            active = weight if self.active is None else self.active[name]
            if weight.ndim > 2:
                kernels += int(active.sum())
            else:
                linear += int(active.sum())
            intercepts += int((bias[0] & active.flatten(1).any(1)).sum()) if bias else 0
        return Counts(kernels, linear, intercepts)

    @property
    def density(self) -> float:
        """The share that `weights` is of all there are."""
        return self.total.median if self.total.active is None else self.total.active

    def __repr__(self) -> str:
        return f"Selection({self.rule}: {self.weights} of {self.total.weights} weights, feasible={self.feasible})"

    def _repr_html_(self) -> str:
        head = ["layer", "weights", "in the model", "on a path", "mean alpha"]
        rows = [
            [name, d.weights, d.median_weights, d.active_weights, written(d.expected)]
            for name, d in [*self.layers.items(), ("all", self.total)]
        ]
        return html_table(f"The {self.rule} model: {self.weights} of {self.total.weights} weights", head, rows)


@dataclass(frozen=True)
class Cut:
    """What was taken out of the computation after an epoch, and what that did to the bound.

    left: inputs, then the units of each layer, that are still computed. log_likelihood, kl: by how much the two terms
    changed, the first estimated from some rows with the same noise before and after, the second exact.
    """

    epoch: int
    left: tuple[int, ...]
    log_likelihood: float
    kl: float

    @property
    def elbo(self) -> float:
        return self.log_likelihood - self.kl


@dataclass(frozen=True)
class Epoch:
    """One epoch: both terms of the bound (totals over n rows), densities, and how far alpha has come.

    alpha_moving: share of the weights whose alpha moved by more than 0.02 over the last epochs;
    alpha_at_prior: share that rests at psi, where the data say nothing; the others have settled.
    """

    epoch: int
    log_likelihood: float
    kl: float
    kl_weight: float
    density_expected: float
    density_median: float
    alpha_moving: float
    alpha_at_prior: float
    lr: float
    omega_lr: float
    seconds: float
    validation_log_likelihood: float | None = None

    @property
    def elbo(self) -> float:
        return self.log_likelihood - self.kl


@dataclass(frozen=True)
class History:
    """What `fit` saw, epoch by epoch.

    members: of a mixture, what it saw of each member; the epochs are then means over the members, weighted.
    teacher_share: how much of the log-likelihood was taken at a teacher's predictions: above 0, what was maximised is
        no bound on the evidence of the responses.
    """

    epochs: tuple[Epoch, ...]
    n: int
    steps: int
    kl_weight: float
    stopped_early: bool = False
    best_epoch: int | None = None
    config: Mapping[str, Any] = field(default_factory=dict)
    cuts: tuple[Cut, ...] = ()
    members: tuple[History, ...] = ()
    teacher_share: float = 0.0

    @property
    def tempered(self) -> bool:
        """Whether the KL ended with a weight other than one, so that the posterior is a tempered one."""
        return self.kl_weight != 1.0

    def __len__(self) -> int:
        return len(self.epochs)

    def __iter__(self) -> Iterator[Epoch]:
        return iter(self.epochs)

    def __getitem__(self, index: int) -> Epoch:
        return self.epochs[index]

    def _repr_html_(self) -> str:
        names = ["log_likelihood", "kl", "density_median", "alpha_moving"]
        head = ["epoch", "log-likelihood", "KL", "share with alpha above 0.5", "alpha still moving"]
        rows = [[i + 1, *(written(getattr(self.epochs[i], name)) for name in names)] for i in some(len(self))]
        tempered = f", weight of the KL {written(self.kl_weight)}" if self.tempered else ""
        return html_table(f"{len(self)} epochs, {self.n} rows{tempered}", head, rows)

    def column(self, name: str) -> list[float]:
        """One field over the epochs, for plotting."""
        return [getattr(epoch, name) for epoch in self.epochs]

    def columns(self) -> dict[str, Any]:
        """The epochs as columns of six digits, without times: small, and the same for the same fit."""
        names = ["log_likelihood", "kl", "kl_weight", "density_expected", "density_median", "alpha_moving"]
        names += ["alpha_at_prior", "omega_lr"]
        columns: dict[str, Any] = {name: [float(f"{v:.6g}") for v in self.column(name)] for name in names}
        return columns | {"steps": self.steps, "n": self.n, "tempered": self.tempered}

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


class Answer(Enum):
    """What a prediction is about, as the likelihood says; metrics, pages and tables ask for this, not for its name."""

    CLASSES = "classes"
    YES_OR_NO = "yes or no"
    NUMBERS = "numbers"


class Predictive(Protocol):
    """The distribution of a new observation in each row, averaged over draws (`model.likelihoods.Mixture`)."""

    def log_density(self, y: Tensor, event: Tensor | None = None) -> Tensor:
        """For each row the log of the averaged density, all responses together; event: 0 where Y was cut off at y."""

    def cdf(self, y: Tensor) -> Tensor:
        """P(Y <= y), (rows, responses)."""

    def exceeds(self, y: Tensor) -> Tensor:
        """P(Y > y), (rows, responses)."""

    def quantile(self, shares: Tensor) -> Tensor:
        """(shares, rows, responses)."""

    def crps(self, y: Tensor) -> Tensor:
        """Continuous ranked probability score, (rows, responses)."""


@dataclass(frozen=True)
class Prediction:
    """A prediction averaged over draws of the network (Algorithm 2).

    kind: the likelihood's name; answer: what it is about.
    mean: class probabilities (or P(y = 1), or the mean response), averaged over the draws.
    draws: how many networks were drawn.
    votes: for classes, in how many draws each class was the most probable.
    total, aleatoric, epistemic: entropies of the averaged probabilities, the mean entropy of the draws, and
        their difference; for numbers the variances of the same names.
    used: share of the weights that at least one draw used (`density_used`), per layer and in total.
    intervals: level -> (low, high), as asked for in the call: of the class probabilities or of the mean.
    predictive: the same for new observations, where they are numbers.
    samples: the draws one by one (draw, row, output), if asked for; mixture: the distribution of a new observation that
        they make up, where observations are numbers.
    extrapolates: which rows lie outside the training data (`TrainingSupport`); None where those are not known.
    """

    kind: str
    mean: Tensor
    draws: int
    total: Tensor
    aleatoric: Tensor
    epistemic: Tensor
    answer: Answer
    votes: Tensor | None = None
    density_used: float = 1.0
    used_weights: int = 0
    density_used_by_layer: Mapping[str, float] = field(default_factory=dict)
    intervals: Mapping[float, tuple[Tensor, Tensor]] = field(default_factory=dict)
    predictive: Mapping[float, tuple[Tensor, Tensor]] = field(default_factory=dict)
    samples: Tensor | None = None
    mixture: Predictive | None = None
    extrapolates: Tensor | None = None

    def _repr_html_(self) -> str:
        count = len(self.mean)
        head = ["row", "most probable", "probability", "epistemic"]
        if self.answer is Answer.NUMBERS:
            head = ["row", "mean", "standard deviation", "epistemic part"]
        rows = [[i, *self._told(i)] for i in range(min(count, MOST_ROWS))]
        return html_table(f"{self.kind}: averaged over {self.draws} draws", head, rows, count)

    def _told(self, row: int) -> list[str]:
        """One row of the table above; of several outputs the first one, or the answers of all."""
        epistemic = float(self.epistemic[row].reshape(-1)[0])
        if self.answer is Answer.NUMBERS:
            mean, total = (float(part[row].reshape(-1)[0]) for part in (self.mean, self.total))
            return [written(mean), written(max(total, 0.0) ** 0.5), written(max(epistemic, 0.0) ** 0.5)]
        labels = ", ".join(str(int(label)) for label in self.labels[row].reshape(-1))
        return [labels, written(float(self.confidence[row].reshape(-1)[0])), written(epistemic)]

    @property
    def entropy(self) -> Tensor:
        """Entropy of the averaged class probabilities: all the uncertainty there is."""
        if self.answer is Answer.NUMBERS:
            refuse("Prediction", "entropy", "asked of class probabilities", f"a {self.kind} response; see .total")
        return self.total

    @property
    def labels(self) -> Tensor:
        """The most probable class of each row (for yes-or-no outputs: 1 where P > 0.5)."""
        if self.answer is Answer.CLASSES:
            return self.mean.argmax(-1)
        if self.answer is Answer.YES_OR_NO:
            return (self.mean > 0.5).long()
        refuse("Prediction", "labels", "asked of class probabilities", f"a {self.kind} response")

    @property
    def confidence(self) -> Tensor:
        """The largest averaged class probability of each row."""
        if self.answer is Answer.CLASSES:
            return self.mean.amax(-1)
        if self.answer is Answer.YES_OR_NO:
            return torch.maximum(self.mean, 1 - self.mean)
        refuse("Prediction", "confidence", "asked of class probabilities", f"a {self.kind} response")

    def decided(self, threshold: float = 0.95) -> Tensor:
        """Rows whose largest averaged class probability exceeds `threshold`; the others are in doubt (sec. 4)."""
        check_number("decided", "threshold", threshold, at_least=0, at_most=1)
        return self.confidence > threshold

    def decided_by_votes(self, share: float = 0.95) -> Tensor:
        """Rows in which one class has at least this share of the hard votes: the paper's 95 of 100 draws."""
        check_number("decided_by_votes", "share", share, above=0.5, at_most=1)
        votes = self._votes("decided_by_votes")
        return votes.amax(-1) >= share * self.draws - 1e-9

    def credible_classes(self, level: float = 0.95) -> Tensor:
        """(rows, classes): whether a class is in the credible set: more than (1 - level) of the draws vote for it.

        At 100 draws and 0.95 those are the classes with at least 6 votes (supplement C).
        """
        check_number("credible_classes", "level", level, above=0, below=1)
        return self._votes("credible_classes") > (1 - level) * self.draws + 1e-9

    def _votes(self, where: str) -> Tensor:
        if self.votes is None or self.answer is not Answer.CLASSES:
            refuse(where, "prediction", "of classes", f"a {self.kind} response")
        return self.votes

    def interval(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """Credible interval of the class probabilities or of the mean, at a level asked for in `predict`."""
        return _asked(self.intervals, level, "interval")

    def predictive_interval(self, level: float = 0.95) -> tuple[Tensor, Tensor]:
        """Interval for a new observation that is a number, at a level asked for in `predict`."""
        return _asked(self.predictive, level, "predictive_interval")


def _asked(table: Mapping[float, tuple[Tensor, Tensor]], level: float, where: str) -> tuple[Tensor, Tensor]:
    if level not in table:
        have = ", ".join(str(known) for known in table) or "none"
        refuse(where, "level", f"one asked for in predict(..., intervals=(...)), which were: {have}", level)
    return table[level]
