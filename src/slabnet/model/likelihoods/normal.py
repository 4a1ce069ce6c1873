"""The normal distribution around each draw."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from slabnet.model.likelihoods.base import Conditional

REACH = 12  # standard deviations on each side: beyond is nothing that double precision could tell


@dataclass(frozen=True)
class Normal(Conditional):
    """N(centre, sd^2)."""

    centre: Tensor
    sd: Tensor

    def log_prob(self, y: Tensor) -> Tensor:
        return -0.5 * (((y - self.centre) / self.sd) ** 2 + math.log(2 * math.pi)) - self.sd.log()

    def cdf(self, y: Tensor) -> Tensor:
        below: Tensor = torch.special.ndtr((y - self.centre) / self.sd)
        return below

    def crps(self, y: Tensor) -> Tensor:
        """E|Y - y| - E|Y - Y'| / 2 for the equal mixture of all draws; memory is rows x draws."""
        to_y = _mean_absolute(y - self.centre, self.sd).mean(0)
        spread = torch.zeros_like(to_y)
        for centre, sd in zip(self.centre, self.sd, strict=True):
            spread += _mean_absolute(centre - self.centre, (self.sd**2 + sd**2).sqrt()).mean(0) / len(self.centre)
        return to_y - spread / 2

    def around(self) -> tuple[Tensor, Tensor]:
        return self.centre - REACH * self.sd, self.centre + REACH * self.sd


def _mean_absolute(shift: Tensor, sd: Tensor) -> Tensor:
    """E|shift + sd Z| for a standard normal Z."""
    z = shift / sd
    density = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    value: Tensor = shift * (2 * torch.special.ndtr(z) - 1) + 2 * sd * density
    return value
