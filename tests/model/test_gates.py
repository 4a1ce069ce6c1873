"""Gates: the divergence and the moments by other routes, the posterior of a column against enumeration."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import slabnet as sn
from slabnet.maths.divergences import kl_bernoulli
from slabnet.maths.gated import behind_gate, jointly
from slabnet.model.drawing import drawable_layers
from slabnet.model.elbo import kl
from slabnet.model.gated import GatedConv1d, GatedLinear
from slabnet.model.gates import Gates, column_inclusion

GROUPS = {"pair": (0, 2), "three": (3, 4, 6)}


def linear(psi_gate: float | sn.Beta = 0.3, seed: int = 0, outputs: int = 2) -> tuple[sn.Network, Gates, GatedLinear]:
    """A linear model of 7 columns: two groups, and two columns alone; parameters at random."""
    net = sn.mlp(
        (7, outputs),
        likelihood="gaussian",
        gates="inputs",
        column_groups=GROUPS,
        psi_gate=psi_gate,
        prior=sn.Prior(psi=0.4),
    ).double()
    gates, layer = drawable_layers(net).values()
    assert isinstance(gates, Gates)
    assert isinstance(layer, GatedLinear)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in (gates.omega, layer.weight.omega, layer.weight.mu, layer.weight.rho):
            assert parameter is not None
            parameter.normal_(generator=generator)
    return net, gates, layer


@given(a=st.floats(-50, 50), b=st.floats(-50, 50))
def test_the_logit_of_a_product(a: float, b: float) -> None:
    x, y = torch.tensor([a, b], dtype=torch.float64)
    got = jointly(x, y)
    log_on = torch.nn.functional.logsigmoid(x) + torch.nn.functional.logsigmoid(y)
    torch.testing.assert_close(torch.nn.functional.logsigmoid(got), log_on, rtol=1e-12, atol=1e-12)
    assert bool(jointly(torch.tensor(1e4), torch.tensor(-1e4)).isfinite())


def test_the_divergence_is_that_of_the_joint_distribution() -> None:
    """sum over gamma_g and every gamma of q log q/p, the slabs of those that are in it in closed form."""
    net, gates, layer = linear(outputs=1)
    psi, psi_gate = 0.4, 0.3
    total = torch.zeros((), dtype=torch.float64)
    a, m, s = (t.detach()[0] for t in (layer.weight.alpha, layer.weight.mu, layer.weight.sigma))
    slab = -s.log() - 0.5 + (s**2 + m**2) / 2
    for g, name in enumerate(gates.names):
        columns = GROUPS.get(name, (int(name[1:]),) if name.startswith("x") else ())
        alpha = float(gates.alpha[g].detach())
        for opened in (0, 1):
            chance, before = (alpha, psi_gate) if opened else (1 - alpha, 1 - psi_gate)
            for gamma in itertools.product((0, 1), repeat=len(columns)):
                q, p, price = 1.0, 1.0, 0.0
                for j, on in zip(columns, gamma, strict=True):
                    here = float(a[j]) if opened else psi  # behind a closed gate q is the prior
                    q, p = q * (here if on else 1 - here), p * (psi if on else 1 - psi)
                    price += float(slab[j]) if on and opened else 0.0
                total = total + chance * q * (math.log(chance * q / (before * p)) + price)
    assert layer.bias is not None
    a, m, s = (t.detach()[0] for t in (layer.bias.alpha, layer.bias.mu, layer.bias.sigma))
    total = (
        total + a * (torch.log(a / psi) - s.log() - 0.5 + (s**2 + m**2) / 2) + (1 - a) * torch.log((1 - a) / (1 - psi))
    )
    torch.testing.assert_close(kl(net), total)
    torch.testing.assert_close(layer.kl() + gates.divergence(None, False), total)  # type: ignore[arg-type]


def test_a_learned_psi_gate_is_the_best_beta_for_its_gates() -> None:
    net, gates, _ = linear(sn.Beta(a=2.0, b=5.0))
    fixed, _, _ = linear(0.3)
    a, b = 2 + gates.alpha.sum().detach(), 5 + (1 - gates.alpha).sum().detach()
    grid = torch.linspace(1e-6, 1 - 1e-6, 200_001, dtype=torch.float64)
    q, p = torch.distributions.Beta(a, b), torch.distributions.Beta(2.0, 5.0)
    weight = q.log_prob(grid).exp() * (grid[1] - grid[0])
    price = (weight * (q.log_prob(grid) - p.log_prob(grid.float()).double())).sum()
    alpha = gates.alpha.detach()
    on, off = (weight * grid.log()).sum(), (weight * torch.log1p(-grid)).sum()
    own = (alpha * (alpha.log() - on) + (1 - alpha) * ((1 - alpha).log() - off)).sum() + price
    before = (alpha * (alpha / 0.3).log() + (1 - alpha) * ((1 - alpha) / 0.7).log()).sum()
    torch.testing.assert_close(kl(net) - kl(fixed), own - before, rtol=1e-4, atol=1e-4)


def test_one_node_of_the_graph_has_the_value_and_the_slopes_of_the_divergence() -> None:
    source = torch.Generator().manual_seed(0)
    omega, off = (torch.randn(4, 3, dtype=torch.float64, generator=source) for _ in range(2))
    gate, off, pinned = torch.randn(3, dtype=torch.float64, generator=source), -off.exp(), torch.zeros(4, 3) > 0
    pinned[1, 2] = True
    omega, gate = omega.requires_grad_(), gate.requires_grad_()
    for mask in (None, pinned):
        assert torch.autograd.gradcheck(lambda a, b: behind_gate(a, b, off, mask), (omega, gate))  # noqa: B023
    joint, more = behind_gate(omega, gate, off)
    on = torch.log1p(-off.exp())
    want = (torch.sigmoid(gate) * kl_bernoulli(omega, on, off)).sum()
    torch.testing.assert_close(kl_bernoulli(joint, on, off).sum() + more, want)
    sure = torch.tensor([1e4, -1e4, 60.0, -60.0], requires_grad=True)
    found, more = behind_gate(sure[:, None], sure, torch.tensor(-0.7))
    (found.clamp(-10, 10).sum() + more).backward()
    assert bool(found.isfinite().all() & more.isfinite() & sure.grad.isfinite().all())  # type: ignore[union-attr]


def test_what_a_learned_psi_and_a_learned_scale_count_stands_behind_open_gates() -> None:
    """Both hyperparameters at their best for fixed weights: found by search over the divergence given them."""
    built = {"likelihood": "gaussian", "gates": "inputs", "column_groups": GROUPS, "psi_gate": 0.3}
    net = sn.mlp((7, 1), prior=sn.Prior(psi=sn.Beta(a=2, b=3), sigma_beta="learned"), **built).double()  # type: ignore[arg-type]
    gates, layer = drawable_layers(net).values()
    assert isinstance(gates, Gates)
    assert isinstance(layer, GatedLinear)
    assert layer.bias is not None
    source = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in (gates.omega, layer.weight.omega, layer.weight.mu, layer.bias.omega, layer.bias.mu):
            assert parameter is not None
            parameter.normal_(generator=source)
    opened = torch.cat([gates.alpha[group] for _, group in layer.reads]).detach()
    own, bias = layer.weight.alpha[0].detach(), layer.bias.alpha[0].detach()
    a = 2 + float((opened * own).sum() + bias)
    b = 3 + float((opened * (1 - own)).sum() + 1 - bias)
    on, off = (torch.digamma(torch.tensor(v, dtype=torch.float64)) for v in (a, b))
    total = torch.digamma(torch.tensor(a + b, dtype=torch.float64))
    price = torch.distributions.kl_divergence(
        torch.distributions.Beta(*torch.tensor([a, b], dtype=torch.float64)), torch.distributions.Beta(2.0, 3.0)
    )
    indicators = kl_bernoulli(layer.weight.omega[0], on - total, off - total)  # type: ignore[index]
    m, s = layer.weight.mu[0], layer.weight.sigma[0]
    want = (opened * (indicators + own * (-s.log() - 0.5 + (s**2 + m**2) / 2))).sum() + price
    m, s = layer.bias.mu[0], layer.bias.sigma[0]
    want = (
        want + kl_bernoulli(layer.bias.omega[0], on - total, off - total) + bias * (-s.log() - 0.5 + (s**2 + m**2) / 2)
    )  # type: ignore[index]
    torch.testing.assert_close(layer.kl(), want)
    layer.kl().backward()
    m, s = layer.weight.mu[0], layer.weight.sigma[0]
    counts = (opened * own * (m**2 + s**2 - 1)).sum() + bias * (layer.bias.mu**2 + layer.bias.sigma**2 - 1)[0]
    assert layer.prior.log_sigma_beta is not None
    torch.testing.assert_close(layer.prior.log_sigma_beta.grad, -counts)


def test_channels_behind_gates_have_the_moments_of_networks_drawn_whole() -> None:
    gates = Gates("channels", ["a", "b", "c"], 0.5, sn.Start(), torch.Generator())
    layer = GatedConv1d(3, 2, 3, padding=1, prior=sn.Prior(psi=0.5)).behind((gates, torch.arange(3))).double()
    head = GatedLinear(12, 2, prior=sn.Prior(psi=0.5)).behind((gates, torch.arange(3).repeat_interleave(4))).double()
    x = torch.randn(1, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    with torch.no_grad():
        gates.omega.copy_(torch.tensor([0.3, -0.6, 1.0]))
        for one in (layer, head):
            one.weight.omega.normal_(generator=torch.Generator().manual_seed(2))  # type: ignore[union-attr]
            one.weight.rho.fill_(-1.0)
    for one, rows in ((layer, x), (head, x.flatten(1))):
        net = torch.nn.ModuleList([gates, one])
        count = 20_000
        with torch.no_grad(), sn.drawing(net, sn.local, 3):
            drawn = one(rows.expand(count, *rows.shape[1:]))
        outs = []
        with torch.no_grad():
            for r in range(600):
                with sn.drawing(net, sn.exact, r):
                    outs.append(one(rows)[0])
        exact = torch.stack(outs)
        error = 4.5 * exact.std(0) * math.sqrt(1 / len(exact) + 1 / count)
        assert bool(((drawn.mean(0) - exact.mean(0)).abs() < error).all())
        fourth = ((exact - exact.mean(0)) ** 4).mean(0)
        spread = ((fourth - exact.var(0) ** 2) / len(exact) + 2 * exact.var(0) ** 2 / count).sqrt()
        assert bool(((drawn.var(0) - exact.var(0)).abs() < 4.5 * spread).all())


def test_channels_and_units_of_a_convolutional_network(tmp_path: Path) -> None:
    net = sn.convnet((2, 8, 8), 3, channels=(4, 3), hidden=(5,), skip=True, gates=("channels", "units"), psi_gate=0.4)
    first, second, units = (part for part in net.modules() if isinstance(part, Gates))
    assert [part.kind for part in (first, second, units)] == ["channels", "channels", "units"]
    with torch.no_grad():
        for part, shut in ((first, 1), (second, 2), (units, 0)):
            part.omega[shut] = -4.0
    chosen = sn.median_model(net)
    masks = {name: mask[0] for name, mask in chosen.masks.items()}
    convs = [mask for mask in masks.values() if mask.ndim == 4]
    heads = [mask for mask in masks.values() if mask.ndim == 2]
    assert not bool(convs[1][:, 1].any())
    assert not bool(heads[0][:, 8:].any())  # the third of three maps of 2 x 2
    assert not bool(heads[1][:, 0].any())
    assert not bool(heads[1][:, 5 + 8 :].any())  # and where the head reads the maps again
    x = torch.randn(4, 2, 8, 8, generator=torch.Generator().manual_seed(0))
    y = torch.tensor([0, 1, 2, 0])
    sn.fit(net, (x, y), sn.TrainConfig(epochs=2, batch_size=4), progress="off")
    chosen = sn.median_model(net, infeasible="path")
    sn.save(net, tmp_path / "m.slab", selection=chosen)
    back = sn.load(tmp_path / "m.slab")
    for draw in (sn.exact, sn.median, sn.mean):
        want, got = (sn.predict(one, x, 3, draw=draw, seed=2).mean for one in (net, back))
        torch.testing.assert_close(got, want)
    small = sn.compact(net, chosen)
    torch.testing.assert_close(sn.predict(small, x).mean, sn.predict(net, x, draw=sn.fixed(chosen.masks)).mean)


def test_local_draws_have_the_mean_and_variance_of_networks_drawn_whole() -> None:
    net, _, layer = linear()
    with torch.no_grad():
        layer.weight.mu[:, 1] = 2.0  # both outputs read a column that stands alone
    x = torch.randn(1, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    rows = 100_000
    with torch.no_grad(), sn.drawing(net, sn.local, 3):
        drawn = net(x.expand(rows, 7))
    outs = []
    with torch.no_grad():
        for r in range(1500):
            with sn.drawing(net, sn.exact, r):
                outs.append(net(x)[0])
    exact = torch.stack(outs)
    error = 4 * exact.std(0) * math.sqrt(1 / len(exact) + 1 / rows)
    assert bool(((drawn.mean(0) - exact.mean(0)).abs() < error).all())
    fourth = ((exact - exact.mean(0)) ** 4).mean(0)
    spread = ((fourth - exact.var(0) ** 2) / len(exact) + 2 * exact.var(0) ** 2 / rows).sqrt()
    assert bool(((drawn.var(0) - exact.var(0)).abs() < 4 * spread).all())
    # outputs share gates, which local draws do not know: as the docstring says
    assert float(torch.corrcoef(exact.T)[0, 1].abs()) > 0.1
    assert float(torch.corrcoef(drawn.T)[0, 1].abs()) < 0.02


@pytest.mark.parametrize("draw", [sn.exact, sn.relaxed(0.3), sn.straight_through(0.5)], ids=lambda draw: draw.name)
def test_one_gate_opens_for_all_layers_at_once(draw: sn.Draw) -> None:
    net = sn.mlp((4, 5, 5, 2), skip=True, gates=("inputs", "units"), column_groups={"ab": (0, 1)})
    layers = [layer for layer in drawable_layers(net).values() if isinstance(layer, GatedLinear)]
    inputs = next(part for part in net.modules() if isinstance(part, Gates))
    with torch.no_grad():
        for part in net.modules():
            if isinstance(part, Gates):
                part.omega.zero_()
    seen = set()
    for seed in range(30):
        with torch.no_grad(), sn.drawing(net, draw, seed) as scope:
            out = net(torch.ones(3, 4))
            opened = inputs.drawn(scope)
            weights = [scope.weights(layer)[0].value for layer in layers]
            used = [scope.used(layer) for layer in layers]
        for value, count in zip(weights, (0, 5, 5), strict=True):
            for column, gate in enumerate((0, 0, 1, 2)):
                if float(opened[gate]) == 0.0:
                    assert float(value[:, count + column].abs().max()) == 0.0
        assert (
            all(torch.equal(mask, value != 0) for mask, value in zip(used, weights, strict=True))
            or draw.name != "exact"
        )
        assert bool(out.isfinite().all())
        seen.add(tuple((opened > 0.5).tolist()))
    assert len(seen) >= 6  # of eight


def enumerated(x: Tensor, y: Tensor, noise: float, groups: list[list[int]], psi_gate: float, psi: float) -> list[float]:
    """The posterior probability of each gate, from the evidence of every set of columns."""
    p = x.shape[1]
    owner = {j: g for g, columns in enumerate(groups) for j in columns}
    evidence = {}
    for gamma in itertools.product((False, True), repeat=p):
        inside = x[:, list(gamma)]
        covariance = noise * torch.eye(len(y), dtype=torch.float64) + inside @ inside.T
        normal = torch.distributions.MultivariateNormal(torch.zeros(len(y), dtype=torch.float64), covariance)
        evidence[gamma] = float(normal.log_prob(y))
    top = max(evidence.values())
    total, opened = 0.0, [0.0] * len(groups)
    for gates in itertools.product((False, True), repeat=len(groups)):
        before = math.prod(psi_gate if on else 1 - psi_gate for on in gates)
        for gamma, found in evidence.items():
            # behind a closed gate every gamma has its prior chance, and its weight does nothing
            shown = tuple(on and gates[owner[j]] for j, on in enumerate(gamma))
            own = math.prod(psi if on else 1 - psi for on in gamma)
            weight = before * own * math.exp(evidence[shown] - top)
            total += weight
            opened = [o + weight * on for o, on in zip(opened, gates, strict=True)]
            assert found <= top
    return [o / total for o in opened]


COPIES = 64  # rows so many times, with as many times the noise: the same posterior, and less noise in the gradient


def fitted_alphas(x: Tensor, y: Tensor, noise: float, groups: dict[str, tuple[int, ...]], epochs: int) -> list[float]:
    likelihood = sn.Gaussian(phi=noise * COPIES)
    prior = sn.Prior(psi=0.5)
    net = sn.mlp(
        (x.shape[1], 1), likelihood=likelihood, gates="inputs", column_groups=groups, psi_gate=0.4, prior=prior
    )
    rows = x.repeat(COPIES, 1), y.repeat(COPIES)[:, None]
    settings = {"lr": 0.03, "omega_lr": 0.03, "schedule": "cosine", "ramp_epochs": 0, "dtype": "float64"}
    config = sn.TrainConfig(epochs=epochs, batch_size=len(rows[0]), **settings)
    sn.fit(net, rows, config, progress="off")
    return list(column_inclusion(net).values())


def problem(rows: int = 48, correlation: float = 0.0) -> tuple[Tensor, Tensor]:
    """Six centred columns, orthogonal to each other and to the intercept unless they are to be correlated."""
    generator = torch.Generator().manual_seed(4)
    raw = torch.randn(rows, 6, dtype=torch.float64, generator=generator)
    raw = raw - raw.mean(0)
    x = torch.linalg.qr(raw).Q * math.sqrt(rows)
    if correlation:
        common = x[:, :1]
        x = math.sqrt(1 - correlation) * x + math.sqrt(correlation) * common
    y = x @ torch.tensor([0.0, 0.0, 0.0, 0.2, 0.1, 0.2], dtype=torch.float64)
    noise = torch.randn(rows, dtype=torch.float64, generator=generator)
    return x, y + noise - noise.mean()


@pytest.mark.slow
def test_alpha_of_a_gate_is_the_posterior_of_its_column_where_columns_are_orthogonal() -> None:
    x, y = problem()
    groups = {"three": (0, 1, 2), "pair": (3, 4)}
    want = enumerated(x, y, 1.0, [[0, 1, 2], [3, 4], [5]], 0.4, 0.5)
    assert 0.02 < min(want) < max(want) < 0.98
    got = fitted_alphas(x, y, 1.0, groups, 2500)
    assert max(abs(a - b) for a, b in zip(got, want, strict=True)) < 1e-3, (got, want)


def test_files_chosen_models_and_small_networks(tmp_path: Path) -> None:
    net = sn.mlp((7, 6, 5, 2), skip=True, gates=("inputs", "units"), column_groups=GROUPS, psi_gate=sn.Beta(a=1, b=2))
    gates = next(part for part in net.modules() if isinstance(part, Gates))
    with torch.no_grad():
        gates.omega[gates.names.index("pair")] = -3.0
    chosen = sn.median_model(net)
    assert chosen.inputs is not None
    assert chosen.inputs.tolist() == [False, True, False, True, True, True, True]  # shut with one gate
    x = torch.randn(5, 7, generator=torch.Generator().manual_seed(0))
    sn.save(net, tmp_path / "m.slab", selection=chosen)
    back = sn.load(tmp_path / "m.slab")
    for draw in (sn.exact, sn.median):
        want, got = (sn.predict(one, x, 4, draw=draw, seed=2).mean for one in (net, back))
        torch.testing.assert_close(got, want)
    assert column_inclusion(back) == column_inclusion(net)
    for keep in ("means", "distribution"):
        small = sn.compact(net, chosen, keep)  # type: ignore[call-overload]
        fixed = sn.fixed(chosen.masks) if keep == "means" else sn.fixed(chosen.masks, sn.exact)
        want, got = sn.predict(net, x, 4, draw=fixed, seed=2).mean, sn.predict(small, x, 4, seed=2).mean
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(net(x), _by_hand(net, x), rtol=1e-4, atol=1e-5)


def _by_hand(net: sn.Network, x: Tensor) -> Tensor:
    """The posterior mean alpha_g alpha_ij mu_ij, layer by layer."""
    out = x
    for index, layer in enumerate(part for part in net.body if isinstance(part, GatedLinear)):
        out = torch.cat([out.relu(), x], 1) if index else out
        (units, of_units), *again = layer.reads
        shown = [gates.alpha[group] for gates, group in [(units, of_units), *again] if gates is not None]
        assert layer.bias is not None
        mean = torch.cat(shown) * layer.weight.alpha * layer.weight.mu
        out = out @ mean.T + layer.bias.alpha * layer.bias.mu
    return out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"gates": "channels"}, "gates must be one of inputs, units"),
        ({"gates": ()}, "gates must be different ones of inputs, units, or None"),
        ({"gates": ("units", "units")}, "gates must be different ones of inputs, units, or None"),
        ({"gates": 3}, "gates must be different ones of inputs, units, or None, got 3"),
        ({"gates": "inputs", "column_groups": [(0, 1)]}, "column_groups must be positions of inputs by name"),
        ({"gates": "inputs", "column_groups": {"a": 1}}, r"column_groups\[a\] must be a list of positions of inputs"),
        ({"column_groups": {"a": (0,)}}, "column_groups must be left out without"),
        (
            {"gates": "inputs", "column_groups": {"a": ()}},
            r"column_groups\[a\] must be positions of at least one input",
        ),
        ({"gates": "inputs", "column_groups": {"a": (0,), "b": (0,)}}, r"inputs of no other group \(a\), got 0"),
        ({"gates": "inputs", "column_groups": {"a": (3,)}}, "positions of inputs, 0 to 2, got 3"),
        ({"gates": "inputs", "column_groups": {"x2": (0,)}}, "names other than those of single inputs"),
        ({"gates": "inputs", "psi_gate": 1.0}, "psi_gate must be a number above 0 and below 1"),
        ({"gates": "inputs", "method": "gaussian"}, "left out for a method without indicators"),
        ({"gates": "inputs", "prior": sn.Prior(slab=sn.ScaleMixture())}, "a slab whose divergence has a closed form"),
    ],
)
def test_bad_calls(options: dict[str, object], said: str) -> None:
    with pytest.raises(sn.ArgumentError, match=said):
        sn.mlp((3, 4, 2), **options)  # type: ignore[arg-type]


def test_gates_over_no_weights_are_refused() -> None:
    calls = [
        lambda: sn.mlp((3, 2), gates=("inputs", "units")),
        lambda: sn.convnet((1, 4, 4), 2, channels=(), gates="channels"),
        lambda: sn.convnet((1, 4, 4), 2, hidden=(), gates=("channels", "units")),
    ]
    for call, kind in zip(calls, ("units", "channels", "units"), strict=True):
        with pytest.raises(sn.ArgumentError, match=f"gates must be left out for {kind} where there are no such layers"):
            call()


def test_what_gates_cannot_do_is_refused() -> None:
    net, x = sn.mlp((3, 4, 2), gates="inputs"), torch.zeros(2, 3)
    with pytest.raises(sn.ArgumentError, match="local, relaxed or straight_through in a network with gates"):
        sn.elbo(net, net.likelihood, x, torch.zeros(2, dtype=torch.long), n=2, seed=0, draw=sn.score)
    with pytest.raises(sn.ArgumentError, match='"exact" in a network with gates'):
        sn.elbo(net, net.likelihood, x, torch.zeros(2, dtype=torch.long), n=2, seed=0, draw=sn.exact, kl="sampled")
    with pytest.raises(sn.ArgumentError, match="a network with gates of its inputs"):
        column_inclusion(sn.mlp((3, 2)))


def test_columns_of_gates_of_every_size_are_together_once() -> None:
    """Gates are padded with others of about their size: one of many columns must not make room for as many in each."""
    sizes = [1, 2, 300, 5, 2, 1, 17, 4]
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    groups = {f"g{i}": list(range(end - size, end)) for i, (size, end) in enumerate(zip(sizes, ends, strict=True))}
    net = sn.mlp((ends[-1], 1), gates="inputs", column_groups=groups, likelihood="gaussian")
    layer = next(part for part in net.modules() if isinstance(part, GatedLinear))
    together = {
        int(gate): [column for column in row.tolist() if column >= 0]
        for shared in layer.shared
        for gate, row in zip(shared.which, shared.columns, strict=True)
    }
    assert together == {i: groups[f"g{i}"] for i, size in enumerate(sizes) if size > 1}
    assert sum(shared.columns.numel() for shared in layer.shared) <= 4 * sum(sizes)
