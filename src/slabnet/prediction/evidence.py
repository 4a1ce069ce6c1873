"""Lower bounds of log p(y | x): the ELBO and the importance-weighted bound, and the jackknife correction of the latter.

Each is a mean over independent groups of draws of (structure, weights), so that it comes with a standard error. What is
not drawn (the dispersion, a learned psi) stays inside the ratios as its own bound, which keeps them all below.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from slabnet.core.devices import device_of
from slabnet.core.errors import check_whole, refuse
from slabnet.core.noise import Seed, keyed_generator, seed_number
from slabnet.maths.divergences import softplus
from slabnet.model.attach import likelihood_of
from slabnet.model.drawing import Drawable, drawable_layers, drawing
from slabnet.model.draws import exact
from slabnet.model.layers import SlabLayer
from slabnet.model.mixture import Mixture
from slabnet.model.posteriors import Block, Drawn
from slabnet.prediction.diagnostics import tail_shape
from slabnet.training.batches import Prepare

USABLE = 0.7  # Pareto k-hat above which importance sampling says nothing (Vehtari et al. 2024)


@dataclass(frozen=True)
class Evidence:
    """Bounds of log p(y | x), each with its standard error over the groups.

    elbo: E log r for the ratio r = p(y, theta) / q(theta). weighted: E log of the mean of `draws` ratios, a larger
    bound (Burda et al. 2016). corrected: `weighted` without its bias of order 1 / draws, by the jackknife (Nowozin
    2018): no bound. k_hat: Pareto shape of the ratios; above 0.7 they are unusable, and both are None.
    """

    elbo: float
    elbo_error: float
    weighted: float | None
    weighted_error: float | None
    corrected: float | None
    corrected_error: float | None
    k_hat: float
    draws: int
    groups: int

    def __str__(self) -> str:
        text = f"ELBO {self.elbo:.2f} (s.e. {self.elbo_error:.2f})"
        if self.weighted is None or self.corrected is None:
            return f"{text}; importance ratios are unusable (k-hat {self.k_hat:.2f})"
        text += f"; with {self.draws} draws {self.weighted:.2f} ({self.weighted_error:.2f})"
        return f"{text}, corrected {self.corrected:.2f} ({self.corrected_error:.2f}); k-hat {self.k_hat:.2f}"


@torch.no_grad()
def log_evidence(
    net: nn.Module, data: tuple[Any, Any], draws: int = 100, groups: int = 20, *, seed: Seed = 0
) -> Evidence:
    """How probable `data` = (x, y), the rows that were fitted, are under the model: lower bounds from q.

    draws: K, ratios that the importance-weighted bound averages. groups: of K draws, independent repetitions.
    Needs the likelihood of all rows at every draw. For a mixture q is the density of all its members together.

    >>> from slabnet.model.networks import mlp
    >>> found = log_evidence(mlp((2, 2)), (torch.zeros(4, 2), [0, 1, 0, 1]), draws=10)
    >>> found.elbo < 0, found.draws
    (True, 10)
    """
    check_whole("log_evidence", "draws", draws, at_least=2)
    check_whole("log_evidence", "groups", groups, at_least=2)
    if draws * groups < 100:
        refuse("log_evidence", "draws, groups", "together at least 100 draws", f"{draws} x {groups}")
    device, _ = device_of(net)
    net = copy.deepcopy(net).double().eval()
    likelihood = likelihood_of(net).to(device, torch.float64)
    x, y = Prepare(net, likelihood, torch.float64, device, "log_evidence")(*data)
    networks = list(net.members) if isinstance(net, Mixture) else [net]
    layers = [_slab_layers(network, len(networks)) for network in networks]
    shares = net.weights.cpu() if isinstance(net, Mixture) else torch.ones(1, dtype=torch.float64)
    number = seed_number(seed, "log_evidence")
    ratios = []
    for r in range(draws * groups):
        turn = keyed_generator(number, "member", r)
        member = int(torch.multinomial(shares, 1, generator=turn))
        key = keyed_generator(number, "ratio", r, device=device)
        with drawing(networks[member], exact, key) as scope:
            fitted = likelihood.total(networks[member](x), y)
            drawn = [scope.weights(layer) for layer in layers[member].values()]
        prices = torch.stack([_log_ratio(part, drawn) for part in layers]).cpu()
        ratios.append(float(fitted) - float(torch.logsumexp(prices + shares.log(), 0)))
    total = torch.tensor(ratios, dtype=torch.float64) - float(likelihood.kl())
    return _summary(total.reshape(groups, draws))


def _summary(logs: Tensor) -> Evidence:
    """Bounds from log ratios, (groups, draws)."""
    groups, draws = logs.shape
    k_hat = tail_shape(logs.flatten())
    elbo = logs.mean(1)
    if not k_hat <= USABLE:  # NaN where there is no tail to measure
        return Evidence(*_mean(elbo), None, None, None, None, k_hat, draws, groups)
    return Evidence(*_mean(elbo), *_mean(weighted(logs)), *_mean(jackknifed(logs)), k_hat, draws, groups)


def weighted(logs: Tensor) -> Tensor:
    """log of the mean ratio, over the last dimension."""
    return torch.logsumexp(logs, -1) - math.log(logs.shape[-1])


def jackknifed(logs: Tensor) -> Tensor:
    """K L_K - (K - 1) mean_i L_(K-1) without ratio i, over the last dimension (Nowozin 2018, first order)."""
    count = logs.shape[-1]
    others = [weighted(torch.cat([logs[..., :i], logs[..., i + 1 :]], -1)) for i in range(count)]
    return count * weighted(logs) - (count - 1) * torch.stack(others).mean(0)


def _mean(values: Tensor) -> tuple[float, float]:
    """Mean and its standard error."""
    return float(values.mean()), float(values.std() / math.sqrt(len(values)))


def _slab_layers(net: nn.Module, members: int) -> dict[str, SlabLayer]:
    """The layers, which must be all that is drawn."""
    layers: Mapping[str, Drawable] = {n: part for n, part in drawable_layers(net).items() if not part.at_prior}
    for name, layer in layers.items():
        if not isinstance(layer, SlabLayer):
            refuse("log_evidence", "net", "one that draws single weights only", f"{type(layer).__name__} ({name})")
        if members > 1 and (layer.prior.counts or layer.prior.log_sigma_beta is not None):
            refuse("log_evidence", "net", "a mixture whose members share one prior", f"a learned one in {name}")
    with_slab = {name: layer for name, layer in layers.items() if isinstance(layer, SlabLayer)}
    if not with_slab:
        refuse("log_evidence", "net", "one whose weights have a posterior", type(net).__name__)
    return with_slab


def _log_ratio(layers: Mapping[str, SlabLayer], drawn: Sequence[tuple[Drawn, ...]]) -> Tensor:
    """log q_k(theta) - log p(theta) of one member at weights that any member drew."""
    terms = []
    for layer, parts in zip(layers.values(), drawn, strict=True):
        blocks = layer.blocks()
        if [block.mu.shape for block in blocks] != [part.beta.shape for part in parts]:
            refuse("log_evidence", "net", "a mixture of members of one shape", "members of different shapes")
        terms.append(layer.prior.sampled_kl(blocks, [_seen_by(*pair) for pair in zip(blocks, parts, strict=True)]))
    return torch.stack(terms).sum()


def _seen_by(block: Block, drawn: Drawn) -> Drawn:
    """The same weights with the noise that this block would have needed to draw them."""
    return drawn._replace(eps=(drawn.beta - block.mu) / softplus(block.rho))
