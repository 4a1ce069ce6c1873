"""The variational posterior of a block of weights (eq. 5 and 6): its parameters, moments and draws.

A *block* is all the weights of a layer, or all its intercepts. `SpikeSlab` and `Gaussian` hold the
parameters; the functions below are pure and work on `Block`, the view of them that a pass is given.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from slabnet.config.settings import Start
from slabnet.kernels import noise_like
from slabnet.kernels.reference import relaxed_indicator
from slabnet.maths.divergences import log_softplus, softplus

PIN = 1e4  # sigmoid(+-1e4) is exactly 1 or 0 in every float type


class Block(NamedTuple):
    """What one pass sees of a block: `omega` is None where every weight is certain to be in the network."""

    mu: Tensor
    rho: Tensor
    omega: Tensor | None
    pinned: Tensor | None = None  # True where gamma was decided beforehand and costs nothing
    places: Tensor | None = None  # where each weight stood in the block its noise belongs to, if the block was cut
    counted: tuple[Tensor, Tensor] | None = None  # below a gate: in and out as a learned psi counts them


class Posterior(nn.Module):
    """Parameters mu, rho and (for spike-and-slab) omega of one block."""

    mu: nn.Parameter
    rho: nn.Parameter
    omega: nn.Parameter | None

    def __init__(self, shape: tuple[int, ...], indicators: bool) -> None:
        super().__init__()
        self.mu = nn.Parameter(torch.zeros(shape))
        self.rho = nn.Parameter(torch.zeros(shape))
        self.register_parameter("omega", nn.Parameter(torch.zeros(shape)) if indicators else None)

    def reset(self, start: Start, fan_in: int, generator: torch.Generator) -> None:
        """Draw starting values; He's scale for mu unless `start` gives a range."""
        with torch.no_grad():
            if isinstance(start.mu, str):
                self.mu.normal_(0.0, (2.0 / max(fan_in, 1)) ** 0.5, generator=generator)
            else:
                self.mu.uniform_(*start.mu, generator=generator)
            self.rho.uniform_(*start.rho, generator=generator)
            if self.omega is not None:
                self.omega.uniform_(*start.omega, generator=generator)

    @property
    def alpha(self) -> Tensor:
        """Inclusion probability of each weight."""
        return torch.ones_like(self.mu) if self.omega is None else torch.sigmoid(self.omega)

    @property
    def sigma(self) -> Tensor:
        """Standard deviation of each weight that is in the network."""
        return softplus(self.rho)

    def block(self) -> Block:
        parameters = self._parameters  # not by attribute: torch looks those up slowly, and every step asks
        return Block(parameters["mu"], parameters["rho"], parameters["omega"])  # type: ignore[arg-type]

    def extra_repr(self) -> str:
        return "x".join(str(size) for size in self.mu.shape)


class SpikeSlab(Posterior):
    """gamma ~ Bernoulli(alpha), beta | gamma = 1 ~ N(mu, sigma^2) (eq. 6)."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape, indicators=True)


class Gaussian(Posterior):
    """beta ~ N(mu, sigma^2), every indicator one."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        super().__init__(shape, indicators=False)


class Drawn(NamedTuple):
    """One draw of a block. `gamma` is None where every indicator is one; `eps` None where beta is a mean."""

    value: Tensor
    gamma: Tensor | None
    beta: Tensor
    eps: Tensor | None


def pin(block: Block, pinned: Tensor, on: Tensor) -> Block:
    """Decide gamma beforehand where `pinned`: 1 where `on`, else 0."""
    decided = torch.where(on, PIN, -PIN).to(block.mu.dtype)
    if block.omega is None:  # every other weight is certain to be in, and stays so
        return block._replace(omega=decided.masked_fill(~pinned, PIN), pinned=torch.ones_like(pinned))
    both = pinned if block.pinned is None else pinned | block.pinned
    return block._replace(omega=torch.where(pinned, decided, block.omega), pinned=both)


def draw_mean(block: Block) -> Drawn:
    """The posterior mean alpha*mu (supplement B)."""
    value = block.mu if block.omega is None else torch.sigmoid(block.omega) * block.mu
    return Drawn(value, None, value, None)


def draw_median(block: Block, threshold: float, seed: Tensor | None) -> Drawn:
    """gamma = 1 where alpha > threshold; beta drawn, or its mean where there is no seed."""
    beta, eps = (block.mu, None) if seed is None else _slab(block, seed)[:2]
    if block.omega is None:
        return Drawn(beta, None, beta, eps)
    gamma = (torch.sigmoid(block.omega) > threshold).to(block.mu.dtype)
    return Drawn(gamma * beta, gamma, beta, eps)


def draw_exact(block: Block, seed: Tensor) -> Drawn:
    """gamma ~ Bernoulli(alpha), beta ~ N(mu, sigma^2): one step of Algorithm 1 or 2."""
    beta, eps, nu = _slab(block, seed)
    if block.omega is None:
        return Drawn(beta, None, beta, eps)
    gamma = (nu < torch.sigmoid(block.omega)).to(block.mu.dtype)
    return Drawn(gamma * beta, gamma, beta, eps)


def draw_relaxed(block: Block, delta: float, hard: bool, seed: Tensor) -> Drawn:
    """gamma = sigmoid((omega - logit(nu)) / delta) (Prop. 2); `hard` rounds it in the forward pass only."""
    beta, eps, nu = _slab(block, seed)
    if block.omega is None:
        return Drawn(beta, None, beta, eps)
    gamma = relaxed_indicator(block.omega, nu, delta, hard)
    return Drawn(gamma * beta, gamma, beta, eps)


def log_q_gamma(block: Block, gamma: Tensor) -> Tensor:
    """log q(gamma) summed over the block, without what was pinned; its gradient is the score."""
    if block.omega is None:
        return block.mu.new_zeros(())
    logsigmoid = torch.nn.functional.logsigmoid
    each = gamma * logsigmoid(block.omega) + (1 - gamma) * logsigmoid(-block.omega)
    return (each if block.pinned is None else each.masked_fill(block.pinned, 0.0)).sum()


def log_q_beta(block: Block, eps: Tensor) -> Tensor:
    """log N(beta; mu, sigma^2) at beta = mu + sigma*eps, per weight, finite however small sigma is."""
    return -0.5 * (eps * eps + _LOG_2PI) - log_softplus(block.rho)


_LOG_2PI = 1.8378770664093453


def _slab(block: Block, seed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    eps, nu = noise_like(block.mu, seed, block.places)
    return block.mu + softplus(block.rho) * eps, eps, nu
