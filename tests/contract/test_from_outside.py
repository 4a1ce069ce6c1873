"""A slab, an activation and a draw from outside the package, in everything the package does with its own."""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
from unittest import mock

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import slabnet as sn
from slabnet.config.activations import ACTIVATIONS
from slabnet.config.settings import DRAWS
from slabnet.config.slabs import SLABS
from slabnet.model import draws
from slabnet.model.drawing import Draw
from slabnet.model.posteriors import Block, Drawn, draw_exact

Data = tuple[Tensor, Tensor]
QUICK = sn.TrainConfig(epochs=40, batch_size=50, lr=0.01, omega_lr=0.05)


class Logistic(sn.SlabSettings):
    """The logistic distribution: heavier tails than a normal, and no closed divergence."""

    name: ClassVar[str] = "logistic"


class LogisticSlab(sn.Slab):
    """Density exp(-|b|) / (1 + exp(-|b|))^2 / s, b = beta / s."""

    def log_density(self, beta: Tensor, log_s: Tensor) -> Tensor:
        size = beta.abs() * torch.exp(-log_s)
        return -size - 2 * torch.log1p(torch.exp(-size)) - log_s


class Softsign(nn.Softsign):
    """x / (1 + |x|)."""


SOFTSIGN = sn.Activation(
    name="softsign",
    module="Softsign",
    at_zero=0.0,
    piecewise_linear=False,
    onnx=lambda graph, x, told: graph.add("Softsign", x),
    numpy="x / (1 + np.abs(x))",
    javascript="x / (1 + Math.abs(x))",
)


@dataclass(frozen=True)
class StructureOnly(Draw):
    """gamma ~ Bernoulli(alpha), beta = mu."""

    def draw(self, block: Block, seed: Tensor) -> Drawn:
        gamma = draw_exact(block, seed).gamma
        assert gamma is not None
        return Drawn(gamma * block.mu, gamma, block.mu, None)


@dataclass(frozen=True)
class Expected(Draw):
    """alpha in the place of gamma, beta ~ N(mu, sigma^2): a draw to train with."""

    @property
    def trains(self) -> bool:
        return True

    def draw(self, block: Block, seed: Tensor) -> Drawn:
        drawn = draw_exact(block, seed)
        assert block.omega is not None
        alpha = torch.sigmoid(block.omega)
        return Drawn(alpha * drawn.beta, alpha, drawn.beta, drawn.eps)


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    with mock.patch.dict(SLABS), mock.patch.dict(ACTIVATIONS), mock.patch.dict(draws._TRAINING):
        sn.register_slab(Logistic, LogisticSlab)
        sn.register_activation(SOFTSIGN, Softsign)
        sn.register_draw("expected", lambda delta: Expected())
        yield
        DRAWS.remove("expected")


@pytest.fixture
def net(blobs: Data) -> sn.Network:
    made = sn.mlp((4, 8, 3), activation="softsign", prior=sn.Prior(slab="logistic", sigma_beta=0.4))
    sn.fit(made, blobs, QUICK)
    return made


def load_module(path: Path) -> object:
    spec = importlib.util.spec_from_file_location("exported", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_fit_predict_file_export_and_report(net: sn.Network, blobs: Data, tmp_path: Path) -> None:
    x, y = blobs
    assert sn.accuracy(sn.predict(net, x, 10), y) > 0.8
    chosen = sn.median_model(net)
    sn.save(net, tmp_path / "m.slab", selection=chosen)
    again = sn.load(tmp_path / "m.slab")
    assert torch.equal(sn.predict(again, x, 4).mean, sn.predict(net, x, 4).mean)
    assert isinstance(again.body[1].prior.slab, LogisticSlab)
    wanted = sn.predict(net, x, draw=sn.fixed(chosen.masks)).mean.numpy()
    sn.export(tmp_path / "m.slab", "numpy", tmp_path / "m.py")
    found = load_module(tmp_path / "m.py").predict(x.numpy())  # type: ignore[attr-defined]
    np.testing.assert_allclose(found["probabilities"], wanted, atol=1e-5)
    sn.export(tmp_path / "m.slab", "torch", tmp_path / "m.pt2")
    program = torch.export.load(tmp_path / "m.pt2").module()
    np.testing.assert_allclose(program(x)["probabilities"].detach().numpy(), wanted, atol=1e-5)
    sn.export(tmp_path / "m.slab", "onnx", tmp_path / "m.onnx")
    import onnxruntime

    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    (out,) = session.run(["probabilities"], {"x": x.numpy()})
    np.testing.assert_allclose(out, wanted, atol=1e-5)
    page = sn.write_report(tmp_path / "r.html", net, (x, y)).read_text()
    assert '"softsign": (x) => (x / (1 + Math.abs(x)))' in page


@pytest.mark.parametrize("draw", ["local", "relaxed", "straight_through", "score"])
def test_the_slab_trains_with_every_draw(draw: str, blobs: Data) -> None:
    prior = sn.Prior(slab=Logistic(), sigma_beta="learned")
    made = sn.mlp((4, 5, 3), prior=prior)
    config = sn.TrainConfig(epochs=2, batch_size=50, draw=draw)  # type: ignore[arg-type]
    assert math.isfinite(sn.fit(made, blobs, config)[-1].elbo)
    small = sn.compact(made, sn.budget_model(made, weights=20), "distribution")
    assert math.isfinite(sn.fit(small, blobs, config)[-1].elbo)
    assert isinstance(small.layers[0].prior.slab, LogisticSlab)


def test_the_draw_predicts_and_is_one_of_the_bound(net: sn.Network, blobs: Data) -> None:
    x, y = blobs
    both, structure = sn.predict(net, x, 60), sn.predict(net, x, 60, draw=StructureOnly())
    assert structure.epistemic.mean() < both.epistemic.mean()
    terms = sn.elbo(net, net.likelihood, x, y, n=150, seed=0, draw=StructureOnly())
    assert math.isfinite(float(terms.log_likelihood.detach()))


def test_the_draw_trains_by_its_name(blobs: Data, tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text('[train]\ndraw = "expected"\nepochs = 60\nbatch_size = 50\nlr = 0.03\n')
    made = sn.mlp((4, 8, 3))
    config = sn.TrainConfig.from_toml(tmp_path / "t.toml")
    history = sn.fit(made, blobs, config, checkpoint=tmp_path / "run")
    assert history.config["draw"] == "expected"
    assert sn.accuracy(sn.predict(made, blobs[0], 10), blobs[1]) > 0.8
    again = sn.mlp((4, 8, 3), seed=1)
    sn.fit(again, blobs, config, checkpoint=tmp_path / "run", resume=True)
    assert all(torch.equal(a, b) for a, b in zip(made.parameters(), again.parameters(), strict=True))
    chosen = sn.budget_model(made, weights=20)
    sn.fit(made, blobs, config.model_copy(update={"epochs": 2}), fixed=chosen)
    sn.save(made, tmp_path / "m.slab", selection=chosen)
    assert torch.equal(sn.load(tmp_path / "m.slab")(blobs[0]), made(blobs[0]))
    sn.export(tmp_path / "m.slab", "numpy", tmp_path / "m.py")
    assert sn.write_report(tmp_path / "r.html", made, blobs).stat().st_size > 0


def test_a_draw_that_is_none_is_refused() -> None:
    for name, make, reason in (
        ("local", lambda delta: Expected(), "name must be a word of its own"),
        ("two words", lambda delta: Expected(), "name must be a word of its own"),
        ("other", Expected(), "make must be a function of delta that gives a Draw"),
        ("other", lambda delta: delta, "make must be a function of delta that gives a Draw"),
        ("other", lambda delta: sn.mean, "make must be a function of delta that gives a draw with noise, got mean"),
    ):
        with pytest.raises(sn.ArgumentError, match=reason):
            sn.register_draw(name, make)  # type: ignore[arg-type]
    assert "other" not in DRAWS


def test_without_its_row_a_file_is_refused_in_one_line(net: sn.Network, tmp_path: Path) -> None:
    sn.save(net, tmp_path / "m.slab")
    del SLABS["logistic"]
    with pytest.raises(sn.FileError, match="slab must be one of gaussian, laplace, student") as error:
        sn.load(tmp_path / "m.slab")
    assert "\n" not in str(error.value)
