"""What a network's specification declares, weighed before anything is built from it."""

from __future__ import annotations

import itertools
import math
from typing import Any

from slabnet.core.errors import check_whole, refuse
from slabnet.model.layers.conv import Kernel
from slabnet.model.mixture import MOST_MEMBERS

MOST_LAYERS = 1000  # that are built from a file
WIDEST = 2**24  # sizes that a file may declare
DIMENSIONS = (1, 2, 3)  # of a convolution


def members_of_spec(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The specifications of the members of a mixture."""
    members = spec.get("members")
    if not isinstance(members, list) or not 1 <= len(members) <= MOST_MEMBERS:
        refuse("network", "members", f"a list of 1 to {MOST_MEMBERS} specifications", type(members).__name__)
    if any(not isinstance(member, dict) or member.get("kind") == "mixture" for member in members):
        refuse("network", "members", "specifications of single networks", "something else among them")
    return members


def weigh(spec: dict[str, Any], tensors: int, numbers: int) -> str | None:
    """What `build_network(spec)` would need beyond so many tensors and numbers, in words; found without making any."""
    layers, weights = _declared(spec, min(tensors, MOST_LAYERS))
    if layers > min(tensors, MOST_LAYERS) or weights > numbers:
        return f"too small for {layers} layers of {weights} weights"
    return None


def _declared(spec: dict[str, Any], most: int) -> tuple[int, int]:
    """(layers, weights) of a network of at most so many layers, the least that it would have.

    No length and no width that a file declares is multiplied before it is known to be small.
    """
    if spec.get("kind") == "mixture":
        counts = [_declared(member, most) for member in members_of_spec(spec)]
        return sum(layers for layers, _ in counts), sum(weights for _, weights in counts)
    for name in ("channels", "hidden") if spec.get("kind") == "convnet" else ("sizes",):
        if len(spec[name]) > most + 1:
            refuse("network", name, f"at most {most + 1} long for the tensors there are", f"{len(spec[name])} of them")
    each: list[int] = []
    if spec.get("kind") == "convnet":
        shape, kernel, pool = spec["input_shape"], spec["kernel_size"], spec["pool"]
        if not isinstance(shape, list) or len(shape) - 1 not in DIMENSIONS:
            refuse("convnet", "input_shape", "channels and one to three sizes", shape)
        least = [*((1, size) for size in (*shape, kernel, pool, *spec["channels"])), (1, spec["classes"])]
        _check_below(WIDEST, least)
        passed = Kernel.of(kernel, spec.get("padding", "same"))
        sides = [passed.side(side, len(spec["channels"]), pool) for side in shape[1:]]
        widths = [shape[0], *spec["channels"]]
        each = [a * b * kernel ** len(sides) for a, b in itertools.pairwise(widths)]
        dense = [widths[-1] * math.prod(sides), *spec["hidden"], spec["classes"]]
    else:
        dense = list(spec["sizes"])
    _check_below(WIDEST**3 * WIDEST, [(0, size) for size in dense])
    copies = dense[0] if spec.get("skip") else 0  # what every layer behind the first reads besides units
    each += [(a + (copies if index else 0)) * b for index, (a, b) in enumerate(itertools.pairwise(dense))]
    members = spec.get("options", {}).get("members", 1) if spec.get("method") == "ensemble" else 1
    outputs = spec["likelihood"].get("outputs", 0)  # each of which has a dispersion
    _check_below(WIDEST, [(1, members), (0, outputs)])
    return members * len(each), members * sum(each) + outputs


def _check_below(most: int, sizes: list[tuple[int, Any]]) -> None:
    """Refuse sizes that are no whole numbers, or larger than any that we make."""
    for least, size in sizes:
        if check_whole("network", "sizes", size, at_least=least) > most:
            refuse("network", "sizes", f"at most {most}", size)
