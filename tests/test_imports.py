"""The house: imports point one way, files stay short, public names are what they say."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

import slabnet as sn

SOURCE = Path(sn.__file__).parent
ROWS = [
    ["version", "checks", "halting"],
    ["methods", "files", "noise", "kl"],
    ["config", "recipes", "kernels", "enumeration", "containers", "meeting"],
    ["posteriors", "checkpoints", "shared_sums", "workers"],
    ["priors"],
    ["scopes"],
    ["draws"],
    ["layers"],
    ["baselines", "kept"],
    ["likelihoods", "records"],
    ["networks", "convert", "elbo", "optimiser", "convergence", "progress", "devices", "metrics", "distributed"],
    ["attach", "batches", "paths", "calibration"],
    ["select", "cutting", "validation"],
    ["snapshots"],
    ["runs"],
    ["folding", "pruning", "trust", "importance", "train", "predict"],
    ["compact"],
    ["packing"],
    ["store"],
    ["criteria", "inspection", "data", "estimators", "export"],
    ["plots"],
    ["experiments"],
    ["report"],
    ["workflow"],
    ["tables"],
    ["table_predictions"],
    ["demo"],
    ["cli"],
    ["__main__"],
]
LEVEL = {name: level for level, names in enumerate(ROWS) for name in names}


def imported(path: Path) -> set[str]:
    """The parts of slabnet that a file imports, wherever in it (but not for type checkers alone)."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("slabnet"):
            parts = node.module.split(".")
            found |= {parts[1]} if len(parts) > 1 else {alias.name for alias in node.names}
    return found


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_to_earlier_rows(path: Path) -> None:
    part = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    if part == "__init__":
        return
    for other in imported(path) - {part}:
        assert LEVEL[other] < LEVEL[part], f"{part} (row {LEVEL[part]}) imports {other} (row {LEVEL[other]})"


def test_files_have_one_job() -> None:
    long = {str(p): n for p in SOURCE.rglob("*.py") if (n := len(p.read_text().splitlines())) > 400}
    assert not long


def test_public_names_are_not_hidden_by_modules_of_the_same_name() -> None:
    for info in pkgutil.walk_packages([str(SOURCE)], "slabnet."):
        if not info.name.endswith("__main__"):
            importlib.import_module(info.name)
    for name in sn.__all__:
        if name not in ("data",):
            assert not isinstance(getattr(sn, name), ModuleType), name
    assert set(sn.__all__) <= set(dir(sn))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = sn.nothing  # type: ignore[attr-defined]


def test_importing_the_package_does_not_load_torch() -> None:
    code = "import sys, slabnet; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_every_public_name_is_documented() -> None:
    for name in sn.__all__:
        value = getattr(sn, name)
        if callable(value) and not name.startswith("__"):
            assert (value.__doc__ or "").strip(), name
