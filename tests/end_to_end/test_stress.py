"""Numbers under stress: extreme features, too little data, parameters at their ends. Finite, or one clear error."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import slabnet as sn
from slabnet.model.drawing import drawable_layers
from slabnet.model.draws import named_draw

ROWS, INPUTS = 40, 5


def features() -> dict[str, Tensor]:
    x = torch.randn(ROWS, INPUTS, generator=torch.Generator().manual_seed(0))
    mixed = x.clone()
    mixed[:, 0] *= 1e30
    mixed[:, 1] *= 1e-30
    return {
        "features at 1e30": x * 1e30,
        "features at 1e-30": x * 1e-30,
        "features at 1e30 and 1e-30 together": mixed,
        "constant features": torch.ones(ROWS, INPUTS),
        "features all zero": torch.zeros(ROWS, INPUTS),
        "denormal features": x * 1e-41,
        "the largest floats": torch.full((ROWS, INPUTS), torch.finfo(torch.float32).max),
    }


def responses() -> dict[str, tuple[str, Tensor]]:
    y = torch.arange(ROWS) % 2
    return {
        "classes": ("categorical", y),
        "numbers": ("gaussian", y.float()),
        "numbers at 1e30": ("gaussian", 1e30 * y.float()),
        "numbers all equal": ("gaussian", torch.full((ROWS,), 7.0)),
    }


def check(net: sn.Network, x: Tensor, path: Path) -> None:
    """Everything a user can ask of the network is finite, and a file of it holds numbers only."""
    for part in net.state_dict().values():
        assert bool(torch.isfinite(part).all())
    prediction = sn.predict(net, x, draws=3)
    assert bool(torch.isfinite(prediction.mean).all())
    assert bool(torch.isfinite(prediction.total).all())
    sn.save(net, path)
    for part in sn.load(path).state_dict().values():
        assert bool(torch.isfinite(part).all())


TOO_LARGE = (
    "features at 1e30",
    "features at 1e30 and 1e-30 together",
    "the largest floats",
)  # their squares are not finite


def attempt(net: sn.Network, x: Tensor, y: Tensor, path: Path, **options: Any) -> bool:
    """Whether it was fitted, and is finite; else it is refused in one line, and the last good state is held."""
    config = sn.TrainConfig(**{"epochs": 3, "batch_size": 10} | options)
    said, fitted = "", True
    try:
        history = sn.fit(net, (x, y), config, progress="off")
        assert math.isfinite(history[-1].log_likelihood)
        assert math.isfinite(history[-1].kl)
        check(net, x, path)
    except sn.TrainingDiverged as error:
        said, fitted = str(error), False
    assert "\n" not in said
    for part in net.state_dict().values():
        assert bool(torch.isfinite(part).all()), "the network must hold its last good state"
    return fitted


@pytest.mark.parametrize("response", responses())
@pytest.mark.parametrize("feature", features())
def test_extreme_data(feature: str, response: str, tmp_path: Path) -> None:
    likelihood, y = responses()[response]
    outputs = 2 if likelihood == "categorical" else 1
    net = sn.mlp((INPUTS, 6, outputs), likelihood=likelihood, seed=1)
    fitted = attempt(net, features()[feature], y, tmp_path / "m.slab")
    assert fitted == (feature not in TOO_LARGE and response != "numbers at 1e30")


@pytest.mark.parametrize("method", sn.METHODS)
@pytest.mark.parametrize("feature", ["features at 1e30", "constant features"])
def test_extreme_data_for_every_method(feature: str, method: str, tmp_path: Path) -> None:
    net = sn.mlp((INPUTS, 6, 2), method=method, seed=1)
    fitted = attempt(net, features()[feature], torch.arange(ROWS) % 2, tmp_path / "m.slab")
    squares = sn.METHODS[method].posterior is not None  # the variance of what a unit receives takes them
    assert fitted == (feature not in TOO_LARGE or not squares)


@pytest.mark.parametrize("draw", ["local", "relaxed", "straight_through", "score"])
def test_too_little_data(draw: str, tmp_path: Path) -> None:
    x = torch.randn(ROWS, INPUTS, generator=torch.Generator().manual_seed(2))
    cases: Iterator[tuple[Tensor, Tensor, int]] = iter(
        [
            (x[:3], torch.arange(3), 3),  # one row for each class
            (x, torch.zeros(ROWS, dtype=torch.long), 10),  # all labels equal
            (x[:7], torch.arange(7) % 2, 1),  # batches of one
            (x[:1], torch.tensor([1]), 1),  # one row
        ]
    )
    for some, y, batch in cases:
        net = sn.mlp((INPUTS, 6, 3), seed=1)
        assert attempt(net, some, y, tmp_path / "m.slab", batch_size=batch, draw=draw)


@pytest.mark.parametrize("draw", ["local", "relaxed", "straight_through", "score"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_parameters_at_their_ends(draw: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """alpha at 0 and at 1, sigma at its floor and huge: both terms and their gradients stay finite."""
    x = torch.randn(ROWS, INPUTS, generator=torch.Generator().manual_seed(2), dtype=dtype)
    y = torch.arange(ROWS) % 2
    for omega, rho in ((-1e4, -4.0), (1e4, -4.0), (-100.0, -1e4), (100.0, -1e4), (0.0, -1e4), (0.0, 80.0), (1e4, 1e3)):
        net = sn.mlp((INPUTS, 6, 2), seed=1).to(dtype)
        with torch.no_grad():
            for layer in drawable_layers(net).values():
                for block in layer.blocks():
                    block.omega.fill_(omega)
                    block.rho.fill_(rho)
        terms = sn.elbo(net, net.likelihood, x, y, n=ROWS, draw=named_draw(draw, 0.5), seed=3)
        assert bool(torch.isfinite(terms.kl)), (omega, rho)
        assert bool(torch.isfinite(terms.log_likelihood)), (omega, rho)
        (terms.kl - terms.log_likelihood - terms.score).backward()
        for name, parameter in net.named_parameters():
            assert parameter.grad is None or bool(torch.isfinite(parameter.grad).all()), (name, omega, rho)
        check(net, x, tmp_path / "m.slab")


def test_a_diverging_fit_keeps_its_last_good_state(tmp_path: Path) -> None:
    x = torch.randn(ROWS, INPUTS, generator=torch.Generator().manual_seed(2))
    net = sn.mlp((INPUTS, 6, 2), seed=1)
    with pytest.raises(sn.TrainingDiverged):
        sn.fit(net, (x, torch.arange(ROWS) % 2), sn.TrainConfig(epochs=30, batch_size=10, lr=1e30), progress="off")
    check(net, x, tmp_path / "m.slab")


MILLION = """
import resource, sys
resource.setrlimit(resource.RLIMIT_DATA, (2 << 30, 2 << 30))
import torch, slabnet as sn
torch.set_num_threads(1)
x = torch.randn(1_000_000, 20, generator=torch.Generator().manual_seed(0))
y = (x[:, 0] > 0).long()
net = sn.mlp((20, 10, 2))
history = sn.fit(net, (x, y), sn.TrainConfig(epochs=1, batch_size=10_000, lr=0.05))
prediction = sn.predict(net, x, draws=2)
print(sn.accuracy(prediction, y), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is Linux's")
def test_a_million_rows_in_two_gigabytes() -> None:
    run = subprocess.run([sys.executable, "-c", MILLION], capture_output=True, text=True, check=False, timeout=240)
    assert run.returncode == 0, run.stderr[-500:]
    accuracy, kilobytes = run.stdout.split()
    assert float(accuracy) > 0.9
    assert int(kilobytes) < 2 << 20


@pytest.mark.parametrize("scale", [1e30, 1e-30])
@pytest.mark.parametrize("kind", [sn.SlabClassifier, sn.SlabRegressor])
def test_estimators_with_extreme_features(kind: Any, scale: float) -> None:
    x = torch.randn(ROWS, INPUTS, generator=torch.Generator().manual_seed(0)).double().numpy() * scale
    y = (x[:, 0] > 0).astype(float)
    model = kind(hidden=(4,), epochs=3).fit(x, y)
    assert all(math.isfinite(value) for value in model.predict(x))
    assert all(math.isfinite(value) for value in model.feature_effects_.sizes)
