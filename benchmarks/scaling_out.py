"""Rows a second of one and of two processes, one thread each, and what that says of more.

`python -m benchmarks.scaling_out` starts two processes; in turns the first one trains alone and both train together. 784-400-600-10,
local draws. `--record` keeps the numbers and writes docs/scale.md.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from typing import Any
from unittest import mock

import torch
from torch import distributed as dist

import slabnet as sn
import slabnet.training.setup as setup
from benchmarks.record import provenance, write_page, write_record
from slabnet.distributed.group import Group, current_group, join, leave

SIZES, STEPS, ROUNDS = (784, 400, 600, 10), 12, 9
BATCHES = (500, 100)  # rows a process
WORKERS = (8, 64, 512)
LINK = 1.25e9  # bytes a second: ten gigabits, for the estimate
LATENCY = 50e-6  # seconds a message, for the estimate


def train(batch: int, alone: bool) -> float:
    """Seconds for STEPS steps at a global batch of `batch`, after as many that are not counted."""
    group = Group() if alone else current_group()
    setup.current_group = lambda: group  # type: ignore[attr-defined]
    g = torch.Generator().manual_seed(0)
    x, y = torch.rand(STEPS * batch, 784, generator=g), torch.randint(0, 10, (STEPS * batch,), generator=g)
    net = sn.mlp(SIZES)
    config = sn.TrainConfig(epochs=2, batch_size=batch, cut_every=0)
    return sn.fit(net, (x, y), config, progress="off")[-1].seconds


def travelling() -> list[torch.Tensor]:
    """Tensors of the sizes that are added up in a step: the largest call of a short fit."""
    calls: list[list[torch.Tensor]] = []
    add_up = Group.add_up

    def noting(group: Group, tensors: Sequence[torch.Tensor]) -> None:
        calls.append([torch.zeros_like(part) for part in tensors])
        add_up(group, tensors)

    with mock.patch.object(Group, "add_up", noting):
        train(2 * min(BATCHES), alone=False)
    return max(calls, key=lambda parts: sum(part.nbytes for part in parts))


def communicate(tensors: list[torch.Tensor]) -> float:
    """Seconds to add them up once."""
    group, times = current_group(), []
    for _ in range(15):
        dist.barrier()
        started = time.perf_counter()
        group.add_up(tensors)
        times.append(time.perf_counter() - started)
    return statistics.quantiles(times, n=4)[0]


def worker() -> None:
    """What each of the two processes does; the first one prints what it measured."""
    torch.set_num_threads(1)
    group = join()
    tensors = travelling()
    results: dict[str, Any] = {"communication": communicate(tensors), "bytes": sum(part.nbytes for part in tensors)}
    for batch in BATCHES:
        one, two = [], []
        for _ in range(ROUNDS):
            dist.barrier()
            if group.leads:
                one.append(train(batch, alone=True))
            dist.barrier()
            two.append(train(2 * batch, alone=False))
        if group.leads:
            seconds = [statistics.quantiles(times, n=4)[0] for times in (one, two)]
            rates = [STEPS * batch / seconds[0], STEPS * 2 * batch / seconds[1]]
            results[str(batch)] = {
                "rows_per_second": rates,
                "speed_up": rates[1] / rates[0],
                "step": seconds[1] / STEPS,
            }
    if group.leads:
        print("RESULT" + json.dumps(results), flush=True)
    leave()


def measure() -> dict[str, Any]:
    """Start the two processes and read what they found."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    processes = []
    for rank in range(2):
        place = {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        environment = {**os.environ, **place, "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "benchmarks.scaling_out", "--worker"]
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True))
    outputs = [process.communicate()[0] for process in processes]
    line = next(line for line in outputs[0].splitlines() if line.startswith("RESULT"))
    results: dict[str, Any] = json.loads(line.removeprefix("RESULT"))
    return results


def estimate(results: dict[str, Any], batch: int, workers: int) -> float:
    """Rows a second of many workers: a step is what one computes alone plus a ring all-reduce over the link."""
    alone = batch / results[str(batch)]["rows_per_second"][0]
    ring = 2 * (workers - 1) / workers * results["bytes"] / LINK + 2 * (workers - 1) * LATENCY
    return workers * batch / (alone + ring)


def page(record: dict[str, Any]) -> str:
    """docs/scale.md, from the record."""
    results = record["results"]
    lines = [
        "| rows a process and step | one process, rows/s | two processes, rows/s | ratio | share of a step spent adding up |"
    ]
    lines.append("|---|---|---|---|---|")
    guesses = ["| rows a process and step | " + " | ".join(f"{w} workers" for w in WORKERS) + " |"]
    guesses.append("|---|" + "---|" * len(WORKERS))
    for batch in BATCHES:
        part = results[str(batch)]
        one, two = part["rows_per_second"]
        share = results["communication"] / part["step"]
        lines.append(f"| {batch} | {one:,.0f} | {two:,.0f} | {part['speed_up']:.2f} | {share:.0%} |")
        cells = []
        for workers in WORKERS:
            rate = estimate(results, batch, workers)
            cells.append(f"{rate:,.0f} rows/s ({rate / one / workers:.0%} of ideal)")
        guesses.append(f"| {batch} | " + " | ".join(cells) + " |")
    text = TEXT.replace("MEASURED", "\n".join(lines)).replace("ESTIMATED", "\n".join(guesses))
    link = f"{LINK * 8 / 1e9:.0f} Gbit/s, {LATENCY * 1e6:.0f} microseconds a message"
    return text.replace("LINK", link).replace("BYTES", f"{results['bytes'] / 1e6:.1f} MB") + f"\n{provenance(record)}\n"


TEXT = """# Scale

The same program on more processes, machines or runs: a flag changes, the objective does not.

## One fit in several processes

```
slabnet fit mnist --out m.slab --workers 2                                     # this machine
torchrun --nproc-per-node 2 -m slabnet fit mnist --out m.slab                  # the same, started by hand
torchrun --nproc-per-node 4 -m slabnet fit mnist --out m.slab                  # a node with four GPUs: a process for each, over NCCL
torchrun --nnodes 2 --nproc-per-node 1 --node-rank 0 --master-addr HOST --master-port 29500 -m slabnet fit mnist --out m.slab
torchrun --nproc-per-node 2 --max-restarts 3 -m slabnet fit mnist --out m.slab # a process that dies is started again
```

`--workers` needs no open port: its workers meet in a file and speak over the loopback interface. **`torchrun` and Ray are for a trusted
network only**: their stores listen to other machines without asking who speaks, and unpickle what they are told
([Security](project/security.md)).

In Python nothing changes but the start: `slabnet.distributed.join()` first, then `sn.fit(...)` as ever, under `torchrun script.py`.

`batch_size` is that of all processes together. Each computes its share of every batch; the gradients are added up; the divergence counts
once, n is that of the whole data set, and unequal shares count by their rows. Parameters start equal (those of the first process)
and are compared by hash after every epoch. Under `local` every row has the noise it would have in one process, so one process and
many give the same fit up to rounding; the other draws are made in each process apart, or alike with `TrainConfig(shared_draws=True)`.
The first process writes checkpoints and the model; `--resume` works with another number of processes. When a process dies the others stop
with one line, at once or after `SLABNET_TIMEOUT` seconds (300).

Processes on one machine add up through memory that they share (a file without a name in `/dev/shm`; `SLABNET_SHARED_MEMORY` names another
folder, and empty turns it off); between machines, and where there is no room, through the backend.

Backends: gloo on CPUs, NCCL where CUDA is there. Run here: gloo with one to three processes, two agents on loopback as two nodes, a process
killed with SIGKILL, restarts by torchrun (`make test-cluster`). Not run here: NCCL, GPUs, a network between machines.

MEASURED

One thread each; rates are first quartiles of interleaved rounds in one run. From these, for more workers, a step is
estimated as what one process computes alone plus a ring all-reduce of BYTES of gradients (LINK; no overlap of the two, no stragglers):

ESTIMATED

Advice: give every process at least 500 rows a step; with w times the batch take about sqrt(w) times the step sizes, and keep the number of
steps of the KL's ramp, which is counted in rows, by keeping the number of epochs. Small batches on many workers buy nothing.

## Data that do not fit

- `sn.fit(net, (x, y))` with numpy memory maps (`np.load(..., mmap_mode="r")`) reads batches from the files.
- `sn.data.ParquetStream(folder, target="y")` streams a folder of Parquet files row group by row group; each process reads its own.
- Any iterable of `(x, y)` batches, with `n=` rows an epoch, or an attribute `n`. Every process takes its share of each batch, or, if
  the iterable has `sharded = True`, has one of its own; uneven ends do not hang.

Memory stays flat: a test fits a data set four times as large as the memory it is given.

## Many fits

```
slabnet reproduce --dataset mnist --runs 10 --jobs 4 --threads 1 --out results                       # processes on this machine
slabnet reproduce --dataset mnist --runs 10 --engine ray --address auto --cpus 2 --out /shared/results  # a Ray cluster
slabnet reproduce --dataset mnist --runs 1 --folds 5 --methods lbbnn --jobs 4 --out folds                # cross-validation on the training rows
slabnet reproduce --dataset mnist --runs 1 --methods ensemble --jobs 5 --out ensemble                    # the members are runs of their own
```

The records are the same, except for times. A run whose process, worker or node dies is made again, elsewhere if need be, from its last
checkpoint; the folder must then be on storage that all nodes share. Failed runs are named at the end, and do not stop the others.
`--cpus` and `--gpus` say what one run asks of the cluster. Each fold of a cross-validation and each member of an ensemble is a run like any
other; an ensemble's record and model are made when its members are there.

Tables cross-validate with scikit-learn, on all cores (`cross_val_score(SlabRegressor(), x, y, n_jobs=-1)`) or on a cluster:

```
import joblib
from ray.util.joblib import register_ray

register_ray()
with joblib.parallel_config(backend="ray", n_jobs=20):
    scores = cross_val_score(SlabRegressor(), x, y, cv=20)
```

Run here: a Ray cluster of two nodes on one machine, with a worker killed in the middle of a run, folds, members and scikit-learn
(`make test-cluster`). Not run here: several machines, GPUs.

## Clusters

Slurm, one fit on two nodes:

```
#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --cpus-per-task=8
export MASTER_ADDR=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
srun torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint "$MASTER_ADDR:29500" --max-restarts 3 \\
  -m slabnet fit mnist --out /shared/m.slab
```

Ray on Kubernetes (KubeRay), a grid of fits: start a RayCluster whose image has `slabnet[cluster]` and whose pods mount shared storage, then

```
kubectl port-forward service/raycluster-head-svc 10001:10001 &
slabnet reproduce --dataset mnist --runs 10 --engine ray --address ray://localhost:10001 --out /shared/results
```

Both are written from the documentation of these systems and were not run here.
"""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling_out", description=__doc__)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--record", action="store_true", help="keep the numbers and write the page")
    given = parser.parse_args()
    if given.worker:
        worker()
        return
    results = measure()
    print(json.dumps(results, indent=1))
    if given.record:
        write_page(
            "scale.md", page(write_record("scaling_out", "python -m benchmarks.scaling_out --record", 0, results))
        )


if __name__ == "__main__":
    main()
