"""The network of a plan, and the rows in the shape it reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from slabnet.core.errors import refuse
from slabnet.data import Split
from slabnet.experiments.profiles import Plan
from slabnet.model.networks import Network, convnet, mlp

Rows = tuple[Tensor, Tensor]


def network_of(plan: Plan, split: Split) -> Network:
    """A fresh network with its starting values: convolutions where the plan has them, else fully connected layers."""
    network, maps = plan.network, plan.maps
    options: dict[str, Any] = {"activation": network.activation, "members": network.members, "skip": network.skip}
    options |= {"method": plan.method, "prior": plan.prior, "start": plan.start, "seed": plan.seed}
    if maps is None:
        gates = "inputs" if network.gates else None
        return mlp((split.inputs, *network.hidden, split.classes), gates=gates, **options)
    gates = "channels" if network.gates else None
    return convnet(
        (1, *_sides(split)), split.classes, hidden=network.hidden, gates=gates, **maps.model_dump(), **options
    )


def in_shape(plan: Plan, split: Split) -> Split:
    """The rows as images, where the network begins with convolutions."""
    if plan.maps is None:
        return split
    sides = _sides(split)

    def images(rows: Rows) -> Rows:
        return rows[0].reshape(-1, 1, *sides), rows[1]

    return replace(split, train=images(split.train), test=images(split.test))


def _sides(split: Split) -> tuple[int, int]:
    if split.image_shape is None:
        refuse("reproduce", "--dataset", "one of images, for a network with convolutions", split.name)
    return split.image_shape
