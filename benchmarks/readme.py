"""Runs the demo, keeps its record, and writes the README's picture and table from that record."""

from __future__ import annotations

import json
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


def main() -> None:
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
