"""Input-skip networks: every layer reads the inputs again, beside the units of the layer before.

h_1 = act(W_1 x + b_1), h_l = act(W_l [h_{l-1}; x] + b_l), outputs W_L [h_{L-1}; x] + b_L. A linear relation then takes
one weight for each input, in the last layer, and hidden units are left for what is not linear.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Fork(nn.Module):
    """Where the inputs stand, flat, that later layers read again; `features` is how many they are."""

    def __init__(self, features: int) -> None:
        super().__init__()
        self.features = features

    def forward(self, x: Tensor) -> Tensor:
        return x

    def extra_repr(self) -> str:
        return f"{self.features}"


class Join(nn.Module):
    """Puts the inputs behind the units: the next layer reads [units; inputs]."""

    def forward(self, units: Tensor, inputs: Tensor) -> Tensor:
        return torch.cat([units, inputs], -1)


class SkipChain(nn.Sequential):
    """A chain of parts in which each `Join` reads what stood at the `Fork`.

    >>> net = SkipChain(Fork(2), nn.Linear(2, 3), nn.ReLU(), Join(), nn.Linear(3 + 2, 1))
    >>> net(torch.zeros(4, 2)).shape
    torch.Size([4, 1])
    """

    def forward(self, x: Tensor) -> Tensor:
        inputs = x
        for part in self:
            x = part(x, inputs) if isinstance(part, Join) else part(x)
            if isinstance(part, Fork):
                inputs = x
        return x


def chained(parts: list[nn.Module]) -> nn.Sequential:
    """These parts one after the other; a `SkipChain` where one of them reads the inputs again."""
    return SkipChain(*parts) if any(isinstance(part, Join) for part in parts) else nn.Sequential(*parts)
