"""Where a number comes from: commit, versions, machine."""

from __future__ import annotations

import os
import platform
import subprocess
from pathlib import Path
from typing import Any

import torch

from slabnet.core.version import __version__
from slabnet.kernels.native import variant


def provenance() -> dict[str, Any]:
    """The commit of the source this runs from (None outside a checkout), versions and machine."""
    return {
        "commit": commit(),
        "machine": {"cores": os.cpu_count(), "processor": platform.machine(), "threads": torch.get_num_threads()},
        "kernels": variant(),
        "versions": {"slabnet": __version__, "torch": torch.__version__, "python": platform.python_version()},
    }


def commit() -> str | None:
    """The short name of the checked-out commit, with a + where the source has changed since."""
    here = Path(__file__).resolve().parent
    revision = _git("rev-parse", "--short", "HEAD", cwd=here)
    if revision is None or _git("ls-files", "--error-unmatch", "provenance.py", cwd=here) is None:
        return None  # installed beside some other project's repository
    return revision + ("+" if _git("status", "--porcelain", str(here.parent), cwd=here) else "")


def _git(*words: str, cwd: Path) -> str | None:
    try:
        finished = subprocess.run(["git", *words], cwd=cwd, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return finished.stdout.strip() if finished.returncode == 0 else None
