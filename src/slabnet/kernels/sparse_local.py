"""A sparse linear layer under local reparametrisation as one node of the graph: moments, products and noise in C.

Numbers lie feature by feature, those of all rows side by side, so that one weight meets many rows at once: tensors
of shape (rows, features) whose first stride is one. Without the library the layer's separate passes do the same.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from slabnet.core.errors import refuse
from slabnet.kernels import native
from slabnet.kernels.dispatch import VARIANCE_FLOOR, Parts
from slabnet.kernels.native import run

FLOAT = 4  # bytes


class Left(NamedTuple):
    """Where the weights that are left stand: by rows (int32), in a matrix of this shape; `places` of the units.

    with_bias: which units have an intercept (int32).
    """

    starts: Tensor
    columns: Tensor
    units: int
    inputs: int
    places: Tensor
    with_bias: Tensor | None


def sparse_local(x: Tensor, blocks: Sequence[Parts], left: Left, seed: Tensor) -> tuple[Tensor, Tensor] | None:
    """The pre-activations and the divergence; None where that takes separate passes."""
    certain = all(block[2] is None for block in blocks)
    if x.ndim != 2 or not certain or not native.applies(x) or torch.compiler.is_compiling():
        return None
    if x.shape[1] != left.inputs:  # C does not look
        refuse("compact", "x", f"rows of {left.inputs} numbers", f"shape {tuple(x.shape)}")
    (mu, rho, *_, log_s), *bias = blocks
    b_mu, b_rho = bias[0][:2] if bias else (None, None)
    given = (by_feature(x), log_s, mu, rho, b_mu, b_rho, (left, seed))
    answer: tuple[Tensor, Tensor] = _SparseLocal.apply(*given)  # type: ignore[no-untyped-call]
    return answer


def take(x: Tensor, reads: Tensor) -> Tensor:
    """Some columns of x, those of all rows side by side; `reads` are their positions (int32)."""
    if x.stride(1) != 1 or x.requires_grad or not native.applies(x):
        return x.t().index_select(0, reads.long()).t()
    out = x.new_empty(reads.shape[0], x.shape[0])
    run("take", x.shape[0], x.data_ptr(), x.shape[1], x.stride(0), reads.shape[0], reads.data_ptr(), out.data_ptr())
    return out.t()


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
        rows, kl, weights = x.shape[0], x.new_empty(()), mu.shape[0]
        variance = x.new_empty(weights + (0 if b_mu is None else b_mu.shape[0]))  # of weights, then of intercepts
        at = variance.data_ptr()
        _moments(0, mu, rho, log_s, at, kl)
        bias = (0, 0)
        if b_mu is not None and b_rho is not None:
            bias = (b_mu.data_ptr(), at + FLOAT * weights)
            _moments(1, b_mu, b_rho, log_s, bias[1], kl)
        described = _describe(rows, left, mu, at)
        both = x.new_empty(2, left.units, rows)  # what comes out, and its slope in the variance
        key = (0, seed.data_ptr(), left.places.data_ptr(), VARIANCE_FLOOR)
        given = (described.buffer_info()[0], x.data_ptr(), x.stride(1))
        to = both.data_ptr()
        run("sparse_local", *given, *bias, *key, to, to + FLOAT * left.units * rows)
        ctx.save_for_backward(x, log_s, mu, rho, b_mu, b_rho)
        ctx.buffers = described, variance, both, left
        return both[0].t(), kl

    @staticmethod
    def backward(ctx: Any, given: Tensor, g_kl: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():
            raise RuntimeError("slabnet: the compiled passes have first derivatives only; use kernels.passes('torch')")
        x, log_s, mu, rho, b_mu, b_rho = ctx.saved_tensors
        described, _, both, left = ctx.buffers
        rows, weights, intercepts = x.shape[0], mu.shape[0], 0 if b_mu is None else b_mu.shape[0]
        given, d_s, work = by_feature(given), x.new_empty(()), x.new_empty(left.units, rows)
        g = x.new_empty(2 * (weights + intercepts))  # of the means and variances of weights, then of intercepts
        at, slope = g.data_ptr(), both.data_ptr() + FLOAT * left.units * rows
        parts = (at, at + FLOAT * weights, at + FLOAT * 2 * weights, at + FLOAT * (2 * weights + intercepts))
        d_x = x.new_empty(left.inputs, rows) if ctx.needs_input_grad[0] else None
        sources = (described.buffer_info()[0], x.data_ptr(), x.stride(1), given.data_ptr(), given.stride(1))
        run("sparse_local_back", *sources, slope, work.data_ptr(), *parts, 0 if d_x is None else d_x.data_ptr())
        d_mu, d_rho = _moments_back(0, mu, rho, log_s, parts[0], parts[1], g_kl, d_s)
        d_b: tuple[Any, Any] = (None, None)
        if b_mu is not None:
            d_b = _moments_back(1, b_mu, b_rho, log_s, parts[2], parts[3], g_kl, d_s)
        return None if d_x is None else d_x.t(), d_s, d_mu, d_rho, *d_b, None


def _describe(rows: int, left: Left, mean: Tensor, variance: int) -> array[int]:
    intercepts = (0, 0) if left.with_bias is None else (left.with_bias.shape[0], left.with_bias.data_ptr())
    where = (left.starts.data_ptr(), left.columns.data_ptr(), mean.data_ptr(), variance)
    return array("q", (rows, left.units, left.inputs, mean.shape[0], *where, *intercepts))


def _moments(add: int, mu: Tensor, rho: Tensor, log_s: Tensor, variance: int, kl: Tensor) -> None:
    block = (mu.shape[0], mu.data_ptr(), rho.data_ptr(), 0, 0, 0, 0, log_s.data_ptr())
    run("moments", add, *block, 0, variance, kl.data_ptr())


def _moments_back(
    add: int, mu: Tensor, rho: Tensor, log_s: Tensor, g_mean: int, g_variance: int, g_kl: Tensor, d_s: Tensor
) -> tuple[Tensor, Tensor]:
    d_mu, d_rho = torch.empty_like(mu), torch.empty_like(rho)
    block = (mu.shape[0], mu.data_ptr(), rho.data_ptr(), 0, 0, 0, 0, log_s.data_ptr())
    given = (g_mean, g_variance, g_kl.data_ptr())
    run("moments_back", add, *block, *given, d_mu.data_ptr(), d_rho.data_ptr(), 0, d_s.data_ptr())
    return d_mu, d_rho
