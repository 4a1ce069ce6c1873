"""Adam with one group of parameters for the weights and one for omega (sec. 4); torch's, called without detours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from slabnet.config import TrainConfig
from slabnet.likelihoods import Likelihood

HYPER_SPEED = 10.0  # step size of a learned sigma_beta, as a multiple of lr


class FusedAdam(torch.optim.Adam):
    """`torch.optim.Adam(fused=True)`, whose step gathers its lists of tensors once instead of every time.

    The same numbers and the same state; a tenth of a step's time for small networks.
    """

    def __init__(self, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, fused=True)
        self._lists: list[tuple[dict[str, Any], list[Tensor], list[list[Tensor]]]] | None = None

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        self._lists = None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Forget the gradients."""
        if not set_to_none:
            super().zero_grad(set_to_none=False)
            return
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> Any:
        """One step for every parameter that has a gradient."""
        grads = [[p.grad for p in group["params"]] for group in self.param_groups]
        if closure is not None or any(g is None or g.device.type != "cpu" for part in grads for g in part):
            self._lists = None
            return super().step(closure)
        if self._lists is None:
            found = super().step()
            self._lists = [self._gather(group) for group in self.param_groups]
            return found
        for (group, params, (averages, squares, steps)), given in zip(self._lists, grads, strict=True):
            torch._foreach_add_(steps, 1)
            beta1, beta2 = group["betas"]
            torch.ops.aten._fused_adam_(
                params,
                given,
                averages,
                squares,
                [],
                steps,
                lr=group["lr"],
                beta1=beta1,
                beta2=beta2,
                weight_decay=0.0,
                eps=group["eps"],
                amsgrad=False,
                maximize=False,
            )
        return None

    def _gather(self, group: dict[str, Any]) -> tuple[dict[str, Any], list[Tensor], list[list[Tensor]]]:
        params = list(group["params"])
        return group, params, [[self.state[p][key] for p in params] for key in ("exp_avg", "exp_avg_sq", "step")]


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
