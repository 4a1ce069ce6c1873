"""The factorised posterior of a linear model by coordinate ascent: closed-form steps, several starts, a local search.

For y ~ N(x beta, 1 / precision) and the prior of eq. 3 the bound is a function of `gram` = x'x and `cross` = x'y only,
and each weight's (alpha, mu, sigma) has a best value given all others (Carbonetto & Stephens 2012, eq. 8 to 11):

    sigma_j^2 = 1 / (precision gram_jj + 1 / sigma_beta^2)
    mu_j      = sigma_j^2 precision (cross_j - sum_{k != j} gram_jk alpha_k mu_k)
    omega_j   = logit psi_j + log(sigma_j / sigma_beta) + mu_j^2 / (2 sigma_j^2)

Correlated columns can stand for each other, and the bound then has many local maxima: hence the search.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

SWEEPS, CLOSE = 200, 1e-6  # of coordinate ascent at most, and the change of alpha*mu, in sigmas, that ends it
SEARCHED = 100  # columns up to which sets of columns are searched
TRIED, ROUNDS = 48, 60  # changes of a set that are tried at once, and how often
GAIN = 1e-3  # nats: a smaller one is not worth another round
SAME = 0.5  # maxima whose alphas are all closer than this are taken for one
MOST_MAXIMA = 100  # that are held while more are looked for
SURE = 3.0  # omega of what a start takes in; its negative of what it leaves out


@dataclass(frozen=True)
class Factorised:
    """One row for each response: parameters of the posterior of its weights, and the bound (without constants)."""

    mu: Tensor
    sigma: Tensor
    omega: Tensor
    bound: Tensor


@dataclass(frozen=True)
class LinearProblem:
    """What the data and the prior say of linear models with shared columns, one row for each response.

    gram: (p, p), x'x. cross: (K, p), x'y. precision: (K, 1), 1 / phi. log_odds: (K, p), logit psi.
    scale: sigma_beta.
    """

    gram: Tensor
    cross: Tensor
    precision: Tensor
    log_odds: Tensor
    scale: float

    def response(self, k: int, copies: int) -> LinearProblem:
        """Response k alone, `copies` times: as many starts as are to be tried at once."""
        cross, precision, odds = (part[k].expand(copies, -1) for part in (self.cross, self.precision, self.log_odds))
        return LinearProblem(self.gram, cross, precision, odds, self.scale)

    @property
    def sigma(self) -> Tensor:
        """sigma_j, which depends on nothing else."""
        return (self.precision * self.gram.diagonal() + 1 / self.scale**2).rsqrt()

    def ridge(self, inside: Tensor) -> Tensor:
        """(K, p): the posterior mean given that exactly the columns `inside` are in the model, zero elsewhere."""
        included = inside.to(self.gram)
        matrix = self.precision[:, :, None] * self.gram * included[:, :, None] * included[:, None, :]
        diagonal = torch.where(inside, 1 / self.scale**2, 1.0).to(self.gram)
        right = (self.precision * self.cross * included)[..., None]
        solved: Tensor = torch.linalg.solve(matrix + torch.diag_embed(diagonal), right)
        return solved[..., 0]

    def bound(self, mu: Tensor, omega: Tensor) -> Tensor:
        """The bound for each row, without what does not depend on the posterior."""
        alpha, sigma = torch.sigmoid(omega), self.sigma
        mean, variance = alpha * mu, alpha * (sigma**2 + (1 - alpha) * mu**2)
        fit = (self.cross * mean).sum(-1) - 0.5 * ((mean @ self.gram) * mean).sum(-1)
        fit = fit - 0.5 * (self.gram.diagonal() * variance).sum(-1)
        slab = torch.log(self.scale / sigma) - 0.5 + (sigma**2 + mu**2) / (2 * self.scale**2)
        softplus = torch.nn.functional.softplus
        inclusion = alpha * (softplus(-self.log_odds) - softplus(-omega))
        inclusion = inclusion + (1 - alpha) * (softplus(self.log_odds) - softplus(omega))
        return self.precision[:, 0] * fit - (inclusion + alpha * slab).sum(-1)


def coordinate_ascent(problem: LinearProblem, mu: Tensor, omega: Tensor, sweeps: int = SWEEPS) -> Factorised:
    """The local maximum of the bound that a start (rows of mu and omega) leads to, each row on its own.

    >>> problem = LinearProblem(torch.eye(2), torch.tensor([[3.0, 0.0]]), torch.ones(1, 1), torch.zeros(1, 2), 1.0)
    >>> found = coordinate_ascent(problem, torch.zeros(1, 2), torch.zeros(1, 2))
    >>> found.mu.round(decimals=3).tolist(), (torch.sigmoid(found.omega) > 0.5).tolist()
    ([[1.5, 0.0]], [[True, False]])
    """
    sigma = problem.sigma
    odds = problem.log_odds + torch.log(sigma / problem.scale)
    shrink = sigma**2 * problem.precision
    mu, omega = mu.clone(), omega.clone()
    mean = torch.sigmoid(omega) * mu
    fitted = mean @ problem.gram
    for _ in range(sweeps):
        before = mean.clone()
        for j in range(mean.shape[1]):
            rest = problem.cross[:, j] - fitted[:, j] + problem.gram[j, j] * mean[:, j]
            mu[:, j] = shrink[:, j] * rest
            omega[:, j] = odds[:, j] + 0.5 * (mu[:, j] / sigma[:, j]).square()
            new = torch.sigmoid(omega[:, j]) * mu[:, j]
            fitted += (new - mean[:, j])[:, None] * problem.gram[j]
            mean[:, j] = new
        if bool(((mean - before).abs() < CLOSE * sigma).all()):
            break
    return Factorised(mu, sigma, omega, problem.bound(mu, omega))


def factorised_posterior(problem: LinearProblem) -> Factorised:
    """The best factorised posterior that starts with all, half and none of each weight and a local search find.

    With more than `SEARCHED` columns the starts alone are compared.
    """
    return factorised_maxima(problem, 1)[0]


def factorised_maxima(problem: LinearProblem, count: int) -> list[Factorised]:
    """The best `count` different local maxima that are found, fewer where there are fewer; the best one first.

    With several responses each maximum behind the first differs from it in one response, by the next best one there.
    """
    return _combined(_maxima_by_response(problem, count), count)


def maxima_of_each(problems: Sequence[LinearProblem], count: int) -> list[Factorised]:
    """The same where each response has a problem of its own, as rows that weigh otherwise for each make it."""
    return _combined([maxima for one in problems for maxima in _maxima_by_response(one, count)], count)


def _maxima_by_response(problem: LinearProblem, count: int) -> list[list[Factorised]]:
    everything = torch.ones_like(problem.log_odds, dtype=torch.bool)
    ridge = problem.ridge(everything)
    starts = [coordinate_ascent(problem, ridge, torch.full_like(ridge, omega)) for omega in (SURE, 0.0, -SURE)]
    searched = problem.gram.shape[0] <= SEARCHED
    rows = []
    for k in range(len(ridge)):
        of_row = [Factorised(*(part[k : k + 1] for part in _parts(start))) for start in starts]
        rows.append(_search(problem, k, of_row, count) if searched else _different(of_row, count))
    return rows


def _combined(rows: Sequence[Sequence[Factorised]], count: int) -> list[Factorised]:
    """The best maximum of all responses together, then those that differ from it in one response."""
    best = [maxima[0] for maxima in rows]
    others = [(float(m.bound - best[k].bound), k, m) for k, maxima in enumerate(rows) for m in maxima[1:]]
    others.sort(key=lambda other: -other[0])
    changed = [[m if k == row else top for k, top in enumerate(best)] for _, row, m in others[: count - 1]]
    return [_together(parts) for parts in (best, *changed)]


def _parts(one: Factorised) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return one.mu, one.sigma, one.omega, one.bound


def _together(rows: Sequence[Factorised]) -> Factorised:
    return Factorised(*(torch.cat(parts) for parts in zip(*(_parts(row) for row in rows), strict=True)))


def _different(maxima: Sequence[Factorised], count: int) -> list[Factorised]:
    """The best of the maxima (of one row each), without those that nearly say the same as a better one."""
    chosen: list[Factorised] = []
    for one in sorted(maxima, key=lambda one: -float(one.bound)):
        alpha = torch.sigmoid(one.omega)
        if all(float((alpha - torch.sigmoid(other.omega)).abs().max()) > SAME for other in chosen):
            chosen.append(one)
    return chosen[:count]


def _search(problem: LinearProblem, k: int, starts: list[Factorised], count: int) -> list[Factorised]:
    """Response k: change the set of columns by one or two, from the best maximum as long as that raises the bound.

    Where more than one maximum is asked for, the next ones are gone on from too.
    """
    pool = _different(starts, MOST_MAXIMA)
    seen: set[tuple[bool, ...]] = set()
    for _ in range(ROUNDS):
        for current in pool[:count]:
            inside = current.omega[0] > 0
            sets = [s for s in _neighbours(problem.gram, inside) if tuple(s.tolist()) not in seen][:TRIED]
            if sets:
                break
        else:
            break
        seen.update(tuple(s.tolist()) for s in sets)
        best, climbed = float(pool[0].bound), _climbed(problem, k, torch.stack(sets))
        pool = _different([*pool, *climbed], MOST_MAXIMA)
        if count == 1 and not float(pool[0].bound) > best + GAIN and len(sets) < TRIED:
            break
    one = problem.response(k, 1)
    return _different([coordinate_ascent(one, m.mu, m.omega) for m in pool[: 2 * count]], count)


def _climbed(problem: LinearProblem, k: int, sets: Tensor) -> list[Factorised]:
    """The local maxima that sets of columns lead to."""
    several = problem.response(k, len(sets))
    start = torch.where(sets, SURE, -SURE).to(problem.gram)
    climbed = coordinate_ascent(several, several.ridge(sets), start, SWEEPS // 4)
    return [Factorised(*(part[i : i + 1] for part in _parts(climbed))) for i in range(len(sets))]


def _neighbours(gram: Tensor, inside: Tensor) -> list[Tensor]:
    """Sets that differ by one column, and those with one column exchanged, most alike columns first."""
    root = gram.diagonal().clamp_min(torch.finfo(gram.dtype).tiny).sqrt()
    alike = (gram / root / root[:, None]).abs()
    sets = []
    for j in range(len(inside)):
        sets.append(_changed(inside, j))
    out, into = (part.nonzero()[:, 0].tolist() for part in (inside, ~inside))
    pairs = sorted(((float(alike[i, j]), i, j) for i in out for j in into), reverse=True)
    sets += [_changed(inside, i, j) for _, i, j in pairs]
    return sets


def _changed(inside: Tensor, *columns: int) -> Tensor:
    other = inside.clone()
    other[list(columns)] = ~other[list(columns)]
    return other
