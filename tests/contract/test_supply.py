"""What is imported is declared, and what is installed for the tests is pinned."""

from __future__ import annotations

import ast
import itertools
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_what_is_imported_is_declared() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = [*table["dependencies"], *itertools.chain(*table["optional-dependencies"].values())]
    names = {re.split(r"[<>=\[]", line)[0].lower().replace("-", "_") for line in declared} | {"slabnet"}
    called = {"sklearn": "scikit_learn"}
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            modules += [str(node.module)] if isinstance(node, ast.ImportFrom) and not node.level else []
            for module in modules:
                top = module.split(".")[0]
                known = top in sys.stdlib_module_names or called.get(top, top).lower() in names
                assert known, f"{path.name} imports {top}"


def test_every_pin_of_the_lock_has_a_hash_and_is_that_of_the_constraints() -> None:
    pins = dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    locked = (ROOT / "requirements" / "ci.lock").read_text().replace("\\\n", " ")
    lines = [line for line in locked.splitlines() if line.strip() and not line.startswith("#")]
    found = {}
    for line in lines:
        match = re.fullmatch(r"([A-Za-z0-9_.-]+)==(\S+)((?:\s+--hash=sha256:[0-9a-f]{64})+)", line.strip())
        assert match, line
        found[match[1]] = match[2]
    assert found == {name: version for name, version in pins.items() if name != "torch"}


def test_what_is_declared_is_pinned() -> None:
    table = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = table["project"]["optional-dependencies"].items()
    extras = {name: lines for name, lines in asked if name not in ("bench", "trackers")}  # not installed for the tests
    wanted = [*table["project"]["dependencies"], *itertools.chain(*extras.values()), *table["build-system"]["requires"]]
    pinned = {line.split("==")[0].lower() for line in (ROOT / "constraints.txt").read_text().splitlines()}
    assert {re.split(r"[<>=\[]", line)[0].lower() for line in wanted} <= pinned
