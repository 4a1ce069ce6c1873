"""Shared by all tests: one thread each (they run side by side), and small data."""

from __future__ import annotations

import os

os.environ["OMP_NUM_THREADS"] = "1"

import pytest
import torch
from hypothesis import settings

settings.register_profile("ci", derandomize=True)  # the same examples every time; elsewhere new ones are tried
if os.environ.get("CI"):
    settings.load_profile("ci")

torch.set_num_threads(1)


@pytest.fixture
def generator() -> torch.Generator:
    return torch.Generator().manual_seed(7)


@pytest.fixture
def blobs(generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor]:
    """Three classes that two of four inputs tell apart."""
    y = torch.arange(150) % 3
    x = torch.randn(150, 4, generator=generator)
    x[:, 0] += 3.0 * (y == 1)
    x[:, 1] += 3.0 * (y == 2)
    return x, y
