"""The slab of the paper, N(0, sigma_beta^2) (eq. 3): everything in closed form, and in the compiled passes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from slabnet.kernels import draw_layer, local_linear, slab_moments
from slabnet.kernels.dispatch import Divergence, Parts
from slabnet.kernels.reference import slab_kl
from slabnet.kernels.sparse_local import Left, sparse_local
from slabnet.maths.divergences import kl_normal, log_softplus
from slabnet.model.posteriors import Block
from slabnet.model.slabs.base import Moments, Slab


class Gaussian(Slab):
    """N(0, sigma_beta^2)."""

    closed_form = True

    def log_density(self, beta: Tensor, log_s: Tensor) -> Tensor:
        scaled = beta * torch.exp(-log_s)
        return -0.5 * (scaled * scaled + math.log(2 * math.pi)) - log_s

    def divergence(self, mu: Tensor, sigma: Tensor, log_s: Tensor) -> Tensor:
        return kl_normal(mu, sigma.log(), log_s)

    def weight_divergence(self, block: Block, log_s: Tensor) -> Tensor:
        return kl_normal(block.mu, log_softplus(block.rho), log_s)

    @property
    def resting(self) -> float:
        """A normal can be this slab itself."""
        return 0.0

    def block_kl(self, block: Block, log_psi: Tensor, log_not_psi: Tensor, log_s: Tensor) -> Tensor:
        if block.omega is None:
            return super().block_kl(block, log_psi, log_not_psi, log_s)
        return slab_kl(block.mu, block.rho, block.omega, log_psi, log_not_psi, log_s)

    def moments(self, parts: Sequence[Parts]) -> tuple[Moments, list[Tensor] | None]:
        made = [slab_moments(*part) for part in parts]
        return [(mean, variance) for mean, variance, _ in made], [kl for *_, kl in made]

    def local_linear(
        self, x: Tensor, parts: Sequence[Parts], seed: Tensor, first_row: int
    ) -> tuple[Tensor, Tensor] | None:
        return local_linear(x, parts, seed, first_row)

    def sparse_local(self, x: Tensor, parts: Sequence[Parts], left: Left, seed: Tensor) -> tuple[Tensor, Tensor] | None:
        return sparse_local(x, parts, left, seed)

    def draw(
        self,
        parts: Sequence[Parts],
        seeds: Sequence[Tensor],
        delta: float,
        hard: bool,
        kl: Divergence,
        places: Sequence[Tensor | None],
    ) -> tuple[list[Tensor], list[Tensor]] | None:
        return draw_layer(parts, seeds, delta, hard, kl, places)
