"""Take a chosen model away: ONNX, a torch program, or one file of numpy. slabnet is not needed to run them."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from slabnet.core.errors import SlabnetError, check_choice, check_whole, refuse
from slabnet.core.files import check_writable, write_atomically

if TYPE_CHECKING:
    from collections.abc import Callable

    from slabnet.export.plan import Plan

Format = Literal["onnx", "torch", "numpy"]
FORMATS = ("onnx", "torch", "numpy")


def export(
    model: str | Path, to: Format, out: str | Path, *, draws: int = 0, seed: int = 0, overwrite: bool = False
) -> dict[str, Any]:
    """Write the compact model of a `.slab` file in another format; gives what was written, and what is in it.

    The model is the one the file was saved with (`save(..., selection=)`), else the median model.
    draws: 0 exports the means; R fixes R draws of the weights that are left and averages them in the graph, which
        then gives the probabilities and entropies of `predict(net, x, R, draw=fixed(masks, exact), seed=seed)`.
    Standardisation of the inputs is part of what is written; what a format cannot carry goes to OUT.json beside it.

    >>> import tempfile, slabnet
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     slabnet.save(slabnet.mlp((4, 3, 2)), f"{folder}/m.slab")
    ...     export(f"{folder}/m.slab", "numpy", f"{folder}/m.py")["weights"]
    18
    """
    check_choice("export", "to", to, FORMATS)
    check_whole("export", "draws", draws, at_least=0)
    path = check_writable("export", out)
    beside = path.with_name(f"{path.name}.json")
    for taken in (path, beside):
        if taken.exists() and not overwrite:
            refuse("export", "the output", "a new file (remove it, or give another name)", f"{taken}, which exists")
    if to == "onnx" and importlib.util.find_spec("onnx") is None:
        raise SlabnetError("export: onnx must be installed to write ONNX: pip install 'slabnet[export]'")
    from slabnet.compact.network import Compact
    from slabnet.config.fit_card import FitCard
    from slabnet.export.plan import make_plan
    from slabnet.selection.rules import median_model
    from slabnet.store import load, load_selection, read_header

    header, net = read_header(model), load(model)
    chosen = None
    if not isinstance(net, Compact):
        chosen = load_selection(model, net) if header.get("rule") is not None else median_model(net)
    plan = make_plan(net, chosen, draws, seed, FitCard.of(header, model))
    content = _writer(to)(plan)
    write_atomically(path, content)
    written = [str(path)]
    if plan.rest:
        told = {"preprocessing": dict(plan.rest)} | plan.about
        write_atomically(beside, (json.dumps(told, indent=1, sort_keys=True) + "\n").encode())
        written.append(str(beside))
    return {"written": written, "format": to, "bytes": len(content), "weights": plan.weights} | plan.about


def _writer(to: str) -> Callable[[Plan], bytes]:
    if to == "onnx":
        from slabnet.export.as_onnx import to_onnx

        return to_onnx
    if to == "torch":
        from slabnet.export.as_torch import to_torch

        return to_torch
    from slabnet.export.as_numpy import to_numpy

    return to_numpy
