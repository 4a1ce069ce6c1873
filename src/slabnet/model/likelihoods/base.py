"""What every response distribution f(mu_i, phi) (eq. 1) says of itself; nothing else asks for its name."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from slabnet.core.errors import refuse
from slabnet.core.records import Answer
from slabnet.model.likelihoods.dispersion import Dispersion
from slabnet.model.likelihoods.target import Response, Target, response_of

# low and high: the interval of a new observation, or of the probability of the predicted class
NUMBER_COLUMNS = ("row", "prediction", "std", "low", "high", "aleatoric", "epistemic", "extrapolates")
CLASS_COLUMNS = ("row", "prediction", "decided", "low", "high", "entropy", "aleatoric", "epistemic", "extrapolates")


class Support(Enum):
    """Where a number can lie."""

    REAL = "any number"
    POSITIVE = "numbers above 0"
    COUNTS = "whole numbers from 0"


class Point(Enum):
    """The one number that stands for a distribution."""

    MEAN = "mean"
    MEDIAN = "median"  # where a mean does not exist under an uncertain dispersion


class YScale(Enum):
    """How estimators bring a response to a size that the priors of the weights are made for."""

    STANDARD = "mean 0 and standard deviation 1"
    RATIO = "divided by its mean"
    RATE = "the mean rate counts as exposure"
    NONE = "as it is"


class Conditional:
    """The distribution of y given the network's output and one value of the dispersion, for many draws at once.

    Shapes are those of the parameters, (draws, rows, responses); `y` is broadcast against them.
    """

    support: ClassVar[Support] = Support.REAL

    def log_prob(self, y: Tensor) -> Tensor:
        """log f(y), for each response."""
        raise NotImplementedError(f"{type(self).__name__} must give log_prob")

    def cdf(self, y: Tensor) -> Tensor:
        """P(Y <= y), for each response."""
        raise NotImplementedError(f"{type(self).__name__} must give its cdf")

    def log_survival(self, y: Tensor) -> Tensor:
        """log P(Y > y)."""
        return torch.log1p(-self.cdf(y))

    def around(self) -> tuple[Tensor, Tensor]:
        """Two points in the middle of the distribution, from which quantiles are looked for outwards."""
        raise NotImplementedError(f"{type(self).__name__} must say where it lies")


@dataclass(frozen=True)
class Head:
    """What stands at the end of the network where slabnet is not: exporters and pages look it up by name.

    name: a row of their tables. noise: what a variance takes besides the outputs: that of each response for "normal",
    of its logarithm for "lognormal" and "weibull", else that over the squared mean. log, sd: where those that draw the
    dispersion find its posterior, log phi ~ N(log, sd^2). cuts: between ordered levels.
    """

    name: str
    noise: tuple[float, ...] = ()
    log: tuple[float, ...] = ()
    sd: tuple[float, ...] = ()
    cuts: tuple[float, ...] = ()


class Likelihood(nn.Module):
    """How y depends on the network's output. To write another one:

    - give a `name`, `log_prob`, and `targets`, which says what is wrong with a y; `spec` and `built` if it has options;
    - say what it answers and predicts (`answer`, `mean`), how sure that is, and which `metrics` and `baseline` fit it;
    - decorate it with `register_likelihood`, and let `head` name a form that can be exported, if it has one.

    How sure it is, classes say by `entropy` and `votes`; numbers by `variance` and, for intervals and densities, by
    `conditional`.
    """

    name: str
    answer: ClassVar[Answer] = Answer.NUMBERS
    metrics: ClassVar[tuple[str, ...]] = (
        "rmse",
    )  # names of `prediction.evaluation`, the one to be shown first in front
    point: ClassVar[Point] = Point.MEAN
    y_scale: ClassVar[YScale] = YScale.NONE
    baseline: ClassVar[str] = "the mean"  # what someone would say who knows no inputs
    columns: ClassVar[tuple[str, ...]] = NUMBER_COLUMNS  # that `slabnet predict` writes
    sides: ClassVar[tuple[str, ...]] = ()  # what else a row may say, of "exposure" and "event"

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """log p(y_i | output_i), one number a row, in expectation over the dispersion."""
        raise NotImplementedError(f"{type(self).__name__} must give log_prob")

    def log_likelihood(self, output: Tensor, y: Response) -> Tensor:
        """The same for rows that say more than their response; their weight is not counted here."""
        return self.log_prob(output, response_of(y))

    def total(self, output: Tensor, y: Response) -> Tensor:
        """log p of all rows together, each as often as its weight says, in part as a teacher expects it."""
        each = self.log_likelihood(output, y)
        if isinstance(y, Tensor):
            return each.sum()
        if y.soft is not None and y.soft_share is not None:
            each = each + y.soft_share * (self.expected_log_prob(output, y.soft) - each)
        return each.sum() if y.weight is None else (y.weight * each).sum()

    def expected_log_prob(self, output: Tensor, soft: Tensor) -> Tensor:
        """The log density that a teacher expects of each row, who says `soft` in the shape of `mean`.

        For classes and for responses whose log density is linear in y it is the expectation; else that at the mean.
        """
        return self.log_prob(output, soft)

    def soft_targets(self, soft: Tensor, outputs: int, dtype: torch.dtype, where: str) -> Tensor:
        """What a teacher says in the type and shape of `mean`, or an error that says what is wrong with it."""
        shape = tuple(self.mean(torch.zeros(1, outputs)).shape[1:])
        soft = soft.unsqueeze(-1) if soft.ndim == 1 and shape == (1,) else soft
        if tuple(soft.shape[1:]) != shape or soft.is_complex():
            wanted = "probabilities of the classes" if self.answer is not Answer.NUMBERS else "means"
            refuse(where, "soft", f"{wanted}, {shape[0]} a row", f"shape {tuple(soft.shape)}")
        check_finite(soft, where, "soft")
        return soft.to(dtype)

    def targets(self, y: Tensor, outputs: int, dtype: torch.dtype, where: str) -> Tensor:
        """`y` in the type and shape that `log_prob` takes, or an error that says what is wrong with it."""
        raise NotImplementedError(f"{type(self).__name__} must check its targets")

    def check_rows(self, target: Target, where: str) -> None:
        """Refuse rows whose responses and other numbers do not go together."""

    @classmethod
    def outputs_for(cls, responses: int) -> int:
        """How many outputs of the network this many responses take."""
        return responses

    def free_outputs(self, outputs: int) -> int:
        """How many outputs, the first ones, may lie anywhere: those on the scale of the response, or log odds."""
        free = self.y_scale is YScale.STANDARD or self.answer is not Answer.NUMBERS
        return outputs if free else 0

    def parts(self, outputs: int) -> dict[str, slice]:
        """What outputs stand for, where they are parts of one distribution: name -> which of them."""
        return {}

    def check_outputs(self, outputs: int) -> None:
        """Refuse a number of outputs that this response cannot be made of."""

    def output_units(self, centre: Sequence[float], scale: Sequence[float]) -> tuple[list[float], list[float]]:
        """Centre and unit of each output, where the network was fitted to (y - centre) / scale.

        Outputs that are logarithms are moved by that of the scale.
        """
        if self.y_scale is YScale.STANDARD:
            return list(centre), list(scale)
        if self.y_scale is YScale.NONE:
            outputs = self.outputs_for(len(scale))
            return [0.0] * outputs, [1.0] * outputs
        return [math.log(unit) for unit in scale], [1.0] * len(scale)

    # What is predicted.

    def mean(self, output: Tensor) -> Tensor:
        """What is averaged over draws: class probabilities, or the mean response (or median: `point`)."""
        raise NotImplementedError(f"{type(self).__name__} must give its mean")

    def entropy(self, mean: Tensor) -> Tensor:
        """Entropy of one row's response given its `mean`, for classes."""
        refuse("predict", "likelihood", "one with an entropy", self.name)

    def votes(self, mean: Tensor) -> Tensor:
        """One where a draw decides for a class, in the shape of `mean`."""
        refuse("predict", "likelihood", "one whose draws decide for a class", self.name)

    def variance(self, output: Tensor) -> Tensor:
        """Variance of the response given the network's output, in the shape of `mean`, for numbers."""
        raise NotImplementedError(f"{type(self).__name__} must give its variance")

    def spread_scale(self, centre: Tensor) -> Tensor:
        """The scale on which variances are told: that of y, or its logarithm where y has no finite variance."""
        return centre

    def conditional(self, output: Tensor, dispersion: Tensor) -> Conditional | None:
        """The distribution of numbers given `output` (draws, rows, outputs) and `dispersion` (draws, any).

        None where it is not known: predictions then have no intervals for new observations.
        """
        return None

    def in_units(self, outputs: int, centre: Sequence[float], scale: Sequence[float]) -> list[tuple[str, float, float]]:
        """What each output of the network is called, and how it is told in the units of the responses.

        centre, scale: what the responses were fitted as, (y - centre) / scale. The output in their units is
        shift + factor * output, given as (name, factor, shift); "" leaves the name open.
        """
        if self.y_scale is YScale.STANDARD and outputs == len(scale):
            return [("", factor, shift) for shift, factor in zip(centre, scale, strict=True)]
        if self.y_scale is YScale.RATIO and outputs == len(scale):
            return [("", 1.0, math.log(factor)) for factor in scale]
        return [("", 1.0, 0.0)] * outputs

    def exposed(self, output: Tensor, exposure: Tensor) -> Tensor:
        """The output of rows that were observed for `exposure`; refused where a response has none."""
        refuse("predict", "exposure", f"left out for a {self.name} response", "given")

    # The dispersion, where there is one.

    @property
    def learns(self) -> bool:
        """Whether there is a dispersion with a posterior of its own."""
        return False

    def kl(self) -> Tensor:
        """KL of q(phi) from its prior; zero where there is no dispersion to learn."""
        return torch.zeros(())

    def draw_dispersion(self, generator: torch.Generator) -> Tensor:
        """One draw of phi from q, as a row of numbers."""
        return torch.zeros(0, device=generator.device)

    def at_draw(self, generator: torch.Generator) -> tuple[Self, Tensor]:
        """This likelihood at one draw of its dispersion, and log p(phi) - log q(phi) there."""
        certain = copy.deepcopy(self)
        parts = [part for part in certain.modules() if isinstance(part, Dispersion)]
        ratios = [part.fix_at_draw(generator) for part in parts]
        return certain, torch.stack(ratios).sum() if ratios else torch.zeros((), device=generator.device)

    def at_mean(self) -> Self:
        """This likelihood, certain of the posterior mean of its log dispersion."""
        certain = copy.deepcopy(self)
        for part in certain.modules():
            if isinstance(part, Dispersion):
                part.fix_at_mean()
        return certain

    def noise_variances(self) -> tuple[float, ...]:
        """The expected variance of each response where it is the same for all rows; () where it is not."""
        return ()

    def set_noise(self, phi: Sequence[float], rows: int) -> None:
        """Take phi as it was estimated from `rows` residuals."""
        refuse("fit", "likelihood", "one with a variance of its own", self.name)

    # Where it goes.

    def spec(self) -> dict[str, Any]:
        """What `likelihood_from` needs to build this again."""
        return {"name": self.name}

    @classmethod
    def built(cls, options: dict[str, Any], outputs: int) -> Likelihood:
        """One from what `spec` gave, without the name."""
        return cls(**options)

    def classes(self, outputs: int) -> int:
        """How many classes this many outputs tell apart."""
        return outputs

    def head(self, outputs: int) -> Head | None:
        """What stands behind this many outputs in an export; None refuses to be exported."""
        return None


def same_shape(output: Tensor, y: Tensor) -> None:
    """Refuse what broadcasting would silently turn into a table of all rows against all rows."""
    if output.shape != y.shape:
        refuse("likelihood", "y", f"of the shape of the outputs, {tuple(output.shape)}", f"shape {tuple(y.shape)}")


def check_finite(values: Tensor, where: str, name: str) -> None:
    """Refuse NaN and infinity, naming the first row that has one."""
    if values.is_floating_point() and not bool(torch.isfinite(values).all()):
        row = int((~torch.isfinite(values)).nonzero()[0, 0])
        refuse(where, name, "finite numbers", f"NaN or infinity in row {row}")


def probabilities(soft: Tensor, where: str) -> Tensor:
    """What a teacher says of classes, if each row is a distribution over them."""
    off = (soft < 0).any(-1) | ((soft.double().sum(-1) - 1).abs() > 1e-3)
    if bool(off.any()):
        row = int(off.nonzero()[0, 0])
        refuse(where, "soft", "probabilities that sum to 1 in each row", f"a sum of {soft[row].sum():g} in row {row}")
    return soft


def by_output(y: Tensor, outputs: int, where: str) -> Tensor:
    """`y` as a table with a column for each output."""
    y = y.unsqueeze(-1) if y.ndim == 1 else y
    if y.ndim != 2 or y.shape[1] != outputs:
        refuse(where, "y", f"{outputs} number(s) a row, as the network gives", f"shape {tuple(y.shape)}")
    return y


def positive(y: Tensor, where: str) -> Tensor:
    """`y`, if all of it is above 0."""
    check_finite(y, where, "y")
    if bool((y <= 0).any()):
        row = int((y <= 0).nonzero()[0, 0])
        refuse(where, "y", "numbers above 0", f"{y[row].min().item():g} in row {row}")
    return y


def by_scipy(name: str, *arguments: Tensor) -> Tensor:
    """A function of `scipy.special` that torch has not, in double precision."""
    from scipy import special  # slow to import

    function: Callable[..., Any] = getattr(special, name)
    return torch.as_tensor(function(*(part.detach().cpu().double().numpy() for part in arguments)))
