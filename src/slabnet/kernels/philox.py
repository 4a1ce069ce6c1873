"""Random numbers that are a function of (seed, row, element): Philox4x32-7, in torch.

Salmon et al. (2011) found no failure of seven rounds in any battery of tests; ten are customary where time is no issue.

Nothing is carried from one number to the next, so any part of a stream can be made anywhere: in a C loop, on
another thread, in the backward pass, in another process. `kernels.c` makes the same numbers.

Element i of a row has the counter (i // 32 * 16 + i % 16, row, 0, 0). Its four words give two normals by
Box-Muller, the cosine for the first 16 of 32 elements and the sine for the others, and a uniform for each.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

LANES, ROUNDS = 16, 7
_WORD = 0xFFFFFFFF


def philox(counter: Tensor, row: Tensor, seed: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four words of 32 bits (in int64) for each counter; `seed` is one int64, the key of the generator."""
    k0, k1 = seed & _WORD, (seed >> 32) & _WORD
    zero = torch.zeros_like(counter)
    x0, x1, x2, x3 = counter & _WORD, row & _WORD, zero, zero
    for _ in range(ROUNDS):
        from0, from2 = x0 * 0xD2511F53, x2 * 0xCD9E8D57  # wraps around, which keeps all 64 bits
        x0, x2 = ((from2 >> 32) & _WORD) ^ x1 ^ k0, ((from0 >> 32) & _WORD) ^ x3 ^ k1
        x1, x3 = from2 & _WORD, from0 & _WORD
        k0, k1 = (k0 + 0x9E3779B9) & _WORD, (k1 + 0xBB67AE85) & _WORD
    return x0, x1, x2, x3


def uniforms(seed: Tensor, rows: int, counters: int, first_row: int, dtype: torch.dtype) -> Tensor:
    """Four uniforms strictly inside (0, 1) for each counter, of shape (4, rows, counters)."""
    counter = torch.arange(counters, device=seed.device).expand(rows, counters)
    row = torch.arange(first_row, first_row + rows, device=seed.device).reshape(rows, 1).expand(rows, counters)
    words = torch.stack(philox(counter, row, seed))
    return ((words >> 9).to(dtype) + 0.5) * 2.0**-23  # 23 bits: exact in float32, and so is one minus it


def from_uniforms(u: Tensor, units: int) -> tuple[Tensor, Tensor]:
    """Standard normals and uniforms of `units` elements in each row, from what `uniforms` gave."""
    u = u.reshape(4, u.shape[1], -1, LANES)
    radius, angle = torch.sqrt(-2 * torch.log(u[0])), 2 * math.pi * u[1]
    normals = torch.stack([radius * torch.cos(angle), radius * torch.sin(angle)], dim=2)
    others = torch.stack([u[2], u[3]], dim=2)
    return normals.reshape(u.shape[1], -1)[:, :units], others.reshape(u.shape[1], -1)[:, :units]


def normals_at(seed: Tensor, rows: int, places: Tensor, first_row: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Standard normals and uniforms of the elements `places` of each row, wherever in it they lie."""
    shape = (rows, len(places))
    counter = (places // (2 * LANES) * LANES + places % LANES).expand(shape)
    row = torch.arange(first_row, first_row + rows, device=seed.device).reshape(rows, 1).expand(shape)
    u = ((torch.stack(philox(counter, row, seed)) >> 9).to(dtype) + 0.5) * 2.0**-23
    second = (places // LANES % 2 == 1).expand(shape)
    radius, angle = torch.sqrt(-2 * torch.log(u[0])), 2 * math.pi * u[1]
    normals = radius * torch.where(second, torch.sin(angle), torch.cos(angle))
    return normals, torch.where(second, u[3], u[2])


def counters_for(units: int) -> int:
    """How many counters a row of `units` elements takes: one for two, in whole groups."""
    return -(-units // (2 * LANES)) * LANES
