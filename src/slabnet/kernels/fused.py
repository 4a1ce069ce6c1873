"""What a layer does as one node of the graph, on the compiled passes: fewer calls, fewer buffers, the same numbers.

`LocalLinear` is moments, two products and a draw, one after the other; the weights' means and variances lie side by
side, so that both products are one batched product in each direction, and intercepts and noise join in one pass.
`DrawLayer` draws weight and intercept.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from slabnet.kernels.native import run

FLOAT = 4  # bytes
FEW_ROWS, SOME_UNITS = 256, 64  # in these bounds the optimiser multiplies a few units at a time, else in one product


class Pending(NamedTuple):
    """A gradient that has not been computed: which pass would do it, with which addresses, and what lies there."""

    kind: str
    arguments: tuple[Any, ...]
    alive: tuple[Any, ...]

    def multiplied(self) -> Pending:
        """The same, from the gradient of the weights' moments where only its two factors were kept."""
        if self.kind != "products":
            return self
        pair, squares, *alive = self.alive
        _, units, inputs, *block, _, _, g_kl = self.arguments
        g_both = _bmm(pair.transpose(1, 2), squares)
        size, at = units * inputs, g_both.data_ptr()
        return Pending("moments", (size, *block, at, at + FLOAT * size, g_kl), (g_both, *alive))


class Taker(Protocol):
    """Who computes a gradient later: an optimiser that does so together with its step."""

    def take(self, mu: Tensor, rho: Tensor, omega: Tensor | None, pending: Pending) -> bool:
        """Whether the gradient of these weights is left to the taker, who then keeps `pending`."""


_taker: ContextVar[Taker | None] = ContextVar("slabnet_taker", default=None)


@contextmanager
def gradients_to(taker: Taker) -> Iterator[None]:
    """Offer the gradients of the forward passes in this block to `taker` first."""
    token = _taker.set(taker)
    try:
        yield
    finally:
        _taker.reset(token)


class LocalLinear(torch.autograd.Function):
    """(x, log_s, weight's mu, rho, omega, intercept's mu, rho, omega; then what has no gradient: `constants`)."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        log_s: Tensor,
        mu: Tensor,
        rho: Tensor,
        omega: Tensor | None,
        b_mu: Tensor | None,
        b_rho: Tensor | None,
        b_omega: Tensor | None,
        constants: tuple[Any, ...],
    ) -> tuple[Tensor, Tensor]:
        ctx.taker = _taker.get()
        seed, first_row, floor, logs, b_logs, places = constants
        rows, (units, inputs) = x.shape[0], mu.shape
        both = x.new_empty(2, units, inputs)  # means, then variances
        squares = x.new_empty(2, rows, inputs)  # x, then its squares
        kl = x.new_empty(())
        intercept = None if b_mu is None else x.new_empty(2, units)
        b_mean = _address(intercept)
        weight = (units * inputs, mu.data_ptr(), rho.data_ptr(), _address(omega), *_logs(logs))
        bias = (units, b_mean and b_mu.data_ptr(), _address(b_rho), _address(b_omega), *_logs(b_logs))  # type: ignore[union-attr]
        made = (both.data_ptr(), b_mean, kl.data_ptr(), rows * inputs, x.data_ptr(), squares.data_ptr())
        run("linear", *weight, *bias, log_s.data_ptr(), *made)
        out = _bmm(squares, both.transpose(1, 2))
        at = out.data_ptr()
        b_variance = b_mean and b_mean + FLOAT * units
        key = (first_row, seed.data_ptr(), _address(places))
        run("local", rows, units, *key, floor, b_mean, b_variance, at, at + FLOAT * rows * units)
        ctx.save_for_backward(log_s, mu, rho, omega, b_mu, b_rho, b_omega)
        ctx.buffers = squares, both, out, logs, b_logs  # made here, seen by nobody else
        return out[0], kl

    @staticmethod
    def backward(ctx: Any, given: Tensor, g_kl: Tensor) -> tuple[Any, ...]:
        only_once()
        log_s, mu, rho, omega, b_mu, b_rho, b_omega = ctx.saved_tensors
        squares, both, out, logs, b_logs = ctx.buffers
        rows, units = given.shape
        given = given if given.is_contiguous() else given.contiguous()
        pair, sums, d_s = given.new_empty(2, rows, units), given.new_empty(2, units), given.new_empty(())
        slope = out.data_ptr() + FLOAT * rows * units
        run("local_back", rows, units, given.data_ptr(), slope, pair.data_ptr(), sums.data_ptr())
        block = (mu.data_ptr(), rho.data_ptr(), _address(omega), *_logs(logs))
        bias = (units, _address(b_mu), _address(b_rho), _address(b_omega), *_logs(b_logs))
        factors = (pair.data_ptr(), squares.data_ptr(), g_kl.data_ptr())
        products = (rows, *mu.shape, *block, log_s.data_ptr(), *factors)
        pending = Pending("products", products, (pair, squares, g_kl, log_s, logs))
        pending = pending if rows <= FEW_ROWS and units >= SOME_UNITS else pending.multiplied()
        grads: list[Tensor | None] = [None, None, None]
        if ctx.taker is not None and ctx.taker.take(mu, rho, omega, pending):
            grads += [None if part is None else torch.empty_like(part) for part in (b_mu, b_rho, b_omega)]
            if b_mu is not None:
                beta = sums.data_ptr()
                given_b = (beta, beta + FLOAT * units, g_kl.data_ptr())
                run("moments_back", 0, *bias, log_s.data_ptr(), *given_b, *map(_address, grads[3:]), d_s.data_ptr())
        else:
            parts = (mu, rho, omega, b_mu, b_rho, b_omega)
            grads = [None if part is None else torch.empty_like(part) for part in parts]
            made = pending.multiplied()  # its first tensor lives until the pass is over
            taken = (made.alive[0].data_ptr(), sums.data_ptr(), g_kl.data_ptr())
            weight = (mu.numel(), *block)
            run("linear_back", *weight, *bias, log_s.data_ptr(), *taken, *map(_address, grads), d_s.data_ptr())
        d_x = None
        if ctx.needs_input_grad[0]:
            through = _bmm(pair, both)
            d_x = torch.addcmul(through[0], squares[0], through[1], value=2)
        return d_x, d_s, *grads, None


class DrawLayer(torch.autograd.Function):
    """(log_s, weight's mu, rho, omega, intercept's mu, rho, omega, constants) to both values and the divergence."""

    @staticmethod
    def forward(
        ctx: Any,
        log_s: Tensor,
        mu: Tensor,
        rho: Tensor,
        omega: Tensor | None,
        b_mu: Tensor | None,
        b_rho: Tensor | None,
        b_omega: Tensor | None,
        constants: tuple[Any, ...],
    ) -> tuple[Tensor, Tensor, Tensor]:
        ctx.taker = _taker.get()
        seeds, logs, b_logs, delta, kind, kind_of_kl, places = constants
        kl = mu.new_empty(())
        options = (delta, kind, kind_of_kl)
        b_drawn: tuple[Tensor, Tensor | None, Tensor | None] = (kl, None, None)
        drawn = _draw(0, mu, rho, omega, logs, log_s, seeds[0], places[0], options, kl)
        if b_mu is not None and b_rho is not None:
            b_drawn = _draw(1, b_mu, b_rho, b_omega, b_logs, log_s, seeds[1], places[1], options, kl)
        ctx.save_for_backward(log_s, mu, rho, omega, b_mu, b_rho, b_omega)
        ctx.buffers = drawn[1:], b_drawn[1:], logs, b_logs, options
        return drawn[0], b_drawn[0], kl

    @staticmethod
    def backward(ctx: Any, given: Tensor, b_given: Tensor, g_kl: Tensor) -> tuple[Any, ...]:
        only_once()
        log_s, mu, rho, omega, b_mu, b_rho, b_omega = ctx.saved_tensors
        (eps, soft), (b_eps, b_soft), logs, b_logs, options = ctx.buffers
        d_s = mu.new_empty(())
        given = given if given.is_contiguous() else given.contiguous()
        block = (mu.numel(), mu.data_ptr(), rho.data_ptr(), _address(omega), *_logs(logs), log_s.data_ptr())
        described = (eps.data_ptr(), _address(soft), *options, given.data_ptr(), g_kl.data_ptr())
        pending = Pending("draw", (*block, *described), (eps, soft, given, g_kl, log_s, logs))
        d_weight: tuple[Any, ...] = (None, None, None)
        add = 0
        if ctx.taker is None or not ctx.taker.take(mu, rho, omega, pending):
            d_weight = _draw_back(0, mu, rho, omega, logs, log_s, eps, soft, options, given, g_kl, d_s)
            add = 1
        d_bias: tuple[Any, ...] = (None, None, None)
        if b_mu is not None:
            d_bias = _draw_back(add, b_mu, b_rho, b_omega, b_logs, log_s, b_eps, b_soft, options, b_given, g_kl, d_s)
        return d_s, *d_weight, *d_bias, None


def only_once() -> None:
    """These gradients have no graph of their own: say so, where one is asked for."""
    if torch.is_grad_enabled():
        raise RuntimeError("slabnet: the compiled passes have first derivatives only; use kernels.passes('torch')")


def _bmm(a: Tensor, b: Tensor) -> Tensor:
    """`torch.bmm` in the type of its factors: autocast would give a smaller one, and the C passes count on float32."""
    if not torch.is_autocast_enabled("cpu"):
        return torch.bmm(a, b)
    with torch.autocast("cpu", enabled=False):
        return torch.bmm(a, b)


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _draw(
    add: int,
    mu: Tensor,
    rho: Tensor,
    omega: Tensor | None,
    logs: Sequence[Tensor],
    log_s: Tensor,
    seed: Tensor,
    places: Tensor | None,
    options: tuple[float, int, int],
    kl: Tensor,
) -> tuple[Tensor, Tensor, Tensor | None]:
    value, eps = torch.empty_like(mu), torch.empty_like(mu)
    soft = None if omega is None else torch.empty_like(mu)
    block = (mu.numel(), mu.data_ptr(), rho.data_ptr(), _address(omega), *_logs(logs), log_s.data_ptr())
    made = (value.data_ptr(), eps.data_ptr(), _address(soft), kl.data_ptr())
    run("draw", add, *block, seed.data_ptr(), _address(places), *options, *made)
    return value, eps, soft


def _draw_back(
    add: int,
    mu: Tensor,
    rho: Tensor,
    omega: Tensor | None,
    logs: Sequence[Tensor],
    log_s: Tensor,
    eps: Tensor,
    soft: Tensor | None,
    options: tuple[float, int, int],
    given: Tensor,
    g_kl: Tensor,
    d_s: Tensor,
) -> tuple[Tensor, Tensor, Tensor | None]:
    given = given if given.is_contiguous() else given.contiguous()
    d_mu, d_rho = torch.empty_like(mu), torch.empty_like(mu)
    d_omega = None if omega is None else torch.empty_like(mu)
    block = (mu.numel(), mu.data_ptr(), rho.data_ptr(), _address(omega), *_logs(logs), log_s.data_ptr())
    described = (eps.data_ptr(), _address(soft), *options, given.data_ptr(), g_kl.data_ptr())
    run("draw_back", add, *block, *described, d_mu.data_ptr(), d_rho.data_ptr(), _address(d_omega), d_s.data_ptr())
    return d_mu, d_rho, d_omega


def _logs(logs: Sequence[Tensor]) -> tuple[int, int, int]:
    """Addresses of log psi and log(1 - psi), and whether there is one for each weight."""
    return (logs[0].data_ptr(), logs[1].data_ptr(), 0 if logs[0].ndim == 0 else 1) if logs else (0, 0, 0)
