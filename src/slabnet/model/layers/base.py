"""What all layers with a posterior share: parameters, the divergence, and the one line that draws."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from slabnet.config.settings import Prior, Start
from slabnet.core.errors import check_whole, refuse
from slabnet.core.noise import Seed, keyed_generator, seed_number
from slabnet.kernels.dispatch import Divergence
from slabnet.model.drawing import Drawable, Scope, scope_of, warn_if_trained
from slabnet.model.posteriors import Block, Posterior, SpikeSlab, pin
from slabnet.model.priors import LayerPrior, layer_prior


class SlabLayer(Drawable):
    """An affine map whose weight and intercept have a posterior (eq. 2).

    `layer.weight.alpha`, `.mu`, `.sigma` and the same of `layer.bias` are what was learned. A subclass
    gives `affine`, the map for one value of the weights.
    """

    weight: Posterior
    bias: Posterior | None
    prior: LayerPrior
    groups: int = 1  # of the inputs of a convolution, each of which has outputs of its own

    def __init__(
        self,
        weight_shape: tuple[int, ...],
        bias: bool,
        prior: Prior | LayerPrior | None,
        posterior: type[Posterior],
        start: Start | None,
        seed: Seed,
        groups: int = 1,
    ) -> None:
        super().__init__()
        for size in weight_shape:
            check_whole(type(self).__name__, "every size", size, at_least=1)
        if prior is not None and not isinstance(prior, (Prior, LayerPrior)):
            refuse(type(self).__name__, "prior", "a Prior", type(prior).__name__)
        self.weight = posterior(weight_shape)  # type: ignore[call-arg]
        self.bias = posterior((weight_shape[0],)) if bias else None  # type: ignore[call-arg]
        if not isinstance(prior, LayerPrior):
            prior = layer_prior(prior or Prior(), 0, 1, weight_shape, groups)
        self.prior = prior
        self.reset_parameters(start or Start(), seed)

    def reset_parameters(self, start: Start, seed: Seed) -> None:
        """Draw the starting values of mu, rho and omega; intercepts start at mean zero."""
        shape = self.weight.mu.shape
        generator = keyed_generator(seed_number(seed, type(self).__name__), "start")
        self.weight.reset(start, math.prod(shape[1:]), generator)
        if self.bias is not None:
            self.bias.reset(start, math.prod(shape[1:]), generator)
            with torch.no_grad():
                self.bias.mu.zero_()

    def blocks(self) -> tuple[Block, ...]:
        """The weight, and the intercept where there is one; forced inputs have their indicators decided."""
        modules: dict[str, Any] = self._modules  # not by attribute: torch looks those up slowly, and every step asks
        weight, bias, pinned = modules["weight"].block(), modules.get("bias"), modules["prior"]._buffers["pinned"]
        if pinned is not None:
            weight = pin(weight, pinned != 0, pinned > 0)
        return (weight,) if bias is None else (weight, bias.block())

    @property
    def alpha(self) -> Tensor:
        """Inclusion probabilities of the weights, 1 or 0 where an input was forced in or out."""
        block = self.blocks()[0]
        return torch.ones_like(block.mu) if block.omega is None else torch.sigmoid(block.omega)

    def psi_now(self) -> Tensor:
        """The chance of each weight to be in the model before the data; a learned one as it stands."""
        return self.prior.psi_now(self.blocks())

    def resting_alpha(self) -> Tensor:
        """Where `alpha` rests when the data say nothing."""
        return self.prior.resting_alpha(self.blocks())

    @property
    def plain_prior(self) -> bool:
        """Whether nothing of the prior is learned, and no indicator was decided beforehand."""
        return self.prior.log_sigma_beta is None and self.prior.pinned is None

    @property
    def closed_form(self) -> bool:
        return self.prior.closed_form

    def divergence(self, scope: Scope, sampled: bool) -> Tensor:
        """KL of this layer as a pass sees it: with a fixed selection only the weights that are in it count."""
        known = scope.kl(self, "sampled" if sampled else "exact")
        if known is not None:
            return known
        if sampled:  # log q - log p at what the pass drew (eq. estloss)
            return self.prior.sampled_kl(scope.blocks(self), scope.weights(self))
        return self.prior.kl(scope.blocks(self))

    def moments(self, blocks: Sequence[Block]) -> tuple[list[tuple[Tensor, Tensor]], Tensor | None]:
        return self.prior.moments(blocks)

    def informed(self, blocks: Sequence[Block]) -> list[Tensor]:
        return self.prior.informed(blocks)

    def draw_relaxed(
        self, blocks: Sequence[Block], seeds: Sequence[Tensor], delta: float, hard: bool, kl: Divergence
    ) -> tuple[list[Tensor], Tensor] | None:
        return self.prior.draw(blocks, seeds, delta, hard, kl)

    def drawn_parameters(self) -> Iterable[Tensor]:
        parts = [self._modules.get("weight"), self._modules.get("bias")]  # by name: torch looks attributes up slowly
        return [p for part in parts if part is not None for p in part._parameters.values() if p is not None]

    def used(self, scope: Scope) -> Tensor:
        return scope.used(self)

    def kl(self) -> Tensor:
        """KL of this layer's posterior from its prior, summed over weights and intercepts."""
        return self.prior.kl(self.blocks())

    def forward(self, x: Tensor) -> Tensor:
        scope = scope_of(self)
        return warn_if_trained(self, scope.draw.forward(self, x, scope))

    @torch.no_grad()
    def set_means(self, weight: Tensor, bias: Tensor | None) -> None:
        """Start from trained weights: they become the means."""
        self.weight.mu.copy_(weight)
        if self.bias is not None and bias is not None:
            self.bias.mu.copy_(bias)


DEFAULT_POSTERIOR = SpikeSlab
