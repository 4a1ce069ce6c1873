"""What agrees with the paper, what differs and why, in ten lines: the beginning of docs/results.md, from records."""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks import prior_weight
from benchmarks.gaps import gaps_of, papers_accuracies
from slabnet.experiments.tables import PAPERS_NAME, Group, paper_table1, paper_table3

DATA = ("mnist", "fashion-mnist")


def answer(groups: list[Group]) -> str:
    """Ten lines that can be quoted."""
    ours = {(g.dataset, g.method, g.profile): g for g in groups if g.comparable}
    lines = [
        f"**lbbnn**: {_within(ours, 'lbbnn')} of the accuracies of Table 1 are within .01 of the paper's medians "
        f"({_runs(ours, 'lbbnn')} with the paper's settings).",
        f"**Gaussian** and **concrete dropout**: {_within(ours, 'gaussian')}; and {_within(ours, 'concrete-dropout')}.",
        f"**Mixture**: {_within(ours, 'mixture')} with exp(-6) as a variance, as the text has it. The authors' script takes it as a "
        f"standard deviation, and `paper` does so too now: {_narrow()}",
        f"**Horseshoe**: {_within(ours, 'horseshoe')} with the half-Cauchy prior of the text. What the authors' script trains is "
        f"the group normal-Jeffreys prior of Louizos et al. 2017, here the method `normal-jeffreys`: "
        f"{_within(ours, 'normal-jeffreys')}.",
        f"**Decisions at 0.95**, lbbnn averaged over ten: {_decided(ours, 'lbbnn')}. The script renormalises p / (1 + p), so that every "
        "draw needs p of about .974 or more; the probabilities themselves are nearer than the counts.",
        f"**Decisions of the horseshoe**: {_decided(ours, 'horseshoe')}. The script takes the logistic function of raw logits, which "
        "needs a logit of about 46 for a decision.",
        "**Densities** of ten averaged networks: ours counts the weights used in any of the ten, the script probably divides the "
        "share used in its 20 000 draws by ten; both stand beside the paper's below.",
        f"**Table 3**: {_inclusion(ours)}. No public script gives the paper's numbers; temperature is the strong knob.",
        "**Mean alpha climbs** after epoch 20 because Adam moves excluded weights at its full step, whatever psi is. It settles once "
        "omega's step is lowered (`paper-settled`).",
        f"**Fewer weights**: {_recommended(ours)}; more of that in [accuracy at few weights](sparsity.md).",
    ]
    return "\n".join(f"{number}. {line}" for number, line in enumerate(lines, start=1))


def _within(ours: dict[tuple[str, str, str], Group], method: str) -> str:
    parts = []
    for dataset in DATA:
        group = ours.get((dataset, method, "paper"))
        gaps = gaps_of(group) if group is not None else {}
        close = sum(round(abs(gap), 3) <= 0.01 for gap in gaps.values())
        parts.append(f"{close} of {len(gaps)} on {dataset}" if gaps else f"- on {dataset} (not run yet)")
    return ", ".join(parts)


def _runs(ours: dict[tuple[str, str, str], Group], method: str) -> str:
    counts = [len(ours[key].runs) for dataset in DATA if (key := (dataset, method, "paper")) in ours]
    return f"{' and '.join(map(str, counts))} run{'' if sum(counts) == 1 else 's'}"


def _narrow() -> str:
    looks = prior_weight.seen("mixture", "fashion-mnist").get("narrow")
    if not looks:
        return "-."
    gaps = zip(prior_weight.accuracies(looks[-1]), papers_accuracies("mixture", "fashion-mnist"), strict=True)
    close = sum(abs(round(round(mine, 3) - theirs, 3)) <= 0.01 for mine, theirs in gaps)
    return f"{close} of 3 on fashion-mnist after {looks[-1]['epoch']} epochs, without post-training."


def _decided(ours: dict[tuple[str, str, str], Group], method: str) -> str:
    parts = []
    for dataset in DATA:
        group = ours.get((dataset, method, "paper"))
        rows = [] if group is None else [row for run in group.runs for row in run["rows"] if _averaged(row)]
        count = f"{statistics.median(row['classified_at_95'] for row in rows):.0f}" if rows else "-"
        read = [row["authors"]["decided"] for row in rows if row.get("authors")]
        theirs = f"{statistics.median(read):.0f}" if read else "- (to be run anew)"
        parts.append(
            f"{count} of 10 000 on {dataset} as we count, {theirs} in the script's reading, {_papers_count(dataset, method)} in the paper"
        )
    return "; ".join(parts)


def _papers_count(dataset: str, method: str) -> str:
    key = (dataset, PAPERS_NAME.get(method, method))
    return next(
        f"{r['classified_at_95']:.0f}" for r in paper_table1() if (r["dataset"], r["method"]) == key and _averaged(r)
    )


def _averaged(row: dict[str, Any]) -> bool:
    return (row["gamma"], row["beta"], row["post_trained"], row["draws"]) == ("SIM", "SIM", False, 10)


def _inclusion(ours: dict[tuple[str, str, str], Group]) -> str:
    group = ours.get(("mnist", "lbbnn", "paper"))
    if group is None:
        return "-"
    mine = [statistics.median(run["layers"][i]["inclusion"] for run in group.runs) for i in range(3)]
    theirs = [row["median_inclusion"] for row in paper_table3() if row["dataset"] == "mnist"]
    shown = ("/".join(f"{value:.3f}" for value in values) for values in (mine, theirs))
    return "mean alpha of the three layers ends at {} on mnist, the paper has {}".format(*shown)


def _recommended(ours: dict[tuple[str, str, str], Group]) -> str:
    group = ours.get(("mnist", "lbbnn", "recommended"))
    if group is None:
        return "-"
    way = ("MED", "EXP", True)
    rows = [row for run in group.runs for row in run["rows"] if (row["gamma"], row["beta"], row["post_trained"]) == way]
    middle = {key: statistics.median(row[key] for row in rows) for key in ("accuracy", "weights")}
    paper = next(
        row
        for row in paper_table1()
        if (row["dataset"], row["method"], row["gamma"], row["beta"], row["post_trained"]) == ("mnist", "lbbnn", *way)
    )
    return (
        f"`recommended` has {middle['accuracy']:.3f} with {middle['weights']:.0f} weights on mnist as a post-trained median model, "
        f"the paper {paper['accuracy']:.3f} with {paper['density']:.1%} of 559 600"
    )
