"""Priors with a structure: a scale of the slab with a posterior of its own, psi from a function."""

from __future__ import annotations

import itertools
import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

import slabnet as sn
from slabnet.config.priors import WeightPsi
from slabnet.maths.dilution import diluted_inclusion, log_mean_determinant
from slabnet.maths.divergences import kl_bernoulli, kl_inverse_gamma
from slabnet.model.drawing import drawable_layers
from slabnet.model.elbo import kl
from slabnet.model.gates import Gates
from slabnet.model.layers import Linear

DOUBLE = torch.float64
SCALE = sn.InverseGamma(3.0, 2.0)


def density(grid: Tensor, a: float, b: float) -> Tensor:
    """log density of InverseGamma(a, b)."""
    return a * math.log(b) - math.lgamma(a) - (a + 1) * grid.log() - b / grid


def test_the_price_of_a_scale_by_integration() -> None:
    grid = torch.linspace(-9, 9, 400_001, dtype=DOUBLE).exp()
    for a, b, a0, b0 in ((3.0, 2.0, 1.0, 1.0), (40.5, 9.0, 2.0, 0.5), (1.5, 3.0, 1.5, 3.0)):
        q, p = density(grid, a, b), density(grid, a0, b0)
        want = torch.trapezoid(q.exp() * (q - p) * grid, grid.log())
        got = kl_inverse_gamma(*(torch.tensor(v, dtype=DOUBLE) for v in (a, b, a0, b0)))
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-6)


def filled(net: sn.Network) -> Linear:
    (layer,) = (part for part in drawable_layers(net).values() if isinstance(part, Linear))
    source = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for block in (layer.weight, layer.bias):
            assert block is not None
            assert block.omega is not None
            block.mu.normal_(generator=source)
            block.omega.normal_(generator=source)
            block.rho.normal_(-1, 0.5, generator=source)
    return layer


def by_integration(net: sn.Network, layer: Linear, a: float, b: float) -> Tensor:
    """KL of q(gamma, beta) q(sigma_beta^2) from the joint prior: over sigma_beta^2 by integration, given IG(a, b)."""
    grid = torch.linspace(-12, 12, 200_001, dtype=DOUBLE).exp()
    q = density(grid, a, b)
    mass = q.exp() * grid
    log_s, inverse = (torch.trapezoid(mass * of, grid.log()) for of in (0.5 * grid.log(), 1 / grid))
    price = torch.trapezoid(mass * (q - density(grid, SCALE.shape, SCALE.scale)), grid.log())
    total = price
    gates = [part for part in net.modules() if isinstance(part, Gates)]
    opened = gates[0].alpha if gates else torch.ones(4, dtype=DOUBLE)
    for block, over in ((layer.weight, opened), (layer.bias, torch.ones(2, dtype=DOUBLE))):
        assert block is not None
        assert block.omega is not None
        alpha, mu, s = torch.sigmoid(block.omega), block.mu, block.sigma
        slab = -s.log() - 0.5 + log_s + 0.5 * (mu**2 + s**2) * inverse
        logs = torch.tensor(0.3, dtype=DOUBLE).log(), torch.tensor(0.7, dtype=DOUBLE).log()
        total = total + (over * (kl_bernoulli(block.omega, *logs) + alpha * slab)).sum()
    return total + sum(part.divergence(None, False) for part in gates)  # type: ignore[arg-type]


@pytest.mark.parametrize("gates", [None, "inputs"])
def test_the_divergence_with_a_learned_scale_by_integration(gates: str | None) -> None:
    prior = sn.Prior(psi=0.3, sigma_beta=SCALE)
    net = sn.mlp((4, 2), prior=prior, gates=gates, psi_gate=None if gates is None else 0.4, likelihood="gaussian")
    layer = filled(net.double())
    alpha = [layer.alpha.detach(), layer.bias.alpha.detach()]  # type: ignore[union-attr]
    blocks = [layer.weight, layer.bias]
    count = float(sum(part.sum() for part in alpha))
    squares = sum((p * (b.mu**2 + b.sigma**2)).sum() for p, b in zip(alpha, blocks, strict=True))  # type: ignore[union-attr]
    best = SCALE.shape + count / 2, SCALE.scale + float(squares.detach()) / 2  # type: ignore[union-attr]
    want = by_integration(net, layer, *best)
    torch.testing.assert_close(kl(net).detach(), want.detach(), rtol=1e-5, atol=1e-5)
    for other in ((best[0] * 1.1, best[1]), (best[0], best[1] * 0.9)):  # no other posterior of the scale is better
        assert float(by_integration(net, layer, *other).detach()) > float(want.detach())
    kl(net).backward()
    slopes = [p.grad.clone() for p in net.parameters() if p.grad is not None]
    net.zero_grad()
    want.backward()  # at the best posterior of the scale the bound has no slope in it
    for slope, other_slope in zip(slopes, (p.grad for p in net.parameters() if p.grad is not None), strict=True):
        torch.testing.assert_close(slope, other_slope, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("draw", [sn.local, sn.straight_through(0.5), sn.relaxed(0.5)], ids=lambda draw: draw.name)
@pytest.mark.parametrize("method", ["lbbnn", "gaussian"])
def test_the_compiled_passes_charge_the_same(draw: sn.Draw, method: str) -> None:
    net = sn.mlp((4, 6, 2), prior=sn.Prior(psi=0.3, sigma_beta=SCALE, include=(1,), exclude=(2,)), method=method)
    x, y = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)), torch.tensor([0, 1, 0, 1, 1])
    terms = sn.elbo(net, net.likelihood, x, y, n=5, draw=draw, seed=1)
    torch.testing.assert_close(terms.kl, kl(net), rtol=1e-5, atol=1e-4)


def test_the_sampled_divergence_has_the_exact_one_as_its_mean() -> None:
    net = sn.mlp((3, 2), prior=sn.Prior(psi=0.3, sigma_beta=SCALE), likelihood="gaussian").double()
    layer = filled_linear(net)
    draws = []
    with torch.no_grad():
        for r in range(3000):
            with sn.drawing(net, sn.exact, r) as scope:
                net(torch.zeros(1, 3, dtype=DOUBLE))
                draws.append(layer.prior.sampled_kl(layer.blocks(), scope.weights(layer)))
    each = torch.stack(draws)
    assert abs(float(each.mean() - layer.kl().detach())) < 4 * float(each.std()) / math.sqrt(len(each))


def filled_linear(net: sn.Network) -> Linear:
    layer = filled(net)
    with torch.no_grad():
        layer.weight.rho.fill_(-1.0)
    return layer


def test_the_scale_of_the_weights_is_found(tmp_path: Path) -> None:
    source = torch.Generator().manual_seed(0)
    x = torch.randn(300, 12, generator=source)
    truth = 3.0 * torch.randn(12, 1, generator=source)
    y = x @ truth + 0.1 * torch.randn(300, 1, generator=source)
    net = sn.mlp((12, 1), likelihood="gaussian", prior=sn.Prior(psi=0.5, sigma_beta=sn.InverseGamma(1, 1)))
    sn.fit(net, (x, y), sn.TrainConfig(epochs=60, batch_size=100), progress="off")
    (layer,) = drawable_layers(net).values()
    assert isinstance(layer, Linear)
    spread = float(truth.square().mean().sqrt())
    assert spread * 0.7 < layer.prior.scale_now(layer.blocks()) < spread * 1.3
    chosen = sn.median_model(net)
    sn.save(net, tmp_path / "m.slab", selection=chosen)
    back = sn.load(tmp_path / "m.slab")
    torch.testing.assert_close(kl(back), kl(net))
    small = sn.compact(net, chosen, "distribution")
    sn.save(small, tmp_path / "s.slab")
    torch.testing.assert_close(kl(sn.load(tmp_path / "s.slab")), kl(small))
    history = sn.fit(small, (x, y), sn.TrainConfig(epochs=2), progress="off")
    assert math.isfinite(history[-1].kl)


def near(layer: int, unit: int, position: int) -> float:
    return 0.5 if layer or abs(position - 3 * unit) <= 1 else 0.01


def test_psi_of_each_weight_from_a_function(tmp_path: Path) -> None:
    net = sn.mlp((9, 3, 2), skip=True, prior=sn.Prior(psi=near))
    first, last = (layer for layer in drawable_layers(net).values() if isinstance(layer, Linear))
    want = torch.tensor([[near(0, unit, i) for i in range(9)] for unit in range(3)])
    torch.testing.assert_close(first.psi_now(), want)
    torch.testing.assert_close(last.psi_now(), torch.full((2, 12), 0.5))
    spec = json.loads(json.dumps(net.spec))
    assert len(spec["prior"]["psi"]["values"]) < 12
    sn.save(net, tmp_path / "m.slab")
    back = sn.load(tmp_path / "m.slab")
    torch.testing.assert_close(kl(back), kl(net))
    with torch.no_grad():  # the divergence is that of each weight
        expected = sum(float(part.sum()) for layer in (first, last) for part in layer.prior.weight_kl(layer.blocks()))
    assert float(kl(net).detach()) == pytest.approx(expected, rel=1e-5)
    model = sn.SlabRegressor((3,), psi=near, epochs=2).fit(torch.randn(40, 9).numpy(), torch.randn(40).numpy())
    sn.save_estimator(model, tmp_path / "e.slab")
    assert sn.load_estimator(tmp_path / "e.slab").network_.spec == model.network_.spec


def test_a_module_of_ones_own_takes_the_function_too() -> None:
    net = sn.convert(torch.nn.Sequential(torch.nn.Linear(9, 3)), prior=sn.Prior(psi=near))
    layer = net[0]  # type: ignore[index]
    assert float(layer.psi_now()[1, 3]) == pytest.approx(0.5)
    assert float(layer.psi_now()[1, 6]) == pytest.approx(0.01)


def test_bad_calls() -> None:
    cases: list[tuple[object, str]] = [
        (
            lambda: sn.Prior(sigma_beta=sn.InverseGamma(1, 1), slab="laplace"),
            "slab must be gaussian when sigma_beta is",
        ),
        (lambda: sn.Prior(sigma_beta=sn.InverseGamma(-1, 1)), "shape must be greater than 0"),
        (lambda: sn.Prior(sigma_beta="wide"), "InverseGamma"),
        (
            lambda: sn.mlp((2, 2), prior=sn.Prior(psi=lambda layer, unit, i: 1.5)),
            r"psi\(0, 0, 0\) must be a",
        ),
        (lambda: sn.mlp((2, 2), prior=sn.Prior(psi=near), method="deterministic"), "psi must be no function"),
        (lambda: sn.convnet((1, 4, 4), 2, prior=sn.Prior(psi=near)), "psi must be one for each layer where there are"),
        (lambda: sn.Prior(psi=near, input_psi=[0.5]), "input_psi and skip_psi must be left out"),
        (lambda: sn.Prior(psi=WeightPsi.of([[0.5, 0.5]], [(1, 1)])), "for each of 1 weights"),
        (
            lambda: sn.mlp((3, 2), prior=sn.Prior(psi=WeightPsi.of([[0.5]], [(1, 1)]))),
            "values for layers",
        ),
    ]
    for call, said in cases:
        with pytest.raises(sn.ArgumentError, match=said):
            call()  # type: ignore[operator]


def positive(columns: int) -> Tensor:
    source = torch.Generator().manual_seed(1)
    loadings = torch.randn(columns, 3, generator=source, dtype=DOUBLE)
    matrix = loadings @ loadings.T + torch.eye(columns, dtype=DOUBLE)
    scale = matrix.diagonal().rsqrt()
    return scale[:, None] * matrix * scale


def test_the_dilution_prior_against_enumeration() -> None:
    matrix, psi = positive(5), 0.35
    alpha = torch.tensor([0.9, 0.2, 0.5, 0.7, 0.01], dtype=DOUBLE)
    sets = [torch.tensor(gamma).double() for gamma in itertools.product((0, 1), repeat=5)]
    dets = [torch.linalg.det(matrix[g > 0][:, g > 0]) if g.any() else torch.ones((), dtype=DOUBLE) for g in sets]
    q = torch.stack([torch.where(g > 0, alpha, 1 - alpha).prod() for g in sets])
    prior = torch.stack([torch.where(g > 0, psi, 1 - psi).prod() for g in sets]) * torch.stack(dets)
    torch.testing.assert_close(log_mean_determinant(alpha, matrix).exp(), (q * torch.stack(dets)).sum())
    inside = (prior[:, None] * torch.stack(sets)).sum(0) / prior.sum()
    torch.testing.assert_close(diluted_inclusion(torch.full((5,), psi, dtype=DOUBLE), matrix), inside)
    net = sn.mlp((5, 1), gates="inputs", psi_gate=psi, prior=sn.Prior(dilution=matrix), likelihood="gaussian").double()
    gates = next(part for part in net.modules() if isinstance(part, Gates))
    torch.testing.assert_close(gates.psi_now, inside, rtol=1e-5, atol=1e-6)
    exact = {}
    for name, at in (("sure", sets[22] * 2 - 1), ("open", torch.logit(alpha) / 30)):
        with torch.no_grad():
            gates.omega.copy_(30.0 * at)
        now = gates.alpha.detach()
        chance = torch.stack([torch.where(g > 0, now, 1 - now).prod() for g in sets])
        exact[name] = torch.special.xlogy(chance, chance / (prior / prior.sum())).sum()
        got = gates.divergence(None, False).detach()  # type: ignore[arg-type]
        if name == "sure":  # indicators that are decided: nothing stands in for anything
            torch.testing.assert_close(got, exact[name], rtol=1e-6, atol=1e-6)
        else:  # the logarithm of a mean is not below the mean of the logarithm
            assert 0 < float(got) < float(exact[name])


def test_twins_share_what_one_of_them_would_have(tmp_path: Path) -> None:
    """Two columns that are nearly the same, both in or one of them: what two say together costs more."""
    source = torch.Generator().manual_seed(0)
    one = torch.randn(200, 1, generator=source)
    x = torch.cat([one, one + 0.1 * torch.randn(200, 1, generator=source), torch.randn(200, 1, generator=source)], 1)
    matrix = sn.correlations(x)
    for prior in (sn.Prior(), sn.Prior(dilution=matrix)):
        net = sn.mlp((3, 1), gates="inputs", psi_gate=0.5, prior=prior, likelihood="gaussian")
        gates = next(part for part in net.modules() if isinstance(part, Gates))
        price = {}
        for name, omega in (("one", (20.0, -20.0, -20.0)), ("both", (20.0, 20.0, -20.0))):
            with torch.no_grad():
                gates.omega.copy_(torch.tensor(omega))
            price[name] = float(gates.divergence(None, False).detach())  # type: ignore[arg-type]
        wanted = 0.0 if prior.dilution is None else -math.log(1 - matrix[0, 1] ** 2)
        assert price["both"] - price["one"] == pytest.approx(wanted, abs=1e-4)
    assert wanted > 3
    sn.save(net, tmp_path / "m.slab")
    torch.testing.assert_close(kl(sn.load(tmp_path / "m.slab")), kl(net))
    given = sn.Prior(psi=0.5, dilution=matrix)
    model = sn.SlabRegressor((2,), gates="inputs", prior=given, epochs=2, random_state=0)
    with pytest.warns(UserWarning, match="columns nearly alike"):
        model.fit(x.numpy(), one[:, 0].numpy())
    assert model.network_.spec["psi_gate"] == 0.5
    assert len(model.column_inclusion_) == 3


def test_correlations_of_a_data_frame_are_those_of_its_columns() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": [1.0, 2, 3, 4, 5, 6], "b": list("uvwuvw"), "c": [2.0, 4, 6, 8, 10, 13]})
    matrix = sn.correlations(frame)
    assert matrix.shape == (3, 3)
    assert matrix[0, 2] > 0.9
    assert sn.Prior(dilution=matrix).dilution is not None
    by_hand = sn.correlations(frame[["a", "c"]].to_numpy(), {"both": (0, 1)})
    assert by_hand.tolist() == [[1.0]]


def test_bad_dilutions() -> None:
    two = [[1.0, 0.5], [0.5, 1.0]]
    cases: list[tuple[object, str]] = [
        (lambda: sn.Prior(dilution=[[1.0, 0.5]]), "dilution must be a correlation matrix"),
        (lambda: sn.Prior(dilution=[[1.0, 0.5], [0.4, 1.0]]), "symmetric"),
        (lambda: sn.Prior(dilution=[[1.0, 2.0], [2.0, 1.0]]), "dilution must be"),
        (lambda: sn.mlp((2, 2), prior=sn.Prior(dilution=two)), 'gates must be "inputs"'),
        (lambda: sn.convnet((1, 4, 4), 2, prior=sn.Prior(dilution=two)), 'gates must be "inputs"'),
        (lambda: sn.mlp((3, 2), gates="inputs", prior=sn.Prior(dilution=two)), "a matrix for the 3 columns"),
        (
            lambda: sn.mlp((2, 2), gates="inputs", psi_gate=sn.Beta(), prior=sn.Prior(dilution=two)),
            "psi_gate must be a number",
        ),
        (
            lambda: sn.mlp(
                (3, 2), gates="inputs", prior=sn.Prior(dilution=[[1, 0.9, -0.9], [0.9, 1, 0.9], [-0.9, 0.9, 1]])
            ),
            "dilution must be positive definite",
        ),
        (lambda: sn.convert(torch.nn.Linear(2, 2), prior=sn.Prior(dilution=two)), "prior must be one without dilution"),
        (lambda: sn.correlations([[1.0, float("nan")]]), "x must be rows of finite numbers"),
    ]
    for call, said in cases:
        with pytest.raises(sn.ArgumentError, match=said):
            call()  # type: ignore[operator]
