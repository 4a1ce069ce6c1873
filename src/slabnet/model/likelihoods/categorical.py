"""One of several classes."""

from __future__ import annotations

from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor

from slabnet.core.errors import refuse
from slabnet.core.records import Answer
from slabnet.model.likelihoods.base import CLASS_COLUMNS, Head, Likelihood, check_finite, probabilities
from slabnet.model.likelihoods.target import Response


class Categorical(Likelihood):
    """One of K classes; the network gives K logits.

    >>> Categorical().log_prob(torch.zeros(1, 2), torch.tensor([0])).exp().item()
    0.5
    """

    name = "categorical"
    answer = Answer.CLASSES
    metrics: ClassVar[tuple[str, ...]] = (
        "accuracy",
        "accuracy_with_doubt",
        "negative_log_likelihood",
        "brier",
        "calibration_error",
    )
    baseline = "the most frequent class"
    columns = CLASS_COLUMNS

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        return -F.cross_entropy(output, y, reduction="none")

    def total(self, output: Tensor, y: Response) -> Tensor:
        return -F.cross_entropy(output, y, reduction="sum") if isinstance(y, Tensor) else super().total(output, y)

    def expected_log_prob(self, output: Tensor, soft: Tensor) -> Tensor:
        return (soft * torch.log_softmax(output, dim=-1)).sum(-1)

    def soft_targets(self, soft: Tensor, outputs: int, dtype: torch.dtype, where: str) -> Tensor:
        return probabilities(super().soft_targets(soft, outputs, dtype, where), where)

    def mean(self, output: Tensor) -> Tensor:
        return torch.softmax(output, dim=-1)

    def entropy(self, mean: Tensor) -> Tensor:
        each: Tensor = torch.special.entr(mean)
        return each.sum(-1)

    def votes(self, mean: Tensor) -> Tensor:
        return F.one_hot(mean.argmax(-1), mean.shape[-1])

    def check_outputs(self, outputs: int) -> None:
        if outputs < 2:
            refuse("network", "likelihood", '"bernoulli" or "gaussian" for one output', self.name)

    def targets(self, y: Tensor, outputs: int, dtype: torch.dtype, where: str) -> Tensor:
        y = y.squeeze(-1) if y.ndim == 2 and y.shape[1] == 1 else y
        if y.ndim != 1 or y.is_complex():
            refuse(where, "y", "one class label a row", f"shape {tuple(y.shape)}")
        check_finite(y, where, "y")
        whole = y.long()
        if y.is_floating_point() and bool((whole != y).any()):
            allowed = f'class labels, whole numbers from 0 to {outputs - 1} (for numbers: likelihood="gaussian")'
            refuse(where, "y", allowed, y[whole != y][0].item())
        outside = (whole < 0) | (whole >= outputs)
        if bool(outside.any()):
            row = int(outside.nonzero()[0, 0])
            refuse(where, "y", f"class labels from 0 to {outputs - 1}", f"{whole[row].item()} in row {row}")
        return whole

    def head(self, outputs: int) -> Head:
        return Head("softmax")
