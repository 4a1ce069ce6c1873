"""Student's t as a slab. Its divergence has no closed form: it is integrated, or sampled where weights are drawn."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from slabnet.config.slabs import Student as StudentSettings
from slabnet.model.slabs.base import Slab


class Student(Slab):
    """t with `df` degrees of freedom and scale sigma_beta."""

    settings: StudentSettings

    def log_density(self, beta: Tensor, log_s: Tensor) -> Tensor:
        df = self.settings.df
        height = math.lgamma((df + 1) / 2) - math.lgamma(df / 2) - 0.5 * math.log(df * math.pi)
        return height - log_s - 0.5 * (df + 1) * torch.log1p((beta * torch.exp(-log_s)) ** 2 / df)
