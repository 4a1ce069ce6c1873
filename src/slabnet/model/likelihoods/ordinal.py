"""One of several levels that have an order: low, middle, high."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from slabnet.core.errors import check_whole, refuse
from slabnet.maths.divergences import softplus
from slabnet.model.likelihoods.base import Head, Likelihood
from slabnet.model.likelihoods.categorical import Categorical
from slabnet.model.likelihoods.target import Response

MOST_LEVELS = 1000


class Ordinal(Categorical):
    """P(y <= k) = sigmoid(c_k - output) for `levels` levels, 0 the lowest; the network gives one output.

    The cut points c_1 < c_2 < ... are estimated, their distances as softplus of a number.

    >>> Ordinal(levels=4).mean(torch.zeros(1, 1)).round(decimals=4).tolist()
    [[0.25, 0.25, 0.25, 0.25]]
    """

    name = "ordinal"
    metrics = ("accuracy", "negative_log_likelihood", "rank_probability_score", "calibration_error")

    def __init__(self, levels: int) -> None:
        super().__init__()
        self.levels = check_whole("Ordinal", "levels", levels, at_least=2)
        if levels > MOST_LEVELS:
            refuse("Ordinal", "levels", f"at most {MOST_LEVELS}", levels)
        shares = torch.arange(1, levels, dtype=torch.float64) / levels
        cuts = torch.logit(shares)
        self.first = nn.Parameter(cuts[:1].float())
        self.gaps = nn.Parameter(torch.log(torch.expm1(cuts.diff())).float())

    @property
    def cuts(self) -> Tensor:
        """c_1 < c_2 < ..."""
        return torch.cat([self.first, self.first + softplus(self.gaps).cumsum(0)])

    def logs(self, output: Tensor) -> Tensor:
        """log P(y = k) for every level, with no difference of nearly equal numbers."""
        below = F.logsigmoid(self.cuts - output)  # log P(y <= k)
        above = F.logsigmoid(output - self.cuts)
        if self.levels == 2:
            return torch.cat([below, above], -1)
        # sigmoid(a) - sigmoid(b) = sigmoid(a) sigmoid(-b) (1 - exp(b - a))
        inner = below[..., 1:] + above[..., :-1] + torch.log(-torch.expm1(-softplus(self.gaps)))
        return torch.cat([below[..., :1], inner, above[..., -1:]], -1)

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        return self.logs(output).gather(-1, y[:, None])[:, 0]

    def expected_log_prob(self, output: Tensor, soft: Tensor) -> Tensor:
        return (soft * self.logs(output)).sum(-1)

    def total(self, output: Tensor, y: Response) -> Tensor:
        return Likelihood.total(self, output, y)

    def mean(self, output: Tensor) -> Tensor:
        return self.logs(output).exp()

    def check_outputs(self, outputs: int) -> None:
        if outputs != 1:
            refuse(
                "network", "likelihood", "another one, since ordinal levels come from 1 output", f"{outputs} outputs"
            )

    def targets(self, y: Tensor, outputs: int, dtype: torch.dtype, where: str) -> Tensor:
        self.check_outputs(outputs)
        return super().targets(y, self.levels, dtype, where)

    def classes(self, outputs: int) -> int:
        return self.levels

    def spec(self) -> dict[str, Any]:
        return {"name": self.name, "levels": self.levels}

    @classmethod
    def built(cls, options: dict[str, Any], outputs: int) -> Ordinal:
        if "levels" not in options:
            refuse("likelihood", "levels", "given with ordinal, as in Ordinal(levels=4)", None)
        return cls(**options)

    def head(self, outputs: int) -> Head:
        return Head("ordinal", cuts=tuple(self.cuts.detach().tolist()))
