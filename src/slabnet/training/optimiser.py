"""Adam with one group of parameters for the weights and one for omega (sec. 4)."""

from __future__ import annotations

import itertools
import math
from array import array
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from slabnet.config.settings import TrainConfig
from slabnet.kernels import native
from slabnet.kernels.fused import Pending
from slabnet.model.layers import SlabLayer
from slabnet.model.likelihoods import Likelihood

HYPER_SPEED = 10.0  # step size of a learned sigma_beta, as a multiple of lr
PIECE = 512  # as in kernels.c
LARGE = 4 << 20  # bytes from which memory is asked for in large pages


class FusedAdam(torch.optim.Adam):
    """`torch.optim.Adam(fused=True)`, with all tensors in one pass where the compiled passes apply.

    The same state and, to rounding, the same numbers. After `defer` the gradients of the weights of spike-and-slab and
    Gaussian layers are not written at all: backward leaves them to `step`, which computes them and uses them at once.
    """

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, fused=True)
        self._table: _Table | None = None
        self._looked = False  # whether it has been seen if the C pass takes these tensors
        self._deferred: dict[int, tuple[Tensor, ...]] = {}
        self._pending: dict[int, Pending] = {}

    def defer(self, layers: Iterable[nn.Module]) -> None:
        """Take gradient and step in one pass for the weights of these layers, until `release`.

        It concerns gradients of passes under `gradients_to(self)`; all others are computed as ever.
        """
        ours = {id(p) for group in self.param_groups for p in group["params"]}
        for layer in layers:
            if not isinstance(layer, SlabLayer) or not layer.plain_prior:
                continue
            triple = tuple(p for p in (layer.weight.mu, layer.weight.rho, layer.weight.omega) if p is not None)
            if all(id(p) in ours and native.applies(p) and p.is_contiguous() for p in triple):
                self._deferred[id(triple[0])] = triple

    def release(self) -> None:
        """Gradients are gradients again."""
        self.flush()
        self._deferred.clear()
        self.settle()

    def take(self, mu: Tensor, rho: Tensor, omega: Tensor | None, pending: Pending) -> bool:
        """Called in the backward pass: keep what a gradient needs, if it is the only one for these weights."""
        triple = self._deferred.get(id(mu))
        parts = [p for p in (mu, rho, omega) if p is not None]
        if triple is None or [p.data_ptr() for p in parts] != [p.data_ptr() for p in triple]:
            return False
        if id(mu) in self._pending or mu.grad is not None:  # used twice: add them up as gradients
            self.flush()
            return False
        self._pending[id(mu)] = pending
        return True

    def put_off(self, kl_weight: float) -> tuple[list[Tensor], set[int]]:
        """What the gradients that were put off are linear in, to be added up over processes, and whose they are.

        The divergence counts once: its weight is set to `kl_weight`, whatever share of it was differentiated here.
        """
        tensors: list[Tensor] = []
        if self._doubled():
            self.flush()
        self._pending = {key: pending.multiplied() for key, pending in self._pending.items()}
        for pending in self._pending.values():
            data, divergence = (0, 1) if pending.kind == "moments" else (2, 3)
            tensors.append(pending.alive[data])
            pending.alive[divergence].fill_(kl_weight)
        return tensors, {id(p) for key in self._pending for p in self._deferred[key]}

    def _doubled(self) -> bool:
        """Whether weights whose gradient was put off got another one, by a use of the layer that puts nothing off."""
        return any(p.grad is not None for key in self._pending for p in self._deferred[key])

    def flush(self) -> None:
        """Compute the gradients that were put off, after all."""
        for key, put_off in self._pending.items():
            triple, pending = self._deferred[key], put_off.multiplied()
            grads = [torch.empty_like(p) for p in triple]
            addresses = [g.data_ptr() for g in grads] + [0] * (3 - len(grads))
            scale = torch.empty(())
            native.run(f"{pending.kind}_back", 0, *pending.arguments, *addresses, scale.data_ptr())
            for parameter, grad in zip(triple, grads, strict=True):
                parameter.grad = grad if parameter.grad is None else parameter.grad + grad
        self._pending.clear()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._table, self._looked = None, False
        super().load_state_dict(state_dict)

    def state_dict(self) -> dict[str, Any]:
        self.settle()
        return super().state_dict()

    def settle(self) -> None:
        """Write the number of steps back to the state, before somebody reads or changes it."""
        if self._table is not None:
            self._table.write_steps()
        self._table, self._looked = None, False

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        self._pending.clear()
        if not set_to_none:
            super().zero_grad(set_to_none=False)
            return
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """One step for every parameter that has a gradient."""
        if not self._looked and all(self.state.get(p) for group in self.param_groups for p in group["params"]):
            self._table, self._looked = _Table.of(self), True
        some = len(self._pending) not in (0, len(self._deferred))
        if self._table is None or closure is not None or some or self._doubled():
            self.flush()
        if closure is None and self._table is not None and self._table.step(self._deferred, self._pending):
            self._pending.clear()
            return None
        self.flush()
        if self._table is not None:
            self.settle()
        return super().step(closure)


FusedAdam.step.hooked = True  # type: ignore[attr-defined]  # torch would wrap it in a profiler's record, at every step


class _Table:
    """Addresses of parameters and moments, which stay where they are from step to step."""

    def __init__(self, optimiser: FusedAdam) -> None:
        self.groups = optimiser.param_groups
        self.params: list[Tensor] = [p for group in self.groups for p in group["params"]]
        states = [optimiser.state[p] for p in self.params]
        self.kept = [self.params, [s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states]]
        self.steps: list[Tensor] = [s["step"] for s in states]
        self.count = int(self.steps[0]) if self.steps else 0
        self.places = [p.data_ptr() for p in self.params]
        self.addresses = [torch.tensor([t.data_ptr() for t in part]) for part in self.kept]
        pairs = [(s["exp_avg"].data_ptr(), s["exp_avg_sq"].data_ptr()) for s in states]
        self.memory = {id(p): pair for p, pair in zip(self.params, pairs, strict=True)}
        self.sizes = torch.tensor([p.numel() for p in self.params])
        self._pieces: dict[frozenset[int], Tensor] = {}

    def take_large_pages(self) -> None:
        """Put what a step goes through into large pages, where the system has them; nothing else changes."""
        for tensor in itertools.chain(*self.kept):
            if tensor.nbytes >= LARGE:
                native.run("large_pages", tensor.data_ptr(), tensor.nbytes)

    @classmethod
    def of(cls, optimiser: FusedAdam) -> _Table | None:
        """A table, if every tensor is one the C pass takes and all have made the same number of steps."""
        if any(group["betas"] != (0.9, 0.999) or group["amsgrad"] for group in optimiser.param_groups):
            return None
        made = cls(optimiser)
        fits = all(native.applies(t) and t.is_contiguous() for part in made.kept for t in part)
        fits &= all(len({t.shape for t in trio}) == 1 for trio in zip(*made.kept, strict=True))  # C counts by the first
        if not made.params or not fits or len({float(s) for s in made.steps}) != 1:
            return None
        made.take_large_pages()
        return made

    def pieces(self, without: frozenset[int]) -> Tensor:
        """(tensor, place) of each piece of the parameters that the pass over all of them takes."""
        if without not in self._pieces:
            places = [
                (k, at) for k, p in enumerate(self.params) if id(p) not in without for at in range(0, p.numel(), PIECE)
            ]
            self._pieces[without] = torch.tensor(places, dtype=torch.int64).reshape(-1, 2)
        return self._pieces[without]

    def step(self, deferred: dict[int, tuple[Tensor, ...]], pending: dict[int, Pending]) -> bool:
        """Make a step, or say that this is not the pass for it."""
        if [p.data_ptr() for p in self.params] != self.places:
            return False  # they have moved
        apart = frozenset(id(p) for triple in deferred.values() for p in triple) if pending else frozenset()
        grads, rates, by_id = [], [], {}
        ahead = self.count + 1
        shrink = 1 - 0.9**ahead
        for group in self.groups:
            rate = group["lr"] / shrink
            for parameter in group["params"]:
                grad = parameter.grad
                rates.append(rate)
                if id(parameter) in apart:
                    by_id[id(parameter)] = rate
                    grads.append(0)
                    continue
                if grad is None or grad.dtype != torch.float32 or not grad.is_contiguous():
                    return False
                grads.append(grad.data_ptr())
        self.count = ahead
        adam = (1 / math.sqrt(1 - 0.999**ahead), 0.9, 0.999, self.groups[0]["eps"])
        for key, put_off in pending.items():
            triple = deferred[key]
            memory = [address for p in triple for address in self.memory[id(p)]] + [0] * (6 - 2 * len(triple))
            speeds = by_id[id(triple[0])], by_id[id(triple[-1])]
            native.run(f"{put_off.kind}_step", *put_off.arguments, *memory, *speeds, *adam)
        p, m, v = (part.data_ptr() for part in self.addresses)
        given, all_rates, pieces = array("q", grads), array("f", rates), self.pieces(apart)
        lists = (pieces.data_ptr(), self.sizes.data_ptr(), p, given.buffer_info()[0], m, v)
        native.run("adam", len(pieces), *lists, all_rates.buffer_info()[0], *adam)
        torch.autograd.graph.increment_version(self.params)  # autograd must see that they have changed
        return True

    def write_steps(self) -> None:
        for step in self.steps:
            step.fill_(self.count)


def make_optimiser(net: nn.Module, likelihood: Likelihood, config: TrainConfig, omega: bool) -> FusedAdam:
    """Adam with a step size of its own for omega (sec. 4), and for a learned sigma_beta."""
    groups: dict[str, list[nn.Parameter]] = {"weights": [], "omega": [], "hyper": []}
    for name, parameter in [*net.named_parameters(), *likelihood.named_parameters()]:
        kind = {"omega": "omega", "logit_rate": "omega", "log_sigma_beta": "hyper"}.get(
            name.rpartition(".")[2], "weights"
        )
        if parameter.requires_grad and not any(parameter is p for p in groups[kind]):
            groups[kind].append(parameter)
    if not omega:
        groups["omega"] = []
    rates = {"weights": config.lr, "omega": config.omega_lr, "hyper": config.lr * HYPER_SPEED}
    settings = [
        {"params": parameters, "lr": rates[kind], "base": rates[kind], "name": kind}
        for kind, parameters in groups.items()
        if parameters
    ]
    return FusedAdam(settings)


def set_step_sizes(optimiser: FusedAdam, config: TrainConfig, epoch: int, done: float, held: bool = False) -> None:
    """The step sizes of this step: `done` is the share of training that is over; while `held`, omega waits."""
    done = min(1.0, done)
    factor = {"constant": 1.0, "linear": 1 - done, "cosine": 0.5 * (1 + math.cos(math.pi * done))}[config.schedule]
    settled = config.omega_settle_epoch is not None and epoch > config.omega_settle_epoch
    for group in optimiser.param_groups:
        base = config.omega_settle_lr if settled and group["name"] == "omega" else group["base"]
        group["lr"] = 0.0 if held and group["name"] == "omega" else base * factor
