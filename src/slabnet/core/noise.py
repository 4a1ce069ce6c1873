"""Where random numbers come from: always a generator that was passed, never torch's global state."""

from __future__ import annotations

import hashlib

import torch
from torch import Tensor

from slabnet.core.errors import check_whole

Seed = int | torch.Generator


def seed_number(seed: Seed, where: str) -> int:
    """A whole number that stands for `seed`; a generator gives its next number."""
    if isinstance(seed, torch.Generator):
        top = torch.iinfo(torch.int64).max
        return int(torch.randint(top, (), generator=seed, device=seed.device))
    return check_whole(where, "seed", seed, at_least=0)


def keyed_generator(seed: int, *key: int | str, device: torch.device | str = "cpu") -> torch.Generator:
    """A generator that depends on `seed` and `key` only, so that draw r is the same however work is cut up.

    >>> a = torch.rand(2, generator=keyed_generator(1, "draw", 7))
    >>> bool((a == torch.rand(2, generator=keyed_generator(1, "draw", 7))).all())
    True
    """
    return reseed(torch.Generator(device=device), seed, *key)


def reseed(generator: torch.Generator, seed: int, *key: int | str) -> torch.Generator:
    """Make `generator` the one that belongs to `seed` and `key`."""
    digest = hashlib.blake2b(repr((seed, *key)).encode(), digest_size=8).digest()
    return generator.manual_seed(int.from_bytes(digest, "little") >> 1)


def normal_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Standard normals in the shape, type and place of `tensor`."""
    return torch.randn(tensor.shape, generator=generator, device=tensor.device, dtype=tensor.dtype)


def uniform_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """Uniforms strictly inside (0, 1): a generator can return 0, whose logit is infinite."""
    nu = torch.rand(tensor.shape, generator=generator, device=tensor.device, dtype=tensor.dtype)
    tiny = torch.finfo(tensor.dtype).eps / 4
    return nu.clamp_(tiny, 1 - 2 * tiny)


def logistic_like(tensor: Tensor, generator: torch.Generator) -> Tensor:
    """logit(nu) for uniform nu: the noise of a relaxed indicator (Prop. 2)."""
    return torch.logit(uniform_like(tensor, generator))
