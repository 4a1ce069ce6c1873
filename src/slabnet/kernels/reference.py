"""Moments and divergence of spike-and-slab weights in torch, with their gradients in closed form."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from slabnet.kl import kl_bernoulli, kl_normal, log_softplus, softplus


def sigma_slope_over_sigma(rho: Tensor, sigma: Tensor) -> Tensor:
    """(d sigma / d rho) / sigma = (1 - exp(-sigma)) / sigma, which tends to 1 where sigma underflows."""
    tiny = torch.finfo(sigma.dtype).tiny
    return torch.where(sigma < tiny, 1.0, -torch.expm1(-sigma) / sigma.clamp_min(tiny))


class _SlabMoments(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, mu: Tensor, rho: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
        alpha, not_alpha, sigma = torch.sigmoid(omega), torch.sigmoid(-omega), softplus(rho)
        ctx.save_for_backward(mu, alpha, not_alpha, sigma)
        return alpha * mu, alpha * (sigma * sigma + not_alpha * mu * mu)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gm: Tensor, gv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        mu, alpha, not_alpha, sigma = ctx.saved_tensors
        d_mu = alpha * (gm + 2 * gv * not_alpha * mu)
        d_rho = 2 * gv * alpha * sigma * -torch.expm1(-sigma)
        d_alpha = gm * mu + gv * (sigma * sigma + (not_alpha - alpha) * mu * mu)
        return d_mu, d_rho, alpha * not_alpha * d_alpha


def slab_moments(mu: Tensor, rho: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
    """Mean `alpha*mu` and variance `alpha*(sigma^2 + (1-alpha)*mu^2)` of each weight (eq. 6).

    With incoming gradients gm and gv:
    dmu = alpha*(gm + 2*gv*(1-alpha)*mu), dsigma = 2*gv*alpha*sigma,
    dalpha = gm*mu + gv*(sigma^2 + mu^2 - 2*alpha*mu^2).
    """
    mean, variance = _SlabMoments.apply(mu, rho, omega)  # type: ignore[no-untyped-call]
    return mean, variance


class _SlabKL(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, mu: Tensor, rho: Tensor, omega: Tensor, log_psi: Tensor, log_not_psi: Tensor, log_s: Tensor
    ) -> Tensor:
        slab = kl_normal(mu, log_softplus(rho), log_s)
        ctx.save_for_backward(mu, rho, omega, log_psi - log_not_psi, log_s, slab)
        return (kl_bernoulli(omega, log_psi, log_not_psi) + torch.sigmoid(omega) * slab).sum()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None, Tensor | None]:
        mu, rho, omega, logit_psi, log_s, slab = ctx.saved_tensors
        alpha, sigma, precision = torch.sigmoid(omega), softplus(rho), torch.exp(-2 * log_s)
        per_alpha = g * alpha
        d_mu = per_alpha * mu * precision
        d_rho = per_alpha * (sigma * sigma * precision - 1) * sigma_slope_over_sigma(rho, sigma)
        d_omega = per_alpha * torch.sigmoid(-omega) * (omega - logit_psi + slab)
        d_log_s = None
        if ctx.needs_input_grad[5]:
            d_log_s = (per_alpha * (1 - (sigma * sigma + mu * mu) * precision)).sum()
        return d_mu, d_rho, d_omega, None, None, d_log_s


def slab_kl(
    mu: Tensor, rho: Tensor, omega: Tensor, log_psi: Tensor, log_not_psi: Tensor, log_sigma_beta: Tensor
) -> Tensor:
    """Sum over the weights of `kl_spike_slab`, its gradient in closed form.

    With t = omega - logit(psi) + log(s/sigma) - 1/2 + (sigma^2 + mu^2)/(2 s^2):
    dmu = alpha*mu/s^2, dsigma = alpha*(sigma/s^2 - 1/sigma), domega = alpha*(1-alpha)*t,
    and for a learned scale dlog(s) = sum alpha*(1 - (sigma^2 + mu^2)/s^2).
    """
    value: Tensor = _SlabKL.apply(mu, rho, omega, log_psi, log_not_psi, log_sigma_beta)  # type: ignore[no-untyped-call]
    return value
