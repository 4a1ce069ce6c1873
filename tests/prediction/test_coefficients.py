from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch

import slabnet as sn
from slabnet.model.drawing import drawable_layers


def test_coefficients_of_a_linear_model() -> None:
    net = sn.mlp((2, 1), likelihood="gaussian")
    with torch.no_grad():
        net.body[1].weight.mu.copy_(torch.tensor([[2.0, -1.0]]))
        net.body[1].weight.rho.fill_(math.log(math.expm1(0.5)))
        net.body[1].weight.omega.copy_(torch.tensor([[0.0, 50.0]]))
    rows = sn.coefficients(net, ["age", "dose"])
    assert [row.input for row in rows] == ["(intercept)", "age", "dose"]
    age, dose = rows[1:]
    assert (age.alpha, age.mean, age.mean_if_in) == pytest.approx((0.5, 1.0, 2.0))
    assert age.sd == pytest.approx((0.5 * (0.25 + 0.5 * 4.0)) ** 0.5)
    assert (dose.mean, dose.sd) == pytest.approx((-1.0, 0.5))
    with pytest.raises(sn.ArgumentError, match="a model of one layer, got one of 2 layers"):
        sn.coefficients(sn.mlp((2, 3, 1), likelihood="gaussian"))
    with pytest.raises(sn.ArgumentError, match="one for each of the 2 inputs"):
        sn.coefficients(net, ["age"])


def test_an_estimator_s_coefficients_are_in_the_units_that_went_in() -> None:
    """Against least squares with the mean posterior's own numbers: predictions of the mean model are this line."""
    rng = np.random.default_rng(0)
    x = pd.DataFrame({"age": rng.normal(40, 10, 300), "dose": rng.normal(5, 0.1, 300)})
    y = 1000 + 3 * x["age"] - 200 * x["dose"] + rng.normal(0, 5, 300)
    model = sn.SlabRegressor(hidden=(), epochs=150, random_state=0).fit(x, y)
    intercept, age, dose = sn.coefficients(model)
    assert (age.input, dose.input) == ("age", "dose")
    line = intercept.mean + age.mean * x["age"] + dose.mean * x["dose"]
    known = model.wrapped()
    with torch.no_grad():
        output = known.net.eval()(torch.as_tensor((x.to_numpy() - known.centre_x) / known.scale_x)).numpy()[:, 0]
    np.testing.assert_allclose(line, known.centre_y[0] + known.scale_y[0] * output, rtol=1e-9)
    least = np.linalg.lstsq(np.column_stack([np.ones(300), x]), y, rcond=None)[0]
    assert [age.mean, dose.mean] == pytest.approx(least[1:].tolist(), rel=0.05)
    every = sn.fixed(
        {
            name: tuple(torch.ones_like(p.mu) > 0 for p in layer.blocks())
            for name, layer in drawable_layers(known.net).items()
            if isinstance(layer, sn.Linear)
        },
        sn.exact,
    )
    drawn = sn.predict(known.net, (-known.centre_x / known.scale_x)[None], 4000, draw=every, keep_draws=True).samples
    assert drawn is not None
    assert intercept.sd_if_in == pytest.approx(known.scale_y[0] * drawn.std().item(), rel=0.05)
    with pytest.raises(sn.ArgumentError, match="coefficients: net must be a network or a fitted estimator, got str"):
        sn.coefficients("m.slab")  # type: ignore[arg-type]
