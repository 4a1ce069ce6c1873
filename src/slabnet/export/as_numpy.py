"""One Python file that needs numpy and nothing else: the runtime's own source, then the network as text."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np

from slabnet.config.activations import ACTIVATIONS
from slabnet.core.errors import refuse
from slabnet.export.heads import names_of
from slabnet.export.plan import Plan, Step

_RUNTIME = Path(__file__).with_name("numpy_runtime.py")


def to_numpy(plan: Plan) -> bytes:
    """The text of the module; it has `predict(x)`, `INPUT_NAMES` and `ABOUT`."""
    described = {
        "about": plan.about,
        "gives": names_of(plan.head, plan.draws),
        "means": _text(np.array(plan.means, np.float32)) if plan.means else None,
        "scales": _text(np.array(plan.scales, np.float32)) if plan.scales else None,
        "networks": [[_step(step) for step in network] for network in plan.networks],
    }
    lines = json.dumps(described, separators=(",", ":"))
    source = _RUNTIME.read_text("utf-8")
    tail = f'''

{_activations(plan)}

_PLAN = _load(r"""{lines}""")
ABOUT = _PLAN["about"]
INPUT_NAMES = ABOUT["input_names"]


def predict(x):
    """What the network gives for rows of x: {", ".join(names_of(plan.head, plan.draws))}, as arrays in a dictionary."""
    return _predict(_PLAN, x)
'''
    return (source + tail).encode()


def _activations(plan: Plan) -> str:
    """The activations of the network, each as a function of x and its options."""
    every = [one for network in plan.networks for step in network for one in (step, *step.get("steps", ()))]
    kinds = {step["kind"] for step in every if step["kind"] in ACTIVATIONS}
    lines = []
    for row in (ACTIVATIONS[kind] for kind in sorted(kinds)):
        if row.numpy is None:
            refuse("export", "net", "one whose activations have a numpy expression in their row", row.name)
        told = "".join(f", {name}=step[{name!r}]" for name, _ in row.options)
        lines.append(f"_STEPS[{row.name!r}] = lambda step, x: (lambda {row.arguments('x')}: {row.numpy})(x{told})")
    return "\n".join(lines)


def _step(step: Step) -> dict[str, Any]:
    arrays: dict[str, Any] = {}
    for key, value in step.items():
        if key == "mask":
            continue
        if key == "weight":
            where = np.flatnonzero(step["mask"])
            gaps = np.diff(where, prepend=0)
            kind = np.uint8 if gaps.max(initial=0) < 256 else np.uint16 if gaps.max(initial=0) < 65536 else np.uint32
            arrays[key] = {
                "of": list(value.shape),
                "gaps": _text(gaps.astype(kind)),
                "left": _text(value.reshape(-1)[where]),
            }
        elif isinstance(value, np.ndarray):
            arrays[key] = _text(value.astype(np.uint32) if value.dtype.kind == "i" else value)
        else:
            arrays[key] = value
    return arrays


def _text(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    ordered = array.astype(array.dtype.newbyteorder("<"))
    kind = ordered.dtype.str.replace("|", "<")
    return {"type": kind, "shape": list(array.shape), "text": base64.b85encode(ordered.tobytes()).decode()}
