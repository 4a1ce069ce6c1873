"""The one switch: each pass over the weights in C where that applies, else in torch, with equal results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Literal

import torch
from torch import Tensor

from slabnet.kernels import native, operators, reference
from slabnet.kernels.fused import DrawLayer, LocalLinear

VARIANCE_FLOOR = 1e-16  # the root of a variance of exactly zero has no gradient
Divergence = Literal["exact", "sampled"]
Parts = tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor, Tensor]  # mu, rho, omega; log psi, log(1 - psi), log s


def next_seed(generator: torch.Generator) -> Tensor:
    """A key for `noise_like`, `slab_draw` or `local_draw`: the generator's next number, never brought to Python."""
    return next_seeds(generator, 1)[0]


def next_seeds(generator: torch.Generator, count: int) -> tuple[Tensor, ...]:
    """Several keys at once."""
    drawn: tuple[Tensor, ...] = (
        torch.empty(count, dtype=torch.int64, device=generator.device).random_(generator=generator).unbind()
    )
    return drawn


def slab_moments(
    mu: Tensor, rho: Tensor, omega: Tensor | None, log_psi: Tensor, log_not_psi: Tensor, log_s: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Mean and variance of each weight (eq. 6), and their divergence from the prior (eq. 3), in one pass.

    The divergence is an output of its own, so that it counts once however often the moments are used.
    """
    if not native.applies(mu):
        passed: tuple[Tensor, Tensor, Tensor] = _torch("moments")(mu, rho, omega, log_psi, log_not_psi, log_s)
        return passed
    run: Any = torch.ops.slabnet.moments if torch.compiler.is_compiling() else operators.Moments.apply
    mean, variance, kl = run(mu, rho, omega, log_psi, log_not_psi, log_s)
    return mu if omega is None else mean, variance, kl


def slab_draw(
    mu: Tensor,
    rho: Tensor,
    omega: Tensor | None,
    log_psi: Tensor,
    log_not_psi: Tensor,
    log_s: Tensor,
    seed: Tensor,
    delta: float,
    hard: bool,
    kl: Divergence,
    places: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """A relaxed or straight-through draw of each weight (Prop. 2), and the divergence, in one pass.

    places: where each weight stood in the block its noise belongs to, if the block was cut.
    """
    if places is not None or not native.applies(mu):
        noise = noise_like(mu, seed, places)
        block = (mu, rho, omega, log_psi, log_not_psi, log_s)
        drawn: tuple[Tensor, Tensor] = _torch("draw")(*block, *noise, delta, hard, kl == "sampled")
        return drawn
    run: Any = torch.ops.slabnet.draw if torch.compiler.is_compiling() else operators.Draw.apply
    kind = operators.HARD if hard else operators.RELAXED
    value, total, *_ = run(mu, rho, omega, log_psi, log_not_psi, log_s, seed, delta, kind, operators.KL[kl])
    return value, total


def local_draw(
    mean: Tensor, variance: Tensor, seed: Tensor, first_row: int = 0, places: Tensor | None = None
) -> Tensor:
    """Local reparametrisation: one normal for each pre-activation, keyed by its row and place in the row."""
    if places is not None or not native.applies(mean):
        eps = reference.noise_by_row(mean, seed, first_row, places)
        drawn: Tensor = _torch("local")(mean, variance, eps, VARIANCE_FLOOR)
        return drawn
    run: Any = torch.ops.slabnet.local if torch.compiler.is_compiling() else operators.Local.apply
    out: Tensor = run(mean, variance, seed, first_row, VARIANCE_FLOOR)[0]
    return out


def local_linear(
    x: Tensor, blocks: Sequence[Parts], seed: Tensor, first_row: int = 0, places: Tensor | None = None
) -> tuple[Tensor, Tensor] | None:
    """A whole linear layer under local reparametrisation, and its divergence; None where that takes separate passes."""
    if x.ndim != 2 or not x.is_contiguous() or not _one_node(x, blocks):
        return None
    (mu, rho, omega, on, off, log_s), *bias = blocks
    b_mu, b_rho, b_omega, *b_logs = bias[0][:5] if bias else (None, None, None)
    constants = (seed, first_row, VARIANCE_FLOOR, (on, off), b_logs, places)
    given = (x, log_s, mu, rho, omega, b_mu, b_rho, b_omega, constants)
    answer: tuple[Tensor, Tensor] = LocalLinear.apply(*given)  # type: ignore[no-untyped-call]
    return answer


def draw_layer(
    blocks: Sequence[Parts],
    seeds: Sequence[Tensor],
    delta: float,
    hard: bool,
    kl: Divergence,
    places: Sequence[Tensor | None] = (None, None),
) -> tuple[list[Tensor], list[Tensor]]:
    """`slab_draw` of the blocks of a layer: their values, and the terms of the divergence."""
    if not _one_node(blocks[0][0], blocks):
        given_to = zip(blocks, seeds, places, strict=False)  # an intercept may be missing
        drawn = [slab_draw(*part, seed, delta, hard, kl, place) for part, seed, place in given_to]
        return [value for value, _ in drawn], [price for _, price in drawn]
    (mu, rho, omega, on, off, log_s), *bias = blocks
    b_mu, b_rho, b_omega, *b_logs = bias[0][:5] if bias else (None, None, None)
    kind = operators.HARD if hard else operators.RELAXED
    constants = (seeds, (on, off), b_logs, delta, kind, operators.KL[kl], places)
    given = (log_s, mu, rho, omega, b_mu, b_rho, b_omega, constants)
    value, b_value, price = DrawLayer.apply(*given)  # type: ignore[no-untyped-call]
    return [value, b_value] if bias else [value], [price]


def _one_node(like: Tensor, blocks: Sequence[Parts]) -> bool:
    """Whether a layer's passes can be one node of the graph: in C, and on memory without gaps."""
    if not native.applies(like) or torch.compiler.is_compiling():
        return False
    return all(
        part is None or (part.is_contiguous() and part.dtype == like.dtype) for block in blocks for part in block
    )


def noise_like(like: Tensor, seed: Tensor, places: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Standard normals, and uniforms strictly inside (0, 1), in the shape of a block: those `slab_draw` uses."""
    if places is not None or not native.applies(like):
        return reference.noise_like(like, seed, places)
    eps, nu = torch.ops.slabnet.noise(seed, 1, like.numel(), 0, True)
    return eps.reshape(like.shape), nu.reshape(like.shape)


def _torch(name: str) -> Callable[..., Any]:
    """A pass in torch, compiled if that was asked for. Noise is made outside: inductor gets 64-bit integers wrong."""
    function: Callable[..., Any] = getattr(reference, name)
    return _compiled(function) if native.chosen() == "compiled" else function


@cache
def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, dynamic=False)
