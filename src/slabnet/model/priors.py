"""The prior of one layer (eq. 3): a slab for the weights that are in it, and the chance psi of being in it.

What a user writes is `config.Prior`; `layer_prior` makes of it what one layer holds.
"""

from __future__ import annotations

import copy
import hashlib
import math
from collections.abc import Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from slabnet.config.priors import Beta, InverseGamma, Prior
from slabnet.config.slabs import SLABS, SlabSettings, slab_settings, slab_spec
from slabnet.core.errors import refuse
from slabnet.kernels.dispatch import Divergence, Parts
from slabnet.kernels.sparse_local import Left
from slabnet.maths.divergences import kl_bernoulli, kl_beta, kl_inverse_gamma
from slabnet.model.posteriors import Block, Drawn, log_q_beta, log_q_gamma
from slabnet.model.prior_columns import Again, again_pins, again_psi, each_psi, per_input, pins
from slabnet.model.slabs import slab_of
from slabnet.model.slabs.base import Moments, total
from slabnet.model.slabs.gaussian import Gaussian

AT_PRIOR = 0.01  # nats: of 50 x 50 weights that carry nothing most lie below 1e-6, of those that do above 0.3


def layer_prior(
    prior: Prior, index: int, layers: int, shape: tuple[int, ...], groups: int = 1, again: Again | None = None
) -> LayerPrior:
    """The part of `prior` that layer `index` of `layers` holds; inputs are dimension 1 of its weight."""
    first = index == 0
    given = per_input(prior.input_psi, shape, groups) if first else None
    pinned = pins(prior, shape, groups) if first else None
    if again is not None:
        given = again_psi(prior, index, layers, shape, again)
        pinned = again_pins(prior, shape, again)
    if prior.by_weight:
        given = each_psi(prior, index, shape)
    return LayerPrior(
        psi=prior.inclusion(index, layers),
        sigma_beta=prior.scale(index, layers),
        slab=prior.slab,
        input_psi=given,
        pinned=pinned,
        intercept_psi=prior.intercept_inclusion(index, layers),
    )


class LayerPrior(nn.Module):
    """The prior of one layer: the weights and the intercepts together.

    input_psi: psi of single weights, NaN for those that have the layer's own. intercept_psi: psi of the intercepts,
    None where it is that of the layer.
    """

    log_input_psi: Tensor | None
    log_not_input_psi: Tensor | None
    pinned: Tensor | None
    log_sigma_beta: nn.Parameter | None

    def __init__(
        self,
        psi: float | Beta,
        sigma_beta: float | Literal["learned"] | InverseGamma,
        slab: SlabSettings | str,
        input_psi: Tensor | None,
        pinned: Tensor | None,
        intercept_psi: float | None = None,
    ) -> None:
        super().__init__()
        settings = slab_settings(slab)
        if settings is None:
            refuse("LayerPrior", "slab", f"one of {', '.join(SLABS)}, or the settings of one", slab)
        self.psi, self.slab, self.intercept_psi = psi, slab_of(settings), intercept_psi
        self.scale_prior = sigma_beta if isinstance(sigma_beta, InverseGamma) else None
        fixed = isinstance(sigma_beta, float)
        self._plain = not isinstance(psi, Beta) and fixed and input_psi is None
        self._log_scale = math.log(sigma_beta) if isinstance(sigma_beta, float) else 0.0
        if self.scale_prior is not None:
            self._log_scale = 0.5 * math.log(self.scale_prior.scale / self.scale_prior.shape)
            if not isinstance(self.slab, Gaussian):
                refuse("LayerPrior", "slab", "gaussian where sigma_beta is InverseGamma", slab_spec(settings))
        if input_psi is not None and not isinstance(psi, Beta):
            input_psi = input_psi.nan_to_num(psi)
        self._made: dict[tuple[torch.dtype, torch.device], _Numbers] = {}
        logs = None if input_psi is None else (input_psi.log().float(), torch.log1p(-input_psi).float())
        self.register_buffer("log_input_psi", None if logs is None else logs[0], persistent=False)
        self.register_buffer("log_not_input_psi", None if logs is None else logs[1], persistent=False)
        self.register_buffer("pinned", pinned, persistent=False)
        self.register_parameter("log_sigma_beta", nn.Parameter(torch.zeros(())) if sigma_beta == "learned" else None)

    def __init_subclass__(cls) -> None:
        """Refused: densities of one's own are a `Slab`, which passes, files and exports then know."""
        refuse("LayerPrior", "a prior of your own", "a Slab with register_slab", f"the subclass {cls.__name__}")

    def part(self, units: Tensor, inputs: Tensor) -> LayerPrior:
        """The prior of the weights between these units and inputs (masks) of a linear layer."""
        made = copy.copy(self)
        made._buffers = dict(self._buffers)
        for name, values in self._buffers.items():
            made._buffers[name] = None if values is None else values[units][:, inputs].contiguous()
        return made

    def spec(self) -> dict[str, Any]:
        """What this prior is, as plain numbers and text: a file of a converted module keeps it for comparison."""
        psi = self.psi.model_dump() if isinstance(self.psi, Beta) else self.psi
        slab = slab_spec(self.slab.settings)
        scale: Any = "learned" if self.log_sigma_beta is not None else self.sigma_beta
        scale = scale if self.scale_prior is None else self.scale_prior.model_dump()
        single = {"input_psi": self.log_input_psi, "pinned": self.pinned}
        given = {} if self.intercept_psi is None else {"intercept_psi": self.intercept_psi}
        made = {"psi": psi, "sigma_beta": scale, "slab": slab} | given
        return made | {name: _digest(t) for name, t in single.items()}

    @property
    def sigma_beta(self) -> float:
        """The scale of the slab, as it stands; with a posterior of its own, what the prior of it expects."""
        return math.exp(self._log_scale if self.log_sigma_beta is None else float(self.log_sigma_beta.detach()))

    @property
    def counts(self) -> bool:
        """Whether something in this prior is learned from the alphas themselves."""
        return isinstance(self.psi, Beta) or self.scale_prior is not None

    def scale_now(self, blocks: Sequence[Block]) -> float:
        """The scale of the slab given the weights of the layer, E[1 / sigma_beta^2]^(-1/2)."""
        return math.exp(float(self._scale(blocks).log_s.detach()))

    def _scale(self, blocks: Sequence[Block]) -> Scale:
        """log sigma_beta, and of one with a posterior of its own the price and what each weight pays more."""
        like = blocks[0].mu
        if self.scale_prior is not None:
            return scale_posterior(self.scale_prior, blocks, like)
        log_s = self._numbers(like.dtype, like.device).scale if self.log_sigma_beta is None else self.log_sigma_beta
        return Scale(log_s, None, None)

    def _numbers(self, dtype: torch.dtype, device: torch.device) -> _Numbers:
        """The numbers of this prior as tensors, made once: every step asks for them in every layer."""
        key = (dtype, device)
        if key not in self._made:
            psi = 0.5 if isinstance(self.psi, Beta) else self.psi  # a learned psi is not asked for here
            chances = (psi, psi if self.intercept_psi is None else self.intercept_psi)
            values = (*(log for chance in chances for log in (math.log(chance), math.log1p(-chance))), self._log_scale)
            with torch.inference_mode(False):  # a tensor made in inference mode could not be used in training
                on, off, b_on, b_off, scale = (torch.tensor(value, dtype=dtype, device=device) for value in values)
            self._made[key] = _Numbers((on, off), (b_on, b_off), scale)
        return self._made[key]

    @property
    def closed_form(self) -> bool:
        """Whether the divergence of the posterior from this prior has a closed form."""
        return self.slab.closed_form

    def psi_now(self, blocks: Sequence[Block]) -> Tensor:
        """psi of each weight (not intercept) as it stands: itself, unless learned."""
        log_psi, log_not_psi = self._chances(blocks)[0][0]
        return torch.sigmoid(log_psi - log_not_psi)

    def log_not_psi(self, blocks: Sequence[Block]) -> Tensor:
        """log(1 - psi) of each weight (not intercept) as it stands, 0 where it was decided."""
        if self._plain and blocks[0].pinned is None:
            return self._numbers(blocks[0].mu.dtype, blocks[0].mu.device).weight[1]
        return self._inclusion(blocks)[0][0][1]

    def resting_alpha(self, blocks: Sequence[Block]) -> Tensor:
        """Where alpha of each weight (not intercept) rests when the data say nothing: psi, if the slab is normal."""
        log_psi, log_not_psi = self._inclusion(blocks)[0][0]
        return torch.sigmoid(log_psi - log_not_psi - self.slab.resting)

    def parts(self, blocks: Sequence[Block]) -> tuple[list[Parts], Tensor | None]:
        """What the passes take of each block and of this prior, and the price of a learned psi."""
        mu = blocks[0].mu
        if self._plain and blocks[0].pinned is None and blocks[-1].pinned is None:  # the usual case: numbers for all
            weight, intercept, scale = self._numbers(mu.dtype, mu.device)
            pairs = zip(blocks, (weight, intercept), strict=False)
            return [(b[0], b[1], b[2], *log, scale) for b, log in pairs], None
        logs, extra = self._inclusion(blocks)
        log_s = self._scale(blocks).log_s
        return [(b.mu, b.rho, b.omega, *log, log_s) for b, log in zip(blocks, logs, strict=True)], extra

    def moments(self, blocks: Sequence[Block]) -> tuple[Moments, Tensor | None]:
        """Mean and variance of each block's weights, and the divergence where it costs nothing more."""
        parts, extra = self.parts(blocks)
        made, terms = self.slab.moments(parts)
        return made, None if terms is None else _sum(extra, terms)

    def local_linear(
        self, blocks: Sequence[Block], x: Tensor, seed: Tensor, first_row: int = 0
    ) -> tuple[Tensor, Tensor] | None:
        """A linear layer under local reparametrisation and its divergence in one go, where there is such a pass."""
        parts, extra = self.parts(blocks)
        made = self.slab.local_linear(x, parts, seed, first_row)
        return None if made is None else (made[0], _sum(extra, [made[1]]))

    def sparse_local(
        self, blocks: Sequence[Block], x: Tensor, left: Left, seed: Tensor
    ) -> tuple[Tensor, Tensor] | None:
        """The same of a linear layer of which few weights are left."""
        parts, extra = self.parts(blocks)
        made = self.slab.sparse_local(x, parts, left, seed)
        return None if made is None else (made[0], _sum(extra, [made[1]]))

    def draw(
        self, blocks: Sequence[Block], seeds: Sequence[Tensor], delta: float, hard: bool, kl: Divergence
    ) -> tuple[list[Tensor], Tensor] | None:
        """A relaxed or straight-through draw of each block, and the divergence in the same pass, where there is one."""
        parts, extra = self.parts(blocks)
        made = self.slab.draw(parts, seeds, delta, hard, kl, [block.places for block in blocks])
        return None if made is None else (made[0], _sum(extra, made[1]))

    def kl(self, blocks: Sequence[Block]) -> Tensor:
        """KL of q from this prior, summed over the blocks of the layer, in closed form or by quadrature."""
        logs, extra = self._inclusion(blocks)
        total = blocks[0].mu.new_zeros(()) if extra is None else extra
        log_s = self._scale(blocks).log_s
        for block, (log_psi, log_not_psi) in zip(blocks, logs, strict=True):
            total = total + self.slab.block_kl(block, log_psi, log_not_psi, log_s)
        return total

    @torch.no_grad()
    def weight_kl(self, blocks: Sequence[Block]) -> list[Tensor]:
        """`each_kl` as numbers."""
        return self.each_kl(blocks)

    def each_kl(self, blocks: Sequence[Block]) -> list[Tensor]:
        """KL of q(beta, gamma) of each single weight from its prior (eq. 3 and 6), block by block."""
        each, log_s = [], self._scale(blocks).log_s
        for block, (log_psi, log_not_psi) in zip(blocks, self._inclusion(blocks)[0], strict=True):
            slab = self.slab.weight_divergence(block, log_s)
            if block.omega is None:
                each.append(slab)
                continue
            each.append(kl_bernoulli(block.omega, log_psi, log_not_psi) + torch.sigmoid(block.omega) * slab)
        return each

    def informed(self, blocks: Sequence[Block]) -> list[Tensor]:
        """Of each block, the weights whose posterior the data have moved away from the prior.

        A weight that the data say nothing about rests where its divergence is least: at alpha = psi, mu = 0, sigma =
        sigma_beta, where that is zero, if the slab is Gaussian. Within AT_PRIOR nats of that, it says what was said
        before any data, whatever psi is. Decided indicators count as moved, and so does every weight of a block
        without indicators.
        """
        masks = []
        for block, kl, (on, off) in zip(blocks, self.weight_kl(blocks), self._inclusion(blocks)[0], strict=True):
            least = -torch.logaddexp(on - self.slab.resting, off)
            moved = torch.ones_like(kl, dtype=torch.bool) if block.omega is None else ~(kl - least <= AT_PRIOR)
            masks.append(moved if block.pinned is None else moved | block.pinned)
        return masks

    def sampled_kl(self, blocks: Sequence[Block], drawn: Sequence[Drawn]) -> Tensor:
        """log q - log p at the very gamma and beta that were drawn (eq. estloss), relaxed gamma included.

        A draw that leaves beta at its mean drew no noise for it: its part of the divergence is then averaged over beta.
        """
        logs, extra = self._inclusion(blocks)
        total = blocks[0].mu.new_zeros(()) if extra is None else extra
        log_s = self._scale(blocks).log_s
        for block, one, (log_psi, log_not_psi) in zip(blocks, drawn, logs, strict=True):
            if one.eps is None:
                slab = self.slab.weight_divergence(block, log_s)
            else:
                slab = log_q_beta(block, one.eps) - self.slab.log_density(one.beta, log_s)
            if one.gamma is None:
                total = total + slab.sum()
                continue
            prior = one.gamma * log_psi + (1 - one.gamma) * log_not_psi
            if block.pinned is not None:
                prior = prior.masked_fill(block.pinned, 0.0)
            total = total + log_q_gamma(block, one.gamma) - prior.sum() + (one.gamma * slab).sum()
        return total

    def _inclusion(self, blocks: Sequence[Block]) -> tuple[list[tuple[Tensor, Tensor]], Tensor | None]:
        """Per block (E log psi, E log(1 - psi)), nothing charged where pinned; and the price of what is learned.

        What each weight pays for a scale that is not known for sure comes off its E log psi.
        """
        logs, extra = self._chances(blocks)
        scale = self._scale(blocks) if self.scale_prior is not None else None
        if scale is None or scale.price is None or scale.more is None:
            return logs, extra
        certain = [block.mu.numel() for block in blocks if block.omega is None]  # there is no psi that they pay
        extra = scale.price + sum(certain) * scale.more + (0.0 if extra is None else extra)
        return [(on - scale.more, off) for on, off in logs], extra

    def _chances(self, blocks: Sequence[Block]) -> tuple[list[tuple[Tensor, Tensor]], Tensor | None]:
        """Per block (E log psi, E log(1 - psi)), nothing charged where pinned; and the price of a learned psi."""
        mu = blocks[0].mu
        extra = None
        if isinstance(self.psi, Beta):
            charged = blocks if self.intercept_psi is None else blocks[:1]  # what this psi is the chance of
            if self.log_input_psi is not None:
                charged = _where_open(charged, ~self.log_input_psi.isnan())
            log_psi, log_not_psi, extra = beta_posterior(self.psi, charged, mu)
        else:
            log_psi, log_not_psi = self._numbers(mu.dtype, mu.device).weight
        logs = []
        for position, block in enumerate(blocks):
            on, off = log_psi, log_not_psi
            if position == 1 and self.intercept_psi is not None:
                on, off = self._numbers(mu.dtype, mu.device).intercept
            if position == 0 and self.log_input_psi is not None and self.log_not_input_psi is not None:
                on, off = self.log_input_psi.to(mu.dtype), self.log_not_input_psi.to(mu.dtype)
                if isinstance(self.psi, Beta):
                    on, off = torch.where(on.isnan(), log_psi, on), torch.where(off.isnan(), log_not_psi, off)
            if block.pinned is not None:  # a decided indicator has prior probability one
                on, off = (v.expand_as(block.mu).masked_fill(block.pinned, 0.0) for v in (on, off))
            logs.append((on, off))
        return logs, extra


class _Numbers(NamedTuple):
    """(log psi, log(1 - psi)) of weights and of intercepts, and log sigma_beta."""

    weight: tuple[Tensor, Tensor]
    intercept: tuple[Tensor, Tensor]
    scale: Tensor


class Scale(NamedTuple):
    """log sigma_beta; with a posterior of its own, KL(IG || IG), and what each weight that is in pays more.

    A slab of scale exp(log_s), 1 / exp(log_s)^2 = E[1 / sigma_beta^2], has E log sigma_beta^2 too low by
    log a - digamma(a); half of that is `more`.
    """

    log_s: Tensor
    price: Tensor | None
    more: Tensor | None


def scale_posterior(prior: InverseGamma, blocks: Sequence[Block], like: Tensor) -> Scale:
    """q(sigma_beta^2) = IG(a + sum alpha / 2, b + sum alpha (mu^2 + sigma^2) / 2), the best one given the weights.

    It is held constant: at its optimum the bound has no slope in it.
    """
    with torch.no_grad():
        count = squares = torch.zeros((), dtype=torch.float64)
        for block in blocks:
            alpha = torch.ones_like(block.mu) if block.omega is None else torch.sigmoid(block.omega)
            if block.counted is not None:
                alpha = block.counted[0] if block.pinned is None else torch.where(block.pinned, alpha, block.counted[0])
            count = count + alpha.cpu().sum(dtype=torch.float64)
            second = alpha * (block.mu**2 + torch.nn.functional.softplus(block.rho) ** 2)
            squares = squares + second.cpu().sum(dtype=torch.float64)
        a, b = prior.shape + count / 2, prior.scale + squares / 2
        price = kl_inverse_gamma(a, b, torch.full_like(a, prior.shape), torch.full_like(b, prior.scale))
        more = 0.5 * (a.log() - torch.digamma(a))
        return Scale((0.5 * (b / a).log()).to(like), price.to(like), more.to(like))


def _sum(extra: Tensor | None, terms: list[Tensor]) -> Tensor:
    return total(terms) if extra is None else total([extra, *terms])


def beta_posterior(beta: Beta, blocks: Sequence[Block], like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """q(psi) = Beta(a + sum alpha, b + sum (1 - alpha)), the best one given alpha.

    It is held constant: at its optimum the bound has no slope in it, so alpha's gradient is unchanged.
    """
    with torch.no_grad():
        on = off = torch.zeros((), dtype=torch.float64)  # on the CPU: not every device has float64
        for block in blocks:
            if block.omega is None:
                continue
            free = torch.ones_like(block.mu, dtype=torch.bool) if block.pinned is None else ~block.pinned
            counted = block.counted or (torch.sigmoid(block.omega), torch.sigmoid(-block.omega))
            on = on + counted[0][free].cpu().sum(dtype=torch.float64)
            off = off + counted[1][free].cpu().sum(dtype=torch.float64)
        a, b = on + beta.a, off + beta.b
        total = torch.digamma(a + b)
        price = kl_beta(a, b, torch.full_like(a, beta.a), torch.full_like(b, beta.b))
        return (torch.digamma(a) - total).to(like), (torch.digamma(b) - total).to(like), price.to(like)


def _where_open(blocks: Sequence[Block], given: Tensor) -> list[Block]:
    """The blocks of a layer, the weights whose psi is given counted as decided."""
    first = blocks[0]
    return [first._replace(pinned=given if first.pinned is None else first.pinned | given), *blocks[1:]]


def _digest(values: Tensor | None) -> str | None:
    if values is None:
        return None
    return hashlib.sha256(values.detach().cpu().float().numpy().tobytes()).hexdigest()[:16]
