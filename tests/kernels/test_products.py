"""The step of a linear layer from the two factors of its gradient, against the gradient multiplied out first."""

from __future__ import annotations

import os
from itertools import product
from pathlib import Path

import pytest
import torch

from slabnet.kernels import native
from slabnet.kernels.fused import FEW_ROWS

pytestmark = pytest.mark.skipif(native.library() is None, reason="the package was installed without a C compiler")

ADAM = (1.7, 0.9, 0.999, 1e-8)  # root, the two betas, epsilon
RATES = (0.01, 0.03)


def numbers(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def state(units: int, inputs: int, indicators: bool) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
    """mu, rho, omega, and Adam's two moments of each."""
    parameters = [numbers(units, inputs, seed=s) - (2.0 if s == 1 else 0.0) for s in range(3 if indicators else 2)]
    moments = [numbers(units, inputs, seed=10 + k).abs() for k in range(2 * len(parameters))]
    return parameters, moments


def addresses(tensors: list[torch.Tensor], places: int) -> list[int]:
    return [t.data_ptr() for t in tensors] + [0] * (places - len(tensors))


def built() -> list[str]:
    """The instruction sets there is a library for, and that this processor runs."""
    able = native.VARIANTS.get(torch.backends.cpu.get_cpu_capability(), ("baseline",))
    return [name for name in able if library(name).exists()]


def library(name: str) -> Path:
    return Path(native.__file__).with_name(f"kernels.{name}{'.dll' if os.name == 'nt' else '.so'}")


# below, at and beyond the edges of a tile and of a span of inputs, whatever the instruction set
SHAPES = [(1, 1, 1), (3, 8, 32), (100, 13, 37), (32, 9, 1921), (FEW_ROWS, 17, 60), (7, 2, 4000)]


@pytest.mark.parametrize("variant", built())
@pytest.mark.parametrize(("rows", "units", "inputs"), SHAPES)
@pytest.mark.parametrize(("indicators", "by_weight"), [(True, False), (True, True), (False, False)])
def test_products_in_the_step_are_products_before_it(
    variant: str, rows: int, units: int, inputs: int, indicators: bool, by_weight: bool
) -> None:
    pair, squares = numbers(2, rows, units, seed=20), numbers(2, rows, inputs, seed=21)
    psi = torch.full((units, inputs), 0.1) if by_weight else torch.tensor(0.2)
    psi = psi + (0.5 * torch.rand(units, inputs, generator=torch.Generator().manual_seed(3)) if by_weight else 0.0)
    log_psi, log_not_psi, log_s, g_kl = psi.log(), torch.log1p(-psi), torch.tensor(-0.3), torch.tensor(0.7)
    g_both = torch.einsum("kru,kri->kui", pair.double(), squares.double()).float()
    found = []
    for kind, threads in product(("products", "moments"), (1, 2)):
        parameters, moments = state(units, inputs, indicators)
        block = (
            *addresses(parameters, 3),
            log_psi.data_ptr(),
            log_not_psi.data_ptr(),
            int(by_weight),
            log_s.data_ptr(),
        )
        given = (pair, squares) if kind == "products" else (g_both[0], g_both[1])
        sizes = (rows, units, inputs) if kind == "products" else (units * inputs,)
        rest = (*addresses(list(given), 2), g_kl.data_ptr(), *addresses(moments, 6), *RATES, *ADAM)
        step = getattr(native._load(library(variant)), f"slabnet_{kind}_step")
        assert step(*sizes, *block, *rest, threads) == 0
        found.append(parameters + moments)
    for one, other in zip(found[0], found[1], strict=True):
        assert torch.equal(one, other)  # whatever the number of threads
    for one, other in zip(found[0], found[2], strict=True):
        torch.testing.assert_close(one, other, rtol=2e-4, atol=2e-5 * rows**0.5)
