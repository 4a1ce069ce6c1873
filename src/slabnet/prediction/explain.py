"""Why a row has its prediction: what each column contributes, in every drawn network."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from slabnet.core.devices import device_of
from slabnet.core.errors import check_choice, check_number, check_whole, refuse
from slabnet.core.noise import Seed, keyed_generator, seed_number
from slabnet.core.records import Answer
from slabnet.core.threads import threads_for
from slabnet.model.attach import likelihood_of, uncompiled
from slabnet.model.drawing import Draw, count_draws, drawing
from slabnet.model.draws import exact
from slabnet.model.likelihoods import Likelihood
from slabnet.prediction.drawn import Chain, Columns, Drawn, Link, drawn_network, is_piecewise_linear
from slabnet.prediction.explanation import ByDraw, Estimate, Explanation, Regions
from slabnet.prediction.shapley import Values, shapley_values
from slabnet.training.batches import Prepare

Array = NDArray[np.float64]
Scale = Literal["linear", "response"]
SCALES = ("linear", "response")
BUFFER = 20_000_000  # numbers held at once before they become means and intervals


@dataclass(frozen=True)
class Framing:
    """What a table's columns and responses are called, and their units.

    groups: the network's inputs that belong to each column. centre, scale: an input is (column - centre) / scale.
    outputs: names of what is predicted, which is shift + factor * what the network says, on the scale that is asked.
    """

    groups: Mapping[str, Sequence[int]]
    outputs: Sequence[str]
    centre: Array
    scale: Array
    shift: Array
    factor: Array
    classes: bool = False

    @classmethod
    def plain(cls, groups: Mapping[str, Sequence[int]], inputs: int, outputs: int, classes: bool) -> Framing:
        """Of a network alone."""
        names = [str(k) for k in range(outputs)] if outputs > 1 else ["output"]
        ends = np.zeros(outputs), np.ones(outputs)
        return cls(groups, names, np.zeros(inputs), np.ones(inputs), *ends, classes)


@dataclass(frozen=True)
class Question:
    """What is asked of a network: with how many draws, on which scale, how surely."""

    draws: int = 100
    draw: Draw = exact
    scale: Scale = "linear"
    level: float = 0.95
    pairs: int = 1
    seed: int = 0

    def check(self, where: str) -> None:
        check_whole(where, "draws", self.draws, at_least=1)
        check_choice(where, "scale", self.scale, SCALES)
        check_number(where, "level", self.level, above=0, below=1)
        check_whole(where, "pairs", self.pairs, at_least=1)
        if not isinstance(self.draw, Draw) or not self.draw.draws_weights:
            refuse(where, "draw", "a draw that gives each weight a value, such as exact or median", self.draw)


def explain(
    net: nn.Module,
    x: Any,
    *,
    background: Any,
    draws: int = 100,
    draw: Draw = exact,
    scale: Scale = "linear",
    groups: Mapping[str, Sequence[int]] | None = None,
    names: Sequence[str] | None = None,
    level: float = 0.95,
    pairs: int = 1,
    seed: Seed = 0,
    keep_draws: bool = False,
) -> Explanation:
    """What each column contributes to the prediction of each row of `x`, with an interval over drawn networks.

    background: rows that stand for not knowing a column: a column that is left out takes its values in all of them, and
        the mean prediction over them is the baseline. Fifty rows of a table are usually enough.
    draws, draw: networks that are drawn, and how; draw r is the network of draw r in `predict`.
    scale: "linear" explains the network's outputs (the linear predictor), "response" what they mean: probabilities,
        counts, times.
    groups: inputs that belong to one column, by name (each input once); None takes every input for a column, called by
        `names` or x0, x1 and so on.
    level: of the intervals. seed: of the draws. keep_draws: keep all numbers draw by draw (`Explanation.by_draw`).
    pairs: pairs of permutations for each row of the background, where a draw needs them.

    Contributions are Shapley values. In each draw only the columns it uses are looked at, and on the linear scale each
    sum of units only with the columns these read: up to 12 of them over all 2^12 coalitions, which is exact; of more,
    over random permutations in pairs of opposite order, whose standard error is told. `Explanation.regions` has slope
    times value beside them.

    >>> from slabnet.model.networks import mlp
    >>> net = mlp((2, 1), likelihood="gaussian")
    >>> why = explain(net, torch.ones(3, 2), background=torch.zeros(5, 2), draws=5)
    >>> why.contributions.mean.shape, why.columns
    ((3, 2, 1), ('x0', 'x1'))
    """
    asked = Question(draws, draw, scale, level, pairs, seed_number(seed, "explain"))
    asked.check("explain")
    if not isinstance(net, nn.Module):
        refuse("explain", "net", "a network (a fitted estimator has a method `explain`)", type(net).__name__)
    net = uncompiled(net)
    rows, behind = (_features(net, part, name) for part, name in ((x, "x"), (background, "background")))
    inputs = behind[0].numel()
    if names is not None and (groups is not None or len(names) != inputs):
        refuse("explain", "names", f"one for each of {inputs} inputs, without groups", f"{len(names)} names")
    called = [f"x{i}" for i in range(inputs)] if names is None else [str(name) for name in names]
    of_columns = {name: (i,) for i, name in enumerate(called)} if groups is None else groups
    likelihood = likelihood_of(net)
    with torch.no_grad():
        output = net(behind[:1])
        output = likelihood.mean(output) if scale == "response" else output
    classes = likelihood.answer is not Answer.NUMBERS
    framing = Framing.plain(_checked(of_columns, inputs), inputs, output.shape[-1], classes)
    explainer = Explainer(net, framing, asked, tuple(rows.shape[1:]), keep_draws)
    return explainer.explain(rows.flatten(1), behind.flatten(1))


def _features(net: nn.Module, x: Any, name: str) -> Tensor:
    device, dtype = device_of(net)
    if name == "background" and isinstance(x, (Sized, Tensor)) and not len(x):
        refuse("explain", name, "at least one row", "none")
    where = "explain" if name == "x" else f"explain, {name}"
    rows = Prepare(net, likelihood_of(net), dtype, torch.device("cpu"), where).features(x)
    return rows.to(device)


def _checked(groups: Mapping[str, Sequence[int]], inputs: int) -> Mapping[str, Sequence[int]]:
    """The groups, if every input stands in just one of them."""
    places = sorted(place for group in groups.values() for place in group)
    if places != list(range(inputs)):
        refuse("explain", "groups", f"each of the {inputs} inputs in one of them", f"positions {places[:20]}")
    return groups


@dataclass
class _Chunk:
    """The numbers of some rows, draw by draw."""

    prediction: list[Tensor] = field(default_factory=list)
    baseline: list[Tensor] = field(default_factory=list)
    phi: list[Tensor] = field(default_factory=list)
    variance: Tensor = field(default_factory=lambda: torch.zeros(()))
    slopes: list[Tensor] = field(default_factory=list)
    rest: list[Tensor] = field(default_factory=list)


class Explainer:
    """One network, what its columns are called, and what is asked of it."""

    def __init__(
        self,
        net: nn.Module,
        framing: Framing,
        asked: Question,
        shape: tuple[int, ...] | None = None,
        keep_draws: bool = False,
    ) -> None:
        self.net, self.framing, self.asked = net, framing, asked
        self.keep_draws = keep_draws
        self.shape = (len(framing.centre),) if shape is None else shape
        self.device, self.dtype = device_of(net)
        self.likelihood: Likelihood = likelihood_of(net)
        self.columns = Columns(list(framing.groups.values()), len(framing.centre))
        self.draws = count_draws(net, asked.draw, asked.draws)
        self.link: Link | None = None if asked.scale == "linear" else self.likelihood.mean

    def explain(self, x: Tensor, background: Tensor, values: Sequence[Sequence[Any]] | None = None) -> Explanation:
        """Explain rows of the network's inputs; values: what the table holds in their columns."""
        x, background = x.cpu().double(), background.cpu().double()
        each = self.draws * len(self.framing.groups) * len(self.framing.outputs)
        rows = max(1, BUFFER // max(1, each))
        parts = [self._chunk(x[i : i + rows], background) for i in range(0, len(x), rows)]
        if values is None:
            known = x.numpy() * self.framing.scale + self.framing.centre
            values = [[_value(row[list(group)]) for group in self.framing.groups.values()] for row in known]
        return _joined(parts, values)

    def each_draw(self) -> Iterator[Drawn]:
        """The drawn networks, each within its draw, as they predict."""
        modes = {part: part.training for part in self.net.modules()}
        self.net.eval()
        try:
            for r in range(self.draws):
                key = keyed_generator(self.asked.seed, "draw", r, device=self.device)
                with threads_for(0), torch.no_grad(), drawing(self.net, self.asked.draw, key, r) as scope:
                    yield drawn_network(self.net, scope, self.columns, self.dtype, self.shape)
        finally:
            for part, mode in modes.items():
                part.training = mode

    def _chunk(self, x: Tensor, background: Tensor) -> Explanation:
        """All draws of some rows."""
        chunk = _Chunk()
        for r, drawn in enumerate(self.each_draw()):
            self._draw(chunk, drawn, x, background, keyed_generator(self.asked.seed, "permutations", r))
        return self._told(chunk)

    def _draw(self, chunk: _Chunk, drawn: Drawn, x: Tensor, background: Tensor, generator: torch.Generator) -> None:
        outputs = [drawn(x), drawn(background)]
        said, behind = outputs if self.link is None else [self.link(output) for output in outputs]
        parts: Sequence[Drawn] = [drawn]
        if self.link is None and isinstance(drawn, Chain):
            parts = drawn.summands()
        values = Values(torch.zeros(len(x), len(self.framing.groups), said.shape[1], dtype=said.dtype), torch.zeros(()))
        if parts:
            values = shapley_values(parts, said.shape[1], x, background, self.link, self.asked.pairs, generator)
        chunk.prediction.append(said)
        chunk.baseline.append(behind.mean(0))
        chunk.phi.append(values.phi)
        chunk.variance = chunk.variance + values.variance
        if self.link is None:
            slopes, rest = self._region(drawn, x)
            chunk.slopes.append(slopes)
            chunk.rest.append(rest)

    def _region(self, drawn: Drawn, x: Tensor) -> tuple[Tensor, Tensor]:
        """Slope times value of each column, in the table's units, and what is left of each output."""
        shift = torch.as_tensor(self.framing.centre / self.framing.scale)
        member = self.columns.member.double()
        with torch.enable_grad():
            inputs = x.clone().requires_grad_(True)
            output = drawn(inputs)
            terms = []
            for k in range(output.shape[1]):
                total = output[:, k].sum()
                slope = torch.autograd.grad(total, inputs, retain_graph=True, allow_unused=True)[0]
                terms.append(torch.zeros_like(x) if slope is None else slope * (x + shift))
        by_column = torch.stack([term @ member.T for term in terms], -1)
        return by_column, output.detach() - by_column.sum(1)

    def _told(self, chunk: _Chunk) -> Explanation:
        """The numbers of all draws as means and intervals, in the units of the response."""
        factor, shift = self.framing.factor, self.framing.shift
        prediction = torch.stack(chunk.prediction).numpy() * factor + shift
        baseline = torch.stack(chunk.baseline).numpy() * factor + shift
        phi = torch.stack(chunk.phi).numpy() * factor
        errors = np.sqrt(np.broadcast_to(chunk.variance.numpy(), phi.shape[1:])) * np.abs(factor) / self.draws
        level, slopes, rest, regions = self.asked.level, None, None, None
        if chunk.slopes:
            slopes, rest = torch.stack(chunk.slopes).numpy() * factor, torch.stack(chunk.rest).numpy() * factor + shift
            exact_there = is_piecewise_linear(self.net)
            regions = Regions(Estimate.of(slopes, level), Estimate.of(rest, level), exact_there)
        kept = ByDraw(prediction, baseline, phi, slopes, rest) if self.keep_draws else None
        return Explanation(
            columns=tuple(self.framing.groups),
            outputs=tuple(self.framing.outputs),
            values=(),
            scale=self.asked.scale,
            level=level,
            draws=self.draws,
            prediction=Estimate.of(prediction, level),
            baseline=Estimate.of(baseline, level),
            contributions=Estimate.of(phi, level),
            errors=errors,
            regions=regions,
            by_draw=kept,
            classes=self.framing.classes,
        )


def _joined(parts: Sequence[Explanation], values: Sequence[Sequence[Any]]) -> Explanation:
    """Chunks of rows as one; their draws are the same, and so is the baseline."""
    first, regions, kept = parts[0], None, None
    whole = {name: [getattr(part, name) for part in parts] for name in ("regions", "by_draw")}
    if first.regions is not None:
        each = [part for part in whole["regions"] if part is not None]
        slopes, rest = (Estimate.joined([getattr(p, name) for p in each]) for name in ("contributions", "intercept"))
        regions = Regions(slopes, rest, first.regions.exact)
    if first.by_draw is not None:
        names = ("prediction", "contributions", "regions", "intercept")
        by_name: dict[str, Any] = {}
        for name in names:
            numbers = [getattr(part, name) for part in whole["by_draw"]]
            by_name[name] = None if numbers[0] is None else np.concatenate(numbers, 1)
        kept = replace(first.by_draw, **by_name)
    return replace(
        first,
        values=tuple(tuple(row) for row in values),
        prediction=Estimate.joined([part.prediction for part in parts]),
        contributions=Estimate.joined([part.contributions for part in parts]),
        errors=np.concatenate([part.errors for part in parts]),
        regions=regions,
        by_draw=kept,
    )


def _value(numbers: Array) -> Any:
    return float(numbers[0]) if len(numbers) == 1 else tuple(float(number) for number in numbers)
