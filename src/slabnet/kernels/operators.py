"""The compiled passes as torch operators: `slabnet::moments`, `slabnet::draw` and `slabnet::local`.

Autograd and `torch.compile` see ordinary operators. Outside a compiled graph the same functions are called through
an `autograd.Function`, which costs half of the dispatcher's overhead for an operator written in Python.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from slabnet.kernels import native

RELAXED, HARD = 0, 1
KL = {"exact": 1, "sampled": 2}

_PRIOR = "Tensor log_psi, Tensor log_not_psi, Tensor log_s"
_BLOCK = f"Tensor mu, Tensor rho, Tensor? omega, {_PRIOR}"
_DRAW = "float delta, int kind, int kl"
_SCHEMAS = {
    "moments": f"({_BLOCK}) -> (Tensor, Tensor, Tensor)",
    "moments_back": f"({_BLOCK}, Tensor g_mean, Tensor g_variance, Tensor g_kl) -> (Tensor, Tensor, Tensor, Tensor)",
    "draw": f"({_BLOCK}, Tensor seed, {_DRAW}) -> (Tensor, Tensor, Tensor, Tensor)",
    "draw_back": f"({_BLOCK}, Tensor eps, Tensor soft, {_DRAW}, Tensor g_value, Tensor g_kl)"
    " -> (Tensor, Tensor, Tensor, Tensor)",
    "local": "(Tensor mean, Tensor variance, Tensor seed, int first_row, float floor) -> (Tensor, Tensor)",
    "noise": "(Tensor seed, int rows, int units, int first_row, bool uniforms) -> (Tensor, Tensor)",
}
_library: Any = torch.library.Library("slabnet", "DEF")  # type: ignore[no-untyped-call]
for _name, _schema in _SCHEMAS.items():
    _library.define(_name + _schema)


def _plain(tensor: Tensor | None) -> Tensor | None:
    """Without gaps or another order: the C loops walk straight through memory."""
    return tensor if tensor is None or tensor.is_contiguous() else tensor.contiguous()


def _prior(mu: Tensor, log_psi: Tensor, log_not_psi: Tensor) -> tuple[Tensor | None, Tensor | None, int]:
    if log_psi.ndim == 0 and log_not_psi.ndim == 0:
        return log_psi, log_not_psi, 0
    return _plain(log_psi.expand_as(mu)), _plain(log_not_psi.expand_as(mu)), 1


def _moments(
    mu: Tensor, rho: Tensor, omega: Tensor | None, log_psi: Tensor, log_not_psi: Tensor, log_s: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    mu, rho, omega = _plain(mu), _plain(rho), _plain(omega)  # type: ignore[assignment]
    mean = mu.new_empty(0) if omega is None else torch.empty_like(mu)  # without indicators it is mu itself
    variance, kl = torch.empty_like(mu), mu.new_empty(())
    on, off, step = _prior(mu, log_psi, log_not_psi)
    native.call("moments", 0, mu.numel(), mu, rho, omega, on, off, step, log_s, mean, variance, kl)
    return mean, variance, kl


def _moments_back(
    mu: Tensor,
    rho: Tensor,
    omega: Tensor | None,
    log_psi: Tensor,
    log_not_psi: Tensor,
    log_s: Tensor,
    g_mean: Tensor,
    g_variance: Tensor,
    g_kl: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    mu, rho, omega = _plain(mu), _plain(rho), _plain(omega)  # type: ignore[assignment]
    d_mu, d_rho, d_s = torch.empty_like(mu), torch.empty_like(mu), mu.new_empty(())
    d_omega = mu.new_empty(0) if omega is None else torch.empty_like(mu)
    on, off, step = _prior(mu, log_psi, log_not_psi)
    block = (0, mu.numel(), mu, rho, omega, on, off, step, log_s)
    given = (_plain(g_mean), _plain(g_variance), g_kl)
    native.call("moments_back", *block, *given, d_mu, d_rho, d_omega, d_s)
    return d_mu, d_rho, d_omega, d_s


def _draw(
    mu: Tensor,
    rho: Tensor,
    omega: Tensor | None,
    log_psi: Tensor,
    log_not_psi: Tensor,
    log_s: Tensor,
    seed: Tensor,
    delta: float,
    kind: int,
    kl: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    mu, rho, omega = _plain(mu), _plain(rho), _plain(omega)  # type: ignore[assignment]
    value, eps, total = torch.empty_like(mu), torch.empty_like(mu), mu.new_empty(())
    soft = mu.new_empty(0) if omega is None else torch.empty_like(mu)
    on, off, step = _prior(mu, log_psi, log_not_psi)
    block = (0, mu.numel(), mu, rho, omega, on, off, step, log_s)
    native.call("draw", *block, seed, None, delta, kind, kl, value, eps, soft, total)
    return value, total, eps, soft


def _draw_back(
    mu: Tensor,
    rho: Tensor,
    omega: Tensor | None,
    log_psi: Tensor,
    log_not_psi: Tensor,
    log_s: Tensor,
    eps: Tensor,
    soft: Tensor,
    delta: float,
    kind: int,
    kl: int,
    g_value: Tensor,
    g_kl: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    mu, rho, omega = _plain(mu), _plain(rho), _plain(omega)  # type: ignore[assignment]
    d_mu, d_rho, d_s = torch.empty_like(mu), torch.empty_like(mu), mu.new_empty(())
    d_omega = mu.new_empty(0) if omega is None else torch.empty_like(mu)
    on, off, step = _prior(mu, log_psi, log_not_psi)
    block = (0, mu.numel(), mu, rho, omega, on, off, step, log_s, eps, soft)
    native.call("draw_back", *block, delta, kind, kl, _plain(g_value), g_kl, d_mu, d_rho, d_omega, d_s)
    return d_mu, d_rho, d_omega, d_s


def _local(mean: Tensor, variance: Tensor, seed: Tensor, first_row: int, floor: float) -> tuple[Tensor, Tensor]:
    out, slope = (part.clone(memory_format=torch.contiguous_format) for part in (mean, variance))
    rows = mean.shape[0] if mean.ndim > 1 else 1
    units = mean.numel() // max(rows, 1)
    native.call("local", rows, units, first_row, seed, None, floor, None, None, out, slope)
    return out, slope


def _noise(seed: Tensor, rows: int, units: int, first_row: int, uniforms: bool) -> tuple[Tensor, Tensor]:
    eps = torch.empty(rows, units)
    nu = torch.empty(rows if uniforms else 0, units)
    native.call("noise", rows, units, first_row, seed, None, eps, nu if uniforms else None)
    return eps, nu


# What each gives, without computing it: `torch.compile` asks.


def _like_moments(mu: Tensor, rho: Tensor, omega: Tensor | None, *_: Any) -> tuple[Tensor, ...]:
    mean = mu.new_empty(0) if omega is None else torch.empty_like(mu)
    return mean, torch.empty_like(mu), mu.new_empty(())


def _like_draw(mu: Tensor, rho: Tensor, omega: Tensor | None, *_: Any) -> tuple[Tensor, ...]:
    soft = mu.new_empty(0) if omega is None else torch.empty_like(mu)
    return torch.empty_like(mu), mu.new_empty(()), torch.empty_like(mu), soft


def _like_back(mu: Tensor, rho: Tensor, omega: Tensor | None, *_: Any) -> tuple[Tensor, ...]:
    d_omega = mu.new_empty(0) if omega is None else torch.empty_like(mu)
    return torch.empty_like(mu), torch.empty_like(mu), d_omega, mu.new_empty(())


def _like_local(mean: Tensor, *_: Any) -> tuple[Tensor, ...]:
    return torch.empty_like(mean), torch.empty_like(mean)


def _like_noise(seed: Tensor, rows: int, units: int, first_row: int, uniforms: bool) -> tuple[Tensor, ...]:
    return torch.empty(rows, units), torch.empty(rows if uniforms else 0, units)


_MADE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "moments": (_moments, _like_moments),
    "moments_back": (_moments_back, _like_back),
    "draw": (_draw, _like_draw),
    "draw_back": (_draw_back, _like_back),
    "local": (_local, _like_local),
    "noise": (_noise, _like_noise),
}
for _name, (_made, _like) in _MADE.items():
    _library.impl(_name, _made, "CPU")
    torch.library.register_fake(f"slabnet::{_name}", _like, lib=_library)


# The gradients, once for the operators and for the functions that eager code calls.


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*inputs)


def _to_moments(back: Callable[..., Any]) -> Callable[..., Any]:
    def backward(ctx: Any, *given: Tensor) -> tuple[Tensor | None, ...]:
        d_mu, d_rho, d_omega, d_s = back(*ctx.saved_tensors, *given)
        return d_mu, d_rho, None if ctx.saved_tensors[2] is None else d_omega, None, None, d_s

    return backward


def _keep_draw(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    eps, soft = output[2:]
    ctx.save_for_backward(*inputs[:6], eps, soft)
    ctx.mark_non_differentiable(eps, soft)
    ctx.options = inputs[7:]


def _to_draw(back: Callable[..., Any]) -> Callable[..., Any]:
    def backward(ctx: Any, g_value: Tensor, g_kl: Tensor, *_: Any) -> tuple[Tensor | None, ...]:
        d_mu, d_rho, d_omega, d_s = back(*ctx.saved_tensors, *ctx.options, g_value, g_kl)
        d_omega = None if ctx.saved_tensors[2] is None else d_omega
        return d_mu, d_rho, d_omega, None, None, d_s, None, None, None, None

    return backward


def _keep_slope(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    ctx.save_for_backward(output[1])
    ctx.mark_non_differentiable(output[1])


def _to_local(ctx: Any, given: Tensor, _: Any) -> tuple[Tensor | None, ...]:
    (slope,) = ctx.saved_tensors
    return given, given * slope, None, None, None


_ops = torch.ops.slabnet
for _name, _backward, _setup in (
    ("moments", _to_moments(_ops.moments_back), _keep),
    ("draw", _to_draw(_ops.draw_back), _keep_draw),
    ("local", _to_local, _keep_slope),
):
    torch.library.register_autograd(f"slabnet::{_name}", _backward, setup_context=_setup, lib=_library)


def _function(
    name: str, forward: Callable[..., Any], keep: Callable[..., None], backward: Callable[..., Any]
) -> type[torch.autograd.Function]:
    parts = {"forward": forward, "setup_context": keep, "backward": once_differentiable(backward)}
    return type(name, (torch.autograd.Function,), {key: staticmethod(part) for key, part in parts.items()})


Moments = _function("Moments", _moments, _keep, _to_moments(_moments_back))
Draw = _function("Draw", _draw, _keep_draw, _to_draw(_draw_back))
Local = _function("Local", _local, _keep_slope, _to_local)
