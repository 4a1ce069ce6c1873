"""Shared by all tests: one thread each (they run side by side), and small data."""

from __future__ import annotations

import json
import os

os.environ["OMP_NUM_THREADS"] = "1"
os.environ["SLABNET_OFFLINE"] = "1"  # a test that lacks its data fetches nothing

import pytest
import torch
from hypothesis import settings

settings.register_profile("ci", derandomize=True)  # the same examples every time; elsewhere new ones are tried
if os.environ.get("CI"):
    settings.load_profile("ci")

torch.set_num_threads(1)


_counts: dict[str, int] = {}


@pytest.fixture(scope="session")
def counts() -> dict[str, int]:
    """How many inputs were tried and kills survived, for SECURITY.md."""
    return _counts


def pytest_sessionfinish() -> None:
    """Keep the counts where SLABNET_COUNTS says (one process only: `make security`)."""
    path = os.environ.get("SLABNET_COUNTS")
    if path and _counts:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(dict(sorted(_counts.items())), file, indent=1)


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
