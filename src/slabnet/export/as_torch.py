"""A `torch.export` program: plain operations of torch, to be loaded where slabnet is not installed."""

from __future__ import annotations

import io
import json
import warnings
from typing import Any

import torch
from torch import Tensor, nn

from slabnet.compact.layers import Take
from slabnet.config.activations import ACTIVATIONS
from slabnet.export.heads import ONE_NETWORK, names_of
from slabnet.export.plan import Plan, Step
from slabnet.model.activations import module_of
from slabnet.model.elementwise import Mixed
from slabnet.model.skips import Fork, Join, chained

_CONV: dict[int, Any] = {3: nn.Conv1d, 4: nn.Conv2d, 5: nn.Conv3d}


class _Program(nn.Module):
    """Standardise, run every network, average."""

    means: Tensor | None
    scales: Tensor
    noise: Tensor | None

    def __init__(self, plan: Plan) -> None:
        super().__init__()
        self.head, self.shape = plan.head, plan.shape
        self.one = ONE_NETWORK in names_of(plan.head, plan.draws)
        self.networks = nn.ModuleList([chained([_module(step) for step in steps]) for steps in plan.networks])
        for name, values in (("means", plan.means), ("scales", plan.scales), ("noise", plan.noise)):
            made = torch.tensor(values) if values else None
            buffer = made if made is None or name == "noise" else made.reshape(plan.shape)
            self.register_buffer(name, buffer)

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        if self.means is not None:
            x = (x - self.means) / self.scales
        outputs = [network(x) for network in self.networks]
        answer = _HEADS[self.head](outputs, self.noise)
        return {ONE_NETWORK: outputs[0], **answer} if self.one else answer


def _softmax(outputs: list[Tensor], noise: Tensor | None) -> dict[str, Tensor]:
    p = torch.stack([torch.softmax(one, -1) for one in outputs]).mean(0)
    return {"probabilities": p, "entropy": torch.special.entr(p).sum(-1)}


def _sigmoid(outputs: list[Tensor], noise: Tensor | None) -> dict[str, Tensor]:
    p = torch.stack([torch.sigmoid(one) for one in outputs]).mean(0)
    return {"probabilities": p, "entropy": torch.special.entr(p) + torch.special.entr(1 - p)}


def _normal(outputs: list[Tensor], noise: Tensor | None) -> dict[str, Tensor]:
    assert noise is not None
    mean = torch.stack(outputs).mean(0)
    spread = torch.stack([(one - mean) ** 2 for one in outputs]).mean(0)
    return {"mean": mean, "variance": spread + noise}


_HEADS = {"softmax": _softmax, "sigmoid": _sigmoid, "normal": _normal}


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
