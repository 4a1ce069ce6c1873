"""The network that is left, packed so that the page can run it: sparse weights as text, a control for each input."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from slabnet.config.activations import ACTIVATIONS
from slabnet.core.records import Answer
from slabnet.export.heads import HEADS
from slabnet.maths.divergences import softplus
from slabnet.model.attach import likelihood_of
from slabnet.model.elementwise import Mixed
from slabnet.model.layers import Linear
from slabnet.model.mixture import Mixture
from slabnet.model.networks import Network
from slabnet.model.paths import chain_of, flat_parts
from slabnet.report.measure import DOUBT, DRAWS, Measured
from slabnet.report.subject import Subject

MOST_WEIGHTS = 50_000
MOST_CONTROLS = 300
PICKED = 20  # test images to pick from
ROUNDING = 1e-12  # of the range of an input
INK = 0.1  # a pixel above this is part of the drawing


def why_absent(measured: Measured) -> str | None:
    """Why the network does not run in the page; None if it does."""
    net, chosen = measured.net, measured.chosen
    if not measured.layers:
        return f"The weights of a {measured.subject.method} network have no posterior to draw from."
    if not isinstance(net, Network) or net.method.wrapper is not None:
        return "Only networks whose single weights are drawn can be run in the page."
    if not all(isinstance(layer, Linear) for layer in measured.layers.values()):
        return "Networks with convolutions are not run in the page."
    head = likelihood_of(net).head(net.outputs)
    if head is None or head.name not in HEADS:
        return f"A {likelihood_of(net).name} response is not run in the page."
    if likelihood_of(net).answer is Answer.YES_OR_NO and net.outputs > 1:
        return "Networks with several yes-or-no outputs are not run in the page."
    if chosen is not None and chosen.feasible is False:
        return f"No input can reach an output in the chosen model: every path ends in {chosen.broken}."
    if isinstance(net, Mixture):
        return f"The {len(net.members)} members of a mixture are not run in the page."
    kinds = [net.activation] if isinstance(net.activation, str) else net.activation
    if unwritten := [kind for kind in kinds if ACTIVATIONS[kind].javascript is None]:
        return f"The activation {unwritten[0]} is not written in JavaScript."
    count = sum(int(mask.sum()) for mask in _masks(measured).values())
    if count > MOST_WEIGHTS:
        return f"{count} weights are left, and a page carries at most {MOST_WEIGHTS}: a smaller model could run here."
    used = len(measured.subject.inputs) if chosen is None or chosen.inputs is None else int(chosen.inputs.sum())
    if measured.subject.image_shape is None and used > MOST_CONTROLS:
        return f"{used} inputs are in use, and a page has controls for at most {MOST_CONTROLS}."
    return None


@torch.no_grad()
def pack_network(measured: Measured, rows: bool) -> dict[str, Any]:
    """What the page's script needs; `rows`: whether raw test images may travel in it."""
    net, subject = measured.net, measured.subject
    assert isinstance(net, Network)
    layers = []
    again = {link.name: link.again for link in chain_of(net) or []}
    for name, layer in measured.layers.items():
        packed = []
        for index, block in enumerate(layer.blocks()):
            inside = _inside(measured, name, index, block.mu).flatten()
            places = inside.nonzero().flatten()
            alpha = torch.ones_like(block.mu) if block.omega is None else torch.sigmoid(block.omega)
            values = [part.flatten()[places] for part in (block.mu, softplus(block.rho), alpha)]
            packed.append({"at": typed_array(places, "<u4")} | _named(values))
        outputs, inputs = layer.weight.mu.shape
        layers.append({"inputs": inputs, "outputs": outputs, "again": again.get(name, 0) > 0, "blocks": packed})
    head = likelihood_of(net).head(net.outputs)
    assert head is not None  # else `why_absent` said so
    numbers = subject.answer is Answer.NUMBERS
    network: dict[str, Any] = {
        "layers": layers,
        "activation": net.activation if isinstance(net.activation, str) else _kinds(net),
        "head": head.name,
        "numbers": numbers,
        "classes": subject.classes(
            2 if subject.answer is Answer.YES_OR_NO else subject.likelihood.classes(net.outputs)
        ),
        "draws": DRAWS,
        "seed": measured.seed,
        "threshold": DOUBT,
        "structure": measured.selects and subject.selection is None,
    }
    if numbers:
        network["noise"] = {"log": list(head.log), "sd": list(head.sd)}
        network |= {} if subject.rate is None else {"rate": subject.rate}
        scale = subject.scale_y
        network["response"] = {
            "name": subject.target or "response",
            "centre": 0.0 if scale is None else float(scale.centre.reshape(-1)[0]),
            "scale": 1.0 if scale is None else float(scale.scale.reshape(-1)[0]),
        }
    elif head.cuts:
        network["cuts"] = list(head.cuts)
    if subject.image_shape is not None:
        return network | {"kind": "image", "shape": list(subject.image_shape)} | _images(measured, rows)
    return network | {"kind": "table", "controls": _controls(measured, rows)}


def _kinds(net: nn.Module) -> list[list[str]]:
    """For each hidden layer the activation of each unit."""
    mixed = [part for part in flat_parts(net) or [] if isinstance(part, Mixed)]
    return [part.of_units() for part in mixed]


def _masks(measured: Measured) -> dict[str, Tensor]:
    return {name: _inside(measured, name, 0, layer.blocks()[0].mu) for name, layer in measured.layers.items()}


def _inside(measured: Measured, name: str, index: int, mu: Tensor) -> Tensor:
    chosen = measured.chosen
    return torch.ones_like(mu, dtype=torch.bool) if chosen is None else chosen.masks[name][index].cpu()


def _named(values: list[Tensor]) -> dict[str, str]:
    return {name: typed_array(value, "<f4") for name, value in zip(("mu", "sigma", "alpha"), values, strict=True)}


def typed_array(values: Tensor | NDArray[Any], kind: str) -> str:
    """Numbers as the base64 text of a typed array."""
    plain = values.cpu().numpy() if isinstance(values, Tensor) else values
    return base64.b64encode(np.ascontiguousarray(plain, dtype=kind).tobytes()).decode()


def _images(measured: Measured, rows: bool) -> dict[str, Any]:
    """How large drawings are in these images and where their mass lies, and some test images to pick from."""
    subject = measured.subject
    assert subject.image_shape is not None
    if subject.test is None:
        middle = [side / 2 for side in subject.image_shape]
        return {"box": max(subject.image_shape), "centre": middle, "images": []}
    x, y = subject.test
    few = x[:500].reshape(-1, *subject.image_shape).double()
    mass = few.sum((1, 2)).clamp_min(1e-9)
    centre = []
    for side, along in zip(subject.image_shape, (few.sum(2), few.sum(1)), strict=True):
        at = (along * (torch.arange(side) + 0.5)).sum(1) / mass
        centre.append(round(float(at.median()), 3))
    some = few > INK
    sides = torch.maximum(some.any(2).sum(1), some.any(1).sum(1)).double()
    images = []
    if rows:
        images = [{"pixels": typed_array(x[i], "<f4"), "truth": int(y[i])} for i in range(min(PICKED, len(x)))]
    box = round(float(sides.median())) or max(subject.image_shape)
    return {"box": box, "centre": centre, "images": images}


def _controls(measured: Measured, rows: bool) -> list[dict[str, Any]]:
    """One for each column in use: its range or levels, where it starts, and how it was standardised.

    Without rows the range is two standard deviations around the mean, so that no observed value travels.
    """
    subject, chosen = measured.subject, measured.chosen
    names = subject.inputs
    used = list(range(len(names)))
    if chosen is not None and chosen.inputs is not None:
        used = chosen.inputs.nonzero().flatten().tolist()
    table = None if subject.test is None else subject.test[0].double().numpy()
    belongs = {
        first + k: (name, levels, first) for name, levels, first in subject.categories for k in range(len(levels))
    }
    controls: dict[int, dict[str, Any]] = {}
    for i in used:
        if i in belongs:
            name, levels, first = belongs[i]
            controls[first] = _choice(subject, name, levels, first)
        else:
            controls[i] = _range(subject, i, None if table is None else table[:, i], rows)
    exposure = [_exposure(subject, rows)] if subject.exposure_name is not None else []
    return [*controls.values(), *exposure]


def _exposure(subject: Subject, rows: bool) -> dict[str, Any]:
    """How long, or over how much, counts are taken: the range of the test rows, or ten times up and down."""
    low, start, high = 0.1, 1.0, 10.0
    if rows and subject.exposure is not None:
        low, start, high = (float(v) for v in np.quantile(subject.exposure.double().numpy(), (0.01, 0.5, 0.99)))
    if not high > low:
        low, high = low / 2, high * 2
    parts = {"low": low, "high": high, "start": start}
    known = {"index": -1, "name": subject.exposure_name, "binary": False, "exposure": True}
    return known | {k: float(f"{v:.6g}") for k, v in parts.items()}


def _scale_of(subject: Subject, i: int) -> tuple[float, float]:
    """Mean and standard deviation by which an input was standardised."""
    if subject.scale_x is None:
        return 0.0, 1.0
    return float(subject.scale_x.centre[i]), float(subject.scale_x.scale[i])


def _choice(subject: Subject, name: str, levels: Sequence[str], first: int) -> dict[str, Any]:
    """A column of levels, starting with the most frequent one of the fitted rows."""
    scales = [_scale_of(subject, first + k) for k in range(len(levels))]
    start = max(range(len(levels)), key=lambda k: scales[k][0])  # the mean of an indicator is how often it is one
    parts = {"centres": [centre for centre, _ in scales], "scales": [scale for _, scale in scales]}
    return {"index": first, "name": name, "options": list(levels), "start": start, "binary": False} | parts


def _range(subject: Subject, i: int, column: NDArray[Any] | None, rows: bool) -> dict[str, Any]:
    """An input of numbers; one of zeros and ones is a box to tick."""
    centre, scale = _scale_of(subject, i)
    low, start, high = centre - 2 * scale, centre, centre + 2 * scale
    name, binary = subject.inputs[i], False
    if column is None:
        binary = i in subject.indicators
    else:
        plain = column * scale + centre
        binary = bool(np.isin(np.round(plain, 9), (0.0, 1.0)).all())
        if rows and not binary:
            low, start, high = (float(v) for v in np.quantile(plain, (0.01, 0.5, 0.99)))
    if binary:
        low, start, high = 0.0, 0.0, 1.0
    if not high > low:
        low, high = low - scale, high + scale
    parts = {"low": low, "high": high, "start": start, "centre": centre, "scale": scale}
    rounding = ROUNDING * max(abs(low), abs(high), scale)  # what standardising left of a zero
    parts = {name: 0.0 if abs(v) <= rounding else v for name, v in parts.items()}
    return {"index": i, "name": name, "binary": binary} | {k: float(f"{v:.6g}") for k, v in parts.items()}
