"""An ONNX graph, written operation by operation."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from slabnet.config.activations import ACTIVATIONS, Activation
from slabnet.core.errors import SlabnetError, refuse
from slabnet.export.heads import HALVINGS, ONE_NETWORK, names_of
from slabnet.export.plan import Plan, Step

OPSET, IR_VERSION = 20, 10
_PADDING = {"zeros": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def to_onnx(plan: Plan) -> bytes:
    """The bytes of an `.onnx` file; its metadata tell names and shapes."""
    try:
        import onnx
    except ImportError:
        raise SlabnetError("export: onnx must be installed to write ONNX: pip install 'slabnet[export]'") from None
    graph = _Graph(onnx)
    start = "x"
    if plan.means:
        shape = plan.shape
        shifted = graph.add("Sub", start, graph.constant(np.array(plan.means, np.float32).reshape(shape)))
        start = graph.add("Div", shifted, graph.constant(np.array(plan.scales, np.float32).reshape(shape)))
    ends = []
    for steps in plan.networks:
        at = again = start
        for step in steps:
            if step["kind"] == "fork":
                again = at
            elif step["kind"] == "join":
                at = graph.add("Concat", at, again, axis=1)
            else:
                at = graph.step(step, at)
        ends.append(at)
    outputs = graph.finish(plan, ends)
    model = onnx.helper.make_model(
        onnx.helper.make_graph(
            graph.nodes,
            "slabnet",
            [onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["rows", *plan.shape])],
            [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in outputs],
            graph.initialisers,
        ),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        producer_name="slabnet",
    )
    model.ir_version = IR_VERSION
    onnx.helper.set_model_props(model, {"slabnet": json.dumps(plan.about)})
    onnx.checker.check_model(model)
    written: bytes = model.SerializeToString()
    return written


class _Graph:
    """Nodes and numbers so far; every method gives the name of what it added."""

    def __init__(self, onnx: Any) -> None:
        self.onnx = onnx
        self.nodes: list[Any] = []
        self.initialisers: list[Any] = []
        self._known: dict[tuple[Any, ...], str] = {}

    def constant(self, values: Any) -> str:
        array = np.ascontiguousarray(values)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:  # draws share what is the same in all of them
            self._known[key] = f"c{len(self._known)}"
            self.initialisers.append(self.onnx.numpy_helper.from_array(array, self._known[key]))
        return self._known[key]

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def add(self, operation: str, *inputs: str, name: str | None = None, **options: Any) -> str:
        out = name or f"t{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(operation, list(inputs), [out], **options))
        return out

    def step(self, step: Step, x: str) -> str:
        kind = step["kind"]
        if kind in ACTIVATIONS:
            return self._activation(ACTIVATIONS[kind], step, x)
        made: str = getattr(self, f"_{kind.lower()}")(step, x)
        return made

    def _take(self, step: Step, x: str) -> str:
        return self.add("Gather", x, self.constant(step["index"].astype(np.int64)), axis=step["dim"])

    def _flatten(self, step: Step, x: str) -> str:
        return self.add("Flatten", x, axis=1)

    def _linear(self, step: Step, x: str) -> str:
        return self.add("Gemm", x, self.constant(step["weight"]), self.constant(step["bias"]), transB=1)

    def _conv(self, step: Step, x: str) -> str:
        pads = step["pads"]
        if any(a or b for a, b in pads):
            both = [0, 0, *(a for a, _ in pads), 0, 0, *(b for _, b in pads)]
            x = self.add("Pad", x, self.constant(np.array(both, np.int64)), mode=_PADDING[step["padding_mode"]])
        geometry = {"strides": step["stride"], "dilations": step["dilation"]}
        return self.add("Conv", x, self.constant(step["weight"]), self.constant(step["bias"]), **geometry)

    def _mixed(self, step: Step, x: str) -> str:
        ends = np.cumsum(step["counts"])
        parts = []
        for of, count, end in zip(step["steps"], step["counts"], ends, strict=True):
            first, behind = (self.constant(np.array([at], np.int64)) for at in (end - count, end))
            units = self.add("Slice", x, first, behind, self.constant(np.array([1], np.int64)))
            parts.append(self.step(of, units))
        return self.add("Concat", *parts, axis=1)

    def _maxpool(self, step: Step, x: str) -> str:
        return self.add("MaxPool", x, dilations=step["dilation"], **_pool(step))

    def _avgpool(self, step: Step, x: str) -> str:
        return self.add("AveragePool", x, count_include_pad=1, **_pool(step))

    def _activation(self, row: Activation, step: Step, x: str) -> str:
        if row.onnx is None:
            refuse("export", "net", "one whose activations have an ONNX operator in their row", row.name)
        return row.onnx(self, x, dict(row.words) | step)

    def finish(self, plan: Plan, ends: list[str]) -> list[tuple[str, list[Any]]]:
        """Averages over the networks under the names that are given out, each with its shape."""
        given = _HEADS[plan.head](self, plan, ends)
        if ONE_NETWORK not in names_of(plan.head, plan.draws):
            return given
        self.add("Identity", ends[0], name=ONE_NETWORK)
        return [(ONE_NETWORK, ["rows", plan.outputs]), *given]

    def softmax(self, plan: Plan, ends: list[str]) -> list[tuple[str, list[Any]]]:
        p = self._mean([self.add("Softmax", end) for end in ends], "probabilities")
        each = self._information(p)
        self.add("ReduceSum", each, self.constant(np.array([-1], np.int64)), keepdims=0, name="entropy")
        return [("probabilities", ["rows", plan.outputs]), ("entropy", ["rows"])]

    def sigmoid(self, plan: Plan, ends: list[str]) -> list[tuple[str, list[Any]]]:
        p = self._mean([self.add("Sigmoid", end) for end in ends], "probabilities")
        other = self._information(self.add("Sub", self.number(1.0), p))
        self.add("Add", self._information(p), other, name="entropy")
        return [("probabilities", ["rows", plan.outputs]), ("entropy", ["rows", plan.outputs])]

    def normal(self, plan: Plan, ends: list[str]) -> list[tuple[str, list[Any]]]:
        mean = self._mean(ends, "mean")
        self.add("Add", self._spread(ends, mean), self.constant(np.array(plan.noise, np.float32)), name="variance")
        return [("mean", ["rows", plan.outputs]), ("variance", ["rows", plan.outputs])]

    def ordinal(self, plan: Plan, ends: list[str]) -> list[tuple[str, list[Any]]]:
        cuts = np.array(plan.cuts, np.float32)
        inner = np.concatenate([[1], -np.expm1(cuts[:-1] - cuts[1:]), [1]]).astype(np.float32)
        at, parts = self.constant(cuts), []
        for end in ends:
            one = self.onnx.helper.make_tensor("one", self.onnx.TensorProto.FLOAT, [1], [1.0])
            sure = self.add("ConstantOfShape", self.add("Shape", end), value=one)
            below = self.add("Concat", self.add("Sigmoid", self.add("Sub", at, end)), sure, axis=1)
            above = self.add("Concat", sure, self.add("Sigmoid", self.add("Sub", end, at)), axis=1)
            parts.append(self.add("Mul", self.add("Mul", below, above), self.constant(inner)))
        p = self._mean(parts, "probabilities")
        self.add("ReduceSum", self._information(p), self.constant(np.array([-1], np.int64)), keepdims=0, name="entropy")
        return [("probabilities", ["rows", len(inner)]), ("entropy", ["rows"])]

    def own_noise(self, plan: Plan, ends: list[str]) -> list[tuple[str, list[Any]]]:
        half = plan.outputs // 2
        centres: list[str] = []
        logs: list[str] = []
        for end in ends:
            for parts, first in ((centres, 0), (logs, half)):
                at = [self.constant(np.array([v], np.int64)) for v in (first, first + half, 1)]
                parts.append(self.add("Slice", end, *at))
        mean = self._mean(centres, "mean")
        noise = self._mean([self.add("Exp", log) for log in logs])
        self.add("Add", self._spread(centres, mean), noise, name="variance")
        return [("mean", ["rows", half]), ("variance", ["rows", half])]

    def positive(self, plan: Plan, ends: list[str]) -> list[tuple[str, list[Any]]]:
        means = [self.add("Exp", end) for end in ends]
        mean = self._mean(means, "mean")
        squares = self._mean([self.add("Mul", one, one) for one in means])
        spread = self._spread(means, mean)
        if plan.head != "gamma":  # counts vary by their mean too
            spread = self.add("Add", spread, mean)
        noise = self.constant(np.array(plan.noise, np.float32))
        self.add("Add", spread, self.add("Mul", noise, squares), name="variance")
        return [("mean", ["rows", plan.outputs]), ("variance", ["rows", plan.outputs])]

    def median(self, plan: Plan, ends: list[str]) -> list[tuple[str, list[Any]]]:
        mean = self._mean(ends)
        self.add("Add", self._spread(ends, mean), self.constant(np.array(plan.noise, np.float32)), name="log_variance")
        self.add("Exp", mean if len(ends) == 1 else self._middle(plan, ends), name="median")
        return [("median", ["rows", plan.outputs]), ("log_variance", ["rows", plan.outputs])]

    def _middle(self, plan: Plan, ends: list[str]) -> str:
        """The logarithm at which the averaged distribution function is one half, by halving."""
        each, normal = np.array(plan.dispersions, np.float32), plan.head == "lognormal"
        factors = 1 / np.sqrt(2 * each) if normal else each
        shifts = np.zeros_like(each) if normal else np.log(np.log(2)).astype(np.float32) / each
        medians = [self.add("Add", end, self.constant(shift)) for end, shift in zip(ends, shifts, strict=True)]
        low, high, half = self.add("Min", *medians), self.add("Max", *medians), self.number(0.5)
        for _ in range(HALVINGS):
            middle = self.add("Mul", self.add("Add", low, high), half)
            parts = []
            for end, factor in zip(ends, factors, strict=True):
                z = self.add("Mul", self.add("Sub", middle, end), self.constant(factor))
                parts.append(self.add("Erf", z) if normal else self.add("Exp", self.add("Neg", self.add("Exp", z))))
            under = (  # erf rises to 0 there, survival falls to one half
                self.add("Less", self._mean(parts), self.number(0.0))
                if normal
                else self.add("Greater", self._mean(parts), half)
            )
            low, high = self.add("Where", under, middle, low), self.add("Where", under, high, middle)
        return self.add("Mul", self.add("Add", low, high), half)

    def _spread(self, parts: list[str], mean: str) -> str:
        """The variance between the networks."""
        return self._mean([self.add("Mul", d, d) for d in (self.add("Sub", part, mean) for part in parts)])

    def _mean(self, parts: list[str], name: str | None = None) -> str:
        return self.add("Mean", *parts, name=name)

    def _information(self, p: str) -> str:
        """-p log p, zero where p is."""
        return self.add("Mul", self.add("Neg", p), self.add("Log", self.add("Max", p, self.number(1e-38))))


def _pool(step: Step) -> dict[str, Any]:
    pads = [*step["padding"], *step["padding"]]
    return {"kernel_shape": step["kernel_size"], "strides": step["stride"], "pads": pads}


_HEADS: dict[str, Callable[[_Graph, Plan, list[str]], list[tuple[str, list[Any]]]]] = {
    "softmax": _Graph.softmax,
    "sigmoid": _Graph.sigmoid,
    "ordinal": _Graph.ordinal,
    "normal": _Graph.normal,
    "student-t": _Graph.normal,
    "heteroscedastic": _Graph.own_noise,
    "poisson": _Graph.positive,
    "negative-binomial": _Graph.positive,
    "gamma": _Graph.positive,
    "lognormal": _Graph.median,
    "weibull": _Graph.median,
}
