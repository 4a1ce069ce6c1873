"""A `torch.export` program: plain operations of torch, to be loaded where slabnet is not installed."""

from __future__ import annotations

import io
import json
import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from slabnet.compact.layers import Take
from slabnet.config.activations import ACTIVATIONS
from slabnet.export.heads import HALVINGS, ONE_NETWORK, names_of
from slabnet.export.plan import Plan, Step
from slabnet.model.activations import module_of
from slabnet.model.elementwise import Mixed
from slabnet.model.skips import Fork, Join, chained

_CONV: dict[int, Any] = {3: nn.Conv1d, 4: nn.Conv2d, 5: nn.Conv3d}


class _Program(nn.Module):
    """Standardise, run every network, average."""

    means: Tensor | None
    scales: Tensor
    noise: Tensor
    cuts: Tensor
    dispersions: Tensor

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.head, self.shape = plan.head, plan.shape
        self.one = ONE_NETWORK in names_of(plan.head, plan.draws)
        self.networks = nn.ModuleList([chained([_module(step) for step in steps]) for steps in plan.networks])
        for name, values in (("means", plan.means), ("scales", plan.scales)):
            self.register_buffer(name, torch.tensor(values).reshape(plan.shape) if values else None)
        for name, numbers in (("noise", plan.noise), ("cuts", plan.cuts), ("dispersions", plan.dispersions)):
            self.register_buffer(name, torch.tensor(numbers) if numbers else None)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        if self.means is not None:
            x = (x - self.means) / self.scales
        outputs = [network(x) for network in self.networks]
        answer = _HEADS[self.head](self, torch.stack(outputs))
        return {ONE_NETWORK: outputs[0], **answer} if self.one else answer


def _softmax(program: _Program, outputs: Tensor) -> dict[str, Tensor]:
    p = torch.softmax(outputs, -1).mean(0)
    return {"probabilities": p, "entropy": torch.special.entr(p).sum(-1)}


def _sigmoid(program: _Program, outputs: Tensor) -> dict[str, Tensor]:
    p = torch.sigmoid(outputs).mean(0)
    return {"probabilities": p, "entropy": torch.special.entr(p) + torch.special.entr(1 - p)}


def _ordinal(program: _Program, outputs: Tensor) -> dict[str, Tensor]:
    cuts, sure = program.cuts, torch.ones_like(outputs)
    inner = torch.cat([torch.ones(1), -torch.expm1(cuts[:-1] - cuts[1:]), torch.ones(1)])
    below, above = torch.sigmoid(cuts - outputs), torch.sigmoid(outputs - cuts)
    p = (torch.cat([below, sure], -1) * torch.cat([sure, above], -1) * inner).mean(0)
    return {"probabilities": p, "entropy": torch.special.entr(p).sum(-1)}


def _normal(program: _Program, outputs: Tensor) -> dict[str, Tensor]:
    return {"mean": outputs.mean(0), "variance": outputs.var(0, correction=0) + program.noise}


def _own_noise(program: _Program, outputs: Tensor) -> dict[str, Tensor]:
    centre, log = outputs.chunk(2, -1)
    return {"mean": centre.mean(0), "variance": centre.var(0, correction=0) + log.exp().mean(0)}


def _positive(program: _Program, outputs: Tensor) -> dict[str, Tensor]:
    means = outputs.exp()
    variance = means.var(0, correction=0) + program.noise * (means**2).mean(0)
    counted = program.head != "gamma"  # counts vary by their mean too
    return {"mean": means.mean(0), "variance": variance + means.mean(0) if counted else variance}


def _median(program: _Program, outputs: Tensor) -> dict[str, Tensor]:
    log_variance = outputs.var(0, correction=0) + program.noise
    if len(program.networks) == 1:
        return {"median": outputs[0].exp(), "log_variance": log_variance}
    each = program.dispersions[:, None]
    normal = program.head == "lognormal"
    medians = outputs if normal else outputs + math.log(math.log(2)) / each
    low, high = medians.amin(0), medians.amax(0)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        away = middle - outputs
        below = torch.special.ndtr(away / each.sqrt()) if normal else -torch.expm1(-torch.exp(each * away))
        under = below.mean(0) < 0.5
        low, high = torch.where(under, middle, low), torch.where(under, high, middle)
    return {"median": ((low + high) / 2).exp(), "log_variance": log_variance}


_HEADS: dict[str, Callable[[_Program, Tensor], dict[str, Tensor]]] = {
    "softmax": _softmax,
    "sigmoid": _sigmoid,
    "ordinal": _ordinal,
    "normal": _normal,
    "student-t": _normal,
    "heteroscedastic": _own_noise,
    "poisson": _positive,
    "negative-binomial": _positive,
    "gamma": _positive,
    "lognormal": _median,
    "weibull": _median,
}


def _module(step: Step) -> nn.Module:
    kind = step["kind"]
    if kind == "take":
        return Take(torch.from_numpy(step["index"]), step["dim"])
    if kind == "flatten":
        return nn.Flatten()
    if kind in ("fork", "join"):
        return Fork(0) if kind == "fork" else Join()
    if kind == "mixed":
        return Mixed([of["kind"] for of in step["steps"]], step["counts"])
    if kind in ("maxpool", "avgpool"):
        name = f"{'MaxPool' if kind == 'maxpool' else 'AvgPool'}{len(step['kernel_size'])}d"
        made: nn.Module = getattr(nn, name)(**{key: tuple(v) for key, v in step.items() if key != "kind"})
        return made
    if kind not in ("linear", "conv"):
        row = ACTIVATIONS[kind]
        return module_of(row)(**{key: value for key, value in step.items() if key != "kind"}, **dict(row.words))
    weight, bias = nn.Parameter(torch.from_numpy(step["weight"])), nn.Parameter(torch.from_numpy(step["bias"]))
    if kind == "linear":
        made = nn.Linear(weight.shape[1], weight.shape[0])
    else:
        options = {key: tuple(step[key]) for key in ("stride", "dilation")}
        made = _CONV[weight.ndim](weight.shape[1], weight.shape[0], tuple(weight.shape[2:]), **options)
    made.weight, made.bias = weight, bias
    if kind == "conv" and any(a or b for a, b in step["pads"]):
        return nn.Sequential(
            _Pad([side for pair in reversed(step["pads"]) for side in pair], step["padding_mode"]), made
        )
    return made


class _Pad(nn.Module):
    def __init__(self, edges: list[int], mode: str) -> None:
        super().__init__()
        self.edges, self.mode = edges, "constant" if mode == "zeros" else mode

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.pad(x, self.edges, mode=self.mode)


def to_torch(plan: Plan) -> bytes:
    """The bytes of a `.pt2` file; `about.json` inside tells names and shapes."""
    example = torch.zeros(3, *plan.shape)
    rows = torch.export.Dim("rows", min=0)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        program = _Program(plan).eval()
        made = torch.export.export(program, (example,), dynamic_shapes=({0: rows},))
        held = io.BytesIO()
        torch.export.save(made, held, extra_files={"about.json": json.dumps(plan.about)})
    return held.getvalue()
