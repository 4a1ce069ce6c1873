"""Which defaults tables get: settings compared on held-out rows among the training rows, and on those only.

`python -m benchmarks.table_choice` can be stopped and started again: finished fits are kept. Only training rows of a
split are looked at, split again. SLABNET_DATA must hold tables/ and uci/.
"""

from __future__ import annotations

import argparse
import math
import time
import warnings
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegressionCV, RidgeCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks import table_data
from benchmarks.resumable import Result, run_all
from benchmarks.table_scores import class_scores, regression_scores, scores_of_ours
from slabnet.config.settings import TrainConfig
from slabnet.config.tables import defaults_for
from slabnet.estimators import SlabClassifier, SlabRegressor

KEYS = ("data", "split", "setting")
MOST_ROWS = 4000  # of a table, in a choice
ONE, HALF = {"kl_weight": 1.0}, {"kl_weight": 0.5}
PLAIN: dict[str, Any] = {"skip": False, "gates": False, "members": 1}
SKIP = PLAIN | {"skip": True}
GATED = SKIP | {"gates": "inputs", "config": ONE}
LARGE = {"batch": 256, "steps": 2500}
SETTINGS: dict[str, dict[str, Any]] = {
    "plain": PLAIN,
    "plain, no trial": PLAIN | {"config": ONE},
    "skip": SKIP,
    "skip, no trial": SKIP | {"config": ONE},
    "skip, 3 members, no trial": SKIP | {"config": ONE, "members": 3},
    "skip, gates, no trial": GATED,
    "skip, learned slab, no trial": SKIP | {"config": ONE, "sigma_beta": "learned"},
    "skip, heteroscedastic": SKIP | {"config": ONE, "response": "heteroscedastic"},
    "skip, 3 members of 1000 steps": SKIP | {"config": ONE, "members": 3, "steps": 1000},
    "skip, batch 512, 1000 steps": SKIP | {"config": ONE, "batch": 512, "steps": 1000},
    "skip, gates, KL half": GATED | {"config": HALF},
    "skip, gates, batch 256": GATED | LARGE,
    "skip, gates, batch 512": GATED | {"batch": 512, "steps": 2500},
    "skip, gates, batch 512, lr 0.05, 1250 steps": GATED | {"config": ONE | {"lr": 0.05}, "batch": 512, "steps": 1250},
    "256, means first": GATED | LARGE | {"means_first": 0.2},
    "256, KL half": GATED | LARGE | {"config": HALF},
    "256, KL quarter": GATED | LARGE | {"config": {"kl_weight": 0.25}},
    "256, KL tenth": GATED | LARGE | {"config": {"kl_weight": 0.1}},
    "256, learned slab": GATED | LARGE | {"sigma_beta": "learned"},
    "256, KL half, learned slab": GATED | LARGE | {"config": HALF, "sigma_beta": "learned"},
    "256, 5000 steps": GATED | LARGE | {"steps": 5000},
    "256, KL half, 1500 steps": GATED | LARGE | {"config": HALF, "steps": 1500},
    "256, KL half, no gates": SKIP | LARGE | {"config": HALF},
    "256, KL half, plain": PLAIN | LARGE | {"config": HALF},
    "256, KL half, 2 members of 1500 steps": GATED | LARGE | {"config": HALF, "steps": 1500, "members": 2},
}
FEW = ("psid1982", "wage", "rice", "fuel", "boston", "concrete", "labour", "yogurt")


def linear(task: str) -> Any:
    """Ridge or logistic regression, its penalty by cross-validation."""
    grid = np.logspace(-3, 4, 22)
    if task == "regression":
        return make_pipeline(StandardScaler(), RidgeCV(grid))
    return make_pipeline(StandardScaler(), LogisticRegressionCV(Cs=10, scoring="neg_log_loss", max_iter=2000))


def work(job: Result) -> Result:
    """One setting on one inner split."""
    split = table_data.inner(job["data"], job["split"], MOST_ROWS)
    started = time.process_time()
    if job["setting"] == "linear":
        x, x_test = split.inputs()
        model = linear(split.task).fit(x, split.train.y)
        seconds = time.process_time() - started
        if split.task == "regression":
            found: Result = regression_scores(model.predict(x_test), split.test.y)
        else:
            found = class_scores(model.predict_proba(x_test), split.test.y, model.classes_)
        return found | {"cpu_seconds": round(seconds, 2)}
    options = dict(SETTINGS[job["setting"]])
    batch, steps, first = (options.pop(name, None) for name in ("batch", "steps", "means_first"))
    n = len(split.train.y)
    if steps is not None:
        batch = min(batch or defaults_for(n, 1).batch_size, n)
        epochs = math.ceil(steps / math.ceil(n / batch))
        options["config"] = options["config"] | {"batch_size": batch, "epochs": epochs}
        if first is not None:
            options["config"] |= {"pretrain_epochs": round(first * epochs)}
    if "config" in options:
        options["config"] = TrainConfig(**options["config"])
    kind = SlabRegressor if split.task == "regression" else SlabClassifier
    model = kind(random_state=job["split"], **options).fit(split.train.x, split.train.y)
    seconds = round(time.process_time() - started, 2)
    trial = getattr(model, "trial_", None)
    found = scores_of_ours(model, split.task, split.test.x, split.test.y) | {"cpu_seconds": seconds}
    return found | {"kl_weight": None if trial is None else trial.kl_weight}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.table_choice", description=__doc__)
    everything = [*table_data.names("regression", "classification"), *table_data.FOLDERS]
    parser.add_argument("--data", nargs="+", default=list(FEW), choices=everything)
    parser.add_argument("--settings", nargs="+", default=["linear", *SETTINGS], choices=["linear", *SETTINGS])
    parser.add_argument("--splits", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    jobs = [
        {"data": d, "split": s, "setting": m} for s in range(given.splits) for d in given.data for m in given.settings
    ]
    run_all("table_choice", "python -m benchmarks.table_choice", KEYS, jobs, work)


if __name__ == "__main__":
    main()
