"""Algorithm 1: epochs and steps, from a state to the history of how it became another."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn

from slabnet.core.errors import SlabnetError, TrainingDiverged
from slabnet.core.noise import keyed_generator, reseed
from slabnet.core.records import Epoch, History
from slabnet.distributed.group import Group
from slabnet.kernels.fused import gradients_to
from slabnet.model.drawing import WHOLE, Drawable, Place, drawable_layers, drawing, mean
from slabnet.model.draws import Fixed
from slabnet.model.elbo import elbo
from slabnet.model.likelihoods import Response
from slabnet.training.batches import Share, TensorBatches
from slabnet.training.checkpoints import STOPPING, Interrupted, Keeper, digest
from slabnet.training.dead_units import ROWS
from slabnet.training.optimiser import FusedAdam, set_step_sizes
from slabnet.training.progress import Watch
from slabnet.training.state import Part, State
from slabnet.training.validation import mean_log_likelihood

CHECK_EVERY = 50  # steps between two looks at whether the loss is finite: looking would stall a GPU
OnEpoch = Callable[[Epoch], None]
logger = logging.getLogger("slabnet")


class Loop:
    """Goes on with a run from its state."""

    def __init__(self, state: State, watch: Watch, on_epoch: OnEpoch | None = None, keeper: Keeper | None = None):
        self.setup, self.state = state.setup, state
        self.watch, self.on_epoch, self.keeper = watch, on_epoch, keeper
        self.noise, self.process_noise = (torch.Generator(device=state.setup.device) for _ in range(2))
        self.stop = 0  # the number of a signal that some process got
        self.last: tuple[Tensor, Response] | None = None  # rows of the last step
        self.broken_at_start = True  # whether the first loss of an epoch is the one that is not finite

    def run(self) -> History:
        """Epochs until the end, or until validation says so; from where a checkpoint left off, where there is one."""
        state, setup = self.state, self.setup
        good = latest = (len(state.epochs), state.values())  # good once a loss computed from it is finite
        setup.net.train()
        try:
            while not state.finished and not state.stops:
                good, latest = latest, self._next_epoch()
            if not state.finished:
                self._check_end(len(state.epochs))
        except TrainingDiverged as error:
            epoch, values = good if self.broken_at_start else latest
            state.put_values(values)
            advice = f"the network holds its state after epoch {epoch}; try a smaller lr or a clip"
            raise TrainingDiverged(f"{error}; {advice}") from None
        except SlabnetError:  # a bad batch in a stream
            state.put_values(latest[1])
            raise
        finally:
            for optimiser in (state.optimiser, state.working[1]):
                optimiser.release()
            setup.net.eval()
        if state.best is not None and not state.finished:
            state.put_values(state.best.tensors)
        if self.keeper is not None and not state.finished:
            state.finished = True
            if setup.group.leads:
                self.keeper.write(state.steps, *state.snapshot())
        return state.history()

    def _next_epoch(self) -> tuple[int, list[Tensor]]:
        """One epoch and what follows it; its number, and the values after it."""
        state, group = self.state, self.setup.group
        started = time.perf_counter()
        number = len(state.epochs) + 1
        log_likelihood, divergence = self._pass_over_data(number)
        self._remove_dead_units(number)
        epoch = self._record(number, log_likelihood, divergence, time.perf_counter() - started)
        group.agree(digest(*self.setup.tensors()) if group.world > 1 else "", "the parameters")
        values = state.values()
        state.add(epoch, values)
        self.watch.epoch(epoch)
        if self.on_epoch is not None:
            self.on_epoch(epoch)
        self._keep(epoch_ended=True)
        return number, values

    def _pass_over_data(self, number: int) -> tuple[float, float]:
        """The steps of one epoch; the mean of both terms, weighted by the size of the batches."""
        state, setup, part = self.state, self.setup, self.state.part
        if part.batches == 0:
            part.order = state.order.get_state()
        net, optimiser = state.working
        layers = setup.layers if net is setup.net else drawable_layers(net)
        if setup.one_pass:
            optimiser.defer(layers.values())
        hold = setup.hold
        outside = 0.0 if state.cutter is None else state.cutter.kl_outside
        for share in setup.data.epoch(state.order, setup.group, part.batches):  # Algorithm 1
            done = state.rows / (setup.epochs * setup.data.n)
            set_step_sizes(optimiser, setup.config, number, done, held=state.pretraining or state.steps < hold)
            optimiser.zero_grad()
            part.pending.append(self._differentiate(net, optimiser, layers, share) * len(share.x))
            self._add_up(optimiser, share)
            self._clip(optimiser)
            optimiser.step()
            state.rows, state.steps = state.rows + share.total, state.steps + 1
            self.last = (share.x, share.y) if len(share.x) else self.last
            part.rows, part.batches = part.rows + share.total, part.batches + 1
            if len(part.pending) == CHECK_EVERY:
                part.total += self._gather(number)
            self.watch.step(number - 1 + part.rows / setup.data.n)
            self._keep(epoch_ended=False)
        optimiser.release()  # who looks at the network between epochs finds gradients as ever
        part.total += self._gather(number)
        means = part.total / part.rows
        state.part = Part()
        return float(means[0]), float(means[1]) + outside

    def _differentiate(self, net: nn.Module, optimiser: FusedAdam, layers: dict[str, Drawable], share: Share) -> Tensor:
        """The gradient of this process's part of the loss; both terms of the bound."""
        state, setup = self.state, self.setup
        if not len(share.x):
            return torch.zeros(2, device=setup.device)
        reseed(self.noise, setup.seed, "noise", state.steps, *setup.rank_key)
        if setup.group.world > 1:
            reseed(self.process_noise, setup.seed, "own", state.steps, setup.group.rank)
        with gradients_to(optimiser):
            terms = elbo(
                net,
                setup.likelihood,
                share.x if state.cutter is None else state.cutter.columns(share.x),
                share.y,
                n=setup.data.n,
                draw=state.draw,
                seed=self.noise,
                samples=setup.samples,
                kl="exact" if state.pretraining else setup.config.kl,
                kl_weight=state.kl_weight,
                baseline=state.baseline,
                layers=layers,
                place=WHOLE if setup.group.world == 1 else Place(share.first, self.process_noise),
            )
            loss = state.kl_weight * terms.kl - terms.log_likelihood - terms.score
            if setup.group.world > 1:
                loss = loss * (len(share.x) / share.total)
            loss.backward()  # type: ignore[no-untyped-call]
        return torch.stack([terms.log_likelihood.detach(), terms.kl.detach()])

    def _add_up(self, optimiser: FusedAdam, share: Share) -> None:
        """One gradient from those of all processes; a wish to stop travels with it."""
        group = self.setup.group
        if group.world == 1:
            return
        if share.total < group.world:  # somebody has no rows, and put nothing off
            optimiser.flush()
        tensors, theirs = optimiser.put_off(self.state.kl_weight)
        for parameter in (p for some in optimiser.param_groups for p in some["params"] if id(p) not in theirs):
            if parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
            tensors.append(parameter.grad)
        mine = self.keeper and self.keeper.caught
        wishes = tensors[0].new_tensor([float(mine == number) for number in STOPPING])
        group.add_up([*tensors, wishes])
        self.stop = next((int(s) for s, wish in zip(STOPPING, wishes.tolist(), strict=True) if wish), 0)

    def _clip(self, optimiser: FusedAdam) -> None:
        config = self.setup.config
        if config.clip is not None:  # the loss is a sum over n rows, the limit is for one
            parameters = [p for group in optimiser.param_groups for p in group["params"]]
            nn.utils.clip_grad_norm_(parameters, config.clip * self.setup.data.n)

    def _gather(self, number: int) -> Tensor:
        """Add up the terms of the last steps; if one is not finite, stop."""
        part, steps = self.state.part, self.state.steps
        if not part.pending:
            return torch.zeros(2, dtype=torch.float64)
        terms = torch.stack(part.pending).to("cpu", torch.float64)
        self.setup.group.add_up([terms])
        first = steps - len(part.pending) + 1
        part.pending.clear()
        bad = (~torch.isfinite(terms)).any(1)
        if bool(bad.any()):
            step = first + int(bad.nonzero()[0, 0])
            self.broken_at_start = step == steps - part.batches + 1
            log_likelihood, divergence = terms[step - first].tolist()
            values = f"log-likelihood {log_likelihood:g}, KL {divergence:g}"
            raise TrainingDiverged(f"fit: the loss was not finite at step {step} (epoch {number}): {values}")
        return terms.sum(0)

    def _remove_dead_units(self, number: int) -> None:
        """The full network as it now is, and from time to time a smaller one to go on with."""
        state, setup = self.state, self.setup
        if state.cutter is None:
            return
        state.cutter.put_back()
        if number % setup.config.cut_every == 0 and number < setup.epochs:
            cut = state.cutter.cut(*self._some_rows(), setup.data.n, setup.draw, number)
            if cut is not None:
                state.cuts.append(cut)
                logger.info("fit: epoch %d: left %s, ELBO changed by %.1f", number, cut.left, cut.elbo)

    def _record(self, number: int, log_likelihood: float, divergence: float, seconds: float) -> Epoch:
        setup = self.setup
        alpha = self.state.tracker.update()
        rates = {group["name"]: group["lr"] for group in self.state.rates()}
        return Epoch(
            epoch=number,
            log_likelihood=log_likelihood,
            kl=divergence,
            kl_weight=self.state.kl_weight,
            density_expected=alpha.density_expected,
            density_median=alpha.density_median,
            alpha_moving=alpha.moving,
            alpha_at_prior=alpha.at_prior,
            lr=rates.get("weights", 0.0),
            omega_lr=rates.get("omega", 0.0),
            seconds=seconds,
            validation_log_likelihood=mean_log_likelihood(setup.net, setup.likelihood, setup.draw, setup.validation),
        )

    def _keep(self, epoch_ended: bool) -> None:
        """Write a checkpoint if it is time, and stop if somebody asked for that, in whichever process."""
        keeper, state, group = self.keeper, self.state, self.setup.group
        if keeper is None:
            return
        stop = keeper.caught if group.world == 1 else self.stop
        if group.leads and (stop or keeper.due(state.steps, epoch_ended)):
            if state.cutter is not None:
                state.cutter.put_back()
            keeper.write(state.steps, *state.snapshot())
        if stop:
            raise Interrupted(int(stop), keeper.folder)

    def _some_rows(self) -> tuple[Tensor, Response]:
        """Rows to look at the network with: the first of the data, or of a stream the last batch."""
        data = self.setup.data
        if isinstance(data, TensorBatches):
            return data.x[:ROWS], data.y[:ROWS]
        if self.last is not None:
            return self.last
        share = next(iter(data.epoch(keyed_generator(self.setup.seed, "order"), Group())))
        return share.x, share.y

    @torch.no_grad()
    def _check_end(self, number: int) -> None:
        """No loss has been computed from the last state: compute one."""
        self.broken_at_start = True
        net, draw = self.setup.net, self.setup.draw
        x, y = self._some_rows()
        net.eval()
        with drawing(net, Fixed(draw.masks) if isinstance(draw, Fixed) else mean):
            value = self.setup.likelihood.total(net(x), y)
        if not all(bool(torch.isfinite(part).all()) for part in [value, *net.parameters()]):
            raise TrainingDiverged(f"fit: the network was not finite after step {self.state.steps} (epoch {number})")
