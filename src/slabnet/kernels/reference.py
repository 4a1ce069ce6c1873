"""Moments and divergence of spike-and-slab weights in torch, with their gradients in closed form."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd.function import once_differentiable

from slabnet.kernels import native, philox
from slabnet.maths.divergences import kl_bernoulli, kl_normal, log_softplus, softplus


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


def moments(
    mu: Tensor, rho: Tensor, omega: Tensor | None, log_psi: Tensor, log_not_psi: Tensor, log_s: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of each weight, and the divergence of them all; without `omega` every weight is in."""
    if omega is None:
        return mu, softplus(rho) ** 2, kl_normal(mu, log_softplus(rho), log_s).sum()
    mean, variance = slab_moments(mu, rho, omega)
    return mean, variance, slab_kl(mu, rho, omega, log_psi, log_not_psi, log_s)


def draw(
    mu: Tensor,
    rho: Tensor,
    omega: Tensor | None,
    log_psi: Tensor,
    log_not_psi: Tensor,
    log_s: Tensor,
    eps: Tensor,
    nu: Tensor,
    delta: float,
    hard: bool,
    sampled: bool,
) -> tuple[Tensor, Tensor]:
    """A draw of each weight, gamma relaxed (Prop. 2) or straight-through, and the divergence of them all.

    The divergence is the closed form, or log q - log p at the very gamma and beta that were drawn (eq. estloss).
    """
    beta = mu + softplus(rho) * eps
    gamma = None if omega is None else relaxed_indicator(omega, nu, delta, hard)
    value = beta if gamma is None else gamma * beta
    if not sampled and omega is not None:
        return value, slab_kl(mu, rho, omega, log_psi, log_not_psi, log_s)
    if not sampled:
        return value, kl_normal(mu, log_softplus(rho), log_s).sum()
    slab = 0.5 * ((beta * torch.exp(-log_s)) ** 2 - eps * eps) - log_softplus(rho) + log_s
    if gamma is None or omega is None:
        return value, slab.sum()
    on, off = F.logsigmoid(omega) - log_psi + slab, F.logsigmoid(-omega) - log_not_psi
    return value, (gamma * on + (1 - gamma) * off).sum()


def relaxed_indicator(omega: Tensor, nu: Tensor, delta: float, hard: bool) -> Tensor:
    """gamma = sigmoid((omega - logit(nu)) / delta) (Prop. 2); `hard` rounds it in the forward pass only."""
    gamma = torch.sigmoid((omega - torch.logit(nu)) / delta)
    if not hard:
        return gamma
    return (gamma > 0.5).to(gamma.dtype) + (gamma - gamma.detach())


def noise_like(like: Tensor, seed: Tensor, places: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Normals and uniforms for a block of weights, in its shape; `places` in the whole block, if it was cut."""
    eps, nu = noise(seed, 1, like.numel(), 0, like.dtype, None if places is None else places.reshape(-1))
    return eps.reshape(like.shape), nu.reshape(like.shape)


def noise(
    seed: Tensor, rows: int, units: int, first_row: int, dtype: torch.dtype, places: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Standard normals, and uniforms strictly inside (0, 1), each of shape (rows, units)."""
    if places is not None:
        return noise_at(seed, rows, places, first_row, dtype)
    counters = philox.counters_for(units)
    if native.on_cpu(seed):
        u = torch.empty(4, rows, counters)
        native.call("uniforms", rows, counters, first_row, seed, u)
        return philox.from_uniforms(u.to(dtype), units)
    return philox.from_uniforms(philox.uniforms(seed, rows, counters, first_row, dtype), units)


def noise_at(seed: Tensor, rows: int, places: Tensor, first_row: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """The noise of some elements of each row: what is left of a block keeps the numbers it had in the whole."""
    if dtype == torch.float32 and native.on_cpu(seed):
        eps, nu = torch.empty(rows, len(places)), torch.empty(rows, len(places))
        native.call("noise", rows, len(places), first_row, seed, places, eps, nu)
        return eps, nu
    return philox.normals_at(seed, rows, places, first_row, dtype)


def noise_by_row(like: Tensor, seed: Tensor, first_row: int, places: Tensor | None = None) -> Tensor:
    """A normal for each pre-activation, keyed by its row and its place in the row."""
    rows = len(like) if like.ndim > 1 else 1
    return noise(seed, rows, like.numel() // max(rows, 1), first_row, like.dtype, places)[0].reshape(like.shape)


def local(mean: Tensor, variance: Tensor, eps: Tensor, floor: float) -> Tensor:
    """mean + sqrt(variance) * eps; the root of zero has no gradient, hence a floor."""
    return mean + variance.clamp_min(floor).sqrt() * eps
