"""Print requirements with the lowest version that the metadata allow of each package; torch at that of constraints.txt.

The tools of the tests are those of constraints.txt.
"""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "ruff", "mypy", "playwright")  # of the tests, not of slabnet
AS_CONSTRAINED = ("torch", *TOOLS)
OF_THEIR_TIME = ("click==8.1.8",)  # what the lowest versions ask for in turn, where a newer one warns


def lowest() -> list[str]:
    """One line for each package of the dependencies and of the extra `dev`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pins = dict(re.findall(r"^([A-Za-z0-9_.-]+)==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE))
    lines = {}
    for line in [*project["optional-dependencies"]["dev"], *project["dependencies"]]:
        name, floor = re.fullmatch(r"([A-Za-z0-9_.-]+)>=([\d.]+)", line).groups()  # type: ignore[union-attr]
        lines[name] = f"{name}=={pins[name] if name in AS_CONSTRAINED else floor}"
    return [*lines.values(), *OF_THEIR_TIME, f"setuptools=={pins['setuptools']}"]


if __name__ == "__main__":
    print("\n".join(lowest()))
