"""A number whose noise depends on the inputs too."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from slabnet.core.errors import refuse
from slabnet.model.likelihoods.base import Conditional, Head, Likelihood, YScale, by_output, check_finite, same_shape
from slabnet.model.likelihoods.normal import Normal


class Heteroscedastic(Likelihood):
    """y ~ N(m, exp(v)); the network gives the means m of all responses first, then their log variances v.

    Each half of the last layer has indicators of its own: one sees which inputs drive the mean and which the noise.

    >>> Heteroscedastic().variance(torch.zeros(1, 2)).tolist()
    [[1.0]]
    """

    name = "heteroscedastic"
    metrics = ("rmse", "negative_log_likelihood", "crps", "interval_coverage")
    y_scale = YScale.STANDARD

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        centre, log_variance = output.chunk(2, -1)
        same_shape(centre, y)
        return Normal(centre, (0.5 * log_variance).exp()).log_prob(y).sum(-1)

    def mean(self, output: Tensor) -> Tensor:
        return output.chunk(2, -1)[0]

    def variance(self, output: Tensor) -> Tensor:
        return output.chunk(2, -1)[1].exp()

    def conditional(self, output: Tensor, dispersion: Tensor) -> Conditional:
        centre, log_variance = output.chunk(2, -1)
        return Normal(centre, (0.5 * log_variance).exp())

    def in_units(self, outputs: int, centre: Sequence[float], scale: Sequence[float]) -> list[tuple[str, float, float]]:
        means = super().in_units(len(scale), centre, scale)
        return means + [("log variance", 1.0, 2 * math.log(factor)) for factor in scale]

    @classmethod
    def outputs_for(cls, responses: int) -> int:
        return 2 * responses

    def output_units(self, centre: Sequence[float], scale: Sequence[float]) -> tuple[list[float], list[float]]:
        shifts = [2 * math.log(unit) for unit in scale]
        return [*centre, *shifts], [*scale, *(1.0 for _ in scale)]

    def free_outputs(self, outputs: int) -> int:
        return outputs // 2

    def parts(self, outputs: int) -> dict[str, slice]:
        return {"mean": slice(0, outputs // 2), "noise": slice(outputs // 2, outputs)}

    def check_outputs(self, outputs: int) -> None:
        if outputs % 2:
            refuse(
                "network",
                "likelihood",
                "one that the outputs fit: a mean and a log variance each",
                f"{outputs} outputs",
            )

    def targets(self, y: Tensor, outputs: int, dtype: torch.dtype, where: str) -> Tensor:
        self.check_outputs(outputs)
        y = by_output(y, outputs // 2, where).to(dtype)
        check_finite(y, where, "y")
        return y

    def head(self, outputs: int) -> Head:
        return Head("heteroscedastic")
