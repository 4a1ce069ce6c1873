"""The two terms, their scaling, and the gradient estimators against enumeration."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import slabnet as sn
from slabnet.draws import Draw, drawable_layers
from slabnet.elbo import RunningMean, elbo


def tiny(seed: int = 0) -> sn.Network:
    """Two inputs, two hidden units, two classes: 12 indicators, means of size one, next to no spread."""
    net = sn.mlp((2, 2, 2), activation="tanh", seed=seed).double()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in drawable_layers(net).values():
            for block in layer.blocks():
                block.mu.normal_(0, 1.5, generator=generator)
                block.rho.fill_(-60.0)
                assert block.omega is not None
                block.omega.uniform_(-1.0, 1.0, generator=generator)
    return net


X = torch.tensor([[0.5, -1.0], [1.5, 0.3], [-0.7, 0.8]]).double()
Y = torch.tensor([0, 1, 1])


def omegas(net: torch.nn.Module) -> list[Tensor]:
    return [
        block.omega for layer in drawable_layers(net).values() for block in layer.blocks() if block.omega is not None
    ]


def enumerated_gradient(net: sn.Network) -> Tensor:
    """Gradient over omega of E log p(y | gamma) by summing over all 2^12 models."""
    parameters = omegas(net)
    sizes = [p.numel() for p in parameters]
    log_alpha = torch.cat([torch.nn.functional.logsigmoid(p).flatten() for p in parameters])
    log_not = torch.cat([torch.nn.functional.logsigmoid(-p).flatten() for p in parameters])
    gammas = torch.tensor(list(itertools.product((0.0, 1.0), repeat=sum(sizes))), dtype=torch.float64)
    log_q = gammas @ log_alpha + (1 - gammas) @ log_not
    means = [block.mu.detach() for layer in drawable_layers(net).values() for block in layer.blocks()]
    w1, b1, w2, b2 = (
        (part.reshape(-1, *mean.shape) * mean) for part, mean in zip(gammas.split(sizes, 1), means, strict=True)
    )
    hidden = torch.tanh(torch.einsum("ni,khi->knh", X, w1) + b1[:, None, :])
    logits = torch.einsum("knh,kch->knc", hidden, w2) + b2[:, None, :]
    values = torch.log_softmax(logits, -1).gather(2, Y.expand(len(gammas), -1)[..., None]).sum((1, 2))
    expected = (log_q.exp() * values).sum()
    return torch.cat([g.flatten() for g in torch.autograd.grad(expected, parameters)])


def estimates(net: sn.Network, draw: Draw, repeats: int, samples: int, baseline: RunningMean | None = None) -> Tensor:
    parameters, rows, generator = omegas(net), [], torch.Generator().manual_seed(1)
    for _ in range(repeats):
        terms = elbo(net, net.likelihood, X, Y, n=3, draw=draw, seed=generator, samples=samples, baseline=baseline)
        grads = torch.autograd.grad(terms.log_likelihood + terms.score, parameters)
        rows.append(torch.cat([g.flatten() for g in grads]))
    return torch.stack(rows)


@pytest.mark.parametrize(("samples", "baseline"), [(1, None), (1, RunningMean()), (4, None)])
def test_score_is_unbiased(samples: int, baseline: RunningMean | None) -> None:
    net = tiny()
    wanted = enumerated_gradient(net)
    found = estimates(net, sn.score, 2500, samples, baseline)
    error = found.std(0) / 2500**0.5
    assert float(((found.mean(0) - wanted).abs() / error).max()) < 4.5


def test_control_variates_lower_the_variance() -> None:
    net = tiny()
    plain = estimates(net, sn.score, 1500, 1).var(0).sum()
    running = estimates(net, sn.score, 1500, 1, RunningMean()).var(0).sum()
    others = estimates(net, sn.score, 1500, 2).var(0).sum()  # two draws instead of one, compared at equal cost
    assert float(running) < 0.8 * float(plain)
    assert 2 * float(others) < 0.8 * float(plain)


def test_the_bias_of_the_relaxation_shrinks_with_delta() -> None:
    net = tiny()
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
    net = tiny()
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
    generator = sn.noise.keyed_generator(5)  # type: ignore[attr-defined]
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
    net = tiny()
    with pytest.raises(sn.ArgumentError, match='kl must be "exact" with the draw local'):
        elbo(net, net.likelihood, X, Y, n=3, draw=sn.local, seed=0, kl="sampled")


def test_under_a_fixed_selection_only_its_weights_are_charged() -> None:
    net = tiny()
    chosen = sn.median_model(net)
    terms = elbo(net, net.likelihood, X, Y, n=3, draw=sn.fixed(chosen.masks, sn.local), seed=0)
    wanted = torch.zeros(()).double()
    for name, layer in drawable_layers(net).items():
        for block, mask in zip(layer.blocks(), chosen.masks[name], strict=True):
            sigma = torch.nn.functional.softplus(block.rho)
            each = -sigma.log() - 0.5 + (sigma**2 + block.mu**2) / 2
            wanted = wanted + each[mask].sum()
    torch.testing.assert_close(terms.kl, wanted)
