"""`slabnet fit --teacher m.slab`: what a model that was fitted before says of the rows a smaller one learns from."""

from __future__ import annotations

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from slabnet.core.errors import check_number, one_line, printable, refuse
from slabnet.data.reading import Chunk
from slabnet.data.tabular import Table
from slabnet.estimators import SlabClassifier, load_estimator
from slabnet.model.network import Network
from slabnet.prediction.predict import predict
from slabnet.store import load, read_card

Numbers = NDArray[np.float64]
DRAWS = 10
SAME_ROWS = ("sha256", "seed", "test_size", "group", "time")  # what decides which rows are held out


@dataclass(frozen=True)
class Teacher:
    """A model file, and how much of the log-likelihood is taken at what it says."""

    path: Path
    share: float = 0.5

    def __post_init__(self) -> None:
        check_number("fit", "--teacher-share", self.share, above=0, at_most=1)

    def to_dict(self) -> dict[str, Any]:
        """As it is kept in the file of a model."""
        return {
            "file": self.path.name,
            "sha256": hashlib.sha256(self.path.read_bytes()).hexdigest(),
            "share": self.share,
        }

    @property
    def line(self) -> str:
        """What is to be known of a fit with a teacher."""
        taught = f"Learned from what {printable(self.path.name)} says as well (share {self.share:g})"
        return f"{taught}: what was maximised is no bound on the evidence of the target."

    def check(self, target: str, job: dict[str, Any]) -> None:
        """Refuse a model of another target, and one that has seen rows which this fit holds out."""
        card = read_card(self.path)
        if card.table is None or card.target != target:
            came = f"{self.path}, fitted to {card.target if card.table is not None else card.data or 'something else'}"
            refuse("fit", "--teacher", f"a model that was fitted to a table with the target {one_line(target)}", came)
        before = card.job or {}
        differs = [name for name in SAME_ROWS if before.get(name) != job.get(name)]
        if differs and before.get("sha256") == job.get("sha256"):
            name = f"--{differs[0].replace('_', '-')}"
            allowed = f"fitted with the same {name}, so that it has not seen the held-out rows"
            refuse("fit", "--teacher", allowed, self.path)

    def of_table(self, rows: Chunk, numbers: list[int], classes: list[Any] | None) -> Numbers:
        """What it says of the rows of a table: probabilities of `classes`, or the expected number."""
        card = read_card(self.path)
        model = load_estimator(self.path).on_inputs()
        x, _ = Table.from_dict(card.table or {}).apply(dict(rows), "fit", numbers=numbers)
        if classes is None:
            if isinstance(model, SlabClassifier):
                refuse("fit", "--teacher", "a model of numbers, as the target is", f"{self.path}, one of classes")
            return np.asarray(model.predict(x), dtype=np.float64)
        known = [] if not isinstance(model, SlabClassifier) else [str(label) for label in model.classes_]
        if sorted(known) != sorted(map(str, classes)):
            refuse(
                "fit", "--teacher", f"a model of the classes {', '.join(map(str, classes[:10]))}", known or self.path
            )
        order = [known.index(str(label)) for label in classes]
        return np.asarray(model.predict_proba(x), dtype=np.float64)[:, order]

    def of_rows(self, x: Tensor, classes: int, seed: int) -> Tensor:
        """What it says of the rows of a data set by name."""
        net, inputs = load(self.path), x[0].numel()
        shape = net.row_shape if isinstance(net, Network) and net.outputs == classes else None
        if shape is None or math.prod(shape) != inputs:
            refuse("fit", "--teacher", f"a model of {inputs} inputs and {classes} classes", self.path)
        return predict(net, x.reshape(-1, *shape), DRAWS, seed=seed).mean
