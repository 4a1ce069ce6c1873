"""The closed-form gradients against autograd through the plain formulas."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from slabnet.kernels import mixture_bump
from slabnet.kernels.reference import slab_kl, slab_moments
from slabnet.maths.divergences import kl_spike_slab, log_softplus, softplus

SHAPES = st.lists(st.integers(1, 5), min_size=1, max_size=4).map(tuple)


def leaves(shape: tuple[int, ...], seed: int, dtype: torch.dtype = torch.float64) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    return [(scale * torch.randn(shape, generator=g, dtype=dtype)).requires_grad_() for scale in (1.0, 3.0, 4.0)]


def plain_moments(mu: Tensor, rho: Tensor, omega: Tensor) -> tuple[Tensor, Tensor]:
    alpha, sigma = torch.sigmoid(omega), softplus(rho)
    return alpha * mu, alpha * (sigma**2 + (1 - alpha) * mu**2)


@given(shape=SHAPES, seed=st.integers(0, 10**6))
@settings(max_examples=25, deadline=None)
def test_moments_and_their_gradients(shape: tuple[int, ...], seed: int) -> None:
    g = torch.Generator().manual_seed(seed)
    gm, gv = (torch.randn(shape, generator=g, dtype=torch.float64) for _ in range(2))
    results = []
    for function in (slab_moments, plain_moments):
        parameters = leaves(shape, seed)
        mean, variance = function(*parameters)
        (mean * gm + variance * gv).sum().backward()
        results.append([mean, variance, *(p.grad for p in parameters)])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-10)


@given(shape=SHAPES, seed=st.integers(0, 10**6), psi=st.floats(1e-6, 0.999), s=st.floats(0.05, 20))
@settings(max_examples=25, deadline=None)
def test_divergence_and_its_gradients(shape: tuple[int, ...], seed: int, psi: float, s: float) -> None:
    log_psi = torch.tensor(psi, dtype=torch.float64).log()
    log_not = torch.log1p(-torch.tensor(psi, dtype=torch.float64))
    results = []
    for ours in (True, False):
        mu, rho, omega = leaves(shape, seed)
        log_s = torch.tensor(s, dtype=torch.float64).log().requires_grad_()
        if ours:
            value = slab_kl(mu, rho, omega, log_psi, log_not, log_s)
        else:
            value = kl_spike_slab(mu, log_softplus(rho), omega, log_psi, log_not, log_s).sum()
        (1.7 * value).backward()
        results.append([value, mu.grad, rho.grad, omega.grad, log_s.grad])
    for mine, theirs in zip(*results, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_extremes_are_finite(dtype: torch.dtype) -> None:
    omega = torch.tensor([-1e4, 1e4, 0.0, -30.0, 30.0], dtype=dtype).repeat(5).requires_grad_()
    rho = torch.tensor([-1e4, -110.0, -69.07755, 0.0, 60.0], dtype=dtype).repeat_interleave(5).requires_grad_()
    mu = torch.full_like(rho, 0.5).detach().requires_grad_()
    mean, variance = slab_moments(mu, rho, omega)
    zero = torch.zeros((), dtype=dtype)
    total = slab_kl(mu, rho, omega, zero - 2, zero - 0.145, zero) + mean.sum() + variance.sum()
    total.backward()
    for tensor in (total, mean, variance, mu.grad, rho.grad, omega.grad):
        assert bool(torch.isfinite(tensor).all())  # type: ignore[arg-type]


def test_what_is_out_has_gradients_of_exactly_zero() -> None:
    mu, rho, _ = leaves((3, 4), 1, torch.float32)
    omega = torch.full((3, 4), -1e4)
    mean, variance = slab_moments(mu, rho, omega)
    (slab_kl(mu, rho, omega, *(torch.zeros(()) for _ in range(3))) + mean.sum() + variance.sum()).backward()
    assert float(mu.grad.abs().max()) == 0.0  # type: ignore[union-attr]
    assert float(rho.grad.abs().max()) == 0.0  # type: ignore[union-attr]


def test_the_mixture_bump_and_its_gradients() -> None:
    """Against a fine grid of the same integral, differentiated by autograd."""
    log_height, curvature = 3.0, 400.0
    mu = torch.tensor([0.0, 0.05, -0.3, 1.0, 0.2]).double().requires_grad_()
    sigma = torch.tensor([0.01, 0.05, 0.2, 1.0, 3.0]).double().requires_grad_()
    value = mixture_bump(mu, sigma, log_height, curvature)
    ours = torch.autograd.grad(value.sum(), (mu, sigma))
    beta = torch.linspace(-0.6, 0.6, 400_001, dtype=torch.float64)
    bump = torch.nn.functional.softplus(log_height - 0.5 * curvature * beta**2)
    density = torch.exp(-0.5 * ((beta - mu[:, None]) / sigma[:, None]) ** 2) / (sigma[:, None] * (2 * torch.pi) ** 0.5)
    wanted = torch.trapezoid(density * bump, beta, dim=1)
    torch.testing.assert_close(value, wanted, rtol=1e-4, atol=1e-6)
    for a, b in zip(ours, torch.autograd.grad(wanted.sum(), (mu, sigma)), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-3, atol=1e-4)
