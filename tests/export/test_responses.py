"""Every response leaves with a head of its own, in units of the table: onnxruntime, torch, numpy against `predict`."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import slabnet as sn
from slabnet.config.fit_card import FitCard
from slabnet.export.heads import HEADS
from slabnet.export.plan import make_plan
from slabnet.store import read_header

RNG = np.random.default_rng(2)
X = RNG.normal(size=(60, 3))
ETA = 0.6 * X[:, 0] + 0.2 * X[:, 1]
Arrays = dict[str, np.ndarray[Any, Any]]
TARGETS: dict[str, Any] = {
    "gaussian": 500 + 60 * ETA + 20 * RNG.normal(size=60),
    "student-t": 500 + 60 * ETA + 20 * RNG.standard_t(4, 60),
    "heteroscedastic": 500 + 60 * ETA + 20 * np.exp(0.5 * X[:, 1]) * RNG.normal(size=60),
    "poisson": RNG.poisson(np.exp(2 + ETA)),
    "negative-binomial": RNG.poisson(np.exp(2 + ETA) * RNG.gamma(2, 0.5, 60)),
    "gamma": 1e4 * np.exp(ETA) * RNG.gamma(4, 0.25, 60),
    "lognormal": 1e4 * np.exp(ETA + 0.5 * RNG.normal(size=60)),
    "weibull": 1e3 * np.exp(ETA) * RNG.weibull(2, 60),
    "ordinal": np.digitize(2 * ETA + RNG.logistic(size=60), [-1, 1]),
}


def fitted(name: str, members: int = 1) -> Any:
    options: dict[str, Any] = {"hidden": (3,), "epochs": 25, "random_state": 0, "response": name, "members": members}
    kind = sn.SlabClassifier if name == "ordinal" else sn.SlabRegressor
    return kind(**options).fit(X, TARGETS[name])


def run(path: Path, to: str, x: Any) -> Arrays:
    """What a written file gives."""
    rows = x.astype(np.float32)
    if to == "numpy":
        space: dict[str, Any] = {}
        exec(path.read_text(), space)  # as an importer would run it
        found: Arrays = space["predict"](rows)
        return found
    if to == "torch":
        program = torch.export.load(io.BytesIO(path.read_bytes())).module()
        return {name: value.detach().numpy() for name, value in program(torch.from_numpy(rows)).items()}
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(None, {"x": rows}), strict=True))


def wanted(model: Any, name: str, draws: int) -> Arrays:
    """What `predict` says of the chosen model, brought to the units of y."""
    chosen = sn.median_model(model.network_, infeasible="path")
    scaled = torch.as_tensor(model.scaling_x_.apply(X))
    draw = sn.fixed(chosen.masks, sn.exact) if draws else sn.fixed(chosen.masks)
    exposure = None if getattr(model, "rate_", None) is None else np.full(60, model.rate_)
    got = sn.predict(model.network_, scaled, max(draws, 1), draw=draw, exposure=exposure)
    if name == "ordinal":
        return {"probabilities": got.mean.numpy(), "entropy": got.total.numpy()}
    centre = model.scaling_y_.undo(got.mean.numpy())
    if name in ("lognormal", "weibull"):
        return {"median": centre, "log_variance": got.total.numpy()}
    return {"mean": centre, "variance": got.total.numpy() * model.scaling_y_.scale**2}


@pytest.mark.parametrize("name", TARGETS)
def test_every_response_in_every_format(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    net = model.network_
    chosen = sn.median_model(net, infeasible="path")
    sn.save_estimator(model, tmp_path / "m.slab")
    card = FitCard.of(read_header(tmp_path / "m.slab"), tmp_path / "m.slab")
    plan = make_plan(net, chosen, 0, card=card)
    assert plan.head in HEADS
    from slabnet.export import _writer

    for draws in (0, 5):
        plan, truth = make_plan(net, chosen, draws, card=card), wanted(model, name, draws)
        for to, end in (("numpy", "py"), ("torch", "pt2"), ("onnx", "onnx")):
            path = tmp_path / f"{draws}.{end}"
            path.write_bytes(_writer(to)(plan))  # type: ignore[arg-type]
            found = run(path, to, X)
            for part, value in truth.items():
                np.testing.assert_allclose(found[part], value, rtol=3e-4, atol=1e-6, err_msg=f"{to} {draws} {part}")


def test_medians_of_members_are_those_of_their_mixture(tmp_path: Path) -> None:
    model = fitted("weibull", members=2)
    chosen = sn.median_model(model.network_, infeasible="path")
    sn.save_estimator(model, tmp_path / "m.slab")
    card = FitCard.of(read_header(tmp_path / "m.slab"), tmp_path / "m.slab")
    from slabnet.export.as_numpy import to_numpy

    (tmp_path / "m.py").write_bytes(to_numpy(make_plan(model.network_, chosen, card=card)))
    truth = wanted(model, "weibull", 0)
    found = run(tmp_path / "m.py", "numpy", X)
    np.testing.assert_allclose(found["median"], truth["median"], rtol=1e-4)


def test_a_response_without_a_variance_is_refused_by_its_name() -> None:
    net = sn.mlp((2, 1), likelihood=sn.StudentT(df=1.5))
    with pytest.raises(sn.ArgumentError, match="got student-t, which has no such form"):
        make_plan(net, sn.median_model(net))
