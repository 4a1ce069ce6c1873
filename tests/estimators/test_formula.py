"""A formula gives what the median model gives: run in Python, in sqlite and by a small reader of Excel's grammar."""

from __future__ import annotations

import math
import re
import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

import slabnet as sn

NAMES = ["a \"quoted\" 'name'", "b[1]#@", "-c; DROP TABLE t --"]


def run_python(text: str, row: Mapping[str, Any]) -> float:
    return float(eval(text, {"row": row, "math": math, "max": max}))


def run_sql(text: str, row: Mapping[str, Any]) -> float:
    base = sqlite3.connect(":memory:")
    quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in row)
    base.execute(f"CREATE TABLE t ({quoted})")
    base.execute(f"INSERT INTO t VALUES ({', '.join('?' * len(row))})", list(row.values()))
    return float(base.execute(f"SELECT {text} FROM t").fetchone()[0])


def run_excel(text: str, row: Mapping[str, Any]) -> float:
    """Excel's grammar, as far as formulas here use it: names in [@[...]], numbers, text, calls, = for equality."""
    assert text[0] == "="
    pieces = []
    names, quoted, calls = r"\[@\[((?:'.|[^'\]])*)\]\]", r'"((?:[^"]|"")*)"', r"([A-Z]+)\("
    token = re.compile("|".join([names, quoted, calls, r"(\d+\.?\d*(?:e[-+]?\d+)?)", r"([-+*/(),<> ])", "(=)"]))
    place = 1
    while place < len(text):
        match = token.match(text, place)
        assert match, text[place : place + 20]
        name, words, call, number, mark, equal = match.groups()
        if name is not None:
            pieces.append(f"cell({_plain(name)!r})")
        elif words is not None:
            pieces.append(repr(words.replace('""', '"')))
        else:
            pieces.append(f"{call}(" if call else number or mark or equal * 2)
        place = match.end()
    functions: dict[str, Callable[..., Any]] = {
        "IF": lambda test, yes, no: yes if test else no,
        "EXACT": lambda one, other: one == other,
        "MAX": max,
        "EXP": math.exp,
        "TANH": math.tanh,
    }
    return float(eval("".join(pieces), {"cell": lambda name: "" if row[name] is None else row[name]} | functions))


def _plain(name: str) -> str:
    return re.sub(r"'(.)", r"\1", name)


RUNNERS = {"python": run_python, "sql": run_sql, "excel": run_excel}


def of_median(model: Any, x: Any, member: int | None = None) -> Any:
    """What the median model predicts, by the network."""
    net = model.network_ if member is None else model.network_.members[member]
    draw = sn.median if model.selection_ is None else sn.fixed(model.selection_.masks)
    mean = sn.predict(net, model.scaling_x_.apply(model._inputs(x, reset=False)), 1, draw=draw).mean.numpy()
    if isinstance(model, sn.SlabClassifier):
        return mean
    return model.scaling_y_.undo(mean) * (1.0 if model.rate_ is None else model.rate_)


def agrees(model: Any, x: Any, member: int | None = None) -> None:
    told, expected = model.formula(member=member), of_median(model, x, member)
    frame = x if isinstance(x, pd.DataFrame) else pd.DataFrame(x, columns=[f"x{i}" for i in range(x.shape[1])])
    for i in range(len(frame)):
        row = {name: None if pd.isna(value) else value for name, value in frame.iloc[i].items()}
        row = {str(name): value.item() if isinstance(value, np.generic) else value for name, value in row.items()}
        for k in range(len(told.outputs)):
            for language, run in RUNNERS.items():
                value = run(getattr(told, language)(k), row)
                assert value == pytest.approx(expected[i, k], rel=1e-6, abs=1e-6), (language, told.outputs[k])


def few(model: Any, weights: int = 12) -> Any:
    return model.sparsify("budget", weights=weights)


@pytest.mark.parametrize("activation", ["relu", "leaky_relu", "elu", "tanh", "sigmoid", "silu", "identity"])
def test_every_activation_and_any_name(activation: str) -> None:
    rng = np.random.default_rng(0)
    x = pd.DataFrame(rng.normal(size=(40, 3)), columns=NAMES)
    y = x[NAMES[0]] + np.abs(x[NAMES[1]])
    model = sn.SlabRegressor(hidden=(6,), skip=True, activation=activation, epochs=5, random_state=0).fit(x, y)
    agrees(few(model), x[:4])


def test_two_hidden_layers() -> None:
    x = np.random.default_rng(0).normal(size=(40, 3)) * 100 + 1000
    model = sn.SlabRegressor(hidden=(5, 4), epochs=5, random_state=0).fit(x, np.abs(x[:, 0]))
    agrees(few(model), x[:4])


def test_categories_gaps_and_two_levels() -> None:
    rng = np.random.default_rng(0)
    city = rng.choice(["Oslo", 'O"s', "it's", None], 60)
    frame = pd.DataFrame({"age": rng.normal(50, 10, 60), "city": city, "sex": rng.choice(["f", "m"], 60)})
    frame.loc[::7, "age"] = np.nan
    y = np.nan_to_num(frame["age"]) + 10 * (frame["sex"] == "f") + 5 * (city == "it's")
    model = sn.SlabRegressor(hidden=(), epochs=60, random_state=0).fit(frame, y)
    agrees(model.sparsify("threshold", threshold=0.0), frame[:20])
    text = str(model.formula())
    assert "[sex is " in text
    assert text.startswith("response = ")


@pytest.mark.parametrize("labels", [2, 3])
def test_probabilities(labels: int) -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    classes = np.digitize(x[:, 0], [-0.3, 0.4][: labels - 1])
    model = sn.SlabClassifier(hidden=(4,), epochs=5, random_state=0).fit(x, classes)
    small = few(model)
    agrees(small, x[:4])
    linear = small.formula(scale="linear")
    outputs = sn.predict(small.network_, small.scaling_x_.apply(x[:1]), 1, draw=sn.fixed(small.selection_.masks))
    value = run_python(linear.python(), {f"x{i}": float(v) for i, v in enumerate(x[0])})
    if labels == 2:
        assert torch.sigmoid(torch.tensor(value)).item() == pytest.approx(float(outputs.mean[0, 0]), abs=1e-6)


@pytest.mark.parametrize("response", ["poisson", "gamma", "heteroscedastic", "student-t"])
def test_responses(response: str) -> None:
    x = np.random.default_rng(0).normal(size=(60, 2))
    y = np.round(np.exp(x[:, 0])) + (response != "poisson")
    agrees(few(sn.SlabRegressor(hidden=(3,), response=response, epochs=5, random_state=0).fit(x, y), 8), x[:4])


def test_a_member_of_a_mixture() -> None:
    x = np.random.default_rng(0).normal(size=(40, 2))
    model = sn.SlabRegressor(hidden=(), members=2, epochs=20, random_state=0).fit(x, x[:, 0])
    agrees(model, x[:3], member=1)
    with pytest.raises(sn.ArgumentError, match="member must be one of 0 to 1, got None"):
        model.formula()
    with pytest.raises(sn.ArgumentError, match="member must be one of 0 to 1, got 2"):
        model.formula(member=2)


def test_cells_in_place_of_names_and_what_is_refused() -> None:
    x = np.random.default_rng(0).normal(size=(60, 3))
    model = sn.SlabRegressor(hidden=(), epochs=60, random_state=0).fit(x, x[:, 0])
    told = model.sparsify("budget", weights=1).formula()
    (name,) = told.columns
    assert "A2" in told.excel(cells={name: "A2"})
    assert name not in told.excel(cells={name: "A2"})
    with pytest.raises(sn.ArgumentError, match="cells must be one of"):
        told.excel(cells={"other": "A2"})
    with pytest.raises(sn.ArgumentError, match="output must be below 1"):
        told.sql(1)
    with pytest.raises(sn.ArgumentError, match="member must be left out"):
        model.formula(member=0)
    wide = sn.SlabRegressor(hidden=(30,), epochs=2, random_state=0).fit(x, x[:, 0])
    big = wide.sparsify("budget", weights=60)
    with pytest.raises(sn.ArgumentError, match="at most 30 active weights"):
        big.formula()
    smooth = sn.SlabRegressor(hidden=(3,), activation="gelu", epochs=2, random_state=0).fit(x, x[:, 0])
    with pytest.raises(sn.ArgumentError, match="activation must be one of identity, relu"):
        few(smooth, 4).formula()
    grades = sn.SlabClassifier(hidden=(), response="ordinal", epochs=5, random_state=0).fit(
        x, np.digitize(x[:, 0], [-1, 1])
    )
    with pytest.raises(sn.ArgumentError, match='scale must be "linear" for a ordinal response'):
        grades.formula()
    assert grades.formula(scale="linear").outputs == ("level",)
