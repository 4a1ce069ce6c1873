"""What a checkpoint holds of a run, and how the run gets it back."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict
from typing import Any, Literal

import torch
from torch import Tensor

from slabnet.batches import StreamBatches, TensorBatches
from slabnet.checkpoints import digest
from slabnet.checks import FileError
from slabnet.convergence import WINDOW
from slabnet.cutting import Alive
from slabnet.networks import Network
from slabnet.records import Cut, Epoch, Selection

Run = Any  # runs.Run, which imports this file

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")


def describe_run(run: Run, fixed: Selection | Literal["alpha"] | None) -> dict[str, Any]:
    """What must be the same for a run to be resumed: configuration, network, data."""
    net, data = run.net, run.data
    rows: dict[str, Any] = {"n": data.n}
    if isinstance(data, TensorBatches):
        rows["contents"] = digest(data.x, data.y)
    if run.validation is not None:
        rows["validation"] = digest(*run.validation)
    chosen = [part for mask in fixed.masks.values() for part in mask] if isinstance(fixed, Selection) else []
    return {
        "config": run.config.model_dump(mode="json") | {"seed": run.seed, "device": run.device.type},
        "network": net.spec if isinstance(net, Network) else type(net).__name__,
        "shapes": [f"{part.dtype} {tuple(part.shape)}" for part in run.tensors()],
        "likelihood": run.likelihood.spec(),
        "fixed": digest(*chosen) if chosen else fixed,
        "data": rows,
    }


def snapshot(run: Run) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Everything the run has become, as plain numbers and tensors."""
    run.optimiser.settle()
    part, cutter = run.part, run.cutter
    alive = None if cutter is None else cutter.alive
    state = {
        "epochs": [asdict(epoch) for epoch in run.done],
        "cuts": [asdict(cut) for cut in run.cuts],
        "rows": run.rows,
        "steps": run.steps,
        "finished": run.finished,
        "best": run.best,
        "best_epoch": run.best_epoch,
        "part": {"batches": part.batches, "rows": part.rows},
        "kl_outside": 0.0 if cutter is None else cutter.kl_outside,
        "rates": {group["name"]: group["lr"] for group in run.rates_of()},
        "stream_epochs": run.data.epochs if isinstance(run.data, StreamBatches) else 0,
    }
    tensors: dict[str, Tensor] = {f"net:{i}": value for i, value in enumerate(run.tensors())}
    for i, parameter in enumerate(p for group in run.optimiser.param_groups for p in group["params"]):
        for key, value in run.optimiser.state[parameter].items():
            tensors[f"adam:{i}:{key}"] = value
    tensors["order"] = run.order.get_state() if part.order is None else part.order
    if run.drops:
        tensors["global"] = torch.get_rng_state()  # torch's own Dropout draws from it
    tensors["total"] = part.total
    for i, value in enumerate(part.pending):
        tensors[f"pending:{i}"] = value
    for i, past in enumerate(run.tracker.past):
        for k, value in enumerate(past):
            tensors[f"alpha:{i}:{k}"] = value
    for i, value in enumerate(run.best_state or []):
        tensors[f"best:{i}"] = value
    if alive is not None:
        for i, value in enumerate((alive.inputs, *alive.units)):
            tensors[f"alive:{i}"] = value
    if run.baseline.mean is not None:
        tensors["baseline"] = run.baseline.mean
    return state, {name: value.clone() for name, value in tensors.items()}


@torch.no_grad()
def restore(run: Run, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Make `run` what it was when the snapshot was taken."""
    try:
        _restore(run, state, tensors)
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError) as error:
        raise FileError(f"resume: the checkpoint must be of this run, got one that does not fit: {error!r}") from None


def _restore(run: Run, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    run.done = [Epoch(**epoch) for epoch in state["epochs"]]
    run.cuts = [Cut(**cut | {"left": tuple(cut["left"])}) for cut in state["cuts"]]
    run.rows, run.steps, run.finished = state["rows"], state["steps"], state["finished"]
    run.best, run.best_epoch = state["best"], state["best_epoch"]
    for i, value in enumerate(run.tensors()):
        value.copy_(tensors[f"net:{i}"])
    run.optimiser.settle()
    for i, parameter in enumerate(p for group in run.optimiser.param_groups for p in group["params"]):
        if f"adam:{i}:step" in tensors:
            moments = {key: tensors[f"adam:{i}:{key}"] for key in _MOMENTS}
            device = {key: "cpu" if key == "step" else parameter.device for key in _MOMENTS}
            run.optimiser.state[parameter] = {key: value.to(device[key]) for key, value in moments.items()}
    run.order.set_state(tensors["order"])
    if run.drops:
        torch.set_rng_state(tensors["global"])
    part = run.part
    part.batches, part.rows = state["part"]["batches"], state["part"]["rows"]
    part.order = tensors["order"] if part.batches else None
    part.total = tensors["total"]
    part.pending = [value.to(run.device) for value in _row(tensors, "pending")]
    run.first_step = run.steps - part.batches + 1
    past = [_row(tensors, f"alpha:{i}") for i in range(WINDOW)]
    run.tracker.past = deque([row for row in past if row], maxlen=WINDOW)
    run.best_state = [value.to(run.device) for value in _row(tensors, "best")] or None
    if isinstance(run.data, StreamBatches):
        run.data.epochs = state["stream_epochs"]
    if "baseline" in tensors:
        run.baseline.mean = tensors["baseline"].to(run.device)
    masks = [value.to(run.device) for value in _row(tensors, "alive")]
    if run.cutter is not None and masks:
        run.cutter.go_on(Alive(masks[0], tuple(masks[1:])), state["kl_outside"])
    for group in run.rates_of():
        group["lr"] = state["rates"][group["name"]]


def _row(tensors: dict[str, Tensor], name: str) -> list[Tensor]:
    """The tensors NAME:0, NAME:1 and so on."""
    found: list[Tensor] = []
    while f"{name}:{len(found)}" in tensors:
        found.append(tensors[f"{name}:{len(found)}"])
    return found
