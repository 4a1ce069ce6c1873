"""A compact network gives what the masked one gives, draws what it draws, and learns what it learns."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.chosen import masked, random_model
from torch import Tensor, nn

import slabnet as sn
from slabnet.compact.layers import Decided, KeptLinear
from slabnet.compact.network import Compact
from slabnet.config.activations import ACTIVATIONS
from slabnet.core.containers import read_container, write_container
from slabnet.kernels import native, noise_like, passes, reference
from slabnet.kernels.sparse import Elementwise, SparseChain, SparseLayer, by_rows
from slabnet.model.activations import in_c, make_activation
from slabnet.model.drawing import drawable_layers
from slabnet.selection.rules import describe

ACTIVATION = st.sampled_from(["relu", "sigmoid", "softplus", "tanh", "gelu", "leaky_relu", "silu"])


def rows(shape: tuple[int, ...], seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def averaged(net: nn.Module, x: Tensor, **options: object) -> Tensor:
    return sn.predict(net, x, 3, seed=5, keep_draws=True, **options).samples  # type: ignore[arg-type, return-value]


def same(net: nn.Module, chosen: sn.Selection, x: Tensor) -> None:
    """Both kinds of small network against the masked one; infeasible models are refused."""
    if not chosen.feasible:
        with pytest.raises(sn.ArgumentError, match="every path ends in"):
            sn.compact(net, chosen)
        return
    small = sn.compact(net, chosen)
    with torch.no_grad():
        torch.testing.assert_close(small(x), masked(net, chosen, x), rtol=1e-9, atol=1e-9)
    assert small.weights == chosen.total.active_weights or any(isinstance(p, nn.Conv2d) for p in small.modules())
    drawn = sn.compact(net, chosen, "distribution")
    want = averaged(net, x, draw=sn.fixed(chosen.masks, sn.exact))
    torch.testing.assert_close(averaged(drawn, x), want, rtol=1e-9, atol=1e-9)


@given(
    sizes=st.lists(st.integers(1, 6), min_size=2, max_size=5),
    activation=ACTIVATION,
    share=st.floats(0.1, 0.6),
    seed=st.integers(0, 10_000),
    skip=st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_linear_chains(sizes: list[int], activation: str, share: float, seed: int, skip: bool) -> None:
    net = sn.mlp(sizes, activation=activation, likelihood="gaussian", skip=skip).double()
    same(net, random_model(net, share, seed, rho=(-3, 0)), rows((6, sizes[0]), seed))


@given(
    share=st.floats(0.05, 0.4),
    seed=st.integers(0, 10_000),
    activation=st.sampled_from(["relu", "sigmoid"]),
    skip=st.booleans(),
)
@example(share=0.125, seed=44, activation="sigmoid", skip=False)  # constants through a padded convolution
@settings(max_examples=30, deadline=None)
def test_convolutions(share: float, seed: int, activation: str, skip: bool) -> None:
    net = sn.convnet((2, 5, 5), 2, channels=(3, 4), hidden=(3,), activation=activation, skip=skip).double()
    chosen = random_model(net, share, seed, rho=(-3, 0))
    x = rows((3, 2, 5, 5), seed)
    if chosen.feasible:
        with torch.no_grad():
            torch.testing.assert_close(sn.compact(net, chosen)(x), masked(net, chosen, x), rtol=1e-9, atol=1e-9)
        drawn, want = sn.compact(net, chosen, "distribution"), sn.fixed(chosen.masks, sn.exact)
        torch.testing.assert_close(averaged(drawn, x), averaged(net, x, draw=want), rtol=1e-9, atol=1e-9)


def test_modules_of_other_people_with_groups_and_pooling() -> None:
    net = nn.Sequential(
        sn.Conv1d(4, 6, 3, groups=2, padding=1, padding_mode="circular"),
        nn.ELU(0.7),
        nn.AvgPool1d(2),
        nn.Sequential(sn.Conv1d(6, 4, 2, groups=2), nn.Softplus(2.0)),
        nn.Flatten(),
        sn.Linear(12, 2),
    ).double()
    for seed in range(12):
        chosen = random_model(net, 0.3, seed, rho=(-3, 0))
        x = rows((3, 4, 8), seed)
        if chosen.feasible:
            with torch.no_grad():
                torch.testing.assert_close(sn.compact(net, chosen)(x), masked(net, chosen, x), rtol=1e-9, atol=1e-9)
            drawn, want = sn.compact(net, chosen, "distribution"), sn.fixed(chosen.masks, sn.exact)
            torch.testing.assert_close(averaged(drawn, x), averaged(net, x, draw=want), rtol=1e-9, atol=1e-9)


def test_what_was_kept_is_told() -> None:
    net = sn.mlp((5, 4, 2))
    masks = {name: tuple(torch.zeros_like(b.mu, dtype=torch.bool) for b in layer.blocks())
             for name, layer in drawable_layers(net).items()}  # fmt: skip
    masks["body.1"][0][2, 1] = masks["body.1"][0][2, 4] = masks["body.1"][0][0, 3] = True
    masks["body.3"][0][1, 2] = True
    small = sn.compact(net, describe(net, masks, "test"))
    assert small.inputs.tolist() == [1, 4]
    assert {name: kept.tolist() for name, kept in small.neurons.items()} == {"body.1": [2], "body.3": [0, 1]}
    assert small.weights == 3
    assert (small.keep, small.outputs, small.row_shape) == ("means", 2, (5,))
    assert "3 weights" not in repr(small)
    assert "1 x 2, 2 weights" in repr(small)


@pytest.mark.parametrize("draw", ["local", "relaxed", "straight_through"])
@pytest.mark.parametrize("keep_all_intercepts", [True, False])
@pytest.mark.parametrize("skip", [False, True])
def test_post_training_is_that_of_the_masked_network(draw: str, keep_all_intercepts: bool, skip: bool) -> None:
    net = sn.mlp((12, 20, 15, 3), activation="sigmoid" if keep_all_intercepts else "relu", skip=skip).double()
    chosen = random_model(net, 0.12, 3, rho=(-3, 0))
    x = rows((60, 12))
    data = (x, torch.arange(60) % 3)
    small = sn.compact(net, chosen, "distribution")
    assert len(small.inputs) < 12 or len(next(iter(small.neurons.values()))) < 20
    config = sn.TrainConfig(epochs=4, batch_size=15, draw=draw, lr=0.01, dtype="float64")
    before = {name: p.detach().clone() for name, p in small.named_parameters()}
    full = copy.deepcopy(net)
    ours, theirs = sn.fit(small, data, config), sn.fit(full, data, config, fixed=chosen)
    assert ours.column("log_likelihood") == pytest.approx(theirs.column("log_likelihood"), rel=1e-9)
    again = sn.compact(full, chosen, "distribution")  # what the full one has become, cut the same way
    moved = 0.0
    for (name, got), want in zip(small.named_parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-9)
        moved = max(moved, float((got.detach() - before[name]).abs().max()))
    assert moved > 0.05
    small.put_back(net)
    for got, want in zip(sn.compact(net, chosen, "distribution").parameters(), small.parameters(), strict=True):
        assert torch.equal(got, want)
    with pytest.raises(sn.ArgumentError, match="put_back: keep must be distribution"):
        sn.compact(net, chosen).put_back(net)


def test_post_training_convolutions_and_with_other_priors() -> None:
    for prior in (sn.Prior(), sn.Prior(psi=sn.Beta(a=1.0, b=9.0)), sn.Prior(slab=sn.ScaleMixture())):
        net = sn.convnet((1, 6, 6), 3, channels=(4,), hidden=(5,), prior=prior).double()
        chosen = random_model(net, 0.3, 1, rho=(-3, 0))
        data = (rows((20, 1, 6, 6)), torch.arange(20) % 3)
        config = sn.TrainConfig(epochs=3, batch_size=10, lr=0.01, dtype="float64")
        small = sn.compact(net, chosen, "distribution")
        sn.fit(small, data, config)
        other = copy.deepcopy(net)
        sn.fit(net, data, config, fixed=chosen)
        small.put_back(other)
        for got, want in zip(sn.compact(other, chosen, "distribution").parameters(), small.parameters(), strict=True):
            assert torch.equal(got, want)
        for got, want in zip(small.parameters(), sn.compact(net, chosen, "distribution").parameters(), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-8, atol=1e-9)


def test_post_training_in_float32_and_on_the_torch_passes() -> None:
    data = (rows((60, 12), dtype=torch.float32), torch.arange(60) % 3)
    found = []
    for kind in ("auto", "torch"):
        net = sn.mlp((12, 20, 15, 3))
        chosen = random_model(net, 0.12, 3, rho=(-3, 0))
        small = sn.compact(net, chosen, "distribution")
        with passes(kind):  # type: ignore[arg-type]
            sn.fit(small, data, sn.TrainConfig(epochs=3, batch_size=15, lr=0.01))
        found.append(torch.cat([p.detach().flatten() for p in small.parameters()]))
    torch.testing.assert_close(found[0], found[1], rtol=1e-3, atol=1e-4)


def test_a_sparse_pass_in_c_has_the_numbers_and_gradients_of_the_separate_ones() -> None:
    net = sn.mlp((40, 70, 30, 3))
    small = sn.compact(net, random_model(net, 0.1, 1, rho=(-3, 0)), "distribution")
    x, y = rows((130, 40), dtype=torch.float32), torch.arange(130) % 3
    found = []
    for kind in ("auto", "torch"):
        with passes(kind):  # type: ignore[arg-type]
            terms = sn.elbo(small, small.likelihood, x, y, n=130, seed=4)
        small.zero_grad()
        (terms.log_likelihood - terms.kl).backward()  # type: ignore[no-untyped-call]
        grads = [p.grad.clone() for p in small.parameters() if p.grad is not None]
        found.append((terms.log_likelihood.detach(), terms.kl.detach(), *grads))
    for got, want in zip(*found, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


def test_means_can_be_trained_without_what_was_cut_coming_back() -> None:
    net = sn.mlp((6, 10, 2))
    small = sn.compact(net, random_model(net, 0.2, 2, rho=(-3, 0)))
    x, y = rows((40, 6), dtype=torch.float32), torch.arange(40) % 2
    before, mask = small(x).detach(), small.layers[0].mask
    optimiser = torch.optim.Adam(small.parameters(), 0.05)
    for _ in range(5):
        optimiser.zero_grad()
        nn.functional.cross_entropy(small(x), y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    with torch.no_grad():
        after = small(x)  # in C, from the parameters as they now are
    assert float((after - before).abs().max()) > 0.05
    torch.testing.assert_close(after, small.body(x), rtol=1e-5, atol=1e-6)
    first = small.layers[0]
    assert isinstance(first, KeptLinear)
    assert not first.weight[~mask].any()
    twin = copy.deepcopy(small)
    with torch.no_grad():
        torch.testing.assert_close(twin(x), after)
        first.values.zero_()
        torch.testing.assert_close(twin(x), after)


@pytest.mark.parametrize("keep", ["means", "distribution"])
@pytest.mark.parametrize("kind", ["mlp", "convnet", "gaussian"])
def test_files(keep: str, kind: str, tmp_path: Path) -> None:
    if kind == "convnet":
        net = sn.convnet((1, 8, 8), 3, channels=(4, 6), hidden=(10,))
    else:
        prior = sn.Prior(intercept_psi=0.25)
        net = sn.mlp((30, 40, 20, 3), prior=prior, likelihood="gaussian" if kind == "gaussian" else "categorical")
    chosen = random_model(net, 0.15, 1, rho=(-3, 0))
    small = sn.compact(net, chosen, keep)  # type: ignore[arg-type]
    path = tmp_path / "small.slab"
    sn.save(small, path, note="small")
    again = sn.load(path)
    assert isinstance(again, Compact)
    assert sn.read_header(path)["about"] == {"note": "small"}
    x = rows((4, *(small.row_shape or ())), dtype=torch.float32)
    assert torch.equal(averaged(again, x), averaged(small, x))
    assert torch.equal(again.inputs, small.inputs)
    assert {n: k.tolist() for n, k in again.neurons.items()} == {n: k.tolist() for n, k in small.neurons.items()}
    if keep == "distribution" and kind == "mlp":
        assert [part.prior.spec() for part in again.layers] == [part.prior.spec() for part in small.layers]
        assert [part.prior.intercept_psi for part in again.layers] == [0.25] * 3
        data = (rows((30, 30), dtype=torch.float32), torch.arange(30) % 3)
        for one in (small, again):
            sn.fit(one, data, sn.TrainConfig(epochs=2, batch_size=10))
        assert torch.equal(averaged(again, x), averaged(small, x))


def test_a_file_that_does_not_fit_is_refused_in_one_line(tmp_path: Path) -> None:
    net = sn.mlp((30, 40, 3))
    path = tmp_path / "small.slab"
    sn.save(sn.compact(net, random_model(net, 0.1, 1, rho=(-3, 0)), "distribution"), path)
    header, tensors = read_container(path, "load", 1)
    sn.load(path)

    def refused(**changes: object) -> str:
        changed = json.loads(json.dumps(header))
        changed["network"] |= changes.pop("network", {})  # type: ignore[operator]
        write_container(tmp_path / "bad.slab", changed, {**tensors, **changes})  # type: ignore[dict-item]
        with pytest.raises(sn.FileError) as said:
            sn.load(tmp_path / "bad.slab")
        assert "\n" not in str(said.value)
        return str(said.value)

    columns = next(name for name in tensors if name.endswith("columns"))
    assert "with the unknown more" in refused(more=torch.zeros(1))
    assert "columns" in refused(**{columns: tensors[columns][:-1].clone()})
    refused(**{columns: tensors[columns].short() * 0 + 9999})
    refused(**{columns: tensors[columns].short() * 0 - 1})
    refused(**{columns: tensors[columns].float()})
    refused(network={"parts": [{"part": "Exec", "code": "1"}]})
    refused(network={"parts": []})
    refused(network={"keep": "all"})
    refused(network={"parts": [{"part": "Module"}]})


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layer(x)  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("part", "said"),
    [
        (nn.LayerNorm(3), "LayerNorm (1)"),
        (nn.BatchNorm1d(3), "BatchNorm1d (1)"),
        (Residual(), "Residual (1)"),
        (nn.Hardtanh(), "Hardtanh (1)"),
    ],
)
def test_what_cannot_be_cut_is_refused_by_name(part: nn.Module, said: str) -> None:
    net = sn.convert(nn.Sequential(nn.Linear(3, 3), part, nn.Linear(3, 2)))
    with pytest.raises(sn.ArgumentError, match="which cannot be cut exactly") as error:
        sn.compact(net, sn.median_model(net))
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_bad_calls() -> None:
    net, other = sn.mlp((3, 4, 2)), sn.mlp((3, 5, 2))
    chosen = sn.median_model(net)
    small = sn.compact(net, chosen)
    for arguments, said in [
        ((net, chosen, "both"), "keep must be one of means, distribution"),
        ((net, None), "selection must be a Selection"),
        (("net", chosen), "net must be a network"),
        ((other, chosen), "selection must be one of this network"),
        ((small, chosen), "Compact"),
        ((sn.mlp((3, 4, 2), method="concrete-dropout"), chosen), "ConcreteDropout"),
    ]:
        with pytest.raises(sn.ArgumentError, match=said):
            sn.compact(*arguments)  # type: ignore[arg-type]
    for bad in (torch.zeros(2, 4), torch.full((2, 3), float("nan"))):
        with pytest.raises(sn.ArgumentError, match="predict: x must be"):
            sn.predict(small, bad)


@given(places=st.lists(st.integers(0, 5000), min_size=1, max_size=40), seed=st.integers(-(2**63), 2**63 - 1))
@settings(max_examples=30, deadline=None)
def test_noise_of_some_elements_is_theirs_in_the_whole(places: list[int], seed: int) -> None:
    key, at = torch.tensor(seed), torch.tensor(places)
    for dtype in (torch.float32, torch.float64):
        whole = noise_like(torch.empty(5001, dtype=dtype), key)
        some = noise_like(torch.empty(len(places), dtype=dtype), key, at)
        assert all(torch.equal(a[at], b) for a, b in zip(whole, some, strict=True))
        in_c = native.applies(whole[0])
        by_row = torch.ops.slabnet.noise(key, 3, 5001, 2, True) if in_c else reference.noise(key, 3, 5001, 2, dtype)
        some = reference.noise(key, 3, len(places), 2, dtype, at)
        assert all(torch.equal(a[:, at], b) for a, b in zip(by_row, some, strict=True))


KINDS = [*map(make_activation, ACTIVATIONS), nn.Softplus(0.5, 3.0), nn.ELU(0.3), nn.LeakyReLU(0.2)]


def as_in_c(part: nn.Module) -> Elementwise:
    found = in_c(part)
    assert found is not None
    return found


@pytest.mark.skipif(native.library() is None, reason="there is no compiler here")
@pytest.mark.parametrize("activation", KINDS, ids=str)
def test_the_chain_in_c_is_that_in_torch(activation: nn.Module) -> None:
    generator = torch.Generator().manual_seed(1)
    layers, inputs = [], 12
    for units, after, own in [(30, activation, True), (9, nn.Identity(), False), (4, activation, True)]:
        mask = torch.rand(units, inputs, generator=generator) < 0.3
        values = torch.randn(int(mask.sum()), generator=generator)
        bias = torch.randn(units, generator=generator) if own else None
        layers.append(SparseLayer(mask.shape[1], *by_rows(mask), values, bias, as_in_c(after)))
        inputs = units
    chain = SparseChain(torch.randperm(40, generator=generator)[:12].int(), layers)
    for count in (0, 1, 5, 7, 8, 63, 64, 65, 700):
        x = torch.randn(count, 40, generator=generator) * 5
        torch.testing.assert_close(chain(x), chain.reference(x.double()).float(), rtol=1e-5, atol=1e-5)
    assert chain(torch.full((1, 40), float("nan"))).isnan().any()


def test_decided_layers_say_so() -> None:
    net = sn.mlp((6, 8, 2))
    small = sn.compact(net, sn.budget_model(net, weights=30), "distribution")
    assert all(isinstance(layer, Decided) and layer.decided for layer in small.layers)
    assert sn.median_model(small).weights == small.weights
    assert sn.predict(small, torch.zeros(2, 6)).used_weights == small.weights
