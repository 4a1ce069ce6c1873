"""Closed-form divergences, per element, as pure functions of tensors.

Probabilities enter as logits and scales as logarithms: no epsilon is needed anywhere, and the values
and their gradients stay finite for |omega| = 1e4 and sigma = 1e-30.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

_SOFTPLUS_LINEAR = 40.0  # above this softplus(x) = x to float64 precision
_LOG_SOFTPLUS_LINEAR = -40.0  # below this log softplus(x) = x to float64 precision


def softplus(x: Tensor) -> Tensor:
    """log(1 + exp(x)), the paper's sigma = softplus(rho), to full precision in float64 too."""
    return F.softplus(x, threshold=_SOFTPLUS_LINEAR)


def log_softplus(rho: Tensor) -> Tensor:
    """log sigma as a function of rho, finite where softplus(rho) itself underflows to zero."""
    ordinary = softplus(rho.clamp_min(_LOG_SOFTPLUS_LINEAR)).log()
    return torch.where(rho < _LOG_SOFTPLUS_LINEAR, rho, ordinary)


def kl_bernoulli(omega: Tensor, log_psi: Tensor | float, log_not_psi: Tensor | float) -> Tensor:
    """KL of Bernoulli(sigmoid(omega)) from a prior with log psi and log(1 - psi).

    Under a Beta hyperprior the two logs are expectations and psi = exp(log_psi) need not complement them.

    >>> kl_bernoulli(torch.tensor(0.0), -0.6931472, -0.6931472).abs().item() < 1e-6
    True
    """
    on = torch.sigmoid(omega) * (F.logsigmoid(omega) - log_psi)
    off = torch.sigmoid(-omega) * (F.logsigmoid(-omega) - log_not_psi)
    return on + off


def kl_normal(mu: Tensor, log_sigma: Tensor, log_sigma_beta: Tensor) -> Tensor:
    """KL of N(mu, sigma^2) from N(0, sigma_beta^2)."""
    log_ratio = log_sigma - log_sigma_beta
    return 0.5 * (torch.exp(2 * log_ratio) + (mu * torch.exp(-log_sigma_beta)) ** 2 - 1) - log_ratio


def kl_spike_slab(
    mu: Tensor,
    log_sigma: Tensor,
    omega: Tensor,
    log_psi: Tensor | float,
    log_not_psi: Tensor | float,
    log_sigma_beta: Tensor,
) -> Tensor:
    """KL of the spike-and-slab q(beta, gamma) from its prior, per weight (eq. 3 and 6)."""
    slab = kl_normal(mu, log_sigma, log_sigma_beta)
    return kl_bernoulli(omega, log_psi, log_not_psi) + torch.sigmoid(omega) * slab


def kl_beta(a: Tensor, b: Tensor, a0: Tensor, b0: Tensor) -> Tensor:
    """KL of Beta(a, b) from Beta(a0, b0): the price of a learned psi."""

    def log_beta(p: Tensor, q: Tensor) -> Tensor:
        return torch.lgamma(p) + torch.lgamma(q) - torch.lgamma(p + q)

    total = torch.digamma(a + b)
    weighted = (a - a0) * torch.digamma(a) + (b - b0) * torch.digamma(b)
    return log_beta(a0, b0) - log_beta(a, b) + weighted + (a0 - a + b0 - b) * total


def kl_inverse_gamma(a: Tensor, b: Tensor, a0: Tensor, b0: Tensor) -> Tensor:
    """KL of InverseGamma(a, b) from InverseGamma(a0, b0): the price of a learned scale; that of the gammas of 1 / x."""
    logs = torch.lgamma(a0) - torch.lgamma(a) + a0 * (b.log() - b0.log())
    return logs + (a - a0) * torch.digamma(a) + a * (b0 - b) / b


def kl_lognormal(m: Tensor, log_s: Tensor, m0: float, s0: float) -> Tensor:
    """KL of LogNormal(m, s^2) from LogNormal(m0, s0^2): that of the normals of the logarithm."""
    return kl_normal(m - m0, log_s, torch.full_like(log_s, s0).log())


def kl_lognormal_gamma(m: Tensor, log_s: Tensor, shape: float, scale: float) -> Tensor:
    """KL of LogNormal(m, s^2) from Gamma(shape, scale)."""
    entropy = m + log_s + 0.5 * math.log(2 * math.pi * math.e)
    expected = torch.exp(m + 0.5 * torch.exp(2 * log_s))
    cross = -shape * math.log(scale) - math.lgamma(shape) + (shape - 1) * m - expected / scale
    return -entropy - cross


def kl_lognormal_inverse_gamma(m: Tensor, log_s: Tensor, shape: float, scale: float) -> Tensor:
    """KL of LogNormal(m, s^2) from InverseGamma(shape, scale), for the variance phi."""
    entropy = m + log_s + 0.5 * math.log(2 * math.pi * math.e)
    expected_inverse = torch.exp(-m + 0.5 * torch.exp(2 * log_s))
    cross = shape * math.log(scale) - math.lgamma(shape) - (shape + 1) * m - scale * expected_inverse
    return -entropy - cross


def kl_normal_jeffreys(log_alpha: Tensor) -> Tensor:
    """KL of N(m, alpha m^2) from the improper p(z) ~ 1 / |z|, zero as alpha grows without limit.

    The curve of Molchanov, Ashukha & Vetrov 2017 (eq. 14), which is within 0.01 of the integral everywhere.

    >>> kl_normal_jeffreys(torch.tensor(20.0)).abs().item() < 1e-6
    True
    """
    k1, k2, k3 = 0.63576, 1.87320, 1.48695
    return 0.5 * softplus(-log_alpha) + k1 * torch.sigmoid(-(k2 + k3 * log_alpha))
