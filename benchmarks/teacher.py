"""A small network with and without a teacher, a forest, on the Raisin table; three random fifths are held out.

`python -m benchmarks.teacher` can be stopped and started again; docs/sparsity.md shows what came out.
"""

from __future__ import annotations

import json
import statistics
from typing import Any

import numpy as np
import torch

import slabnet as sn
from benchmarks.raisin import halves, load_raisin
from benchmarks.record import RECORDS, provenance
from benchmarks.resumable import run_all

SPLITS, SHARES = (0, 1, 2), (0.0, 0.5, 0.8)
NAME = "teacher"
COLUMNS = (("weights", 0), ("accuracy", 3), ("log_loss", 3))


def run(job: dict[str, Any]) -> dict[str, Any]:
    """One network on four fifths of the table, and the forest it may have learned from."""
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.metrics import log_loss

    x, labels = load_raisin()
    train, test = halves(job["split"], len(labels))
    y = np.unique(labels, return_inverse=True)[1]
    centre, scale = x[train].mean(0), x[train].std(0)
    inputs = torch.tensor((x - centre) / scale, dtype=torch.float32)
    forest = RandomForestClassifier(300, min_samples_leaf=5, random_state=job["split"])
    forest.fit(inputs[train].numpy(), y[train])
    net = sn.mlp((inputs.shape[1], 10, 2), skip=True, prior=sn.Prior(psi=0.1, intercept_psi=0.5), seed=job["split"])
    options: dict[str, Any] = {"teacher": forest, "teacher_share": job["share"]} if job["share"] else {}
    config = sn.TrainConfig(epochs=200, batch_size=50, seed=job["split"])
    sn.fit(net, (inputs[train], torch.tensor(y[train])), config, progress="off", **options)
    chosen = sn.median_model(net, infeasible="path")
    said = sn.predict(net, inputs[test], draw=sn.fixed(chosen.masks)).mean.numpy()
    theirs = forest.predict_proba(inputs[test].numpy())
    return {
        "weights": chosen.weights,
        "accuracy": float((said.argmax(1) == y[test]).mean()),
        "log_loss": float(log_loss(y[test], said)),
        "forest_accuracy": float((theirs.argmax(1) == y[test]).mean()),
        "forest_log_loss": float(log_loss(y[test], theirs)),
    }


def section() -> str:
    """For docs/sparsity.md."""
    path = RECORDS / f"{NAME}.json"
    if not path.exists():
        return "`python -m benchmarks.teacher` has not been run yet."
    record = json.loads(path.read_text("utf-8"))
    lines = ["| what | weights | accuracy | log-loss |", "|---|---|---|---|"]
    for share in SHARES:
        some = [result for result in record["results"] if result["share"] == share]
        name = f"median model, share of the teacher {share:g}" if share else "median model, no teacher"
        cells = [name, *(_middle(some, key, digits) for key, digits in COLUMNS)]
        lines.append("| " + " | ".join(cells) + " |")
    each = [result for result in record["results"] if result["share"] == SHARES[0]]
    lines.append(f"| the forest | - | {_middle(each, 'forest_accuracy', 3)} | {_middle(each, 'forest_log_loss', 3)} |")
    return "\n".join(
        [*lines, "", f"Means over {len(each)} random fifths held out, one seed each. {provenance(record)}"]
    )


def _middle(results: list[dict[str, Any]], name: str, digits: int) -> str:
    return f"{statistics.mean(result[name] for result in results):.{digits}f}" if results else "-"


def main() -> None:
    torch.set_num_threads(1)
    jobs = [{"split": split, "share": share} for split in SPLITS for share in SHARES]
    run_all(NAME, "python -m benchmarks.teacher", ("split", "share"), jobs, run)


if __name__ == "__main__":
    main()
