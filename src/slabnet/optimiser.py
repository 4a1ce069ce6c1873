"""Adam with one group of parameters for the weights and one for omega (sec. 4)."""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from slabnet.config import TrainConfig
from slabnet.kernels import native
from slabnet.likelihoods import Likelihood

HYPER_SPEED = 10.0  # step size of a learned sigma_beta, as a multiple of lr
PIECE = 2048  # as in kernels.c


class FusedAdam(torch.optim.Adam):
    """`torch.optim.Adam(fused=True)`, with all tensors in one pass where the compiled passes apply.

    The same state and, to rounding, the same numbers; but one call a step instead of one for every group, and no
    lists of tensors gathered anew.
    """

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, fused=True)
        self._table: _Table | None = None
        self._looked = False  # whether it has been seen if the C pass takes these tensors

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
        if closure is None and self._table is not None and self._table.step():
            return None
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
        self.sizes = torch.tensor([p.numel() for p in self.params])
        places = [(k, at) for k, p in enumerate(self.params) for at in range(0, p.numel(), PIECE)]
        self.pieces = torch.tensor(places, dtype=torch.int64).reshape(-1, 2)

    @classmethod
    def of(cls, optimiser: FusedAdam) -> _Table | None:
        """A table, if every tensor is one the C pass takes and all have made the same number of steps."""
        if any(group["betas"] != (0.9, 0.999) or group["amsgrad"] for group in optimiser.param_groups):
            return None
        made = cls(optimiser)
        fits = all(native.applies(t) and t.is_contiguous() for part in made.kept for t in part)
        return made if made.params and fits and len({float(s) for s in made.steps}) == 1 else None

    def step(self) -> bool:
        """Make a step, or say that this is not the pass for it."""
        if [p.data_ptr() for p in self.params] != self.places:
            return False  # they have moved
        grads, rates = [], []
        ahead = self.count + 1
        shrink = 1 - 0.9**ahead
        for group in self.groups:
            rate = group["lr"] / shrink
            for parameter in group["params"]:
                grad = parameter.grad
                if grad is None or grad.dtype != torch.float32 or not grad.is_contiguous():
                    return False
                grads.append(grad.data_ptr())
                rates.append(rate)
        self.count = ahead
        p, m, v = (part.data_ptr() for part in self.addresses)
        given, speeds = array("q", grads), array("f", rates)
        lists = (self.pieces.data_ptr(), self.sizes.data_ptr(), p, given.buffer_info()[0], m, v)
        root = 1 / math.sqrt(1 - 0.999**ahead)
        native.run("adam", len(self.pieces), *lists, speeds.buffer_info()[0], root, 0.9, 0.999, self.groups[0]["eps"])
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
