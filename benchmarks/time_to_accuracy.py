"""How long to 97.5% on MNIST? `python -m benchmarks.time_to_accuracy`.

The default recipe, until its median model reaches the accuracy at a density of at most 1%, and a plain network of the
same size with Adam at the same step size. Both take turns, an epoch each, and only training is timed.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import time
from typing import Any

import torch

import slabnet as sn
from benchmarks.record import write_record
from benchmarks.step_time import BATCH, SEED, SIZES, plain_network, plain_step
from slabnet.core.records import Epoch
from slabnet.data import load

TARGET, DENSEST = 0.975, 0.01


class Reached(Exception):
    """Both are there."""


def measure(epochs: int | None) -> dict[str, Any]:
    data = load("mnist")
    (x, y), (x_test, y_test) = data.train, data.test
    plain = plain_network()
    step = plain_step(plain)
    net = sn.mlp(SIZES, seed=SEED)
    order = torch.Generator().manual_seed(SEED)
    spent = {"plain": 0.0, "slabnet": 0.0}
    reached: dict[str, Any] = {"plain": None, "slabnet": None}
    curve: list[dict[str, float]] = []

    def accuracy(model: torch.nn.Module) -> float:
        with torch.no_grad():
            return float((model(x_test).argmax(1) == y_test).float().mean())

    def after(epoch: Epoch) -> None:
        spent["slabnet"] += epoch.seconds
        started = time.perf_counter()
        if reached["plain"] is None:
            for rows in torch.randperm(len(x), generator=order).split(BATCH):  # type: ignore[no-untyped-call]
                step(x[rows], y[rows])
            spent["plain"] += time.perf_counter() - started
        net.eval()
        with sn.drawing(net, sn.median):
            ours = accuracy(net)
        net.train()
        theirs = accuracy(plain)
        row = {"epoch": epoch.epoch, "density": epoch.density_median, "median": ours, "plain": theirs}
        curve.append(row | {f"seconds_{name}": round(value, 2) for name, value in spent.items()})
        print(json.dumps(curve[-1]), flush=True)
        if reached["plain"] is None and theirs >= TARGET:
            reached["plain"] = {"epochs": epoch.epoch, "seconds": round(spent["plain"], 2), "accuracy": theirs}
        if reached["slabnet"] is None and ours >= TARGET and epoch.density_median <= DENSEST:
            reached["slabnet"] = {"epochs": epoch.epoch, "seconds": round(spent["slabnet"], 2), "accuracy": ours}
            reached["slabnet"]["density"] = epoch.density_median
        if all(reached.values()):
            raise Reached

    with contextlib.suppress(Reached):
        sn.fit(net, (x, y), sn.TrainConfig(epochs=epochs), on_epoch=after, progress="off")
    return {"target": TARGET, "densest": DENSEST, **reached, "curve": curve}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.time_to_accuracy", description=__doc__)
    parser.add_argument("--epochs", type=int, default=None, help="length of the recipe (default: as in TrainConfig)")
    parser.add_argument("--record", action="store_true", help="keep the numbers for the docs page")
    given = parser.parse_args()
    results = measure(given.epochs)
    for name in ("plain", "slabnet"):
        there = results[name]
        reached = f"not reached in {len(results['curve'])} epochs" if there is None else f"{there['seconds']:.1f} s"
        print(f"{name}: {TARGET:.1%} in {reached}" + ("" if there is None else f" ({there['epochs']} epochs)"))
    if given.record:
        write_record("time_to_accuracy", "python -m benchmarks.time_to_accuracy", SEED, results)


if __name__ == "__main__":
    main()
