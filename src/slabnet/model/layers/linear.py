"""A fully connected layer."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor

from slabnet.config.settings import Prior, Start
from slabnet.core.noise import Seed
from slabnet.model.drawing import Scope
from slabnet.model.layers.base import DEFAULT_POSTERIOR, SlabLayer
from slabnet.model.posteriors import Posterior
from slabnet.model.priors import LayerPrior


class Linear(SlabLayer):
    """`nn.Linear` with an indicator on every weight and intercept (eq. 2).

    >>> import torch
    >>> layer = Linear(3, 2)
    >>> layer(torch.ones(5, 3)).shape, layer.weight.alpha.shape
    (torch.Size([5, 2]), torch.Size([2, 3]))
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        *,
        prior: Prior | LayerPrior | None = None,
        posterior: type[Posterior] = DEFAULT_POSTERIOR,
        start: Start | None = None,
        seed: Seed = 0,
    ) -> None:
        super().__init__((out_features, in_features), bias, prior, posterior, start, seed)
        self.in_features, self.out_features = in_features, out_features

    def affine(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        return F.linear(x, weight, bias)

    def local(self, x: Tensor, scope: Scope, seed: Tensor) -> Tensor:
        passed = self.prior.local_linear(scope.blocks(self), x, seed, scope.place.first_row)
        if passed is None:
            return super().local(x, scope, seed)
        scope.note_kl(self, passed[1])
        return passed[0]

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, bias={self.bias is not None}"
