"""Group horseshoe (Louizos, Ullrich & Welling 2017): a heavy-tailed scale for each input unit of a layer."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from slabnet.core.errors import check_number
from slabnet.core.noise import normal_like
from slabnet.maths.divergences import kl_lognormal_gamma, log_softplus, softplus
from slabnet.model.baselines.inputs import PrunableInputs
from slabnet.model.drawing import Scope
from slabnet.model.layers import SlabLayer

START_SD = 0.1  # of the logarithm of each factor


class Horseshoe(PrunableInputs):
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

    def _scales(self, kind: str) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mean ("m") or rho ("rho") of the logarithms of the four variables: two of each unit, two of the layer."""
        parameters = self._parameters  # not by attribute: torch looks those up slowly, and every step asks
        return tuple(parameters[f"{n}_{kind}"] for n in ("unit_gamma", "unit_inverse", "layer_gamma", "layer_inverse"))  # type: ignore[return-value]

    @property
    def log_scale(self) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of log(s z_i) under q, for each input unit."""
        a, b, c, d = self._scales("m")
        units, layer = self._log_variances()
        return 0.5 * (a + b + (c + d)), (units + layer).sqrt()

    def pruning_score(self) -> Tensor:
        return self.log_scale[0]

    def mean_factors(self) -> Tensor:
        mean, sd = self.log_scale
        return torch.exp(mean + 0.5 * sd * sd)

    def draw_factors(self, shape: tuple[int, ...], scope: Scope) -> Tensor:
        """log(s z_i) = log s + log z_i: s is drawn once for all units of a network (in training, of a row)."""
        mean, (units, layer) = self.log_scale[0], self._log_variances()
        noise = normal_like(mean.expand(shape), scope.generator)
        shared = normal_like(mean[:1].expand(*shape[:-1], 1), scope.generator)
        return torch.exp(mean + units.sqrt() * noise + layer.sqrt() * shared)

    def _log_variances(self) -> tuple[Tensor, Tensor]:
        """Variance of log z_i under q for each unit, and that of log s: half the logarithms of two variables each."""
        rho = self._scales("rho")
        units, layer = (0.25 * softplus(torch.stack(pair)).square().sum(0) for pair in (rho[:2], rho[2:]))
        return units, layer

    def divergence(self, scope: Scope, sampled: bool) -> Tensor:
        """KL of the four log-normals; that of v is counted by `inner`.

        One formula for all of them: the inverse of an inverse Gamma is a Gamma, and so is a Gamma over its scale.
        """
        a, b, c, d = self._scales("m")
        m = torch.cat((a, -b, c - 2 * math.log(self.tau0), -d))
        return kl_lognormal_gamma(m, log_softplus(torch.cat(self._scales("rho"))), 0.5, 1.0).sum()

    def extra_repr(self) -> str:
        return f"tau0={self.tau0:g}"
