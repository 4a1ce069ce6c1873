"""Monte Carlo dropout (Gal & Ghahramani 2016): a fixed dropout rate, kept on when predicting."""

from __future__ import annotations

from torch import Tensor, nn

from slabnet.core.errors import check_number
from slabnet.core.noise import uniform_like
from slabnet.model.baselines.inputs import InputNoise, columns, inner_weight
from slabnet.model.drawing import Scope


class MCDropout(InputNoise):
    """A plain layer whose inputs are dropped with a fixed rate, in training and in prediction.

    The objective adds length_scale^2 (|W|^2 / (1 - rate) + |b|^2) / 2 over all n rows: weight decay.
    """

    def __init__(self, inner: nn.Module, units: int, rate: float = 0.1, length_scale: float = 1.0) -> None:
        super().__init__(inner, units)
        self.rate = check_number("mc-dropout", "rate", rate, at_least=0, below=1)
        self.length_scale = check_number("mc-dropout", "length_scale", length_scale, above=0)

    def mean_factors(self) -> Tensor:
        return inner_weight(self.inner)[0].new_ones(self.units)

    def draw_factors(self, shape: tuple[int, ...], scope: Scope) -> Tensor:
        like = inner_weight(self.inner)[0].new_empty(shape)
        present = uniform_like(like, scope.generator) < 1 - self.rate
        return present.to(like.dtype) / (1 - self.rate)

    def divergence(self, scope: Scope, sampled: bool) -> Tensor:
        weight, bias = inner_weight(self.inner)
        squares = weight.square().sum() / (1 - self.rate) + (0.0 if bias is None else bias.square().sum())
        return 0.5 * self.length_scale**2 * squares

    def used(self, scope: Scope) -> Tensor:
        return columns(self.factors(scope, 1) > 0, inner_weight(self.inner)[0])

    def extra_repr(self) -> str:
        return f"rate={self.rate:g}, length_scale={self.length_scale:g}"
