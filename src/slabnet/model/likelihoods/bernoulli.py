"""Yes or no."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from slabnet.core.errors import refuse
from slabnet.core.records import Answer
from slabnet.model.likelihoods.base import CLASS_COLUMNS, Head, Likelihood, by_output, same_shape


class Bernoulli(Likelihood):
    """Yes or no for each output; the network gives logits."""

    name = "bernoulli"
    answer = Answer.YES_OR_NO
    metrics = ("accuracy", "accuracy_with_doubt", "negative_log_likelihood")
    baseline = "the most frequent class"
    columns = CLASS_COLUMNS

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        same_shape(output, y)
        return -F.binary_cross_entropy_with_logits(output, y.to(output.dtype), reduction="none").sum(-1)

    def mean(self, output: Tensor) -> Tensor:
        return torch.sigmoid(output)

    def entropy(self, mean: Tensor) -> Tensor:
        both: Tensor = torch.special.entr(mean) + torch.special.entr(1 - mean)
        return both

    def votes(self, mean: Tensor) -> Tensor:
        return (mean > 0.5).long()

    def targets(self, y: Tensor, outputs: int, dtype: torch.dtype, where: str) -> Tensor:
        y = by_output(y, outputs, where)
        wrong = (y != 0) & (y != 1)
        if bool(wrong.any()):
            refuse(where, "y", "0 or 1", y[wrong][0].item())
        return y.to(dtype)

    def soft_targets(self, soft: Tensor, outputs: int, dtype: torch.dtype, where: str) -> Tensor:
        soft = super().soft_targets(soft, outputs, dtype, where)
        if bool(((soft < 0) | (soft > 1)).any()):
            refuse(where, "soft", "probabilities between 0 and 1", f"{soft.min().item():g} to {soft.max().item():g}")
        return soft

    def classes(self, outputs: int) -> int:
        return 2

    def head(self, outputs: int) -> Head:
        return Head("sigmoid")
