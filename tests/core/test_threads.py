"""Small work runs on one thread, and the number of threads that was set is left as it was, here and elsewhere."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import torch

import slabnet as sn
from slabnet.core.threads import SMALL_WORK, threads_for, work_of
from slabnet.kernels import native


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


def in_another_thread() -> int:
    counts: list[int] = []
    thread = threading.Thread(target=lambda: counts.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    return counts[0]


@pytest.mark.usefixtures("three_threads")
def test_small_work_gets_one_thread_and_larger_work_all() -> None:
    with threads_for(SMALL_WORK - 1):
        assert torch.get_num_threads() == 1
    assert torch.get_num_threads() == 3
    with threads_for(SMALL_WORK):
        assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
def test_other_threads_start_with_what_the_user_has_set_while_the_work_goes_on_and_after_an_error() -> None:
    with threads_for(1):
        assert in_another_thread() == 3
    assert in_another_thread() == 3
    with pytest.raises(ZeroDivisionError), threads_for(1):
        _ = 1 // 0
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
def test_a_small_fit_and_its_predictions_use_one_thread() -> None:
    counts: list[int] = []
    net = sn.mlp((4, 8, 3), seed=0)
    net.register_forward_pre_hook(lambda *_: counts.append(torch.get_num_threads()))
    x = torch.randn(60, 4, generator=torch.Generator().manual_seed(0))
    sn.fit(net, (x, torch.arange(60) % 3), sn.TrainConfig(epochs=1, batch_size=30), progress="off")
    sn.predict(net, x, draws=2)
    assert set(counts) == {1}
    assert len(counts) >= 4
    assert torch.get_num_threads() == 3


@pytest.mark.usefixtures("three_threads")
def test_a_large_fit_uses_all_threads() -> None:
    counts: list[int] = []
    net = sn.mlp((784, 400, 2), seed=0)
    net.register_forward_pre_hook(lambda *_: counts.append(torch.get_num_threads()))
    x = torch.randn(50, 784, generator=torch.Generator().manual_seed(0))
    assert work_of(net, 50) > SMALL_WORK
    sn.fit(net, (x, torch.arange(50) % 2), sn.TrainConfig(epochs=1, batch_size=50), progress="off")
    assert set(counts) == {3}


def output(code: str, **environment: str) -> str:
    names = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "GOMP_SPINCOUNT", "OMP_WAIT_POLICY")
    clean = {key: value for key, value in os.environ.items() if key not in names}
    run = subprocess.run([sys.executable, "-c", code], env=clean | environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout.strip()


def test_waiting_is_bounded_before_torch_is_loaded_unless_the_user_chose() -> None:
    code = "import os, slabnet; print(os.environ.get('GOMP_SPINCOUNT'))"
    assert output(code) == "10000"
    assert output(code, GOMP_SPINCOUNT="7") == "7"
    assert output(code, OMP_WAIT_POLICY="active") == "None"
    assert output("import torch;" + code) == "None"


@pytest.mark.skipif(native.library() is None or not os.path.exists("/proc/self/maps"), reason="no compiled passes here")
def test_the_passes_share_torch_s_threads_and_bring_no_runtime_of_their_own() -> None:
    code = """
import os, torch, slabnet as sn
from slabnet.kernels import native
torch.set_num_threads(3)
def runtimes():
    names = {line.split()[-1] for line in open("/proc/self/maps") if ".so" in line}
    return sorted(name for name in names if any(part in name for part in ("gomp", "libomp", "iomp")))
a = torch.randn(2000, 2000); a.exp(); a @ a
before, threads = runtimes(), len(os.listdir("/proc/self/task"))
mu = torch.randn(1000, 1000)
given = (mu, mu, None, None, None, 0, torch.zeros(()), None, torch.empty_like(mu), torch.empty(()))
native.call("moments", 0, mu.numel(), *given)
print(native.variant() is not None, runtimes() == before, len(os.listdir("/proc/self/task")) == threads)
"""
    assert output(code) == "True True True"
    library = native.library()
    assert library is not None
    with open(library[1]._name, "rb") as file:
        content = file.read()
    assert b"GOMP_parallel" not in content or b"libgomp.so" not in content  # no entry of its own to be repaired
