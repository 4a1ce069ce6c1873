"""What responses that are counted have in common: a rate, and the exposure over which they were counted."""

from __future__ import annotations

import torch
from torch import Tensor

from slabnet.core.errors import refuse
from slabnet.model.likelihoods.base import Likelihood, YScale, by_output, check_finite
from slabnet.model.likelihoods.target import Response


class Counts(Likelihood):
    """Whole numbers from 0 with the mean exposure x exp(output)."""

    metrics = ("rmse", "negative_log_likelihood", "deviance", "crps", "interval_coverage")
    y_scale = YScale.RATE
    sides = ("exposure",)

    def log_likelihood(self, output: Tensor, y: Response) -> Tensor:
        if isinstance(y, Tensor):
            return self.log_prob(output, y)
        return self.log_prob(output if y.exposure is None else self.exposed(output, y.exposure), y.y)

    def exposed(self, output: Tensor, exposure: Tensor) -> Tensor:
        return output + exposure.log().to(output)[:, None]

    def mean(self, output: Tensor) -> Tensor:
        return output.exp()

    def targets(self, y: Tensor, outputs: int, dtype: torch.dtype, where: str) -> Tensor:
        y = by_output(y, outputs, where).to(dtype)
        check_finite(y, where, "y")
        wrong = (y < 0) | (y != y.round())
        if bool(wrong.any()):
            row = int(wrong.nonzero()[0, 0])
            refuse(where, "y", "counts, whole numbers from 0", f"{y[row][wrong[row]][0].item():g} in row {row}")
        return y
