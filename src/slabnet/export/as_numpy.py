"""One Python file that needs numpy and nothing else: the runtime's own source, then the network as text."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import numpy as np

from slabnet.export.plan import Plan, Step

_RUNTIME = Path(__file__).with_name("numpy_runtime.py")


def to_numpy(plan: Plan) -> bytes:
    """The text of the module; it has `predict(x)`, `INPUT_NAMES` and `ABOUT`."""
    described = {
        "about": plan.about,
        "means": _text(np.array(plan.means, np.float32)) if plan.means else None,
        "scales": _text(np.array(plan.scales, np.float32)) if plan.scales else None,
        "networks": [[_step(step) for step in network] for network in plan.networks],
    }
    lines = json.dumps(described, separators=(",", ":"))
    source = _RUNTIME.read_text("utf-8")
    tail = f'''

_PLAN = _load(r"""{lines}""")
ABOUT = _PLAN["about"]
INPUT_NAMES = ABOUT["input_names"]


def predict(x):
    """What the network gives for rows of x: {", ".join(_names(plan))}, as arrays in a dictionary."""
    return _predict(_PLAN, x)
'''
    return (source + tail).encode()


def _names(plan: Plan) -> list[str]:
    if plan.response == "gaussian":
        return ["mean", "variance"]
    return ["probabilities", "entropy"] if plan.draws else ["logits", "probabilities", "entropy"]


def _step(step: Step) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in step.items():
        if key == "mask":
            continue
        if key == "weight":
            where = np.flatnonzero(step["mask"])
            gaps = np.diff(where, prepend=0)
            kind = np.uint8 if gaps.max(initial=0) < 256 else np.uint16 if gaps.max(initial=0) < 65536 else np.uint32
            found[key] = {
                "of": list(value.shape),
                "gaps": _text(gaps.astype(kind)),
                "left": _text(value.reshape(-1)[where]),
            }
        elif isinstance(value, np.ndarray):
            found[key] = _text(value.astype(np.uint32) if value.dtype.kind == "i" else value)
        else:
            found[key] = value
    return found


def _text(array: np.ndarray[Any, Any]) -> dict[str, Any]:
    ordered = array.astype(array.dtype.newbyteorder("<"))
    kind = ordered.dtype.str.replace("|", "<")
    return {"type": kind, "shape": list(array.shape), "text": base64.b85encode(ordered.tobytes()).decode()}
