"""One fit in several real processes: the same objective, the same parameters, no hang, no loss."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import slabnet as sn
from slabnet.distributed.group import Group, join

SCRIPT = """
import json, os, sys, torch, slabnet as sn
from slabnet.distributed.group import join, leave
torch.set_num_threads(1)
given = json.loads(sys.argv[1])
if given.get("memory"):
    import slabnet.distributed.group
    slabnet.distributed.group.LARGE = 0  # so few parameters would go through a socket
group = join()
g = torch.Generator().manual_seed(0)
x = torch.randn(given.get("rows", 103), 6, generator=g)
y = (x[:, 0] + 0.5 * x[:, 1] > 0).long()
net = sn.mlp((6, 8, 2), method=given.get("method", "lbbnn"), seed=3 + given.get("other_start", 0) * group.rank)
config = sn.TrainConfig(**{"epochs": 5, "batch_size": 10, "dtype": "float64", "seed": 4} | given.get("train", {}))
data = (x, y)
if "stream" in given:
    class Stream:
        n = len(x)
        sharded = given["stream"] == "sharded"
        def __iter__(self):
            rows = range(len(x))
            if self.sharded:  # very uneven: the first process has most of them
                cut = len(x) if group.world == 1 else int(0.8 * len(x))
                rows = range(cut) if group.rank == 0 else range(cut, len(x))
            for i in range(rows.start, rows.stop, 10):
                j = min(i + 10, rows.stop)
                yield x[i:j], y[i:j]
    data = Stream()
kept = given.get("checkpoint")
def watch(epoch):
    if given.get("slow"):
        import time; time.sleep(given["slow"])
    if given.get("disturb") and group.rank == 1 and epoch.epoch == 2:
        with torch.no_grad():
            next(net.parameters()).add_(1e-9)
try:
    history = sn.fit(net, data, config, checkpoint=kept, resume=bool(kept), progress="off", on_epoch=watch)
except sn.SlabnetError as error:
    print(error, file=sys.stderr, flush=True)
    os._exit(3)
if group.leads:
    params = {k: v.double().tolist() for k, v in net.state_dict().items()}
    ll = [e.log_likelihood for e in history]
    kl = [e.kl for e in history]
    print("RESULT" + json.dumps({"params": params, "ll": ll, "kl": kl, "steps": history.steps, "world": group.world}))
leave()
"""

DRIVER = """
import json, os, socket, sys, torch, slabnet as sn, slabnet.training.loop, slabnet.training.fit
torch.set_num_threads(1)
for number, (world, given) in enumerate(json.loads(sys.argv[2])):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workers = []
    for rank in range(world):
        worker = os.fork()  # torch is loaded once, and no thread has been started
        if worker == 0:
            os.environ.update(RANK=str(rank), WORLD_SIZE=str(world), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            sys.argv[1:] = [json.dumps(given)]
            try:
                exec(open("fit.py").read())
            except BaseException as error:
                print(repr(error), file=sys.stderr, flush=True)
                os._exit(4)
            sys.stdout.flush()
            os._exit(0)
        workers.append(worker)
    codes = [os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1]) for worker in workers]
    print("CODES" + json.dumps(codes), flush=True)
"""

LOCAL: dict[str, Any] = {"train": {"draw": "local"}}
ALIKE: dict[str, dict[str, Any]] = {
    "local": LOCAL,
    "relaxed": {"train": {"draw": "relaxed", "shared_draws": True, "kl": "sampled"}},
    "straight-through": {"train": {"draw": "straight_through", "shared_draws": True, "samples": 2, "clip": 0.1}},
    "gaussian": {"method": "gaussian", "train": {"validation_fraction": 0.1, "patience": 3}},
    "stream": {"stream": "whole"},
}
FEW = {"train": {"draw": "local", "batch_size": 51}}  # 103 = 51 + 51 + 1: two of three have nothing in the last batch
OWN = {"train": {"draw": "relaxed", "epochs": 30, "lr": 0.01}}
OTHERS = ("concrete-dropout", "horseshoe", "ensemble", "deterministic")
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    **{f"{name} 1": (1, case) for name, case in ALIKE.items()},
    **{f"{name} 2": (2, case | {"other_start": 1}) for name, case in ALIKE.items()},  # the second start must not matter
    "few 1": (1, FEW),
    "few 3": (3, FEW),
    "memory 2": (2, LOCAL | {"memory": True, "other_start": 1}),
    "memory 3": (3, FEW | {"memory": True}),
    "sharded": (2, {"stream": "sharded"}),
    "own 1": (1, OWN),
    "own 2": (2, OWN),
    **{name: (2, {"method": name, "train": {"epochs": 2}}) for name in OTHERS},
    **{
        f"float32 {w}": (w, {"train": {"draw": d, "shared_draws": True, "dtype": None}})
        for w, d in ((1, "local"), (2, "local"))
    },
    "disturbed": (2, {"disturb": True}),
}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What became of every case: the result of its first process, or what the processes said."""
    folder = tmp_path_factory.mktemp("fits")
    (folder / "fit.py").write_text(SCRIPT)
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SLABNET_TIMEOUT": "30"}
    run = subprocess.run(
        [sys.executable, "-c", DRIVER, "-", json.dumps(list(CASES.values()))],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    results: dict[str, Any] = {"stderr": run.stderr}
    parts: list[dict[str, Any]] = []
    for line in run.stdout.splitlines():
        if line.startswith("RESULT"):
            parts.append(json.loads(line.removeprefix("RESULT")))
        else:
            name = list(CASES)[len(results) - 1]
            codes = json.loads(line.removeprefix("CODES"))
            results[name] = (parts.pop() if parts else {}) | {"codes": codes}
    return results


def launch(tmp_path: Path, processes: int, *words: str, **given: Any) -> subprocess.Popen[str]:
    script = tmp_path / "fit.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(processes)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "SLABNET_TIMEOUT": "30"}
    return subprocess.Popen(
        [*command, *words, str(script), json.dumps(given)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    )


def result(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err[-2000:]
    lines = [line for line in out.splitlines() if line.startswith("RESULT")]
    assert len(lines) == 1
    found: dict[str, Any] = json.loads(lines[0].removeprefix("RESULT"))
    return found


def close(a: dict[str, Any], b: dict[str, Any], tolerance: float = 1e-9) -> None:
    for name, value in a["params"].items():
        torch.testing.assert_close(torch.tensor(value), torch.tensor(b["params"][name]), atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("case", ALIKE)
def test_two_processes_are_one_at_the_same_global_batch(case: str, found: dict[str, Any]) -> None:
    """103 rows in batches of 10: the last batch of 3 is uneven too; over 50 steps in float64."""
    one, two = found[f"{case} 1"], found[f"{case} 2"]
    assert (one["world"], two["world"]) == (1, 2)
    assert one["steps"] == two["steps"] >= 50
    close(one, two)
    assert one["ll"] == pytest.approx(two["ll"], rel=1e-9)
    assert one["kl"] == pytest.approx(two["kl"], rel=1e-9)


def test_gradients_that_are_put_off_are_added_up_too(found: dict[str, Any]) -> None:
    """In float32 the compiled passes take gradient and step at once; Adam turns rounding into steps, so the bounds."""
    one, two = found["float32 1"], found["float32 2"]
    assert one["kl"] == pytest.approx(two["kl"], rel=1e-4)
    assert one["ll"] == pytest.approx(two["ll"], rel=1e-3)
    for name, value in one["params"].items():
        gap = (torch.tensor(value) - torch.tensor(two["params"][name])).abs()
        assert float(gap.mean()) < 1e-4, name


def test_more_processes_than_rows_in_the_last_batch(found: dict[str, Any]) -> None:
    close(found["few 1"], found["few 3"])


def test_gradients_through_shared_memory_are_the_same(found: dict[str, Any]) -> None:
    close(found["local 1"], found["memory 2"])
    close(found["few 1"], found["memory 3"])


def test_uneven_shards_do_not_hang(found: dict[str, Any]) -> None:
    assert found["sharded"]["codes"] == [0, 0]
    assert found["sharded"]["ll"][-1] == pytest.approx(found["stream 1"]["ll"][-1], rel=0.2)


@pytest.mark.parametrize("method", OTHERS)
def test_other_methods_train_too(method: str, found: dict[str, Any]) -> None:
    assert found[method]["codes"] == [0, 0]
    assert all(abs(v) < 1e6 for v in found[method]["ll"])


def test_independent_draws_agree_statistically(found: dict[str, Any]) -> None:
    one, two = found["own 1"], found["own 2"]
    last_one, last_two = (sum(a - b for a, b in zip(r["ll"][-5:], r["kl"][-5:], strict=True)) / 5 for r in (one, two))
    assert last_two == pytest.approx(last_one, rel=0.15)
    assert one["params"] != two["params"]


def test_parameters_that_drift_apart_are_noticed(found: dict[str, Any]) -> None:
    assert found["disturbed"]["codes"] == [3, 3]
    assert "the parameters must be the same in every process" in found["stderr"]


def children(process: subprocess.Popen[str]) -> list[int]:
    """The workers that torchrun started."""
    listed = subprocess.run(["pgrep", "-P", str(process.pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in listed.stdout.split()]


def wait_for(folder: Path) -> None:
    until = time.monotonic() + 60
    while not list(folder.glob("checkpoint-*")):
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.mark.cluster
def test_a_killed_rank_stops_the_others_and_the_run_resumes_with_another_number(tmp_path: Path) -> None:
    train = {"draw": "local", "epochs": 12}
    kept = tmp_path / "kept"
    process = launch(tmp_path, 2, train=train, checkpoint=str(kept), slow=0.3, memory=True)
    wait_for(kept)
    workers = children(process)
    assert len(workers) == 2
    os.kill(workers[1], signal.SIGKILL)
    _, err = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "Signal 9" in err or "another process of this fit is gone" in err
    assert not any(os.path.exists(f"/proc/{worker}") for worker in workers)
    whole = result(launch(tmp_path, 1, train=train))
    close(whole, result(launch(tmp_path, 1, train=train, checkpoint=str(kept))))


@pytest.mark.cluster
def test_torchrun_restarts_without_hands(tmp_path: Path) -> None:
    train = {"draw": "local", "epochs": 12}
    kept = tmp_path / "kept"
    process = launch(tmp_path, 2, "--max-restarts", "1", train=train, checkpoint=str(kept), slow=0.2)
    wait_for(kept)
    os.kill(children(process)[0], signal.SIGKILL)
    close(result(launch(tmp_path, 1, train=train)), result(process))


@pytest.mark.cluster
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_workers_that_are_interrupted_are_one_line(number: signal.Signals, tmp_path: Path) -> None:
    """The processes keep everything, one of them says so, and the fit goes on from there."""
    words = [sys.executable, "-m", "slabnet", "fit", "digits", "--hidden", "20", "--workers", "2", "--out", "m.slab"]
    long = subprocess.Popen(
        [*words, "--epochs", "2000"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    wait_for(tmp_path / "m.slab.checkpoints")
    long.send_signal(number)
    _, err = long.communicate(timeout=60)
    said = [line for line in err.splitlines() if not line.startswith("fit: epoch")]
    assert len(said) == 1, err
    assert f"stopped by {number.name}" in said[0]
    assert "--resume" in said[0]
    assert long.returncode == 128 + number
    bad = subprocess.run([*words, "--epochs", "0"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (bad.returncode, bad.stderr.count("\n")) == (2, 1), bad.stderr
    (tmp_path / "t.csv").write_text("a,y\n" + "1,2\n3,4.5\n" * 9)
    words[4:7] = ["t.csv", "--target", "z"]  # what only the processes themselves find out
    bad = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (bad.returncode, bad.stderr.count("\n")) == (2, 1), bad.stderr
    assert "--target must be one of the columns a, y, got z" in bad.stderr


@pytest.mark.cluster
def test_two_agents_as_two_nodes(tmp_path: Path) -> None:
    script = tmp_path / "fit.py"
    script.write_text(SCRIPT)
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = {"train": {"draw": "local"}}
    base = [sys.executable, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1"]
    base += ["--master-addr", "127.0.0.1", "--master-port", str(port)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    nodes = [
        subprocess.Popen(
            [*base, "--node-rank", str(rank), str(script), json.dumps(given)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment,
        )
        for rank in (0, 1)
    ]
    first, second = nodes
    two = result(first)
    second.communicate(timeout=60)
    assert second.returncode == 0
    close(result(launch(tmp_path, 1, **given)), two)


def test_shares_of_a_batch() -> None:
    for count in (0, 1, 2, 7, 100):
        for world in (1, 2, 3, 8):
            parts = [Group(rank, world).rows(count) for rank in range(world)]
            assert [row for first, end in parts for row in range(first, end)] == list(range(count))
            sizes = [end - first for first, end in parts]
            assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("text", ["soon", "-3", "nan"])
def test_a_bad_timeout_is_named(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "1", "SLABNET_TIMEOUT": text}.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(sn.ArgumentError, match="SLABNET_TIMEOUT must be a number"):
        join()
