"""What a slab is: the distribution of a weight that is in the network (eq. 3), with its divergence from a posterior."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from slabnet.config.slabs import SlabSettings
from slabnet.kernels import slab_moments
from slabnet.kernels.dispatch import Divergence, Parts
from slabnet.kernels.sparse_local import Left
from slabnet.maths.divergences import kl_bernoulli, softplus
from slabnet.maths.quadrature import normal_average, normal_entropy
from slabnet.model.posteriors import Block

Moments = list[tuple[Tensor, Tensor]]  # of each block


def total(terms: Sequence[Tensor]) -> Tensor:
    """The sum of some terms, at least one, in their order."""
    first, *others = terms
    for term in others:
        first = first + term
    return first


class Slab:
    """A distribution of single weights, symmetric about zero and highest there. To write another one:

    - its settings: a `SlabSettings` with a name;
    - here `log_density`, per weight, normalised, with exp(log_s) = sigma_beta as its scale (or without a scale);
    - `divergence` and `closed_form = True`, if KL(N(mu, sigma^2) || slab) is known: else it is integrated.

    `register_slab(settings, slab)` makes it known. The other methods are passes that give more at once, where there
    are such passes; without them a layer goes by `log_density` and `divergence` alone.
    """

    closed_form: bool = False

    def __init__(self, settings: SlabSettings) -> None:
        self.settings = settings

    def log_density(self, beta: Tensor, log_s: Tensor) -> Tensor:
        """log p(beta) of each weight."""
        raise NotImplementedError(f"{type(self).__name__} must give its log density")

    def divergence(self, mu: Tensor, sigma: Tensor, log_s: Tensor) -> Tensor:
        """KL(N(mu, sigma^2) || slab) of each weight."""
        average = normal_average(lambda beta: self.log_density(beta, log_s), mu, sigma)
        return -normal_entropy(sigma.log()) - average

    def weight_divergence(self, block: Block, log_s: Tensor) -> Tensor:
        """The same from what a block holds, rho instead of sigma."""
        return self.divergence(block.mu, softplus(block.rho), log_s)

    @cached_property
    def resting(self) -> float:
        """The least divergence of a normal from this slab: what a weight costs that the data say nothing about."""
        sigma = torch.logspace(-6, 3, 3000, dtype=torch.float64)
        nothing = torch.zeros_like(sigma)
        return float(self.divergence(nothing, sigma, nothing[0]).min())

    def block_kl(self, block: Block, log_psi: Tensor, log_not_psi: Tensor, log_s: Tensor) -> Tensor:
        """KL of q(beta, gamma) from the prior (eq. 3 and 6), summed over the weights of a block."""
        each = self.weight_divergence(block, log_s)
        if block.omega is None:
            return each.sum()
        return (kl_bernoulli(block.omega, log_psi, log_not_psi) + torch.sigmoid(block.omega) * each).sum()

    def moments(self, parts: Sequence[Parts]) -> tuple[Moments, list[Tensor] | None]:
        """Mean and variance of each block's weights, and the terms of the divergence where the same pass gives them."""
        zero = parts[0][0].new_zeros(())
        return [slab_moments(mu, rho, omega, zero, zero, zero)[:2] for mu, rho, omega, *_ in parts], None

    def local_linear(
        self, x: Tensor, parts: Sequence[Parts], seed: Tensor, first_row: int
    ) -> tuple[Tensor, Tensor] | None:
        """A linear layer under local reparametrisation with its divergence, where one pass gives both."""
        return None

    def sparse_local(self, x: Tensor, parts: Sequence[Parts], left: Left, seed: Tensor) -> tuple[Tensor, Tensor] | None:
        """The same of a linear layer of which few weights are left."""
        return None

    def draw(
        self,
        parts: Sequence[Parts],
        seeds: Sequence[Tensor],
        delta: float,
        hard: bool,
        kl: Divergence,
        places: Sequence[Tensor | None],
    ) -> tuple[list[Tensor], list[Tensor]] | None:
        """A relaxed or straight-through draw of each block, with the terms of the divergence, where one pass does."""
        return None
