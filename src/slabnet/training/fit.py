"""Algorithm 1: doubly stochastic variational inference, and post-training, which is the same with gamma fixed."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import nn

from slabnet.config.settings import TrainConfig
from slabnet.config.settings_0_1 import open_settings_of
from slabnet.core.errors import check_choice, refuse
from slabnet.core.locks import holding
from slabnet.core.noise import Seed
from slabnet.core.records import History
from slabnet.core.threads import threads_for
from slabnet.distributed.group import current_group
from slabnet.kernels.native import chosen, cost_of_torch, passes, variant
from slabnet.model.attach import resolve_likelihood
from slabnet.model.likelihoods import Likelihood
from slabnet.model.mixture import Mixture
from slabnet.training.batches import Data
from slabnet.training.checkpoints import Checkpoints, Keeper, latest_settings
from slabnet.training.convergence import active_weights
from slabnet.training.loop import Loop, OnEpoch
from slabnet.training.members import Fixed, fit_members
from slabnet.training.progress import Part, Show, Watch
from slabnet.training.setup import Setup, set_up
from slabnet.training.starts import DataStart
from slabnet.training.state import start
from slabnet.training.teacher import Teacher, taught

logger = logging.getLogger("slabnet")
_ONE_AT_A_TIME = threading.RLock()


def fit(
    net: nn.Module,
    train: Data,
    config: TrainConfig | None = None,
    *,
    n: int | None = None,
    likelihood: Likelihood | str | None = None,
    validation: tuple[Any, Any] | None = None,
    fixed: Fixed = None,
    seed: Seed | None = None,
    progress: Show = "auto",
    on_epoch: OnEpoch | None = None,
    checkpoint: Checkpoints | str | Path | None = None,
    resume: bool = False,
    part: Part | None = None,
    teacher: Teacher | None = None,
    teacher_share: float = 0.5,
) -> History:
    """Fit the posterior of `net` in place by maximising the bound (Algorithm 1).

    A `Mixture` trains its members one after the other, each as a run of its own with a seed of its own.
    train: (x, y) as tensors or arrays, a `Dataset` or `DataLoader` of torch, or another iterable of (x, y) batches with
        `n` rows in all.
    likelihood: for modules of your own class, as an object or by name; a network of ours has one already.
    validation: (x, y) held out for early stopping (see `TrainConfig.patience`).
    fixed: a `Selection` post-trains that model: only its weights move. "alpha" keeps every inclusion
        probability and goes on drawing gamma; only means and spreads move.
    seed: overrides `config.seed`; a number or a generator.
    progress: "auto" (a bar in a terminal), "bar", "lines" or "off".
    checkpoint: a folder in which to keep the run while it goes on (at each epoch, and every five minutes), or
        `Checkpoints(...)`. Ctrl-C and SIGTERM then finish the step and keep it before they raise `Interrupted`.
        Processes that `torchrun` started train together: each computes its share of every batch, the first one writes.
    resume: go on from the folder's latest checkpoint, as if the run had never stopped; from the start if there is
        none. A checkpoint of another configuration or of other data is refused; what is left open now and was then
        keeps the value it had.
    part: what progress calls this run, and what comes after it, where it is one of several.
    teacher: something fitted with `predict_proba` or `predict`, or its predictions for the rows of (x, y), from which
        the network learns too. What is maximised is then no bound on the evidence of y.
    teacher_share: how much of the log-likelihood is taken at those predictions.

    >>> from slabnet.model.networks import mlp
    >>> x = torch.randn(60, 2, generator=torch.Generator().manual_seed(1))
    >>> history = fit(mlp((2, 2)), (x, (x[:, 0] > 0).long()), TrainConfig(epochs=3, batch_size=20))
    >>> len(history), history[-1].kl > 0
    (3, True)
    """
    config = config or TrainConfig()
    _check(net, config, progress, resume and checkpoint is None)
    if teacher is not None:
        train = taught(train, teacher, teacher_share)
    settings = Checkpoints(checkpoint) if isinstance(checkpoint, (str, Path)) else checkpoint
    task = _Task(train, config, n, likelihood, validation, progress, on_epoch, resume, part)
    if isinstance(net, Mixture):
        whole = resolve_likelihood(net, likelihood)
        one = replace(task, likelihood=None, begin=DataStart(len(net.members)))
        return fit_members(net, one.run, one.begin, whole, fixed, config.seed if seed is None else seed, settings)
    return task.run(net, fixed, config.seed if seed is None else seed, settings)


def _check(net: object, config: object, progress: Show, resumes_nothing: bool) -> None:
    if not isinstance(net, nn.Module):
        refuse("fit", "net", "a network", type(net).__name__)
    if not isinstance(config, TrainConfig):
        refuse("fit", "config", "a TrainConfig", type(config).__name__)
    check_choice("fit", "progress", progress, ("auto", "bar", "lines", "off"))
    if resumes_nothing:
        refuse("fit", "resume", "used with a checkpoint folder", True)


@dataclass(frozen=True)
class _Task:
    """What is the same for every member of a mixture."""

    train: Data
    config: TrainConfig
    n: int | None
    likelihood: Likelihood | str | None
    validation: tuple[Any, Any] | None
    progress: Show
    on_epoch: OnEpoch | None
    resume: bool
    part: Part | None
    begin: DataStart = field(default_factory=DataStart)

    def run(
        self, net: nn.Module, fixed: Fixed, seed: Seed, checkpoints: Checkpoints | None, member: int = 0
    ) -> History:
        """One run of Algorithm 1, written to the folder of `checkpoints`."""
        config = _as_before(self.config, checkpoints) if self.resume and checkpoints is not None else self.config
        given = (self.train, config, self.n, self.likelihood, self.validation)
        setup = set_up(net, *given, fixed, seed, self.begin, member)
        several = self.begin.members
        usual = Part(f"member {member + 1} of {several}" if several > 1 else "post-train" if setup.post else "fit")
        history = self._loop(setup, usual, checkpoints)
        setup.finish()
        return history

    def _loop(self, setup: Setup, usual: Part, checkpoints: Checkpoints | None) -> History:
        state, group, config = start(setup), setup.group, setup.config
        show: Show = self.progress if group.leads else "off"
        in_c = chosen() == "auto" and setup.device.type == "cpu" and setup.dtype == torch.float32
        if group.leads and in_c:
            _say_cost()
        watch = Watch(show, setup.epochs, setup.data.n, self.part or usual, lambda: active_weights(setup.net))
        with (
            watch,
            _own_dropout(setup.drops, setup.seed),
            _few_objects(),
            threads_for(setup.work),
            passes("compiled" if config.compile else chosen()),
        ):
            if checkpoints is None:
                return Loop(state, watch, self.on_epoch).run()
            made_by = {
                "threads": torch.get_num_threads(),
                "passes": (variant() or "torch") if chosen() == "auto" else chosen(),
            }
            keeper = Keeper(checkpoints, setup.describe(), made_by)
            with holding(keeper.folder, "fit") if group.leads else nullcontext():
                if group.leads:
                    keeper.clean()
                if not self.resume and group.leads:
                    keeper.start_afresh()
                elif self.resume and (earlier := group.share(keeper.latest() if group.leads else None)) is not None:
                    state.restore(*earlier)
                with keeper.listening():
                    return Loop(state, watch, self.on_epoch, keeper).run()


@cache
def _say_cost() -> None:
    """Once in a process, that its fits are slow for want of a C compiler."""
    cost = cost_of_torch()
    if cost is not None:
        logger.warning("fit: %s", cost)


def _as_before(config: TrainConfig, checkpoints: Checkpoints) -> TrainConfig:
    """What was left open both times keeps the value it had, so that a new default stops nobody from going on."""
    group = current_group()
    written = latest_settings(Path(checkpoints.folder)) if group.leads else None
    earlier = group.share(({"config": written}, {}) if group.leads else None)[0]["config"]
    return config if earlier is None else open_settings_of(config, earlier)


@contextmanager
def _own_dropout(drops: bool, seed: int) -> Iterator[None]:
    """torch's Dropout draws from the global generator: lend it a seeded one, and put the old state back.

    There is one for all threads, so that such fits wait for each other.
    """
    if not drops:
        yield
        return
    with _ONE_AT_A_TIME, torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


@contextmanager
def _few_objects() -> Iterator[None]:
    """Keep the garbage collector from walking through everything that was there before training, again and again."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
