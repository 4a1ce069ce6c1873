"""`slabnet doctor`: looks at a table before it is fitted, and at a model after it; says what is odd, and what helps."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from slabnet.core.errors import ArgumentError, one_line, refuse
from slabnet.data.cells import as_label, is_missing
from slabnet.data.columns import check_answers
from slabnet.data.noticed import noticed
from slabnet.data.reading import Chunk, read_all
from slabnet.data.tabular import Table
from slabnet.data.task import guess_task
from slabnet.estimators.scaling import constant_columns
from slabnet.estimators.warnings import far_values
from slabnet.store import read_header

MANY_GAPS, RARE_SHARE, FEWEST_OF_A_CLASS, ROWS_PER_INPUT = 0.5, 0.05, 10, 10
MOVING, COVERAGE = 0.01, (0.9, 0.99)


@dataclass(frozen=True)
class Finding:
    """What is odd, and what to do about it."""

    what: str
    remedy: str


def examine(data: Path, target: str, model: Path | None = None) -> list[Finding]:
    """Everything that was found: in the table, and in the model that was fitted to it, where one is given."""
    table = read_all(data, "doctor")
    if target not in table:
        names = ", ".join(one_line(name, 30) for name in list(table)[:20])
        refuse("doctor", "--target", f"one of the columns {names}", target)
    answers = table.pop(target)
    findings = [*_of_target(answers, target), *_of_columns(table, answers, target)]
    return findings + (_of_model(model) if model is not None else [])


def lines_of(findings: list[Finding]) -> list[str]:
    """For a person."""
    lines = [f"- {one.what}\n  {one.remedy}" for one in findings]
    return lines or ["Nothing odd was found."]


def as_json(findings: list[Finding]) -> list[dict[str, Any]]:
    return [asdict(one) for one in findings]


def _of_target(answers: list[Any], name: str) -> list[Finding]:
    shown, findings = one_line(name), []
    guess = guess_task(answers, name, "doctor")
    findings.append(Finding(guess.line(name), "Say --task if it is something else."))
    try:
        check_answers(answers, name, "doctor")
    except ArgumentError as error:
        findings.append(Finding(str(error).removeprefix("doctor: "), "Put numbers or classes in its place."))
    gone = sum(map(is_missing, answers))
    if gone:
        findings.append(Finding(f"{gone} of {len(answers)} rows have no {shown}.", "They are left out of a fit."))
    if guess.task == "classification":
        counts = Counter(as_label(value) for value in answers if not is_missing(value))
        rare = [k for k, n in counts.items() if n < FEWEST_OF_A_CLASS or n < RARE_SHARE * sum(counts.values())]
        if rare:
            what = f"Rare classes of {shown}: {', '.join(f'{one_line(k, 30)} ({counts[k]} rows)' for k in rare[:8])}."
            remedy = "Look at balanced accuracy and log-loss, not at accuracy; collect more of them."
            findings.append(Finding(what, remedy))
    return findings


def _of_columns(table: Chunk, answers: list[Any], name: str) -> list[Finding]:
    findings = [
        Finding(what.rstrip(".") + ".", "Look at it before it goes in.") for what in noticed(table, answers, name)
    ]
    for column, values in table.items():
        gaps = sum(map(is_missing, values)) / len(values)
        if gaps > MANY_GAPS:
            remedy = f"Leave it out with --drop {one_line(column)}, unless a gap itself says something."
            findings.append(Finding(f"{one_line(column)} is missing in {gaps:.0%} of the rows.", remedy))
    try:
        learned = Table.learn(table, where="doctor")
        x, _ = learned.apply(table, "doctor")
    except ArgumentError as error:
        reason = str(error).removeprefix("doctor: ")
        return [
            *findings,
            Finding(f"Columns that cannot be fitted: {reason}", "Leave them out with --drop, or mend them."),
        ]
    findings += [Finding(note, "Nothing to do, if that is right.") for note in learned.notes]
    constant = [learned.inputs[i] for i in constant_columns(x)]
    if constant:
        shown = ", ".join(map(one_line, constant[:8]))
        findings.append(Finding(f"One value only: {shown}.", "They tell nothing; leave them out with --drop."))
    for i, row in far_values(x)[:8]:
        what = f"{one_line(learned.inputs[i])} has {x[row, i]:g} in row {row + 1}, beside which all others look alike."
        findings.append(Finding(what, "Mend the value, or take logarithms."))
    if len(x) < ROWS_PER_INPUT * x.shape[1]:
        what = f"{len(x)} rows for {x.shape[1]} inputs: fewer than {ROWS_PER_INPUT} each."
        findings.append(Finding(what, "Expect doubt about which inputs matter; drop columns that cannot matter."))
    twice = len(x) - len(np.unique(x, axis=0))
    if twice > len(x) // 2:
        what = f"{twice} rows have the columns of another one."
        findings.append(Finding(what, "If they are copies, take them out: held-out rows would have been fitted."))
    return findings


def _of_model(model: Path) -> list[Finding]:
    about = read_header(model)["about"]
    history, tested = about.get("history") or {}, about.get("tested") or {}
    findings = []
    moving = history.get("alpha_moving")
    if moving is not None and moving > MOVING:
        what = f"{moving:.1%} of the inclusion probabilities still moved at the end of training."
        findings.append(Finding(what, "Fit with more --epochs."))
    if history.get("density_median") == 0:
        remedy = "The columns say nothing of the target, or epochs are few."
        findings.append(Finding("No weight is in the median model.", remedy))
    coverage = tested.get("coverage")
    if coverage is not None and not COVERAGE[0] <= coverage <= COVERAGE[1]:
        what = f"95% prediction intervals cover {coverage:.1%} of the held-out rows."
        remedy = "Look at far values and at the response: skewed positive numbers may want logarithms."
        findings.append(Finding(what, remedy))
    for label in tested.get("never_predicted") or []:
        what = f"It never predicts {one_line(str(label), 40)}."
        findings.append(Finding(what, "Read probabilities, not classes; collect more rows of it."))
    return findings
