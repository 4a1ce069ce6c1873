"""A mixture of a wide and a narrow Gaussian as a slab (Blundell et al. 2015).

Its log density is that of the wide Gaussian plus a bump around zero: log(1 + exp(log_height - curvature beta^2 / 2)).
The first has closed forms; the bump is integrated under the posterior, or taken at the drawn weights.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from slabnet.config.slabs import ScaleMixture as ScaleMixtureSettings
from slabnet.kernels import draw_layer, mixture_bump, mixture_bump_at
from slabnet.kernels.dispatch import Divergence, Parts
from slabnet.maths.divergences import kl_normal, log_softplus, softplus
from slabnet.model.posteriors import Block
from slabnet.model.slabs.base import Slab, total


class ScaleMixture(Slab):
    """pi*N(0, variances[0]) + (1-pi)*N(0, variances[1]); sigma_beta is not asked for."""

    settings: ScaleMixtureSettings

    def log_density(self, beta: Tensor, log_s: Tensor) -> Tensor:
        pi, (v1, v2) = self.settings.pi, self.settings.variances
        first = math.log(pi) - 0.5 * math.log(2 * math.pi * v1) - beta * beta / (2 * v1)
        second = math.log1p(-pi) - 0.5 * math.log(2 * math.pi * v2) - beta * beta / (2 * v2)
        return torch.logaddexp(first, second)

    def divergence(self, mu: Tensor, sigma: Tensor, log_s: Tensor) -> Tensor:
        return self._divergence(mu, sigma, sigma.log())

    def weight_divergence(self, block: Block, log_s: Tensor) -> Tensor:
        return self._divergence(block.mu, softplus(block.rho), log_softplus(block.rho))

    def _divergence(self, mu: Tensor, sigma: Tensor, log_sigma: Tensor) -> Tensor:
        log_share, log_scale, log_height, curvature = self._wide()
        wide = kl_normal(mu, log_sigma, torch.full_like(log_sigma, log_scale))
        return wide - log_share - mixture_bump(mu, sigma, log_height, curvature)

    def draw(
        self,
        parts: Sequence[Parts],
        seeds: Sequence[Tensor],
        delta: float,
        hard: bool,
        kl: Divergence,
        places: Sequence[Tensor | None],
    ) -> tuple[list[Tensor], list[Tensor]] | None:
        """A draw of dense weights, and log q - log p there: from the wide Gaussian in one pass, then the bump."""
        if kl != "sampled" or any(part[2] is not None for part in parts):
            return None
        log_share, log_scale, log_height, curvature = self._wide()
        scale = parts[0][0].new_full((), log_scale)
        wide: list[Parts] = [(*part[:5], scale) for part in parts]
        values, prices = draw_layer(wide, seeds, 1.0, False, "sampled", places)
        bumps = [mixture_bump_at(value, log_height, curvature) + log_share * value.numel() for value in values]
        return values, [total(prices) - total(bumps)]

    def _wide(self) -> tuple[float, float, float, float]:
        """The wide Gaussian, as log share and log scale; and the bump, as log height and curvature."""
        (wide, narrow), shares = self.settings.variances, [self.settings.pi, 1 - self.settings.pi]
        if wide < narrow:
            wide, narrow, shares = narrow, wide, shares[::-1]
        log_height = math.log(shares[1] / shares[0]) + 0.5 * math.log(wide / narrow)
        return math.log(shares[0]), 0.5 * math.log(wide), log_height, 1 / narrow - 1 / wide
