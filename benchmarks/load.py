"""One fitted model under load: `python -m benchmarks.load` (`--seconds` a way, `--record` keeps it).

Eight threads of one process, then four processes, predict single rows and batches of digits with one file's model, each
answer averaged over ten draws of the network. Every answer must equal the one a single thread gave before, and the
memory of a process may grow by 1% at most once it is warm. Throughput and the latency under which 99 of 100 requests
stay are printed beside those of onnxruntime on the same model (its ten draws fixed in the file) in the same ways.
"""

from __future__ import annotations

import argparse
import itertools
import json
import multiprocessing
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import slabnet as sn
from benchmarks.record import write_record
from slabnet.data import load

SEED, DRAWS, EPOCHS, HIDDEN, BATCH = 0, 10, 40, (100,), 100
THREADS, PROCESSES = 8, 4
WARM = 0.25  # share of the time after which memory is looked at for the first time
MOST_GROWTH = 0.01
Answer = Callable[[torch.Tensor], np.ndarray[Any, Any]]


def make_model(folder: Path) -> tuple[Path, Path]:
    """A model of digits as our file, its chosen model with the distribution, and the same as ONNX."""
    split = load("digits")
    net = sn.mlp((64, *HIDDEN, 10), seed=SEED)
    sn.fit(net, split.train, sn.TrainConfig(epochs=EPOCHS, seed=SEED, lr=0.005, omega_lr=0.05), progress="off")
    chosen = sn.median_model(net, infeasible="path")
    sn.save(net, folder / "m.slab", selection=chosen)
    sn.save(sn.compact(net, chosen, keep="distribution"), folder / "small.slab")
    sn.export(folder / "m.slab", "onnx", folder / "m.onnx", draws=DRAWS, seed=SEED)
    return folder / "small.slab", folder / "m.onnx"


def ours(path: Path) -> Answer:
    net = sn.load(path)
    return lambda x: sn.predict(net, x, DRAWS, seed=SEED).mean.numpy()


def theirs(path: Path) -> Answer:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # as we run: one thread a request
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    first = session.get_outputs()[0].name
    return lambda x: np.asarray(session.run([first], {"x": x.numpy()})[0])


KINDS: dict[str, Callable[[Path], Answer]] = {"slabnet": ours, "onnxruntime": theirs}


def requests() -> list[torch.Tensor]:
    """Single rows and batches, one batch to ten rows."""
    rows = load("digits").test[0].float()
    return [*(rows[i : i + 1] for i in range(30)), *(rows[i : i + BATCH] for i in range(0, 3 * BATCH, BATCH))]


def resident() -> int:
    """Bytes of memory that this process has now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def ask(answer: Answer, expected: list[Any], offset: int, until: float) -> tuple[list[float], int]:
    """Requests one after the other until the time is over: how long each took, and how many answers differed."""
    asked, took, wrong = requests(), [], 0
    for i in itertools.count(offset):
        k = i % len(asked)
        started = time.perf_counter()
        answered = answer(asked[k])
        ended = time.perf_counter()
        took.append(ended - started)
        wrong += not np.array_equal(answered, expected[k])
        if ended >= until:
            return took, wrong
    raise AssertionError("count ends never")


def in_threads(answer: Answer, expected: list[Any], seconds: float, threads: int) -> dict[str, Any]:
    """So many threads on one model for so long."""
    began = time.perf_counter()
    results: list[tuple[list[float], int]] = []

    def work(number: int) -> None:
        results.append(ask(answer, expected, 7 * number, began + seconds))

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    time.sleep(WARM * seconds)
    warm = resident()
    for worker in workers:
        worker.join()
    took = [each for times, _ in results for each in times]
    wrong = sum(number for _, number in results)
    return {"took": took, "wrong": wrong, "warm": warm, "end": resident()}


def one_process(kind: str, path: Path, expected: list[Any], seconds: float, out: Any, start: Any) -> None:
    torch.set_num_threads(1)
    answer = KINDS[kind](path)
    for x in requests():  # what a first call loads is not of the load
        answer(x)
    start.wait()
    out.put(in_threads(answer, expected, seconds, 1))


def in_processes(kind: str, path: Path, expected: list[Any], seconds: float) -> list[dict[str, Any]]:
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    given = (kind, path, expected, seconds, out, context.Barrier(PROCESSES))
    processes = [context.Process(target=one_process, args=given) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    answers = [out.get() for _ in processes]
    for process in processes:
        process.join()
    return answers


def summed(runs: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
    took = np.array([each for run in runs for each in run["took"]])
    return {
        "requests": len(took),
        "a_second": round(len(took) / seconds, 1),
        "p50_ms": round(float(np.quantile(took, 0.5)) * 1e3, 3),
        "p99_ms": round(float(np.quantile(took, 0.99)) * 1e3, 3),
        "answers_that_differ": sum(run["wrong"] for run in runs),
        "memory_growth": round(max(run["end"] / run["warm"] - 1 for run in runs), 4),
    }


def measure(seconds: float) -> dict[str, Any]:
    measured: dict[str, Any] = {"seconds": seconds, "threads": THREADS, "processes": PROCESSES, "draws": DRAWS}
    with tempfile.TemporaryDirectory() as folder:
        paths = dict(zip(KINDS, make_model(Path(folder)), strict=True))
        for kind, make in KINDS.items():
            answer = make(paths[kind])
            expected = [answer(x) for x in requests()]
            measured[kind] = {
                "threads": summed([in_threads(answer, expected, seconds, THREADS)], seconds),
                "processes": summed(in_processes(kind, paths[kind], expected, seconds), seconds),
            }
    return measured


def failures(results: dict[str, Any]) -> list[str]:
    """What must hold of our own numbers and does not."""
    lines = []
    for way, numbers in results["slabnet"].items():
        if numbers["answers_that_differ"]:
            lines.append(f"{way}: {numbers['answers_that_differ']} answers differ from those of a single thread")
        if numbers["memory_growth"] > MOST_GROWTH:
            lines.append(f"{way}: memory grew by {numbers['memory_growth']:.2%}")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.load", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--record", action="store_true", help="keep the numbers in benchmarks/records/load.json")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = measure(options.seconds)
    if options.record:
        write_record("load", f"python -m benchmarks.load --seconds {options.seconds:g} --record", SEED, results)
    if options.json:
        print(json.dumps(results))
    else:
        for kind in KINDS:
            for way, numbers in results[kind].items():
                print(f"{kind:<12} {way:<10} " + "  ".join(f"{name} {value}" for name, value in numbers.items()))
    failed = failures(results)
    if failed:
        sys.exit("; ".join(failed))


if __name__ == "__main__":
    main()
