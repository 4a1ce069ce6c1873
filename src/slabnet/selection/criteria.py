"""WAIC, DIC and FIC among models drawn from the posterior (supplement B).

The three formulas are functions of their own; `criterion_model` applies one of them to models drawn from
q(gamma), the median model always among them. q(beta | gamma) is that of the fit unless `refit` is given.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from slabnet.config.settings import TrainConfig
from slabnet.core.devices import device_of
from slabnet.core.errors import check_choice, check_whole, refuse
from slabnet.core.noise import Seed, keyed_generator, seed_number
from slabnet.core.records import Selection
from slabnet.model.attach import likelihood_of
from slabnet.model.drawing import Mask, drawing, mean
from slabnet.model.draws import exact, fixed
from slabnet.model.likelihoods import Likelihood, Response
from slabnet.model.mixture import refuse_mixture
from slabnet.selection.rules import InfeasibleModel, describe, median_model, slab_layers
from slabnet.training.batches import Prepare
from slabnet.training.fit import fit

Focus = Callable[[Tensor], Tensor]  # from the outputs of the network at given rows to one number
CRITERIA = ("waic", "dic", "fic")
MOST_ROUNDS, TRIED, PAIRS_UP_TO = 1000, 50, 300  # of the search around a model; weights up to which pairs are tried


def waic(log_likelihood: Tensor) -> Tensor:
    """WAIC = -2 (lppd - p), lppd = sum_i log mean_s p(y_i | theta_s), p = sum_i var_s log p(y_i | theta_s).

    log_likelihood: (draws, rows), at draws of the weights from their posterior in one model (Watanabe 2010).
    """
    lppd = torch.logsumexp(log_likelihood, 0) - math.log(len(log_likelihood))
    return -2 * (lppd.sum() - log_likelihood.var(0).sum())


def dic(log_likelihood: Tensor, at_mean: Tensor) -> Tensor:
    """DIC = D(mean) + 2 p, D = -2 sum_i log p, p = mean_s D(theta_s) - D(mean) (Spiegelhalter et al. 2002).

    log_likelihood: (draws, rows); at_mean: (rows), at the posterior mean of the weights.
    """
    deviance, mean_deviance = -2 * at_mean.sum(), -2 * log_likelihood.sum(1).mean()
    return deviance + 2 * (mean_deviance - deviance)


def fic(gradient: Tensor, mu: Tensor, sigma: Tensor, inside: Tensor) -> Tensor:
    """FIC = (sum_{j out} g_j mu_j)^2 + 2 sum_{j in} g_j^2 sigma_j^2 (Claeskens & Hjort 2003).

    Up to a constant shared by all models an unbiased estimate of the mean squared error of the focus: leaving
    weight j out biases it by g_j mu_j, keeping it costs variance g_j^2 sigma_j^2. `gradient` is that of the
    focus over the weights; the precision of the weights is the diagonal one of q.
    """
    bias = (gradient * mu).masked_fill(inside, 0.0).sum()
    return bias * bias + 2 * (gradient * sigma).square().masked_fill(~inside, 0.0).sum()


def criterion_model(
    net: nn.Module,
    data: tuple[Any, Any],
    criterion: Literal["waic", "dic", "fic"] = "waic",
    *,
    models: int = 50,
    draws: int = 20,
    rows: int = 5000,
    focus: Focus | None = None,
    refit: TrainConfig | None = None,
    seed: Seed = 0,
) -> Selection:
    """The best by WAIC, DIC or FIC of `models` drawn from q(gamma), the median model always among them.

    FIC is cheap, so models are then changed by one or two weights as long as that is better (unless they are refitted).
    `looked_at` of what is returned says how many models were compared.

    draws: of the weights, for each model. rows: at most so many of `data` are used. focus: for FIC, a function
    of the network's outputs at `data` that gives one number. refit: settings to post-train each model with
    before it is judged (slow). Models in which no input reaches an output are passed over.
    """
    refuse_mixture("criterion_model", net)
    check_choice("criterion_model", "criterion", criterion, CRITERIA)
    for name, value in (("models", models), ("draws", draws), ("rows", rows)):
        check_whole("criterion_model", name, value, at_least=2 if name == "draws" else 1)
    if (criterion == "fic") != (focus is not None):
        refuse("criterion_model", "focus", "given with fic, and only then", focus)
    device, dtype = device_of(net)
    likelihood = likelihood_of(net)
    x, y = Prepare(net, likelihood, dtype, device, "criterion_model")(*data)
    x, y = x[:rows], y[:rows]
    number = seed_number(seed, "criterion_model")
    gradient = None if focus is None else _focus_gradient(net, x, focus)
    best: tuple[float, Selection] | None = None
    looked_at = 0
    for index, masks in enumerate(_drawn_models(net, models, number)):
        candidate = describe(net, masks, criterion)
        if candidate.feasible is False:
            continue
        looked_at += 1
        judged = net if refit is None else copy.deepcopy(net)
        if refit is not None:
            fit(judged, (x, y), refit, fixed=candidate, progress="off")
        if gradient is not None:
            score = float(_fic_of(judged, gradient, masks))
        else:
            score = _information(judged, likelihood, x, y, masks, criterion, draws, number, index)
        if best is None or score < best[0]:
            best = score, candidate
    if best is None:
        raise InfeasibleModel(f"{criterion} model: no input reaches an output in any of the models drawn")
    if gradient is not None and refit is None:
        best_model, more = _searched(net, gradient, *best)
        return replace(best_model, looked_at=looked_at + more)
    return replace(best[1], looked_at=looked_at)


@torch.no_grad()
def _searched(
    net: nn.Module, gradient: dict[str, list[Tensor]], score: float, best: Selection
) -> tuple[Selection, int]:
    """The local best by FIC around a model, and how many neighbours were looked at: one or two weights changed."""
    looked_at = 0
    for _ in range(MOST_ROUNDS):
        inside = torch.cat([part.flatten() for masks in best.masks.values() for part in masks])
        bias, variance = _fic_parts(net, gradient)
        sign = torch.where(inside, 1.0, -1.0).to(bias)  # a weight that leaves adds its bias and takes its variance
        now = (bias * ~inside).sum()
        one = (now + sign * bias) ** 2 - sign * variance
        moves: list[tuple[float, tuple[int, ...]]] = [(float(value), (j,)) for j, value in enumerate(one.tolist())]
        if len(one) <= PAIRS_UP_TO:
            i, j = torch.triu_indices(len(one), len(one), 1)
            two = (now + (sign * bias)[i] + (sign * bias)[j]) ** 2 - (sign * variance)[i] - (sign * variance)[j]
            moves += [(v, (a, b)) for v, a, b in zip(two.tolist(), i.tolist(), j.tolist(), strict=True)]
        looked_at += len(moves)
        rest = float((variance * inside).sum())
        better = None
        for value, changed in sorted(moves)[:TRIED]:
            if value + rest >= score - 1e-12 * abs(score):
                break
            candidate = describe(net, _with_changed(best.masks, inside, changed), "fic")
            if candidate.feasible is not False:
                better = value + rest, candidate
                break
        if better is None:
            return best, looked_at
        score, best = better
    return best, looked_at


def _with_changed(masks: Mapping[str, Mask], inside: Tensor, changed: Sequence[int]) -> dict[str, Mask]:
    """The masks with these weights, counted through all of them, the other way round."""
    other = inside.clone()
    other[list(changed)] = ~other[list(changed)]
    made: dict[str, Mask] = {}
    parts = iter(torch.split(other, [part.numel() for mask in masks.values() for part in mask]))
    for name, mask in masks.items():
        made[name] = tuple(next(parts).reshape(part.shape) for part in mask)
    return made


@torch.no_grad()
def _fic_parts(net: nn.Module, gradient: dict[str, list[Tensor]]) -> tuple[Tensor, Tensor]:
    """Of each weight the bias of the focus without it, and the variance with it, of which FIC is made."""
    biases, variances = [], []
    for name, layer in slab_layers(net).items():
        for block, g in zip(layer.blocks(), gradient[name], strict=True):
            biases.append((g * block.mu).flatten().double())
            variances.append(2 * (g * torch.nn.functional.softplus(block.rho)).square().flatten().double())
    return torch.cat(biases), torch.cat(variances)


@torch.no_grad()
def _drawn_models(net: nn.Module, models: int, seed: int) -> list[dict[str, Mask]]:
    """The median model, then models drawn from q(gamma)."""
    with_median = [dict(_quiet_median(net))]
    generator = keyed_generator(seed, "models")
    for _ in range(models - 1):
        masks: dict[str, Mask] = {}
        for name, layer in slab_layers(net).items():
            parts = []
            for block in layer.blocks():
                alpha = torch.ones_like(block.mu) if block.omega is None else torch.sigmoid(block.omega)
                parts.append(torch.rand(alpha.shape, generator=generator).to(alpha) < alpha)
            masks[name] = tuple(parts)
        with_median.append(masks)
    return with_median


def _quiet_median(net: nn.Module) -> dict[str, Mask]:
    try:
        return dict(median_model(net).masks)
    except InfeasibleModel:
        return dict(median_model(net, infeasible="path").masks)


@torch.no_grad()
def _information(
    net: nn.Module,
    likelihood: Likelihood,
    x: Tensor,
    y: Response,
    masks: dict[str, Mask],
    criterion: str,
    draws: int,
    seed: int,
    index: int,
) -> float:
    """WAIC or DIC of one model; every model sees the same noise, so that differences are of the models."""
    net.eval()
    logs = []
    for s in range(draws):
        with drawing(net, fixed(masks, exact), keyed_generator(seed, "weights", s, device=x.device)):
            certain, _ = likelihood.at_draw(keyed_generator(seed, "dispersion", s, device=x.device))
            logs.append(certain.log_likelihood(net(x), y).double())
    if criterion == "waic":
        return float(waic(torch.stack(logs)))
    with drawing(net, fixed(masks)):
        at_mean = likelihood.at_mean().log_likelihood(net(x), y).double()
    return float(dic(torch.stack(logs), at_mean))


def _focus_gradient(net: nn.Module, x: Tensor, focus: Focus) -> dict[str, list[Tensor]]:
    """Gradient of the focus over every weight, at the posterior mean network."""
    layers = slab_layers(net)
    net.eval()
    with drawing(net, mean) as scope:
        value = focus(net(x))
        if not isinstance(value, Tensor) or value.numel() != 1:
            refuse("criterion_model", "focus", "a function that gives one number", type(value).__name__)
        weights = [drawn.value for layer in layers.values() for drawn in scope.weights(layer)]
        slopes = torch.autograd.grad(value.reshape(()), weights, allow_unused=True)
    flat = [torch.zeros_like(w) if g is None else g for w, g in zip(weights, slopes, strict=True)]
    gradients: dict[str, list[Tensor]] = {}
    for name, layer in layers.items():
        gradients[name] = [flat.pop(0).detach() for _ in layer.blocks()]
    return gradients


@torch.no_grad()
def _fic_of(net: nn.Module, gradient: dict[str, list[Tensor]], masks: dict[str, Mask]) -> Tensor:
    columns: list[list[Tensor]] = [[], [], [], []]
    for name, layer in slab_layers(net).items():
        for block, g, mask in zip(layer.blocks(), gradient[name], masks[name], strict=True):
            sigma = torch.nn.functional.softplus(block.rho)
            for column, part in zip(columns, (g, block.mu, sigma, mask), strict=True):
                column.append(part.flatten())
    g, mu, sigma, inside = (torch.cat(column) for column in columns)
    return fic(g.double(), mu.double(), sigma.double(), inside)
