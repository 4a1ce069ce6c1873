"""Training processes killed at random moments and resumed: the same bytes at the end, no half-written file on the way.

Run by `make test-crash` (and by CI); the counts go into SECURITY.md.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from slabnet.core.containers import read_container
from slabnet.store import read_header
from slabnet.training.checkpoints import FORMAT, checkpoints_in

pytestmark = pytest.mark.crash
KILLS = 25
SCRIPT = """
import sys, torch, slabnet as sn
torch.set_num_threads(1)
g = torch.Generator().manual_seed(0)
x = torch.randn(400, 30, generator=g)
y = (x[:, 0] + x[:, 1] ** 2 > 0.5).long()
net = sn.mlp((30, 20, 2), seed=1)
config = sn.TrainConfig(epochs=45, batch_size=20, validation_fraction=0.1, patience=50, lr=0.005)
print("ready", flush=True)
history = sn.fit(net, (x, y), config, checkpoint=sn.Checkpoints(sys.argv[1] + "/kept", every_steps=3), resume=True)
sn.save(net, sys.argv[1] + "/m.slab", kl=history[-1].kl)
"""


def start(command: list[str]) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True
    )


def check_folder(folder: Path, kept: Path) -> None:
    """Whatever has a final name is whole."""
    for path in checkpoints_in(kept):
        read_container(path, "test", FORMAT)
    if (folder / "m.slab").exists():
        read_header(folder / "m.slab")


def survive(
    folder: Path, command: list[str], kept: Path, kills: int, wait: Callable[[subprocess.Popen[str]], None]
) -> int:
    """Kill and resume until `kills` processes were killed, then let one finish; how many were killed."""
    chance, killed = random.Random(7), 0
    for _ in range(10 * kills):
        process = start(command)
        wait(process)
        if killed < kills:
            time.sleep(chance.uniform(0.0, 0.2))
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                killed += 1
                check_folder(folder, kept)
                continue
        _, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        if killed == kills:
            return killed
        raise AssertionError(f"finished after {killed} kills: the run is too short for this test")
    raise AssertionError("never finished")


def test_a_run_killed_at_random_moments_ends_with_the_same_bytes(tmp_path: Path, counts: dict[str, int]) -> None:
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    subprocess.run([sys.executable, "-c", SCRIPT, str(whole)], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def ready(process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        process.stdout.readline()

    killed = survive(broken, [sys.executable, "-c", SCRIPT, str(broken)], broken / "kept", KILLS, ready)
    assert (whole / "m.slab").read_bytes() == (broken / "m.slab").read_bytes()
    counts["kills of fit() survived, same bytes at the end"] = killed


def test_fit_from_the_command_line_killed_and_resumed(tmp_path: Path, counts: dict[str, int]) -> None:
    base = [sys.executable, "-m", "slabnet", "fit", "digits", "--hidden", "30", "--epochs", "250", "--seed", "2"]
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    whole.mkdir()
    broken.mkdir()
    subprocess.run([*base, "--out", str(whole / "m.slab")], check=True, capture_output=True,
                   env={**os.environ, "OMP_NUM_THREADS": "1"})  # fmt: skip
    kept = broken / "m.slab.checkpoints"

    def under_way(process: subprocess.Popen[str]) -> None:
        before = checkpoints_in(kept)
        until = time.monotonic() + 60
        while process.poll() is None and checkpoints_in(kept) == before and time.monotonic() < until:
            time.sleep(0.02)

    killed = survive(broken, [*base, "--resume", "--out", str(broken / "m.slab")], kept, KILLS, under_way)
    assert (whole / "m.slab").read_bytes() == (broken / "m.slab").read_bytes()
    assert not kept.exists()
    counts["kills of `slabnet fit` survived, same bytes at the end"] = killed
    again = subprocess.run(
        [*base, "--resume", "--out", str(broken / "m.slab")], check=True, capture_output=True, text=True
    )
    assert "is finished" in again.stdout


def test_a_grid_killed_at_random_moments_ends_with_the_same_records(tmp_path: Path, counts: dict[str, int]) -> None:
    base = [sys.executable, "-m", "slabnet", "reproduce", "--dataset", "digits", "--profile", "recommended"]
    base += ["--methods", "lbbnn,gaussian", "--runs", "2", "--hidden", "20", "--epochs", "60", "--post-epochs", "20"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    subprocess.run([*base, "--out", str(whole)], check=True, capture_output=True, env=environment)
    chance, killed = random.Random(3), 0
    for _ in range(10 * KILLS):
        process = start([*base, "--out", str(broken)])
        until = time.monotonic() + 60
        before = sorted(broken.rglob("*.slab"))
        while process.poll() is None and sorted(broken.rglob("*.slab")) == before and time.monotonic() < until:
            time.sleep(0.01)
        if killed < KILLS and process.poll() is None:
            time.sleep(chance.uniform(0.0, 0.3))
            os.killpg(process.pid, signal.SIGKILL)
            killed += 1
        process.communicate(timeout=120)
        for path in broken.glob("*.json"):
            assert json.loads(path.read_text())  # whatever has a final name is whole
        if process.returncode == 0:
            break
    assert sorted(p.name for p in whole.iterdir()) == sorted(p.name for p in broken.iterdir())
    for path in whole.iterdir():
        if path.suffix == ".json" and not path.name.endswith(".pictures.json"):
            pair = [json.loads((folder / path.name).read_text()) for folder in (whole, broken)]
            for record in pair:
                del record["seconds"], record["checksum"], record["commit"]
            assert pair[0] == pair[1]
        else:
            assert path.read_bytes() == (broken / path.name).read_bytes()
    assert killed == KILLS, f"finished after {killed} kills: the grid is too short for this test"
    counts["kills of `slabnet reproduce` survived, same records at the end"] = killed


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_polite_stop_says_how_to_go_on(number: signal.Signals, code: int, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "slabnet", "fit", "digits", "--hidden", "30", "--epochs", "400"]
    command += ["--out", str(tmp_path / "m.slab")]
    process = start(command)
    until = time.monotonic() + 60
    while not checkpoints_in(tmp_path / "m.slab.checkpoints") and time.monotonic() < until:
        time.sleep(0.05)
    process.send_signal(number)
    _, err = process.communicate(timeout=30)
    assert process.returncode == code, err
    assert "--resume" in err
    assert "Traceback" not in err
    assert not (tmp_path / "m.slab").exists()
    assert checkpoints_in(tmp_path / "m.slab.checkpoints")
