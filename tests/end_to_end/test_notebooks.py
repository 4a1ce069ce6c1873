"""The notebooks of examples/ run from a clean start, cell by cell, and what a cell ends with can show itself."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import pytest

FOLDER = Path(__file__).parents[2] / "examples"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


def cells(path: Path) -> list[str]:
    """The code of a notebook."""
    parts = json.loads(path.read_text("utf-8"))["cells"]
    return ["".join(part["source"]) for part in parts if part["cell_type"] == "code"]


def run_cell(code: str, names: dict[str, Any], where: str) -> object:
    """Run a cell; the value of its last line, as a notebook shows it."""
    tree = ast.parse(code, where)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, where, "exec"), names)
    return None if last is None else eval(compile(ast.Expression(last.value), where, "eval"), names)


def test_there_is_one_for_each_journey() -> None:
    assert [path.stem for path in NOTEBOOKS] == ["choosing", "deploying", "explaining", "own_module", "table"]


@pytest.mark.slow
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "__main__"}
    for number, code in enumerate(cells(path), start=1):
        shown = run_cell(code, names, f"{path.name}, cell {number}")
        if shown is not None and not isinstance(shown, Path):
            assert shown._repr_html_().count("<"), f"cell {number} ends with nothing to show"  # type: ignore[attr-defined]
    plt.close("all")
    assert all(not part["outputs"] for part in json.loads(path.read_text())["cells"] if part["cell_type"] == "code")
