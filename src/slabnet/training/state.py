"""What a checkpoint holds of a run, and how the run gets it back."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict
from typing import Any, Literal

import torch
from torch import Tensor

from slabnet.core.errors import FileError, one_line
from slabnet.core.records import Cut, Epoch, Selection
from slabnet.model.networks import Network
from slabnet.training.batches import StreamBatches, TensorBatches
from slabnet.training.checkpoints import digest
from slabnet.training.convergence import WINDOW
from slabnet.training.dead_units import Alive

Run = Any  # runs.Run, which imports this file

_MOMENTS = ("exp_avg", "exp_avg_sq", "step")
_WHOLE = ("rows", "steps", "stream_epochs")


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
    """Make `run` what it was when the snapshot was taken; a snapshot that does not fit changes nothing."""
    try:
        _check_state(run, state)
        _check_tensors(run, state, tensors)
        _restore(run, state, tensors)
    except (KeyError, TypeError, ValueError, IndexError, RuntimeError, AttributeError, OverflowError) as error:
        said = one_line(f"{type(error).__name__}: {error}")
        raise FileError(f"resume: the checkpoint must be of this run, got one that does not fit: {said}") from None


def _check_state(run: Run, state: dict[str, Any]) -> None:
    """Refuse numbers that no run can have written: they steer loops and divisions."""
    part = state["part"]
    for name, value in [*((name, state[name]) for name in _WHOLE), *part.items()]:
        _need(type(value) is int and 0 <= value < 2**62, name, value)
    _need(type(state["finished"]) is bool, "finished", state["finished"])
    _need(part["batches"] <= min(state["steps"], run.data.n), "batches", part["batches"])
    _need((part["batches"] > 0) == (part["rows"] > 0), "rows", part["rows"])
    _need(isinstance(state["epochs"], list) and len(state["epochs"]) <= run.epochs, "epochs", state["epochs"])
    for number, epoch in enumerate(state["epochs"], start=1):
        _need(epoch["epoch"] == number, "epoch", epoch["epoch"])
        for name, value in epoch.items():
            _need(_is_number(value) or (name == "validation_log_likelihood" and value is None), name, value)
    for cut in state["cuts"]:
        _need(all(map(_is_number, [cut["epoch"], cut["log_likelihood"], cut["kl"], *cut["left"]])), "cuts", cut)
    best = state["best_epoch"]
    _need(best is None or (type(best) is int and 1 <= best <= len(state["epochs"])), "best_epoch", best)
    _need(state["best"] is None if best is None else _is_number(state["best"]), "best", state["best"])
    _need(_is_number(state["kl_outside"]), "kl_outside", state["kl_outside"])
    for name, rate in state["rates"].items():
        _need(_is_number(rate) and rate >= 0, f"rate of {name}", rate)


def _check_tensors(run: Run, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Refuse tensors of another shape or type than those they replace: compiled passes read them by address."""
    own = run.tensors()
    for i, value in enumerate(own):
        _like(tensors, f"net:{i}", value)
    parameters = [p for group in run.optimiser.param_groups for p in group["params"]]
    trained = [i for i in range(len(parameters)) if f"adam:{i}:step" in tensors]
    for i in trained:
        for key in ("exp_avg", "exp_avg_sq"):
            _like(tensors, f"adam:{i}:{key}", parameters[i])
        step = _like(tensors, f"adam:{i}:step", torch.zeros(()))
        _need(0 <= float(step) < 2**53, "step", float(step))
    _like(tensors, "total", run.part.total, finite=False)
    for name, wanted in (("pending", torch.zeros(2)), ("baseline", torch.zeros(1))):
        for value in [*_row(tensors, name), *([tensors[name]] if name in tensors else [])]:
            _need(value.shape == wanted.shape and value.is_floating_point(), name, tuple(value.shape))
    _need(len(_row(tensors, "pending")) <= state["part"]["batches"], "pending", len(_row(tensors, "pending")))
    alphas = run.tracker.past[0] if run.tracker.past else []
    rows = [_row(tensors, f"alpha:{i}") for i in range(WINDOW)]
    _need(bool(rows[0]) == bool(alphas), "alpha:0", len(rows[0]))
    for i, row in enumerate(rows):
        _need(len(row) in (0, len(alphas)), f"alpha:{i}", len(row))
        for k in range(len(row)):
            _like(tensors, f"alpha:{i}:{k}", alphas[k])
    best = _row(tensors, "best")
    _need(len(best) == (0 if state["best_epoch"] is None else len(own)), "best", len(best))
    for i in range(len(best)):
        _like(tensors, f"best:{i}", own[i])
    masks = _row(tensors, "alive")
    if run.cutter is not None and masks:
        sizes = [run.cutter.chain[0].weight.mu.shape[1], *(len(layer.weight.mu) for layer in run.cutter.chain)]
        _need([tuple(m.shape) for m in masks] == [(size,) for size in sizes], "alive", len(masks))
        _need(all(m.dtype == torch.bool for m in masks) and bool(masks[-1].all()), "alive", "other masks")
        _need(len(trained) == len(parameters), "alive", "weights without moments")


def _need(fits: bool, name: str, came: object) -> None:
    if not fits:
        raise ValueError(f"{name} cannot be {one_line(came)}")


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) < float("inf")


def _like(tensors: dict[str, Tensor], name: str, wanted: Tensor, finite: bool = True) -> Tensor:
    """A tensor of the file, if it has shape and type of the one it takes the place of."""
    found = tensors[name]
    _need((found.shape, found.dtype) == (wanted.shape, wanted.dtype), name, f"{found.dtype} {tuple(found.shape)}")
    _need(not (finite and found.is_floating_point()) or bool(torch.isfinite(found).all()), name, "NaN or infinity")
    return found


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
            places = {key: torch.zeros(()) if key == "step" else torch.empty_like(parameter) for key in _MOMENTS}
            run.optimiser.state[parameter] = {
                key: place.copy_(tensors[f"adam:{i}:{key}"]) for key, place in places.items()
            }
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
