"""Response distributions f(mu_i, phi) (eq. 1): what turns a network's output into probabilities of y."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from slabnet.core.errors import Settings, check_number, check_whole, refuse
from slabnet.core.noise import normal_like
from slabnet.maths.divergences import kl_lognormal, kl_lognormal_inverse_gamma, softplus


class Likelihood(nn.Module):
    """How y depends on the network's output. A subclass says how likely y is, and what is predicted."""

    name: str

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        """log p(y_i | output_i), one number a row, in expectation over the dispersion."""
        raise NotImplementedError(f"{type(self).__name__} must give log_prob")

    def total(self, output: Tensor, y: Tensor) -> Tensor:
        """log p of all rows together."""
        return self.log_prob(output, y).sum()

    def mean(self, output: Tensor) -> Tensor:
        """What is averaged over draws: class probabilities, or the mean response."""
        raise NotImplementedError(f"{type(self).__name__} must give its mean")

    def entropy(self, mean: Tensor) -> Tensor | None:
        """Entropy of one row's response given its `mean`; None where uncertainty is told by variances instead."""
        return None

    def votes(self, mean: Tensor) -> Tensor | None:
        """One where a draw decides for a class, in the shape of `mean`; None where nothing is decided."""
        return None

    def noise(self, mean: Tensor) -> Tensor:
        """Variance of the response around its mean, where `entropy` is None."""
        return torch.zeros_like(mean)

    def targets(self, y: Tensor, outputs: int, dtype: torch.dtype, where: str) -> Tensor:
        """`y` in the type and shape that `log_prob` takes, or an error that says what is wrong with it."""
        raise NotImplementedError(f"{type(self).__name__} must check its targets")

    @property
    def learns(self) -> bool:
        """Whether there is a dispersion with a posterior of its own."""
        return False

    def kl(self) -> Tensor:
        """KL of q(phi) from its prior; zero where there is no dispersion to learn."""
        return torch.zeros(())

    def spec(self) -> dict[str, Any]:
        """What `likelihood_from` needs to build this again."""
        return {"name": self.name}


class Categorical(Likelihood):
    """One of K classes; the network gives K logits.

    >>> Categorical().log_prob(torch.zeros(1, 2), torch.tensor([0])).exp().item()
    0.5
    """

    name = "categorical"

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        return -F.cross_entropy(output, y, reduction="none")

    def total(self, output: Tensor, y: Tensor) -> Tensor:
        return -F.cross_entropy(output, y, reduction="sum")

    def mean(self, output: Tensor) -> Tensor:
        return torch.softmax(output, dim=-1)

    def entropy(self, mean: Tensor) -> Tensor:
        each: Tensor = torch.special.entr(mean)
        return each.sum(-1)

    def votes(self, mean: Tensor) -> Tensor:
        return F.one_hot(mean.argmax(-1), mean.shape[-1])

    def targets(self, y: Tensor, outputs: int, dtype: torch.dtype, where: str) -> Tensor:
        y = y.squeeze(-1) if y.ndim == 2 and y.shape[1] == 1 else y
        if y.ndim != 1 or y.is_complex():
            refuse(where, "y", "one class label a row", f"shape {tuple(y.shape)}")
        check_finite(y, where, "y")
        whole = y.long()
        if y.is_floating_point() and bool((whole != y).any()):
            refuse(where, "y", f"class labels, whole numbers from 0 to {outputs - 1}", y[whole != y][0].item())
        outside = (whole < 0) | (whole >= outputs)
        if bool(outside.any()):
            row = int(outside.nonzero()[0, 0])
            refuse(where, "y", f"class labels from 0 to {outputs - 1}", f"{whole[row].item()} in row {row}")
        return whole


class Bernoulli(Likelihood):
    """Yes or no for each output; the network gives logits."""

    name = "bernoulli"

    def log_prob(self, output: Tensor, y: Tensor) -> Tensor:
        _same_shape(output, y)
        return -F.binary_cross_entropy_with_logits(output, y.to(output.dtype), reduction="none").sum(-1)

    def mean(self, output: Tensor) -> Tensor:
        return torch.sigmoid(output)

    def entropy(self, mean: Tensor) -> Tensor:
        both: Tensor = torch.special.entr(mean) + torch.special.entr(1 - mean)
        return both

    def votes(self, mean: Tensor) -> Tensor:
        return (mean > 0.5).long()

    def targets(self, y: Tensor, outputs: int, dtype: torch.dtype, where: str) -> Tensor:
        y = _by_output(y, outputs, where)
        wrong = (y != 0) & (y != 1)
        if bool(wrong.any()):
            refuse(where, "y", "0 or 1", y[wrong][0].item())
        return y.to(dtype)


class LogNormal(Settings):
    """Prior of the variance phi: log phi ~ N(mean, sd^2)."""

    mean: float = 0.0
    sd: float = Field(default=3.0, gt=0)


class InverseGamma(Settings):
    """Prior of the variance phi: InverseGamma(shape, scale)."""

    shape: float = Field(default=1.0, gt=0)
    scale: float = Field(default=1.0, gt=0)


class Gaussian(Likelihood):
    """y ~ N(output, phi), phi the variance, one for each output.

    phi: "learned" has a log-normal posterior whose divergence from `prior` is part of the bound;
    "point" is estimated as one number; a number is kept as it is.

    >>> Gaussian(phi=0.25).expected_phi
    tensor([0.2500])
    """

    name = "gaussian"
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
        _same_shape(output, y)
        expected_precision = torch.exp(-self.log_phi + self._half_variance)
        squared = (y - output) ** 2 * expected_precision
        return -0.5 * (squared + self.log_phi + math.log(2 * math.pi)).sum(-1)

    def mean(self, output: Tensor) -> Tensor:
        return output

    def noise(self, mean: Tensor) -> Tensor:
        return self.expected_phi.to(mean.device).expand_as(mean)

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
        y = _by_output(y, outputs, where).to(dtype)
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


LIKELIHOODS: dict[str, type[Likelihood]] = {c.name: c for c in (Categorical, Bernoulli, Gaussian)}


def likelihood_from(spec: dict[str, Any] | str, outputs: int = 1) -> Likelihood:
    """Build a likelihood from its name, or from what `spec()` gave."""
    options: dict[str, Any] = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = options.pop("name", None)
    if name not in LIKELIHOODS:
        refuse("likelihood", "name", f"one of {', '.join(LIKELIHOODS)}", name)
    if name != "gaussian":
        return LIKELIHOODS[name]()
    prior: dict[str, Any] = {"name": "LogNormal", **options.pop("prior", {})}
    kinds: dict[str, type[LogNormal] | type[InverseGamma]] = {"LogNormal": LogNormal, "InverseGamma": InverseGamma}
    kind = prior.pop("name", None)
    if kind not in kinds:
        refuse("likelihood", "prior", f"one of {', '.join(kinds)}", kind)
    return Gaussian(**{"outputs": outputs, **options}, prior=kinds[kind](**prior))


def _same_shape(output: Tensor, y: Tensor) -> None:
    """Refuse what broadcasting would silently turn into a table of all rows against all rows."""
    if output.shape != y.shape:
        refuse("likelihood", "y", f"of the shape of the outputs, {tuple(output.shape)}", f"shape {tuple(y.shape)}")


def check_finite(values: Tensor, where: str, name: str) -> None:
    """Refuse NaN and infinity, naming the first row that has one."""
    if values.is_floating_point() and not bool(torch.isfinite(values).all()):
        row = int((~torch.isfinite(values)).nonzero()[0, 0])
        refuse(where, name, "finite numbers", f"NaN or infinity in row {row}")


def _by_output(y: Tensor, outputs: int, where: str) -> Tensor:
    y = y.unsqueeze(-1) if y.ndim == 1 else y
    if y.ndim != 2 or y.shape[1] != outputs:
        refuse(where, "y", f"{outputs} number(s) a row, as the network gives", f"shape {tuple(y.shape)}")
    return y
