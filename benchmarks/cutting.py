"""Does leaving dead neurons out of the computation change the result? The default recipe on MNIST, with and without.

`python -m benchmarks.cutting` runs three seeds each way and can be stopped and started again: finished runs are kept.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import torch

import slabnet as sn
from benchmarks.record import RECORDS, write_record
from slabnet.data import load

SIZES, SEEDS = (784, 400, 600, 10), (0, 1, 2)


def run(seed: int, cut_every: int, epochs: int | None) -> dict[str, Any]:
    """One fit, and what came out of it."""
    data = load("mnist")
    net = sn.mlp(SIZES, seed=seed)
    history = sn.fit(net, data.train, sn.TrainConfig(epochs=epochs, cut_every=cut_every, seed=seed), progress="lines")
    chosen, (x, y) = sn.median_model(net), data.test
    with torch.no_grad(), sn.drawing(net, sn.median):
        median = float((net(x).argmax(1) == y).float().mean())
    averaged = sn.accuracy(sn.predict(net, x, draws=10, seed=seed), y)
    cuts = [{"epoch": c.epoch, "left": c.left, "log_likelihood": c.log_likelihood, "kl": c.kl} for c in history.cuts]
    return {
        "seed": seed,
        "cut_every": cut_every,
        "epochs": len(history),
        "accuracy_median": median,
        "accuracy_averaged": averaged,
        "weights": chosen.weights,
        "density_median": chosen.density,
        "log_likelihood": history[-1].log_likelihood,
        "kl": history[-1].kl,
        "cuts": cuts,
    }


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.cutting", description=__doc__)
    parser.add_argument("--epochs", type=int, default=None, help="fewer than the default, to try it out (kept apart)")
    given = parser.parse_args()
    name = "cutting" if given.epochs is None else f"cutting-{given.epochs}"
    path = RECORDS / f"{name}.json"
    done: list[dict[str, Any]] = json.loads(path.read_text())["results"] if path.exists() else []
    for seed in SEEDS:
        for cut_every in (sn.TrainConfig().cut_every, 0):
            if any(r["seed"] == seed and r["cut_every"] == cut_every for r in done):
                continue
            done.append(run(seed, cut_every, given.epochs))
            write_record(name, "python -m benchmarks.cutting", seed, done)
            print(json.dumps({k: v for k, v in done[-1].items() if k != "cuts"}), flush=True)


if __name__ == "__main__":
    main()
