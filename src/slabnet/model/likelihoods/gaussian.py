"""A number with normal noise."""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Any, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from slabnet.config.priors import InverseGamma
from slabnet.core.errors import Settings, check_number, check_whole, refuse
from slabnet.core.noise import normal_like
from slabnet.maths.divergences import kl_lognormal, kl_lognormal_inverse_gamma, softplus
from slabnet.model.likelihoods.base import Conditional, Head, Likelihood, YScale, by_output, check_finite, same_shape
from slabnet.model.likelihoods.dispersion import CERTAIN
from slabnet.model.likelihoods.normal import Normal


class LogNormal(Settings):
    """Prior of the variance phi: log phi ~ N(mean, sd^2)."""

    mean: float = 0.0
    sd: float = Field(default=3.0, gt=0)


class Gaussian(Likelihood):
    """y ~ N(output, phi), phi the variance, one for each output.

    phi: "learned" has a log-normal posterior whose divergence from `prior` is part of the bound;
    "point" is estimated as one number; a number is kept as it is.

    >>> Gaussian(phi=0.25).expected_phi
    tensor([0.2500])
    """

    name = "gaussian"
    y_scale = YScale.STANDARD
    metrics = ("rmse", "negative_log_likelihood", "crps", "interval_coverage")
    log_phi: nn.Parameter | Tensor
    rho_phi: nn.Parameter

    def __init__(
        self,
        phi: Literal["learned", "point"] | float = "learned",
        prior: LogNormal | InverseGamma | None = None,
        outputs: int = 1,
    ) -> None:
        super().__init__()
        if isinstance(phi, str) and phi not in ("learned", "point"):
            refuse("Gaussian", "phi", '"learned", "point" or a number above 0', phi)
        if prior is not None and not isinstance(prior, (LogNormal, InverseGamma)):
            refuse("Gaussian", "prior", "LogNormal(...) or InverseGamma(...)", prior)
        self.phi, self.prior = phi, prior or LogNormal()
        check_whole("Gaussian", "outputs", outputs, at_least=1)
        if isinstance(phi, str):
            self.log_phi = nn.Parameter(torch.zeros(outputs))
        else:
            check_number("Gaussian", "phi", phi, above=0)
            self.register_buffer("log_phi", torch.full((outputs,), math.log(phi)))
        if phi == "learned":
            self.rho_phi = nn.Parameter(torch.full((outputs,), -2.0))

    @property
    def learns(self) -> bool:
        return self.phi == "learned"

    @property
    def _half_variance(self) -> Tensor:
        """Half the variance of log phi under q."""
        if self.phi != "learned":
            return torch.zeros_like(self.log_phi)
        return 0.5 * softplus(self.rho_phi) ** 2

    @property
    def expected_phi(self) -> Tensor:
        """E phi under q: the expected noise variance."""
        return torch.exp(self.log_phi + self._half_variance).detach()

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """E_q(phi) log N(y; output, phi), in closed form."""
        same_shape(output, y)
        expected_precision = torch.exp(-self.log_phi + self._half_variance)
        squared = (y - output) ** 2 * expected_precision
        return -0.5 * (squared + self.log_phi + math.log(2 * math.pi)).sum(-1)

    def mean(self, output: Tensor) -> Tensor:
        return output

    def variance(self, output: Tensor) -> Tensor:
        return self.expected_phi.to(output.device).expand_as(output)

    def conditional(self, output: Tensor, dispersion: Tensor) -> Conditional:
        return Normal(output, dispersion.sqrt()[:, None, :].expand_as(output))

    def draw_dispersion(self, generator: torch.Generator) -> Tensor:
        return self.draw_phi(generator)

    def noise_variances(self) -> tuple[float, ...]:
        return tuple(self.expected_phi.reshape(-1).tolist())

    @torch.no_grad()
    def at_draw(self, generator: torch.Generator) -> tuple[Self, Tensor]:
        certain = copy.deepcopy(self)
        if self.phi != "learned":
            return certain, self.log_phi.new_zeros(())
        eps, sd = normal_like(self.log_phi, generator), softplus(self.rho_phi)
        drawn = self.log_phi + sd * eps
        if isinstance(self.prior, LogNormal):
            mean, spread = self.prior.mean, self.prior.sd
            before = -0.5 * ((drawn - mean) / spread) ** 2 - math.log(spread) - 0.5 * math.log(2 * math.pi)
        else:
            a, b = self.prior.shape, self.prior.scale
            before = a * math.log(b) - math.lgamma(a) - a * drawn - b * torch.exp(-drawn)
        after = -0.5 * eps**2 - sd.log() - 0.5 * math.log(2 * math.pi)
        certain.log_phi.copy_(drawn)
        certain.rho_phi.fill_(CERTAIN)
        return certain, (before - after).sum()

    @torch.no_grad()
    def at_mean(self) -> Self:
        certain = copy.deepcopy(self)
        if self.phi == "learned":
            certain.rho_phi.fill_(CERTAIN)
        return certain

    def draw_phi(self, generator: torch.Generator) -> Tensor:
        """One draw of phi from q, for predictive intervals."""
        if self.phi != "learned":
            return self.log_phi.detach().exp()
        eps = normal_like(self.log_phi, generator)
        return torch.exp(self.log_phi + softplus(self.rho_phi) * eps).detach()

    @torch.no_grad()
    def set_noise(self, phi: Sequence[float], rows: int) -> None:
        """Take phi as it was estimated from `rows` residuals: the log of a variance then has variance 2 / rows.

        >>> likelihood = Gaussian()
        >>> likelihood.set_noise([0.25], rows=200)
        >>> round(likelihood.expected_phi.item(), 3)
        0.251
        """
        values = torch.as_tensor(phi, dtype=self.log_phi.dtype, device=self.log_phi.device)
        self.log_phi.copy_(values.log())
        if self.phi == "learned":
            self.rho_phi.fill_(math.log(math.expm1(math.sqrt(2 / rows))))

    def targets(self, y: Tensor, outputs: int, dtype: torch.dtype, where: str) -> Tensor:
        if self.log_phi.shape[0] not in (1, outputs):
            refuse(where, "likelihood", f"Gaussian(outputs={outputs})", f"outputs={self.log_phi.shape[0]}")
        y = by_output(y, outputs, where).to(dtype)
        check_finite(y, where, "y")
        return y

    def kl(self) -> Tensor:
        if self.phi != "learned":
            return torch.zeros_like(self.log_phi).sum()
        log_s = softplus(self.rho_phi).log()
        if isinstance(self.prior, LogNormal):
            return kl_lognormal(self.log_phi, log_s, self.prior.mean, self.prior.sd).sum()
        return kl_lognormal_inverse_gamma(self.log_phi, log_s, self.prior.shape, self.prior.scale).sum()

    def spec(self) -> dict[str, Any]:
        prior = {"name": type(self.prior).__name__, **self.prior.model_dump(mode="json")}
        return {"name": self.name, "phi": self.phi, "outputs": self.log_phi.shape[0], "prior": prior}

    def extra_repr(self) -> str:
        return f"phi={self.phi!r}"

    @classmethod
    def built(cls, options: dict[str, Any], outputs: int) -> Gaussian:
        prior: dict[str, Any] = {"name": "LogNormal", **options.pop("prior", {})}
        kinds: dict[str, type[LogNormal] | type[InverseGamma]] = {"LogNormal": LogNormal, "InverseGamma": InverseGamma}
        kind = prior.pop("name", None)
        if kind not in kinds:
            refuse("likelihood", "prior", f"one of {', '.join(kinds)}", kind)
        return cls(**{"outputs": outputs, **options}, prior=kinds[kind](**prior))

    def head(self, outputs: int) -> Head:
        sd = softplus(self.rho_phi) if self.phi == "learned" else torch.zeros_like(self.log_phi)
        each = (self.expected_phi, self.log_phi, sd)
        noise, log, sds = (tuple(part.detach().expand(outputs).tolist()) for part in each)
        return Head("normal", noise, log, sds)
