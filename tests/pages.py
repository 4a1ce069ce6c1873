"""Run the examples of a page: its blocks one after the other, in one process and one folder, as a reader would.

A ```python block is executed, each line of a ```bash block is a command. A ```text block right after one of them shows
what the reader will see: its lines must be among those that were printed, in that order. `...` stands for anything, and
numbers may differ by a tenth, since processors round differently and a fit follows them.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

FENCE = re.compile(r"^```([^`\n]*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")
RUN = ("python", "bash")
DOCS = Path(__file__).resolve().parent.parent / "docs"


@dataclass(frozen=True)
class Example:
    """A block to run, the line it starts at, and what the page shows of its output."""

    kind: str
    code: str
    line: int
    shown: str | None


def site_pages() -> list[Path]:
    """The pages of the site, wherever in docs they are."""
    return sorted(page for page in DOCS.rglob("*.md") if "_build" not in page.parts)


def examples(page: Path) -> list[Example]:
    """The blocks of a page that are run."""
    text = page.read_text("utf-8")
    blocks = list(FENCE.finditer(text))
    found = []
    for block, after in itertools.zip_longest(blocks, blocks[1:]):
        if block[1] in RUN:
            follows = after is not None and after[1] == "text" and not text[block.end() : after.start()].strip()
            line = text.count("\n", 0, block.start()) + 2
            found.append(Example(block[1], block[2], line, after[2] if after is not None and follows else None))
    return found


def run_page(page: Path) -> str:
    """Run a page's examples in the current folder; what they printed, or an AssertionError that names the line."""
    names: dict[str, Any] = {"__name__": "__main__"}
    printed = []
    for example in examples(page):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            if example.kind == "python":
                # Blank lines in front, so that a traceback has the page's own line numbers.
                exec(compile("\n" * (example.line - 1) + example.code, str(page), "exec"), names)
            else:
                for command in commands(example.code):
                    said.write(run_command(command, f"{page.name}:{example.line}"))
        printed.append(said.getvalue())
        if example.shown is not None:
            check_shown(example.shown, printed[-1], f"{page.name}:{example.line}")
    return "".join(printed)


def commands(block: str) -> Iterator[list[str]]:
    """The commands of a bash block, comments and continued lines taken care of."""
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


def run_command(words: list[str], where: str) -> str:
    """Run one command; ours in this process, because loading torch takes seconds."""
    if words[0] == "slabnet" and "--workers" not in words:  # with workers this process would become torchrun
        from slabnet.cli.app import run

        said, complaint, code = io.StringIO(), io.StringIO(), 0
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(complaint), mock.patch("sys.argv", words):
            try:
                run()
            except SystemExit as left:
                code = left.code if isinstance(left.code, int) else 1
        assert code == 0, f"{where}: {shlex.join(words)}: exit {code}: {complaint.getvalue()}"
        return said.getvalue()
    modules = {"slabnet": "slabnet", "torchrun": "torch.distributed.run"}
    first = [sys.executable, "-m", modules[words[0]]] if words[0] in modules else words[:1]
    first = [sys.executable] if words[0] == "python" else first
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([*first, *words[1:]], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, f"{where}: {shlex.join(words)}: exit {done.returncode}: {done.stderr}"
    return done.stdout


def check_shown(shown: str, printed: str, where: str) -> None:
    """Every line the page shows was printed, in the order of the page."""
    rest = iter(line.rstrip() for line in printed.splitlines())
    for line in filter(None, (line.rstrip() for line in shown.splitlines())):
        if line.strip() != "...":
            assert any(same(line, one) for one in rest), f"{where}: shows {line!r}, and printed was:\n{printed}"


def same(shown: str, printed: str) -> bool:
    """Whether two lines agree: numbers within a tenth, or a unit of the last digit that is shown.

    `...` agrees with anything. Another processor rounds otherwise, and a fit goes its own way from there.
    """
    pattern = re.escape(NUMBER.sub("\0", shown)).replace(re.escape("\0"), f"({NUMBER.pattern})")
    pattern = pattern.replace(re.escape("..."), ".*?").replace(r"\ ", r"\s*")
    found = re.fullmatch(pattern, printed)
    if found is None:
        return False
    pairs = zip(NUMBER.findall(shown), (one for one in found.groups() if one is not None), strict=True)
    return all(abs(float(a) - float(b)) <= _leeway(a) for a, b in pairs)


def _leeway(shown: str) -> float:
    digits, _, power = shown.partition("e")
    last = 10.0 ** (int(power or 0) - len(digits.partition(".")[2])) if "." in digits else 0.0
    return max(1.01 * last, 0.1 * abs(float(shown)))


if __name__ == "__main__":
    print(run_page(Path(sys.argv[1]).resolve()))
