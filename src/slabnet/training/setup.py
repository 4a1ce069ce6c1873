"""What one run of Algorithm 1 starts from: everything is checked and prepared before anything changes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from slabnet.config.settings import TrainConfig
from slabnet.core.devices import device_of, pick_device, pick_dtype
from slabnet.core.errors import refuse
from slabnet.core.noise import Seed, keyed_generator, seed_number
from slabnet.core.records import Selection
from slabnet.core.threads import work_of
from slabnet.distributed.group import Group, current_group
from slabnet.model.attach import attach_likelihood, resolve_likelihood
from slabnet.model.drawing import Draw, Drawable, drawable_layers, members_of
from slabnet.model.draws import Fixed, named_draw
from slabnet.model.likelihoods import Likelihood, Response, Target, parts_of
from slabnet.model.networks import Network
from slabnet.training.batches import Batches, Data, Prepare, TensorBatches, as_batches, is_pair
from slabnet.training.checkpoints import digest
from slabnet.training.datasets import DatasetBatches, rows_of_loader
from slabnet.training.starts import DataStart
from slabnet.training.validation import hold_out

Pair = tuple[Tensor, Response]


@dataclass(frozen=True, eq=False)
class Setup:
    """What stays as it is while a run goes on.

    post: nothing is being selected any more, so that there is no ramp. samples: draws a step.
    rank_key: what keys this process's noise, empty where all processes draw the same weights.
    start: where weights start that wait for the data, and `member`: of how many members this is which.
    one_pass: gradient and step of the weights may be computed together. drops: torch's own Dropout is used.
    """

    net: nn.Module
    layers: dict[str, Drawable]
    likelihood: Likelihood
    config: TrainConfig
    device: torch.device
    dtype: torch.dtype
    draw: Draw
    fixed: Selection | Literal["alpha"] | None
    seed: int
    group: Group
    data: Batches
    validation: Pair | None
    epochs: int
    post: bool
    samples: int
    start: DataStart
    member: int

    @property
    def pretrained(self) -> int:
        """Epochs in which only means are trained."""
        return 0 if self.post else min(self.config.pretrain_epochs, self.epochs - 1)

    @property
    def ramp(self) -> int:
        """Epochs over which the KL comes in, after those; a start from the data has it whole, or it would be left."""
        started = self.member in self.start.begun and self.config.ramp_epochs is None
        return 0 if started else self.ramp_without_start

    @property
    def ramp_without_start(self) -> int:
        """The same where the weights do not start from the data."""
        return 0 if self.post else self.config.ramp_for(self.epochs)

    @property
    def hold(self) -> int:
        """Steps for which omega waits."""
        return self.config.hold_for(self.epochs * math.ceil(self.data.n / self.config.batch_size))

    @property
    def rank_key(self) -> tuple[int, ...]:
        return (self.group.rank,) if self.draw.draws_weights and not self.config.shared_draws else ()

    @property
    def one_pass(self) -> bool:
        if self.fixed is not None or self.config.clip is not None or self.samples != 1:
            return False
        # what is added up over processes must belong to the same draws, and to every process
        return self.group.world == 1 or not (self.rank_key or self.data.sharded)

    @property
    def teacher_share(self) -> float:
        """How much of the log-likelihood is taken at a teacher's predictions, on average over the rows."""
        y = self.data.y if isinstance(self.data, TensorBatches) else None
        return float(y.soft_share.mean()) if isinstance(y, Target) and y.soft_share is not None else 0.0

    @property
    def drops(self) -> bool:
        return any(isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0 for part in self.net.modules())

    @property
    def work(self) -> int:
        """Multiplications of a step, which decide how many threads it gets."""
        return work_of(self.net, min(self.config.batch_size, self.data.n), self.data.positions)

    def tensors(self) -> list[Tensor]:
        """Everything training changes: parameters, and buffers such as a running mean."""
        parts = [*self.net.parameters(), *self.net.buffers(), *self.likelihood.parameters()]
        return list({id(part): part for part in parts}.values())

    def place(self) -> None:
        """Move the network to its device, in its type, start what waits for data, and make all processes equal."""
        self.net.to(self.device, self.dtype)
        attach_likelihood(self.net, self.likelihood.to(self.device, self.dtype))
        if not self.post:
            self.start.begin(self.net, self.likelihood, self.data, self.member)
        self.group.spread(self.tensors())

    def finish(self) -> None:
        """Note how good the posterior is that a start from the data has led to."""
        bound = self.start.bound_of(self.net, self.likelihood, self.data, self.member)
        if bound is not None:
            self.group.spread([bound])
            self.start.bounds[self.member] = float(bound)

    def describe(self) -> dict[str, Any]:
        """What must be the same for a run to be resumed: configuration, network, data."""
        rows: dict[str, Any] = {"n": self.data.n}
        if isinstance(self.data, TensorBatches):
            rows["contents"] = digest(self.data.x, *parts_of(self.data.y))
        if self.validation is not None:
            rows["validation"] = digest(self.validation[0], *parts_of(self.validation[1]))
        masks = self.fixed.masks.values() if isinstance(self.fixed, Selection) else []
        chosen = [part for mask in masks for part in mask]
        return {
            "config": self.config.model_dump(mode="json") | {"seed": self.seed, "device": self.device.type},
            "network": self.net.spec if isinstance(self.net, Network) else type(self.net).__name__,
            "shapes": [f"{part.dtype} {tuple(part.shape)}" for part in self.tensors()],
            "likelihood": self.likelihood.spec(),
            "fixed": digest(*chosen) if chosen else self.fixed,
            "data": rows,
        }


def set_up(
    net: nn.Module,
    train: Data,
    config: TrainConfig,
    n: int | None,
    likelihood: Likelihood | str | None,
    validation: tuple[Any, Any] | None,
    fixed: Selection | Literal["alpha"] | None,
    seed: Seed | None,
    begin: DataStart,
    member: int,
) -> Setup:
    """Check and prepare what `fit` was given. Bad input is refused here, and the network is as it was."""
    device = pick_device(config.device)
    dtype = device_of(net)[1] if config.dtype is None else pick_dtype(config.dtype)
    if dtype == torch.float64 and device.type == "mps":
        refuse("fit", "dtype", "float32 on this device", "float64")
    likelihood = resolve_likelihood(net, likelihood)
    draw = _training_draw(config, fixed)
    _check_fixed(net, fixed)
    number = config.seed if seed is None else seed_number(seed, "fit")
    data, held_out = _rows(train, validation, config, n, number, Prepare(net, likelihood, dtype, device))
    layers = drawable_layers(net)
    return Setup(
        net=net,
        layers=layers,
        likelihood=likelihood,
        config=config,
        device=device,
        dtype=dtype,
        draw=draw,
        fixed=fixed,
        seed=number,
        group=current_group(),
        data=data,
        validation=held_out,
        epochs=config.epochs_for(data.n),
        post=fixed is not None or any(layer.decided for layer in layers.values()),
        samples=max(config.samples, members_of(net) or 1),  # an ensemble trains all its members at once
        start=begin,
        member=member,
    )


def _rows(
    train: Data, validation: tuple[Any, Any] | None, config: TrainConfig, n: int | None, seed: int, prepare: Prepare
) -> tuple[Batches, Pair | None]:
    """Rows to train on, and rows to validate with."""
    if validation is not None and not is_pair(validation):
        refuse("fit", "validation", "a pair (x, y)", type(validation).__name__)
    held_out = None if validation is None else prepare(*validation)
    data: Batches
    if isinstance(train, Dataset) and not isinstance(train, IterableDataset):
        data = DatasetBatches(train, config.batch_size, prepare)
    else:
        n = rows_of_loader(train) if n is None and isinstance(train, DataLoader) else n
        data = as_batches(train, n, config.batch_size, prepare)
    if config.validation_fraction > 0:
        if held_out is not None:
            refuse("fit", "validation_fraction", "0 when validation data are given", config.validation_fraction)
        if not isinstance(data, TensorBatches):
            refuse("fit", "validation_fraction", "0 with an iterable; give validation=(x, y)", "an iterable")
        generator = keyed_generator(seed, "validation")
        data, held_out = hold_out(data, config.validation_fraction, config.batch_size, generator)
    if config.patience is not None and held_out is None:
        refuse("fit", "patience", "used with validation data or validation_fraction", config.patience)
    return data, held_out


def _check_fixed(net: nn.Module, fixed: Selection | Literal["alpha"] | None) -> None:
    """Refuse to keep fixed what a method does not have."""
    if not isinstance(net, Network) or fixed is None:
        return
    kind, able, name = "alpha" if fixed == "alpha" else "a Selection", net.method.post_training, net.method.name
    if kind not in able:
        allowed = " or ".join(able) if able else "None"
        refuse("fit", "fixed", f"{allowed} for the method {name}, which has nothing else to keep", kind)


def _training_draw(config: TrainConfig, fixed: Selection | Literal["alpha"] | None) -> Draw:
    draw = named_draw(config.draw, config.delta)
    if fixed is None or fixed == "alpha":
        return draw
    if not isinstance(fixed, Selection):
        refuse("fit", "fixed", 'a Selection, "alpha" or None', fixed)
    return Fixed(fixed.masks, draw)
