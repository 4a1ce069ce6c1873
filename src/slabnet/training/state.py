"""What a run has become so far, and how a checkpoint holds it."""

from __future__ import annotations

from collections import deque
from dataclasses import asdict, dataclass, field
from itertools import count, takewhile
from typing import Any

import torch
from torch import Tensor, nn

from slabnet.core.errors import FileError, one_line
from slabnet.core.noise import keyed_generator
from slabnet.core.records import Cut, Epoch, History
from slabnet.model.drawing import Draw, mean
from slabnet.model.elbo import RunningMean
from slabnet.training.batches import TensorBatches
from slabnet.training.convergence import WINDOW, AlphaTracker
from slabnet.training.dead_units import Alive, Cutter, can_cut
from slabnet.training.optimiser import FusedAdam, make_optimiser
from slabnet.training.setup import Setup

MOST_NUMBERS = 2**28  # how large data may be to be squared at once for the mean square of each input
_MOMENTS = ("exp_avg", "exp_avg_sq", "step")
_WHOLE = ("rows", "steps", "stream_epochs")


@dataclass
class Part:
    """How far the epoch that is under way has come."""

    order: Tensor | None = None  # state of the generator of the order, when the epoch began
    batches: int = 0
    rows: int = 0
    total: Tensor = field(default_factory=lambda: torch.zeros(2, dtype=torch.float64))
    pending: list[Tensor] = field(default_factory=list)


@dataclass
class Best:
    """The state with the best validation log-likelihood so far."""

    value: float
    epoch: int
    tensors: list[Tensor]


@dataclass(eq=False)
class State:
    """Everything about a run that changes while it goes on.

    order: the generator of the order of the rows. rows, steps: seen and made so far. part: the epoch under way.
    cutter: what leaves dead neurons out of the computation, where the network is of that kind.
    resumed_ramp: the epochs over which the KL comes in, of a run that goes on: its weights start nowhere anew.
    """

    setup: Setup
    optimiser: FusedAdam
    tracker: AlphaTracker
    cutter: Cutter | None
    order: torch.Generator
    baseline: RunningMean = field(default_factory=RunningMean)
    part: Part = field(default_factory=Part)
    rows: int = 0
    steps: int = 0
    epochs: list[Epoch] = field(default_factory=list)
    cuts: list[Cut] = field(default_factory=list)
    best: Best | None = None
    finished: bool = False
    resumed_ramp: int | None = None

    @property
    def ramp(self) -> int:
        """Epochs over which the KL comes in, after those in which only the means are trained."""
        return self.setup.ramp if self.resumed_ramp is None else self.resumed_ramp

    @property
    def working(self) -> tuple[nn.Module, FusedAdam]:
        """The network that is being trained and its optimiser: the small one, once dead neurons are out."""
        if self.cutter is None:
            return self.setup.net, self.optimiser
        return self.cutter.small, self.cutter.small_optimiser

    @property
    def kl_weight(self) -> float:
        """The KL comes in over the ramp, by rows seen, so that the data speak before weights are removed."""
        if self.pretraining:
            return 0.0
        n = self.setup.data.n
        rows, seen = self.ramp * n, self.rows - self.setup.pretrained * n
        return self.setup.config.kl_weight * (min(1.0, (seen + 1) / rows) if rows else 1.0)

    @property
    def pretraining(self) -> bool:
        """Whether only the means are trained yet, as in a plain network."""
        return len(self.epochs) < self.setup.pretrained

    @property
    def draw(self) -> Draw:
        """How this epoch's steps draw the network."""
        return mean if self.pretraining else self.setup.draw

    @property
    def stops(self) -> bool:
        """Whether all epochs are done, or validation has not become better for long enough."""
        if len(self.epochs) >= self.setup.epochs:
            return True
        patience = self.setup.config.patience
        return patience is not None and self.best is not None and len(self.epochs) - self.best.epoch >= patience

    def parameters(self) -> list[nn.Parameter]:
        """What the optimiser of the full network has, in its order."""
        return [p for group in self.optimiser.param_groups for p in group["params"]]

    def rates(self) -> list[dict[str, Any]]:
        """The groups of parameters that are being trained, each with its step size."""
        return self.working[1].param_groups

    def values(self) -> list[Tensor]:
        """A copy of everything training changes."""
        return [part.detach().clone() for part in self.setup.tensors()]

    @torch.no_grad()
    def put_values(self, values: list[Tensor]) -> None:
        """Set everything training changes."""
        for part, value in zip(self.setup.tensors(), values, strict=True):
            part.copy_(value)

    def add(self, epoch: Epoch, values: list[Tensor]) -> None:
        """Note an epoch, and keep its state if it is the best one since the ramp; before, the densest model is best."""
        self.epochs.append(epoch)
        value = epoch.validation_log_likelihood
        if value is None or self.setup.config.patience is None or epoch.epoch <= self.setup.pretrained + self.ramp:
            return
        if self.best is None or value > self.best.value:
            self.best = Best(value, epoch.epoch, values)

    def history(self) -> History:
        """What the run has seen."""
        return History(
            epochs=tuple(self.epochs),
            n=self.setup.data.n,
            steps=self.steps,
            kl_weight=self.kl_weight,
            stopped_early=len(self.epochs) < self.setup.epochs,
            best_epoch=None if self.best is None else self.best.epoch,
            config=self.setup.config.model_dump(mode="json") | {"seed": self.setup.seed},
            cuts=tuple(self.cuts),
            teacher_share=self.setup.teacher_share,
        )

    def snapshot(self) -> tuple[dict[str, Any], dict[str, Tensor]]:
        """Everything the run has become, as plain numbers and tensors."""
        self.optimiser.settle()
        state = {
            "epochs": [asdict(epoch) for epoch in self.epochs],
            "cuts": [asdict(cut) for cut in self.cuts],
            "rows": self.rows,
            "steps": self.steps,
            "finished": self.finished,
            "best": None if self.best is None else self.best.value,
            "best_epoch": None if self.best is None else self.best.epoch,
            "part": {"batches": self.part.batches, "rows": self.part.rows},
            "kl_outside": 0.0 if self.cutter is None else self.cutter.kl_outside,
            "rates": {group["name"]: group["lr"] for group in self.rates()},
            "stream_epochs": self.setup.data.epochs,
            "ramp": self.ramp,
        }
        return state, {name: value.clone() for name, value in self._tensors().items()}

    def _tensors(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint by name."""
        rows: dict[str, list[Tensor]] = {"net": self.setup.tensors(), "pending": self.part.pending}
        rows |= {f"alpha:{i}": past for i, past in enumerate(self.tracker.past)}
        rows["best"] = [] if self.best is None else self.best.tensors
        alive = None if self.cutter is None else self.cutter.alive
        rows["alive"] = [] if alive is None else [alive.inputs, *alive.units]
        tensors = {f"{name}:{i}": value for name, values in rows.items() for i, value in enumerate(values)}
        for i, parameter in enumerate(self.parameters()):
            for key, value in self.optimiser.state[parameter].items():
                tensors[f"adam:{i}:{key}"] = value
        tensors["order"] = self.order.get_state() if self.part.order is None else self.part.order
        tensors["total"] = self.part.total
        if self.setup.drops:
            tensors["global"] = torch.get_rng_state()  # torch's own Dropout draws from it
        if self.baseline.mean is not None:
            tensors["baseline"] = self.baseline.mean
        return tensors

    @torch.no_grad()
    def restore(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Become what the run was when the snapshot was taken; a snapshot that does not fit changes nothing."""
        try:
            _check_numbers(self, state)
            _check_tensors(self, state, tensors)
            self._take_over(state, tensors)
        except (KeyError, TypeError, ValueError, IndexError, RuntimeError, AttributeError, OverflowError) as error:
            cause = one_line(f"{type(error).__name__}: {error}")
            raise FileError(f"resume: the checkpoint must be of this run, got one that does not fit: {cause}") from None

    def _take_over(self, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        device = self.setup.device
        self.epochs = [Epoch(**epoch) for epoch in state["epochs"]]
        self.cuts = [Cut(**cut | {"left": tuple(cut["left"])}) for cut in state["cuts"]]
        self.rows, self.steps, self.finished = state["rows"], state["steps"], state["finished"]
        self.resumed_ramp = state.get("ramp", self.setup.ramp_without_start)  # runs of 0.1 did not note it
        self.put_values([tensors[f"net:{i}"] for i in range(len(self.setup.tensors()))])
        self.optimiser.settle()
        for i, parameter in enumerate(self.parameters()):
            if f"adam:{i}:step" in tensors:
                places = {key: torch.zeros(()) if key == "step" else torch.empty_like(parameter) for key in _MOMENTS}
                self.optimiser.state[parameter] = {
                    key: place.copy_(tensors[f"adam:{i}:{key}"]) for key, place in places.items()
                }
        self.order.set_state(tensors["order"])
        if self.setup.drops:
            torch.set_rng_state(tensors["global"])
        batches, rows = state["part"]["batches"], state["part"]["rows"]
        pending = [value.to(device) for value in _row(tensors, "pending")]
        self.part = Part(tensors["order"] if batches else None, batches, rows, tensors["total"], pending)
        past = [_row(tensors, f"alpha:{i}") for i in range(WINDOW)]
        self.tracker.past = deque([row for row in past if row], maxlen=WINDOW)
        best = [value.to(device) for value in _row(tensors, "best")]
        self.best = Best(state["best"], state["best_epoch"], best) if best else None
        self.setup.data.epochs = state["stream_epochs"]
        if "baseline" in tensors:
            self.baseline.mean = tensors["baseline"].to(device)
        masks = [value.to(device) for value in _row(tensors, "alive")]
        if self.cutter is not None and masks:
            self.cutter.go_on(Alive(masks[0], tuple(masks[1:])), state["kl_outside"])
        for group in self.rates():
            group["lr"] = state["rates"][group["name"]]


def start(setup: Setup) -> State:
    """The state of a run that has made no step yet. From here on the network may change."""
    setup.place()
    optimiser = make_optimiser(setup.net, setup.likelihood, setup.config, omega=setup.fixed is None)
    cutter = _cutter(setup, optimiser) if setup.fixed is None and setup.config.cut_every else None
    return State(setup, optimiser, AlphaTracker(setup.net), cutter, keyed_generator(setup.seed, "order"))


def _cutter(setup: Setup, optimiser: FusedAdam) -> Cutter | None:
    """What leaves dead neurons out of the computation, where the network is of that kind."""
    data = setup.data
    if not can_cut(setup.net) or (setup.group.world > 1 and not isinstance(data, TensorBatches)):
        return None  # processes that see different rows would leave out different neurons
    power = None
    if isinstance(data, TensorBatches) and data.x.numel() < MOST_NUMBERS:
        power = (data.x.flatten(1) ** 2).mean(0)
    return Cutter(setup.net, setup.likelihood, optimiser, setup.config, power)


def _check_numbers(run: State, state: dict[str, Any]) -> None:
    """Refuse numbers that no run can have written: they steer loops and divisions."""
    part = state["part"]
    for name, value in [*((name, state[name]) for name in _WHOLE), *part.items()]:
        _need(type(value) is int and 0 <= value < 2**62, name, value)
    _need(type(state["finished"]) is bool, "finished", state["finished"])
    ramp = state.get("ramp", 0)
    _need(type(ramp) is int and 0 <= ramp < 2**62, "ramp", ramp)
    _need(part["batches"] <= min(state["steps"], run.setup.data.n), "batches", part["batches"])
    _need((part["batches"] > 0) == (part["rows"] > 0), "rows", part["rows"])
    _need(isinstance(state["epochs"], list) and len(state["epochs"]) <= run.setup.epochs, "epochs", state["epochs"])
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


def _check_tensors(run: State, state: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Refuse tensors of another shape or type than those they replace: compiled passes read them by address."""
    trained_tensors = run.setup.tensors()
    for i, value in enumerate(trained_tensors):
        _like(tensors, f"net:{i}", value)
    parameters = run.parameters()
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
    _need(len(best) == (0 if state["best_epoch"] is None else len(trained_tensors)), "best", len(best))
    for i in range(len(best)):
        _like(tensors, f"best:{i}", trained_tensors[i])
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
    value = tensors[name]
    _need((value.shape, value.dtype) == (wanted.shape, wanted.dtype), name, f"{value.dtype} {tuple(value.shape)}")
    _need(not (finite and value.is_floating_point()) or bool(torch.isfinite(value).all()), name, "NaN or infinity")
    return value


def _row(tensors: dict[str, Tensor], name: str) -> list[Tensor]:
    """The tensors NAME:0, NAME:1 and so on."""
    names = takewhile(tensors.__contains__, (f"{name}:{i}" for i in count()))
    return [tensors[name] for name in names]
