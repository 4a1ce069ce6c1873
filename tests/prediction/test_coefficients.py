from __future__ import annotations

import math

import pytest
import torch

import slabnet as sn


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
