"""Group normal-Jeffreys (Louizos, Ullrich & Welling 2017): a scale-free factor for each input unit of a layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from slabnet.core.noise import normal_like
from slabnet.maths.divergences import kl_normal_jeffreys
from slabnet.model.baselines.inputs import PrunableInputs
from slabnet.model.drawing import Scope
from slabnet.model.layers import SlabLayer

START_LOG_VARIANCE = -9.0
LEAST_SQUARE = 1e-8  # keeps log alpha finite where a factor's mean passes through zero


class NormalJeffreys(PrunableInputs):
    """w_ij = z_i v_ij with v ~ N(0, 1) and p(z_i) proportional to 1 / |z_i|, one factor for each input unit.

    q(z_i) = N(z_mean, exp(z_log_variance)), v has the Gaussian posterior of `inner`. The prior of z is improper, so
    its divergence is known up to a constant only, chosen to vanish where the factor is pure noise: the objective is
    no bound of the evidence. A unit is noise where log alpha = log(variance / mean^2) is large.
    """

    def __init__(self, inner: SlabLayer, units: int) -> None:
        super().__init__(inner, units)
        self.z_mean = nn.Parameter(torch.ones(units))
        self.z_log_variance = nn.Parameter(torch.full((units,), START_LOG_VARIANCE))

    @property
    def log_alpha(self) -> Tensor:
        """log of variance over squared mean of each factor: the logarithm of its dropout rate (sec. 4.1 there)."""
        return self.z_log_variance - torch.log(self.z_mean.square() + LEAST_SQUARE)

    def pruning_score(self) -> Tensor:
        return -self.log_alpha

    def mean_factors(self) -> Tensor:
        return self.z_mean

    def draw_factors(self, shape: tuple[int, ...], scope: Scope) -> Tensor:
        noise = normal_like(self.z_mean.expand(shape), scope.generator)
        return self.z_mean + torch.exp(0.5 * self.z_log_variance) * noise

    def divergence(self, scope: Scope, sampled: bool) -> Tensor:
        """KL of the factors (their eq. 7); that of v is counted by `inner`."""
        return kl_normal_jeffreys(self.log_alpha).sum()
