"""Training on what is alive: neurons that carry nothing are taken out of the computation, not out of the model.

From the outputs backwards, a neuron (of a convolution: a channel) is dead if the expected weights it sends to living
neurons, squared and added up, stay under `EPSILON`, none of them is in the median model, and the data have spoken
against them: their alphas are on average under half of psi. (Where data are few, alphas rest at psi and nothing is
dead. The expected squared weight
would add their variances: noise that the bound tolerates on purpose, and that is no signal.) An input is unread if its
mean square times the expected squared weights to living neurons stays under `EPSILON`, even with those weights at the
prior, and the data have spoken for none of them.

Dead parts get the values that the bound wants once they are dead, in the full network: what goes into a dead neuron
or comes from an unread input returns to the prior, where its divergence is zero; what a dead neuron sends to living
ones is out (alpha = 0, divergence -log(1 - psi) each), or it would disturb them. The rest is copied into a small
network, trained there, and copied back after each epoch.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from slabnet.config.settings import Beta, TrainConfig
from slabnet.core.records import Cut
from slabnet.model.drawing import Draw
from slabnet.model.elbo import elbo, kl
from slabnet.model.elementwise import Mixed
from slabnet.model.gated import Gated
from slabnet.model.layers import Linear, SlabLayer
from slabnet.model.layers.conv import ConvNd
from slabnet.model.likelihoods import Likelihood, Response
from slabnet.model.paths import Link, chain_of, flat_parts
from slabnet.model.posteriors import Posterior
from slabnet.model.priors import LayerPrior
from slabnet.model.skips import Fork, chained
from slabnet.training.optimiser import FusedAdam, make_optimiser

EPSILON = 1e-2  # squared signal to all living neurons together, below which a neuron carries nothing
SPOKEN_FOR = 0.05  # how far above psi the data must have raised alpha to have spoken for a weight
SPOKEN_AGAINST = 0.5  # share of psi under which the data have pressed the alphas of what a dead neuron sends
FEWEST = 50_000  # weights from which on cutting is worth its while
OUT = -30.0  # omega of a weight that is out: alpha = 1e-13
ROWS = 1000  # rows on which the change of the log-likelihood is estimated


@dataclass(frozen=True)
class Alive:
    """Which inputs, and which units of each layer, are left."""

    inputs: Tensor
    units: tuple[Tensor, ...]

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(int(mask.sum()) for mask in (self.inputs, *self.units))

    def of(self, index: int, link: Link) -> tuple[Tensor, Tensor]:
        """Masks of the units and of the inputs of layer number `index`; some of these may be the network's, again."""
        before = self.inputs if index == 0 else self.units[index - 1]
        features = link.layer.weight.mu.shape[1] - link.again
        before = before.repeat_interleave(features // len(before))  # of a map that was flattened each place is one
        return self.units[index], torch.cat([before, self.inputs]) if link.again else before


class Cutter:
    """Keeps the full network and its optimiser, and trains a small one in their place."""

    def __init__(
        self, net: nn.Module, likelihood: Likelihood, optimiser: FusedAdam, config: TrainConfig, power: Tensor | None
    ) -> None:
        self.net, self.likelihood, self.optimiser, self.config = net, likelihood, optimiser, config
        self.power = power  # mean square of each input; None where the rows are not all at hand
        self.links = chain_of(net) or []
        self.chain = [link.layer for link in self.links]
        self.alive: Alive | None = None
        self.small: nn.Module = net
        self.small_optimiser = optimiser
        self.kl_outside = 0.0

    def columns(self, x: Tensor) -> Tensor:
        """The inputs that the small network reads."""
        if self.alive is None or isinstance(self.chain[0], ConvNd):  # the channels of images all stay
            return x
        return x.flatten(1)[:, self._columns]

    @torch.no_grad()
    def cut(self, x: Tensor, y: Response, n: int, draw: Draw, epoch: int) -> Cut | None:
        """Take out what has died since the last time; None where nothing has."""
        alive = find_alive(self.links, self.power)
        if self.alive is not None and alive.counts == self.alive.counts:
            return None
        if all(bool(mask.all()) for mask in (alive.inputs, *alive.units)):
            return None
        self.optimiser.settle()
        before = self._terms(x, y, n, draw, epoch)
        for index, link in enumerate(self.links):
            _settle(link, *alive.of(index, link), index == 0, self.optimiser)
        after = self._terms(x, y, n, draw, epoch)
        self.alive = alive
        self._build()
        changes = [a - b for a, b in zip(after, before, strict=True)]
        return Cut(epoch, alive.counts, log_likelihood=changes[0], kl=changes[1])

    def _terms(self, x: Tensor, y: Response, n: int, draw: Draw, epoch: int) -> tuple[float, float]:
        """Both terms of the bound with the same noise before and after, the first from some rows."""
        terms = elbo(self.net, self.likelihood, x[:ROWS], y[:ROWS], n=n, draw=draw, seed=epoch)
        return float(terms.log_likelihood), float(kl(self.net))

    def _build(self) -> None:
        """The small network: the same chain, its layers without what is dead."""
        assert self.alive is not None
        self._columns = self.alive.inputs.nonzero()[:, 0]
        made: list[nn.Module] = []
        index = 0
        for part in flat_parts(self.net) or []:
            if isinstance(part, (Linear, ConvNd)):
                made.append(_smaller(part, *self.alive.of(index, self.links[index])))
                index += 1
            elif isinstance(part, Mixed):
                made.append(part.part(self.alive.units[index - 1]))
            else:
                made.append(Fork(len(self._columns)) if isinstance(part, Fork) else part)
        self.small = chained(made).train(self.net.training)
        self.small_optimiser = make_optimiser(self.small, self.likelihood, self.config, omega=True)
        for mine, theirs in zip(self.small_optimiser.param_groups, self.optimiser.param_groups, strict=True):
            mine["lr"] = theirs["lr"]
        for small, other, select in self._pairs():
            state = self.optimiser.state[other]
            if state:
                self.small_optimiser.state[small] = {
                    key: value.clone() if key == "step" else value[select].clone() for key, value in state.items()
                }
        for parameter in self.likelihood.parameters():
            self.small_optimiser.state[parameter] = self.optimiser.state[parameter]
        self.kl_outside = float(kl(self.net)) - float(kl(self.small))

    def go_on(self, alive: Alive, kl_outside: float) -> None:
        """Take up the work of an earlier run, from the full network as it was then."""
        self.alive = alive
        self._build()
        self.kl_outside = kl_outside  # to the last bit

    @torch.no_grad()
    def put_back(self) -> None:
        """Copy parameters, the optimiser's state and its step sizes from the small network into the full one."""
        if self.alive is None:
            return
        self.small_optimiser.settle()
        for mine, theirs in zip(self.small_optimiser.param_groups, self.optimiser.param_groups, strict=True):
            theirs["lr"] = mine["lr"]
        for small, other, select in self._pairs():
            other[select] = small.data
            for key, value in self.small_optimiser.state[small].items():
                full = self.optimiser.state[other]
                if key == "step":
                    full[key].copy_(value)
                else:
                    full[key][select] = value

    def _pairs(self) -> list[tuple[nn.Parameter, nn.Parameter, tuple[Tensor, ...]]]:
        """(parameter of the small network, parameter of the full one, where the first lies in the second)."""
        assert self.alive is not None
        small = [part for part in self.small if isinstance(part, (Linear, ConvNd))]  # type: ignore[attr-defined]
        pairs = []
        for index, (smaller, link) in enumerate(zip(small, self.links, strict=True)):
            layer = link.layer
            units, inputs = (mask.nonzero()[:, 0] for mask in self.alive.of(index, link))
            places: list[tuple[Posterior, Posterior, tuple[Tensor, ...]]] = [
                (smaller.weight, layer.weight, (units[:, None], inputs))
            ]
            if smaller.bias is not None and layer.bias is not None:
                places.append((smaller.bias, layer.bias, (units,)))
            for mine, theirs, select in places:
                pairs += [(getattr(mine, k), getattr(theirs, k), select) for k in ("mu", "rho", "omega")]
        return pairs


def can_cut(net: nn.Module) -> bool:
    """Whether `net` is a large chain of layers with indicators, and nothing in the prior ties the weights."""
    chain = chain_of(net) or []
    layers = [link.layer for link in chain]
    if not layers or not all(isinstance(layer, (Linear, ConvNd)) for layer in layers):
        return False
    if any(isinstance(layer, Gated) or layer.groups > 1 for layer in layers):
        return False
    if any(link.again for link in chain) and any(isinstance(layer, ConvNd) for layer in layers):
        return False
    if sum(layer.weight.mu.numel() for layer in layers) < FEWEST:
        return False
    return all(
        layer.weight.omega is not None
        and layer.prior.slab.resting == 0.0  # a dead weight is put where it costs nothing
        and not isinstance(layer.prior.psi, Beta)
        and layer.prior.log_sigma_beta is None
        and layer.prior.scale_prior is None
        for layer in layers
    )


@torch.no_grad()
def find_alive(chain: Sequence[Link], power: Tensor | None) -> Alive:
    """From the outputs backwards: who sends something to somebody who is alive; and which inputs anybody reads."""
    last = chain[-1].layer.weight.mu
    units = [torch.ones(len(last), dtype=torch.bool, device=last.device)]
    for sender, (_, layer, again, _) in reversed(list(itertools.pairwise(chain))):
        of_units = slice(layer.weight.mu.shape[1] - again)  # what it reads of units
        shape = (
            int(units[-1].sum()),
            len(sender.layer.weight.mu),
            -1,
        )  # a channel sends a kernel, or the places of a map
        psi = layer.prior.psi_now(layer.blocks()).expand_as(layer.weight.mu)
        alpha, mu, psi = (part[units[-1]][:, of_units].reshape(shape) for part in (layer.alpha, layer.weight.mu, psi))
        signal = ((alpha * mu) ** 2).sum((0, 2)) > EPSILON
        spoken_against = alpha.mean((0, 2)) <= SPOKEN_AGAINST * psi.mean((0, 2))
        units.append(_one_at_least(signal | (alpha > 0.5).any(2).any(0) | ~spoken_against))
    units.reverse()
    first = chain[0].layer
    inputs = torch.ones(first.weight.mu.shape[1], dtype=torch.bool, device=last.device)
    if power is not None and isinstance(first, Linear):
        readers = [(link.layer, living) for link, living in zip(chain, units, strict=True) if link.again]
        needed = [_read(layer, living, power) for layer, living in [(first, units[0]), *readers]]
        total = torch.stack([read for read, _ in needed]).sum(0)
        inputs = _one_at_least((total > EPSILON) | torch.stack([spoken for _, spoken in needed]).any(0))
    return Alive(inputs, tuple(units))


def _one_at_least(mask: Tensor) -> Tensor:
    """A layer needs a unit to go on: the first, where none is alive (skips may carry all there is)."""
    if not bool(mask.any()):
        mask[0] = True
    return mask


def _read(layer: SlabLayer, living: Tensor, power: Tensor) -> tuple[Tensor, Tensor]:
    """For each input, the last that the layer reads: its signal to living units, and whether the data spoke for it."""
    of_units = slice(layer.weight.mu.shape[1] - len(power), None)
    mu, sigma, alpha = (part[living][:, of_units] for part in (layer.weight.mu, layer.weight.sigma, layer.alpha))
    psi = layer.prior.psi_now(layer.blocks()).expand_as(layer.weight.mu)[living][:, of_units]
    squared = torch.maximum(alpha * (mu**2 + sigma**2), psi * layer.prior.sigma_beta**2)
    spoken = (alpha > psi + SPOKEN_FOR).any(0)
    if layer.prior.pinned is not None:
        spoken = spoken | (layer.prior.pinned[:, of_units] != 0).any(0)
    return power * squared.sum(0), spoken


def _settle(link: Link, units: Tensor, inputs: Tensor, first: bool, optimiser: FusedAdam) -> None:
    """Give what is dead the values the bound then wants, and the optimiser no memory of it."""
    layer = link.layer
    of_network = torch.zeros_like(inputs)  # which of its inputs are the network's own
    of_network[0 if first else len(inputs) - link.again :] = True
    to_living = units[:, None] & ~inputs[None, :]
    to_dead = (~units)[:, None].expand_as(to_living)
    psi = layer.prior.psi_now(layer.blocks())
    _rest(layer, layer.weight, _whole_kernels(to_dead | (to_living & of_network), layer), optimiser, psi)
    if not first:
        _rest(layer, layer.weight, _whole_kernels(to_living & ~of_network, layer), optimiser, None)
    if layer.bias is not None:
        _rest(layer, layer.bias, ~units, optimiser, torch.as_tensor(layer.prior.psi))


def _whole_kernels(where: Tensor, layer: SlabLayer) -> Tensor:
    """(outputs, inputs) in the shape of the layer's weight."""
    shape = layer.weight.mu.shape
    return where.reshape(shape[:2] + (1,) * (len(shape) - 2)).expand(shape)


def _rest(layer: SlabLayer, block: Posterior, where: Tensor, optimiser: FusedAdam, psi: Tensor | None) -> None:
    """The prior itself where `where`, with alpha = 0 instead of psi if that is None."""
    assert block.omega is not None
    s = layer.prior.sigma_beta
    omega = torch.tensor(OUT) if psi is None else torch.logit(psi.double())
    block.mu[where] = 0.0
    block.rho[where] = s + math.log(-math.expm1(-s))  # softplus of it is s
    block.omega.copy_(torch.where(where, omega.to(block.omega), block.omega))
    for parameter in (block.mu, block.rho, block.omega):
        for key, value in optimiser.state[parameter].items():
            if key != "step":
                value[where] = 0.0


def _smaller(layer: SlabLayer, units: Tensor, inputs: Tensor) -> SlabLayer:
    """A layer of the living units and inputs only, with their parameters and their prior."""
    made = _fresh(layer, int(units.sum()), int(inputs.sum()), layer.prior.part(units, inputs)).to(layer.weight.mu)
    for part, other in ((made.weight, layer.weight), (made.bias, layer.bias)):
        if part is None or other is None:
            continue
        for key in ("mu", "rho", "omega"):
            full = getattr(other, key)
            getattr(part, key).data.copy_(full[units][:, inputs] if full.ndim > 1 else full[units])
    return made


def _fresh(layer: SlabLayer, units: int, inputs: int, prior: LayerPrior) -> SlabLayer:
    """A layer of this kind with so many units and inputs."""
    bias = layer.bias is not None
    return (
        layer.resized(inputs, units, prior) if isinstance(layer, ConvNd) else Linear(inputs, units, bias, prior=prior)
    )
