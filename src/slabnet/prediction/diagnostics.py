"""Diagnosis of the variational posterior q by importance sampling: Pareto k-hat."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from slabnet.core.devices import device_of
from slabnet.core.errors import check_whole, refuse
from slabnet.core.noise import Seed, keyed_generator, seed_number
from slabnet.model.attach import likelihood_of
from slabnet.model.drawing import drawable_layers, drawing
from slabnet.model.draws import exact
from slabnet.model.layers import SlabLayer
from slabnet.model.mixture import refuse_mixture
from slabnet.selection.rules import slab_layers
from slabnet.training.batches import Prepare

ROUNDING = 1e-9  # of the size of the log ratios: what double precision leaves of many terms that cancel
FEWEST = 5  # ratios that a shape can be fitted to


@dataclass(frozen=True)
class ParetoK:
    """Diagnosis of q by importance sampling: below 0.5 good, below 0.7 usable, above it q misses mass."""

    k_hat: float
    draws: int


@torch.no_grad()
def pareto_k(net: nn.Module, data: tuple[Any, Any], draws: int = 1000, seed: Seed = 0) -> ParetoK:
    """PSIS k-hat of q against the posterior (Yao et al. 2018): the shape of the tail of p(y, theta) / q(theta).

    theta is the structure, the weights and, where the likelihood learns one, the dispersion: all are drawn, and stand
    in the ratio. Where q is exact the ratios are equal up to rounding, and k_hat is 0. Needs the likelihood of all of
    `data` at every draw, so it is for data sets and networks where that is cheap.
    """
    refuse_mixture("pareto_k", net)
    check_whole("pareto_k", "draws", draws, at_least=100)
    device, _ = device_of(net)
    for name, layer in drawable_layers(net).items():
        if not isinstance(layer, SlabLayer) and not layer.at_prior:
            allowed = "one that draws single weights only: other factors would be missing in the ratio"
            refuse("pareto_k", "net", allowed, f"{type(layer).__name__} ({name or 'the network'})")
    net = copy.deepcopy(net).double().eval()
    likelihood, number = likelihood_of(net).to(device, torch.float64), seed_number(seed, "pareto_k")
    x, y = Prepare(net, likelihood, torch.float64, device, "pareto_k")(*data)
    layers = slab_layers(net)
    ratios = []
    for s in range(draws):
        with drawing(net, exact, keyed_generator(number, "ratio", s, device=device)) as scope:
            output = net(x)
            price = torch.stack([layer.divergence(scope, sampled=True) for layer in layers.values()]).sum()
        certain, ratio = likelihood.at_draw(keyed_generator(number, "dispersion", s, device=device))
        ratios.append(certain.total(output, y) + ratio - price)
    return ParetoK(tail_shape(torch.stack(ratios).cpu()), draws)


def tail_shape(log_ratios: Tensor) -> float:
    """k-hat: the shape of a generalised Pareto fitted to the largest ratios (Vehtari et al. 2024).

    The tail is the largest min(S/5, 3 sqrt(S)) ratios. Draws of a structure without weights have one ratio: those
    that are equal to the smallest one outside the tail are not in it. NaN where fewer than FEWEST are left, and 0 where
    all ratios are equal up to rounding: there is no tail.
    """
    size = float(log_ratios.abs().max())
    if float(log_ratios.max() - log_ratios.min()) <= ROUNDING * max(1.0, size):
        return 0.0
    log_ratios = log_ratios.double() - log_ratios.max()
    count = int(min(0.2 * len(log_ratios), 3 * len(log_ratios) ** 0.5))
    ordered = log_ratios.sort().values.exp()
    tail, cut = ordered[-count:], ordered[-count - 1]
    excess = (tail - cut)[tail > cut]
    return pareto_shape(excess) if len(excess) >= FEWEST else math.nan


def pareto_shape(excess: Tensor) -> float:
    """Zhang & Stephens' (2009) estimate of the shape of a generalised Pareto, with a weak prior towards 0.5."""
    x = excess.double().sort().values
    n = len(x)
    grid = 30 + int(n**0.5)
    steps = torch.arange(1, grid + 1, dtype=torch.float64)
    quarter = x[int(n / 4 + 0.5) - 1]
    theta = 1 / x[-1] + (1 - (grid / (steps - 0.5)).sqrt()) / (3 * quarter)
    k = torch.log1p(-theta[:, None] * x).mean(1)
    profile = n * (torch.log(-theta / k) - k - 1)
    weights = torch.softmax(profile, 0)
    best = (weights * theta).sum()
    shape = torch.log1p(-best * x).mean()
    return float((shape * n + 0.5 * 10) / (n + 10))
