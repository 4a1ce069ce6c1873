"""Contributions of columns: against enumeration of every subset, properties of Shapley values, and other libraries."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

import slabnet as sn
from slabnet.core.noise import keyed_generator
from slabnet.prediction.explain import SCALES

NETWORKS: dict[str, dict[str, Any]] = {
    "linear": {"sizes": (5, 2)},
    "one layer": {"sizes": (5, 8, 2)},
    "two layers, skips": {"sizes": (5, 8, 6, 2), "skip": True},
    "gates": {"sizes": (5, 8, 2), "gates": "inputs", "skip": True},
    "members": {"sizes": (5, 7, 2), "members": 2},
    "kinds of units": {"sizes": (5, 8, 6, 2), "activation": ("relu", "tanh", "identity")},
    "smooth": {"sizes": (5, 6, 2), "activation": "tanh"},
    "dropout": {"sizes": (5, 6, 2), "method": "mc-dropout"},
    "horseshoe": {"sizes": (5, 6, 2), "method": "horseshoe"},
    "ensemble": {"sizes": (5, 6, 2), "method": "ensemble", "options": {"members": 2}},
}


def network(sizes: tuple[int, ...], seed: int = 0, **options: Any) -> sn.Network:
    """A network whose weights are in or out by a coin, and large enough to matter."""
    kind = "categorical" if sizes[-1] > 1 else "bernoulli"
    net = sn.mlp(sizes, seed=seed, start=sn.Start(omega=(-1, 1), mu="he"), likelihood=kind, **options)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            if name.endswith("mu"):
                parameter.normal_(generator=generator)
    return net.double().eval()


def rows(count: int, columns: int, seed: int) -> Tensor:
    return torch.randn(count, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_subsets(f: Callable[[Tensor], Tensor], x: Tensor, background: Tensor, groups: list[list[int]]) -> Tensor:
    """Shapley values by their definition, one subset at a time."""
    count = len(groups)

    def value(inside: tuple[int, ...]) -> Tensor:
        mixed = background.clone()
        for g in inside:
            mixed[:, groups[g]] = x[groups[g]]
        return f(mixed).mean(0)

    phi = []
    for j in range(count):
        others = [g for g in range(count) if g != j]
        terms = []
        for size in range(count):
            weight = math.factorial(size) * math.factorial(count - size - 1) / math.factorial(count)
            terms += [weight * (value((*s, j)) - value(s)) for s in itertools.combinations(others, size)]
        phi.append(torch.stack(terms).sum(0))
    return torch.stack(phi)


@torch.no_grad()
def drawn_functions(net: sn.Network, draws: int, seed: int, link: Any) -> list[Callable[[Tensor], Tensor]]:
    def of_draw(r: int) -> Callable[[Tensor], Tensor]:
        def f(x: Tensor) -> Tensor:
            with torch.no_grad(), sn.drawing(net, sn.exact, keyed_generator(seed, "draw", r), r):
                return link(net(x))

        return f

    return [of_draw(r) for r in range(draws)]


@pytest.mark.parametrize("scale", ["linear", "response"])
@pytest.mark.parametrize("name", NETWORKS)
def test_every_draw_has_the_shapley_values_of_all_subsets(name: str, scale: Any) -> None:
    net = network(**NETWORKS[name])
    x, background = rows(2, 5, 1), rows(3, 5, 2)
    groups = {"a": (0, 3), "b": (1,), "c": (2,), "d": (4,)}
    why = sn.explain(net, x, background=background, draws=2, scale=scale, groups=groups, seed=4, keep_draws=True)
    link = net.likelihood.mean if scale == "response" else lambda output: output
    assert why.by_draw is not None
    for r, f in enumerate(drawn_functions(net, 2, 4, link)):
        expected = torch.stack([by_subsets(f, row, background, [list(g) for g in groups.values()]) for row in x])
        np.testing.assert_allclose(why.by_draw.contributions[r], expected, atol=1e-9)
        np.testing.assert_allclose(why.by_draw.prediction[r], f(x), atol=1e-9)
        np.testing.assert_allclose(why.by_draw.baseline[r], f(background).mean(0), atol=1e-9)
    assert (why.errors == 0).all()
    if scale == "response":
        np.testing.assert_allclose(why.prediction.mean, sn.predict(net, x, 2, seed=4).mean, atol=1e-12)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.booleans(), st.sampled_from(["linear", "response"]))
def test_they_add_up_in_every_draw(seed: int, columns: int, skip: bool, scale: Any) -> None:
    net = network((columns, 6, 5, 2), seed, skip=skip)
    why = sn.explain(
        net, rows(3, columns, seed), background=rows(4, columns, seed + 1), draws=3, scale=scale, keep_draws=True
    )
    one = why.by_draw
    assert one is not None
    np.testing.assert_allclose(one.contributions.sum(2), one.prediction - one.baseline[:, None], atol=1e-9)
    if scale == "linear":
        assert one.regions is not None
        np.testing.assert_allclose(one.regions.sum(2) + one.intercept, one.prediction, atol=1e-9)


class Twice(nn.Module):
    """Two columns that stand for each other, one that nothing reads."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(torch.stack([x[:, 0] + x[:, 1], x[:, 2]], 1))
        return out


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 10_000))
def test_alike_columns_share_and_idle_ones_have_nothing(seed: int) -> None:
    torch.manual_seed(seed)
    net = sn.convert(Twice(nn.Sequential(nn.Linear(2, 6), nn.ReLU(), nn.Linear(6, 2))))
    x, background = rows(2, 4, seed).float(), rows(3, 4, seed + 1).float()
    x[:, 1], background[:, 1] = x[:, 0], background[:, 0]
    why = sn.explain(net, x, background=background, draws=2, seed=seed)
    phi = why.contributions.mean[..., 0]
    np.testing.assert_allclose(phi[:, 0], phi[:, 1], atol=1e-5)
    np.testing.assert_allclose(phi[:, 3], 0, atol=1e-6)


def test_many_columns_take_permutations_whose_error_is_told() -> None:
    net = network((14, 10, 10, 1), seed=3)
    x, background = rows(3, 14, 1), rows(4, 14, 2)
    options: dict[str, Any] = {"background": background, "draws": 1, "scale": "response", "seed": 5}
    few = sn.explain(net, x, **options, pairs=4)
    many = sn.explain(net, x, **options, pairs=300)
    assert (few.errors > 0).any()
    assert (many.errors < few.errors).mean() > 0.9
    away = np.abs(few.contributions.mean - many.contributions.mean) / np.hypot(few.errors, many.errors).clip(1e-12)
    assert (away < 4).mean() > 0.95
    left = few.contributions.mean.sum(1) - (few.prediction.mean - few.baseline.mean)
    np.testing.assert_allclose(left, 0, atol=1e-9)  # exact all the same


def test_few_columns_of_each_unit_are_exact_however_many_there_are() -> None:
    net = sn.mlp((20, 10, 1), likelihood="gaussian", seed=0).double()
    first, last = (part for part in net.body if isinstance(part, sn.Linear))
    with torch.no_grad():
        first.weight.omega.fill_(-30.0)
        last.weight.omega.fill_(30.0)
        for unit in range(10):
            first.weight.omega[unit, [2 * unit, 2 * unit + 1]] = 30.0
    x, background = rows(2, 20, 1), rows(3, 20, 2)
    why = sn.explain(net, x, background=background, draws=2, keep_draws=True)
    assert (why.errors == 0).all()
    assert why.by_draw is not None
    f = drawn_functions(net, 1, 0, lambda output: output)[0]
    pair = by_subsets(f, x[0], background, [[0], [1], list(range(2, 20))])
    np.testing.assert_allclose(why.by_draw.contributions[0, 0, :2], pair[:2], atol=1e-9)


def test_regions_of_a_linear_model_are_its_coefficients() -> None:
    net = network((4, 1), seed=1)
    x = rows(3, 4, 0)
    why = sn.explain(net, x, background=rows(2, 4, 1), draw=sn.mean)
    table = sn.coefficients(net)
    slopes = torch.tensor([row.mean for row in table[1:]], dtype=torch.float64)
    assert why.regions is not None
    assert why.regions.exact
    np.testing.assert_allclose(why.regions.contributions.mean[..., 0], x * slopes, atol=1e-9)
    np.testing.assert_allclose(why.regions.intercept.mean, table[0].mean, atol=1e-9)


def test_first_order_is_called_so() -> None:
    smooth = sn.explain(network((3, 4, 1), activation="tanh"), rows(1, 3, 0), background=rows(2, 3, 1), draws=2)
    assert smooth.regions is not None
    assert not smooth.regions.exact


def test_compact_networks_and_images() -> None:
    net = network((30, 12, 1), seed=2)
    chosen = sn.budget_model(net, weights=60, infeasible="path")
    x, background = rows(2, 30, 1), rows(3, 30, 2)
    options: dict[str, Any] = {"background": background, "draws": 3}
    whole = sn.explain(net, x, draw=sn.fixed(chosen.masks, sn.exact), **options)
    small = sn.explain(sn.compact(net, chosen, "distribution"), x, **options)
    np.testing.assert_allclose(small.contributions.mean, whole.contributions.mean, atol=1e-9)
    image = sn.convnet((1, 4, 4), 2, channels=(2,), hidden=(), seed=0)
    parts = {name: tuple(places) for name, places in zip("abcd", np.arange(16).reshape(4, 4).tolist(), strict=True)}
    x = torch.rand(2, 1, 4, 4)
    why = sn.explain(image, x, background=torch.zeros(1, 1, 4, 4), groups=parts, draws=2, keep_draws=True)
    assert why.by_draw is not None
    left = why.by_draw.contributions.sum(2) - (why.by_draw.prediction - why.by_draw.baseline[:, None])
    np.testing.assert_allclose(left, 0, atol=1e-5)


def test_the_record_is_told_in_text_page_and_lines() -> None:
    net = network((3, 2), seed=1)
    why = sn.explain(net, rows(5, 3, 0), background=rows(2, 3, 1), names=["<age>", "b", "c"], draws=5)
    assert "&lt;age&gt;" in why._repr_html_()
    assert "<age>" not in why._repr_html_()
    assert str(why).startswith("row 0, ")
    assert "and 2 rows more" in str(why)
    lines = list(why.records(first=1))
    assert len(lines) == 5 * 3 * 2
    assert lines[0]["row"] == 1
    assert lines[0]["column"] == "<age>"
    assert why.to_frame().shape == (30, len(lines[0]))
    one = why.row(2)
    assert len(one) == 1
    assert one.contributions.mean[0].tolist() == why.contributions.mean[2].tolist()
    with pytest.raises(sn.ArgumentError, match="number must be below 5"):
        why.row(5)


@pytest.mark.parametrize(
    ("given_", "message"),
    [
        ({"draws": 0}, "draws must be a whole number of at least 1"),
        ({"scale": "log"}, "scale must be one of linear, response"),
        ({"level": 1.0}, "level must be"),
        ({"pairs": 0}, "pairs must be"),
        ({"draw": sn.local}, "draw must be a draw that gives each weight a value"),
        ({"names": ["a"]}, "names must be one for each of 3 inputs"),
        ({"groups": {"a": (0, 1)}}, "groups must be each of the 3 inputs in one of them"),
        ({"background": torch.zeros(0, 3)}, "background must be at least one row"),
        ({"background": torch.zeros(2, 4)}, "explain, background: x must be"),
    ],
)
def test_bad_calls(given_: dict[str, Any], message: str) -> None:
    options: dict[str, Any] = {"background": torch.zeros(2, 3)} | given_
    with pytest.raises(sn.ArgumentError, match=message):
        sn.explain(sn.mlp((3, 2)), torch.zeros(2, 3), **options)
    with pytest.raises(sn.ArgumentError, match="a fitted estimator has a method"):
        sn.explain(sn.SlabRegressor(), torch.zeros(2, 3), background=torch.zeros(2, 3))  # type: ignore[arg-type]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_as_the_exact_explainer_of_shap() -> None:
    shap = pytest.importorskip("shap", reason="shap is not installed: make bench-peers installs it")
    net = network((6, 8, 5, 2), seed=7, skip=True)
    x, background = rows(4, 6, 1), rows(10, 6, 2)
    why = sn.explain(net, x, background=background, draws=5, scale="response", seed=1)
    theirs = shap.explainers.Exact(
        lambda table: sn.predict(net, torch.as_tensor(table), 5, seed=1).mean.numpy(),
        shap.maskers.Independent(background.numpy(), max_samples=10),
    )(x.numpy())
    np.testing.assert_allclose(why.contributions.mean, theirs.values, atol=1e-5)
    np.testing.assert_allclose(why.baseline.mean, theirs.base_values[0], atol=1e-5)


def test_a_layer_without_a_unit_left() -> None:
    for activation in ("relu", ("relu", "tanh")):
        net = network((3, 4, 1), skip=True, activation=activation)
        first = next(part for part in net.body if isinstance(part, sn.Linear))
        *_, last = (part for part in net.body if isinstance(part, sn.Linear))
        with torch.no_grad():
            first.weight.omega.fill_(-40.0)
            last.weight.omega[:, :4] = -40.0
            last.weight.omega[:, 4:] = 40.0
        for scale in SCALES:
            why = sn.explain(net, rows(2, 3, 0), background=rows(2, 3, 1), draws=3, scale=scale, keep_draws=True)
            one = why.by_draw
            assert one is not None
            np.testing.assert_allclose(one.contributions.sum(2), one.prediction - one.baseline[:, None], atol=1e-9)
