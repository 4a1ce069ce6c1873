"""The factorised posterior of a linear model, against autograd and against the best of every start."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from benchmarks.exactness import bound, designs, linear_layer
from torch import Tensor

from slabnet.maths.coordinate_ascent import (
    SAME,
    LinearProblem,
    coordinate_ascent,
    factorised_maxima,
    factorised_posterior,
)

PSI, SCALE, PHI = 0.2, 1.5, 0.5


def problem_of(x: Tensor, y: Tensor) -> LinearProblem:
    odds = torch.full((1, x.shape[1]), math.log(PSI / (1 - PSI)), dtype=torch.float64)
    return LinearProblem(x.T @ x, y[None] @ x, torch.full((1, 1), 1 / PHI, dtype=torch.float64), odds, SCALE)


@pytest.mark.parametrize("correlation", [0.0, 0.9, 0.99])
def test_no_gradient_is_left_at_the_maximum_and_the_bound_is_that_of_a_layer(correlation: float) -> None:
    x, y = designs(5, n=60, correlation=correlation, seed=1)
    problem = problem_of(x, y)
    found = factorised_posterior(problem)
    layer = linear_layer(5, PSI, SCALE)
    with torch.no_grad():
        layer.weight.mu.copy_(found.mu)
        layer.weight.rho.copy_(torch.log(torch.expm1(found.sigma)))
        layer.weight.omega.copy_(found.omega)  # type: ignore[union-attr]
    value = bound(layer, x, y, PHI)
    value.backward()  # type: ignore[no-untyped-call]
    for parameter in layer.parameters():
        assert float(parameter.grad.abs().max()) < 1e-3  # type: ignore[union-attr]
    constant = -0.5 * (y.square() / PHI + math.log(2 * math.pi * PHI)).sum()
    assert value.item() == pytest.approx(float(found.bound) + float(constant), abs=1e-9)


@pytest.mark.parametrize("correlation", [0.5, 0.9, 0.99])
def test_the_search_finds_the_best_of_every_set_of_columns(correlation: float) -> None:
    for seed in range(5):
        x, y = designs(5, n=60, correlation=correlation, seed=seed)
        problem = problem_of(x, y)
        sets = torch.tensor(list(itertools.product((False, True), repeat=5)))
        several = problem.response(0, len(sets))
        every = coordinate_ascent(several, several.ridge(sets), torch.where(sets, 3.0, -3.0).double())
        assert float(factorised_posterior(problem).bound) >= float(every.bound.max()) - 0.01


def test_responses_are_solved_on_their_own_and_decided_columns_stay() -> None:
    x, y = designs(4, n=60, correlation=0.5, seed=0)
    one = problem_of(x, y)
    odds = one.log_odds.expand(2, -1).clone()
    odds[1, 0], odds[1, 1] = 1e4, -1e4
    both = LinearProblem(one.gram, one.cross.expand(2, -1), one.precision.expand(2, -1), odds, SCALE)
    found = factorised_posterior(both)
    torch.testing.assert_close(found.omega[:1], factorised_posterior(one).omega)
    assert torch.sigmoid(found.omega[1, :2]).tolist() == [1.0, 0.0]


def test_more_columns_than_are_searched() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(300, 120, generator=generator, dtype=torch.float64)
    y = 2 * x[:, 3] - x[:, 50] + 0.5 * torch.randn(300, generator=generator, dtype=torch.float64)
    chosen = torch.sigmoid(factorised_posterior(problem_of(x, y)).omega[0]) > 0.5
    assert chosen.nonzero()[:, 0].tolist() == [3, 50]


def test_the_maxima_are_the_best_of_all_that_the_sets_of_columns_lead_to() -> None:
    for seed in range(3):
        x, y = designs(5, n=60, correlation=0.9, seed=seed)
        problem = problem_of(x, y)
        sets = torch.tensor(list(itertools.product((False, True), repeat=5)))
        several = problem.response(0, len(sets))
        every = coordinate_ascent(several, several.ridge(sets), torch.where(sets, 3.0, -3.0).double(), 500)
        chosen: list[int] = []
        for i in every.bound.argsort(descending=True).tolist():
            apart = [(torch.sigmoid(every.omega[i]) - torch.sigmoid(every.omega[j])).abs().max() for j in chosen]
            chosen += [i] if all(distance > SAME for distance in apart) else []
        found = factorised_maxima(problem, 3)
        wanted = every.bound[chosen[:3]]
        torch.testing.assert_close(torch.cat([one.bound for one in found]), wanted, atol=0.01, rtol=0)


def test_maxima_of_several_responses_differ_in_one() -> None:
    x, y = designs(4, n=60, correlation=0.99, seed=0)
    one = problem_of(x, y)
    both = LinearProblem(
        one.gram, one.cross.expand(2, -1), one.precision.expand(2, -1), one.log_odds.expand(2, -1), SCALE
    )
    alone = factorised_maxima(one, 2)
    found = factorised_maxima(both, 3)
    torch.testing.assert_close(found[0].omega, alone[0].omega.expand(2, -1))
    for k in (0, 1):
        torch.testing.assert_close(found[1 + k].bound[k], alone[1].bound[0])
        torch.testing.assert_close(found[1 + k].bound[1 - k], alone[0].bound[0])
