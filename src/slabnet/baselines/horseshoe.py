"""Group horseshoe (Louizos, Ullrich & Welling 2017): a heavy-tailed scale for each input unit of a layer."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from slabnet.baselines.inputs import InputNoise
from slabnet.checks import check_number
from slabnet.kl import kl_lognormal_gamma, kl_lognormal_inverse_gamma, log_softplus, softplus
from slabnet.layers import SlabLayer
from slabnet.noise import normal_like
from slabnet.scopes import Scope

START_SD = 0.1  # of the logarithm of each factor


class Horseshoe(InputNoise):
    """w_ij = s z_i v_ij with v ~ N(0, 1), z_i ~ half-Cauchy(1) for input i, s ~ half-Cauchy(tau0) for the layer.

    A half-Cauchy(k) squared is a Gamma(1/2, scale k^2) times an inverse Gamma(1/2, 1). The four variables have
    log-normal posteriors, so log(s z_i) is normal; v has the Gaussian posterior of `inner`. All divergences are
    closed forms.
    """

    def __init__(self, inner: SlabLayer, units: int, tau0: float = 1.0) -> None:
        super().__init__(inner, units)
        self.tau0 = check_number("horseshoe", "tau0", tau0, above=0)
        start = math.log(math.expm1(START_SD))
        for name, size in (("unit", units), ("layer", 1)):
            for part in ("gamma", "inverse"):
                self.register_parameter(f"{name}_{part}_m", nn.Parameter(torch.zeros(size)))
                self.register_parameter(f"{name}_{part}_rho", nn.Parameter(torch.full((size,), start)))

    def _scales(self) -> list[tuple[Tensor, Tensor]]:
        """(mean, rho) of the logarithms of the four variables."""
        names = [f"{name}_{part}" for name in ("unit", "layer") for part in ("gamma", "inverse")]
        return [(self.get_parameter(f"{n}_m"), self.get_parameter(f"{n}_rho")) for n in names]

    @property
    def log_scale(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of log(s z_i) under q, for each input unit."""
        scales = self._scales()
        mean = 0.5 * sum((m.expand(self.units) for m, _ in scales), torch.zeros_like(scales[0][0]))
        variance = 0.25 * sum((softplus(r).expand(self.units) ** 2 for _, r in scales), torch.zeros_like(scales[0][0]))
        return mean, variance.sqrt()

    def mean_factors(self) -> Tensor:
        mean, sd = self.log_scale
        return torch.exp(mean + 0.5 * sd * sd)

    def draw_factors(self, shape: tuple[int, ...], scope: Scope) -> Tensor:
        mean, sd = self.log_scale
        return torch.exp(mean + sd * normal_like(mean.expand(shape), scope.generator))

    def divergence(self, scope: Scope, sampled: bool) -> Tensor:
        """KL of the four log-normals; that of v is counted by `inner`."""
        total = torch.zeros_like(self._scales()[0][0]).sum()
        limits = (1.0, None, self.tau0**2, None)
        for (m, rho), limit in zip(self._scales(), limits, strict=True):
            if limit is None:
                total = total + kl_lognormal_inverse_gamma(m, log_softplus(rho), 0.5, 1.0).sum()
            else:
                total = total + kl_lognormal_gamma(m, log_softplus(rho), 0.5, limit).sum()
        return total

    def extra_repr(self) -> str:
        return f"tau0={self.tau0:g}"
