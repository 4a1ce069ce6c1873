"""Moments and draws of a weight against sampling."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from slabnet.kernels import slab_moments
from slabnet.model.posteriors import (
    Block,
    Gaussian,
    SpikeSlab,
    draw_exact,
    draw_mean,
    draw_median,
    draw_relaxed,
    log_q_beta,
    log_q_gamma,
    pin,
)

DRAWS = 200_000


def repeated(mu: float, sigma: float, alpha: float) -> Block:
    """One weight, many times over."""
    rho = torch.log(torch.expm1(torch.tensor(sigma, dtype=torch.float64)))
    values = (torch.tensor(mu, dtype=torch.float64), rho, torch.logit(torch.tensor(alpha, dtype=torch.float64)))
    return Block(*(v.expand(DRAWS) for v in values))


def close_to(sample: Tensor, mean: float, variance: float) -> None:
    """Mean and variance of a sample within five standard errors."""
    n = len(sample)
    assert abs(float(sample.mean()) - mean) < 5 * float(sample.std()) / n**0.5
    squares = (sample - sample.mean()) ** 2
    assert abs(float(squares.mean()) - variance) < 5 * float(squares.std()) / n**0.5


@pytest.mark.parametrize(("mu", "sigma", "alpha"), [(0.7, 0.3, 0.4), (-2.0, 1.1, 0.9), (1.0, 0.01, 0.05)])
def test_moments_of_a_weight_against_exact_draws(mu: float, sigma: float, alpha: float) -> None:
    block = repeated(mu, sigma, alpha)
    one = [p[:1] for p in block[:3]]  # type: ignore[index]
    mean, variance, _ = slab_moments(*one, *torch.zeros(3))
    drawn = draw_exact(block, torch.tensor(0))
    close_to(drawn.value, float(mean), float(variance))
    assert drawn.gamma is not None
    close_to(drawn.gamma, alpha, alpha * (1 - alpha))


def test_relaxed_indicators_tend_to_the_exact_ones() -> None:
    block = repeated(0.7, 0.3, 0.3)
    exact_share = 0.3
    gaps = []
    for delta in (1.0, 0.3, 0.01):
        gamma = draw_relaxed(block, delta, hard=False, seed=torch.tensor(1)).gamma
        assert gamma is not None
        gaps.append(abs(float((gamma * gamma).mean()) - exact_share))  # gamma^2 = gamma only for 0 and 1
        close_to((gamma > 0.5).double(), exact_share, exact_share * (1 - exact_share))
    assert gaps[0] > gaps[1] > gaps[2]
    assert gaps[2] < 0.01


def test_straight_through_is_hard_forwards_and_relaxed_backwards() -> None:
    omega = torch.zeros(1000, requires_grad=True)
    block = Block(torch.ones(1000), torch.full((1000,), -50.0), omega)
    grads = []
    for hard in (True, False):
        drawn = draw_relaxed(block, 0.5, hard=hard, seed=torch.tensor(2))
        assert drawn.gamma is not None
        if hard:
            assert set(drawn.gamma.tolist()) <= {0.0, 1.0}
        grads.append(torch.autograd.grad(drawn.gamma.sum(), omega)[0])
    torch.testing.assert_close(grads[0], grads[1])


def test_mean_and_median() -> None:
    block = Block(torch.tensor([1.0, 2.0]), torch.zeros(2), torch.tensor([3.0, -3.0]))
    torch.testing.assert_close(draw_mean(block).value, torch.sigmoid(block.omega) * block.mu)  # type: ignore[arg-type]
    assert draw_median(block, 0.5, None).value.tolist() == [1.0, 0.0]
    assert draw_median(block, 0.01, None).value.tolist() == [1.0, 2.0]
    drawn = draw_median(block, 0.5, torch.tensor(0))
    assert drawn.value[0] != 1.0
    assert drawn.value[1] == 0.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_pinned_indicators_are_exact(dtype: torch.dtype) -> None:
    block = Block(*(torch.zeros(4, dtype=dtype) for _ in range(3)))
    pinned = pin(block, torch.tensor([True, True, False, False]), torch.tensor([True, False, True, False]))
    assert pinned.omega is not None
    assert torch.sigmoid(pinned.omega).tolist() == [1.0, 0.0, 0.5, 0.5]
    for seed in range(20):
        key = torch.tensor(seed)
        for drawn in (draw_exact(pinned, key), draw_relaxed(pinned, 0.5, False, key)):
            assert drawn.gamma is not None
            assert drawn.gamma[:2].tolist() == [1.0, 0.0]
    assert float(log_q_gamma(pinned, torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=dtype))) == pytest.approx(-1.3862944)


def test_log_densities_against_torch() -> None:
    block = Block(torch.tensor([0.3]).double(), torch.tensor([-1.0]).double(), torch.tensor([0.4]).double())
    sigma = torch.nn.functional.softplus(block.rho)
    eps = torch.tensor([1.3]).double()
    wanted = torch.distributions.Normal(block.mu, sigma).log_prob(block.mu + sigma * eps)
    torch.testing.assert_close(log_q_beta(block, eps), wanted)
    gamma = torch.tensor([1.0]).double()
    torch.testing.assert_close(
        log_q_gamma(block, gamma), torch.distributions.Bernoulli(logits=block.omega).log_prob(gamma).sum()
    )


def test_derived_quantities_are_not_stored() -> None:
    assert set(SpikeSlab((2, 3)).state_dict()) == {"mu", "rho", "omega"}
    assert set(Gaussian((2, 3)).state_dict()) == {"mu", "rho"}
    assert Gaussian((2, 3)).alpha.min() == 1.0
