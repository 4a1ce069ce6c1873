"""Whether estimators are as sure as they should be where rows are few or far away: one posterior and several members.

`python -m benchmarks.calibration` can be stopped and started again: finished fits are kept.

sine: 1-D, 120 rows with a gap; share of new observations inside 95% intervals in the gap, and at 2.5 < |x| < 4.
far: the epistemic standard deviation of the same fits at 2, 4 and 8 times the largest |x|.
few: 200 rows of two classes; slope of the true on the predicted logit (1 is calibrated, more is too shy).
friedman: 200 rows of Friedman's function with 10 inputs; 95% credible intervals of the mean, and the noise found over
the true one.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

import slabnet as sn
from benchmarks.resumable import Result, mean_and_error, run_all, with_error
from slabnet.estimators import SlabClassifier, SlabRegressor

KEYS = ("case", "members", "seed")
CASES = ("sine", "few-linear", "few-sine", "friedman")
SEEDS = 10
TIMES = (2.0, 4.0, 8.0)


def sine(members: int, seed: int) -> Result:
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.uniform(-2, -0.6, 60), rng.uniform(0.6, 2, 60)])[:, None]
    model = SlabRegressor(members=members, random_state=seed).fit(x, np.sin(3 * x[:, 0]) + 0.1 * rng.normal(size=120))

    def covered(new: Any) -> float:
        low, high = model.predict_interval(new[:, None])
        y = np.sin(3 * new) + 0.1 * rng.normal(size=len(new))
        return float(np.mean((low <= y) & (y <= high)))

    measured = {"gap": covered(rng.uniform(-0.6, 0.6, 1000))}
    measured["outside"] = covered(rng.uniform(2.5, 4, 1000) * rng.choice([-1, 1], 1000))
    far = np.array([[sign * times * np.abs(x).max()] for times in TIMES for sign in (-1, 1)])
    spread = sn.predict(model.network_, model.scaling_x_.apply(far), 100).epistemic.sqrt().numpy()[:, 0]
    by_distance = (spread * model.scaling_y_.scale[0]).reshape(len(TIMES), 2).mean(1)
    measured |= {f"epistemic at {times:g}": float(sd) for times, sd in zip(TIMES, by_distance, strict=True)}
    return measured | {"grows": float((np.diff(by_distance) > 0).all())}


def few(truth: Any, members: int, seed: int) -> Result:
    rng = np.random.default_rng(seed)
    x, new = rng.normal(size=(200, 4)), rng.normal(size=(2000, 4))
    y = rng.uniform(size=200) < 1 / (1 + np.exp(-truth(x)))
    model = SlabClassifier(members=members, random_state=seed).fit(x, y.astype(int))
    p = model.predict_proba(new)[:, 1].clip(1e-9, 1 - 1e-9)
    said_logit = np.log(p / (1 - p))
    return {"slope": float(np.cov(truth(new), said_logit)[0, 1] / said_logit.var(ddof=1))}


def friedman(members: int, seed: int) -> Result:
    rng = np.random.default_rng(seed)

    def mean(x: Any) -> Any:
        return 10 * np.sin(np.pi * x[:, 0] * x[:, 1]) + 20 * (x[:, 2] - 0.5) ** 2 + 10 * x[:, 3] + 5 * x[:, 4]

    x, new = rng.uniform(size=(200, 10)), rng.uniform(size=(1000, 10))
    model = SlabRegressor(members=members, random_state=seed).fit(x, mean(x) + rng.normal(size=200))
    prediction = sn.predict(model.network_, model.scaling_x_.apply(new), 100, intervals=0.95)
    low, high = (model.scaling_y_.undo(end.numpy())[:, 0] for end in prediction.interval(0.95))
    truth = mean(new)
    error = model.scaling_y_.undo(prediction.mean.numpy())[:, 0] - truth
    held = float(np.mean((low <= truth) & (truth <= high)))
    return {"mean held": held, "noise": float(model.noise_std_), "rmse of the mean": float(np.sqrt(np.mean(error**2)))}


def work(job: Result) -> Result:
    """One fit, and how sure it is beside how sure it should be."""
    case, members, seed = (job[key] for key in KEYS)
    if case == "sine":
        return sine(members, seed)
    if case == "friedman":
        return friedman(members, seed)
    truth = (lambda x: 2 * x[:, 0] - x[:, 1]) if case == "few-linear" else (lambda x: 3 * np.sin(2 * x[:, 0]))
    return few(truth, members, seed)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.calibration", description=__doc__)
    parser.add_argument("--cases", nargs="+", default=list(CASES), choices=list(CASES))
    parser.add_argument("--members", nargs="+", type=int, default=[1, 5])
    parser.add_argument("--seeds", type=int, default=SEEDS, help="fewer than 10, to try it out (kept apart)")
    given = parser.parse_args()
    name = "calibration" if given.seeds == SEEDS else f"calibration-{given.seeds}"
    jobs = [
        {"case": c, "members": m, "seed": s} for s in range(given.seeds) for c in given.cases for m in given.members
    ]
    record = run_all(name, "python -m benchmarks.calibration", KEYS, jobs, work)
    for case in given.cases:
        for members in given.members:
            rows = [r for r in record["results"] if (r["case"], r["members"]) == (case, members)]
            measures = [key for key in rows[0] if key not in KEYS]
            told = ", ".join(f"{key} {with_error(mean_and_error([row[key] for row in rows]), 3)}" for key in measures)
            print(f"{case}, {members} member(s), {len(rows)} seeds: {told}")


if __name__ == "__main__":
    main()
