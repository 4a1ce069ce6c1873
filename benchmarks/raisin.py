"""Two kinds of raisins from seven measurements: how few weights are enough?

`python -m benchmarks.raisin` compares some settings on held-out rows among the training rows of ten random 80/20 splits,
and tests the best on splits that no setting was compared on, on ten that leave out each raisin twice, and on those it was
chosen on; ten splits drawn one by one have a standard error of nearly a hundredth. Finished fits are kept. SLABNET_DATA
must hold raisin/.
"""

from __future__ import annotations

import argparse
import csv
import json
import time
from itertools import product
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from benchmarks.record import RECORDS, provenance, write_page
from benchmarks.resumable import Result, data_folder, mean_and_error, run_all, with_error
from slabnet.estimators import SlabClassifier

TEN, SPLITS, FOLDS, FEW = 10, 50, 2, 7
PARTITIONS, FIFTHS = 2, 5
FRESH = 1000  # the first split of those on which nothing was chosen
HIDDEN = (50,)
SETTINGS = {
    f"{inputs}, {activation}, psi = {'1/n^2' if psi == 'bic' else psi}": (inputs == "logarithms", activation, psi)
    for inputs, activation, psi in product(("as measured", "logarithms"), ("relu", "tanh"), ("bic", 0.01))
}
BEFORE = "as measured, relu, psi = 1/n^2"


def load_raisin() -> tuple[Any, Any]:
    """Seven measurements and the kind, 900 rows."""
    with (data_folder("raisin") / "raisin.csv").open(encoding="utf-8-sig") as file:
        rows = list(csv.reader(file))[1:]
    return np.array([[float(v) for v in row[:-1]] for row in rows]), np.array([row[-1] for row in rows])


def halves(split: int, rows: int, fifth: int = 0) -> tuple[Any, Any]:
    """Rows to train on and rows to test on: one fifth of a random order, the first if not said otherwise."""
    order = np.random.default_rng(split).permutation(rows)
    test = slice(fifth * rows // FIFTHS, (fifth + 1) * rows // FIFTHS)
    return np.delete(order, test), order[test]


def tried(settings: str, x: Any, y: Any, train: Any, test: Any, seed: int) -> Result:
    """The averaged network, and the median model after a little more training."""
    logarithms, activation, psi = SETTINGS[settings]
    x = np.log(x) if logarithms else x
    model = SlabClassifier(HIDDEN, activation=activation, psi=psi, random_state=seed).fit(x[train], y[train])
    small = model.sparsify(data=(x[train], y[train]))
    return {
        "accuracy": model.score(x[test], y[test]),
        "accuracy_median": small.score(x[test], y[test]),
        "weights": small.n_weights_,
        "active_weights": small.chosen_.total.active_weights,
        "of": small.chosen_.total.weights,
        "inputs": len(small.selected_features_),
    }


def choose(job: Result) -> Result:
    """One setting on one part of the training rows of a split, fitted to the others."""
    x, y = load_raisin()
    parts = np.array_split(halves(job["split"], len(y))[0], 5)
    aside = parts.pop(job["fold"])
    return tried(job["settings"], x, y, np.concatenate(parts), aside, job["split"])


def work(job: Result, settings: str) -> Result:
    """One split: the settings it chose, and a logistic regression."""
    x, y = load_raisin()
    train, test = halves(job["split"], len(y), job.get("fifth", 0))
    started = time.perf_counter()
    results = {"settings": settings} | tried(settings, x, y, train, test, job["split"])
    plain = make_pipeline(StandardScaler(), LogisticRegression()).fit(x[train], y[train])
    seconds = round(time.perf_counter() - started, 2)
    return results | {"accuracy_logistic": plain.score(x[test], y[test]), "seconds": seconds}


TEXT = """# Raisins

Random 80/20 splits of the 900 raisins. A published spike-and-slab package has .861 with 7 of 107 weights on one split; asked of
ten splits is .86 with a median of at most {few} weights. {hidden} hidden units.

## The test

Settings ({chosen}) and splits were written down, and committed, before any of these splits was looked at; each was
tested once. The first ten are the test; the others say how far ten splits are moved by luck. It is not the first test: ten splits planned
before these had missed .86, by luck as it seems now (below; a logistic regression missed it there too). And there are only 900 raisins: the
settings were chosen on other splits of the same ones.

{fresh}

## Tests before it

Ten splits that leave out each raisin twice (two random orders, cut into fifths), so that no raisin counts more than another. The
first line has the settings that were used from the start, before any were compared; the second those that the comparison
below chose:

{balanced}

These ten were planned after the splits below had been seen, and tested once. Below, splits are drawn one by one, ten at a time: some
raisins are tested often and others never, and ten splits move by that alone. The first ten were planned and miss .86, with the
settings chosen below and with the first ones; the others tell luck from the method. Settings: {chosen}.

{results}

## How the settings were chosen

On held-out rows: of each of the first ten splits two fifths of the training rows were left out in turn, and each setting fitted to
the rest. Of those with a median of at most {few} weights the one whose median model is best there was taken, once for all
splits. No fit saw the rows it is judged by, here or above; but ten splits together leave hardly a raisin out, so the choice among these
{count} has seen nearly all of them.

{choices}

This choice for all splits was made second. Tested first was the stricter way, where each of the first ten splits chooses by its own
training rows alone; two fits a setting are little to go by, and the choice changes from split to split:

{nested}

## How much of it is luck

At first {before} had been used. The first ten splits missed .86 with it, and the other forty were added after that was seen. Which
rows are held out moves the mean of ten splits by as much as anything else, for a plain logistic regression of all seven measurements too.

{luck}

{made}
"""
COLUMNS = (
    "| | averaged over drawn networks | median model | its weights: median (range) | logistic regression |",
    "|---|---|---|---|---|",
)


def page(fresh: Result, record: Result, balanced: Result, choices: Result, nested: Result, before: Result) -> str:
    """docs/raisin.md."""
    table = ["| settings | fits | averaged | median model | its weights: median (range) |", "|---|---|---|---|---|"]
    for name in SETTINGS:
        rows = [row for row in choices["results"] if row["settings"] == name]
        averaged, median = (
            with_error(mean_and_error([r[key] for r in rows]), 3) for key in ("accuracy", "accuracy_median")
        )
        table.append(f"| {name} | {len(rows)} | {averaged} | {median} | {_weights(rows)} |")
    return TEXT.format(
        fresh=_by_tens(fresh, FRESH),
        results=_by_tens(record),
        balanced=_by_settings(balanced["results"]),
        chosen=best(choices["results"]),
        hidden=HIDDEN[0],
        choices="\n".join(table),
        count=len(SETTINGS),
        nested="\n".join([*COLUMNS, _line("splits 1 to 10, each with its own settings", nested["results"])]),
        luck=_by_tens(before),
        few=FEW,
        before=BEFORE,
        made=" ".join(map(provenance, (fresh, record, balanced, choices, nested, before))),
    )


def _by_tens(record: Result, first: int = 0) -> str:
    groups = {f"splits {a + 1} to {a + TEN}": _between(record, a, a + TEN) for a in range(first, first + SPLITS, TEN)}
    groups[f"**all {len(record['results'])}**"] = record["results"]
    return "\n".join([*COLUMNS, *(_line(name, rows) for name, rows in groups.items() if rows)])


def _by_settings(rows: list[Result]) -> str:
    names = dict.fromkeys(row["settings"] for row in rows)
    return "\n".join([*COLUMNS, *(_line(name, [r for r in rows if r["settings"] == name]) for name in names)])


def best(choices: list[Result]) -> str:
    """The settings that the held-out rows speak for, of those with few weights; of all, where none has."""
    by_name = {name: [row for row in choices if row["settings"] == name] for name in SETTINGS}
    few = [name for name, rows in by_name.items() if np.median([r["weights"] for r in rows]) <= FEW]
    return max(few or by_name, key=lambda name: float(np.mean([r["accuracy_median"] for r in by_name[name]])))


def _line(name: str, rows: list[Result]) -> str:
    keys = ("accuracy", "accuracy_median", "accuracy_logistic")
    averaged, median, logistic = (with_error(mean_and_error([r[key] for r in rows]), 3) for key in keys)
    return f"| {name} | {averaged} | {median} | {_weights(rows)} of {rows[0]['of']} | {logistic} |"


def _weights(rows: list[Result]) -> str:
    weights = [r["weights"] for r in rows]
    return f"{np.median(weights):g} ({min(weights)} to {max(weights)})"


def _between(record: dict[str, Any], first: int, end: int) -> list[Result]:
    return [row for row in record["results"] if first <= row["split"] < end]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.raisin", description=__doc__)
    parser.parse_args()
    trials = [
        {"settings": name, "split": split, "fold": fold}
        for split, fold, name in product(range(TEN), range(FOLDS), SETTINGS)
    ]
    command = "python -m benchmarks.raisin"
    choices = run_all("raisin_choice", command, ("settings", "split", "fold"), trials, choose)
    tens, fifty = ([{"split": split} for split in range(count)] for count in (TEN, SPLITS))
    others = [{"split": FRESH + split} for split in range(SPLITS)]

    def by_itself(job: Result) -> Result:
        return work(job, best(_between(choices, job["split"], job["split"] + 1)))

    def alike(job: Result) -> Result:
        return work(job, best(choices["results"]))

    fresh = run_all("raisin_fresh", command, ("split",), others, alike)
    nested = run_all("raisin_nested", command, ("split",), tens, by_itself)
    record = run_all("raisin", command, ("split",), fifty, alike)
    fifths = [
        {"settings": name, "split": split, "fifth": fifth}
        for name, split, fifth in product((best(choices["results"]), BEFORE), range(PARTITIONS), range(FIFTHS))
    ]
    keys = ("settings", "split", "fifth")
    balanced = run_all("raisin_fifths", command, keys, fifths, lambda job: work(job, job["settings"]))
    made = page(
        fresh, record, balanced, choices, nested, json.loads((RECORDS / "raisin_before.json").read_text("utf-8"))
    )
    print(made)
    write_page("raisin.md", made)


if __name__ == "__main__":
    main()
