"""The table of activations: one row is all that the package knows of one, in every language it is written in. No torch.

`relu` and the others are rows of `ACTIVATIONS`; `model.activations` finds the torch module of a row, and
`register_activation` adds a row from outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from slabnet.core.errors import check_choice, refuse

Activations = str | Sequence[str]  # one name for all hidden units, or several that each hidden layer has units of


class Graph(Protocol):
    """An ONNX graph that is being written: both methods give the name of what they added."""

    def add(self, operation: str, *inputs: str, name: str | None = None, **options: Any) -> str:
        """Add an operation."""
        ...

    def number(self, value: float) -> str:
        """Add a number."""
        ...


Onnx = Callable[[Graph, str, Mapping[str, Any]], str]  # (graph, name of x, options) -> name of the result


@dataclass(frozen=True)
class Activation:
    """One row of `ACTIVATIONS`. What a column leaves out is refused by name where it is asked for.

    name: what a user calls it. module: the name of its torch module, which acts on each number for itself.
    at_zero: its value at 0: what a unit that nothing reaches sends on. piecewise_linear: made of straight pieces.
    options: numbers the module is told, with their defaults. words: what else it is told, the same in the whole row.
    c: its number in `kernels/c/sparse.h`; without one a network is computed in torch.
    onnx: adds it to a graph. numpy, javascript: an expression in `x` and the options; numpy has `np`, `_sigmoid` and
        `_erf` at hand, JavaScript `sigmoid` and `erf`.
    """

    name: str
    module: str
    at_zero: float
    piecewise_linear: bool
    options: tuple[tuple[str, float], ...] = ()
    words: tuple[tuple[str, str], ...] = ()
    c: int | None = None
    onnx: Onnx | None = None
    numpy: str | None = None
    javascript: str | None = None

    def arguments(self, *before: str) -> str:
        """The head of a function that holds one of its expressions, in Python as in JavaScript.

        >>> ACTIVATIONS["leaky_relu"].arguments("x")
        'x, negative_slope=0.01'
        """
        return ", ".join([*before, *(f"{name}={value!r}" for name, value in self.options)])


def _operator(operation: str, **attributes: str) -> Onnx:
    """One ONNX operator; attributes: the option each takes its value from."""
    return lambda graph, x, told: graph.add(operation, x, **{name: told[of] for name, of in attributes.items()})


def _softplus(graph: Graph, x: str, told: Mapping[str, Any]) -> str:
    beta = graph.number(told["beta"])
    scaled = graph.add("Mul", x, beta)
    soft = graph.add("Div", graph.add("Softplus", scaled), beta)
    return graph.add("Where", graph.add("Greater", scaled, graph.number(told["threshold"])), x, soft)


ACTIVATIONS: dict[str, Activation] = {
    row.name: row
    for row in (
        Activation(
            name="relu",
            module="ReLU",
            at_zero=0.0,
            piecewise_linear=True,
            c=1,
            onnx=_operator("Relu"),
            numpy="np.maximum(x, 0)",
            javascript="x > 0 ? x : 0",
        ),
        Activation(
            name="leaky_relu",
            module="LeakyReLU",
            at_zero=0.0,
            piecewise_linear=True,
            options=(("negative_slope", 0.01),),
            c=2,
            onnx=_operator("LeakyRelu", alpha="negative_slope"),
            numpy="np.where(x < 0, x * np.float32(negative_slope), x)",
            javascript="x > 0 ? x : negative_slope * x",
        ),
        Activation(
            name="elu",
            module="ELU",
            at_zero=0.0,
            piecewise_linear=False,
            options=(("alpha", 1.0),),
            c=8,
            onnx=_operator("Elu", alpha="alpha"),
            numpy="np.where(x > 0, x, np.float32(alpha) * np.expm1(np.minimum(x, 0)))",
            javascript="x > 0 ? x : alpha * Math.expm1(x)",
        ),
        Activation(
            name="gelu",
            module="GELU",
            at_zero=0.0,
            piecewise_linear=False,
            words=(("approximate", "none"),),
            c=6,
            onnx=_operator("Gelu", approximate="approximate"),
            numpy="x * (0.5 * (1 + _erf(x / math.sqrt(2)))).astype(x.dtype)",
            javascript="x * 0.5 * (1 + erf(x / Math.SQRT2))",
        ),
        Activation(
            name="gelu_tanh",
            module="GELU",
            at_zero=0.0,
            piecewise_linear=False,
            words=(("approximate", "tanh"),),
            c=9,
            onnx=_operator("Gelu", approximate="approximate"),
            numpy="x * (0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))).astype(x.dtype)",
            javascript="x * 0.5 * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (x + 0.044715 * x * x * x)))",
        ),
        Activation(
            name="silu",
            module="SiLU",
            at_zero=0.0,
            piecewise_linear=False,
            c=7,
            onnx=lambda graph, x, told: graph.add("Mul", x, graph.add("Sigmoid", x)),
            numpy="x * _sigmoid(x)",
            javascript="x * sigmoid(x)",
        ),
        Activation(
            name="tanh",
            module="Tanh",
            at_zero=0.0,
            piecewise_linear=False,
            c=3,
            onnx=_operator("Tanh"),
            numpy="np.tanh(x)",
            javascript="Math.tanh(x)",
        ),
        Activation(
            name="sigmoid",
            module="Sigmoid",
            at_zero=0.5,
            piecewise_linear=False,
            c=4,
            onnx=_operator("Sigmoid"),
            numpy="_sigmoid(x)",
            javascript="sigmoid(x)",
        ),
        Activation(
            name="softplus",
            module="Softplus",
            at_zero=math.log(2.0),
            piecewise_linear=False,
            options=(("beta", 1.0), ("threshold", 20.0)),
            c=5,
            onnx=_softplus,
            numpy="np.where(x * np.float32(beta) > threshold, x, (np.maximum(x * np.float32(beta), 0)"
            " + np.log1p(np.exp(-np.abs(x * np.float32(beta))))) / np.float32(beta))",
            javascript="beta * x > threshold ? x : Math.log1p(Math.exp(beta * x)) / beta",
        ),
        Activation(
            name="identity",
            module="Identity",
            at_zero=0.0,
            piecewise_linear=True,
            c=0,
            onnx=_operator("Identity"),
            numpy="x",
            javascript="x",
        ),
    )
}


def check_activation(where: str, activation: object) -> Activations:
    """The name of a row, or different ones; several of which there is one are that one.

    >>> check_activation("mlp", ["relu", "tanh"]), check_activation("mlp", ["relu"])
    (('relu', 'tanh'), 'relu')
    """
    if isinstance(activation, str):
        return check_choice(where, "activation", activation, ACTIVATIONS)
    allowed = f"one of {', '.join(ACTIVATIONS)}, or different ones, as in (relu, tanh)"
    names = list(activation) if isinstance(activation, (list, tuple)) else []
    if not names or any(not isinstance(name, str) or name not in ACTIVATIONS for name in names):
        refuse(where, "activation", allowed, repr(activation))
    if len(set(names)) < len(names):
        refuse(where, "activation", allowed, repr(activation))
    return names[0] if len(names) == 1 else tuple(names)


def as_written(activation: Activations) -> str | list[str]:
    """As a file holds it."""
    return activation if isinstance(activation, str) else list(activation)
