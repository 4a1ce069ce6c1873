"""docs/results.md: the paper's tables and figures beside ours, from the records in results/.

`python -m benchmarks.results` makes the page and its figures anew; it runs nothing.
"""

from __future__ import annotations

import statistics
from typing import Any

from benchmarks import temperature
from benchmarks.answer import answer
from benchmarks.gaps import baselines, gaps_of, readings, span
from benchmarks.record import DOCS, ROOT, write_page
from slabnet.core.files import write_atomically
from slabnet.experiments.commands import departures_of
from slabnet.experiments.figures import CAPTIONS, CASES, kind_of, write_figures
from slabnet.experiments.files import read_pictures, read_records
from slabnet.experiments.profiles import PAPERS_TABLES
from slabnet.experiments.tables import Group, densities, groups_of, ood, paper_table1, paper_table3, table1, table3

RESULTS, FIGURES = ROOT / "results", DOCS / "figures"

TEXT = """# The paper's tables and figures, beside ours

{answer}

## Where the numbers come from

Every number comes from a record in the folder `results/`: a JSON file with configuration, seed, commit, versions, machine, every row of
Table 1, inclusion per layer and the history of the fit. No number is typed by hand; `python -m benchmarks.results` makes the page.
The tables say how many runs each line rests on (the paper: 10). {count} records so far, made by these commands (add `--out results`;
minutes of one core, while others were at work on the machine):

{commands}

`slabnet table results` prints the tables, `slabnet figures results --out figures` writes the figures.

## Table 1: every way to predict

`+` better than the paper's median, `-` worse, `=` the same in three decimals; `*` inside the paper's range. gamma: SIM drawn, MED median model,
PRN pruned, ALL every weight; beta: SIM drawn, EXP mean; PT: post-trained; R: networks averaged.

{table1}

## Decisions and densities as the authors' scripts read them

The scripts decide where the renormalised logistic function of the log-probabilities (for the horseshoe of raw logits) reaches 0.95 on
average, average log-probabilities, and divide the share of weights used by ten. The same draws, read so, beside ours and the paper's;
`slabnet table results --reading authors` prints it. A dash: the record was measured before both readings were kept.

{readings_table}

## Table 3: mean inclusion probability of each layer

{table3}

{inclusion}

{temperature}

## What is left of the network

{densities}

`density median` counts weights with alpha above one half, `density active` those of them on a path from an input to an output, `density
expected` is the mean of alpha, `density used` counts weights that at least one of ten draws used. The last two are raised by
weights about which the data say nothing: these rest at the prior, where alpha is psi, and are drawn every now and then although the median
model leaves them out. A smaller psi lowers both and changes nothing else for them. In the rows ALL of Table 1 a weight counts as used if its
mean alpha mu is not exactly zero: `recommended` takes dead neurons out of the computation (docs/speed.md), and the weights around them are
then exactly zero until post-training moves them.

## Out-of-distribution detection, and calibration

The area under the ROC curve for telling test images of the other data set from those of its own, by the entropy of the averaged
prediction, and how well calibrated the probabilities are on its own.

{ood}

## What differs from the paper's text

{departures}

{differences}

{why}

{baselines}

{readings}

## Figures

{figures}
"""


def page() -> str:
    """The whole page, from records."""
    records = read_records(RESULTS)
    return TEXT.format(
        count=len(records),
        table1=table1(records).render("markdown"),
        answer=answer(groups_of(records)),
        readings_table=decisions(groups_of(records)),
        table3=table3(records).render("markdown"),
        inclusion=inclusion(groups_of(records)),
        temperature=temperature.sentence("mnist"),
        densities=densities(records).render("markdown"),
        ood=ood(records).render("markdown"),
        departures="\n\n".join(
            f"`{profile}`:\n\n" + "\n".join(f"- {line}" for line in lines)
            for profile, lines in departures_of(records).items()
        ),
        commands=commands(records),
        differences=differences(groups_of(records)),
        why=why(groups_of(records)),
        baselines=baselines(groups_of(records)),
        readings=readings(groups_of(records)),
        figures=figures(sorted(path.stem for path in FIGURES.glob("*.*"))),
    )


def decisions(groups: list[Group]) -> str:
    """Both readings of every averaged row beside the paper's."""
    lines = ["| data | method, profile | gamma | PT | decided: ours | authors' reading | paper | density: ours | "]
    lines[0] += "authors' reading | paper |"
    lines.append("|" + "---|" * 10)
    for group in groups:
        both = [table1(group.runs, reading).to_dicts() for reading in ("ours", "authors")]
        for ours, theirs in zip(*both, strict=True):
            if ours["R"] == "1":
                continue
            cells = [group.dataset, group.label, ours["gamma"], ours["PT"]]
            for key, paper in (("decided", "paper: decided"), ("density used", "paper: density")):
                cells += [ours[key], theirs[key] if read_so(group) else "-", ours[paper]]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def read_so(group: Group) -> bool:
    """Whether its runs were measured in the authors' reading too."""
    return all("authors" in row for run in group.runs for row in run["rows"] if row["draws"] > 1)


def commands(records: list[dict[str, Any]]) -> str:
    """What was typed, and how long it took."""
    lines = ["| command | minutes | commit |", "|---|---|---|"]
    for record in records:
        command = record["command"].removesuffix(" --hidden 400,600")
        lines.append(f"| `{command}` | {sum(record['seconds'].values()) / 60:.0f} | {record['commit']} |")
    return "\n".join(lines)


def inclusion(groups: list[Group]) -> str:
    """How alpha moved, from the recorded histories."""
    lines = []
    for group in groups:
        if group.method != "lbbnn" or not group.profile.startswith("paper") or not group.comparable:
            continue
        if group.hidden != PAPERS_TABLES:
            continue
        history = group.runs[0]["history"]["fit"]["density_expected"]
        low = min(range(len(history)), key=history.__getitem__)
        paper = {row["layer"]: row["median_inclusion"] for row in paper_table3() if row["dataset"] == group.dataset}
        sizes = [layer["weights"] for layer in group.runs[0]["layers"]]
        whole = sum(paper[i + 1] * size for i, size in enumerate(sizes)) / sum(sizes)
        on_the_way = "" if low == len(history) - 1 else f"falls to {history[low]:.4f} in epoch {low + 1} and "
        lines.append(
            f"- {group.dataset}, `{group.profile}`: mean alpha {on_the_way}ends at {history[-1]:.4f} after {len(history)} epochs; "
            f"the paper's layers together have {whole:.4f}."
        )
    return "\n".join(lines)


def differences(groups: list[Group]) -> str:
    """Largest gaps to the paper's accuracies, method by method."""
    lines = []
    for group in groups:
        gaps = gaps_of(group)
        if gaps:
            way, gap = max(gaps.items(), key=lambda pair: abs(pair[1]))
            within = sum(round(abs(gap), 3) <= 0.01 for gap in gaps.values())
            lines.append(
                f"- {group.dataset}, {group.label}: {within} of {len(gaps)} accuracies within .01 of the paper's median; "
                f"the largest gap is {gap:+.3f} ({way})."
            )
    return "\n".join(lines)


def why(groups: list[Group]) -> str:
    """What the recorded histories say about the gaps, for the data sets that have runs of both profiles."""
    reasons = []
    for dataset in dict.fromkeys(group.dataset for group in groups):
        paper, settled = (
            next((g for g in groups if (g.dataset, g.method, g.profile) == (dataset, "lbbnn", profile)), None)
            for profile in ("paper", "paper-settled")
        )
        if paper is None or settled is None:
            continue
        moved, stayed = (g.runs[0]["history"]["fit"]["density_expected"] for g in (paper, settled))
        low = min(range(len(moved)), key=moved.__getitem__)
        gaps = gaps_of(settled)
        before = [gap for way, gap in gaps.items() if "PT N" in way]
        single, rest = (
            [gap for way, gap in gaps.items() if "PT Y" in way and _one_draw(way) == one] for one in (True, False)
        )
        least = min(*moved, *stayed)
        lowest = (
            "That is the lowest it comes to here, so what is missing to the paper's number is not the epoch of the lowering; "
            "temperature and starting values, which the text does not give either, are what is left. "
            if stayed[-1] <= 1.05 * least
            else f"The lowest it comes to is {least:.3f}. "
        )
        reasons.append(
            f"**{dataset}.** With omega's step at 0.1 to the end (`paper`), mean alpha falls to {moved[low]:.3f} by epoch {low + 1} "
            f"and then climbs to {moved[-1]:.3f}. That it ends near psi = 0.135 is chance: weights without data climb as far with other psi. "
            "It is Adam's doing: an excluded weight has a small gradient of constant sign, and once Adam has forgotten the large gradients "
            "of the beginning, it moves omega at its full step however small the gradient is. A run that ends there cannot give Table 3, which suggests that omega's step was lowered on the way; the text does not "
            f"say so. Lowered after 20 epochs (`paper-settled`), mean alpha stays at {stayed[-1]:.3f}. {lowest}"
            f"With alpha at rest the weights learn on undisturbed, which is why accuracies before post-training are above the paper's "
            f"(by {span(before)}). Post-training then finds little more to learn from the data and widens the weights towards the "
            f"prior: means and averages stay with the paper's (gaps of {span(rest)}), a single draw loses ({span(single)})."
        )
    return "\n\n".join(reasons)


def _one_draw(way: str) -> bool:
    return " SIM," in way and way.endswith("R = 1")


def _is_images(name: str) -> bool:
    return (name if name in CAPTIONS else kind_of(name)) in ("drawn", *CASES.values())


HEADINGS = {
    "averaging": "Accuracy against the number of networks (E4)",
    "entropy": "Entropy in and out of distribution (E5)",
    "alpha": "Inclusion probabilities (E6)",
    "training": "Inclusion while training",
    "drawn": "Drawn networks (E7)",
    "wrong": "Wrongly classified images (E8)",
    "in-distribution": "Images of the own data set (E9)",
    "ood": "Images of the other data set (E9)",
}


def figures(names: list[str]) -> str:
    """A figure of each kind under its heading, with links to the others of that kind."""
    parts = []
    for kind, heading in HEADINGS.items():
        of_kind = [name for name in names if kind_of(name) == kind]
        ending = "png" if _is_images(kind) else "svg"
        of_kind.sort(key=lambda name: not name.startswith(f"{kind}-mnist"))  # first of MNIST
        shown = [f"**{name.removeprefix(kind + '-')}**\n\n![{name}](figures/{name}.{ending})" for name in of_kind[:1]]
        rest = ", ".join(f"[{name.removeprefix(kind + '-')}](figures/{name}.{ending})" for name in of_kind[1:])
        parts += [f"### {heading}", CAPTIONS[kind], *shown] if of_kind else []
        parts += [f"Others: {rest}."] if rest else []
    return "\n\n".join(parts)


BEGIN, END = "<!-- results: made by `python -m benchmarks.results` -->", "<!-- end of results -->"


def summary(records: list[dict[str, Any]]) -> str:
    """The README's table: the chosen model and the average of the recommended runs beside the paper's."""
    lines = [
        "| data | way to predict | runs | accuracy | paper | weights | density | paper | decided at 0.95 | right among those |"
    ]
    lines.append("|---|---|---|---|---|---|---|---|---|---|")
    names = {
        ("MED", "EXP", 1): "median model, one small network",
        ("SIM", "SIM", 10): "averaged over 10 drawn networks",
    }
    papers = {
        (r["dataset"], r["gamma"], r["draws"]): r
        for r in paper_table1()
        if r["method"] == "lbbnn" and r["post_trained"]
    }
    for group in groups_of(records):
        if (group.method, group.profile) != ("lbbnn", "recommended") or not group.comparable:
            continue
        for (gamma, beta, draws), name in names.items():
            way = (gamma, beta, True, draws)
            rows = [
                r
                for run in group.runs
                for r in run["rows"]
                if (r["gamma"], r["beta"], r["post_trained"], r["draws"]) == way
            ]
            paper = papers[group.dataset, gamma, draws]
            middle = {
                key: statistics.median(row[key] for row in rows) for key in ("accuracy", "weights", "density_used")
            }
            cells = [
                group.dataset,
                name,
                len(rows),
                f"{middle['accuracy']:.3f}",
                f"{paper['accuracy']:.3f}",
                f"{middle['weights']:.0f}",
            ]
            cells += [f"{middle['density_used']:.2%}", f"{paper['density']:.1%}"]
            sure = [row for row in rows if row["accuracy_at_95"] is not None]
            cells += [
                f"{statistics.median(r['classified_at_95'] for r in sure):.0f}",
                f"{statistics.median(r['accuracy_at_95'] for r in sure):.4f}",
            ]
            lines.append("| " + " | ".join(str(cell) for cell in cells) + " |")
    note = "Medians of the runs; post-trained; the paper's numbers are medians of 10. [docs/results.md](https://github.com/slabnet/slabnet/blob/main/docs/results.md) has all of it."
    return "\n".join([*lines, "", note])


def fill(readme: str) -> str:
    """The README with its results made anew."""
    before, _, rest = readme.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{summary(read_records(RESULTS))}\n{END}{after}"


def main() -> None:
    read_records(RESULTS), read_pictures(RESULTS)  # a damaged file is found before anything is taken away
    for old in FIGURES.glob("*.*"):
        old.unlink()
    seen: set[str] = set()
    for path in sorted(write_figures(RESULTS, FIGURES)):
        images = _is_images(path.stem)
        setting = path.stem.rpartition("-")[0] if images else path.stem  # of several seeds the first is shown
        if (path.suffix == ".png") != images or setting in seen:  # images are smaller as PNG, charts as SVG
            path.unlink()
        else:
            seen.add(setting)
    write_page("results.md", page())
    readme = ROOT / "README.md"
    write_atomically(readme, fill(readme.read_text("utf-8")).encode())


if __name__ == "__main__":
    main()
