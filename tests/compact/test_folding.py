"""The path mask predicts the same as the full median mask with means, whatever cut-off neurons send."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.chosen import masked, random_model
from torch import nn

import slabnet as sn
from slabnet.selection.rules import describe


@given(
    sizes=st.lists(st.integers(1, 5), min_size=2, max_size=5),
    activation=st.sampled_from(["relu", "sigmoid", "softplus", "tanh", "gelu"]),
    share=st.floats(0, 0.6),
    seed=st.integers(0, 10_000),
    skip=st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_linear_chains(sizes: list[int], activation: str, share: float, seed: int, skip: bool) -> None:
    net = sn.mlp(sizes, activation=activation, likelihood="gaussian", skip=skip).double()
    chosen = random_model(net, share, seed, intercepts=0.7)
    folded, small = sn.path_model(net, chosen)
    x = torch.randn(6, sizes[0], generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    torch.testing.assert_close(masked(folded, small, x), masked(net, chosen, x), rtol=1e-9, atol=1e-9)
    for name, mask in small.masks.items():
        assert torch.equal(mask[0], chosen.active[name])  # type: ignore[index]
    assert small.total.median_weights == chosen.total.active_weights


@given(
    share=st.floats(0.02, 0.4),
    seed=st.integers(0, 10_000),
    activation=st.sampled_from(["relu", "sigmoid"]),
    skip=st.booleans(),
)
@example(share=0.125, seed=44, activation="sigmoid", skip=False)  # constants through a padded convolution
@settings(max_examples=50, deadline=None)
def test_padded_convolutions_keep_constant_channels(share: float, seed: int, activation: str, skip: bool) -> None:
    net = sn.convnet((1, 4, 4), 2, channels=(2, 3), hidden=(3,), activation=activation, skip=skip).double()
    chosen = random_model(net, share, seed, intercepts=0.7)
    folded, small = sn.path_model(net, chosen)
    x = torch.randn(3, 1, 4, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    torch.testing.assert_close(masked(folded, small, x), masked(net, chosen, x), rtol=1e-9, atol=1e-9)


def test_grouped_convolutions_without_padding() -> None:
    net = nn.Sequential(
        sn.Conv1d(2, 4, 3, groups=2),
        nn.Sigmoid(),
        sn.Conv1d(4, 4, 2, groups=2),
        nn.Softplus(),
        nn.Flatten(),
        sn.Linear(8, 2),
    ).double()
    for seed in range(12):
        chosen = random_model(net, 0.3, seed, intercepts=0.7)
        folded, small = sn.path_model(net, chosen)
        x = torch.randn(3, 2, 5, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        torch.testing.assert_close(masked(folded, small, x), masked(net, chosen, x), rtol=1e-9, atol=1e-9)


def test_the_original_is_untouched_and_other_networks_refused() -> None:
    net = sn.mlp((3, 4, 2), activation="sigmoid")
    before = [p.clone() for p in net.parameters()]
    sn.path_model(net, describe(net, sn.median_model(net).masks, "test"))
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))
    other = sn.convert(nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3), nn.Linear(3, 2)))
    with pytest.raises(sn.ArgumentError, match="a chain of layers"):
        sn.path_model(other, sn.median_model(other))
