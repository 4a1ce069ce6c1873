"""A network with a table's units around it: how functions that read networks read an estimator too."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray
from torch import nn

from slabnet.core.errors import refuse
from slabnet.model.drawing import Mask

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Wrapped:
    """The network inside, the names of its inputs, and the units in which people know inputs and response.

    An input of the network is (column - centre_x) / scale_x; an output is centre_y + scale_y * that of the network: the
    response, or what stands for it (its logarithm, a log rate, a log variance).
    columns: the inputs of each column of the table, by name. masks: those of the model that was chosen, if one was.
    """

    net: nn.Module
    inputs: tuple[str, ...]
    centre_x: Array
    scale_x: Array
    centre_y: Array
    scale_y: Array
    columns: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    masks: Mapping[str, Mask] | None = None


class Wraps:
    """Base of what has a fitted network inside."""

    def wrapped(self) -> Wrapped:
        """The network with its units, once it is fitted."""
        raise NotImplementedError(f"{type(self).__name__} must give its network")


def network_in(where: str, given: object) -> nn.Module:
    """The network of `given`, which is one or wraps one."""
    if isinstance(given, Wraps):
        return given.wrapped().net
    if not isinstance(given, nn.Module):
        refuse(where, "net", "a network or a fitted estimator", type(given).__name__)
    return given
