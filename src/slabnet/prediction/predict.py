"""Algorithm 2: predictions averaged over joint draws of structure and weights, and its short cuts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from slabnet.core.devices import device_of
from slabnet.core.errors import NotFinite, check_number, check_whole, refuse
from slabnet.core.noise import Seed, keyed_generator, seed_number
from slabnet.core.records import Answer, Prediction
from slabnet.core.threads import threads_for, work_of
from slabnet.model.attach import likelihood_of, uncompiled
from slabnet.model.drawing import Draw, Scope, count_draws, drawable_layers, drawing
from slabnet.model.draws import exact
from slabnet.model.likelihoods import Likelihood, Mixture, Point
from slabnet.prediction.extrapolation import TrainingSupport
from slabnet.training.batches import Prepare
from slabnet.training.datasets import features_of

BUFFER = 4_000_000  # numbers held at once for intervals, however many draws and rows there are
SINGLE_NETWORK_PHIS = 200


def predict(
    net: nn.Module,
    x: Any,
    draws: int = 10,
    *,
    draw: Draw = exact,
    intervals: float | Sequence[float] = (),
    keep_draws: bool = False,
    chunk: int = 1000,
    seed: Seed = 0,
    exposure: Any = None,
    support: TrainingSupport | None = None,
) -> Prediction:
    """Predict by model averaging over `draws` joint draws of the network (Algorithm 2).

    x: rows as an array; or a `DataLoader` or `Dataset` whose rows or batches are x or (x, y).
    draw: `exact` draws structure and weights; `median_drawn` the weights of the median model, `fixed(masks, ...)` of a
        chosen one; `median` and `mean` are single networks (of a mixture one for each member), whatever `draws` is.
    intervals: levels of credible (and, where numbers are predicted, predictive) intervals to compute.
    keep_draws: also return the draws one by one.
    chunk: rows at a time; memory beyond the result does not grow with rows or draws, and draw r is the same
        network for every chunk, so the answer does not depend on it (but for rounding in matrix products).
    exposure: of each row, over which counts are to be predicted; 1 where it is left out.
    support: a summary of the training rows, by which `Prediction.extrapolates` marks rows outside them.

    >>> from slabnet.model.networks import mlp
    >>> prediction = predict(mlp((4, 3)), torch.zeros(2, 4), draws=5)
    >>> prediction.mean.shape, prediction.votes.sum(-1).tolist()
    (torch.Size([2, 3]), [5, 5])
    """
    check_whole("predict", "draws", draws, at_least=1)
    check_whole("predict", "chunk", chunk, at_least=1)
    intervals = (intervals,) if isinstance(intervals, float) else tuple(intervals)
    if not isinstance(draw, Draw):
        refuse("predict", "draw", "a draw such as exact, mean or median", draw)
    for level in intervals:
        check_number("predict", "intervals", level, above=0, below=1)
    net = uncompiled(net)
    device, dtype = device_of(net)
    likelihood = likelihood_of(net).to(device, dtype)
    where_x_is = x.device if isinstance(x, Tensor) else torch.device("cpu")
    prepare = Prepare(net, likelihood, dtype, where_x_is, "predict")
    rows = prepare.features(features_of(x))
    if not draw.draws_weights:
        refuse("predict", "draw", "one that draws weights, or a single network", draw.name)
    exposures = None if exposure is None else prepare.side("exposure", exposure, len(rows))
    average = _Average(net, likelihood, draw, seed_number(seed, "predict"), draws, chunk, device, exposures)
    work = work_of(net, min(chunk, len(rows)), rows.shape[2:].numel())
    modes = {part: part.training for part in net.modules()}
    net.eval()
    try:
        with torch.no_grad(), threads_for(work):
            prediction = average.run(rows, intervals, keep_draws)
    finally:
        for part, mode in modes.items():
            part.training = mode
    _check_finite(prediction)
    if support is None:
        return prediction
    return replace(prediction, extrapolates=torch.as_tensor(support.extrapolates(rows.flatten(1).cpu().numpy())))


def _check_finite(prediction: Prediction) -> None:
    """Refuse an answer that is none, naming its first row; a variance or an end of an interval may be infinite."""
    bad = {"the mean": (prediction.mean, ~torch.isfinite(prediction.mean))}
    parts = {name: getattr(prediction, name) for name in ("total", "aleatoric", "epistemic")}
    for kind, ends in (("interval", prediction.intervals), ("predictive interval", prediction.predictive)):
        parts |= {f"the {level:g} {kind}": end for level, pair in ends.items() for end in pair}
    bad |= {name: (part, torch.isnan(part)) for name, part in parts.items()}
    for name, (part, wrong) in bad.items():
        if bool(wrong.any()):
            first = tuple(wrong.nonzero()[0].tolist())
            raise NotFinite("predict", name, float(part[first]), first[0])


class _Average:
    """One call of `predict`. Draw r depends on (seed, r) only."""

    def __init__(
        self,
        net: nn.Module,
        likelihood: Likelihood,
        draw: Draw,
        seed: int,
        draws: int,
        chunk: int,
        device: torch.device,
        exposure: Tensor | None = None,
    ) -> None:
        self.net, self.likelihood, self.draw, self.seed = net, likelihood, draw, seed
        self.chunk, self.device, self.exposure = chunk, device, exposure
        self.layers = drawable_layers(net)
        self.draws = count_draws(net, draw, draws)
        self.used: dict[str, Tensor] = {}

    def run(self, x: Tensor, levels: tuple[float, ...], keep_draws: bool) -> Prediction:
        sums = _Sums(self.likelihood)
        samples: list[Tensor] = []
        means: list[Tensor] = []
        for r in range(self.draws):
            output = torch.cat(list(self._pass(r, x, self.exposure)))
            if r == 0 and output.ndim == 2:
                self.likelihood.check_outputs(output.shape[1])
            sums.add(output)
            if keep_draws:
                samples.append(output.cpu())
                means.append(self.likelihood.mean(output).cpu())
        inside, outside, point = self._quantiles(x, levels)
        by_layer = {name: float(used.float().mean()) for name, used in self.used.items()}
        weights = sum(used.numel() for used in self.used.values())
        count = sum(int(used.sum()) for used in self.used.values())
        return Prediction(
            **sums.result() | point,
            draws=self.draws,
            density_used=count / weights if weights else 1.0,
            used_weights=count if weights else _plain_weights(self.net),
            density_used_by_layer=by_layer,
            intervals=inside,
            predictive=outside,
            samples=torch.stack(means) if keep_draws else None,
            mixture=self._mixture(torch.stack(samples)) if keep_draws else None,
        )

    def _pass(self, r: int, x: Tensor, exposure: Tensor | None) -> Iterator[Tensor]:
        """The outputs of network r, chunk by chunk."""
        with drawing(self.net, self.draw, keyed_generator(self.seed, "draw", r, device=self.device), r) as scope:
            for start in range(0, len(x), self.chunk):
                part = slice(start, start + self.chunk)
                output = self.net(x[part].to(self.device))
                yield output if exposure is None else self.likelihood.exposed(output, exposure[part].to(self.device))
            self._count(scope)

    def _count(self, scope: Scope) -> None:
        """Which weights have been used at least once: from the very draws that predict."""
        for name, layer in self.layers.items():
            used = layer.used(scope)
            if used is not None:
                self.used[name] = used if name not in self.used else self.used[name] | used

    def _quantiles(
        self, x: Tensor, levels: tuple[float, ...]
    ) -> tuple[dict[float, Any], dict[float, Any], dict[str, Tensor]]:
        """Intervals of the mean and of observations, and the median where that is what is predicted.

        They need all draws of a row at once: fewer rows at a time, and the same draws made again.
        """
        median = self.likelihood.point is Point.MEDIAN
        if not levels and not median:
            return {}, {}, {}
        outputs = self.net(x[:1].to(self.device)).shape[-1]
        block = max(1, BUFFER // (self.draws * outputs))
        tails = torch.tensor([tail for level in levels for tail in ((1 - level) / 2, (1 + level) / 2)], dtype=x.dtype)
        means, news, points = [], [], []
        for start in range(0, len(x), block):
            part = slice(start, start + block)
            exposure = None if self.exposure is None else self.exposure[part]
            outs = torch.stack([torch.cat(list(self._pass(r, x[part], exposure))) for r in range(self.draws)])
            mixture = self._mixture(outs.cpu())
            if levels:
                means.append(torch.quantile(self.likelihood.mean(outs).cpu(), tails, dim=0))
            if levels and mixture is not None:
                news.append(mixture.quantile(tails))
            if median and mixture is not None:
                points.append(mixture.quantile(torch.tensor([0.5]))[0])
        return (
            _by_level(levels, means) if means else {},
            _by_level(levels, news) if news else {},
            {"mean": torch.cat(points)} if points else {},
        )

    def _mixture(self, outputs: Tensor) -> Mixture | None:
        """What the draws say of new observations; a single network still has a phi that is uncertain."""
        count = self.draws if self.draws > 1 or not self.likelihood.learns else SINGLE_NETWORK_PHIS
        keys = (keyed_generator(self.seed, "phi", r, device=self.device) for r in range(count))
        dispersions = torch.stack([self.likelihood.draw_dispersion(key) for key in keys])
        return Mixture.of(self.likelihood, outputs, dispersions.to(outputs))


class _Sums:
    """Running sums over the draws; nothing is kept of a draw once it is added."""

    def __init__(self, likelihood: Likelihood) -> None:
        self.likelihood = likelihood
        self.numbers = likelihood.answer is Answer.NUMBERS
        self.count = 0
        self.mean = self.centre = self.spread = self.inside = torch.zeros(())
        self.votes = torch.zeros((), dtype=torch.int32)

    def add(self, output: Tensor) -> None:
        value = self.likelihood.mean(output).cpu()
        self.count += 1
        if self.count == 1:
            self.mean, self.centre, self.spread = (torch.zeros_like(value) for _ in range(3))
        self.mean = self.mean + (value - self.mean) / self.count
        told = self.likelihood.spread_scale(value) if self.numbers else value
        step = told - self.centre  # Welford: no difference of large sums
        self.centre = self.centre + step / self.count
        self.spread = self.spread + step * (told - self.centre)
        inside = self.likelihood.variance(output).cpu() if self.numbers else self.likelihood.entropy(value)
        self.inside = self.inside + (inside - self.inside) / self.count
        if not self.numbers:
            self.votes = self.votes + self.likelihood.votes(value).to(torch.int32)

    def result(self) -> dict[str, Any]:
        parts = {"kind": self.likelihood.name, "answer": self.likelihood.answer, "mean": self.mean}
        if self.numbers:  # law of total variance
            epistemic = self.spread / self.count
            return parts | {"total": self.inside + epistemic, "aleatoric": self.inside, "epistemic": epistemic}
        total = self.likelihood.entropy(self.mean)
        epistemic = (total - self.inside).clamp_min(0)  # mutual information, negative by rounding only
        return parts | {"votes": self.votes, "total": total, "aleatoric": self.inside, "epistemic": epistemic}


def _by_level(levels: tuple[float, ...], parts: list[Tensor]) -> dict[float, Any]:
    both = torch.cat(parts, dim=1)
    return {level: (both[2 * i], both[2 * i + 1]) for i, level in enumerate(levels)}


def _plain_weights(net: nn.Module) -> int:
    """Weights of a network without indicators, intercepts not counted."""
    return sum(p.numel() for p in net.parameters() if p.ndim > 1)
