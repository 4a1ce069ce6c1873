"""A start from the data for the weights that lead straight from an input to an output.

Means that start with a wrong sign lose a race: their indicators close before they have turned. Where inputs meet
outputs in one layer the model is (generalised) linear, and its factorised posterior is found by coordinate ascent
(`maths/coordinate_ascent.py`) on a quadratic of the log-likelihood around each row's output, renewed a few times.
Such weights wait at mean zero (`Start(mu="data")`) until `fit` has rows to start them from; where it cannot, they start
at zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn

from slabnet.maths.coordinate_ascent import SAME, Factorised, LinearProblem, factorised_maxima, maxima_of_each
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
LEAST_SHARE = 0.05  # of the mean curvature, for single rows: where the log-likelihood is not concave
MOST_PRODUCTS = 4e9  # of one round; beyond that all rows take the mean curvature
HALVINGS = 6


class DataStart:
    """The start of one network, or of the members of a mixture: member k takes the k-th best local maximum.

    Several maxima say which columns stand for each other. What was solved for one member serves the others.
    """

    def __init__(self, members: int = 1) -> None:
        self.members = members
        self.bounds: dict[int, float] = {}
        self.begun: set[int] = set()
        self._solved: dict[str, tuple[list[Factorised], list[Tensor]] | None] = {}

    def begin(self, net: nn.Module, likelihood: Likelihood, data: Batches, member: int = 0) -> None:
        """Start the weights that wait for it, and the dispersion with them; where that fails all stays as it is."""
        rows = _linear_rows(net, data)
        if rows is None or bool((rows.layer.weight.mu[:, rows.columns] != 0).any()):
            return
        key = str(rows.layer.prior.spec())
        if key not in self._solved:
            before = [p.detach().clone() for p in likelihood.parameters()]
            maxima = _solve(rows, likelihood, self.members)
            after = [p.detach().clone() for p in likelihood.parameters()]
            self._solved[key] = None if maxima is None else (maxima, after)
            _put(likelihood, before)
        solved = self._solved[key]
        if solved is None:
            return
        maxima, dispersion = solved
        _put(likelihood, dispersion)
        _take(rows.layer, rows.columns, maxima[member % len(maxima)])
        self.begun.add(member)

    def bound_of(self, net: nn.Module, likelihood: Likelihood, data: Batches, member: int) -> Tensor | None:
        """The bound of a member that began here, as one of several; None of any other."""
        value = linear_bound(net, likelihood, data) if self.members > 1 and member in self.begun else None
        return None if value is None else torch.tensor(value, dtype=torch.float64)

    def weights(self, networks: Sequence[nn.Module]) -> Tensor | None:
        """Shares of the members by their bounds; None where one of them did not begin here."""
        if len(self.bounds) < len(networks):
            return None
        return weights_by_bound(networks, [self.bounds[k] for k in range(len(networks))])


class _LinearRows(NamedTuple):
    """The layer where a network is linear, which of its columns read inputs, and rows of [inputs, 1] to solve it by.

    scaled: how many rows of the data each of these stands for.
    """

    layer: Linear
    columns: Tensor
    x: Tensor
    y: Response
    scaled: float

    @property
    def counts(self) -> Tensor:
        """How often each row counts."""
        given = None if isinstance(self.y, Tensor) else self.y.weight
        return self.x.new_ones(len(self.x), 1) if given is None else given.double()[:, None]


def _linear_rows(net: nn.Module, data: Batches) -> _LinearRows | None:
    """None where the network is not linear, or the rows are not at hand."""
    direct = direct_weights(net)
    if direct is None or not isinstance(data, TensorBatches) or len(direct.columns) > MOST_COLUMNS:
        return None
    if data.x.device.type == "mps" or not direct.layer.closed_form:  # the first has no float64
        return None
    rows = torch.arange(0, data.n, max(1, math.ceil(data.n / MOST_ROWS)), device=data.x.device)
    x = data.x[rows].flatten(1).double()
    x = torch.cat([x, x.new_ones(len(x), 1)], 1) if direct.layer.bias is not None else x
    return _LinearRows(direct.layer, direct.columns, x, data.y[rows], data.n / len(rows))


@torch.no_grad()
def _put(likelihood: Likelihood, values: Sequence[Tensor]) -> None:
    for parameter, value in zip(likelihood.parameters(), values, strict=True):
        parameter.copy_(value)


def linear_bound(net: nn.Module, likelihood: Likelihood, data: Batches) -> float | None:
    """The bound of a network of one linear layer in closed form; None for any other.

    The log-likelihood is averaged over the posterior by its quadratic around the mean: exactly, where it is Gaussian.
    """
    rows = _linear_rows(net, data)
    if rows is None:
        return None
    with torch.no_grad():
        moments, _ = rows.layer.moments(rows.layer.blocks())
        mean, variance = (
            torch.cat([part if part.ndim > 1 else part[:, None] for part in parts], 1).double()
            for parts in zip(*moments, strict=True)
        )
        eta, spread = rows.x @ mean.T, rows.x**2 @ variance.T
        fitted = _fit(likelihood, eta, rows.y)
        curvature = _quadratic(likelihood, eta, rows.y)[1]
        divergence = float(rows.layer.kl()) + float(likelihood.kl())
    return rows.scaled * (fitted - 0.5 * float((curvature * spread).sum())) - divergence


def weights_by_bound(networks: Sequence[nn.Module], bounds: Sequence[float]) -> Tensor:
    """Shares of the members of a mixture of linear networks: exp(bound), which is best where members do not overlap.

    Members that nearly say the same count as one, and divide its share.
    """
    alphas = [direct.layer.alpha.detach() for net in networks if (direct := direct_weights(net)) is not None]
    alike = torch.stack([torch.stack([(one - other).abs().max() < SAME for other in alphas]) for one in alphas])
    values = torch.tensor(bounds, dtype=torch.float64)
    return torch.softmax(values - alike.double().sum(1).log().to(values), 0)


def _solve(rows: _LinearRows, likelihood: Likelihood, count: int) -> list[Factorised] | None:
    """The best factorised posteriors of the linear model, None where nothing better than mean zero was found."""
    log_odds, scale = _prior(rows.layer, rows.columns)
    mean = rows.x.new_zeros(log_odds.shape)
    first = _fit(likelihood, rows.x @ mean.T, rows.y)
    for number in range(RIDGE_ROUNDS + SEARCH_ROUNDS):
        eta = rows.x @ mean.T
        _dispersion(likelihood, eta, rows.y, rows.scaled)
        problems = _problems(rows, likelihood, eta, log_odds, scale)
        if problems is None:
            return None
        if number < RIDGE_ROUNDS:
            ridge = torch.cat([one.ridge(one.log_odds > -PIN) for one in problems])
            mean = _towards(rows, likelihood, mean, ridge, scale)
        else:
            several = count if number == RIDGE_ROUNDS + SEARCH_ROUNDS - 1 else 1
            maxima = maxima_of_each(problems, several) if len(problems) > 1 else factorised_maxima(problems[0], several)
            mean = torch.sigmoid(maxima[0].omega) * maxima[0].mu
    return maxima if _fit(likelihood, rows.x @ mean.T, rows.y) >= first else None


def _problems(
    rows: _LinearRows, likelihood: Likelihood, eta: Tensor, log_odds: Tensor, scale: float
) -> list[LinearProblem] | None:
    """The quadratic of the log-likelihood around `eta`, one problem for each output; None where it is not finite.

    One for all outputs where the products would take too long: every row then has the mean curvature.
    """
    x, scaled = rows.x, rows.scaled
    slope, curvature = _quadratic(likelihood, eta, rows.y)
    if not bool(torch.isfinite(slope).all() & torch.isfinite(curvature).all()):
        return None
    if x.shape[0] * x.shape[1] ** 2 * eta.shape[1] > MOST_PRODUCTS:
        mean = (curvature.sum(0) / rows.counts.sum()).clamp_min(LEAST_CURVATURE)
        target = rows.counts * eta + slope / mean
        gram = scaled * (rows.counts * x).T @ x
        return [LinearProblem(gram, scaled * target.T @ x, mean[:, None], log_odds, scale)]
    one = x.new_ones(1, 1)
    problems = []
    for k in range(eta.shape[1]):
        weighted = scaled * curvature[:, k, None] * x
        cross = eta[:, k] @ weighted + scaled * slope[:, k] @ x
        problems.append(LinearProblem(weighted.T @ x, cross[None], one, log_odds[k : k + 1], scale))
    return problems


def _towards(rows: _LinearRows, likelihood: Likelihood, mean: Tensor, ridge: Tensor, scale: float) -> Tensor:
    """From `mean` to the ridge solution of its quadratic, or part of the way where the penalised fit would fall."""

    def penalised(weights: Tensor) -> float:
        return (
            rows.scaled * _fit(likelihood, rows.x @ weights.T, rows.y) - 0.5 * float(weights.square().sum()) / scale**2
        )

    before, step = penalised(mean), 1.0
    for _ in range(HALVINGS):
        new = mean + step * (ridge - mean)
        if penalised(new) >= before:
            return new
        step /= 2
    return mean


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


def _quadratic(likelihood: Likelihood, eta: Tensor, y: Response) -> tuple[Tensor, Tensor]:
    """Slope and curvature of the log-likelihood at each row and output, for as often as the row counts."""
    with torch.enable_grad():
        at = eta.to(_dtype(likelihood, y), copy=True).requires_grad_()
        (slope,) = torch.autograd.grad(likelihood.total(at, y), at, create_graph=True)
        curved = [torch.autograd.grad(slope[:, k].sum(), at, retain_graph=True)[0][:, k] for k in range(at.shape[1])]
    curvature = -torch.stack(curved, 1).detach().double()
    least = (LEAST_SHARE * curvature.mean(0)).clamp_min(LEAST_SHARE * LEAST_CURVATURE)
    return slope.detach().double(), torch.maximum(curvature, least)


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
