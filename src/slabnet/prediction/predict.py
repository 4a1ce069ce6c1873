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
from slabnet.core.records import Prediction
from slabnet.core.threads import threads_for, work_of
from slabnet.model.attach import likelihood_of, uncompiled
from slabnet.model.drawing import Draw, Scope, drawable_layers, drawing, members_of
from slabnet.model.draws import exact
from slabnet.model.likelihoods import Gaussian, Likelihood
from slabnet.prediction.extrapolation import TrainingSupport
from slabnet.training.batches import Prepare

BUFFER = 4_000_000  # numbers held at once for intervals, however many draws and rows there are
BISECTIONS = 50
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
    support: TrainingSupport | None = None,
) -> Prediction:
    """Predict by model averaging over `draws` joint draws of the network (Algorithm 2).

    draw: `exact` draws structure and weights; `median_drawn` the weights of the median model; `median` and
        `mean` are single networks, for which `draws` does not matter; `fixed(masks, ...)` a chosen model.
    intervals: levels of credible (and, for a Gaussian response, predictive) intervals to compute.
    keep_draws: also return the draws one by one.
    chunk: rows at a time; memory beyond the result does not grow with rows or draws, and draw r is the same
        network for every chunk, so the answer does not depend on it (but for rounding in matrix products).
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
    rows = Prepare(net, likelihood, dtype, where_x_is, "predict").features(x)
    if not draw.draws_weights:
        refuse("predict", "draw", "one that draws weights, or a single network", draw.name)
    average = _Average(net, likelihood, draw, seed_number(seed, "predict"), draws, chunk, device)
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


def _check_finite(found: Prediction) -> None:
    """Refuse an answer that is none, naming its first row; a variance or an end of an interval may be infinite."""
    bad = {"the mean": (found.mean, ~torch.isfinite(found.mean))}
    parts = {name: getattr(found, name) for name in ("total", "aleatoric", "epistemic")}
    for kind, ends in (("interval", found.intervals), ("predictive interval", found.predictive)):
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
    ) -> None:
        self.net, self.likelihood, self.draw, self.seed = net, likelihood, draw, seed
        self.chunk, self.device = chunk, device
        self.layers = drawable_layers(net)
        members = members_of(net)
        self.draws = min(draws, members or draws) if draw.random and self.layers else 1
        self.used: dict[str, Tensor] = {}

    def run(self, x: Tensor, levels: tuple[float, ...], keep_draws: bool) -> Prediction:
        sums = _Sums(self.likelihood, self.draws)
        samples: list[Tensor] = []
        for r in range(self.draws):
            parts = list(self._pass(r, x))
            sums.add(torch.cat([self.likelihood.mean(part) for part in parts]).cpu())
            if keep_draws:
                samples.append(torch.cat([self.likelihood.mean(part).cpu() for part in parts]))
        inside, outside = self._quantiles(x, levels) if levels else ({}, {})
        by_layer = {name: float(used.float().mean()) for name, used in self.used.items()}
        weights = sum(used.numel() for used in self.used.values())
        count = sum(int(used.sum()) for used in self.used.values())
        return Prediction(
            **sums.result(),
            draws=self.draws,
            density_used=count / weights if weights else 1.0,
            used_weights=count if weights else _plain_weights(self.net),
            density_used_by_layer=by_layer,
            intervals=inside,
            predictive=outside,
            samples=torch.stack(samples) if keep_draws else None,
            noise=self._noise(self.likelihood)[:, 0] if keep_draws and isinstance(self.likelihood, Gaussian) else None,
        )

    def _pass(self, r: int, x: Tensor) -> Iterator[Tensor]:
        """The outputs of network r, chunk by chunk."""
        with drawing(self.net, self.draw, keyed_generator(self.seed, "draw", r, device=self.device), r) as scope:
            for rows in torch.split(x, self.chunk):
                yield self.net(rows.to(self.device))
            self._count(scope)

    def _count(self, scope: Scope) -> None:
        """Which weights have been used at least once: from the very draws that predict."""
        for name, layer in self.layers.items():
            used = layer.used(scope)
            if used is not None:
                self.used[name] = used if name not in self.used else self.used[name] | used

    def _quantiles(self, x: Tensor, levels: tuple[float, ...]) -> tuple[dict[float, Any], dict[float, Any]]:
        """Intervals need all draws of a row at once: fewer rows at a time, and the same draws made again."""
        outputs = self.net(x[:1].to(self.device)).shape[-1]
        block = max(1, BUFFER // (self.draws * outputs))
        tails = torch.tensor([tail for level in levels for tail in ((1 - level) / 2, (1 + level) / 2)], dtype=x.dtype)
        means, news = [], []
        for start in range(0, len(x), block):
            rows = x[start : start + block]
            outs = torch.stack([torch.cat(list(self._pass(r, rows))) for r in range(self.draws)])
            values = self.likelihood.mean(outs).cpu()
            means.append(torch.quantile(values, tails, dim=0))
            if isinstance(self.likelihood, Gaussian):
                news.append(_mixture_quantiles(values, self._noise(self.likelihood).sqrt(), tails))
        return _by_level(levels, means), _by_level(levels, news) if news else {}

    def _noise(self, likelihood: Gaussian) -> Tensor:
        """The noise variance of each draw; a single network still has a phi that is uncertain."""
        count = self.draws if self.draws > 1 or likelihood.phi != "learned" else SINGLE_NETWORK_PHIS
        phis = [likelihood.draw_phi(keyed_generator(self.seed, "phi", r, device=self.device)) for r in range(count)]
        return torch.stack(phis).cpu()[:, None, :]


class _Sums:
    """Running sums over the draws; nothing is kept of a draw once it is added."""

    def __init__(self, likelihood: Likelihood, draws: int) -> None:
        self.likelihood, self.draws = likelihood, draws
        self.count = 0
        self.mean = self.spread = torch.zeros(())
        self.entropy: Tensor | None = torch.zeros(())
        self.votes: Tensor | None = torch.zeros((), dtype=torch.int32)

    def add(self, value: Tensor) -> None:
        self.count += 1
        if self.count == 1:
            self.mean, self.spread = torch.zeros_like(value), torch.zeros_like(value)
        step = value - self.mean  # Welford: no difference of large sums
        self.mean = self.mean + step / self.count
        self.spread = self.spread + step * (value - self.mean)
        entropy, votes = self.likelihood.entropy(value), self.likelihood.votes(value)
        self.entropy = None if entropy is None or self.entropy is None else self.entropy + entropy
        self.votes = None if votes is None or self.votes is None else self.votes + votes.to(torch.int32)

    def result(self) -> dict[str, Any]:
        total = self.likelihood.entropy(self.mean)
        if total is None or self.entropy is None:
            aleatoric, epistemic = self.likelihood.noise(self.mean), self.spread / self.count
            total = aleatoric + epistemic
        else:
            aleatoric = self.entropy / self.count
            epistemic = (total - aleatoric).clamp_min(0)  # mutual information, negative by rounding only
        found = {"kind": self.likelihood.name, "mean": self.mean, "votes": self.votes}
        return found | {"total": total, "aleatoric": aleatoric, "epistemic": epistemic}


def _mixture_quantiles(centres: Tensor, sds: Tensor, tails: Tensor) -> Tensor:
    """Quantiles of an equal mixture of normals over dimension 0, by bisection of its distribution function."""
    centres = centres.expand(len(sds), *centres.shape[1:])
    reach = 12 * sds.amax(0)
    low = (centres.amin(0) - reach).expand(len(tails), *centres.shape[1:])
    high = (centres.amax(0) + reach).expand_as(low)
    wanted = tails.reshape(-1, *(1 for _ in centres.shape[1:]))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        below = torch.stack([torch.special.ndtr((q - centres) / sds).mean(0) for q in middle]) < wanted
        low, high = torch.where(below, middle, low), torch.where(below, high, middle)
    return (low + high) / 2


def _by_level(levels: tuple[float, ...], parts: list[Tensor]) -> dict[float, Any]:
    both = torch.cat(parts, dim=1)
    return {level: (both[2 * i], both[2 * i + 1]) for i, level in enumerate(levels)}


def _plain_weights(net: nn.Module) -> int:
    """Weights of a network without indicators, intercepts not counted."""
    return sum(p.numel() for p in net.parameters() if p.ndim > 1)
