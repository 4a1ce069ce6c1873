from __future__ import annotations

import copy
import logging

import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

import slabnet as sn
from slabnet.model.drawing import drawable_layers
from slabnet.model.layers import SlabLayer
from slabnet.model.posteriors import Gaussian


class Residual(nn.Module):
    """A small residual network of the user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(1, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.block = nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.head = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.norm(self.stem(x)))
        h = h + torch.relu(self.block(h))
        return self.head(h.mean((2, 3)))


class Block(nn.Module):
    """A transformer block written with Linear."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.norm = nn.LayerNorm(width)
        self.feed = nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.Linear(16, width))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, -1)
        x = x + self.out(torch.softmax(q @ k.transpose(-1, -2), -1) @ v)
        return (x + self.feed(x)).mean(1)


def all_in(net: nn.Module) -> nn.Module:
    """Every indicator on, so that posterior means are the original weights."""
    with torch.no_grad():
        for layer in drawable_layers(net).values():
            for block in layer.blocks():
                if block.omega is not None:
                    block.omega.fill_(1e4)
    return net


@pytest.mark.parametrize(("module", "shape"), [(Residual(), (5, 1, 6, 6)), (Block(), (5, 3, 8))])
def test_kept_weights_give_the_same_outputs(module: nn.Module, shape: tuple[int, ...]) -> None:
    module.eval()
    before = copy.deepcopy(module.state_dict())
    net = sn.convert(module)
    x = torch.randn(shape)
    torch.testing.assert_close(all_in(net)(x), module(x))
    assert type(net) is type(module)
    assert all(torch.equal(before[k], v) for k, v in module.state_dict().items())
    assert not any(type(p) in (nn.Linear, nn.Conv2d) for p in net.modules())


def test_it_says_what_was_left(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "slabnet"):
        net = sn.convert(Residual())
    report = sn.conversion(net)
    assert report.converted == ("stem", "block", "head")
    assert [(name, kind) for name, kind, _ in report.left] == [("norm", "BatchNorm2d")]
    assert "converted 3 layers; left as they are: norm (BatchNorm2d): its parameters stay single numbers" in caplog.text


def test_a_converted_network_trains_and_predicts() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(60, 1, 6, 6, generator=generator)
    y = (x.mean((1, 2, 3)) > 0).long()
    net = sn.convert(Residual(), keep_weights=False)
    history = sn.fit(net, (x, y), sn.TrainConfig(epochs=4, batch_size=20))
    assert history[-1].kl > 0
    prediction = sn.predict(net, x, draws=3)
    assert prediction.mean.shape == (60, 3)
    with pytest.raises(sn.ArgumentError, match="class labels from 0 to 2, got 7"):
        sn.fit(net, (x, y + 7), sn.TrainConfig(epochs=1, batch_size=20))
    with pytest.raises(sn.ArgumentError, match="x must be rows that the network can take"):
        sn.fit(net, (x[:, :, 0], y), sn.TrainConfig(epochs=1, batch_size=20))


def test_a_regression_keeps_its_likelihood_beside_a_sequential() -> None:
    net = sn.convert(nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1)))
    x = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    sn.fit(net, (x, x[:, 0]), sn.TrainConfig(epochs=3, batch_size=20), likelihood=sn.Gaussian())
    prediction = sn.predict(net, x, draws=4, intervals=(0.9,))
    assert prediction.kind == "gaussian"
    assert net(x).shape == (40, 1)  # the likelihood is not called as one more layer
    assert isinstance(sn.likelihood_of(copy.deepcopy(net)), sn.Gaussian)


def test_tied_layers_stay_one_layer() -> None:
    shared = nn.Linear(3, 3)
    net = sn.convert(nn.Sequential(shared, nn.ReLU(), shared))
    assert net[0] is net[2]  # type: ignore[index]
    assert len(drawable_layers(net)) == 1


def test_what_cannot_be_converted_is_named() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.middle, self.out = nn.Embedding(7, 4), nn.Linear(4, 4), nn.Linear(4, 7, bias=False)
            self.out.weight = self.embed.weight

        def forward(self, x: Tensor) -> Tensor:
            return self.out(self.middle(self.embed(x)))

    net = sn.convert(Tied())
    reasons = {name: why for name, _, why in sn.conversion(net).left}
    assert sn.conversion(net).converted == ("middle",)
    assert reasons["out"] == "shares its weight with embed"

    hooked = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2), weight_norm(nn.Linear(2, 2)))
    hooked[0].register_forward_hook(lambda *_: None)
    reasons = {name: why for name, _, why in sn.conversion(sn.convert(hooked)).left}
    assert reasons["0"] == "has hooks that would be lost"
    assert "subclass" in reasons["2"]

    with pytest.raises(sn.ArgumentError, match="at least one Linear or Conv layer to convert, got none"):
        sn.convert(nn.ReLU())
    with pytest.raises(sn.ArgumentError, match="converted before"):
        sn.convert(sn.convert(nn.Linear(2, 2)))
    with pytest.raises(sn.ArgumentError, match=r"an nn\.Module, got builtin"):
        sn.convert(torch.relu)  # type: ignore[arg-type]


@pytest.mark.filterwarnings("ignore:enable_nested_tensor", "ignore:The PyTorch API of nested tensors")
def test_torch_s_own_transformer_runs_the_converted_layers() -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    plain = nn.TransformerEncoder(layer, 1).eval()
    net = sn.convert(plain).eval()
    assert sn.conversion(net).converted == ("layers.0.linear1", "layers.0.linear2")
    assert {n for n, _, _ in sn.conversion(net).left} >= {"layers.0.self_attn", "layers.0.self_attn.out_proj"}
    x = torch.randn(2, 5, 8)
    with torch.no_grad():  # where the fused path would read weights directly
        torch.testing.assert_close(all_in(net)(x), plain(x))
        mask = torch.zeros(2, 5, dtype=torch.bool)
        mask[0, 3:] = True
        torch.testing.assert_close(net(x, src_key_padding_mask=mask)[1], plain(x, src_key_padding_mask=mask)[1])


def test_a_single_layer_and_another_posterior() -> None:
    plain = nn.Linear(3, 2)
    net = sn.convert(plain, posterior=Gaussian)
    assert isinstance(net, SlabLayer)
    assert net.weight.omega is None
    torch.testing.assert_close(net(torch.ones(1, 3)), plain(torch.ones(1, 3)))
