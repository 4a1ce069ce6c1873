"""The evidence lower bound (Prop. 1, eq. estloss), its two terms apart.

`log_likelihood` is n/N * sum over the batch, averaged over M draws; `kl` is summed over all weights and
the dispersion, never averaged over layers or batches. Their difference estimates the bound.
"""

from __future__ import annotations

from functools import partial
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from slabnet.core.errors import check_choice, check_whole, refuse
from slabnet.core.noise import Seed, keyed_generator
from slabnet.model.drawing import WHOLE, Draw, Drawable, Layers, Place, Scope, drawable_layers, drawing, mean
from slabnet.model.draws import Fixed, Score, local
from slabnet.model.likelihoods import Likelihood, Response
from slabnet.model.mixture import Mixture


class Terms(NamedTuple):
    """The two terms of the bound, and a third that is zero in value and carries the score gradient."""

    log_likelihood: Tensor
    kl: Tensor
    score: Tensor

    @property
    def elbo(self) -> Tensor:
        return self.log_likelihood - self.kl


class RunningMean:
    """A baseline for the score estimator: what the log-likelihood was in earlier steps (Remark 2.1)."""

    def __init__(self, decay: float = 0.9) -> None:
        self.decay = decay
        self.mean: Tensor | None = None

    def get(self, like: Tensor) -> Tensor:
        return torch.zeros_like(like) if self.mean is None else self.mean

    def update(self, seen: Tensor) -> None:
        self.mean = seen if self.mean is None else self.decay * self.mean + (1 - self.decay) * seen


def kl(net: nn.Module, likelihood: Likelihood | None = None) -> Tensor:
    """KL of the whole posterior from the prior: every layer, and the dispersion if a likelihood is given.

    Closed form where there is one, else quadrature. For a mixture the mean over its members, which lies at most log K
    above the divergence of the mixture itself.
    """
    if isinstance(net, Mixture):
        parts = [w * kl(member, likelihood) for w, member in zip(net.weights, net.members, strict=True)]
        return torch.stack(parts).sum()
    scope = Scope(mean, None)
    terms = [layer.divergence(scope, sampled=False) for layer in drawable_layers(net).values()]
    if likelihood is not None:
        terms.append(likelihood.kl())
    return _total(terms)


def elbo(
    net: nn.Module,
    likelihood: Likelihood,
    x: Tensor,
    y: Response,
    *,
    n: int,
    seed: Seed,
    draw: Draw = local,
    samples: int = 1,
    kl: Literal["exact", "sampled"] = "exact",
    kl_weight: float = 1.0,
    baseline: RunningMean | None = None,
    layers: Layers | None = None,
    place: Place = WHOLE,
) -> Terms:
    """Estimate the bound from a batch of N of n rows with `samples` joint draws (eq. estloss).

    y: the responses of the batch, or a `Target` where rows have weights, exposures or events.
    kl_weight: what the divergence will be multiplied with; it matters here only where a sampled divergence is part
    of the signal of the score. layers: what `drawable_layers(net)` gives, where a loop has it already.
    place: where these rows stand in a batch that several processes share (`distributed.py`).
    seed: pass a generator in a loop; a number gives the same noise every time.
    A mixture gives the mean over its members, weighted: its own bound is larger, by at most log K.

    With the `score` draw the term `score` must be added to what is maximised: it has value zero, and the
    gradient (f_m - c_m) * d log q(gamma_m). The control variate c_m is the mean of f over the other draws
    when there are several, else `baseline`.
    """
    _check(x, n, draw, samples, kl)
    if isinstance(net, Mixture):
        generator = keyed_generator(seed, device=x.device) if isinstance(seed, int) else seed
        one = partial(elbo, n=n, seed=generator, draw=draw, samples=samples, kl=kl, kl_weight=kl_weight, place=place)
        return _over_members(net, [one(member, likelihood, x, y, baseline=baseline) for member in net.members])
    drawables = drawable_layers(net) if layers is None else layers
    parts = list(drawables.values())
    sampled = kl == "sampled" or (draw.random and draw.draws_weights and not all(part.closed_form for part in parts))
    if isinstance(seed, int):
        seed = keyed_generator(seed, device=x.device)
    scaled, divergences, log_qs = [], [], []
    for m in range(samples):
        with drawing(drawables, draw, seed, m, kl, place) as scope:
            output = net(x)
            scaled.append(likelihood.total(output, y) * (n / len(x)))
            if sampled or m == 0:
                divergence = _divergence(scope, parts, kl, sampled).to(scaled[0].device)
                divergences.append(divergence + likelihood.kl().to(divergence) if likelihood.learns else divergence)
            if _by_score(draw):
                log_qs.append(scope.log_q_gamma().to(scaled[0].device))
    log_likelihood, divergence = _mean(scaled), _mean(divergences)
    score = log_likelihood.new_zeros(())
    if log_qs:
        signals = torch.stack(scaled).detach() - (kl_weight * torch.stack(divergences).detach() if sampled else 0.0)
        surrogate = (_centred(signals, baseline) * torch.stack(log_qs)).mean()
        score = surrogate - surrogate.detach()
    return Terms(log_likelihood, divergence, score)


def _over_members(net: Mixture, each: list[Terms]) -> Terms:
    """sum_k w_k of each term."""
    weights = net.weights
    return Terms(*((torch.stack(list(terms)) * weights).sum() for terms in zip(*each, strict=True)))


def _check(x: Tensor, n: int, draw: Draw, samples: int, kl: str) -> None:
    check_choice("elbo", "kl", kl, ("exact", "sampled"))
    if kl == "sampled" and not draw.draws_weights:
        refuse("elbo", "kl", f'"exact" with the draw {draw.name}, which draws no weights', kl)
    if kl == "sampled" and not draw.random:
        refuse("elbo", "kl", f'"exact" with the draw {draw.name}, which draws nothing', kl)
    check_whole("elbo", "samples", samples, at_least=1)
    if check_whole("elbo", "n", n, at_least=1) < len(x):
        refuse("elbo", "n", f"at least the size of the batch, {len(x)}", n)
    if len(x) == 0:
        refuse("elbo", "x", "at least one row", f"shape {tuple(x.shape)}")


def _by_score(draw: Draw) -> bool:
    return isinstance(draw.base if isinstance(draw, Fixed) else draw, Score)


def _divergence(scope: Scope, layers: list[Drawable], kind: str, sampled: bool) -> Tensor:
    """The KL as the pass sees it: sampled where that is asked for, or where there is no closed form."""
    terms = []
    for layer in layers:
        terms.append(layer.divergence(scope, kind == "sampled" or (sampled and not layer.closed_form)))
    return _total(terms)


def _centred(signals: Tensor, baseline: RunningMean | None) -> Tensor:
    """f_m - c_m with a c_m that does not depend on draw m."""
    samples = len(signals)
    if samples > 1:
        return (signals - signals.mean()) * (samples / (samples - 1))  # equals f_m - mean of the others
    before = torch.zeros_like(signals) if baseline is None else baseline.get(signals)
    if baseline is not None:
        baseline.update(signals)
    return signals - before


def _mean(values: list[Tensor]) -> Tensor:
    return values[0] if len(values) == 1 else torch.stack(values).mean()


def _total(terms: list[Tensor]) -> Tensor:
    if not terms:
        return torch.zeros(())
    total, *others = terms
    for term in others:
        total = total + term.to(total.device)
    return total
