"""How far the response moves with each column: which way, and how surely."""

from __future__ import annotations

import html
import math
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from slabnet.core.errors import one_line

Array = NDArray[np.float64]
LEVEL = 0.95
_OLD = "feature_effects_ is a record since 0.2.0: the numbers it was are feature_effects_.sizes"


@dataclass(frozen=True)
class FeatureEffects:
    """Slopes of the mean response per standard deviation of each input, in units of the response.

    columns, sizes: for each column E |slope| over rows and drawn networks, the largest of its inputs.
    inputs, outputs: what the rows and columns of `effect` are: inputs of the network (a category has one for each
        level), and responses or classes.
    effect, low, high: the slope averaged over rows, its mean over drawn networks and 95% interval. Where effects of
        both signs cancel, `effect` is small and the size is not.
    """

    columns: tuple[str, ...]
    sizes: Array
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    effect: Array | None = None
    low: Array | None = None
    high: Array | None = None

    @classmethod
    def of(
        cls, columns: Sequence[str], sizes: Array, inputs: Sequence[str], outputs: Sequence[str], signed: Array
    ) -> Self:
        """From signed slopes (draws, outputs, inputs) in units of the response.

        >>> made = FeatureEffects.of(["a"], np.ones(1), ["a"], ["y"], np.linspace(1, 3, 101).reshape(-1, 1, 1))
        >>> [round(float(part[0, 0]), 2) for part in (made.effect, made.low, made.high)]
        [2.0, 1.05, 2.95]
        """
        tail = (1 - LEVEL) / 2
        low, high = np.quantile(signed, [tail, 1 - tail], axis=0)
        return cls(tuple(columns), sizes, tuple(inputs), tuple(outputs), signed.mean(0).T, low.T, high.T)

    def only(self, columns: Any, inputs: Any) -> Self:
        """The same, nothing for columns and inputs outside of these masks."""
        sizes = np.where(columns, self.sizes, 0.0)
        if self.effect is None or self.low is None or self.high is None:
            return replace(self, sizes=sizes)
        effect, low, high = (np.where(inputs[:, None], part, 0.0) for part in (self.effect, self.low, self.high))
        return replace(self, sizes=sizes, effect=effect, low=low, high=high)

    def rows(self) -> list[tuple[str, str, float, float, float]]:
        """Input, response or class, effect and its interval; largest first."""
        if self.effect is None or self.low is None or self.high is None:
            return []
        rows = [
            (name, output, float(self.effect[i, k]), float(self.low[i, k]), float(self.high[i, k]))
            for i, name in enumerate(self.inputs)
            for k, output in enumerate(self.outputs)
        ]
        return sorted(rows, key=lambda row: -abs(row[2]))

    def to_dict(self) -> dict[str, Any]:
        """What a file holds beside the sizes."""
        parts = {"effect": self.effect, "low": self.low, "high": self.high}
        return {"outputs": list(self.outputs)} | {k: v.tolist() for k, v in parts.items() if v is not None}

    @classmethod
    def from_dict(cls, columns: Sequence[str], sizes: Any, inputs: Sequence[str], described: Any) -> Self:
        """What `to_dict` gave; a file of 0.1 has sizes only."""
        numbers = np.asarray(sizes, dtype=np.float64)
        if numbers.shape != (len(columns),):
            raise ValueError(f"{one_line(numbers.shape)} effects for {len(columns)} columns")
        if not described or "effect" not in described:
            return cls(tuple(columns), numbers)
        outputs = [str(name) for name in described["outputs"]]
        parts = [np.asarray(described[name], dtype=np.float64) for name in ("effect", "low", "high")]
        if any(part.shape != (len(inputs), len(outputs)) for part in parts):
            raise ValueError(f"signed effects for other than {len(inputs)} inputs")
        return cls(tuple(columns), numbers, tuple(inputs), tuple(outputs), *parts)

    def __str__(self) -> str:
        several = len(self.outputs) > 1
        lines = [f"{'input':<30} {'response':<16} " if several else f"{'input':<30} "]
        lines[0] += f"{'effect per sd':>13}  {LEVEL:.0%} interval"
        for name, output, effect, low, high in self.rows():
            which = f"{one_line(output, 16):<16} " if several else ""
            lines.append(f"{one_line(name, 30):<30} {which}{effect:>13.4g}  {low:.4g} to {high:.4g}")
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{text}</th>" for text in ("input", "response", "effect per sd", f"{LEVEL:.0%} interval"))
        body = "".join(
            f"<tr><td>{html.escape(name)}</td><td>{html.escape(output)}</td><td>{effect:.4g}</td>"
            f"<td>{low:.4g} to {high:.4g}</td></tr>"
            for name, output, effect, low, high in self.rows()
        )
        return f"<table><tr>{head}</tr>{body}</table>"

    # What it was up to 0.1, an array of sizes, goes on working with a warning.

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        warnings.warn(_OLD, FutureWarning, stacklevel=2)
        return np.asarray(self.sizes, dtype=dtype)

    def __len__(self) -> int:
        return len(self.sizes)

    def __iter__(self) -> Iterator[float]:
        warnings.warn(_OLD, FutureWarning, stacklevel=2)
        return iter(self.sizes.tolist())

    def __getitem__(self, which: Any) -> Any:
        warnings.warn(_OLD, FutureWarning, stacklevel=2)
        return self.sizes[which]


def as_shares(sizes: Array) -> Array:
    """Each size as a share of their sum; zeros where all are zero.

    >>> as_shares(np.array([3.0, 1.0])).tolist(), as_shares(np.zeros(2)).tolist()
    ([0.75, 0.25], [0.0, 0.0])
    """
    largest = float(np.max(sizes, initial=0.0))
    if not 0 < largest < math.inf:
        return np.zeros_like(sizes)
    scaled = sizes / largest
    return np.asarray(scaled / scaled.sum())
