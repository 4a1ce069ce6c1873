from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import slabnet as sn
from slabnet.model.drawing import drawable_layers
from slabnet.model.networks import build_network


@given(sizes=st.lists(st.integers(1, 6), min_size=2, max_size=5), rows=st.integers(1, 4), seed=st.integers(0, 99))
@settings(max_examples=30, deadline=None)
def test_shapes_of_an_mlp(sizes: list[int], rows: int, seed: int) -> None:
    net = sn.mlp(sizes, likelihood="gaussian", seed=seed)
    with sn.drawing(net, sn.exact, seed):
        assert net(torch.zeros(rows, sizes[0])).shape == (rows, sizes[-1])
    layers = list(drawable_layers(net).values())
    assert [tuple(layer.blocks()[0].mu.shape) for layer in layers] == list(zip(sizes[1:], sizes[:-1], strict=True))
    assert all(len(layer.blocks()) == 2 for layer in layers)  # every intercept has an indicator too (k = 0)


@given(
    shape=st.one_of(*(st.tuples(st.integers(1, 3), *[st.integers(4, 9)] * d) for d in (1, 2, 3))),
    channels=st.lists(st.integers(1, 4), max_size=2),
    hidden=st.lists(st.integers(1, 5), max_size=1),
    pool=st.integers(1, 2),
)
@settings(max_examples=20, deadline=None)
def test_shapes_of_a_convnet(shape: tuple[int, ...], channels: list[int], hidden: list[int], pool: int) -> None:
    net = sn.convnet(shape, 3, channels=channels, hidden=hidden, pool=pool)
    with sn.drawing(net, sn.local, 0):
        assert net(torch.zeros(2, *shape)).shape == (2, 3)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: sn.mlp((4,)), "mlp: sizes must be at least two widths"),
        (lambda: sn.mlp((4, 0, 2)), "mlp: sizes must be a whole number of at least 1, got 0"),
        (lambda: sn.mlp((4, 2.5, 2)), "got 2.5"),
        (lambda: sn.mlp((4, 2), activation="step"), "mlp: activation must be one of relu"),
        (lambda: sn.mlp((4, 2), method="magic"), "network: method must be one of lbbnn"),
        (lambda: sn.mlp((4, 1)), 'likelihood must be "bernoulli" or "gaussian" for one output'),
        (lambda: sn.mlp((4, 2), prior=sn.Prior(input_psi=(0.1, 0.2))), "one number for each of the 4 inputs"),
        (lambda: sn.convnet((1, 8, 8), 2, kernel_size=4), "convnet: kernel_size must be odd"),
        (lambda: sn.convnet((8,), 2), "channels and one to three sizes"),
        (lambda: sn.convnet((1, 2, 2), 2, channels=(2, 2, 2)), "convnet: pool must be small enough"),
        (lambda: sn.Linear(0, 3), "Linear: every size must be a whole number of at least 1, got 0"),
        (lambda: sn.Conv1d(3, 4, 3, groups=2), "Conv1d: groups must be a divisor of 3 and 4 channels, got 2"),
        (lambda: sn.Conv2d(1, 1, 3, stride=2, padding="same"), "Conv2d: padding must be a number"),
        (lambda: sn.Conv2d(1, 1, (3, 3, 3)), "Conv2d: kernel_size must be a whole number or 2 of them"),
        (lambda: sn.mlp((2, 2), seed=-1), "network: seed must be a whole number of at least 0"),
    ],
)
def test_bad_networks(make: object, said: str) -> None:
    with pytest.raises(sn.ArgumentError) as caught:
        make()  # type: ignore[operator]
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_start_and_seed() -> None:
    first, same, other = (sn.mlp((5, 4, 3), seed=s) for s in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(first.parameters(), same.parameters(), strict=True))
    assert not torch.equal(first.body[1].weight.mu, other.body[1].weight.mu)
    assert not torch.equal(first.body[1].weight.omega[:3, :4], first.body[3].weight.omega[:3, :4])
    omega = first.body[1].weight.omega.detach()
    assert float(omega.min()) >= 2.0
    assert float(omega.max()) <= 3.0
    paper = sn.mlp((5, 4, 3), start=sn.Recipe.named("paper").start)
    assert float(paper.body[1].weight.mu.detach().abs().max()) <= 0.2
    wide = sn.mlp((500, 400, 2))
    assert float(wide.body[1].weight.mu.detach().std()) == pytest.approx((2 / 500) ** 0.5, rel=0.02)


@pytest.mark.parametrize("method", sn.METHODS)
def test_a_specification_builds_the_same_network(method: str) -> None:
    prior = sn.Prior(psi=sn.Beta(a=2), sigma_beta="learned", exclude=(1,))
    for net in (
        sn.mlp((4, 3, 2), method=method, prior=prior, activation="tanh", likelihood=sn.Gaussian(outputs=2)),
        sn.convnet((2, 6, 6), 3, channels=(2,), hidden=(4,), method=method, prior=sn.Prior(psi=(0.1, 0.2, 0.3))),
    ):
        again = build_network(net.spec)
        assert again.spec == net.spec
        again.load_state_dict(net.state_dict())
        x = torch.randn(3, *net.row_shape, generator=torch.Generator().manual_seed(0))
        torch.testing.assert_close(again(x), net(x))
