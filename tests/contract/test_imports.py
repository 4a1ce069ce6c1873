"""The layout: imports point one way, files stay short, public names are what they say."""

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
# The folders, in the order in which they may import each other: only those before.
ROOMS = [
    "core",
    "config",
    "maths",
    "kernels",
    "model",
    "distributed",
    "training",
    "data",
    "selection",
    "prediction",
    "compact",
    "store",
    "export",
    "plots",
    "estimators",
    "experiments",
    "report",
    "cli",
    "__main__",
]
LEVEL = {name: level for level, name in enumerate(ROOMS)}
MOST_LOOSE = 8  # names beside the folders
MOST_LINES = 60  # of a function
FILES = sorted(path for path in SOURCE.rglob("*.py") if path != SOURCE / "__init__.py")


def imported(path: Path) -> list[tuple[str, str]]:
    """(part of slabnet, name) that a file imports, wherever in it, lazily or for type checkers alone too."""
    found, modules = [], dict[str, str]()  # modules: what a file calls a module -> the folder that has it
    nodes = list(ast.walk(ast.parse(path.read_text())))
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path.name} imports relative to itself"
            parts = (node.module or "").split(".")
            if parts[0] == "slabnet":
                found += [(parts[1] if len(parts) > 1 else alias.name, alias.name) for alias in node.names]
                modules |= {alias.asname or alias.name: [*parts, alias.name][1] for alias in node.names}
        elif isinstance(node, ast.Import):
            names = [(alias.name.split("."), alias.asname) for alias in node.names]
            found += [(parts[1], "") for parts, _ in names if parts[0] == "slabnet" and len(parts) > 1]
            modules |= {called: parts[1] for parts, called in names if called and parts[0] == "slabnet" and parts[1:]}
    for node in nodes:  # module._name, and a class's too
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            private = node.attr.startswith("_") and not node.attr.startswith("__")
            found += [(modules[node.value.id], node.attr)] if private else []
    return found


def test_imports_of_every_kind_are_seen(tmp_path: Path) -> None:
    lines = [
        "from slabnet.model.priors import _a",
        "import slabnet.cli.app",
        "import slabnet.report.page as page",
        "def late():",
        "    from slabnet.kernels import native",
        "    return native._b, page._c",
    ]
    (tmp_path / "some.py").write_text("\n".join(lines))
    seen = [("model", "_a"), ("cli", ""), ("report", ""), ("kernels", "native"), ("kernels", "_b"), ("report", "_c")]
    assert sorted(imported(tmp_path / "some.py")) == sorted(seen)


def room(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_point_to_earlier_rooms(path: Path) -> None:
    own = room(path)
    for other, name in imported(path):
        if other == own or name == "__version__":
            continue
        assert LEVEL[other] < LEVEL[own], f"{own} imports {other}"
        assert not name.startswith("_"), f"{name} is private to {other}"


def test_the_folders_are_the_rooms() -> None:
    folders = {path.name for path in SOURCE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert folders == {name for name in ROOMS if name not in ("store", "__main__")}
    loose = [path.name for path in SOURCE.iterdir() if not path.is_dir()]
    assert len(loose) <= MOST_LOOSE, loose


def test_tests_mirror_the_rooms() -> None:
    extra = {"contract", "hostile", "end_to_end", "browser", "fixtures", "__pycache__"}
    folders = {path.name for path in Path(__file__).parents[1].iterdir() if path.is_dir()}
    assert folders - extra <= set(ROOMS)


def test_files_have_one_job() -> None:
    long = {str(p): n for p in SOURCE.rglob("*.py") if (n := len(p.read_text().splitlines())) > 400}
    assert not long


def test_functions_are_short() -> None:
    long = {}
    for path in SOURCE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                lines = (node.end_lineno or 0) - node.lineno + 1
                long |= {f"{path.name}:{node.name}": lines} if lines > MOST_LINES else {}
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
