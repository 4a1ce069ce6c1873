"""Concrete dropout (Gal, Hron & Kendall 2017): a dropout rate for each layer, learned by a relaxation."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from slabnet.core.errors import check_number
from slabnet.core.noise import logistic_like, uniform_like
from slabnet.model.baselines.inputs import InputNoise, columns, inner_weight
from slabnet.model.drawing import Scope


class ConcreteDropout(InputNoise):
    """A plain layer whose inputs are dropped with one learned rate p.

    The objective adds, in nats over all n rows, length_scale^2 |W|^2 / (2 (1 - p)) + length_scale^2 |b|^2 / 2 - K H(p)
    for K inputs and the entropy H of the rate: the weight and dropout regularisers of the paper times n. It
    comes from a bound but is not one. In training the mask is a concrete relaxation at `temperature`, in
    prediction it is 0 or 1.
    """

    logit_rate: nn.Parameter

    def __init__(
        self, inner: nn.Module, units: int, rate: float = 0.1, length_scale: float = 1.0, temperature: float = 0.1
    ) -> None:
        super().__init__(inner, units)
        check_number("concrete-dropout", "rate", rate, above=0, below=1)
        self.length_scale = check_number("concrete-dropout", "length_scale", length_scale, above=0)
        self.temperature = check_number("concrete-dropout", "temperature", temperature, above=0)
        self.logit_rate = nn.Parameter(torch.tensor(math.log(rate / (1 - rate))))

    @property
    def rate(self) -> float:
        """The share of inputs that is dropped."""
        return float(torch.sigmoid(self.logit_rate.detach()))

    def mean_factors(self) -> Tensor:
        return self.logit_rate.new_ones(self.units)

    def draw_factors(self, shape: tuple[int, ...], scope: Scope) -> Tensor:
        like = self.logit_rate.new_empty(shape)
        keep = torch.sigmoid(-self.logit_rate)
        if not scope.draw.trains:
            return (uniform_like(like, scope.generator) < keep).to(like.dtype) / keep
        noise = logistic_like(like, scope.generator)
        return torch.sigmoid((noise - self.logit_rate) / self.temperature) / keep

    def divergence(self, scope: Scope, sampled: bool) -> Tensor:
        weight, bias = inner_weight(self.inner)
        rate, keep = torch.sigmoid(self.logit_rate), torch.sigmoid(-self.logit_rate)
        logsigmoid = nn.functional.logsigmoid
        entropy = -rate * logsigmoid(self.logit_rate) - keep * logsigmoid(-self.logit_rate)
        squares = weight.square().sum() / keep + (0.0 if bias is None else bias.square().sum())
        return 0.5 * self.length_scale**2 * squares - self.units * entropy

    def used(self, scope: Scope) -> Tensor:
        return columns(self.factors(scope, 1) > 0, inner_weight(self.inner)[0])

    def extra_repr(self) -> str:
        return f"rate={self.rate:.3f}, length_scale={self.length_scale:g}"
