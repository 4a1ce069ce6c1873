"""A trial on held-out rows: what the KL should weigh, and how large the noise is on rows that were not fitted.

A factorised posterior is too cautious for some tables and just right for others, and residuals of fitted rows are too
small. Both are seen on rows that a first fit does not get: for each weight of the KL the noise is set to what explains
those rows best, where it is one number for all rows. The bound itself (weight 1) stands unless they are clearly more
probable under the smaller weight, and the fit of all rows then takes this weight and this noise.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from slabnet.config.settings import TrainConfig
from slabnet.data.dependence import INDEPENDENT, Dependence, Rows
from slabnet.data.holdout import split_rows
from slabnet.estimators.scaling import Array
from slabnet.model.likelihoods import Target
from slabnet.model.networks import Network
from slabnet.prediction.metrics import row_log_densities
from slabnet.prediction.predict import predict
from slabnet.training.checkpoints import Checkpoints
from slabnet.training.fit import fit
from slabnet.training.progress import Part, Show

KL_WEIGHTS = (1.0, 0.5)
ASIDE, MOST_ASIDE = 5, 2000  # one row in so many, and at most so many rows
FEWEST_ROWS, ROWS_PER_COLUMN = 100, 20  # with fewer rows a tempered posterior only finds chance, and is not tried
ROUNDS = 500
LEAST = 1e-6  # as a share of the variance of the response: less is rounding


@dataclass(frozen=True)
class Trial:
    """What came out: the weight to use, and the noise variance of each response (in the network's scale), where the
    noise is one number for all rows; () elsewhere.

    rows: how many were held out. log_densities: their mean log density, for each weight that was tried.
    """

    kl_weight: float
    phi: tuple[float, ...]
    rows: int
    log_densities: dict[float, float]

    def with_rows(self, phi: Array, rows: int) -> Trial:
        """The noise over the rows so far and more of them, which say `phi`.

        >>> Trial(1.0, (1.0,), 10, {}).with_rows(np.array([4.0]), 20).phi
        (3.0,)
        """
        all_rows = self.rows + rows
        mean = [(self.rows * old + rows * float(new)) / all_rows for old, new in zip(self.phi, phi, strict=True)]
        return replace(self, phi=tuple(mean), rows=all_rows)


def worth_trying(n: int, columns: int) -> bool:
    """Whether there are enough rows for a smaller weight of the KL, and to hold some out.

    >>> worth_trying(506, 13), worth_trying(500, 100)
    (True, False)
    """
    return n >= max(FEWEST_ROWS, ROWS_PER_COLUMN * columns)


@dataclass(frozen=True)
class Keeping:
    """How a fit of several runs is shown, where it is kept, and whether it goes on from there."""

    show: Show = "off"
    checkpoint: Checkpoints | None = None
    resume: bool = False

    def trial(self, number: int) -> Checkpoints | None:
        """Where a run of the trial is kept: in a folder of its own, in that of the whole fit."""
        checkpoint = self.checkpoint
        return None if checkpoint is None else replace(checkpoint, folder=Path(checkpoint.folder) / f"trial-{number}")


def try_out(
    net: Network,
    x: Array,
    y: Array | Target,
    config: TrainConfig,
    weights: Sequence[float],
    draws: int,
    seed: int,
    keeping: Keeping,
    dependence: Dependence = INDEPENDENT,
) -> Trial:
    """Fit copies of `net` to four fifths of the rows and judge them by the rest.

    The first weight stands unless another is better by more than a standard error of the difference.
    A run that was kept whole is not made again.

    >>> from slabnet.model.networks import mlp
    >>> x = np.linspace(-1, 1, 100)[:, None]
    >>> net = mlp((1, 3, 1), likelihood="gaussian")
    >>> try_out(net, x, x, TrainConfig(epochs=2), (1.0, 0.5), draws=5, seed=0, keeping=Keeping()).rows
    20
    """
    held_out, rest = _held_out(len(x), seed, dependence)
    size = min(config.batch_size, len(rest))
    densities: dict[float, Array] = {}
    noise: dict[float, tuple[float, ...]] = {}
    counts = None if not isinstance(y, Target) or y.weight is None else np.asarray(y.weight)[held_out]
    for number, weight in enumerate(weights, start=1):
        tried = copy.deepcopy(net)
        settings = config.model_copy(update={"kl_weight": weight, "batch_size": size})
        later = settings.epochs_for(len(rest)) * (len(weights) - number + len(x) / len(rest))
        part = Part(f"trial {number} of {len(weights)}", later)
        checkpoint, resume = keeping.trial(number), keeping.resume and keeping.checkpoint is not None
        fit(tried, (x[rest], y[rest]), settings, progress=keeping.show, checkpoint=checkpoint, resume=resume, part=part)
        densities[weight], noise[weight] = _judged(tried.cpu().double().eval(), x[held_out], y[held_out], draws, seed)
    best = weights[0]
    for weight in weights[1:]:
        gain = densities[weight] - densities[best]
        mean = np.average(gain, weights=counts)
        spread = np.sqrt(np.average((gain - mean) ** 2, weights=counts))
        if mean > spread / np.sqrt(len(gain)):
            best = weight
    mean_density = {weight: float(np.average(each, weights=counts)) for weight, each in densities.items()}
    return Trial(best, noise[best], len(held_out), mean_density)


def _judged(net: Network, x: Array, y: Array | Target, draws: int, seed: int) -> tuple[Array, tuple[float, ...]]:
    """Log densities of rows that were not fitted, and the noise that explains them best where it is one number."""
    target = y if isinstance(y, Target) else Target(torch.as_tensor(y))
    prediction = predict(net, x, draws, seed=seed, keep_draws=True, exposure=target.exposure)
    responses = np.asarray(target.y)
    if not net.likelihood.noise_variances():
        event = None if target.event is None else torch.as_tensor(target.event)
        return row_log_densities(prediction, torch.as_tensor(responses), event).numpy(), ()
    assert prediction.samples is not None
    weight = None if target.weight is None else np.asarray(target.weight)
    phi = noise_around(prediction.samples.numpy(), responses, weight=weight)
    return mixture_log_density(prediction.samples.numpy(), responses, phi), tuple(phi.tolist())


def _held_out(rows: int, seed: int, dependence: Dependence) -> tuple[Rows, Rows]:
    """Positions of the rows held out and of the others: whole groups, or the latest rows, where rows depend."""
    count = min(rows // ASIDE, MOST_ASIDE)
    if dependence.groups is None and dependence.times is None:
        order = np.random.default_rng(seed).permutation(rows)
        return order[:count], order[count:]
    rest, aside = split_rows(np.zeros(rows), False, count / rows, seed, dependence.groups, dependence.times)
    return aside, rest


def noise_around(samples: Array, y: Array, near: Sequence[float] | None = None, weight: Array | None = None) -> Array:
    """The variance phi, for each response, that makes y most probable under an equal mixture of N(sample, phi).

    samples: (draws, rows, responses). Each round weighs the draws by how well they explain a row, and takes the mean
    square around them (EM): the density never falls. near: what earlier rows say; then one round is made from there,
    since few rows of their own are best explained by whichever draw they meet. weight: how often each row counts.

    >>> noise_around(np.zeros((1, 4, 1)), np.array([[1.0], [-1.0], [3.0], [1.0]])).tolist()
    [3.0]
    """
    squares = (y - samples) ** 2
    least = LEAST * y.var(0) + np.finfo(float).tiny
    first = np.average(squares.mean(0), axis=0, weights=weight) if near is None else np.asarray(near)
    phi = np.maximum(first, least)
    for _ in range(ROUNDS if near is None else 1):
        shares = np.exp(-0.5 * (squares - squares.min(0)) / phi)
        before, phi = phi, (shares * squares).sum(0) / shares.sum(0)
        phi = np.maximum(np.average(phi, axis=0, weights=weight), least)
        if np.allclose(phi, before, rtol=1e-8, atol=0):
            break
    return np.asarray(phi)


def mixture_log_density(samples: Array, y: Array, phi: Array) -> Array:
    """For each row the log of the averaged density, all responses of a row together.

    >>> mixture_log_density(np.zeros((2, 1, 1)), np.zeros((1, 1)), np.ones(1)).round(3).tolist()
    [-0.919]
    """
    each = -0.5 * ((y - samples) ** 2 / phi + np.log(2 * np.pi * phi)).sum(-1)
    top = each.max(0)
    return np.asarray(top + np.log(np.exp(each - top).mean(0)))
