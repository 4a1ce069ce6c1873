"""What a gate above an indicator does to it: the logit of both, and what the divergence then has more.

With A = sigmoid(gate) and a = sigmoid(omega), a weight is in the model with p = A a. Its divergence,
A [KL(a || psi) + a KL_slab], is that of an indicator of its own with probability p, and what is left:

    -p log A + A (1 - a) log(1 - a) - (1 - p) log(1 - p) + (1 - A) log(1 - psi).
"""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

LARGEST = 2e4  # of a logit: sigmoid is then 0 in every float type, and its gradient finite


def jointly(omega: Tensor, gate: Tensor) -> Tensor:
    """logit(alpha alpha_g) from both logits, without a difference of close numbers.

    >>> a, b = torch.tensor(1.2), torch.tensor(-0.3)
    >>> bool((torch.sigmoid(jointly(a, b)) - torch.sigmoid(a) * torch.sigmoid(b)).abs() < 1e-7)
    True
    """
    return -torch.logaddexp(-omega, F.softplus(-omega, threshold=40.0) - gate).clamp_max(LARGEST)


class _BehindGate(Function):
    """`behind_gate` with its derivatives written out: one node of the graph in place of twenty."""

    @staticmethod
    def forward(ctx: Any, omega: Tensor, gate: Tensor, off: Tensor, pinned: Tensor | None) -> tuple[Tensor, Tensor]:
        joint = jointly(omega, gate)
        if pinned is not None:
            joint = torch.where(pinned, omega, joint)
        logs = [F.logsigmoid(part) for part in (gate, -omega, -joint)]
        of_gate, inside_off, both_off = logs
        opened, inside, both = of_gate.exp(), torch.sigmoid(omega), torch.sigmoid(joint)
        more = opened * (1 - inside) * inside_off - both * of_gate - (1 - both) * both_off + (1 - opened) * off
        if pinned is not None:
            more = more.masked_fill(pinned, 0.0)
        ctx.save_for_backward(omega, gate, off, *logs)
        ctx.pinned = pinned
        return joint, more.sum()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, Tensor, None, None]:
        of_joint, of_more = grads
        omega, gate, off, of_gate, inside_off, both_off = ctx.saved_tensors
        inside, opened = torch.sigmoid(omega), torch.sigmoid(gate)
        steep = opened * torch.sigmoid(-gate)
        by_omega = of_joint * (inside_off - both_off).exp()
        by_omega = by_omega + of_more * (inside * (1 - inside) * opened) * (both_off - of_gate - inside_off)
        by_gate = of_joint * (F.logsigmoid(-gate) - both_off).exp()
        by_gate = by_gate + of_more * steep * (inside * (both_off - of_gate) + (1 - inside) * inside_off - off)
        if ctx.pinned is not None:
            by_omega, by_gate = torch.where(ctx.pinned, of_joint, by_omega), by_gate.masked_fill(ctx.pinned, 0.0)
        return by_omega, by_gate.sum_to_size(gate.shape), None, None


def behind_gate(omega: Tensor, gate: Tensor, off: Tensor, pinned: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """(logit of the chance that both are 1, what the divergence has more than that of independent indicators, summed).

    gate: logits that broadcast to those of the weights; off: log(1 - psi). Where `pinned`, an indicator is decided
    whatever its gate says.

    >>> joint, more = behind_gate(torch.zeros(2, 3), torch.tensor([40.0, 0.0, -40.0]), torch.tensor(-0.7))
    >>> torch.sigmoid(joint)[0].round(decimals=6).tolist()
    [0.5, 0.25, 0.0]
    """
    return _BehindGate.apply(omega, gate, off, pinned)  # type: ignore[no-any-return, no-untyped-call]
