"""A sparse linear layer under local reparametrisation as one node of the graph: moments, products and noise in C.

Numbers lie feature by feature, those of all rows side by side, so that one weight meets many rows at once: tensors
of shape (rows, features) whose first stride is one. Without the library the layer's separate passes do the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from slabnet.kernels import native
from slabnet.kernels.native import run
from slabnet.kernels.switch import VARIANCE_FLOOR, Parts


class Left(NamedTuple):
    """Where the weights that are left stand: by rows (int32), in a matrix of this shape; `places` of the units.

    own: which units have an intercept (int32).
    """

    starts: Tensor
    columns: Tensor
    units: int
    inputs: int
    places: Tensor
    own: Tensor | None


def sparse_local(x: Tensor, blocks: Sequence[Parts], left: Left, seed: Tensor) -> tuple[Tensor, Tensor] | None:
    """The pre-activations and the divergence; None where that takes separate passes."""
    certain = all(block[2] is None for block in blocks)
    if x.ndim != 2 or not certain or not native.applies(x) or torch.compiler.is_compiling():
        return None
    (mu, rho, *_, log_s), *bias = blocks
    b_mu, b_rho = bias[0][:2] if bias else (None, None)
    given = (by_feature(x), log_s, mu, rho, b_mu, b_rho, (left, seed))
    found: tuple[Tensor, Tensor] = _SparseLocal.apply(*given)  # type: ignore[no-untyped-call]
    return found


def by_feature(x: Tensor) -> Tensor:
    """The same numbers, those of all rows side by side."""
    return x if x.stride(0) == 1 and len(x) > 1 else x.t().contiguous().t()


class _SparseLocal(torch.autograd.Function):
    """(x, log_s, weights' mu and rho, intercepts' mu and rho; then what has no gradient)."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        log_s: Tensor,
        mu: Tensor,
        rho: Tensor,
        b_mu: Tensor | None,
        b_rho: Tensor | None,
        constants: tuple[Left, Tensor],
    ) -> tuple[Tensor, Tensor]:
        left, seed = constants
        rows, kl = len(x), x.new_empty(())
        variance, b_variance = torch.empty_like(mu), None if b_mu is None else torch.empty_like(b_mu)
        _moments(0, mu, rho, log_s, variance, kl)
        if b_mu is not None and b_rho is not None and b_variance is not None:
            _moments(1, b_mu, b_rho, log_s, b_variance, kl)
        described = _describe(rows, left, mu, variance)
        out, slope = x.new_empty(left.units, rows), x.new_empty(left.units, rows)
        bias = (_address(b_mu), _address(b_variance))
        key = (0, seed.data_ptr(), left.places.data_ptr(), VARIANCE_FLOOR)
        given = (described.data_ptr(), x.data_ptr(), x.stride(1))
        run("sparse_local", *given, *bias, *key, out.data_ptr(), slope.data_ptr())
        ctx.save_for_backward(x, log_s, mu, rho, b_mu, b_rho)
        ctx.kept = described, variance, slope, left
        return out.t(), kl

    @staticmethod
    def backward(ctx: Any, given: Tensor, g_kl: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("slabnet: the compiled passes have first derivatives only; use kernels.passes('torch')")
        x, log_s, mu, rho, b_mu, b_rho = ctx.saved_tensors
        described, _, slope, left = ctx.kept
        given, d_s = by_feature(given), x.new_empty(())
        g_mu, g_variance = torch.empty_like(mu), torch.empty_like(mu)
        g_b = (None, None) if b_mu is None else (torch.empty_like(b_mu), torch.empty_like(b_mu))
        d_x = x.new_empty(left.inputs, len(x)) if ctx.needs_input_grad[0] else None
        sources = (described.data_ptr(), x.data_ptr(), x.stride(1), given.data_ptr(), given.stride(1))
        made = (g_mu.data_ptr(), g_variance.data_ptr(), *map(_address, g_b), _address(d_x))
        work = torch.empty_like(slope)
        run("sparse_local_back", *sources, slope.data_ptr(), work.data_ptr(), *made)
        d_mu, d_rho = _moments_back(0, mu, rho, log_s, g_mu, g_variance, g_kl, d_s)
        d_b: tuple[Any, Any] = (None, None)
        if b_mu is not None:
            d_b = _moments_back(1, b_mu, b_rho, log_s, g_b[0], g_b[1], g_kl, d_s)
        return None if d_x is None else d_x.t(), d_s, d_mu, d_rho, *d_b, None


def _describe(rows: int, left: Left, mean: Tensor, variance: Tensor) -> Tensor:
    addresses = [part.data_ptr() for part in (left.starts, left.columns, mean, variance)]
    own = (0, 0) if left.own is None else (len(left.own), left.own.data_ptr())
    return torch.tensor([rows, left.units, left.inputs, *addresses, *own])


def _moments(add: int, mu: Tensor, rho: Tensor, log_s: Tensor, variance: Tensor, kl: Tensor) -> None:
    block = (mu.numel(), mu.data_ptr(), rho.data_ptr(), 0, 0, 0, 0, log_s.data_ptr())
    run("moments", add, *block, 0, variance.data_ptr(), kl.data_ptr())


def _moments_back(
    add: int, mu: Tensor, rho: Tensor, log_s: Tensor, g_mean: Any, g_variance: Any, g_kl: Tensor, d_s: Tensor
) -> tuple[Tensor, Tensor]:
    d_mu, d_rho = torch.empty_like(mu), torch.empty_like(rho)
    block = (mu.numel(), mu.data_ptr(), rho.data_ptr(), 0, 0, 0, 0, log_s.data_ptr())
    given = (g_mean.data_ptr(), g_variance.data_ptr(), g_kl.data_ptr())
    run("moments_back", add, *block, *given, d_mu.data_ptr(), d_rho.data_ptr(), 0, d_s.data_ptr())
    return d_mu, d_rho


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()
