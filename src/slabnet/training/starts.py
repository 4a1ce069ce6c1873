"""A start from the data for the weights that lead straight from an input to an output.

Means that start with a wrong sign lose a race: their indicators close before they have turned. Where inputs meet
outputs in one layer the model is (generalised) linear, and its factorised posterior is found by coordinate ascent
(`maths/coordinate_ascent.py`) on a quadratic of the log-likelihood, renewed a few times. Such weights wait at mean zero
(`Start(mu="data")`) until `fit` has rows to start them from; where it cannot, they start at zero.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from slabnet.maths.coordinate_ascent import Factorised, LinearProblem, factorised_posterior
from slabnet.model.layers import Linear
from slabnet.model.likelihoods import Likelihood, Response, response_of
from slabnet.model.networks import direct_weights
from slabnet.model.posteriors import PIN
from slabnet.training.batches import Batches, TensorBatches

MOST_ROWS, MOST_COLUMNS = 20_000, 1000
RIDGE_ROUNDS, SEARCH_ROUNDS = 12, 2
DISPERSION_STEPS = 30
LARGEST_OMEGA = 15.0  # alpha is then 1 to 3e-7: a larger one would never come back
LEAST_CURVATURE = 1e-3


def start_from_data(net: nn.Module, likelihood: Likelihood, data: Batches) -> None:
    """Start the weights that wait for it, and the dispersion with them; leave everything as it is where that fails."""
    direct = direct_weights(net)
    if direct is None or not isinstance(data, TensorBatches) or len(direct.columns) > MOST_COLUMNS:
        return
    if data.x.device.type == "mps":  # which has no float64
        return
    layer, columns = direct.layer, direct.columns
    if not layer.closed_form or bool((layer.weight.mu[:, columns] != 0).any()):
        return
    rows = torch.arange(0, data.n, max(1, math.ceil(data.n / MOST_ROWS)), device=data.x.device)
    x = data.x[rows].flatten(1).double()
    x = torch.cat([x, x.new_ones(len(x), 1)], 1) if layer.bias is not None else x
    before = [p.detach().clone() for p in likelihood.parameters()]
    posterior = _solve(layer, columns, likelihood, x, data.y[rows], data.n / len(rows))
    if posterior is None:
        with torch.no_grad():
            for parameter, value in zip(likelihood.parameters(), before, strict=True):
                parameter.copy_(value)
        return
    _take(layer, columns, posterior)


def _solve(
    layer: Linear, columns: Tensor, likelihood: Likelihood, x: Tensor, y: Response, scaled: float
) -> Factorised | None:
    """The factorised posterior of the linear model, None where nothing better than mean zero was found."""
    log_odds, scale = _prior(layer, columns)
    counts = x.new_ones(len(x), 1) if isinstance(y, Tensor) or y.weight is None else y.weight.double()[:, None]
    gram = scaled * (counts * x).T @ x
    eta = x.new_zeros(len(x), len(log_odds))
    first = _fit(likelihood, eta, y)
    for number in range(RIDGE_ROUNDS + SEARCH_ROUNDS):
        _dispersion(likelihood, eta, y, scaled)
        slope, curvature = _quadratic(likelihood, eta, y, float(counts.sum()))
        target = counts * eta + slope / curvature
        problem = LinearProblem(gram, scaled * target.T @ x, curvature[:, None], log_odds, scale)
        if not bool(torch.isfinite(problem.cross).all() & torch.isfinite(curvature).all()):
            return None
        if number < RIDGE_ROUNDS:
            mean = problem.ridge(log_odds > -PIN)
        else:
            posterior = factorised_posterior(problem)
            mean = torch.sigmoid(posterior.omega) * posterior.mu
        eta = x @ mean.T
    return posterior if _fit(likelihood, eta, y) >= first else None


def _prior(layer: Linear, columns: Tensor) -> tuple[Tensor, float]:
    """logit psi of each weight (inputs, then the intercept), decided where an input is forced in or out; the scale."""
    blocks = layer.blocks()
    parts, _ = layer.prior.parts(blocks)
    rows = []
    for block, part in zip(blocks, parts, strict=True):
        odds = (part[3] - part[4]).expand_as(block.mu)
        if block.omega is None:
            odds = torch.full_like(block.mu, PIN)
        elif block.pinned is not None:
            odds = torch.where(block.pinned, block.omega, odds)
        rows.append(odds[:, columns] if block.mu.ndim > 1 else odds[:, None])
    return torch.cat(rows, 1).detach().double(), layer.prior.sigma_beta


@torch.no_grad()
def _fit(likelihood: Likelihood, eta: Tensor, y: Response) -> float:
    value = float(likelihood.total(eta.to(_dtype(likelihood, y)), y))
    return value if math.isfinite(value) else -math.inf


def _dtype(likelihood: Likelihood, y: Response) -> torch.dtype:
    return next((t.dtype for t in [*likelihood.parameters(), response_of(y)] if t.is_floating_point()), torch.float32)


def _quadratic(likelihood: Likelihood, eta: Tensor, y: Response, count: float) -> tuple[Tensor, Tensor]:
    """Slope of the log-likelihood at each row and output, and its mean curvature for each output over `count` rows."""
    with torch.enable_grad():
        at = eta.to(_dtype(likelihood, y)).requires_grad_()
        (slope,) = torch.autograd.grad(likelihood.total(at, y), at, create_graph=True)
        curved = [torch.autograd.grad(slope[:, k].sum(), at, retain_graph=True)[0][:, k] for k in range(at.shape[1])]
    curvature = -torch.stack([each.double().sum() for each in curved]) / count
    return slope.detach().double(), curvature.clamp_min(LEAST_CURVATURE)


def _dispersion(likelihood: Likelihood, eta: Tensor, y: Response, scaled: float) -> None:
    """Fit what the likelihood itself learns, such as the noise, given the outputs."""
    learned = [p for p in likelihood.parameters() if p.requires_grad]
    if not learned:
        return
    optimiser = torch.optim.LBFGS(learned, max_iter=DISPERSION_STEPS, line_search_fn="strong_wolfe")
    at = eta.to(_dtype(likelihood, y))

    def loss() -> Tensor:
        optimiser.zero_grad()
        value = (likelihood.kl() - scaled * likelihood.total(at, y)) / (scaled * len(y))
        value.backward()  # type: ignore[no-untyped-call]
        return value

    with torch.enable_grad():
        optimiser.step(loss)  # type: ignore[no-untyped-call]
    optimiser.zero_grad()


@torch.no_grad()
def _take(layer: Linear, columns: Tensor, linear: Factorised) -> None:
    rho = linear.sigma + torch.log(-torch.expm1(-linear.sigma))  # softplus(rho) = sigma
    omega = linear.omega.clamp(-LARGEST_OMEGA, LARGEST_OMEGA)
    count = len(columns)
    for posterior, values in ((layer.weight, slice(0, count)), (layer.bias, slice(count, count + 1))):
        if posterior is None:
            continue
        for name, new in (("mu", linear.mu), ("rho", rho), ("omega", omega)):
            parameter = getattr(posterior, name)
            if parameter is None:
                continue
            new = new[:, values].to(parameter)
            if parameter.ndim == 1:
                parameter.copy_(new[:, 0])
            else:
                parameter[:, columns] = new
