"""Runs the demo, keeps its record, and writes the README's pictures and tables from records.

`python -m benchmarks.readme tables` makes only the comparison on tables (from the record of `benchmarks.uci`) and the
picture of the README's first example.
"""

from __future__ import annotations

import json
import statistics
import sys
from typing import Any

from benchmarks.record import DOCS, RECORDS, ROOT, provenance, write_record
from slabnet.core.files import write_atomically

BEGIN, END = "<!-- demo: made by `python -m benchmarks.readme` -->", "<!-- end of demo -->"


def table(record: dict[str, Any]) -> str:
    """Some rows of the demo as Markdown."""
    names = {
        ("ALL", "EXP", False, "deterministic"): "plain network, every weight",
        ("SIM", "SIM", True, "lbbnn"): "averaged over 10 drawn networks",
        ("MED", "SIM", True, "lbbnn"): "median model, weights drawn 10 times",
        ("MED", "EXP", True, "lbbnn"): "median model, one small network",
    }
    lines = [
        "| way to predict | weights | accuracy | decided at 0.95 | right among those |",
        "|---|---|---|---|---|",
    ]
    rows = record["results"]["rows"]
    for row in rows:
        name = names.get((row["gamma"], row["beta"], row["post_trained"], row["method"]))
        if name is None or ("10" in name) != (row["draws"] == 10):
            continue
        sure = "-" if row["accuracy_at_95"] is None else f"{row['accuracy_at_95']:.3f}"
        numbers = f"{row['accuracy']:.3f} | {row['classified_at_95']} of {record['results']['test_rows']} | {sure}"
        lines.append(f"| {name} | {row['weights']} | {numbers} |")
    return "\n".join([*lines, "", provenance(record)])


def fill(readme: str, record: dict[str, Any]) -> str:
    """The README with its demo section made anew."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table(record)}\n{END}{after}"


TABLES = ("<!-- tables: made by `python -m benchmarks.readme tables` -->", "<!-- end of tables -->")
METHODS = {
    "lbbnn": "slabnet: `SlabRegressor()`",
    "gaussian": "every weight, Gaussian posterior",
    "mc-dropout": "MC-dropout",
    "ensemble": "ensemble of networks",
    "random forest": "random forest",
    "hist gradient boosting": "histogram boosting",
}


def comparison(record: dict[str, Any]) -> str:
    """RMSE of each method on each table, the best one in bold; coverage and weights of all tables together."""
    results = record["results"]
    data = list(dict.fromkeys(row["data"] for row in results))
    means = {
        (name, table): statistics.mean(row["rmse"] for row in results if (row["method"], row["data"]) == (name, table))
        for name in METHODS
        for table in data
    }
    best = {table: min(means[name, table] for name in METHODS) for table in data}
    lines = [
        f"| RMSE | {' | '.join(data)} | 95% intervals cover | weights kept |",
        f"|---|{'---|' * (len(data) + 2)}",
    ]
    for name, words in METHODS.items():
        cells = [f"{means[name, table]:.3g}" for table in data]
        cells = [f"**{c}**" if means[name, t] == best[t] else c for c, t in zip(cells, data, strict=True)]
        rows = [row for row in results if row["method"] == name]
        cover = [row["coverage"] for row in rows if row.get("coverage") is not None]
        kept = [row["density"] for row in rows if row.get("density") is not None]
        cells.append(f"{statistics.mean(cover):.3f}" if cover else "-")
        cells.append(f"{statistics.mean(kept):.0%}" if kept else "-")
        lines.append(f"| {words} | {' | '.join(cells)} |")
    version = record["versions"]["slabnet"]
    note = f"Means over 20 splits of five UCI tables; the defaults of version {version}, nothing tuned on them."
    return "\n".join([*lines, "", f"{note} {provenance(record)}"])


def fill_tables(readme: str) -> str:
    """The README with its comparison on tables made anew."""
    before, _, rest = readme.partition(TABLES[0])
    _, _, after = rest.partition(TABLES[1])
    record = json.loads((RECORDS / "uci.json").read_text("utf-8"))
    return f"{before}{TABLES[0]}\n{comparison(record)}\n{TABLES[1]}{after}"


def effects_picture() -> bytes:
    """Signed effects with their intervals of the model that the README's first example fits."""
    import io

    from matplotlib.figure import Figure
    from sklearn.datasets import load_diabetes
    from sklearn.model_selection import train_test_split

    import slabnet as sn

    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    X_train, _, y_train, _ = train_test_split(X, y, random_state=0)
    rows = sn.SlabRegressor(random_state=0).fit(X_train, y_train).feature_effects_.rows()[::-1]
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    axes.axvline(0, color="0.6", linewidth=1)
    for place, (_, _, effect, low, high) in enumerate(rows):
        axes.plot([low, high], [place, place], color="#8b9097", linewidth=2)
        axes.plot(effect, place, "o", color="#1f6fb2" if low > 0 or high < 0 else "#8b9097")
    axes.set_yticks(range(len(rows)), [name for name, *_ in rows])
    axes.set_xlabel("change of progression per standard deviation of the column, 95% interval")
    axes.spines[["top", "right"]].set_visible(False)
    drawn = io.BytesIO()
    figure.savefig(drawn, format="png", dpi=110, metadata={"Software": None})
    return drawn.getvalue()


def make_tables() -> None:
    """The comparison, and the picture of the first example."""
    readme = ROOT / "README.md"
    write_atomically(readme, fill_tables(readme.read_text("utf-8")).encode())
    write_atomically(DOCS / "effects.png", effects_picture())


def main() -> None:
    if sys.argv[1:] == ["tables"]:
        make_tables()
        return
    from slabnet.cli.demo import demo_png, run_demo

    demo = run_demo(show="lines")
    results = demo.to_dict() | {"test_rows": len(demo.split.test[1])}
    record = write_record("demo", "python -m benchmarks.readme", demo.seed, results)
    write_atomically(DOCS / "demo.png", demo_png(demo))
    readme = ROOT / "README.md"
    write_atomically(readme, fill(readme.read_text("utf-8"), record).encode())


def record() -> dict[str, Any]:
    """The record the README was made from."""
    written: dict[str, Any] = json.loads((RECORDS / "demo.json").read_text("utf-8"))
    return written


if __name__ == "__main__":
    main()
