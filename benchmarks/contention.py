"""How long small fits take where other work keeps the cores busy: `python -m benchmarks.contention`.

`docs/speed.md` shows its record. A table of 400 rows and 8 columns is fitted by `slabnet fit`: alone, beside two busy
processes, twice at once, and by `cross_val_score(n_jobs=2)`. Ratios are between runs of the same minute; run it on a
quiet machine of two cores. With fewer `--rounds` than three nothing is recorded.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.record import RECORDS, provenance, write_record

ROWS, COLUMNS, BUSY, ROUNDS = 400, 8, 2, 3
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
CROSSED = ("cross_val_score, n_jobs=2", "cross_val_score, n_jobs=1")
COMMAND = "python -m benchmarks.contention"
CROSS = """
import numpy as np, slabnet as sn
from sklearn.model_selection import cross_val_score
table = np.loadtxt("t.csv", delimiter=",", skiprows=1)
model = sn.SlabRegressor(random_state=0, epochs=100)
cross_val_score(model, table[:, :-1], table[:, -1], cv=4, n_jobs={jobs})
"""


def write_table(folder: Path) -> None:
    """A response that depends on three of the columns."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(ROWS, COLUMNS))
    y = 2 * x[:, 0] - x[:, 1] + np.sin(2 * x[:, 2]) + 0.3 * rng.normal(size=ROWS)
    names = ",".join([*(f"x{i}" for i in range(COLUMNS)), "y"])
    np.savetxt(folder / "t.csv", np.column_stack([x, y]), delimiter=",", header=names, comments="", fmt="%.5f")


def seconds(folder: Path, words: list[list[str]], env: dict[str, str]) -> dict[str, float]:
    """Time of commands that run at once, and of their processors."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    outputs = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    running = [subprocess.Popen(one, cwd=folder, env=os.environ | env, **outputs) for one in words]  # type: ignore[call-overload]
    for process in running:
        if process.wait():
            raise RuntimeError(f"{process.args} failed")
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall": round(wall, 2), "processor": round(used, 2)}


def fit_command(name: str) -> list[str]:
    return [sys.executable, "-m", "slabnet", "fit", "t.csv", "--target", "y", "--out", f"{name}.slab"]


def measure(folder: Path) -> dict[str, dict[str, float]]:
    """One round: every way to run, one after the other."""
    spent = {"alone, one thread": seconds(folder, [fit_command("a")], ONE_THREAD)}
    spent["alone"] = seconds(folder, [fit_command("a")], {})
    spent["two at once"] = seconds(folder, [fit_command("a"), fit_command("b")], {})
    for jobs in (1, 2):
        command = [sys.executable, "-c", CROSS.format(jobs=jobs)]
        spent[f"cross_val_score, n_jobs={jobs}"] = seconds(folder, [command], ONE_THREAD if jobs == 1 else {})
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(BUSY)]
    try:
        spent["beside two busy processes"] = seconds(folder, [fit_command("a")], {})
    finally:
        for process in busy:
            process.kill()
            process.wait()
    return spent


def ratios(rounds: list[dict[str, dict[str, float]]]) -> dict[str, float]:
    """Medians over the rounds of what is asked of a machine with two cores."""

    def of(name: str, other: str, kind: str, share: float = 1.0) -> float:
        return round(float(np.median([r[name][kind] / (share * r[other][kind]) for r in rounds])), 2)

    return {
        "beside two busy processes / alone (time)": of("beside two busy processes", "alone", "wall"),
        "alone / alone on one thread (time)": of("alone", "alone, one thread", "wall"),
        "two at once / one alone on one thread (work of each)": of("two at once", "alone, one thread", "processor", 2),
        "cross_val_score, two jobs / one on one thread (work)": of(*CROSSED, "processor"),
    }


def section() -> str:
    """The part of docs/speed.md that says so."""
    path = RECORDS / "contention.json"
    if not path.exists():
        return "Not measured yet.\n"
    record = json.loads(path.read_text())
    rounds, ratios = record["results"]["rounds"], record["results"]["ratios"]
    lines = ["| ratio | |", "|---|---|", *(f"| {name} | {ratio:.2f} |" for name, ratio in ratios.items())]
    lines += ["", "| run | seconds | seconds of processors |", "|---|---|---|"]
    for name in rounds[0]:
        wall, used = (float(np.median([one[name][kind] for one in rounds])) for kind in ("wall", "processor"))
        lines.append(f"| {name} | {wall:.1f} | {used:.1f} |")
    lines += ["", f"The machine's load before it was {record['results']['load']:.1f}. {provenance(record)}"]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(prog=COMMAND, description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="how often everything is measured")
    count = max(1, parser.parse_args().rounds)
    load = os.getloadavg()[0]
    rounds = []
    with tempfile.TemporaryDirectory() as folder:
        write_table(Path(folder))
        for _ in range(count):
            rounds.append(measure(Path(folder)))
            print(json.dumps(rounds[-1]), flush=True)
    results = {"load": round(load, 2), "rounds": rounds, "ratios": ratios(rounds)}
    if count >= ROUNDS:
        write_record("contention", COMMAND, 0, results)
    print(json.dumps(results["ratios"]))


if __name__ == "__main__":
    main()
