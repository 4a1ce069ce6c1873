"""How far a fit can be trusted: stability over seeds, coefficients of simple models, and Pareto k-hat of q."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn

from slabnet.core.devices import device_of
from slabnet.core.errors import check_whole, refuse
from slabnet.core.noise import Seed, keyed_generator, seed_number
from slabnet.core.records import Selection
from slabnet.model.attach import likelihood_of
from slabnet.model.drawing import drawing
from slabnet.model.draws import exact
from slabnet.selection.rules import slab_layers, threshold_model
from slabnet.training.batches import Prepare


@dataclass(frozen=True)
class Stability:
    """How often each weight and input was chosen over several fits.

    weights: layer name -> share of the fits whose model has the weight; inputs: the same for inputs on a path.
    kappa_inputs, kappa_weights: mean agreement of two fits beyond chance (Cohen's kappa): 1 is the same choice,
        0 what two random choices of the same sizes would share. Hidden units have no identity from seed to
        seed, so agreement on weights is expected to be low where layers are hidden, and on inputs not.
    sizes: number of weights in each model.
    """

    weights: dict[str, Tensor]
    inputs: Tensor | None
    kappa_weights: float
    kappa_inputs: float | None
    sizes: tuple[int, ...]


def stability(nets: Sequence[nn.Module], threshold: float = 0.5) -> Stability:
    """Compare the models that several fits of one architecture choose."""
    if len(nets) < 2:
        refuse("stability", "nets", "at least two fitted networks", len(nets))
    chosen = [threshold_model(net, threshold) for net in nets]
    shapes = [{name: tuple(m[0].shape) for name, m in one.masks.items()} for one in chosen]
    if any(shape != shapes[0] for shape in shapes):
        refuse("stability", "nets", "networks of one architecture", "networks of different shapes")
    weights = {name: torch.stack([one.masks[name][0] for one in chosen]).double().mean(0) for name in chosen[0].masks}
    flat = [torch.cat([mask[0].flatten() for mask in one.masks.values()]) for one in chosen]
    inputs = [one.inputs for one in chosen]
    known = [i for i in inputs if i is not None]
    return Stability(
        weights=weights,
        inputs=torch.stack(known).double().mean(0) if len(known) == len(chosen) else None,
        kappa_weights=_mean_kappa(flat),
        kappa_inputs=_mean_kappa(known) if len(known) == len(chosen) else None,
        sizes=tuple(one.weights for one in chosen),
    )


@dataclass(frozen=True)
class Coefficient:
    """One weight of a one-layer model: its inclusion probability, and mean and sd over gamma and beta."""

    output: int
    input: str
    alpha: float
    mean: float
    sd: float
    mean_if_in: float
    sd_if_in: float


@torch.no_grad()
def coefficients(net: nn.Module, names: Sequence[str] | None = None) -> list[Coefficient]:
    """The coefficient table of a one-layer model, intercept first; `names` of the inputs where known."""
    layers = slab_layers(net)
    if len(layers) != 1:
        refuse("coefficients", "net", "a model of one layer", f"one of {len(layers)} layers")
    (layer,) = layers.values()
    shape = layer.weight.mu.shape
    if len(shape) != 2:
        refuse("coefficients", "net", "a linear model", f"a layer with weights of shape {tuple(shape)}")
    if names is not None and len(names) != shape[1]:
        refuse("coefficients", "names", f"one for each of the {shape[1]} inputs", f"{len(names)} names")
    blocks = layer.blocks()
    labels = [str(name) for name in (names if names is not None else range(shape[1]))]
    rows = []
    for output in range(shape[0]):
        if len(blocks) > 1:
            rows.append(_coefficient(output, "(intercept)", [p[output] for p in _columns(blocks[1])]))
        columns = _columns(blocks[0])
        rows += [_coefficient(output, label, [p[output, i] for p in columns]) for i, label in enumerate(labels)]
    return rows


@dataclass(frozen=True)
class ParetoK:
    """Diagnosis of q by importance sampling: below 0.5 good, below 0.7 usable, above it q misses mass."""

    k_hat: float
    draws: int


@torch.no_grad()
def pareto_k(net: nn.Module, data: tuple[Any, Any], draws: int = 1000, seed: Seed = 0) -> ParetoK:
    """PSIS k-hat of q against the posterior (Yao et al. 2018): the shape of the tail of p(y, theta) / q(theta).

    Needs the likelihood of all of `data` at every draw, so it is for data sets and networks where that is cheap.
    """
    check_whole("pareto_k", "draws", draws, at_least=100)
    device, dtype = device_of(net)
    likelihood, number = likelihood_of(net), seed_number(seed, "pareto_k")
    x, y = Prepare(net, likelihood, dtype, device, "pareto_k")(*data)
    layers = slab_layers(net)
    net.eval()
    ratios = []
    for s in range(draws):
        with drawing(net, exact, keyed_generator(number, "ratio", s, device=device)) as scope:
            fit = likelihood.log_prob(net(x), y).double().sum()
            ratios.append(
                fit - torch.stack([layer.divergence(scope, sampled=True).double() for layer in layers.values()]).sum()
            )
    return ParetoK(tail_shape(torch.stack(ratios).cpu()), draws)


def tail_shape(log_ratios: Tensor) -> float:
    """k-hat: the shape of a generalised Pareto fitted to the largest ratios (Vehtari et al. 2024).

    The tail is the largest min(S/5, 3 sqrt(S)) ratios.
    """
    log_ratios = log_ratios.double() - log_ratios.max()
    count = int(min(0.2 * len(log_ratios), 3 * len(log_ratios) ** 0.5))
    ordered = log_ratios.sort().values.exp()
    tail, cut = ordered[-count:], ordered[-count - 1]
    return pareto_shape(tail - cut)


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


def _mean_kappa(masks: Sequence[Tensor]) -> float:
    values = []
    for a, b in combinations(masks, 2):
        agree = float((a == b).double().mean())
        p, q = float(a.double().mean()), float(b.double().mean())
        chance = p * q + (1 - p) * (1 - q)
        values.append(1.0 if chance == 1.0 else (agree - chance) / (1 - chance))
    return sum(values) / len(values)


def _columns(block: Any) -> list[Tensor]:
    alpha = torch.ones_like(block.mu) if block.omega is None else torch.sigmoid(block.omega)
    return [alpha, block.mu, torch.nn.functional.softplus(block.rho)]


def _coefficient(output: int, name: str, values: list[Tensor]) -> Coefficient:
    alpha, mu, sigma = (float(v) for v in values)
    sd = (alpha * (sigma**2 + (1 - alpha) * mu**2)) ** 0.5
    return Coefficient(output, name, alpha, alpha * mu, sd, mu, sigma)


def chosen_inputs(chosen: Selection) -> list[int]:
    """Positions of the inputs on a path of a chosen model."""
    return [] if chosen.inputs is None else chosen.inputs.nonzero().flatten().tolist()
