"""The response of some rows, with what else a row says of how it was observed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Target:
    """Responses `y`, to be given to `fit` in their place where rows say more than that.

    weight: how often each row counts: one of weight 2 is that row twice. exposure: over how much time, area or people a
    count was taken. event: 1 where a time ended in the event, 0 where it was cut off before (right-censored).
    soft: what a teacher expects of each row, in the shape of a prediction (probabilities of the classes, or the mean);
    soft_share: how much of each row's log-likelihood is taken there, between 0 and 1, and not at its response.

    >>> rows = Target(torch.tensor([3.0, 0.0, 1.0]), weight=torch.tensor([1.0, 2.0, 0.5]))
    >>> rows[1:].weight.tolist()
    [2.0, 0.5]
    """

    y: Tensor
    weight: Tensor | None = None
    exposure: Tensor | None = None
    event: Tensor | None = None
    soft: Tensor | None = None
    soft_share: Tensor | None = None

    def __len__(self) -> int:
        return len(self.y)

    def __getitem__(self, rows: slice | Tensor | NDArray[np.int64]) -> Self:
        return replace(self, **{name: part[rows] for name, part in self.parts()})

    def parts(self) -> Iterator[tuple[str, Tensor]]:
        """What is there, by name."""
        for each in fields(self):
            part = getattr(self, each.name)
            if part is not None:
                yield each.name, part

    def to(self, device: torch.device) -> Self:
        """The same on another device."""
        return replace(self, **{name: part.to(device) for name, part in self.parts()})


Response = Tensor | Target


def response_of(y: Response) -> Tensor:
    """The responses alone."""
    return y.y if isinstance(y, Target) else y


def parts_of(y: Response) -> list[Tensor]:
    """All numbers of some rows' responses."""
    return [part for _, part in y.parts()] if isinstance(y, Target) else [y]
