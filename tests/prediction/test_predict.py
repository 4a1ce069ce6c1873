"""Algorithm 2 against straightforward computations of the same thing."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

import slabnet as sn
from slabnet.core.noise import keyed_generator
from slabnet.model.drawing import Draw

X = torch.randn(37, 5, generator=torch.Generator().manual_seed(0))


def fitted(likelihood: str = "categorical", outputs: int = 3) -> sn.Network:
    net = sn.mlp((5, 6, outputs), likelihood=likelihood, start=sn.Start(omega=(-1, 1), rho=(-1, 0)))
    return net.eval()


def one_by_one(net: sn.Network, draws: int, draw: Draw = sn.exact, seed: int = 0) -> torch.Tensor:
    outs = []
    with torch.no_grad():
        for r in range(draws):
            with sn.drawing(net, draw, keyed_generator(seed, "draw", r)):
                outs.append(net.likelihood.mean(net(X)))
    return torch.stack(outs)


def test_probabilities_are_averaged_never_logs() -> None:
    net = fitted()
    samples = one_by_one(net, 8)
    found = sn.predict(net, X, 8, keep_draws=True)
    torch.testing.assert_close(found.samples, samples)
    torch.testing.assert_close(found.mean, samples.mean(0))
    torch.testing.assert_close(found.mean.sum(-1), torch.ones(37))
    total = -(samples.mean(0) * samples.mean(0).log()).sum(-1)
    aleatoric = -(samples * samples.log()).sum(-1).mean(0)
    torch.testing.assert_close(found.entropy, total)
    torch.testing.assert_close(found.aleatoric, aleatoric)
    torch.testing.assert_close(found.epistemic, total - aleatoric, atol=1e-6, rtol=1e-4)
    votes = torch.nn.functional.one_hot(samples.argmax(-1), 3).sum(0)
    assert found.votes is not None
    assert torch.equal(found.votes.long(), votes)
    assert found.draws == 8


@pytest.mark.parametrize("chunk", [1, 5, 36, 37, 1000])
@pytest.mark.parametrize("likelihood", ["categorical", "gaussian"])
def test_chunks_do_not_change_the_answer(chunk: int, likelihood: str) -> None:
    net = fitted(likelihood).double()  # in float32 a matrix product of another size rounds otherwise
    whole = sn.predict(net, X, 6, intervals=(0.8,))
    parts = sn.predict(net, X, 6, intervals=(0.8,), chunk=chunk)
    for name in ("mean", "total", "aleatoric", "epistemic"):
        torch.testing.assert_close(getattr(whole, name), getattr(parts, name), rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(whole.interval(0.8), parts.interval(0.8), rtol=1e-10, atol=1e-12)
    assert whole.density_used == parts.density_used


def test_single_networks() -> None:
    net = fitted()
    with torch.no_grad():
        torch.testing.assert_close(sn.predict(net, X, draw=sn.mean).mean, torch.softmax(net(X), -1))
        w = {n: m for n, m in net.named_modules() if isinstance(m, sn.Linear)}
        h = X
        for layer in w.values():
            gamma_w, gamma_b = layer.weight.alpha > 0.5, layer.bias.alpha > 0.5  # type: ignore[union-attr]
            h = h @ (layer.weight.mu * gamma_w).T + layer.bias.mu * gamma_b  # type: ignore[union-attr]
            h = torch.relu(h) if layer is not list(w.values())[-1] else h
        found = sn.predict(net, X, 25, draw=sn.median)
        torch.testing.assert_close(found.mean, torch.softmax(h, -1))
    assert found.draws == 1
    assert sn.predict(net, X, 1).draws == 1


def test_density_used_comes_from_the_same_draws() -> None:
    net = fitted()
    used = {}
    with torch.no_grad():
        for r in range(4):
            with sn.drawing(net, sn.exact, keyed_generator(0, "draw", r)) as scope:
                net(X)
                for name, layer in net.named_modules():
                    if isinstance(layer, sn.Linear):
                        now = scope.used(layer)
                        used[name] = now | used.get(name, torch.zeros_like(now))
    found = sn.predict(net, X, 4)
    count, total = sum(int(u.sum()) for u in used.values()), sum(u.numel() for u in used.values())
    assert found.used_weights == count
    assert found.density_used == count / total
    assert found.density_used_by_layer == {n: pytest.approx(float(u.float().mean())) for n, u in used.items()}
    assert sn.predict(net, X, 1).density_used < found.density_used < sn.predict(net, X, 60).density_used
    assert sn.predict(net, X, draw=sn.mean).density_used == 1.0
    assert sn.predict(net, X, draw=sn.median).density_used == sn.median_model(net).total.median


def test_intervals_are_quantiles_of_the_draws() -> None:
    net = fitted()
    samples = one_by_one(net, 40)
    found = sn.predict(net, X, 40, intervals=(0.5, 0.9))
    for level in (0.5, 0.9):
        wanted = torch.quantile(samples, torch.tensor([(1 - level) / 2, (1 + level) / 2]), dim=0)
        torch.testing.assert_close(found.interval(level)[0], wanted[0])
        torch.testing.assert_close(found.interval(level)[1], wanted[1])
    with pytest.raises(sn.ArgumentError, match=r"level must be one asked for.*which were: 0.5, 0.9, got 0.95"):
        found.interval()


def test_many_rows_of_intervals_go_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    net = fitted().double()
    whole = sn.predict(net, X, 6, intervals=(0.8,))
    monkeypatch.setattr(sys.modules["slabnet.prediction.predict"], "BUFFER", 100)
    torch.testing.assert_close(sn.predict(net, X, 6, intervals=(0.8,)).interval(0.8), whole.interval(0.8))


def test_gaussian_variances_and_predictive_intervals() -> None:
    net = fitted("gaussian", 2)
    assert isinstance(net.likelihood, sn.Gaussian)
    with torch.no_grad():
        net.likelihood.log_phi.copy_(torch.tensor([-1.0, 0.5]))
    samples = one_by_one(net, 30)
    found = sn.predict(net, X, 30, intervals=(0.9,))
    torch.testing.assert_close(found.epistemic, samples.var(0, correction=0), rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(found.aleatoric[0], net.likelihood.expected_phi)
    torch.testing.assert_close(found.total, found.aleatoric + found.epistemic)
    phis = torch.stack([net.likelihood.draw_phi(keyed_generator(0, "phi", r)) for r in range(30)])
    noise = torch.randn(40_000, 30, 2, generator=torch.Generator().manual_seed(3))
    for row in (0, 20):  # against simulated observations
        simulated = (samples[:, row] + phis.sqrt() * noise).flatten(0, 1)
        low, high = found.predictive_interval(0.9)
        torch.testing.assert_close(low[row], torch.quantile(simulated, 0.05, dim=0), atol=0.03, rtol=0)
        torch.testing.assert_close(high[row], torch.quantile(simulated, 0.95, dim=0), atol=0.03, rtol=0)
    assert bool((found.predictive_interval(0.9)[1] > found.interval(0.9)[1]).all())
    with pytest.raises(sn.ArgumentError, match="labels must be asked of class probabilities"):
        _ = found.labels


def test_yes_or_no_outputs() -> None:
    net = fitted("bernoulli", 2)
    samples = one_by_one(net, 9)
    found = sn.predict(net, X, 9)
    torch.testing.assert_close(found.mean, samples.mean(0))
    assert torch.equal(found.votes, (samples > 0.5).sum(0).to(torch.int32))  # type: ignore[arg-type]
    p = samples.mean(0)
    torch.testing.assert_close(found.entropy, -(p * p.log() + (1 - p) * (1 - p).log()))
    assert torch.equal(found.labels, (p > 0.5).long())


def test_doubt() -> None:
    net = fitted()
    found = sn.predict(net, X, 10)
    assert torch.equal(found.decided(0.6), found.mean.max(-1).values > 0.6)
    assert torch.equal(found.decided(0.0), torch.ones(37, dtype=torch.bool))
    with pytest.raises(sn.ArgumentError, match="threshold must be a number at least 0 and at most 1, got 2"):
        found.decided(2)


def test_seeds() -> None:
    net = fitted()
    assert torch.equal(sn.predict(net, X, 5, seed=3).mean, sn.predict(net, X, 5, seed=3).mean)
    assert not torch.equal(sn.predict(net, X, 5, seed=3).mean, sn.predict(net, X, 5, seed=4).mean)
    by_generator = [sn.predict(net, X, 5, seed=torch.Generator().manual_seed(1)).mean for _ in range(2)]
    assert torch.equal(*by_generator)
    more = sn.predict(net, X, 6, keep_draws=True).samples
    assert torch.equal(more[:5], sn.predict(net, X, 5, keep_draws=True).samples)  # type: ignore[index]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda n: sn.predict(n, X, 0), "predict: draws must be a whole number of at least 1, got 0"),
        (lambda n: sn.predict(n, X, chunk=0), "predict: chunk must be"),
        (lambda n: sn.predict(n, X, intervals=(1.0,)), "predict: intervals must be a number above 0 and below 1"),
        (lambda n: sn.predict(n, X[:, :4]), "predict: x must be rows of 5 numbers, got shape (37, 4)"),
        (lambda n: sn.predict(n, X[:0]), "predict: x must be at least one row"),
        (lambda n: sn.predict(n, X / 0), "predict: x must be finite numbers, got NaN or infinity in row 0"),
        (lambda n: sn.predict(n, X, draw=sn.local), "predict: draw must be one that draws weights"),
        (lambda n: sn.predict(n, X, seed="a"), "predict: seed must be a whole number of at least 0"),
    ],
)
def test_bad_calls(call: object, said: str) -> None:
    with pytest.raises(sn.ArgumentError) as caught:
        call(fitted())  # type: ignore[operator]
    assert said in str(caught.value)


def test_one_output_is_no_class_probability() -> None:
    """A module of one's own has no likelihood yet, and that of classes is the usual one."""
    with pytest.raises(sn.ArgumentError, match='likelihood must be "bernoulli" or "gaussian" for one output'):
        sn.predict(torch.nn.Sequential(sn.Linear(5, 1)), X)


def test_training_mode_is_restored() -> None:
    net = fitted().train()
    sn.predict(net, X)
    assert net.training


@pytest.mark.slow
def test_memory_is_flat_in_draws_and_rows() -> None:
    """Peak memory of 200 draws is that of 2, and 20 times the rows cost little more than their output."""
    code = """
import resource, sys, torch, slabnet as sn
torch.set_num_threads(1)
draws, rows = int(sys.argv[1]), int(sys.argv[2])
net = sn.mlp((50, 60, 4))
x = torch.zeros(1, 50).expand(rows, 50)
sn.predict(net, x[:10], 2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
sn.predict(net, x, draws, chunk=500)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""

    def peak(draws: int, rows: int) -> int:
        run = subprocess.run(
            [sys.executable, "-c", code, str(draws), str(rows)], capture_output=True, text=True, check=True
        )
        return int(run.stdout) // 1024

    few, many, long = peak(2, 20_000), peak(100, 20_000), peak(2, 200_000)
    assert many <= few + 8  # MiB; a hundred kept draws would be 30
    assert long <= few + 60  # the copied rows and outputs themselves are 45


def test_a_single_network_still_has_an_uncertain_phi() -> None:
    net = fitted("gaussian", 1)
    with torch.no_grad():
        net.get_parameter("likelihood.rho_phi").fill_(1.0)
    widths = [sn.predict(net, X, draw=sn.mean, intervals=0.95, seed=s).predictive_interval() for s in range(3)]
    spans = torch.stack([high - low for low, high in widths])
    assert float((spans.std(0) / spans.mean(0)).max()) < 0.15
    kept = sn.predict(net, X, draw=sn.mean, keep_draws=True)
    assert sn.negative_log_likelihood(kept, X[:, 0]) > 0


def test_modes_of_submodules_are_put_back() -> None:
    net = fitted().train()
    net.body[1].eval()
    sn.predict(net, X)
    assert net.training
    assert not net.body[1].training


def test_weights_in_use_under_fixed_means() -> None:
    net = fitted()
    chosen = sn.median_model(net)
    assert sn.predict(net, X, draw=sn.fixed(chosen.masks, sn.mean)).used_weights == chosen.total.median_weights


def test_a_likelihood_of_one_s_own_is_summarised_by_variances() -> None:
    class Poisson(sn.Likelihood):
        name = "poisson of one's own"

        def mean(self, output: torch.Tensor) -> torch.Tensor:
            return output.exp()

        def variance(self, output: torch.Tensor) -> torch.Tensor:
            return output.exp()

    net = fitted("gaussian", 1)
    net.likelihood = Poisson()
    found = sn.predict(net, X, 6, keep_draws=True)
    assert found.votes is None
    assert found.samples is not None
    torch.testing.assert_close(found.epistemic, found.samples.var(0, correction=0))
    torch.testing.assert_close(found.total, found.mean + found.epistemic)
    assert found.mixture is None
    assert sn.predict(net, X, 6, intervals=0.9).predictive == {}
    with pytest.raises(sn.ArgumentError, match="prediction must be of a response with a known distribution"):
        sn.negative_log_likelihood(found, X[:, 0])
    with pytest.raises(sn.ArgumentError, match="which load can build, got Poisson"):
        sn.save(net, "unused.slab")


def test_a_compiled_network_predicts_as_the_one_inside() -> None:
    net, x = sn.mlp((3, 4, 2), seed=0), torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    found = sn.predict(torch.compile(net, backend="eager"), x, draws=3)  # type: ignore[arg-type]
    torch.testing.assert_close(found.mean, sn.predict(net, x, draws=3).mean)
    assert found.density_used == sn.predict(net, x, draws=3).density_used
