"""`slabnet demo`: fit scikit-learn's digits, choose the median model, post-train it, show what came out."""

from __future__ import annotations

import copy
import json
import platform
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from slabnet.config.settings import TrainConfig
from slabnet.core.files import write_atomically
from slabnet.core.records import History, Selection
from slabnet.core.version import __version__
from slabnet.data import Split, load
from slabnet.model.draws import exact, fixed
from slabnet.model.networks import Network, mlp
from slabnet.plots import demo_picture
from slabnet.prediction.predict import predict
from slabnet.prediction.ways import Row, plain_row, spike_slab_rows
from slabnet.report.write import report_file
from slabnet.selection.rules import median_model
from slabnet.store import save
from slabnet.training.fit import fit
from slabnet.training.progress import Show

HIDDEN = (100, 100)
EPOCHS, POST_EPOCHS = 200, 40
DRAWS = 10
MODEL, METRICS, PICTURE, REPORT = "digits.slab", "metrics.json", "demo.png", "report.html"


@dataclass(frozen=True)
class Demo:
    """What the demo found."""

    rows: list[Row]
    seconds: float
    split: Split
    net: Network
    chosen: Selection
    history: History
    seed: int

    def to_dict(self) -> dict[str, Any]:
        return {"rows": [row.to_dict() for row in self.rows], "seconds": round(self.seconds, 2)}


def run_demo(seed: int = 0, show: Show = "auto") -> Demo:
    """Fit, select, post-train in both ways, and predict in every way; a plain network of the same size beside."""
    started = time.perf_counter()
    split = load("digits")
    sizes = (split.inputs, *HIDDEN, split.classes)
    train, post = TrainConfig(epochs=EPOCHS, seed=seed), TrainConfig(epochs=POST_EPOCHS, seed=seed + 1)

    plain = mlp(sizes, method="deterministic", seed=seed)
    fit(plain, split.train, train.model_copy(update={"epochs": EPOCHS // 4}), progress="off")
    rows = [plain_row("deterministic", plain, split.test)]

    net = mlp(sizes, seed=seed)
    history = fit(net, split.train, train, progress=show)
    chosen = median_model(net)
    options: dict[str, Any] = {"draws": DRAWS, "seed": seed}
    rows += spike_slab_rows("lbbnn", net, net, chosen, split.test, post_trained=False, **options)

    joint, small = copy.deepcopy(net), copy.deepcopy(net)
    fit(joint, split.train, post, fixed="alpha", progress=show)
    fit(small, split.train, post, fixed=chosen, progress=show)
    rows += spike_slab_rows("lbbnn", joint, small, chosen, split.test, post_trained=True, **options)
    return Demo(rows, time.perf_counter() - started, split, small, chosen, history, seed)


def write_demo(demo: Demo, folder: Path) -> list[Path]:
    """Write the model, the numbers, the picture and the page; each file appears whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / MODEL, folder / METRICS, folder / PICTURE, folder / REPORT]
    command = f"slabnet demo --seed {demo.seed}"
    card: dict[str, Any] = {
        "data": "digits",
        "seed": demo.seed,
        "command": command,
        "config": dict(demo.history.config),
    }
    card |= {"rows": [row.to_dict() for row in demo.rows], "epochs": demo.history.columns()}
    save(demo.net, paths[0], selection=demo.chosen, **card)
    about = {
        "command": command,
        "seed": demo.seed,
        "versions": {"slabnet": __version__, "torch": torch.__version__, "python": platform.python_version()},
        "threads": torch.get_num_threads(),
        "config": dict(demo.history.config),
        "test_rows": len(demo.split.test[1]),
    }
    text = json.dumps(demo.to_dict() | about, indent=1)
    write_atomically(paths[1], text.encode() + b"\n")
    write_atomically(paths[2], demo_png(demo))
    report_file(paths[0], paths[3])
    return paths


def demo_png(demo: Demo) -> bytes:
    """The picture: the network that is left, its training, the pixels it reads, and where it is in doubt."""
    drawn = fixed(demo.chosen.masks, exact)  # the model that was chosen and post-trained
    prediction = predict(demo.net, demo.split.test[0], 100, draw=drawn, seed=demo.seed)
    return demo_picture(demo.net, demo.chosen, demo.history, demo.split, prediction)
