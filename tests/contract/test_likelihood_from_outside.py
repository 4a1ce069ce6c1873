"""A likelihood that the package has never heard of, in everything that a fit leads to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from scipy import stats
from torch import Tensor

import slabnet as sn
from slabnet.model.likelihoods import LIKELIHOODS, Conditional, Head, Support
from slabnet.report.subject import Subject
from slabnet.report.write import model_page


@dataclass(frozen=True)
class Failures(Conditional):
    """Failures before the first success, P(success) = sigmoid(output)."""

    support = Support.COUNTS
    output: Tensor

    def log_prob(self, y: Tensor) -> Tensor:
        return torch.nn.functional.logsigmoid(self.output) + y * torch.nn.functional.logsigmoid(-self.output)

    def cdf(self, y: Tensor) -> Tensor:
        log_fail = torch.nn.functional.logsigmoid(-self.output)
        return torch.where(y < 0, torch.zeros_like(log_fail), -torch.expm1((y.floor() + 1) * log_fail))

    def around(self) -> tuple[Tensor, Tensor]:
        return torch.zeros_like(self.output), 10 * torch.exp(-self.output)


class Geometric(sn.Likelihood):
    name = "geometric"

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        return Failures(output).log_prob(y).sum(-1)

    def mean(self, output: Tensor) -> Tensor:
        return torch.exp(-output)

    def variance(self, output: Tensor) -> Tensor:
        return torch.exp(-output) / torch.sigmoid(output)

    def conditional(self, output: Tensor, dispersion: Tensor) -> Failures:
        return Failures(output)

    def targets(self, y: Tensor, outputs: int, dtype: torch.dtype, where: str) -> Tensor:
        return y.reshape(len(y), outputs).to(dtype)


@pytest.fixture
def registered() -> Iterator[type[Geometric]]:
    yield sn.register_likelihood(Geometric)
    del LIKELIHOODS["geometric"]


@pytest.fixture
def rows() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(400, 3, generator=generator)
    chance = torch.sigmoid(0.5 - 1.2 * x[:, 0])
    u = torch.rand(400, generator=generator)
    return x, (u.log() / torch.log1p(-chance)).floor()


@pytest.fixture
def fitted(registered: type[Geometric], rows: tuple[Tensor, Tensor]) -> sn.Network:
    net = sn.mlp((3, 1), likelihood="geometric")
    sn.fit(net, rows, sn.TrainConfig(epochs=60, batch_size=100, lr=0.03, omega_lr=0.1), progress="off")
    return net


def test_it_fits_predicts_and_travels(fitted: sn.Network, rows: tuple[Tensor, Tensor], tmp_path: Path) -> None:
    x, y = rows
    found = sn.predict(fitted.double(), x[:40].double(), 30, intervals=0.8, keep_draws=True)
    layer = fitted.body[1]
    assert float((layer.weight.alpha * layer.weight.mu)[0, 0].detach()) == pytest.approx(-1.2, abs=0.35)
    assert found.kind == "geometric"
    with pytest.raises(sn.ArgumentError, match="entropy must be asked of class probabilities, got a geometric"):
        _ = found.entropy
    with pytest.raises(sn.ArgumentError, match="labels must be asked of class"):
        _ = found.labels
    assert found.samples is not None
    p = 1 / (1 + found.samples)  # (draws, rows, 1)
    torch.testing.assert_close(found.aleatoric, ((1 - p) / p**2).mean(0))
    torch.testing.assert_close(found.total - found.aleatoric, found.samples.var(0, correction=0))
    low, high = found.predictive_interval(0.8)
    for row in range(5):

        def cdf(k: float, row: int = row) -> float:
            return float(stats.geom.cdf(k + 1, p[:, row, 0]).mean())

        for end, share in ((low, 0.1), (high, 0.9)):
            k = float(end[row])
            assert cdf(k) >= share > cdf(k - 1)
    density = stats.geom.pmf(y[:40, None] + 1, p[:, :, 0].T).mean(1)
    wanted = -float(torch.as_tensor(density).log().mean())
    assert sn.negative_log_likelihood(found, y[:40]) == pytest.approx(wanted)
    sn.save(fitted, tmp_path / "m.slab")
    assert torch.equal(sn.load(tmp_path / "m.slab")(x.double()), fitted.eval()(x.double()))
    assert sn.likelihood_of(sn.load(tmp_path / "m.slab")).name == "geometric"
    small = sn.compact(fitted, sn.median_model(fitted))
    assert sn.predict(small, x.double(), 2).kind == "geometric"


@pytest.mark.parametrize("to", ["onnx", "torch", "numpy"])
def test_it_is_refused_by_name_where_it_cannot_be_exported(fitted: sn.Network, to: str, tmp_path: Path) -> None:
    sn.save(fitted, tmp_path / "m.slab")
    with pytest.raises(sn.ArgumentError, match=r"export: likelihood must be one that ends in .*, got geometric"):
        sn.export(tmp_path / "m.slab", to, tmp_path / "out")  # type: ignore[arg-type]
    assert not (tmp_path / "out").exists()


def test_it_is_exported_where_it_names_a_form(
    fitted: sn.Network, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Geometric, "head", lambda self, outputs: Head("sigmoid"))
    sn.save(fitted, tmp_path / "m.slab")
    assert sn.export(tmp_path / "m.slab", "numpy", tmp_path / "m.py")["head"] == "sigmoid"


def test_it_is_told_in_a_report(fitted: sn.Network, rows: tuple[Tensor, Tensor]) -> None:
    text = model_page(Subject(net=fitted.float(), title="waits", test=rows)).decode()
    assert "A geometric response is not run in the page." in text
    assert "its error (RMSE) is" in text
    assert "prediction intervals cover" in text


def test_names_are_not_taken_twice(registered: type[Geometric]) -> None:
    class Other(sn.Likelihood):
        name = "geometric"

    class Nameless(sn.Likelihood):
        pass

    with pytest.raises(sn.ArgumentError, match="name must be one that no other likelihood has, got geometric"):
        sn.register_likelihood(Other)
    with pytest.raises(sn.ArgumentError, match="name must be a word of its own"):
        sn.register_likelihood(Nameless)
    with pytest.raises(sn.ArgumentError, match="cls must be a subclass of Likelihood"):
        sn.register_likelihood(int)  # type: ignore[type-var]
