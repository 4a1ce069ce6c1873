"""What dropout and priors of whole units share: a layer whose inputs are each multiplied by a drawn factor."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from slabnet.model.drawing import Drawable, Scope, scope_of


class InputNoise(Drawable):
    """`inner(x * factor)`, one factor for each input unit (or channel).

    In training every row has factors of its own, which lowers the variance of the gradient; in prediction one
    draw of the network has one set of factors. A subclass gives `draw_factors` and `mean_factors`.
    """

    def __init__(self, inner: nn.Module, units: int) -> None:
        super().__init__()
        self.inner, self.units = inner, units

    def draw_factors(self, shape: tuple[int, ...], scope: Scope) -> Tensor:
        """Factors of this shape, whose last dimension is the units."""
        raise NotImplementedError(f"{type(self).__name__} must draw its factors")

    def mean_factors(self) -> Tensor:
        """What the factors are on average: the network called outside a drawing block."""
        raise NotImplementedError(f"{type(self).__name__} must give its mean factors")

    def factors(self, scope: Scope, rows: int) -> Tensor:
        """(units) for one whole network, (rows, units) in training."""
        if not scope.draw.random:
            return self.mean_factors()
        if scope.draw.trains:
            return self.draw_factors((rows, self.units), scope)
        return scope.keep(self, lambda: self.draw_factors((self.units,), scope))

    def forward(self, x: Tensor) -> Tensor:
        factors = self.factors(scope_of(self), len(x))
        out: Tensor = self.inner(x * factors.reshape(factors.shape + (1,) * (x.ndim - 2)))
        return out


class PrunableInputs(InputNoise):
    """Factors by which whole inputs can be told to be needless: `slabnet.prune` reads `pruning_score`."""

    def pruning_score(self) -> Tensor:
        """For each input unit a number that is large where the unit is needed."""
        raise NotImplementedError(f"{type(self).__name__} must say which of its units are needed")


def inner_weight(inner: nn.Module) -> tuple[Tensor, Tensor | None]:
    """Weight and intercept of a plain layer."""
    return inner.get_parameter("weight"), getattr(inner, "bias", None)


def columns(inputs_in: Tensor, weight: Tensor) -> Tensor:
    """Which weights read a kept unit."""
    shape = (1, -1, *(1 for _ in weight.shape[2:]))
    return inputs_in.reshape(shape).expand(weight.shape).to(torch.bool)
