"""A model card beside a model file: what it is, what it was fitted to, how good it is, what it is not for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from slabnet.config.fit_card import FitCard
from slabnet.core.errors import one_line
from slabnet.core.figures import written
from slabnet.core.files import check_writable, write_atomically
from slabnet.store import read_header

LINEAR = {"rmse": "RMSE", "accuracy": "accuracy", "log_loss": "log-loss"}
SCORES = (
    *("rmse", "r2", "baseline", "coverage", "interval_width", "log_density", "accuracy", "balanced_accuracy"),
    *("log_loss", "brier", "auc", "decided", "accuracy_decided"),
)
NOT_FOR = (
    "It was fitted to one table, and speaks of rows like those. Rows outside the training data are marked by "
    "`extrapolates`. Effects are associations; nothing here says what happens if a column is changed. Before it "
    "decides about people, look at its errors by group, which this card does not have."
)


def model_card(model: str | Path) -> str:
    """The card of a model file, as Markdown; what it says is read from the file.

    model: a `.slab` file.
    """
    header = read_header(Path(model))
    card = FitCard.of(header, Path(model))
    return "\n".join(_lines(card, header, Path(model))) + "\n"


def write_card(model: Path) -> Path:
    """Write the card of `model` beside it."""
    path = check_writable("fit", card_of(model))
    write_atomically(path, model_card(model).encode())
    return path


def card_of(model: Path) -> Path:
    """Where the card of a model is."""
    return model.with_suffix(".card.md")


def _lines(card: FitCard, header: Mapping[str, Any], model: Path) -> Iterator[str]:
    job = card.job or {}
    yield f"# {_text(model.name)}"
    yield ""
    yield f"A Bayesian neural network that selects its weights, fitted with slabnet {_text(header['version'])}."
    yield ""
    yield "| what | value |"
    yield "|---|---|"
    facts = [("data", job.get("file") or card.data), ("SHA-256 of the data", job.get("sha256"))]
    facts += [("predicts", card.target), ("task", card.task), ("inputs", len(card.input_names or ()) or None)]
    facts += [("seed", job.get("seed", card.seed))]
    yield from (f"| {name} | {_text(value)} |" for name, value in facts if value is not None)
    tested = card.tested or {}
    yield from ("", "## How good it is", "")
    if not tested:
        yield "Not known: no rows were held out."
    else:
        yield "On rows that were held out when it was fitted:"
        yield from ("", "| score | value |", "|---|---|")
        yield from (f"| {name} | {_number(tested[name])} |" for name in SCORES if tested.get(name) is not None)
        linear = tested.get("linear") or {}
        for name, words in LINEAR.items():
            if linear.get(name) is not None:
                yield f"| {words} of {_text(linear['name'])} | {_number(linear[name])} |"
    yield from ("", "## What it is for, and what not", "", NOT_FOR, "", "## What it carries", "")
    yield "Weights, names of columns and their ranges and means; no single row. See the page on privacy."


def _number(value: Any) -> str:
    return written(float(value)) if isinstance(value, (int, float)) else _text(value)


def _text(value: Any) -> str:
    """User's text in one line that Markdown does not read as marks."""
    text = one_line(str(value), 80)
    return "".join(f"\\{sign}" if sign in "\\`*_[]<>|#" else sign for sign in text)
