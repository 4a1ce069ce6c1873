"""How the inclusion probabilities of each layer depend on the temperature of the relaxed draw (Table 3).

`python -m benchmarks.temperature` fits lbbnn with the paper's settings once for each delta and keeps the mean alpha of
every layer after every epoch; it can be stopped and started again. The record makes docs/temperature.svg, and the
results page says what came out.
"""

from __future__ import annotations

import argparse
import io
import json
from typing import Any

import torch

import slabnet as sn
from benchmarks.record import RECORDS, write_bytes
from benchmarks.resumable import run_all
from slabnet.core.files import write_atomically
from slabnet.data import load
from slabnet.experiments.building import network_of
from slabnet.experiments.profiles import Plan, Profile
from slabnet.experiments.tables import paper_table3
from slabnet.selection.rules import slab_layers
from slabnet.training.checkpoints import Checkpoints

DELTAS = (0.001, 0.003, 0.005, 0.01)
EPOCHS = 60
CLOSE = 0.25  # how far from the paper's mean alpha a layer may be, as a share of it


def plan_of(dataset: str, delta: float, epochs: int) -> Plan:
    """The paper's lbbnn at this temperature."""
    plan = Profile.named("paper").plan(dataset, "lbbnn", 0, epochs=epochs)
    return plan.model_copy(update={"train": plan.train.model_copy(update={"delta": delta})})


def run(dataset: str, job: dict[str, Any]) -> dict[str, Any]:
    """One temperature: mean alpha of each layer after every epoch, and what the network is worth on the test rows."""
    plan, split = plan_of(dataset, job["delta"], job["epochs"]), load(dataset)
    work = RECORDS / f"temperature-{dataset}-{job['delta']:g}-{job['epochs']}.run"
    net, seen = network_of(plan, split), work / "alphas.json"
    work.mkdir(parents=True, exist_ok=True)
    alphas: dict[str, list[float]] = json.loads(seen.read_text("utf-8")) if seen.exists() else {}

    def note(epoch: sn.Epoch) -> None:
        alphas[str(epoch.epoch)] = means_of(net)
        write_atomically(seen, json.dumps(alphas).encode())

    options: dict[str, Any] = {
        "checkpoint": Checkpoints(work / "fit"),
        "resume": True,
        "on_epoch": note,
        "progress": "lines",
    }
    sn.fit(net, split.train, plan.train, **options)
    epochs = [alphas[str(number)] for number in range(1, job["epochs"] + 1)]
    chosen = sn.median_model(net, infeasible="path")
    accuracy = {
        "averaged": sn.accuracy(sn.predict(net, split.test[0], draws=10, seed=0), split.test[1]),
        "median": sn.accuracy(sn.predict(net, split.test[0], draw=sn.fixed(chosen.masks)), split.test[1]),
    }
    return {"alpha": epochs, "accuracy": accuracy, "weights": chosen.weights}


@torch.no_grad()
def means_of(net: sn.Network) -> list[float]:
    """Mean alpha of the weights of each layer."""
    return [round(float(layer.alpha.double().mean()), 6) for layer in slab_layers(net).values()]


def sentence(dataset: str) -> str:
    """What the sweep says, for the results page; that it has not been run, where it has not."""
    path = RECORDS / f"temperature-{dataset}.json"
    if not path.exists():
        return "The sweep over temperatures (`python -m benchmarks.temperature`) has not been run yet."
    paper = [row["median_inclusion"] for row in paper_table3() if row["dataset"] == dataset]
    lines = ["| delta | epochs | mean alpha of the layers | the paper | layers within 25% | averaged | median model |"]
    lines.append("|" + "---|" * 7)
    for result in json.loads(path.read_text("utf-8"))["results"]:
        last = result["alpha"][-1]
        close = sum(abs(mine / theirs - 1) <= CLOSE for mine, theirs in zip(last, paper, strict=True))
        shown = ("/".join(f"{value:.3f}" for value in values) for values in (last, paper))
        cells = [f"{result['delta']:g}", result["epochs"], *shown, f"{close} of {len(paper)}"]
        cells += [f"{result['accuracy'][name]:.3f}" for name in ("averaged", "median")]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return "\n".join([*lines, "", "![mean alpha of each layer over epochs](temperature.svg)"])


def picture(dataset: str) -> bytes:
    """Mean alpha of each layer over epochs, one line for each temperature; dashed: the paper's Table 3."""
    import matplotlib
    from matplotlib.figure import Figure

    results = json.loads((RECORDS / f"temperature-{dataset}.json").read_text("utf-8"))["results"]
    paper = [row["median_inclusion"] for row in paper_table3() if row["dataset"] == dataset]
    figure = Figure(figsize=(10, 3.4), layout="constrained")
    for layer, axes in enumerate(figure.subplots(1, len(paper))):
        for result in results:
            values = [epoch[layer] for epoch in result["alpha"]]
            axes.plot(range(1, len(values) + 1), values, label=f"delta {result['delta']:g}")
        axes.axhline(paper[layer], ls="--", c="grey", lw=0.8)
        axes.set(title=f"layer {layer + 1}", xlabel="epoch", ylabel="mean alpha", ylim=(0, None))
    axes.legend(fontsize=7)
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "slabnet", "svg.fonttype": "none"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    return buffer.getvalue()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.temperature", description=__doc__)
    parser.add_argument("--dataset", default="mnist")
    parser.add_argument("--deltas", type=float, nargs="*", default=DELTAS)
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    jobs = [{"delta": delta, "epochs": given.epochs} for delta in given.deltas]
    command = f"python -m benchmarks.temperature --dataset {given.dataset} --epochs {given.epochs}"
    name = f"temperature-{given.dataset}"
    run_all(name, command, ("delta", "epochs"), jobs, lambda job: run(given.dataset, job))
    write_bytes("temperature.svg", picture(given.dataset))


if __name__ == "__main__":
    main()
