"""What the model is made of: which columns are in it, which of them only linearly, how deep and how wide it is."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from slabnet.core.errors import check_whole, one_line, refuse
from slabnet.core.noise import Seed, seed_number
from slabnet.model.gates import Gates, column_inclusion, named_groups
from slabnet.model.wrapped import Wraps
from slabnet.prediction.structure_counts import Counts, count_structure

MOST_ROWS = 40  # of the table; the others are in `columns`
MOST_LISTED = 4  # values of a width that are listed one by one
MOST_PARTNERS = 20  # of one column
SHOWN_PARTNER, LEAST_PARTNER = 0.1, 0.01
MIDDLE = 0.9  # share of the draws within the range of a width


@dataclass(frozen=True)
class ColumnStructure:
    """One column: probabilities from networks drawn from the posterior.

    included: of its gate to be open, None where it has none. used: that a path leads from it to an output. linear: that
    it is used, and nothing on the way bends it: it enters only linearly. partners: other columns with which it shares
    an active unit, so that they may interact, with the probability of that (from 0.01 on, at most 20 of them).
    parts: of a response whose outputs stand for a mean and a noise, the probability that a path leads to each.
    """

    name: str
    included: float | None
    used: float
    linear: float
    partners: Mapping[str, float]
    parts: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ActivationUse:
    """share: of the drawn networks in which an active unit has it; units: how many do, on average."""

    share: float
    units: float


@dataclass(frozen=True)
class Structure:
    """What networks drawn from the posterior are made of; probabilities are shares of `draws` networks.

    columns: in the order of the table. depth: layers on the longest path (0: no column reaches an output) -> share.
    width: for each hidden layer, number of active units -> share; units: how many there are.
    activations: by name, in use by active units. An active unit lies on a path from an input to an output.
    """

    columns: tuple[ColumnStructure, ...]
    depth: Mapping[int, float]
    width: tuple[Mapping[int, float], ...]
    units: tuple[int, ...]
    activations: Mapping[str, ActivationUse]
    draws: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def used(self) -> tuple[float, ...]:
        return tuple(column.used for column in self.columns)

    @property
    def linear(self) -> tuple[float, ...]:
        return tuple(column.linear for column in self.columns)

    def rows(self, most: int = MOST_ROWS) -> list[tuple[str, ...]]:
        """One for each of so many columns, those that are used most first; the first row is the head."""
        gated = any(column.included is not None for column in self.columns)
        parts = list(self.columns[0].parts) if self.columns else []
        named = [f"in the {part}" for part in parts]
        head = ("column", *(["included"] if gated else []), "used", *named, "only linearly, if used", "interacts with")
        rows: list[tuple[str, ...]] = [head]
        for column in sorted(self.columns, key=lambda one: -one.used)[:most]:
            shown = {name: share for name, share in column.partners.items() if share >= SHOWN_PARTNER}
            partners = ", ".join(f"{one_line(name, 30)} {share:.2f}" for name, share in list(shown.items())[:3])
            included = "-" if column.included is None else f"{column.included:.2f}"
            straight = f"{column.linear / column.used:.2f}" if column.used else "-"
            more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
            reached = [f"{column.parts[part]:.2f}" for part in parts]
            shares = (*([included] if gated else []), f"{column.used:.2f}", *reached, straight)
            rows.append((one_line(column.name, 40), *shares, partners + more or "-"))
        return rows

    def sentences(self) -> list[str]:
        """What is not about single columns."""
        drawn = f"in {self.draws} drawn networks" if self.draws > 1 else "in one network"
        lines = [f"Layers on the longest path, {drawn}: {_listed(self.depth)}."]
        for number, (width, units) in enumerate(zip(self.width, self.units, strict=True), start=1):
            lines.append(f"Active units of hidden layer {number}, of {units}: {_width(width)}.")
        in_use = {name: use for name, use in self.activations.items() if use.share > 0}
        if in_use:
            each = ", ".join(f"{name} {use.share:.2f} ({use.units:.1f} units)" for name, use in in_use.items())
            lines.append(f"Activations in use: {each}.")
        return lines

    def __str__(self) -> str:
        return self.as_text()

    def as_text(self, most: int = MOST_ROWS) -> str:
        """The table of so many columns, and the sentences, for a person."""
        table = self.rows(most)
        widths = [max(len(row[i]) for row in table) for i in range(len(table[0]))]
        padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in table]
        rest = len(self.columns) - most
        more = [f"{rest} more columns, which are used less often."] if rest > 0 else []
        return "\n".join([*("  ".join(row).rstrip() for row in padded), *more, *self.sentences()])

    def _repr_html_(self) -> str:
        head, *rows = ([html.escape(cell) for cell in row] for row in self.rows())
        cells = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
        top = "".join(f"<th>{cell}</th>" for cell in head)
        below = "".join(f"<p>{html.escape(line)}</p>" for line in self.sentences())
        return f"<table><tr>{top}</tr>{cells}</table>{below}"

    def to_dict(self) -> dict[str, Any]:
        """The same as plain text and numbers."""
        return {
            "draws": self.draws,
            "columns": [
                {**vars(column), "partners": dict(column.partners), "parts": dict(column.parts)}
                for column in self.columns
            ],
            "depth": {str(layers): share for layers, share in self.depth.items()},
            "width": [{str(units): share for units, share in width.items()} for width in self.width],
            "units": list(self.units),
            "activations": {name: vars(use) for name, use in self.activations.items()},
        }

    @classmethod
    def from_dict(cls, written: Mapping[str, Any]) -> Structure:
        """What `to_dict` wrote."""

        def shares(of: Mapping[str, float]) -> dict[int, float]:
            return {int(value): share for value, share in of.items()}

        return cls(
            columns=tuple(ColumnStructure(**column) for column in written["columns"]),
            depth=shares(written["depth"]),
            width=tuple(shares(width) for width in written["width"]),
            units=tuple(written["units"]),
            activations={name: ActivationUse(**use) for name, use in written["activations"].items()},
            draws=written["draws"],
        )


@torch.no_grad()
def structure(
    net: nn.Module | Wraps,
    draws: int = 100,
    *,
    names: Sequence[str] | None = None,
    columns: Mapping[str, Sequence[int]] | None = None,
    seed: Seed = 0,
) -> Structure:
    """What networks drawn from the posterior are made of.

    net: a network that is a chain of layers, or a fitted estimator; of a sparsified one, the model that was chosen.
    draws: how many networks are drawn.
    names: of the inputs; columns: the inputs of each column by name, where a column has several. Without them an
        estimator gives the columns of its table, a network with gates those of its gates, others x0, x1 and so on.

    >>> from slabnet.model.networks import mlp
    >>> print(structure(mlp((2, 3, 1), skip=True, likelihood="gaussian"), draws=5).names)
    ('x0', 'x1')
    """
    check_whole("structure", "draws", draws, at_least=1)
    masks = None
    if isinstance(net, Wraps):
        whole = net.wrapped()
        net, masks = whole.net, whole.masks
        columns = whole.columns or None if names is None and columns is None else columns
    elif not isinstance(net, nn.Module):
        refuse("structure", "net", "a network or a fitted estimator", type(net).__name__)
    by_name = any(isinstance(part, Gates) and part.kind == "inputs" for part in net.modules())
    if names is None and columns is None and by_name:
        columns = named_groups(net)
    counts = count_structure(net, draws, seed_number(seed, "structure"), masks, names, columns)
    included = column_inclusion(net) if by_name and masks is None else {}
    return _structure(counts, included)


def _structure(counts: Counts, included: Mapping[str, float]) -> Structure:
    draws = counts.draws
    together: list[list[float]] = [] if counts.together is None else (counts.together / draws).tolist()
    columns = []
    for i, name in enumerate(counts.names):
        row = together[i] if together else []
        likely = sorted(((share, other) for other, share in enumerate(row) if share >= LEAST_PARTNER), key=_likeliest)
        partners = {counts.names[other]: share for share, other in likely[:MOST_PARTNERS]}
        shares = float(counts.used[i]) / draws, float(counts.linear[i]) / draws
        reached = {part: float(counted[i]) / draws for part, counted in counts.used_in.items()}
        columns.append(ColumnStructure(name, included.get(name), *shares, partners, reached))
    return Structure(
        columns=tuple(columns),
        depth={layers: count / draws for layers, count in sorted(counts.depth.items())},
        width=tuple({units: count / draws for units, count in sorted(layer.items())} for layer in counts.width),
        units=counts.units,
        activations={
            name: ActivationUse(counts.with_kind[name] / draws, count / draws) for name, count in counts.kinds.items()
        },
        draws=draws,
    )


def _likeliest(partner: tuple[float, int]) -> tuple[float, int]:
    return -partner[0], partner[1]


def _listed(shares: Mapping[int, float]) -> str:
    return ", ".join(f"{value}: {share:.2f}" for value, share in shares.items())


def _width(width: Mapping[int, float]) -> str:
    """A few values with their shares; of many, the mean and the range of most draws."""
    if len(width) <= MOST_LISTED:
        return _listed(width)
    below, bounds = 0.0, []
    for level in ((1 - MIDDLE) / 2, (1 + MIDDLE) / 2):
        below = 0.0
        for units, share in width.items():
            below += share
            if below >= level - 1e-9:
                bounds.append(units)
                break
    mean = sum(units * share for units, share in width.items())
    return f"{mean:.1f} on average, {bounds[0]} to {bounds[-1]} in {MIDDLE:.0%} of the networks"
