"""Local search around a chosen model: swap, drop or grow one weight by the change of the bound.

The bound of a model gamma, with q(beta | gamma) of the fit and the likelihood at second order around the means m,

    F(gamma) = log p(y | m) + 1/2 sum_in sigma_j^2 d^2 log p / d w_j^2 - sum_in KL(q_j, slab)
               + sum_in log psi_j + sum_out log(1 - psi_j),

where the second sum is over the weights of the last layer. Where the response is Gaussian and linear in the last layer,
F is the bound itself for the weights of that layer. For other layers the gain of a change is estimated with the
gradient and, as curvature, the diagonal of the Fisher information. Every change is checked by F before it is made, so
that F never falls; what is estimated is only which changes are tried.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from slabnet.config.slabs import GaussianSlab
from slabnet.core.devices import device_of
from slabnet.core.errors import check_whole, refuse
from slabnet.core.records import Selection
from slabnet.maths.divergences import kl_normal
from slabnet.model.attach import likelihood_of
from slabnet.model.drawing import Mask, drawing
from slabnet.model.draws import fixed
from slabnet.model.gated import Gated
from slabnet.model.layers import Linear, SlabLayer
from slabnet.model.mixture import refuse_mixture
from slabnet.model.paths import chain_of
from slabnet.selection.rules import describe, median_model
from slabnet.training.batches import Prepare

GAIN = 1e-6  # nats that a change must bring
MOST = 50  # drops, growths and swaps of a layer that are ranked against those of others


class Change(NamedTuple):
    """A weight to take out, one to put in with its mean and spread, or both; `gain` is what F is expected to gain."""

    gain: float
    layer: int
    out: int = -1  # its place in the layer's weight; -1: none
    into: int = -1
    mu: float = 0.0
    sigma: float = 1.0


def refine(
    net: nn.Module,
    data: tuple[Any, Any],
    selection: Selection | None = None,
    *,
    changes: int = 100,
    tried: int = 20,
    rows: int = 5000,
) -> Selection:
    """Improve a chosen model weight by weight, for as long as the bound rises: drop one, grow one, or swap two.

    Exact for the last layer of a network with a Gaussian response; elsewhere the candidates are ranked by an
    approximation (this module says which), and each is checked before it is made. Weights of linear layers change;
    kernels and intercepts stay. A weight that grows gets its best mean and spread in `net`, so that the refined
    model predicts at once; `fit(net, data, fixed=refined)` then trains all of it.

    selection: the model to begin with; the median model if left out. changes: at most so many.
    tried: how many of the best candidates are computed in full before each change. rows: of `data` that are used.

    >>> from slabnet.model.networks import mlp
    >>> x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    >>> net = mlp((3, 1), likelihood="gaussian", seed=1)
    >>> refine(net, (x, 2 * x[:, :1]), rows=50).masks["body.1"][0].tolist()
    [[True, False, False]]
    """
    refuse_mixture("refine", net)
    for name, number in (("changes", changes), ("tried", tried), ("rows", rows)):
        check_whole("refine", name, number, at_least=1)
    search = _Search(net, data, rows)
    chosen, looked_at = describe(net, (selection or median_model(net)).masks, "refined"), 0
    score = search.score(chosen.masks)
    for _ in range(changes):
        best: tuple[float, Selection, Change] | None = None
        for change in sorted(search.candidates(chosen.masks), reverse=True)[:tried]:
            looked_at += 1
            masks = search.changed(chosen.masks, change)
            with search.grown(change):
                value = search.score(masks)
            if value > (score + GAIN if best is None else best[0]):
                candidate = describe(net, masks, "refined")
                best = best if candidate.feasible is False else (value, candidate, change)
        if best is None:
            break
        score, chosen, change = best
        search.put(change, change.mu, change.sigma)
    return replace(chosen, looked_at=looked_at)


class _Search:
    """F of a model, and the changes of one or two weights that may raise it."""

    def __init__(self, net: nn.Module, data: tuple[Any, Any], rows: int) -> None:
        chain = chain_of(net)
        if chain is None:
            refuse("refine", "net", "a chain of layers with indicators, as mlp and convnet make", type(net).__name__)
        if any(isinstance(link.layer, Gated) or link.layer.weight.omega is None for link in chain):
            refuse("refine", "net", "one with an indicator for every weight and no gates", "another")
        if any(not isinstance(link.layer.prior.slab.settings, GaussianSlab) for link in chain):
            refuse("refine", "net", "one with a Gaussian slab", "another slab")
        likelihood = likelihood_of(net)
        self.net, self.chain, self.likelihood = net, chain, likelihood.at_mean()
        device, dtype = device_of(net)
        x, y = Prepare(net, likelihood, dtype, device, "refine")(*data)
        self.x, self.y = x[:rows], y[:rows]
        self.scale = len(x) / len(self.x)
        net.eval()

    @torch.no_grad()
    def score(self, masks: Mapping[str, Mask]) -> float:
        """F of these masks, but for the sum of log(1 - psi) over all weights, which is the same for all."""
        output, seen, _ = self._pass(masks)
        total = self.scale * float(self.likelihood.log_likelihood(output, self.y).double().sum())
        for link in self.chain:
            total += float((_worth(link.layer) * masks[link.name][0]).sum())
        last = self.chain[-1]
        if last.name in seen:
            spread = self._curvature(self._bend(output), seen[last.name]) * last.layer.weight.sigma.double() ** 2
            total -= 0.5 * float((spread * masks[last.name][0]).sum())
        return total

    def candidates(self, masks: Mapping[str, Mask]) -> list[Change]:
        """What may raise F, each with the gain that is expected of it."""
        with torch.enable_grad():
            output, seen, made = self._pass(masks)
            slopes = torch.autograd.grad(self.likelihood.log_likelihood(output, self.y).sum(), list(made.values()))
        changes: list[Change] = []
        for name, slope in zip(made, slopes, strict=True):
            at = next(at for at, link in enumerate(self.chain) if link.name == name)
            last = at == len(self.chain) - 1
            bend = self._bend(output.detach()) if last else slope.double() ** 2
            changes += self._of_layer(at, masks[name][0], slope.double(), bend, seen[name], last)
        return changes

    @torch.no_grad()
    def _of_layer(self, at: int, mask: Tensor, slope: Tensor, bend: Tensor, x: Tensor, last: bool) -> list[Change]:
        """Drops, growths and swaps in one layer; bend: minus the second derivative by each pre-activation of a row."""
        layer = self.chain[at].layer
        mu, sigma = layer.weight.mu.double(), layer.weight.sigma.double()
        gradient, curvature = self.scale * slope.T @ x, self._curvature(bend, x)
        free = torch.ones_like(mask) if layer.prior.pinned is None else layer.prior.pinned == 0
        drop = -gradient * mu - 0.5 * curvature * mu**2 - _worth(layer)
        drop = (drop + 0.5 * curvature * sigma**2 if last else drop).masked_fill(~(mask & free), -torch.inf)
        closed = mask | ~free
        grow, best, spread = _growth(layer, gradient, curvature, closed)
        changes = [Change(float(drop.view(-1)[j]), at, out=j) for j in _top(drop)]
        for j in _top(grow):
            changes.append(
                Change(float(grow.view(-1)[j]), at, -1, j, float(best.view(-1)[j]), float(spread.view(-1)[j]))
            )
        for i in _top(drop):  # in its place another weight of the same unit, whose gradient is then another
            unit, column = divmod(i, mask.shape[1])
            shared = self.scale * (bend[:, unit] * x[:, column]) @ x
            moved = gradient.clone()
            moved[unit] += shared * mu[unit, column]
            gain, value, width = (part[unit] for part in _growth(layer, moved, curvature, closed))
            j = int(gain.argmax())
            total = float(drop.view(-1)[i] + gain[j])
            changes.append(Change(total, at, i, unit * mask.shape[1] + j, float(value[j]), float(width[j])))
        return [change for change in changes if math.isfinite(change.gain)]

    def changed(self, masks: Mapping[str, Mask], change: Change) -> dict[str, Mask]:
        """The masks after a change."""
        name = self.chain[change.layer].name
        weight = masks[name][0].clone()
        for place, state in ((change.out, False), (change.into, True)):
            if place >= 0:
                weight.view(-1)[place] = state
        return {**masks, name: (weight, *masks[name][1:])}

    @contextmanager
    def grown(self, change: Change) -> Iterator[None]:
        """The weight that a change puts in at its best value, for a block."""
        weight = self.chain[change.layer].layer.weight
        before = float(weight.mu.detach().view(-1)[change.into]), float(weight.sigma.detach().view(-1)[change.into])
        self.put(change, change.mu, change.sigma)
        try:
            yield
        finally:
            self.put(change, *before)

    @torch.no_grad()
    def put(self, change: Change, mu: float, sigma: float) -> None:
        """Give the weight that a change puts in this mean and spread."""
        if change.into >= 0:
            weight = self.chain[change.layer].layer.weight
            weight.mu.view(-1)[change.into] = mu
            weight.rho.view(-1)[change.into] = sigma + math.log(-math.expm1(-sigma))  # softplus of it is sigma

    def _pass(self, masks: Mapping[str, Mask]) -> tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]:
        """The output at the means of this model; of each linear layer what it reads and what it makes."""
        seen: dict[str, Tensor] = {}
        made: dict[str, Tensor] = {}
        hooks = []
        for name, layer in ((link.name, link.layer) for link in self.chain if isinstance(link.layer, Linear)):

            def note(_: nn.Module, given: tuple[Tensor], out: Tensor, name: str = name) -> None:
                seen[name], made[name] = given[0].detach().double(), out

            hooks.append(layer.register_forward_hook(note))
        try:
            with drawing(self.net, fixed(dict(masks))):
                return self.net(self.x), seen, made
        finally:
            for hook in hooks:
                hook.remove()

    def _bend(self, output: Tensor) -> Tensor:
        """Minus the second derivative of each row's log-likelihood by each of its outputs."""
        with torch.enable_grad():
            out = output.detach().double().requires_grad_()
            each = self.likelihood.log_likelihood(out, self.y).sum()
            slope = torch.autograd.grad(each, out, create_graph=True)[0]
            columns = [
                torch.autograd.grad(part.sum(), out, retain_graph=True)[0][:, k] for k, part in enumerate(slope.T)
            ]
        return -torch.stack(columns, 1)

    def _curvature(self, bend: Tensor, x: Tensor) -> Tensor:
        """Minus the second derivative by each weight, never negative."""
        return (self.scale * bend.T @ x**2).clamp_min(0.0)


def _worth(layer: SlabLayer) -> Tensor:
    """What a weight adds to F by being in, the data apart: log psi - log(1 - psi) - KL(q, slab)."""
    sigma, log_s = layer.weight.sigma.double(), torch.tensor(math.log(layer.prior.sigma_beta)).double()
    psi = layer.psi_now().double().expand_as(sigma)
    return torch.logit(psi) - kl_normal(layer.weight.mu.double(), sigma.log(), log_s)


def _growth(layer: SlabLayer, gradient: Tensor, curvature: Tensor, closed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What each weight outside would gain at its best mean and spread, and these; nothing where it is `closed`."""
    s = layer.prior.sigma_beta
    spread = (curvature + 1 / s**2).rsqrt()
    best = gradient * spread**2
    worth = torch.logit(layer.psi_now().double()) - kl_normal(best, spread.log(), torch.tensor(math.log(s)).double())
    gain = gradient * best - 0.5 * curvature * (best**2 + spread**2) + worth
    return gain.masked_fill(closed, -torch.inf), best, spread


def _top(gains: Tensor) -> list[int]:
    """The places of the largest gains."""
    flat = gains.reshape(-1)
    return [int(j) for j in flat.topk(min(MOST, flat.numel())).indices if math.isfinite(float(flat[j]))]
