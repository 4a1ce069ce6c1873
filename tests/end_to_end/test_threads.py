"""Threads and processes do not disturb each other, and a forked child does not hang."""

from __future__ import annotations

import copy
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import joblib
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import slabnet as sn

Data = tuple[Tensor, Tensor]


def fitted(data: Data, seed: int) -> list[float]:
    net = sn.mlp((4, 8, 3), seed=seed)
    sn.fit(net, data, sn.TrainConfig(epochs=8, batch_size=25, seed=seed))
    return [float(value.detach().double().sum()) for value in net.parameters()]


def test_two_fits_in_two_threads(blobs: Data) -> None:
    alone = [fitted(blobs, seed) for seed in (1, 2)]
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(lambda seed: fitted(blobs, seed), (1, 2)))
    assert alone == together


def test_two_fits_with_torch_s_own_dropout_in_two_threads(blobs: Data) -> None:
    def dropping(seed: int) -> list[float]:
        net = sn.convert(copy.deepcopy(plain))
        config = sn.TrainConfig(epochs=6, batch_size=15, seed=seed)
        sn.fit(net, blobs, config, likelihood="categorical", progress="off")
        return [float(value.detach().double().sum()) for value in net.parameters()]

    plain = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.ReLU(), nn.Linear(8, 3))
    alone = [dropping(seed) for seed in (1, 2)]
    before = torch.get_rng_state()
    with ThreadPoolExecutor(2) as pool:
        together = list(pool.map(dropping, (1, 2)))
    assert alone == together
    assert torch.equal(before, torch.get_rng_state())


def test_eight_threads_get_the_same_answers(blobs: Data) -> None:
    net = sn.mlp((4, 8, 3), seed=0)
    sn.fit(net, blobs, sn.TrainConfig(epochs=3, batch_size=50))
    wanted = sn.predict(net, blobs[0], draws=5, seed=9).mean
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: sn.predict(net, blobs[0], draws=5, seed=9).mean, range(16)))
    assert all(bool((one == wanted).all()) for one in found)


def in_a_child(seed: int) -> list[float]:
    x = torch.randn(150, 4, generator=torch.Generator().manual_seed(1))
    return fitted((x, torch.arange(150) % 3), seed)


def test_spawned_workers(blobs: Data) -> None:
    fitted(blobs, 0)
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        assert pool.submit(in_a_child, 3).result(timeout=60) == in_a_child(3)


def test_workers_of_joblib(blobs: Data) -> None:
    fitted(blobs, 0)
    found = joblib.Parallel(n_jobs=2, backend="loky", timeout=120)(joblib.delayed(in_a_child)(seed) for seed in (3, 4))
    assert found == [in_a_child(3), in_a_child(4)]


def test_workers_of_a_dataloader(blobs: Data) -> None:
    fitted(blobs, 0)
    loader = DataLoader(TensorDataset(*blobs), batch_size=50, num_workers=1, multiprocessing_context="spawn")
    net = sn.mlp((4, 3))
    assert len(sn.fit(net, loader, sn.TrainConfig(epochs=1), n=150)) == 1


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_child_forked_after_a_fit_does_not_hang() -> None:
    code = """
import os, torch, slabnet as sn
torch.set_num_threads(2)
x = torch.randn(600, 200, generator=torch.Generator().manual_seed(1))
data = (x, (x[:, 0] > 0).long())
net = sn.mlp((200, 300, 2))
sn.fit(net, data, sn.TrainConfig(epochs=1, batch_size=200))
child = os.fork()
if child == 0:
    sn.fit(sn.mlp((200, 300, 2)), data, sn.TrainConfig(epochs=1, batch_size=200))
    sn.predict(net, x, draws=2, seed=0)
    os._exit(0)
raise SystemExit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    environment = {key: value for key, value in os.environ.items() if key != "OMP_NUM_THREADS"}
    process = subprocess.Popen([sys.executable, "-c", code], env=environment, start_new_session=True)
    until = time.monotonic() + 60
    while process.poll() is None and time.monotonic() < until:
        time.sleep(0.1)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail("the child hung")
    assert process.returncode == 0
