"""What is exported, as plain steps with numpy arrays: the one thing all formats are written from."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from slabnet.compact.layers import Decided, Kept, Take
from slabnet.compact.network import Compact, compact
from slabnet.compact.parts import OPTIONS
from slabnet.config.fit_card import EstimatorCard, FitCard
from slabnet.core.errors import check_whole, refuse
from slabnet.core.noise import keyed_generator
from slabnet.core.records import Selection
from slabnet.export.heads import SCALED, head_of
from slabnet.model.activations import activation_of, make_activation, numbers_of
from slabnet.model.drawing import drawing
from slabnet.model.draws import exact
from slabnet.model.elementwise import Mixed
from slabnet.model.likelihoods import Likelihood, Point
from slabnet.model.likelihoods import Mixture as Predicted
from slabnet.model.mixture import Mixture
from slabnet.model.skips import Fork, Join
from slabnet.prediction.predict import SINGLE_NETWORK_PHIS

# "kind", and the arrays and options of that kind; "join" puts what stood at the "fork" behind what comes, "mixed" has
# for each of its "steps", activations, the next "counts" units
Step = dict[str, Any]


@dataclass(frozen=True)
class Plan:
    """A network as steps one after the other, once for its means or once for each draw.

    response: the name of the likelihood; head: its row of `HEADS`; noise, cuts: what `Head` says they are.
    dispersions: of a median over several networks, that of each of them: the variance of the logarithm, or the shape.
    shape: of one row of x. input_names: one for each input, where known. means, scales: the inputs are (x - means) /
    scales, where the model was fitted to standardised inputs. rest: preprocessing that is not part of the graph.
    """

    networks: tuple[tuple[Step, ...], ...]
    response: str
    head: str
    shape: tuple[int, ...]
    outputs: int
    draws: int
    input_names: tuple[str, ...] = ()
    means: tuple[float, ...] = ()
    scales: tuple[float, ...] = ()
    noise: tuple[float, ...] = ()
    cuts: tuple[float, ...] = ()
    dispersions: tuple[tuple[float, ...], ...] = ()
    rest: Mapping[str, Any] = field(default_factory=dict)
    weights: int = 0

    @property
    def about(self) -> dict[str, Any]:
        """What a reader of the file wants to know, as plain numbers and text."""
        return {
            "response": self.response,
            "head": self.head,
            "shape": list(self.shape),
            "outputs": self.outputs,
            "draws": self.draws,
            "input_names": list(self.input_names),
            "noise": list(self.noise),
            "cuts": list(self.cuts),
            "dispersions": [list(one) for one in self.dispersions],
        }


def make_plan(
    net: nn.Module, selection: Selection | None, draws: int = 0, seed: int = 0, card: FitCard | None = None
) -> Plan:
    """The plan of a chosen model: of its means, or of `draws` networks drawn once, those of `predict(seed=seed)`.

    The means of a mixture are one network for each member, averaged as draws are.
    """
    check_whole("export", "draws", draws, at_least=0)
    each, turn = _smalls(net, selection, draws)
    small = each[0]
    if small.row_shape is None:
        refuse("export", "net", "one whose rows have a known shape, as mlp and convnet", "a convolution of any size")
    if draws:
        networks = tuple(tuple(_steps(each[turn(r)], r, seed)) for r in range(draws))
    else:
        networks = tuple(tuple(_steps(part, None, seed)) for part in each)
    head = head_of(small.likelihood, small.outputs)
    noise = list(head.noise)
    names, means, scales, rest = _preprocessing(card or FitCard(), int(np.prod(small.row_shape)))
    of_members = {turn(r): steps for r, steps in enumerate(networks)}.values()
    weights = sum(int(step["mask"].sum()) for steps in of_members for step in steps if "mask" in step)
    shift, dispersions = _around_medians(small.likelihood, small.outputs, len(networks), seed)
    units = _units(card or FitCard(), small.likelihood, small.outputs, shift)
    if units is not None:  # back to the units of the response: one more step, and the noise with it
        back = {
            "kind": "linear",
            "weight": np.diag(np.asarray(units[1], np.float32)),
            "mask": np.eye(small.outputs, dtype=bool),
        }
        networks = tuple((*steps, back | {"bias": np.asarray(units[0], np.float32)}) for steps in networks)
        if head.name in SCALED:
            noise = [value * scale**2 for value, scale in zip(noise, units[1], strict=True)]
    return Plan(
        networks=networks,
        response=small.likelihood.name,
        head=head.name,
        shape=small.row_shape,
        outputs=small.outputs,
        draws=draws or (len(networks) if len(networks) > 1 else 0),
        input_names=names,
        means=means,
        scales=scales,
        noise=tuple(noise),
        cuts=head.cuts,
        dispersions=dispersions,
        rest=rest,
        weights=weights,
    )


def _smalls(net: nn.Module, selection: Selection | None, draws: int) -> tuple[list[Compact], Callable[[int], int]]:
    """The small networks of all members (of one, where there are none), and which of them a draw is of."""
    if not isinstance(net, Mixture):
        return [_small(net, selection, draws)], lambda r: 0
    if selection is None:
        refuse("export", "selection", "given for a network that is not compact", None)
    if not draws and not torch.allclose(net.weights, net.weights[:1]):
        refuse("export", "draws", "at least 1 for members of unequal weights, whose means cannot be averaged", draws)
    small = compact(net, selection, "distribution" if draws else "means")
    return [part for part in small.members if isinstance(part, Compact)], small.member_of


def _small(net: nn.Module, selection: Selection | None, draws: int) -> Compact:
    keep = "distribution" if draws else "means"
    if isinstance(net, Compact):
        if draws and net.keep != keep:
            refuse("export", "draws", "0 for a network of means", draws)
        return net
    if selection is None:
        refuse("export", "selection", "given for a network that is not compact", None)
    return compact(net, selection, "distribution" if draws else "means")


@torch.no_grad()
def _steps(small: Compact, r: int | None, seed: int) -> list[Step]:
    """The parts of the network, with drawn weights where `r` is given, else at the means."""
    drawn: dict[nn.Module, tuple[Tensor, Tensor | None]] = {}
    if r is not None:
        with drawing(small, exact, keyed_generator(seed, "draw", r)) as scope:  # as `predict` draws
            for layer in small.layers:
                assert isinstance(layer, Decided)
                weight, *bias = scope.weights(layer)
                drawn[layer] = weight.value, bias[0].value if bias else None
    steps: list[Step] = []
    for part in small.body:
        if isinstance(part, Take):
            steps.append({"kind": "take", "index": part.index.numpy(), "dim": 1 if part.dim == 1 else -1})
        elif isinstance(part, Decided):
            value, intercepts = drawn.get(part, (part.weight.mu, None if part.bias is None else part.bias.mu))
            every = torch.zeros(part.shape[0], dtype=value.dtype)
            if intercepts is not None:
                every[part.with_bias.long()] = intercepts
            steps.append(_layer(part.whole(value), part.mask, every, part.geometry))
        elif isinstance(part, Kept):
            intercepts = torch.zeros(part.shape[0]) if part.bias is None else part.bias
            steps.append(_layer(part.weight, part.mask, intercepts, part.geometry))
        elif isinstance(part, (Fork, Join)):
            steps.append({"kind": "fork" if isinstance(part, Fork) else "join"})
        elif not isinstance(part, (nn.Dropout, nn.Identity)):
            steps.append(_plain(part))
    return steps


def _layer(weight: Tensor, mask: Tensor, bias: Tensor, geometry: dict[str, Any]) -> Step:
    step: Step = {"weight": _array(weight), "mask": mask.numpy(), "bias": _array(bias)}
    if not geometry:
        return step | {"kind": "linear"}
    pairs = list(geometry["edges"])  # last dimension first, as torch pads
    ahead = [[pairs[2 * i], pairs[2 * i + 1]] for i in reversed(range(len(pairs) // 2))]
    geometry_of_step = {name: list(geometry[name]) for name in ("stride", "dilation")}
    return step | geometry_of_step | {"kind": "conv", "pads": ahead, "padding_mode": geometry["padding_mode"]}


def _plain(part: nn.Module) -> Step:
    name = type(part).__name__
    if isinstance(part, nn.Flatten):
        if (part.start_dim, part.end_dim) != (1, -1):
            refuse("export", "net", "one that flattens whole rows", str(part))
        return {"kind": "flatten"}
    if isinstance(part, Mixed):
        steps = [_plain(make_activation(kind)) for kind in part.kinds]
        return {"kind": "mixed", "counts": list(part.counts), "steps": steps}
    row = activation_of(part)
    if row is not None:
        return {"kind": row.name} | numbers_of(row, part)
    options = {option: getattr(part, option) for option in OPTIONS[name]}
    dimensions = int(name[-2])
    if options["ceil_mode"] or not options.get("count_include_pad", True):
        refuse("export", "net", "one whose pooling rounds down and counts its padding", str(part))
    spread = {key: _spread(options[key], dimensions) for key in ("kernel_size", "stride", "padding", "dilation")
              if key in options}  # fmt: skip
    return {"kind": name[:7].lower()} | spread


def _spread(value: Any, dimensions: int) -> list[int]:
    return [int(v) for v in value] if isinstance(value, (tuple, list)) else [int(value)] * dimensions


def _array(values: Tensor) -> np.ndarray[Any, Any]:
    return values.detach().cpu().float().contiguous().numpy()


def _preprocessing(
    card: FitCard, inputs: int
) -> tuple[tuple[str, ...], tuple[float, ...], tuple[float, ...], dict[str, Any]]:
    """Names of the inputs, what standardises them, and what a graph cannot hold: how a table becomes these inputs."""
    estimator = card.estimator or EstimatorCard()
    scaling = estimator.scaling_x
    means, scales = ([], []) if scaling is None else (scaling.centre, scaling.scale)
    if not (_numbers(means, inputs) and _numbers(scales, inputs) and all(scales)):
        means, scales = [], []
    rest = {key: value for key, value in card.to_header().items() if key in ("table", "target", "task")}
    rest |= {} if estimator.classes is None else {"classes": estimator.classes}
    names = card.input_names or ()
    return tuple(str(name) for name in names), tuple(means), tuple(scales), rest


def _units(
    card: FitCard, likelihood: Likelihood, outputs: int, shift: list[float] | None
) -> tuple[list[float], list[float]] | None:
    """Centre and unit of each output of a model that was fitted in other units than those of the response.

    Counts are predicted for an exposure of 1; shift: from an output to the logarithm of a median.
    """
    estimator = card.estimator or EstimatorCard()
    centre, scale = ([], []) if estimator.scaling_y is None else (estimator.scaling_y.centre, estimator.scaling_y.scale)
    responses = len(scale)
    known = _numbers(centre, responses) and _numbers(scale, responses) and responses > 0
    if not known or likelihood.outputs_for(responses) != outputs:
        return None if shift is None else (shift, [1.0] * outputs)
    if estimator.rate is not None:
        scale = [estimator.rate * unit for unit in scale]
    centres, units = likelihood.output_units(centre, scale)
    return [a + b for a, b in zip(centres, shift or [0.0] * outputs, strict=True)], units


@torch.no_grad()
def _around_medians(
    likelihood: Likelihood, outputs: int, networks: int, seed: int
) -> tuple[list[float] | None, tuple[tuple[float, ...], ...]]:
    """Where a median is predicted: how far it lies from the output of one network, or each network's dispersion."""
    if likelihood.point is not Point.MEDIAN:
        return None, ()
    count = networks if networks > 1 else SINGLE_NETWORK_PHIS  # as `predict` draws them
    drawn = torch.stack([likelihood.draw_dispersion(keyed_generator(seed, "phi", r)) for r in range(count)])
    if networks > 1:
        return None, tuple(tuple(one) for one in drawn.expand(-1, outputs).tolist())
    mixture = Predicted.of(likelihood, torch.zeros(1, 1, outputs).to(drawn), drawn)
    assert mixture is not None
    return mixture.quantile(torch.tensor([0.5]))[0, 0].log().tolist(), ()


def _numbers(values: Any, count: int) -> bool:
    return isinstance(values, list) and len(values) == count and all(isinstance(v, (int, float)) for v in values)
