"""The Laplace slab of scale b = sigma_beta.

KL(N(mu, sigma^2) || Laplace(b)) = log 2b + E|beta| / b - log(2 pi e sigma^2) / 2
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from slabnet.maths.quadrature import normal_entropy
from slabnet.model.slabs.base import Slab


class Laplace(Slab):
    """Density exp(-|beta| / sigma_beta) / (2 sigma_beta)."""

    closed_form = True

    def log_density(self, beta: Tensor, log_s: Tensor) -> Tensor:
        return -beta.abs() * torch.exp(-log_s) - log_s - math.log(2.0)

    def divergence(self, mu: Tensor, sigma: Tensor, log_s: Tensor) -> Tensor:
        ratio = mu / sigma  # E|beta| is the mean of a folded normal
        size = sigma * math.sqrt(2 / math.pi) * torch.exp(-0.5 * ratio * ratio) + mu * torch.erf(ratio / math.sqrt(2))
        return log_s + math.log(2.0) + size * torch.exp(-log_s) - normal_entropy(sigma.log())
