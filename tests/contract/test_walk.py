"""The walk of docs/architecture.md is the walk of the program: a real fit is followed, call by call."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from slabnet.cli import app

PAGE = Path(__file__).parents[2] / "docs" / "architecture.md"
HOP = re.compile(r"^\d+\. `([\w.]+)`", re.MULTILINE)
FEWER_THAN = 27  # hops of 0.1.0


def first_calls(command: list[str], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Functions of slabnet in the order of their first call, while a command runs."""
    names: dict[str, None] = {}

    def note(frame: FrameType, event: str, argument: Any) -> None:
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("slabnet."):
            names[f"{module.removeprefix('slabnet.')}.{frame.f_code.co_qualname}"] = None

    monkeypatch.setattr(sys, "argv", ["slabnet", *command])
    before = sys.getprofile()
    sys.setprofile(note)
    try:
        with pytest.raises(SystemExit) as left:
            app.run()
    finally:
        sys.setprofile(before)
    assert left.value.code in (None, 0)
    return list(names)


def test_the_page_names_the_hops_of_a_real_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = "\n".join(f"{i},{(i * 7) % 11},{2 * i + (i * 5) % 3}.5" for i in range(240))
    (tmp_path / "table.csv").write_text(f"a,b,y\n{rows}\n")
    monkeypatch.chdir(tmp_path)
    words = ["fit", "table.csv", "--target", "y", "--out", "m.slab", "--epochs", "2"]
    called = first_calls(words, monkeypatch)
    hops = HOP.findall(PAGE.read_text("utf-8"))
    assert 10 < len(hops) < FEWER_THAN
    assert [hop for hop in hops if hop not in called] == []
    places = [called.index(hop) for hop in hops]
    assert places == sorted(places), [hop for _, hop in sorted(zip(places, hops, strict=True))]
