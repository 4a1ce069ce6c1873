"""The grid on a real Ray cluster of two nodes: the same records as here, and a killed worker loses nothing."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import slabnet as sn
from slabnet.experiments.engines import Processes, Ray
from slabnet.experiments.files import Files, read_record
from slabnet.experiments.grid import run_grid
from slabnet.experiments.profiles import Profile

pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]  # Ray warns of its own affairs


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    ray = pytest.importorskip("ray", reason="ray is not installed: make test-cluster installs it")
    os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = "0"
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    cluster.add_node(num_cpus=1)
    cluster.wait_for_nodes()
    yield cluster.address
    ray.shutdown()
    cluster.shutdown()


def without_times(record: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key not in ("seconds", "checksum", "commit")}


def test_a_worker_killed_in_the_middle_loses_nothing(address: str, tmp_path: Path) -> None:
    profile = Profile.named("recommended")
    plans = [profile.plan("digits", "lbbnn", seed, hidden=(30,), epochs=200, post_epochs=5) for seed in (0, 1)]
    here = run_grid(plans, tmp_path / "here", engine=Processes(2), threads=1)
    killed: list[int] = []

    def kill() -> None:
        """Kill the worker that holds the first run, once it has a checkpoint."""
        lock = Files(tmp_path / "ray", plans[0].key).work
        while not list(lock.glob("fit/checkpoint-*")):
            time.sleep(0.01)
        for process in Path("/proc").iterdir():
            if process.name.isdigit() and _holds(process, lock.with_suffix(".lock")):
                os.kill(int(process.name), signal.SIGKILL)
                killed.append(int(process.name))
                return

    killer = threading.Thread(target=kill)
    killer.start()
    there = run_grid(plans, tmp_path / "ray", engine=Ray(address), threads=1)
    killer.join()
    assert killed
    assert not there.failed
    assert len(there.records) == len(here.records) == 2
    for plan in plans:
        pair = [read_record(Files(tmp_path / name, plan.key).record) for name in ("here", "ray")]
        assert without_times(pair[0]) == without_times(pair[1])
        models = [Files(tmp_path / name, plan.key).model.read_bytes() for name in ("here", "ray")]
        assert models[0] == models[1]


def test_ensembles_and_cross_validation_are_the_same_there(address: str, tmp_path: Path) -> None:
    profile = Profile.named("recommended")
    short: dict[str, Any] = {"hidden": (12,), "epochs": 3, "post_epochs": 1}
    plans = [profile.plan("digits", "ensemble", 0, **short), *profile.plan("digits", "lbbnn", 0, **short).folded(2)]
    here = run_grid(plans, tmp_path / "here", engine=Processes(2), threads=1)
    there = run_grid(plans, tmp_path / "ray", engine=Ray(address), threads=1)
    assert not here.failed
    assert not there.failed
    for one, other in zip(here.records, there.records, strict=True):
        assert without_times(one) == without_times(other)


def test_scikit_learn_cross_validates_on_the_cluster(address: str) -> None:
    import joblib
    import ray
    from ray.util.joblib import register_ray
    from sklearn.datasets import load_iris
    from sklearn.model_selection import cross_val_score

    x, y = load_iris(return_X_y=True)
    estimator = sn.SlabClassifier(epochs=5, hidden=(8,), random_state=0)
    here = cross_val_score(estimator, x, y, cv=3)
    ray.init(address=address, log_to_driver=False)
    try:
        register_ray()
        with joblib.parallel_config(backend="ray", n_jobs=2):
            there = cross_val_score(estimator, x, y, cv=3)
    finally:
        ray.shutdown()
    assert here == pytest.approx(there, abs=1e-6)


def test_a_failed_run_is_reported(address: str, tmp_path: Path) -> None:
    plan = Profile.named("recommended").plan("digits", "lbbnn", 0, hidden=(5,), epochs=2, post_epochs=1)
    broken = plan.model_copy(update={"train": plan.train.model_copy(update={"batch_size": 10**6})})
    good = Profile.named("recommended").plan("digits", "gaussian", 0, hidden=(5,), epochs=2, post_epochs=1)
    grid = run_grid([broken, good], tmp_path, engine=Ray(address), threads=1)
    assert list(grid.failed) == [broken.key]
    assert "batch_size must be" in grid.failed[broken.key]
    assert len(grid.records) == 1


def _holds(process: Path, lock: Path) -> bool:
    try:
        return any(os.readlink(link) == str(lock) for link in (process / "fd").iterdir())
    except OSError:
        return False
