"""A small model as an expression: for people, and in Python, SQL and Excel, where it gives the same numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from slabnet.core.errors import check_choice, check_whole, one_line, refuse
from slabnet.core.figures import written
from slabnet.data.columns import MISSING, RARE, Column
from slabnet.model.activations import activation_of, numbers_of
from slabnet.model.likelihoods import Likelihood
from slabnet.prediction.drawn import Chain

MOST_WEIGHTS = 30
LANGUAGES = ("people", "python", "sql", "excel")
CLOSE = 1e-9
_IN_EXCEL, _ESCAPED = re.compile(r"(['\[\]#@])"), r"'\1"  # what a name in a formula puts an apostrophe before


@dataclass(frozen=True)
class Sum:
    """constant + sum of factor * part."""

    constant: float
    parts: tuple[tuple[float, Node], ...] = ()


@dataclass(frozen=True)
class Input:
    """One input of the network: its column, and which of the column's inputs it is."""

    place: int


@dataclass(frozen=True)
class Call:
    """A function of one number: an activation of the table by name with what it was told, or "exp"."""

    name: str
    of: Node
    told: Mapping[str, float] = field(default_factory=dict)


Node = Sum | Input | Call
# name -> text of f(z) in each language; a number that was told stands as {its name}
_RELU = {"people": "max(0, {z})", "python": "max(0.0, {z})", "sql": "0.5 * ({z} + ABS({z}))", "excel": "MAX(0, {z})"}
_EXP = {"people": "exp({z})", "python": "math.exp({z})", "sql": "EXP({z})", "excel": "EXP({z})"}
_TANH = {"people": "tanh({z})", "python": "math.tanh({z})", "sql": "(2.0 / (1.0 + EXP(-2.0 * {z})) - 1.0)",
         "excel": "TANH({z})"}  # fmt: skip
_IF = {
    "people": "({z} if above 0, else {below})",
    "python": "({z} if {z} > 0 else {below})",
    "sql": "CASE WHEN {z} > 0 THEN {z} ELSE {below} END",
    "excel": "IF({z} > 0, {z}, {below})",
}


def _both(below: str) -> dict[str, str]:
    """z above 0, something else below."""
    return {name: text.replace("{below}", below.replace("EXP", _exp(name))) for name, text in _IF.items()}


def _exp(language: str) -> str:
    return {"people": "exp", "python": "math.exp"}.get(language, "EXP")


def _by_exp(text: str) -> dict[str, str]:
    """A formula in which EXP is the exponential."""
    return {name: text.replace("EXP", _exp(name)) for name in LANGUAGES}


FUNCTIONS: dict[str, dict[str, str]] = {
    "exp": _EXP,
    "identity": dict.fromkeys(LANGUAGES, "{z}"),
    "relu": _RELU,
    "leaky_relu": _both("{negative_slope} * {z}"),
    "elu": _both("{alpha} * (EXP({z}) - 1.0)"),
    "tanh": _TANH,
    "sigmoid": _by_exp("1.0 / (1.0 + EXP(-{z}))") | {"people": "sigmoid({z})"},
    "silu": _by_exp("{z} / (1.0 + EXP(-{z}))"),
}


@dataclass(frozen=True)
class Formula:
    """The median model as an expression of its columns.

    outputs: what is predicted, one expression each. columns: those it reads. weights: that are active in it.

    `str` gives it with rounded numbers for people; `python`, `sql` and `excel` give the model's own numbers. A gap is
    None in Python, NULL in SQL and an empty cell in Excel.
    """

    outputs: tuple[str, ...]
    nodes: tuple[Node, ...]
    inputs: tuple[tuple[str, Column | None, int], ...]
    weights: int

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns it reads, in their order."""
        used = {place for node in self.nodes for place in _places(node)}
        return tuple(dict.fromkeys(self.inputs[place][0] for place in sorted(used)))

    def __str__(self) -> str:
        texts = [self._text(node, "people").removeprefix("(") for node in self.nodes]
        texts = [text[:-1] if text.count(")") > text.count("(") else text for text in texts]
        return "\n".join(f"{one_line(name, 60)} = {text}" for name, text in zip(self.outputs, texts, strict=True))

    __repr__ = __str__

    def python(self, output: int = 0) -> str:
        """An expression of `row`, a mapping of column names, and `math`."""
        return self._text(self._node("python", output), "python")

    def sql(self, output: int = 0) -> str:
        """An expression for a SELECT; columns are quoted by double quotes."""
        return self._text(self._node("sql", output), "sql")

    def excel(self, output: int = 0, cells: Mapping[str, str] | None = None) -> str:
        """A formula of a table's columns, [@[name]]; or of cells, as in {"age": "A2"}."""
        if cells is not None:
            for name in self.columns:
                check_choice("excel", "cells", name, cells)
        return "=" + self._text(self._node("excel", output), "excel", cells)

    def _node(self, where: str, output: int) -> Node:
        if check_whole(where, "output", output, at_least=0) >= len(self.nodes):
            refuse(where, "output", f"below {len(self.nodes)}, the number of outputs", output)
        return self.nodes[output]

    def _text(self, node: Node, language: str, cells: Mapping[str, str] | None = None) -> str:
        number: Callable[[float], str] = written if language == "people" else repr
        if isinstance(node, Input):
            return _input(self.inputs[node.place], language, number, cells)
        if isinstance(node, Call):
            inside = self._text(node.of, language, cells)
            if language == "people" and isinstance(node.of, Sum):
                inside = inside if node.name in ("leaky_relu", "elu", "silu", "one over") else inside[1:-1]
            told = {name: number(float(value)) for name, value in node.told.items()}
            text = FUNCTIONS[node.name][language].format(z=inside, **told)
            return text if language == "people" and text[0].isalpha() else f"({text})"
        parts = [] if node.constant == 0 and node.parts else [number(node.constant)]
        for factor, part in node.parts:
            text = self._text(part, language, cells)
            sign = "-" if factor < 0 else "+"
            term = text if abs(factor) == 1 else f"{number(abs(factor))} * {text}"
            parts.append(f"{sign} {term}" if parts else term if factor > 0 else f"-{term}")
        return f"({' '.join(parts)})"


def formula_of(
    chain: Chain,
    likelihood: Likelihood | None,
    outputs: Sequence[tuple[str, float, float]],
    scaling: tuple[Any, Any],
    inputs: Sequence[tuple[str, Column | None, int]],
) -> Formula:
    """The expression of one drawn network.

    likelihood: gives what is predicted; None leaves it at the linear predictor. outputs: name, factor and shift of
    each. scaling: centre and scale of the inputs. inputs: of each, the column it belongs to and its place in it.
    """
    weights = sum(int((part != 0).sum()) for step in chain.steps for part in (step.units, step.inputs)
                  if part is not None)  # fmt: skip
    if weights > MOST_WEIGHTS:
        allowed = f"a model of at most {MOST_WEIGHTS} active weights (sparsify makes a smaller one)"
        refuse("formula", "model", allowed, f"one of {weights}")
    units: list[Node] = []
    for step in chain.steps:
        sums = [_sum(step.bias, step.units, step.inputs, u, units, scaling) for u in range(step.width)]
        for part in step.after:
            row = activation_of(part)
            if row is None or row.name not in FUNCTIONS:
                known = ", ".join(name for name in FUNCTIONS if name != "exp")
                refuse("formula", "activation", f"one of {known}", type(part).__name__ if row is None else row.name)
            sums = [_call(row.name, part, one) for one in sums]
        units = sums
    nodes = units if likelihood is None else _linked(likelihood, units)
    told = [_scaled(node, factor, shift) for node, (_, factor, shift) in zip(nodes, outputs, strict=True)]
    return Formula(tuple(name for name, _, _ in outputs), tuple(told), tuple(inputs), weights)


def _sum(bias: Any, of_units: Any, of_inputs: Any, unit: int, units: list[Node], scaling: tuple[Any, Any]) -> Node:
    """One unit before its activation, over the columns in their own units."""
    constant, parts = float(bias[unit]), []
    centre, scale = scaling
    if of_inputs is not None:
        for j in of_inputs[unit].nonzero()[:, 0].tolist():
            slope = float(of_inputs[unit, j]) / float(scale[j])
            constant -= slope * float(centre[j])
            parts.append((slope, Input(j)))
    if of_units is not None:
        for k in of_units[unit].nonzero()[:, 0].tolist():
            weight, part = float(of_units[unit, k]), units[k]
            if isinstance(part, Sum) and not part.parts:
                constant += weight * part.constant
            else:
                parts.append((weight, part))
    return Sum(constant, tuple(parts))


def _call(name: str, part: nn.Module, of: Node) -> Node:
    """An activation behind a unit; of a unit that reads nothing it is a number."""
    row = activation_of(part)
    assert row is not None
    if isinstance(of, Sum) and not of.parts:
        return Sum(float(part(torch.tensor([of.constant], dtype=torch.float64))))
    return Call(name, of, numbers_of(row, part))


def _scaled(node: Node, factor: float, shift: float) -> Node:
    if isinstance(node, Sum):
        return Sum(shift + factor * node.constant, tuple((factor * f, part) for f, part in node.parts))
    return node if (factor, shift) == (1.0, 0.0) else Sum(shift, ((factor, node),))


def _linked(likelihood: Likelihood, units: list[Node]) -> list[Node]:
    """What is predicted from the outputs, as it shows in `likelihood.mean`: themselves, exp, or probabilities."""
    outputs = torch.randn(7, len(units), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    with torch.no_grad():
        mean = likelihood.mean(outputs).double()
    first = outputs[:, : mean.shape[1]]
    ratio = (mean / first.exp()).mean(0) if mean.shape == first.shape else torch.zeros(0)
    if mean.shape == first.shape and torch.allclose(mean, first, atol=CLOSE):
        return units[: mean.shape[1]]
    if mean.shape == outputs.shape and torch.allclose(mean, ratio * outputs.exp(), rtol=CLOSE):
        return [Sum(0.0, ((float(r), Call("exp", unit)),)) for r, unit in zip(ratio, units, strict=True)]
    if mean.shape == outputs.shape and torch.allclose(mean, torch.sigmoid(outputs), atol=CLOSE):
        return [Call("sigmoid", unit) for unit in units]
    if mean.shape == outputs.shape and torch.allclose(mean, torch.softmax(outputs, -1), atol=CLOSE):
        return [_softmax(k, units) for k in range(len(units))]
    refuse("formula", "scale", f'"linear" for a {likelihood.name} response', "response")


def _softmax(k: int, units: list[Node]) -> Node:
    """exp(z_k) / sum exp(z_j) = sigmoid(-log sum over the others of exp(z_j - z_k)), as 1 / (1 + sum)."""
    others = [Call("exp", Sum(0.0, ((1.0, z), (-1.0, units[k])))) for j, z in enumerate(units) if j != k]
    return Call("one over", Sum(1.0, tuple((1.0, other) for other in others)))


FUNCTIONS["one over"] = dict.fromkeys(LANGUAGES, "1.0 / {z}") | {"people": "1 / {z}"}


def _places(node: Node) -> set[int]:
    if isinstance(node, Input):
        return {node.place}
    parts = [node.of] if isinstance(node, Call) else [part for _, part in node.parts]
    return set().union(*(_places(part) for part in parts))


def _input(
    known: tuple[str, Column | None, int],
    language: str,
    number: Callable[[float], str],
    cells: Mapping[str, str] | None,
) -> str:
    """What the network reads of a column: its number, whether it is missing, or whether it is a level."""
    name, column, place = known
    cell = _name(name, language, cells)
    if column is None:
        return cell
    gone = _missing(cell, language)
    if column.kind == "number":
        if place > 0:
            return _choice(language, [(gone, "1.0")], "0.0", f"[{cell} is missing]")
        return _choice(language, [(gone, number(column.fill))], cell, cell)
    level = column.coded[place]
    is_level = gone if level == MISSING else _equal(cell, level, language)
    label = f"[{cell} is {one_line(level, 30)}]"
    if level == RARE:
        others = [other for other in column.levels if other not in (MISSING, RARE)]
        pairs = [(gone, "0.0"), *((_equal(cell, other, language), "0.0") for other in others)]
        return _choice(language, pairs, "1.0", label)
    if column.base is None:
        return _choice(language, [(is_level, "1.0")], "0.0", label)
    base = _equal(cell, column.base, language)
    return _choice(language, [(is_level, "1.0"), (base, "0.0")], number(column.fill), label)


def _choice(language: str, pairs: list[tuple[str, str]], otherwise: str, for_people: str) -> str:
    """The value of the first condition that holds."""
    if language == "people":
        return for_people
    text = otherwise
    if language == "sql":
        cases = " ".join(f"WHEN {condition} THEN {value}" for condition, value in pairs)
        return f"(CASE {cases} ELSE {otherwise} END)"
    for condition, value in reversed(pairs):
        text = f"IF({condition}, {value}, {text})" if language == "excel" else f"({value} if {condition} else {text})"
    return text


def _name(name: str, language: str, cells: Mapping[str, str] | None) -> str:
    """The column's value, however it is called."""
    if language == "python":
        return f"row[{name!r}]"
    if language == "sql":
        return '"' + name.replace('"', '""') + '"'
    if language == "excel":
        return cells[name] if cells is not None else f"[@[{_IN_EXCEL.sub(_ESCAPED, name)}]]"
    return one_line(name, 40)


def _missing(cell: str, language: str) -> str:
    return {"python": f"{cell} is None", "sql": f"{cell} IS NULL", "excel": f'{cell}=""'}.get(language, "")


def _equal(cell: str, level: str, language: str) -> str:
    if language == "python":
        return f"{cell} == {level!r}"
    mark = "'" if language == "sql" else '"'
    quoted = mark + level.replace(mark, mark + mark) + mark
    return f"EXACT({cell}, {quoted})" if language == "excel" else f"{cell} = {quoted}"
