"""Deep ensembles (Lakshminarayanan et al. 2017): several plain networks from different starts."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from slabnet.core.errors import check_whole
from slabnet.model.drawing import Draw, Drawable, Scope, scope_of


class Ensemble(Drawable):
    """One layer of each member. Draw r is member r; the members see the same batches from different starts.

    Outside a drawing block, and wherever one network is asked for, it is the first member: averaging the weights
    of different networks would give none of them.
    """

    def __init__(self, layers: Sequence[nn.Module]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.members = check_whole("ensemble", "members", len(layers), at_least=1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layers[self._member(scope_of(self))](x)
        return out

    def divergence(self, scope: Scope, sampled: bool) -> Tensor:
        return torch.zeros_like(self.layers[0].get_parameter("weight")[:1].sum())

    def used(self, scope: Scope) -> Tensor:
        weight = self.layers[0].get_parameter("weight")
        used = torch.zeros((len(self.layers), *weight.shape), dtype=torch.bool, device=weight.device)
        used[self._member(scope)] = True
        return used

    def draws_of(self, draw: Draw, draws: int) -> int:
        return min(draws, len(self.layers)) if draw.random else 1

    def _member(self, scope: Scope) -> int:
        return scope.index % len(self.layers)
