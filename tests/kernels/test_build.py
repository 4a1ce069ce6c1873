"""The library is built where a compiler is, from the sources that are installed, and called with what it takes."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import slabnet as sn
from slabnet.experiments.run import claimed
from slabnet.kernels import native
from slabnet.kernels.sources import digest
from slabnet.training import fit as fitting

COMPILER = shutil.which(os.environ.get("CC", "cc").split()[0])
FOLDER = Path(native.__file__).parent
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here")
@pytest.mark.skipif(os.environ.get("SLABNET_KERNELS") == "torch", reason="the passes in torch were asked for")
def test_where_a_compiler_is_the_passes_are_built_from_these_sources() -> None:
    libraries = sorted(FOLDER.glob("kernels.*.so"))
    assert libraries, (
        f"{COMPILER} is there, but the C passes were not built: run `pip install -e .` and read what it says"
    )
    reasons = {path.name: native.refusal(path) for path in libraries if native.refusal(path) is not None}
    assert not reasons, f"libraries that are not loaded; build them again with `pip install -e .`: {reasons}"
    assert native.variant() is not None


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here")
@pytest.mark.parametrize("named", [True, False])
def test_a_library_of_other_sources_is_not_loaded(named: bool, tmp_path: Path) -> None:
    code = tmp_path / "other.c"
    code.write_text('const char *slabnet_sources(void) { return "0123456789abcdef"; }' if named else "int one = 1;")
    library = tmp_path / "kernels.baseline.so"
    subprocess.run([str(COMPILER), "-shared", "-fPIC", "-o", str(library), str(code)], check=True)
    reason = native.refusal(library)
    assert reason is not None
    assert ("0123456789abcdef" if named else "of no name") in reason
    assert digest(FOLDER / "c") in reason


def test_a_file_that_is_no_library_is_not_loaded(tmp_path: Path) -> None:
    broken = tmp_path / "kernels.avx2.so"
    broken.write_bytes(b"no library")
    assert native.refusal(broken) is not None


def test_any_change_of_the_sources_changes_their_digest(tmp_path: Path) -> None:
    shutil.copytree(FOLDER / "c", tmp_path / "c")
    before = digest(tmp_path / "c")
    assert before == digest(FOLDER / "c")
    header = tmp_path / "c" / "adam.h"
    header.write_text(header.read_text() + "\n")
    assert digest(tmp_path / "c") != before
    header.rename(header.with_name("adam2.h"))
    assert digest(tmp_path / "c") != before


@pytest.mark.skipif(native.library() is None, reason="no compiled passes here")
def test_a_pass_called_with_too_many_or_too_few_arguments_is_not_made() -> None:
    for arguments in ((), (0,) * 40):
        with pytest.raises(TypeError, match="the pass adam takes 13 arguments"):
            native.run("adam", *arguments)


def test_setup_lists_every_header() -> None:
    text = (ROOT / "setup.py").read_text("utf-8")
    assert all(f'"{path.stem}"' in text for path in (FOLDER / "c").glob("*.h"))


@pytest.mark.skipif(COMPILER is None, reason="there is no C compiler here")
@pytest.mark.parametrize(("elsewhere", "compiles"), [(["-U__linux__", "-D_WIN32"], True), ([], False)])
def test_headers_of_unix_are_behind_guards(elsewhere: list[str], compiles: bool, tmp_path: Path) -> None:
    """They are asked for on Linux, and only there: instead of them stand files that do not compile."""
    for name in ("sched.h", "sys/mman.h", "unistd.h", "pthread.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("#error asked for\n")
    words = [str(COMPILER), "-fsyntax-only", "-DSLABNET_SOURCES=abc", f"-I{tmp_path}", *elsewhere]
    run = subprocess.run([*words, str(FOLDER / "c" / "kernels.c")], capture_output=True, text=True, check=False)
    assert (run.returncode == 0) == compiles, run.stderr
    assert compiles or "asked for" in run.stderr


def test_a_fit_says_once_what_it_costs_that_nothing_was_built(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    data = torch.zeros(6, 2), torch.arange(6) % 2
    monkeypatch.delenv("SLABNET_KERNELS", raising=False)
    monkeypatch.setattr(native, "library", lambda: None)
    monkeypatch.setattr(native, "refusal", lambda path: None)
    fitting._say_cost.cache_clear()
    with caplog.at_level(logging.WARNING, logger="slabnet"):
        for kind in (torch.float64, torch.float32, torch.float32):
            sn.fit(sn.mlp((2, 2)).to(kind), data, sn.TrainConfig(epochs=1, batch_size=6), progress="off")
    assert [record.getMessage() for record in caplog.records] == [f"fit: {native.cost_of_torch()}"]
    assert "about 4 times as long: no C library was built here" in caplog.text
    fitting._say_cost.cache_clear()


def test_a_run_is_made_where_nothing_can_be_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fcntl", None)
    with claimed(tmp_path / "run"):
        pass
    assert not list(tmp_path.iterdir())


def test_every_module_imports_where_the_modules_of_unix_are_missing() -> None:
    code = """
import importlib, pkgutil, sys
import torch, sklearn.base, matplotlib, typer, rich.live, pyarrow, pooch
sys.modules |= dict.fromkeys(["fcntl", "resource", "pwd", "grp", "termios"])
import slabnet
for found in pkgutil.walk_packages(slabnet.__path__, "slabnet."):
    if not found.name.endswith("__main__"):
        importlib.import_module(found.name)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
