"""Each pair of prior and posterior: the divergence against Monte Carlo, and what a prior can be told."""

from __future__ import annotations

import math
from itertools import pairwise, product
from typing import Literal

import pytest
import torch
from scipy import integrate, stats

import slabnet as sn
from slabnet import kernels
from slabnet.config.settings import Beta, Prior
from slabnet.config.slabs import ScaleMixture
from slabnet.kernels import native, next_seed, noise_like
from slabnet.model.posteriors import Block, Gaussian, Posterior, SpikeSlab, draw_exact, draw_relaxed
from slabnet.model.priors import layer_prior

GAUSSIAN_SLAB: dict[str, object] = {"sigma_beta": 0.8}
MIXTURE_SLAB: dict[str, object] = {"slab": ScaleMixture()}


def layer(posterior: type[Posterior], **prior: object) -> sn.Linear:
    made = sn.Linear(5, 4, prior=Prior(**prior), posterior=posterior, seed=3).double()
    with torch.no_grad():
        for block in made.blocks():
            block.rho.fill_(-1.0)
            block.mu.normal_(0, 0.3, generator=torch.Generator().manual_seed(5))
            if block.omega is not None:
                block.omega.uniform_(-2, 2, generator=torch.Generator().manual_seed(6))
    return made


@pytest.mark.parametrize(("posterior", "prior"), list(product([SpikeSlab, Gaussian], [GAUSSIAN_SLAB, MIXTURE_SLAB])))
def test_divergence_of_each_pair_against_the_sampled_one(posterior: type[Posterior], prior: dict[str, object]) -> None:
    """log q - log p at exact draws averages to the divergence: closed form and quadrature agree with it."""
    made, generator = layer(posterior, psi=0.2, **prior), torch.Generator().manual_seed(0)
    with torch.no_grad():
        exact = float(made.kl().detach())
        blocks = made.blocks()
        samples = torch.stack(
            [made.prior.sampled_kl(blocks, [draw_exact(b, next_seed(generator)) for b in blocks]) for _ in range(4000)]
        )
    assert abs(float(samples.mean()) - exact) < 4 * float(samples.std()) / 4000**0.5


@pytest.mark.slow
def test_sampled_divergence_at_relaxed_draws_tends_to_the_exact_one() -> None:
    made = layer(SpikeSlab, psi=0.2)
    blocks, gaps = made.blocks(), []
    with torch.no_grad():
        exact = float(made.kl().detach())
        for delta in (1.0, 0.1, 0.001):
            generator = torch.Generator().manual_seed(0)
            values = [
                float(
                    made.prior.sampled_kl(blocks, [draw_relaxed(b, delta, False, next_seed(generator)) for b in blocks])
                )
                for _ in range(3000)
            ]
            gaps.append(abs(sum(values) / len(values) - exact))
    assert gaps[2] < 0.3  # Monte Carlo error
    assert gaps[0] > 3 * gaps[2]


@pytest.mark.parametrize(("mu", "sigma"), [(0.0, 0.01), (0.05, 0.05), (0.3, 0.2), (-1.0, 0.7), (0.1, 1.0)])
def test_mixture_slab_by_quadrature_against_integration(mu: float, sigma: float) -> None:
    prior = layer_prior(Prior(slab=ScaleMixture()), 0, 1, (1, 1))
    block = Block(torch.tensor([mu]).double(), torch.tensor([math.log(math.expm1(sigma))]).double(), None)
    q = stats.norm(mu, sigma)

    def log_p(b: float) -> float:
        return math.log(0.5 * stats.norm.pdf(b, 0, 1) + 0.5 * stats.norm.pdf(b, 0, math.exp(-3)))

    edges = [mu - 10 * sigma, -0.2, -0.05, 0.0, 0.05, 0.2, mu + 10 * sigma]
    edges = sorted(e for e in edges if mu - 10 * sigma <= e <= mu + 10 * sigma)
    wanted = sum(
        integrate.quad(lambda b: q.pdf(b) * (q.logpdf(b) - log_p(b)), low, high, limit=300)[0]
        for low, high in pairwise(edges)
    )
    assert float(prior.kl([block])) == pytest.approx(wanted, abs=1e-4)


def test_names_and_numbers_of_psi() -> None:
    assert Prior(psi="aic").inclusion(0, 3) == pytest.approx(math.exp(-2))
    assert Prior(psi="bic", n=1000).inclusion(0, 3) == pytest.approx(1e-6)
    net = sn.mlp((4, 3, 2), prior=Prior(psi=(0.3, 0.6), sigma_beta=(0.5, 2.0)))
    first, last = net.body[1], net.body[3]
    assert [first.prior.psi, last.prior.psi] == [0.3, 0.6]
    assert [first.prior.sigma_beta, last.prior.sigma_beta] == pytest.approx([0.5, 2.0])
    with pytest.raises(sn.ArgumentError, match="Prior: psi must be one number for each of the 2 layers, got 3 numbers"):
        sn.mlp((4, 3, 2), prior=Prior(psi=(0.3, 0.6, 0.1)))


def test_alpha_rests_at_psi_where_the_data_say_nothing() -> None:
    made = sn.Linear(3, 2, prior=Prior(psi=0.1, input_psi=(0.1, 0.5, 0.9)))
    optimiser = torch.optim.Adam(made.parameters(), lr=0.05)
    for _ in range(600):
        optimiser.zero_grad()
        made.kl().backward()
        optimiser.step()
    torch.testing.assert_close(made.weight.alpha.detach(), torch.tensor([[0.1, 0.5, 0.9]] * 2), atol=1e-3, rtol=0)
    assert made.bias is not None
    torch.testing.assert_close(made.bias.alpha.detach(), torch.full((2,), 0.1), atol=1e-3, rtol=0)
    torch.testing.assert_close(made.weight.sigma.detach(), torch.ones(2, 3), atol=1e-2, rtol=0)
    assert float(made.kl().detach()) == pytest.approx(0.0, abs=1e-3)


def test_intercepts_rest_at_a_psi_of_their_own() -> None:
    """The minimum of the divergence by a general optimiser, through the compiled and the plain passes."""
    net = sn.mlp((3, 4, 2), prior=Prior(psi=(0.1, 0.4), intercept_psi=0.6))
    optimiser = torch.optim.Adam(net.parameters(), lr=0.05)
    for _ in range(600):
        optimiser.zero_grad()
        sn.kl(net).backward()
        optimiser.step()
    for part, psi in ((net.body[1], 0.1), (net.body[3], 0.4)):
        torch.testing.assert_close(part.weight.alpha.detach(), torch.full_like(part.weight.mu, psi), atol=1e-3, rtol=0)
        torch.testing.assert_close(part.bias.alpha.detach(), torch.full_like(part.bias.mu, 0.6), atol=1e-3, rtol=0)
        moments = part.prior.moments(part.blocks())[1]
        assert float(moments.detach()) == pytest.approx(float(part.kl().detach()), abs=1e-5)
    assert float(sn.kl(net).detach()) == pytest.approx(0.0, abs=2e-3)
    each = sn.mlp((3, 4, 2), prior=Prior(psi=0.1, intercept_psi=(0.2, 0.3)))
    assert [each.body[k].prior.intercept_psi for k in (1, 3)] == [0.2, 0.3]
    with pytest.raises(sn.ArgumentError, match="intercept_psi must be one number for each of the 2 layers, got 3"):
        sn.mlp((3, 4, 2), prior=Prior(intercept_psi=(0.2, 0.3, 0.1)))
    with pytest.raises(sn.ArgumentError, match="intercept_psi must be a number above 0 and below 1"):
        Prior(intercept_psi=1.0)


def test_a_learned_psi_does_not_count_intercepts_with_one_of_their_own() -> None:
    alone = layer(SpikeSlab, psi=Beta(a=2.0, b=3.0), intercept_psi=0.5)
    log_psi, log_not_psi = alone.prior._inclusion(alone.blocks())[0][0]
    alpha = alone.weight.alpha.detach()
    a, b = 2.0 + alpha.sum(), 3.0 + (1 - alpha).sum()
    torch.testing.assert_close(log_psi, torch.digamma(a) - torch.digamma(a + b))
    torch.testing.assert_close(log_not_psi, torch.digamma(b) - torch.digamma(a + b))
    on, off = alone.prior._inclusion(alone.blocks())[0][1]
    assert float(on) == float(off) == pytest.approx(math.log(0.5))


def test_inputs_forced_in_and_out() -> None:
    made = sn.Linear(4, 3, prior=Prior(psi=0.1, include=(1,), exclude=(2,)))
    alpha = made.alpha.detach()
    assert alpha[:, 1].tolist() == [1.0] * 3
    assert alpha[:, 2].tolist() == [0.0] * 3
    made.kl().backward()
    assert made.weight.omega is not None
    assert made.weight.omega.grad is not None
    assert made.weight.omega.grad[:, 1:3].abs().max() == 0
    assert made.weight.mu.grad is not None
    assert made.weight.mu.grad[:, 2].abs().max() == 0  # an excluded weight has no divergence at all
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0))
    changed = x.clone()
    changed[:, 2] = 99.0
    for draw in (sn.local, sn.exact, sn.relaxed(0.5), sn.mean, sn.median):
        outs = []
        for value in (x, changed):
            with sn.drawing(made, draw, 0):
                outs.append(made(value))
        torch.testing.assert_close(outs[0], outs[1])
    with pytest.raises(sn.ArgumentError, match="Prior: include must be positions of inputs, 0 to 3, got 4"):
        sn.Linear(4, 3, prior=Prior(include=(4,)))


def test_forced_channels_of_a_grouped_convolution() -> None:
    made = sn.Conv1d(4, 6, 3, groups=2, prior=Prior(exclude=(3,)))
    alpha = made.alpha.detach()
    assert alpha[3:, 1].abs().max() == 0  # input 3 is the second channel of the second group
    assert alpha[:3].min() > 0.5


def test_beta_hyperprior_is_the_best_posterior_of_psi() -> None:
    """The layer's divergence is what a joint KL over psi, gamma and beta gives, minimised over q(psi)."""
    made = layer(SpikeSlab, psi=Beta(a=2.0, b=3.0))
    alphas = torch.cat([torch.sigmoid(b.omega).flatten() for b in made.blocks() if b.omega is not None]).detach()
    slabs = layer(SpikeSlab, psi=0.5)
    fixed_half = float(slabs.kl().detach())
    log_half = math.log(0.5) * len(alphas)

    def joint(a: float, b: float) -> float:
        a_, b_ = torch.tensor(a).double(), torch.tensor(b).double()
        total = torch.digamma(a_ + b_)
        on, off = float(torch.digamma(a_) - total), float(torch.digamma(b_) - total)
        price = torch.distributions.kl_divergence(
            torch.distributions.Beta(a_, b_),
            torch.distributions.Beta(torch.tensor(2.0).double(), torch.tensor(3.0).double()),
        )
        return fixed_half + log_half - float((alphas * on + (1 - alphas) * off).sum()) + float(price)

    best = joint(2.0 + float(alphas.sum()), 3.0 + float((1 - alphas).sum()))
    assert float(made.kl().detach()) == pytest.approx(best, rel=1e-9)
    assert all(
        joint(2.0 + float(alphas.sum()) * u, 3.0 + float((1 - alphas).sum()) * v) >= best
        for u, v in [(0.9, 1.0), (1.1, 1.0), (1.0, 0.9), (1.0, 1.1)]
    )


def test_gradient_under_a_beta_hyperprior_is_that_of_the_minimised_divergence() -> None:
    """Holding q(psi) constant gives the slope of the minimum: central differences of the value agree."""
    made = layer(SpikeSlab, psi=Beta())
    made.kl().backward()
    omega = made.weight.omega
    assert omega is not None
    assert omega.grad is not None
    step = 1e-5
    with torch.no_grad():
        values = []
        for sign in (1, -1):
            omega[0, 0] += sign * step
            values.append(float(made.kl().detach()))
            omega[0, 0] -= sign * step
    assert float(omega.grad[0, 0]) == pytest.approx((values[0] - values[1]) / (2 * step), rel=1e-5)


def test_learned_scale_finds_the_spread_of_the_weights() -> None:
    made = layer(Gaussian, sigma_beta="learned")
    with torch.no_grad():
        made.weight.mu.normal_(0, 2.0, generator=torch.Generator().manual_seed(1))
    optimiser = torch.optim.Adam(made.prior.parameters(), lr=0.05)
    for _ in range(500):
        optimiser.zero_grad()
        made.kl().backward()
        optimiser.step()
    second = torch.cat([(b.mu**2 + torch.nn.functional.softplus(b.rho) ** 2).flatten() for b in made.blocks()])
    assert made.prior.sigma_beta == pytest.approx(float(second.mean().sqrt().detach()), rel=1e-3)


@pytest.mark.parametrize("method", ["gaussian", "mixture"])
def test_forced_inputs_leave_the_rest_of_a_dense_posterior_alone(method: str) -> None:
    forced = sn.mlp((4, 2), method=method, prior=Prior(exclude=(0,)))
    free = sn.mlp((4, 2), method=method)
    assert forced.body[1].alpha.tolist() == [[0.0, 1.0, 1.0, 1.0]] * 2
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    x[:, 0] = 0.0
    torch.testing.assert_close(forced(x), free(x))
    with torch.inference_mode():
        torch.testing.assert_close(forced(x), free(x))


def test_a_beta_hyperprior_counts_only_the_weights_it_is_for() -> None:
    """With a psi for each input the layer's own psi is that of its intercepts."""
    both = layer(SpikeSlab, psi=Beta(a=2.0, b=3.0), input_psi=(0.1, 0.2, 0.3, 0.4, 0.5))
    given = layer(SpikeSlab, psi=0.5, input_psi=(0.1, 0.2, 0.3, 0.4, 0.5))
    alone = layer(SpikeSlab, psi=Beta(a=2.0, b=3.0))
    half = layer(SpikeSlab, psi=0.5)
    intercepts = [made.prior._inclusion(made.blocks())[0][1] for made in (both, alone)]
    assert not torch.equal(intercepts[0][0], intercepts[1][0])
    with torch.no_grad():
        on, off = intercepts[0]
        block = both.blocks()[1]
        assert block.omega is not None
        alpha = torch.sigmoid(block.omega)
        a, b = 2.0 + alpha.sum(), 3.0 + (1 - alpha).sum()
        torch.testing.assert_close(on, torch.digamma(a) - torch.digamma(a + b))
        torch.testing.assert_close(off, torch.digamma(b) - torch.digamma(a + b))
    assert float(given.kl().detach()) != float(half.kl().detach())


def test_extreme_input_psi_is_finite() -> None:
    made = sn.mlp((3, 2), prior=Prior(input_psi=(1 - 1e-9, 1e-50, 0.5)))
    assert bool(torch.isfinite(sn.kl(made)))


@pytest.mark.parametrize("passes", ["auto", "torch"])
def test_the_mixture_in_one_pass_is_log_q_minus_log_p_at_the_draw(passes: Literal["auto", "torch"]) -> None:
    """Against densities written out with torch.distributions, differentiated by autograd."""
    slab = ScaleMixture(pi=0.3, variances=(0.002, 1.5))  # the narrow one first
    made = layer(Gaussian, slab=slab).float()
    blocks, seeds = made.blocks(), [torch.tensor(5), torch.tensor(6)]
    parameters = [p for b in blocks for p in (b.mu, b.rho)]
    with kernels.passes(passes):
        found = made.prior.draw(blocks, seeds, 0.5, False, "sampled")
        assert found is not None
        values, kl = found
        ours = torch.autograd.grad(kl + sum(v.sin().sum() for v in values), parameters)
    total = torch.zeros(())
    for block, seed, value in zip(blocks, seeds, values, strict=True):
        sigma = torch.nn.functional.softplus(block.rho)
        beta = block.mu + sigma * noise_like(block.mu, seed)[0]
        torch.testing.assert_close(beta, value)
        parts = torch.distributions.Normal(torch.zeros(2), torch.tensor(slab.variances).sqrt())
        prior = torch.logsumexp(parts.log_prob(beta[..., None]) + torch.tensor([0.3, 0.7]).log(), -1)
        total = total + (torch.distributions.Normal(block.mu, sigma).log_prob(beta) - prior).sum() + beta.sin().sum()
    torch.testing.assert_close(kl + sum(v.sin().sum() for v in values), total, rtol=1e-4, atol=1e-4)
    for one, other in zip(ours, torch.autograd.grad(total, parameters), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(("log_height", "curvature"), [(3.0, 20.0), (-4.0, 1e5), (60.0, 0.0), (0.0, 1.0)])
def test_the_compiled_bump_is_that_of_torch(log_height: float, curvature: float) -> None:
    """In value and slope, from weights at zero to some where nothing is left of the bump; rows of any length."""
    sizes = torch.tensor([0.0, 1e-30, 1e-6, 0.02, 0.3, 1.0, 5.0, 300.0, 1e4])
    beta = torch.cat((sizes, -sizes)).repeat(31)[: 18 * 31 - 5].requires_grad_()
    exact = beta.detach().double().requires_grad_()
    ours, theirs = (kernels.mixture_bump_at(b, log_height, curvature) for b in (beta, exact))
    torch.testing.assert_close(ours.double(), theirs, rtol=2e-6, atol=1e-6)
    found, right = torch.autograd.grad(ours, beta)[0], torch.autograd.grad(theirs, exact)[0]
    torch.testing.assert_close(found.double(), right, rtol=1e-4, atol=1e-6)


def test_second_derivatives_of_the_mixture_are_right_or_refused() -> None:
    beta = torch.tensor([0.02, -0.3, 1.0], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradgradcheck(lambda b: kernels.mixture_bump_at(b, 3.0, 20.0), (beta,))
    mu, sigma = beta.detach().clone().requires_grad_(), beta.detach().abs().requires_grad_()
    with pytest.raises(RuntimeError, match="first derivatives only"):
        torch.autograd.grad(kernels.mixture_bump(mu, sigma, 3.0, 20.0).sum(), mu, create_graph=True)
    if native.library() is not None:
        with pytest.raises(RuntimeError, match="first derivatives only"):
            few = beta.detach().float().requires_grad_()
            torch.autograd.grad(kernels.mixture_bump_at(few, 3.0, 20.0), few, create_graph=True)
