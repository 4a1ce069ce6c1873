"""One run of Algorithm 1: what it holds, an epoch, and what is kept of it in a checkpoint."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from slabnet.config.settings import TrainConfig
from slabnet.core.devices import device_of, pick_device, pick_dtype
from slabnet.core.errors import SlabnetError, TrainingDiverged, refuse
from slabnet.core.noise import Seed, keyed_generator, reseed, seed_number
from slabnet.core.records import Cut, Epoch, History, Selection
from slabnet.core.threads import work_of
from slabnet.distributed.group import Group, current_group
from slabnet.model.attach import attach_likelihood, resolve_likelihood
from slabnet.model.drawing import WHOLE, Draw, Drawable, Place, drawable_layers, drawing, mean, members_of
from slabnet.model.draws import Fixed, named_draw
from slabnet.model.elbo import RunningMean, elbo
from slabnet.model.likelihoods import Likelihood
from slabnet.model.networks import Network
from slabnet.training.batches import Data, Prepare, Share, TensorBatches, as_batches, is_pair
from slabnet.training.checkpoints import STOPPING, Interrupted, Keeper, digest
from slabnet.training.convergence import AlphaTracker
from slabnet.training.dead_units import ROWS, Cutter, can_cut
from slabnet.training.optimiser import FusedAdam, make_optimiser, set_step_sizes
from slabnet.training.progress import Watch
from slabnet.training.state import snapshot
from slabnet.training.validation import keep_aside, mean_log_likelihood

CHECK_EVERY = 50  # steps between two looks at whether the loss is finite: looking would stall a GPU
MOST_NUMBERS = 2**28  # how large data may be to be squared at once for the mean square of each input
OnEpoch = Callable[[Epoch], None]
logger = logging.getLogger("slabnet")


@dataclass
class Part:
    """How far the epoch that is under way has come."""

    order: Tensor | None = None  # state of the generator of the order, when the epoch began
    batches: int = 0
    rows: int = 0
    total: Tensor = field(default_factory=lambda: torch.zeros(2, dtype=torch.float64))
    pending: list[Tensor] = field(default_factory=list)


class Run:
    """One call of `fit`: everything is checked and prepared here, so that bad input trains nothing."""

    def __init__(
        self,
        net: nn.Module,
        train: Data,
        config: TrainConfig,
        n: int | None,
        likelihood: Likelihood | str | None,
        validation: tuple[Any, Any] | None,
        fixed: Selection | Literal["alpha"] | None,
        seed: Seed | None,
    ) -> None:
        self.net, self.config = net, config
        self.device = pick_device(config.device)
        dtype = device_of(net)[1] if config.dtype is None else pick_dtype(config.dtype)
        if dtype == torch.float64 and self.device.type == "mps":
            refuse("fit", "dtype", "float32 on this device", "float64")
        self.likelihood = resolve_likelihood(net, likelihood)
        self.draw = _training_draw(config, fixed)
        _check_fixed(net, fixed)
        self.seed = config.seed if seed is None else seed_number(seed, "fit")
        self.order = keyed_generator(self.seed, "order")
        self.group = current_group()
        self.noise, self.own = (torch.Generator(device=self.device) for _ in range(2))
        self.rank_key = (self.group.rank,) if self.draw.draws_weights and not config.shared_draws else ()
        prepare = Prepare(net, self.likelihood, dtype, self.device)
        if validation is not None and not is_pair(validation):
            refuse("fit", "validation", "a pair (x, y)", type(validation).__name__)
        self.validation = None if validation is None else prepare(*validation)
        self.data = as_batches(train, n, config.batch_size, prepare)
        if config.validation_fraction > 0:
            if self.validation is not None:
                refuse("fit", "validation_fraction", "0 when validation data are given", config.validation_fraction)
            if not isinstance(self.data, TensorBatches):
                refuse("fit", "validation_fraction", "0 with an iterable; give validation=(x, y)", "an iterable")
            given = (config.validation_fraction, config.batch_size, keyed_generator(self.seed, "validation"))
            self.data, self.validation = keep_aside(self.data, *given)
        if config.patience is not None and self.validation is None:
            refuse("fit", "patience", "used with validation data or validation_fraction", config.patience)
        net.to(self.device, dtype)  # from here on nothing is refused, so the network may change
        attach_likelihood(net, self.likelihood.to(self.device, dtype))
        self.epochs = config.epochs_for(self.data.n)
        post = fixed is not None or any(layer.decided for layer in drawable_layers(net).values())
        self.ramp = 0 if post else config.ramp_for(self.epochs)
        self.optimiser = make_optimiser(net, self.likelihood, config, omega=fixed is None)
        self.baseline = RunningMean()
        self.layers = drawable_layers(net)
        self.work = work_of(net, min(config.batch_size, self.data.n), self.data.positions)
        self.drops = any(isinstance(part, nn.modules.dropout._DropoutNd) and part.p > 0 for part in net.modules())
        self.tracker = AlphaTracker(net)
        self.samples = max(config.samples, members_of(net) or 1)  # an ensemble trains all its members at once
        self.rows = self.steps = self.stop = 0
        self.broken_at_start = True
        self.cuts: list[Cut] = []
        self.done: list[Epoch] = []
        self.finished = False
        self.best: float | None = None
        self.best_epoch: int | None = None
        self.best_state: list[Tensor] | None = None
        self.part = Part()
        self.last: tuple[Tensor, Tensor] | None = None
        self.cutter = self._cutter() if fixed is None and config.cut_every else None
        self.one_pass = fixed is None and config.clip is None and self.samples == 1
        if self.group.world > 1:  # what is added up then must belong to the same draws, and to every process
            self.one_pass &= not self.rank_key and not getattr(self.data, "sharded", False)
        self.group.spread(self.tensors())

    def _cutter(self) -> Cutter | None:
        """What leaves dead neurons out of the computation, where the network is of that kind."""
        if not can_cut(self.net) or (self.group.world > 1 and not isinstance(self.data, TensorBatches)):
            return None  # processes that see different rows would leave out different neurons
        power = None
        if isinstance(self.data, TensorBatches):
            power = (self.data.x.flatten(1) ** 2).mean(0) if self.data.x.numel() < MOST_NUMBERS else None
        return Cutter(self.net, self.likelihood, self.optimiser, self.config, power)

    def _after_epoch(self, number: int) -> None:
        """The full network as it now is, and from time to time a smaller one to go on with."""
        if self.cutter is None:
            return
        self.cutter.put_back()
        if number % self.config.cut_every == 0 and number < self.epochs:
            cut = self.cutter.cut(*self._some_rows(), self.data.n, self.draw, number)
            if cut is not None:
                self.cuts.append(cut)
                logger.info("fit: epoch %d: left %s, ELBO changed by %.1f", number, cut.left, cut.elbo)

    def run(self, watch: Watch, on_epoch: OnEpoch | None, keeper: Keeper | None) -> History:
        """Epochs until the end, or until validation says so; from where a checkpoint left off, where there is one."""
        good = latest = (len(self.done), self._state())  # a state is good once a loss computed from it is finite
        self.net.train()
        try:
            while not self.finished and not self._stops():
                started = time.perf_counter()
                number = len(self.done) + 1
                log_likelihood, divergence = self._epoch(number, keeper)
                self._after_epoch(number)
                epoch = self._record(number, log_likelihood, divergence, time.perf_counter() - started)
                self.group.agree(digest(*self.tensors()) if self.group.world > 1 else "", "the parameters")
                good, latest = latest, (number, self._state())
                self.done.append(epoch)
                self._compare(epoch, latest[1])
                watch.epoch(epoch)
                if on_epoch is not None:
                    on_epoch(epoch)
                self._keep(keeper, epoch_ended=True)
            if not self.finished:
                self._check_end(len(self.done))
        except TrainingDiverged as error:
            epoch_kept, state = good if self.broken_at_start else latest
            self._restore(state)
            said = f"{error}; the network holds its state after epoch {epoch_kept}; try a smaller lr or a clip"
            raise TrainingDiverged(said) from None
        except SlabnetError:  # a bad batch in a stream
            self._restore(latest[1])
            raise
        finally:
            self.optimiser.release()
            if self.cutter is not None:
                self.cutter.small_optimiser.release()
            self.net.eval()
        if self.best_state is not None and not self.finished:
            self._restore(self.best_state)
        if keeper is not None and not self.finished:
            self.finished = True
            if self.group.leads:
                keeper.write(self.steps, *snapshot(self))
        return self.history()

    def history(self) -> History:
        return History(
            epochs=tuple(self.done),
            n=self.data.n,
            steps=self.steps,
            kl_weight=self._kl_weight(),
            stopped_early=len(self.done) < self.epochs,
            best_epoch=self.best_epoch,
            config=self.config.model_dump(mode="json") | {"seed": self.seed},
            cuts=tuple(self.cuts),
        )

    def _compare(self, epoch: Epoch, state: list[Tensor]) -> None:
        """Keep the best state, once the ramp is over: before, the densest model is the best."""
        value = epoch.validation_log_likelihood
        if value is None or self.config.patience is None or epoch.epoch <= self.ramp:
            return
        if self.best is None or value > self.best:
            self.best, self.best_epoch, self.best_state = value, epoch.epoch, state

    def _stops(self) -> bool:
        """Whether all epochs are done, or validation has not become better for long enough."""
        if len(self.done) >= self.epochs:
            return True
        waiting = self.config.patience is not None and self.best_epoch is not None
        return waiting and len(self.done) - (self.best_epoch or 0) >= (self.config.patience or 0)

    def _keep(self, keeper: Keeper | None, epoch_ended: bool) -> None:
        """Write a checkpoint if it is time, and stop if somebody asked for that, in whichever process."""
        if keeper is None:
            return
        stop = keeper.caught if self.group.world == 1 else self.stop
        if self.group.leads and (stop or keeper.due(self.steps, epoch_ended)):
            if self.cutter is not None:
                self.cutter.put_back()
            keeper.write(self.steps, *snapshot(self))
        if stop:
            raise Interrupted(int(stop), keeper.folder)

    def _some_rows(self) -> tuple[Tensor, Tensor]:
        """Rows to look at the network with: the first of the data, or of a stream the last batch."""
        if isinstance(self.data, TensorBatches):
            return self.data.x[:ROWS], self.data.y[:ROWS]
        if self.last is not None:
            return self.last
        share = next(iter(self.data.epoch(keyed_generator(self.seed, "order"), Group())))
        return share.x, share.y

    @torch.no_grad()
    def _check_end(self, number: int) -> None:
        """No loss has been computed from the last state: compute one."""
        self.broken_at_start = True
        x, y = self._some_rows()
        self.net.eval()
        with drawing(self.net, Fixed(self.draw.masks) if isinstance(self.draw, Fixed) else mean):
            value = self.likelihood.log_prob(self.net(x), y).sum()
        if not all(bool(torch.isfinite(part).all()) for part in [value, *self.net.parameters()]):
            raise TrainingDiverged(f"fit: the network was not finite after step {self.steps} (epoch {number})")

    def _epoch(self, number: int, keeper: Keeper | None) -> tuple[float, float]:
        """One pass over the data; the mean of both terms, weighted by the size of the batches."""
        part = self.part
        if part.batches == 0:
            part.order = self.order.get_state()
            self.first_step = self.steps + 1
        cutter = self.cutter
        net, optimiser = (self.net, self.optimiser) if cutter is None else (cutter.small, cutter.small_optimiser)
        layers = self.layers if net is self.net else drawable_layers(net)
        if self.one_pass:
            optimiser.defer(layers.values())
        outside = 0.0 if cutter is None else cutter.kl_outside
        for share in self.data.epoch(self.order, self.group, part.batches):  # Algorithm 1
            set_step_sizes(optimiser, self.config, number, self.rows / (self.epochs * self.data.n))
            optimiser.zero_grad()
            part.pending.append(self._differentiate(net, layers, share) * len(share.x))
            self._add_up(optimiser, share, keeper)
            self._clip(optimiser)
            optimiser.step()
            self.rows, self.steps = self.rows + share.total, self.steps + 1
            self.last = (share.x, share.y) if len(share.x) else self.last
            part.rows, part.batches = part.rows + share.total, part.batches + 1
            if len(part.pending) == CHECK_EVERY:
                part.total += self._gather(part.pending, number)
            self._keep(keeper, epoch_ended=False)
        optimiser.release()  # who looks at the network between epochs finds gradients as ever
        part.total += self._gather(part.pending, number)
        means = part.total / part.rows
        self.part = Part()
        return float(means[0]), float(means[1]) + outside

    def _differentiate(self, net: nn.Module, layers: dict[str, Drawable], share: Share) -> Tensor:
        """The gradient of this process's part of the loss; both terms of the bound."""
        if not len(share.x):
            return torch.zeros(2, device=self.device)
        reseed(self.noise, self.seed, "noise", self.steps, *self.rank_key)
        if self.group.world > 1:
            reseed(self.own, self.seed, "own", self.steps, self.group.rank)
        terms = elbo(
            net,
            self.likelihood,
            share.x if self.cutter is None else self.cutter.columns(share.x),
            share.y,
            n=self.data.n,
            draw=self.draw,
            seed=self.noise,
            samples=self.samples,
            kl=self.config.kl,
            kl_weight=self._kl_weight(),
            baseline=self.baseline,
            layers=layers,
            place=WHOLE if self.group.world == 1 else Place(share.first, self.own),
        )
        loss = self._kl_weight() * terms.kl - terms.log_likelihood - terms.score
        if self.group.world > 1:
            loss = loss * (len(share.x) / share.total)
        loss.backward()  # type: ignore[no-untyped-call]
        return torch.stack([terms.log_likelihood.detach(), terms.kl.detach()])

    def _add_up(self, optimiser: FusedAdam, share: Share, keeper: Keeper | None) -> None:
        """One gradient from those of all processes; a wish to stop travels with it."""
        if self.group.world == 1:
            return
        if share.total < self.group.world:  # somebody has no rows, and put nothing off
            optimiser.flush()
        tensors, theirs = optimiser.put_off(self._kl_weight())
        for parameter in (p for group in optimiser.param_groups for p in group["params"] if id(p) not in theirs):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            tensors.append(parameter.grad)
        mine = keeper and keeper.caught
        wishes = tensors[0].new_tensor([float(mine == number) for number in STOPPING])
        self.group.add_up([*tensors, wishes])
        self.stop = next((int(s) for s, wish in zip(STOPPING, wishes.tolist(), strict=True) if wish), 0)

    def _gather(self, pending: list[Tensor], number: int) -> Tensor:
        """Add up the terms of some steps; if one is not finite, stop."""
        if not pending:
            return torch.zeros(2, dtype=torch.float64)
        terms = torch.stack(pending).to("cpu", torch.float64)
        self.group.add_up([terms])
        first = self.steps - len(pending) + 1
        pending.clear()
        bad = (~torch.isfinite(terms)).any(1)
        if bool(bad.any()):
            step = first + int(bad.nonzero()[0, 0])
            self.broken_at_start = step == self.first_step
            log_likelihood, divergence = terms[step - first].tolist()
            said = f"log-likelihood {log_likelihood:g}, KL {divergence:g}"
            raise TrainingDiverged(f"fit: the loss was not finite at step {step} (epoch {number}): {said}")
        return terms.sum(0)

    def _record(self, number: int, log_likelihood: float, divergence: float, seconds: float) -> Epoch:
        alpha = self.tracker.update()
        rates = {group["name"]: group["lr"] for group in self.rates_of()}
        return Epoch(
            epoch=number,
            log_likelihood=log_likelihood,
            kl=divergence,
            kl_weight=self._kl_weight(),
            density_expected=alpha.density_expected,
            density_median=alpha.density_median,
            alpha_moving=alpha.moving,
            alpha_at_prior=alpha.at_prior,
            lr=rates.get("weights", 0.0),
            omega_lr=rates.get("omega", 0.0),
            seconds=seconds,
            validation_log_likelihood=mean_log_likelihood(self.net, self.likelihood, self.draw, self.validation),
        )

    def rates_of(self) -> list[dict[str, Any]]:
        """The groups of parameters that are being trained, each with its step size."""
        optimiser = self.optimiser if self.cutter is None else self.cutter.small_optimiser
        return optimiser.param_groups

    def _kl_weight(self) -> float:
        """The KL comes in over the ramp, by rows seen, so that the data speak before weights are removed."""
        rows = self.ramp * self.data.n
        return self.config.kl_weight * (min(1.0, (self.rows + 1) / rows) if rows else 1.0)

    def _clip(self, optimiser: FusedAdam) -> None:
        if self.config.clip is not None:  # the loss is a sum over n rows, the limit is for one
            parameters = [p for group in optimiser.param_groups for p in group["params"]]
            nn.utils.clip_grad_norm_(parameters, self.config.clip * self.data.n)

    def tensors(self) -> list[Tensor]:
        """Everything training changes: parameters, and buffers such as a running mean."""
        parts = [*self.net.parameters(), *self.net.buffers(), *self.likelihood.parameters()]
        return list({id(part): part for part in parts}.values())

    def _state(self) -> list[Tensor]:
        return [part.detach().clone() for part in self.tensors()]

    @torch.no_grad()
    def _restore(self, state: list[Tensor]) -> None:
        for part, value in zip(self.tensors(), state, strict=True):
            part.copy_(value)


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
