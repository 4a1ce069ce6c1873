"""A positive number of a likelihood (a noise level, a shape) with a log-normal posterior."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn

from slabnet.core.errors import check_number, check_whole
from slabnet.core.noise import normal_like
from slabnet.maths.divergences import kl_lognormal, softplus

NODES = 15  # of Gauss-Hermite quadrature: more than enough for a posterior that data have narrowed
PRIOR_SD = 1.5
CERTAIN = -80.0  # rho of a standard deviation of 2e-35


class Dispersion(nn.Module):
    """log phi ~ N(log, softplus(rho)^2) under q and N(prior_mean, prior_sd^2) before the data, one for each response.

    >>> Dispersion(2).median.tolist()
    [1.0, 1.0]
    """

    def __init__(self, responses: int, prior_mean: float = 0.0, prior_sd: float = PRIOR_SD) -> None:
        super().__init__()
        check_whole("Dispersion", "responses", responses, at_least=1)
        self.prior_mean = float(check_number("Dispersion", "prior_mean", prior_mean))
        self.prior_sd = float(check_number("Dispersion", "prior_sd", prior_sd, above=0))
        self.log = nn.Parameter(torch.full((responses,), self.prior_mean))
        self.rho = nn.Parameter(torch.full((responses,), -2.0))
        points, weights = np.polynomial.hermite_e.hermegauss(NODES)
        self._points, self._weights = torch.from_numpy(points), torch.from_numpy(weights / math.sqrt(2 * math.pi))

    @property
    def sd(self) -> Tensor:
        """The standard deviation of log phi under q."""
        return softplus(self.rho)

    @property
    def median(self) -> Tensor:
        """The median of phi under q."""
        return self.log.detach().exp()

    def moment(self, power: float) -> Tensor:
        """E phi^power under q, in closed form."""
        return torch.exp(power * self.log + 0.5 * (power * self.sd) ** 2)

    def nodes(self) -> tuple[Tensor, Tensor]:
        """Points (nodes, responses) and weights (nodes): a weighted sum over them is a mean over q."""
        points, weights = self._points.to(self.log), self._weights.to(self.log)
        return torch.exp(self.log + self.sd * points[:, None]), weights

    def draw(self, generator: torch.Generator) -> Tensor:
        """One phi for each response."""
        return torch.exp(self.log + self.sd * normal_like(self.log, generator)).detach()

    @torch.no_grad()
    def fix_at_draw(self, generator: torch.Generator) -> Tensor:
        """Become certain of one draw of phi; log p(phi) - log q(phi) there."""
        eps, log_sd = normal_like(self.log, generator), self.sd.log()
        drawn = self.log + self.sd * eps
        before = -0.5 * ((drawn - self.prior_mean) / self.prior_sd) ** 2 - math.log(self.prior_sd)
        ratio: Tensor = (before + 0.5 * eps**2 + log_sd).sum()
        self.log.copy_(drawn)
        self.rho.fill_(CERTAIN)
        return ratio

    @torch.no_grad()
    def fix_at_mean(self) -> None:
        """Become certain of the mean of log phi."""
        self.rho.fill_(CERTAIN)

    def kl(self) -> Tensor:
        """KL of q from the prior."""
        return kl_lognormal(self.log, self.sd.log(), self.prior_mean, self.prior_sd).sum()
