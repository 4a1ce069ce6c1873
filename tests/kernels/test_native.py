"""The compiled passes against the readable ones in torch: values, gradients, and the random numbers."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

import slabnet as sn
from slabnet import kernels
from slabnet.kernels import dispatch, native, operators, philox, reference
from slabnet.model.drawing import drawable_layers
from slabnet.model.elbo import elbo

COMPILED = native.library() is not None
NO_COMPILER = shutil.which(os.environ.get("CXX", "g++").split()[0]) is None
needs_compiler = pytest.mark.skipif(not COMPILED, reason="the package was installed without a C compiler")
SEED = torch.tensor(0x1234_5678_9ABC_DEF)
Grads = list[Tensor]


def block(shape: tuple[int, ...], seed: int, wide: bool = False) -> list[Tensor]:
    g = torch.Generator().manual_seed(seed)
    scales = (30.0, 80.0, 200.0) if wide else (1.0, 3.0, 4.0)
    return [scale * torch.randn(shape, generator=g) for scale in scales]


def logs(psi: float = 0.1, s: float = 1.3) -> list[Tensor]:
    found = torch.tensor([psi, 1 - psi, s], dtype=torch.float64).log().float()
    return list(found)


def run(function: Callable[..., Any], given: list[Tensor | None], passes: native.Passes, dtype: Any) -> list[Tensor]:
    """All results, then the gradients of a fixed combination of them with respect to what can have one."""
    learned = (0, 1, 2, 5)  # mu, rho, omega and the scale of the slab; psi is no parameter
    leaves = [None if t is None else t.to(dtype).clone().requires_grad_(i in learned) for i, t in enumerate(given)]
    with kernels.passes(passes):
        results = function(*leaves)
    results = [r for r in results if r.requires_grad]
    weights = [torch.randn(r.shape, generator=torch.Generator().manual_seed(9)).to(dtype) for r in results]
    sum((r * w).sum() for r, w in zip(results, weights, strict=True)).backward()  # type: ignore[union-attr]
    return [r.detach() for r in results] + [p.grad for p in leaves if p is not None and p.grad is not None]


def agree(function: Callable[..., Any], given: list[Tensor | None], rtol: float = 2e-5) -> None:
    """In float32 by C, in float64 by torch: equal to float32's rounding of the terms that were added."""
    ours = run(function, given, "auto", torch.float32)
    theirs = run(function, given, "torch", torch.float64)
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        size = float(b.abs().max()) if b.numel() else 0.0
        torch.testing.assert_close(a.double(), b, rtol=rtol, atol=1e-6 * size + 1e-30)


SHAPES = [(1,), (7,), (16,), (33, 5), (3, 2, 5, 5), (40, 130), (5000,)]


@needs_compiler
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("indicators", [True, False])
def test_moments(shape: tuple[int, ...], indicators: bool) -> None:
    mu, rho, omega = block(shape, 1)
    agree(kernels.slab_moments, [mu, rho, omega if indicators else None, *logs()])


@needs_compiler
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("kl", ["exact", "sampled"])
@pytest.mark.parametrize("hard", [False, True])
@pytest.mark.parametrize("delta", [0.5, 0.2])
@pytest.mark.parametrize("indicators", [True, False])
def test_draws(shape: tuple[int, ...], kl: Any, hard: bool, delta: float, indicators: bool) -> None:
    mu, rho, omega = block(shape, 2)

    def function(*leaves: Tensor) -> Any:
        return kernels.slab_draw(*leaves, SEED, delta, hard, kl)  # type: ignore[call-arg]

    agree(function, [mu, rho, omega if indicators else None, *logs()], rtol=1e-4)


@needs_compiler
def test_one_prior_for_each_weight() -> None:
    mu, rho, omega = block((30, 70), 3)
    psi = torch.rand(30, 70, generator=torch.Generator().manual_seed(4)) * 0.98 + 0.01
    each = [psi.log(), torch.log1p(-psi), logs()[2]]
    agree(kernels.slab_moments, [mu, rho, omega, *each])
    agree(lambda *p: kernels.slab_draw(*p, SEED, 0.5, False, "sampled"), [mu, rho, omega, *each], rtol=1e-4)


@needs_compiler
@given(seed=st.integers(0, 10**6), psi=st.floats(1e-6, 0.999), s=st.floats(0.05, 20))
@settings(max_examples=30, deadline=None)
def test_extreme_parameters_stay_finite_and_agree(seed: int, psi: float, s: float) -> None:
    mu, rho, omega = block((64,), seed, wide=True)
    agree(kernels.slab_moments, [mu, rho, omega, *logs(psi, s)], rtol=1e-4)
    edge = [torch.tensor([0.0, 1.0]), torch.tensor([-150.0, -1e4]), torch.tensor([1e4, -1e4])]
    results = run(kernels.slab_moments, [*edge, *logs(psi, s)], "auto", torch.float32)
    assert all(bool(torch.isfinite(r).all()) for r in results)
    assert results[0].tolist() == [0.0, 0.0]  # alpha of exactly one and zero


@needs_compiler
def test_decided_indicators_are_exactly_zero_and_one() -> None:
    mu, rho = torch.ones(64), torch.full((64,), -1e3)
    for omega, value in ((1e4, 1.0), (-1e4, 0.0)):
        for delta in (0.5, 0.1):
            for hard in (False, True):
                given = torch.full((64,), omega)
                drawn, _ = kernels.slab_draw(mu, rho, given, *logs(), SEED, delta, hard, "exact")
                assert drawn.tolist() == [value] * 64


@needs_compiler
def test_strides_do_not_matter() -> None:
    mu, rho, omega = (t.t() for t in block((13, 21), 5))
    assert not mu.is_contiguous()
    agree(kernels.slab_moments, [mu, rho, omega, *logs()])
    agree(lambda *p: kernels.slab_draw(*p, SEED, 0.5, False, "exact"), [mu, rho, omega, *logs()], rtol=1e-4)


def test_float64_goes_to_torch() -> None:
    assert not native.applies(torch.zeros(1, dtype=torch.float64))
    assert native.applies(torch.zeros(1)) == COMPILED
    with kernels.passes("torch"):
        assert not native.applies(torch.zeros(1))


@needs_compiler
@pytest.mark.parametrize(
    "prior", [sn.Prior(), sn.Prior(psi=sn.Beta(a=1, b=9)), sn.Prior(sigma_beta="learned")], ids=str
)
@pytest.mark.parametrize("method", ["lbbnn", "gaussian"])
@pytest.mark.parametrize(("draw", "kl"), [("local", "exact"), ("relaxed", "exact"), ("straight", "sampled")])
def test_a_whole_step(prior: sn.Prior, method: str, draw: str, kl: Any) -> None:
    """Layers in one node of the graph, against the separate passes in torch: the same bound, the same gradients."""
    value = {"local": sn.local, "relaxed": sn.relaxed(0.4), "straight": sn.straight_through(0.5)}[draw]
    g = torch.Generator().manual_seed(6)
    x, y = torch.randn(37, 20, generator=g), torch.randint(0, 3, (37,), generator=g)
    found = []
    for passes, dtype in (("auto", torch.float32), ("torch", torch.float64)):
        net = sn.mlp((20, 33, 17, 3), method=method, prior=prior, seed=3).to(dtype)
        with kernels.passes(passes):  # type: ignore[arg-type]
            terms = elbo(net, net.likelihood, x.to(dtype), y, n=1000, draw=value, kl=kl, seed=5)
            (terms.kl - terms.log_likelihood).backward()
        found.append([terms.kl, terms.log_likelihood, *(p.grad for p in net.parameters())])
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(
            a.detach().double(), b.detach(), rtol=1e-3, atol=2e-4 * float(b.detach().abs().max())
        )


@needs_compiler
def test_a_layer_without_intercept_and_one_used_twice() -> None:
    layer = sn.Linear(8, 8, bias=False)
    net = torch.nn.Sequential(layer, torch.nn.ReLU(), layer)
    x, grads = torch.randn(5, 8, generator=torch.Generator().manual_seed(0)), []
    for passes, dtype in (("auto", torch.float32), ("torch", torch.float64)):
        net.to(dtype).zero_grad()
        with kernels.passes(passes), sn.drawing(net, sn.local, 1) as scope:  # type: ignore[arg-type]
            out = net(x.to(dtype))
            total = layer.divergence(scope, sampled=False)
        (out.sum() + total).backward()
        grads.append([total.detach().double(), *(p.grad.double() for p in layer.parameters() if p.grad is not None)])
    for a, b in zip(*grads, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)


@needs_compiler
def test_a_second_derivative_is_refused_not_wrong() -> None:
    for draw in (sn.local, sn.relaxed(0.5)):
        net = sn.mlp((3, 2))
        terms = elbo(net, net.likelihood, torch.ones(2, 3), torch.tensor([0, 1]), n=2, draw=draw, seed=0)
        (first,) = torch.autograd.grad(terms.elbo, [net.body[1].weight.mu], create_graph=False, retain_graph=True)
        assert bool(torch.isfinite(first).all())
        with pytest.raises(RuntimeError, match="first derivatives only"):
            torch.autograd.grad(terms.elbo, [net.body[1].weight.mu], create_graph=True)


# ---- random numbers ----


@pytest.mark.parametrize(
    ("rounds", "words"),
    [
        (7, [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48]),
        (10, [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]),
    ],
)
def test_known_answers_of_philox(rounds: int, words: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    """Words published with the generator (Random123) for a counter and a key of zeros."""
    monkeypatch.setattr(philox, "ROUNDS", rounds)
    zero = torch.zeros(1, dtype=torch.int64)
    assert [int(w) for w in philox.philox(zero, zero, torch.tensor(0))] == words


@needs_compiler
def test_the_same_stream_in_c_and_in_torch() -> None:
    fast = reference.noise(SEED, 3, 1000, 5, torch.float64)
    with kernels.passes("torch"):
        slow = reference.noise(SEED, 3, 1000, 5, torch.float64)
    assert all(bool((a == b).all()) for a, b in zip(fast, slow, strict=True))
    eps, nu = kernels.noise_like(torch.empty(4321), SEED)
    with kernels.passes("torch"):
        eps64, nu64 = kernels.noise_like(torch.empty(4321, dtype=torch.float64), SEED)
    assert bool((nu.double() == nu64).all())
    torch.testing.assert_close(eps.double(), eps64, rtol=0, atol=3e-6)


def test_normals_and_uniforms_have_their_distribution() -> None:
    eps, nu = kernels.noise_like(torch.empty(400_000), SEED)
    assert stats.kstest(eps.numpy(), "norm").pvalue > 1e-3
    assert stats.kstest(nu.numpy(), "uniform").pvalue > 1e-3
    assert 0 < float(nu.min()) < float(nu.max()) < 1
    assert abs(float((eps**4).mean()) - 3) < 0.05
    assert abs(float(torch.corrcoef(torch.stack([eps, nu]))[0, 1])) < 0.006


@pytest.mark.parametrize("lag", [1, 16, 32, 100])
def test_weights_steps_and_rows_are_independent(lag: int) -> None:
    eps, _ = kernels.noise_like(torch.empty(200_000), SEED)
    other, _ = kernels.noise_like(torch.empty(200_000), SEED + 1)  # another step
    rows = reference.noise(SEED, 2, 200_000, 0, torch.float32)[0]
    for a, b in ((eps[lag:], eps[:-lag]), (eps, other), (rows[0], rows[1]), (eps[lag:] ** 2, eps[:-lag] ** 2)):
        assert abs(float(torch.corrcoef(torch.stack([a, b]))[0, 1])) < 0.012


@needs_compiler
def test_any_number_of_threads_gives_the_same_numbers() -> None:
    given = [t.requires_grad_() for t in block((123, 457), 7)]
    found = []
    before = torch.get_num_threads()
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            value, kl = kernels.slab_draw(*given, *logs(), SEED, 0.5, False, "exact")
            mean, variance, price = kernels.slab_moments(*given, *logs())
            out = kernels.local_draw(mean, variance, SEED)
            found.append([value, kl, mean, variance, price, out, *torch.autograd.grad(kl + out.sum(), given)])
    finally:
        torch.set_num_threads(before)
    for others in found[1:]:
        assert all(bool((a == b).all()) for a, b in zip(found[0], others, strict=True))


def test_a_row_s_noise_does_not_depend_on_the_batch_it_is_in() -> None:
    mean, variance = torch.zeros(10, 37), torch.ones(10, 37)
    whole = kernels.local_draw(mean, variance, SEED)
    part = kernels.local_draw(mean[4:], variance[4:], SEED, first_row=4)
    assert bool((whole[4:] == part).all())


def test_steps_of_training_draw_new_noise() -> None:
    net = sn.mlp((4, 3, 2))
    g = torch.Generator().manual_seed(0)
    x, outputs = torch.ones(2, 4), []
    for _ in range(2):
        with sn.drawing(net, sn.local, g):
            outputs.append(net(x))
    assert not bool((outputs[0] == outputs[1]).any())


# ---- the operators ----


@needs_compiler
def test_torch_s_own_checks_of_the_operators() -> None:
    mu, rho, omega = (t.requires_grad_() for t in block((6, 5), 8))
    torch.library.opcheck(torch.ops.slabnet.moments.default, (mu, rho, omega, *logs()))
    torch.library.opcheck(torch.ops.slabnet.moments.default, (mu, rho, None, *logs()))
    for kind in (operators.RELAXED, operators.HARD):
        torch.library.opcheck(torch.ops.slabnet.draw.default, (mu, rho, omega, *logs(), SEED, 0.5, kind, 1))
    torch.library.opcheck(torch.ops.slabnet.local.default, (mu, rho.detach().exp().requires_grad_(), SEED, 0, 1e-16))


@needs_compiler
def test_torch_compile_sees_ordinary_operators() -> None:
    mu, rho, omega = (t.requires_grad_() for t in block((6, 5), 8))

    def function(m: Tensor, r: Tensor, o: Tensor) -> Tensor:
        mean, variance, kl = kernels.slab_moments(m, r, o, *logs())
        value, other = kernels.slab_draw(m, r, o, *logs(), SEED, 0.5, False, "exact")
        return (mean * 2 + variance + value).sum() + kl + other

    compiled = torch.compile(function, backend="aot_eager", fullgraph=True)
    for a, b in zip(
        torch.autograd.grad(compiled(mu, rho, omega), (mu, rho, omega)),
        torch.autograd.grad(function(mu, rho, omega), (mu, rho, omega)),
        strict=True,
    ):
        torch.testing.assert_close(a, b)


@pytest.mark.filterwarnings("ignore")  # dynamo's own doing
@pytest.mark.parametrize("draw", ["local", "relaxed"])
@pytest.mark.parametrize(
    "backend",
    [
        "eager",
        "aot_eager",
        pytest.param(
            "inductor",
            marks=[
                pytest.mark.slow,
                pytest.mark.skipif(NO_COMPILER, reason="no compiler"),
                pytest.mark.skipif(" " in sys.prefix, reason="inductor gives the compiler paths without quotes"),
            ],
        ),
    ],
)
def test_the_torch_passes_can_be_compiled(draw: Any, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same fit with `TrainConfig(compile=True)`: traced, differentiated beforehand, and as code of its own."""
    dispatch._compiled.cache_clear()
    traced = functools.partial(torch.compile, backend=backend)
    monkeypatch.setattr("slabnet.kernels.dispatch.torch.compile", traced)
    x = torch.randn(60, 5, generator=torch.Generator().manual_seed(1))
    found = []
    for compiled in (True, False):
        net = sn.mlp((5, 7, 2), seed=1)
        config = sn.TrainConfig(epochs=2, batch_size=20, draw=draw, compile=compiled)
        found.append(sn.fit(net, (x, (x[:, 0] > 0).long()), config)[-1].elbo)
    dispatch._compiled.cache_clear()
    assert found[0] == pytest.approx(found[1], rel=1e-4)


@pytest.mark.parametrize("wanted", ["torch", "baseline", "avx2", "avx512"])
def test_every_variant_gives_the_same_fit(wanted: str) -> None:
    able = ("torch", *native.VARIANTS.get(torch.backends.cpu.get_cpu_capability(), ("baseline",)))
    if wanted not in able or (wanted != "torch" and not COMPILED):
        pytest.skip(f"this processor or installation has no {wanted}")
    code = (
        "import torch, slabnet as sn; torch.set_num_threads(1);"
        "x = torch.randn(60, 5, generator=torch.Generator().manual_seed(1));"
        "net = sn.mlp((5, 7, 2)); sn.fit(net, (x, (x[:, 0] > 0).long()), sn.TrainConfig(epochs=3, batch_size=20));"
        "from slabnet import kernels; print(kernels.variant(), sn.kl(net).item())"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "SLABNET_KERNELS": wanted},
        capture_output=True,
        text=True,
        check=True,
    )
    name, value = ran.stdout.split()
    assert name == ("None" if wanted == "torch" else wanted)
    assert float(value) == pytest.approx(_kl_here(), rel=1e-4)


def _kl_here() -> float:
    x = torch.randn(60, 5, generator=torch.Generator().manual_seed(1))
    net = sn.mlp((5, 7, 2))
    sn.fit(net, (x, (x[:, 0] > 0).long()), sn.TrainConfig(epochs=3, batch_size=20))
    return float(sn.kl(net).detach())


def test_an_unknown_variant_is_refused_by_name() -> None:
    code = "from slabnet import kernels; kernels.variant()"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "SLABNET_KERNELS": "fast"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode
    assert "SLABNET_KERNELS" in ran.stderr
    assert "avx2" in ran.stderr


def test_the_layers_of_a_loop_are_looked_up_once() -> None:
    net = sn.mlp((3, 2))
    layers = drawable_layers(net)
    with sn.drawing(layers, sn.local, 0):
        first = net(torch.ones(1, 3))
    with sn.drawing(net, sn.local, 0):
        assert bool((net(torch.ones(1, 3)) == first).all())


def test_autocast_changes_nothing_under_the_compiled_passes() -> None:
    """Half the bytes would be half a buffer."""
    x = torch.randn(20, 12, generator=torch.Generator().manual_seed(0))
    found = []
    for autocast in (False, True):
        net = sn.mlp((12, 70, 3), seed=1)
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast), sn.drawing(net, sn.local, 0):
            out = net.body(x)
            out.square().sum().backward()
        found.append([out.detach(), *(p.grad for p in net.parameters() if p.grad is not None)])
    for one, other in zip(*found, strict=True):
        assert other.dtype == torch.float32
        torch.testing.assert_close(one, other)
