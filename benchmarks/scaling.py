"""Does the price of a step grow with the network? `python -m benchmarks.scaling`.

The ratio of a local and a relaxed step to a plain one at widths x0.5, x1, x2 and x4 and batches of 32, 100 and 500,
taken in turns in one process; the same for the smallest network of that depth, in turns of its own, which tells what a
step costs whatever its size; and the peak memory a step needs per weight, each width in a process of its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

import slabnet as sn
from benchmarks.record import RECORDS, ROOT, write_record
from benchmarks.step_time import SEED, _bind, interleaved, our_step, plain_network, plain_step

PROCESSES = 3
WIDTHS, BATCHES = (0.5, 1.0, 2.0, 4.0), (32, 100, 500)
KINDS = ("deterministic", "local", "relaxed")
SMALLEST = (784, 4, 6, 10)


def sizes_at(width: float) -> tuple[int, ...]:
    return (784, round(400 * width), round(600 * width), 10)


def weights_of(sizes: tuple[int, ...]) -> int:
    return sum(a * b for a, b in itertools.pairwise(sizes))


def make(kind: str, sizes: tuple[int, ...]) -> Any:
    if kind == "deterministic":
        return plain_step(plain_network(sizes))
    return our_step("lbbnn", sn.local if kind == "local" else sn.relaxed(0.5), sizes)


def ratios(rounds: int) -> list[dict[str, Any]]:
    """One row for each width and batch."""
    rows = []
    smallest = {kind: make(kind, SMALLEST) for kind in KINDS}
    for width in WIDTHS:
        sizes = sizes_at(width)
        made = {kind: make(kind, sizes) for kind in KINDS}
        for batch in BATCHES:
            g = torch.Generator().manual_seed(SEED)
            x, y = torch.rand(batch, sizes[0], generator=g), torch.randint(0, 10, (batch,), generator=g)
            # not in the same turns: beside a small network, whose steps need one thread, the other one falls asleep
            seconds, fixed = (
                interleaved({kind: _bind(step, x, y) for kind, step in steps.items()}, rounds)
                for steps in (made, smallest)
            )
            plain = seconds["deterministic"]
            by_kind = {kind: round(seconds[kind] / plain, 3) for kind in KINDS[1:]}
            each = {kind: round(1e9 * seconds[kind] / weights_of(sizes), 3) for kind in KINDS}
            beyond = {
                kind: round((seconds[kind] - fixed[kind]) / (plain - fixed["deterministic"]), 3) for kind in KINDS[1:]
            }
            row = {"width": width, "batch": batch, "weights": weights_of(sizes), **by_kind, "beyond_fixed": beyond}
            rows.append(row | {"nanoseconds": each, "fixed_ms": {k: round(1e3 * v, 3) for k, v in fixed.items()}})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    return rows


def least_disturbed(rounds: int) -> list[dict[str, Any]]:
    """Of some processes, for each row the one in which the plain network was fastest.

    On a shared machine a whole process can be slowed down, and not every candidate alike.
    """
    measured = []
    for _ in range(PROCESSES):
        command = [sys.executable, "-m", "benchmarks.scaling", "--once", "--rounds", str(rounds)]
        ran = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
        measured.append(json.loads(ran.stdout))
    return [
        min(rows, key=lambda row: float(row["nanoseconds"]["deterministic"])) for rows in zip(*measured, strict=True)
    ]


def peak(kind: str, width: float) -> float:
    """Peak bytes per weight over what the process held before, in ten steps at batch 100."""
    sizes = sizes_at(width)
    make(kind, (8, 8, 8))(torch.rand(4, 8), torch.randint(0, 8, (4,)))  # what is loaded once is not the network's
    Path("/proc/self/clear_refs").write_text("5")  # start the peak anew: importing has one of its own
    before = _resident("VmRSS")
    step = make(kind, sizes)
    x, y = torch.rand(100, sizes[0]), torch.randint(0, 10, (100,))
    for _ in range(10):
        step(x, y)
    return (_resident("VmHWM") - before) * 1024 / weights_of(sizes)


def _resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name + ":"))


def memory() -> list[dict[str, Any]]:
    rows = []
    for width in WIDTHS:
        row: dict[str, Any] = {"width": width, "weights": weights_of(sizes_at(width))}
        for kind in KINDS:
            command = [sys.executable, "-m", "benchmarks.scaling", "--peak", kind, str(width)]
            ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
            row[kind] = round(float(ran.stdout), 1)
        rows.append(row)
        print(json.dumps(row), file=sys.stderr, flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("--rounds", type=int, default=60, help=f"rounds of each of {PROCESSES} processes (default 60)")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument("--record", action="store_true", help="keep the numbers for the docs page")
    parser.add_argument("--memory", action="store_true", help="memory only; the times are those of the record")
    parser.add_argument("--once", action="store_true", help="the times of this process alone, as JSON")
    parser.add_argument("--peak", nargs=2, metavar=("KIND", "WIDTH"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.peak:
        print(peak(given.peak[0], float(given.peak[1])))
        return
    if given.once:
        print(json.dumps(ratios(given.rounds)))
        return
    earlier = json.loads((RECORDS / "scaling.json").read_text())["results"]["steps"] if given.memory else None
    results = {"steps": earlier or least_disturbed(given.rounds), "bytes_per_weight": memory()}
    if given.json:
        print(json.dumps(results))
    else:
        print(f"{'width':>6}{'batch':>7}{'local':>8}{'relaxed':>9}")
        for row in results["steps"]:
            print(f"{row['width']:6.1f}{row['batch']:7d}{row['local']:8.2f}{row['relaxed']:9.2f}")
        print("peak bytes per weight")
        for row in results["bytes_per_weight"]:
            print(f"{row['width']:6.1f}" + "".join(f"  {kind} {row[kind]:.0f}" for kind in KINDS))
    if given.record:
        write_record("scaling", "python -m benchmarks.scaling", SEED, results)


if __name__ == "__main__":
    main()
