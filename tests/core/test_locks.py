"""One process at a time in the folder of a run; who died, whoever it was, keeps nobody out."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

import slabnet as sn
from slabnet.core.files import remove_leftovers
from slabnet.core.locks import LOCK, holding

HOLD = """
import sys, time
from slabnet.core.locks import holding
with holding(sys.argv[1], "test"):
    print("mine", flush=True)
    time.sleep(60)
"""


def holder(folder: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(folder)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "mine\n"
    return process


def test_another_process_is_refused_by_name_and_its_death_frees_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = holder(folder)
    try:
        wanted = f"got process {process.pid} on {platform.node()}"
        with pytest.raises(sn.ArgumentError, match=wanted), holding(folder, "fit"):
            pytest.fail("two have it")
        x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
        with pytest.raises(sn.ArgumentError, match=wanted):
            sn.fit(
                sn.mlp((3, 2)), (x, (x[:, 0] > 0).long()), sn.TrainConfig(epochs=1, batch_size=20), checkpoint=folder
            )
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert (folder / LOCK).exists()  # nobody was left to take it away
    with holding(folder, "fit"):
        assert (folder / LOCK).read_text() == f"process {os.getpid()} on {platform.node()}\n"
    assert not (folder / LOCK).exists()


def test_a_thread_may_ask_again_and_another_one_may_not(tmp_path: Path) -> None:
    said: list[str] = []

    def other() -> None:
        try:
            with holding(tmp_path / "run", "fit"):
                said.append("two have it")
        except sn.ArgumentError as error:
            said.append(str(error))

    with holding(tmp_path / "run", "fit"):
        with holding(tmp_path / "run", "fit"):
            pass
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert "got process" in said[0]
    assert not (tmp_path / "run").exists()  # it was made here, and nothing came into it


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    with holding(tmp_path, "fit"):
        pass
    assert tmp_path.is_dir()
    assert list(tmp_path.iterdir()) == []


def test_two_fits_to_one_file(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "slabnet", "fit", "digits", "--hidden", "5", "--epochs", "1"]
    out = tmp_path / "m.slab"
    process = holder(tmp_path / "m.slab.checkpoints")
    try:
        second = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, check=False)
    finally:
        process.kill()
        process.communicate()
    assert (second.returncode, second.stdout, second.stderr.count("\n")) == (2, "", 1)
    assert f"got process {process.pid} on " in second.stderr
    assert not out.exists()
    (tmp_path / ".m.slab.01ab23cd.tmp").write_bytes(b"half")  # of a process that was killed
    (tmp_path / ".other.slab.01ab23cd.tmp").write_bytes(b"half")
    third = subprocess.run([*command, "--out", str(out)], capture_output=True, text=True, check=False)
    assert third.returncode == 0, third.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == [".other.slab.01ab23cd.tmp", "m.slab"]


def test_leftovers_of_a_name_that_is_a_pattern(tmp_path: Path) -> None:
    for name in (".[a].slab.01234567.tmp", ".a.slab.01234567.tmp"):
        (tmp_path / name).touch()
    remove_leftovers(tmp_path / "[a].slab")
    assert [path.name for path in tmp_path.iterdir()] == [".a.slab.01234567.tmp"]
