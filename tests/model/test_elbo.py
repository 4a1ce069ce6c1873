"""The two terms, their scaling, and the gradient estimators against enumeration."""

from __future__ import annotations

import math

import pytest
import torch
from benchmarks.gradients import X, Y, enumerated_gradient, estimates, omegas, tiny_network
from hypothesis import given, settings
from hypothesis import strategies as st

import slabnet as sn
from slabnet.core.noise import keyed_generator
from slabnet.model.drawing import Draw, drawable_layers
from slabnet.model.elbo import RunningMean, elbo


@pytest.mark.slow
@pytest.mark.parametrize(("samples", "baseline"), [(1, None), (1, RunningMean()), (4, None)])
def test_score_is_unbiased(samples: int, baseline: RunningMean | None) -> None:
    net = tiny_network()
    wanted = enumerated_gradient(net)
    found = estimates(net, sn.score, 2500, samples, baseline)
    error = found.std(0) / 2500**0.5
    assert float(((found.mean(0) - wanted).abs() / error).max()) < 4.5


@pytest.mark.slow
def test_control_variates_lower_the_variance() -> None:
    net = tiny_network()
    plain = estimates(net, sn.score, 1500, 1).var(0).sum()
    running = estimates(net, sn.score, 1500, 1, RunningMean()).var(0).sum()
    others = estimates(net, sn.score, 1500, 2).var(0).sum()  # two draws instead of one, compared at equal cost
    assert float(running) < 0.8 * float(plain)
    assert 2 * float(others) < 0.8 * float(plain)


@pytest.mark.slow
def test_the_bias_of_the_relaxation_shrinks_with_delta() -> None:
    net = tiny_network()
    wanted = enumerated_gradient(net)
    errors = []
    for delta in (2.0, 0.7, 0.2):
        found = estimates(net, sn.relaxed(delta), 3000, 1)
        noise = float((found.var(0) / 3000).sum())
        errors.append(max(0.0, float((found.mean(0) - wanted).square().sum()) - noise))  # squared bias
    assert errors[0] > 2 * errors[1] > 0
    assert errors[1] > 2 * errors[2]


@pytest.mark.parametrize("draw", [sn.local, sn.relaxed(0.5), sn.straight_through(0.5), sn.score], ids=lambda d: d.name)
def test_the_divergence_is_counted_once_however_many_draws(draw: Draw) -> None:
    net = tiny_network()
    for samples in (1, 3):
        terms = elbo(net, net.likelihood, X, Y, n=3, draw=draw, seed=0, samples=samples)
        torch.testing.assert_close(terms.kl, sn.kl(net))
        grads = torch.autograd.grad(terms.kl, omegas(net))
        wanted = torch.autograd.grad(sn.kl(net), omegas(net))
        for ours, theirs in zip(grads, wanted, strict=True):
            torch.testing.assert_close(ours, theirs)
    assert float(elbo(net, net.likelihood, X, Y, n=3, draw=draw, seed=0).score.detach()) == 0.0


def test_a_layer_used_twice_is_counted_once() -> None:
    layer = sn.Linear(3, 3)
    net = torch.nn.Sequential(layer, torch.nn.ReLU(), layer)
    torch.testing.assert_close(sn.kl(net), layer.kl())
    terms = elbo(net, sn.Categorical(), torch.ones(2, 3), torch.tensor([0, 1]), n=2, draw=sn.relaxed(0.5), seed=0)
    torch.testing.assert_close(terms.kl, layer.kl())


@given(n=st.integers(2, 40), size=st.integers(1, 40), seed=st.integers(0, 1000))
@settings(max_examples=30, deadline=None)
def test_batches_weighted_by_size_average_to_the_whole(n: int, size: int, seed: int) -> None:
    """n/N scaling: with the same (deterministic) network, minibatch bounds average to the full one."""
    generator = torch.Generator().manual_seed(seed)
    net = sn.mlp((3, 4, 2), seed=seed).double()
    x = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    y = torch.randint(2, (n,), generator=generator)
    with torch.no_grad():
        whole = elbo(net, net.likelihood, x, y, n=n, draw=sn.mean, seed=0).elbo
        parts = [
            elbo(net, net.likelihood, a, b, n=n, draw=sn.mean, seed=0).elbo * (len(a) / n)
            for a, b in zip(x.split(size), y.split(size), strict=True)
        ]
    torch.testing.assert_close(torch.stack(parts).sum(), whole, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("samples", [1, 3])
def test_the_paper_s_sampled_divergence_is_taken_at_the_weights_of_the_pass(samples: int) -> None:
    """eq. estloss: log q - log p by hand, at the very relaxed gamma and beta the forward pass drew."""
    net = sn.mlp((2, 2), prior=sn.Prior(psi=0.3, sigma_beta=0.7), start=sn.Start(omega=(-1, 1), rho=(-1, 0))).double()
    layer = net.body[1]
    draw = sn.relaxed(0.4)
    terms = elbo(net, net.likelihood, X, Y, n=3, draw=draw, seed=5, samples=samples, kl="sampled")
    generator = keyed_generator(5)
    wanted, fits = [], []
    normal = torch.distributions.Normal
    for _ in range(samples):
        with sn.drawing(net, draw, generator) as scope:
            output = net(X)
            total = torch.zeros(()).double()
            for block, drawn in zip(layer.blocks(), scope.weights(layer), strict=True):
                alpha, sigma = torch.sigmoid(block.omega), torch.nn.functional.softplus(block.rho)
                gamma, beta = drawn.gamma, drawn.beta
                log_q = (
                    gamma * alpha.log()
                    + (1 - gamma) * (1 - alpha).log()
                    + gamma * normal(block.mu, sigma).log_prob(beta)
                )
                log_p = gamma * math.log(0.3) + (1 - gamma) * math.log(0.7) + gamma * normal(0.0, 0.7).log_prob(beta)
                total = total + (log_q - log_p).sum()
            wanted.append(total)
            fits.append(net.likelihood.log_prob(output, Y).sum())
    torch.testing.assert_close(terms.kl, torch.stack(wanted).mean())
    torch.testing.assert_close(terms.log_likelihood, torch.stack(fits).mean())


def test_sampled_divergence_needs_weights() -> None:
    net = tiny_network()
    with pytest.raises(sn.ArgumentError, match='kl must be "exact" with the draw local'):
        elbo(net, net.likelihood, X, Y, n=3, draw=sn.local, seed=0, kl="sampled")


def test_under_a_fixed_selection_only_its_weights_are_charged() -> None:
    net = tiny_network()
    chosen = sn.median_model(net)
    terms = elbo(net, net.likelihood, X, Y, n=3, draw=sn.fixed(chosen.masks, sn.local), seed=0)
    wanted = torch.zeros(()).double()
    for name, layer in drawable_layers(net).items():
        for block, mask in zip(layer.blocks(), chosen.masks[name], strict=True):
            sigma = torch.nn.functional.softplus(block.rho)
            each = -sigma.log() - 0.5 + (sigma**2 + block.mu**2) / 2
            wanted = wanted + each[mask].sum()
    torch.testing.assert_close(terms.kl, wanted)


@pytest.mark.slow
@pytest.mark.parametrize("weight", [1.0, 0.1])
def test_the_score_of_a_sampled_divergence_respects_its_weight(weight: float) -> None:
    """The mean gradient of weight * KL - log-likelihood is the same with the exact KL and the sampled one."""
    means, errors = [], []
    for kind in ("exact", "sampled"):
        net, generator, rows = tiny_network(), torch.Generator().manual_seed(2), []
        for _ in range(600):
            terms = elbo(
                net,
                net.likelihood,
                X,
                Y,
                n=3,
                draw=sn.score,
                seed=generator,
                samples=4,
                kl=kind,
                kl_weight=weight,  # type: ignore[arg-type]
            )
            loss = weight * terms.kl - terms.log_likelihood - terms.score
            rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, omegas(net))]))
        found = torch.stack(rows)
        means.append(found.mean(0))
        errors.append(found.var(0) / len(rows))
    distance = (means[0] - means[1]).abs() / (errors[0] + errors[1]).sqrt()
    assert float(distance.max()) < 4.5


def test_targets_are_not_broadcast() -> None:
    net = sn.mlp((3, 1), likelihood="gaussian")
    with pytest.raises(sn.ArgumentError, match=r"y must be of the shape of the outputs, \(5, 1\), got shape \(5,\)"):
        elbo(net, net.likelihood, torch.zeros(5, 3), torch.zeros(5), n=5, seed=0)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"draw": sn.mean, "kl": "sampled"}, "which draws nothing"),
        ({"samples": 0}, "samples must be a whole number of at least 1"),
        ({"n": 2}, "n must be at least the size of the batch, 3, got 2"),
    ],
)
def test_bad_calls(options: dict[str, object], said: str) -> None:
    net = tiny_network()
    with pytest.raises(sn.ArgumentError, match="elbo: ") as caught:
        elbo(net, net.likelihood, X, Y, **{"n": 3, "seed": 0} | options)  # type: ignore[arg-type]
    assert said in str(caught.value)
