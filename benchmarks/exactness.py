"""How far `sn.fit` is from the exact posterior on linear models, and a docs page that says so.

`python -m benchmarks.exactness` can be stopped and started again: finished fits are kept.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

import slabnet as sn
from benchmarks.record import provenance, write_page
from benchmarks.resumable import Result, run_all
from slabnet.maths.coordinate_ascent import LinearProblem, coordinate_ascent, factorised_posterior
from slabnet.maths.enumeration import enumerate_linear

PSI, SIGMA_BETA, PHI = 0.2, 1.5, 0.5
CORRELATIONS = (0.0, 0.5, 0.9, 0.99)
P, N, SEEDS = 8, 100, range(50)
FEW, MEMBERS, SHARED = 60, 5, range(30)  # rows, members and data sets where columns stand for each other
SHORT = 500  # epochs of those fits, which start from the data
SURE = 0.9
NEARLY, DRAWS, RATIOS = 0.3, (2, 8, 32), 4000  # correlation, draws of a bound, and ratios in all
STRONG = 0.95
RANDOM_STARTS = 64
KEYS = ("study", "correlation", "seed")


def designs(p: int, n: int, correlation: float, seed: int) -> tuple[Tensor, Tensor]:
    """Columns with this correlation between neighbours (orthogonal to rounding at 0); half of them matter."""
    generator = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(n, p, generator=generator, dtype=torch.float64))
    covariance = correlation ** (torch.arange(p)[:, None] - torch.arange(p)).abs().double()
    x = math.sqrt(n) * q @ torch.linalg.cholesky(covariance).T
    beta = torch.where(torch.arange(p) % 2 == 0, 0.4 * torch.randn(p, generator=generator, dtype=torch.float64), 0.0)
    return x, x @ beta + math.sqrt(PHI) * torch.randn(n, generator=generator, dtype=torch.float64)


def near_duplicates(n: int, correlation: float, seed: int) -> tuple[Tensor, Tensor]:
    """Independent columns but for the second, which is nearly the first; three of them matter, among them the first."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, P, generator=generator, dtype=torch.float64)
    x[:, 1] = correlation * x[:, 0] + math.sqrt(1 - correlation**2) * x[:, 1]
    noise = math.sqrt(PHI) * torch.randn(n, generator=generator, dtype=torch.float64)
    return x, x @ torch.tensor([0.7, 0, 0.5, 0, -0.5, 0, 0, 0], dtype=torch.float64) + noise


def linear_layer(p: int, psi: float, sigma_beta: float) -> sn.Linear:
    """A linear model as a one-layer network without intercept."""
    return sn.Linear(p, 1, bias=False, prior=sn.Prior(psi=psi, sigma_beta=sigma_beta)).double()


def bound(layer: sn.Linear, x: Tensor, y: Tensor, phi: float) -> Tensor:
    """The bound in closed form: the Gaussian log-likelihood depends on two moments of the prediction only."""
    (mean, variance), *rest = layer.moments(layer.blocks())[0]
    centre, spread = (x @ mean.T).squeeze(1), (x.square() @ variance.T).squeeze(1)
    for bias_mean, bias_variance in rest:
        centre, spread = centre + bias_mean, spread + bias_variance
    error = (y - centre).square() + spread
    return -0.5 * (error / phi + math.log(2 * math.pi * phi)).sum() - layer.kl()


def best_factorised(x: Tensor, y: Tensor, *, phi: float, psi: float, sigma_beta: float) -> tuple[sn.Linear, float]:
    """The best factorised posterior that coordinate ascent from many starts and a local search find."""
    odds = torch.full((1, x.shape[1]), math.log(psi / (1 - psi)), dtype=torch.float64)
    problem = LinearProblem(x.T @ x, y[None] @ x, torch.full((1, 1), 1 / phi, dtype=torch.float64), odds, sigma_beta)
    climbed = factorised_posterior(problem)
    generator = torch.Generator().manual_seed(0)
    sets = torch.rand(RANDOM_STARTS, x.shape[1], generator=generator) < 0.5
    several = problem.response(0, RANDOM_STARTS)
    tried = coordinate_ascent(several, several.ridge(sets), torch.where(sets, 3.0, -3.0).double())
    top = int(tried.bound.argmax())
    best, row = (tried, top) if float(tried.bound[top]) > float(climbed.bound[0]) else (climbed, 0)
    layer = linear_layer(x.shape[1], psi, sigma_beta)
    with torch.no_grad():
        layer.weight.mu.copy_(best.mu[row : row + 1])
        sigma = best.sigma[row : row + 1]
        layer.weight.rho.copy_(sigma + torch.log(-torch.expm1(-sigma)))
        layer.weight.omega.copy_(best.omega[row : row + 1])  # type: ignore[union-attr]
    return layer, float(bound(layer, x, y, phi).detach())


def network(p: int, psi: float, sigma_beta: float, phi: float, seed: int, members: int = 1) -> sn.Network:
    """A linear model with an intercept, as `sn.mlp` makes it."""
    prior = sn.Prior(psi=psi, sigma_beta=sigma_beta)
    return sn.mlp((p, 1), prior=prior, likelihood=sn.Gaussian(phi=phi), seed=seed, members=members)


def fitted(x: Tensor, y: Tensor, *, phi: float, psi: float, sigma_beta: float, seed: int) -> sn.Linear:
    """What `sn.fit` makes of a one-layer network (with an intercept) under the default `TrainConfig`."""
    net = network(x.shape[1], psi, sigma_beta, phi, seed)
    sn.fit(net, (x.float(), y.float()[:, None]), sn.TrainConfig(), seed=seed, progress="off")
    return only_layer(net)


def only_layer(net: sn.Network) -> sn.Linear:
    """The one layer of a linear network, in double precision."""
    layer = net.double().body[1]
    assert isinstance(layer, sn.Linear)
    return layer


def both_alphas(layer: sn.Linear) -> Tensor:
    """Inclusion probabilities of the weights, then of the intercept."""
    assert layer.bias is not None
    return torch.cat([layer.weight.alpha.flatten(), layer.bias.alpha]).detach()


def of_design(correlation: float, seed: int) -> Result:
    """One design: gaps of the best factorised posterior and of the fit, and where their inclusions differ."""
    x, y = designs(P, N, correlation, seed)
    x1 = torch.cat([x, x.new_ones(N, 1)], 1)
    known = {"phi": PHI, "psi": PSI, "sigma_beta": SIGMA_BETA}
    exact = enumerate_linear(x1, y, **known)
    _, value = best_factorised(x1, y, **known)
    layer = fitted(x, y, seed=seed, **known)
    assert layer.bias is not None
    alpha, means = both_alphas(layer), torch.cat([layer.weight.mu.flatten(), layer.bias.mu]).detach()
    strong = exact.alpha > STRONG
    return {
        "best": exact.log_evidence - value,
        "fit": exact.log_evidence - float(bound(layer, x, y, PHI).detach()),
        "alpha": float((alpha - exact.alpha).abs().mean()),
        "mean": float((x1 @ (alpha * means - exact.mean)).square().mean().sqrt()),
        "median": float(((alpha > 0.5) == (exact.alpha > 0.5)).double().mean()),
        "strong": int(strong.sum()),
        "lost": int((strong & (alpha < 0.5)).sum()),
    }


def of_members(study: str, correlation: float, seed: int) -> Result:
    """Inclusions of a mixture of several posteriors, and of its first member, which is the fit of one posterior."""
    make = near_duplicates if study == "duplicates" else lambda n, r, number: designs(P, n, r, number)
    x, y = make(FEW, correlation, seed)
    known = {"phi": PHI, "psi": PSI, "sigma_beta": SIGMA_BETA}
    exact = enumerate_linear(torch.cat([x, x.new_ones(FEW, 1)], 1), y, **known)
    net = network(P, seed=seed, members=MEMBERS, **known)
    config = sn.TrainConfig(batch_size=FEW, epochs=SHORT)
    sn.fit(net, (x.float(), y.float()[:, None]), config, seed=seed, progress="off")
    assert isinstance(net, sn.Mixture)
    each = torch.stack([both_alphas(only_layer(member)) for member in net.members])
    alpha = (net.weights.double()[:, None] * each).sum(0)
    return {
        "one": float((each[0] - exact.alpha).abs().mean()),
        "members": float((alpha - exact.alpha).abs().mean()),
        "one sure": int(each[0][:2].max() > SURE),
        "members sure": int(alpha[:2].max() > SURE),
        "exact sure": int(exact.alpha[:2].max() > SURE),
    }


def of_evidence(correlation: float, seed: int) -> Result:
    """How far the bounds of `sn.log_evidence` are below the evidence, by how many draws they average, and errors."""
    x, y = designs(P, FEW, correlation, seed)
    known = {"phi": PHI, "psi": PSI, "sigma_beta": SIGMA_BETA}
    exact = enumerate_linear(torch.cat([x, x.new_ones(FEW, 1)], 1), y, **known).log_evidence
    net = network(P, seed=seed, **known)
    config = sn.TrainConfig(batch_size=FEW, epochs=SHORT)
    sn.fit(net, (x.float(), y.float()[:, None]), config, seed=seed, progress="off")
    gaps: Result = {}
    for draws in DRAWS:
        found = sn.log_evidence(net, (x, y[:, None]), draws=draws, groups=RATIOS // draws, seed=seed)
        gaps |= {"elbo": exact - found.elbo, "elbo error": found.elbo_error}
        for name in ("weighted", "corrected"):
            value, error = (getattr(found, key) for key in (name, f"{name}_error"))
            gaps |= {f"{name} {draws}": None if value is None else exact - value, f"{name} {draws} error": error}
    return gaps


def page(record: dict[str, Any]) -> str:
    lines = [
        "# How exact is a fit?",
        "",
        f"A linear model with {P} inputs, an intercept, {N} rows and known noise has 2^{P + 1} models, which can be",
        "enumerated (`slabnet.maths.enumeration.enumerate_linear`). Beside that stand two posteriors in which",
        "weights are independent: the best one there is (coordinate ascent from many starts, and a local search),",
        "and the one that `sn.fit` finds with the default `TrainConfig()`. Means over",
        f"{_count(record, 'designs')} simulated data sets with correlation r^|j-k| between inputs j and k. A weight is",
        f"strong if its exact inclusion probability is above {STRONG}, and lost if the fit gives less than one half.",
        "",
        "| r | evidence minus best bound | evidence minus bound of the fit | largest gap of a fit to the best bound "
        "| strong weights lost | mean error of alpha | same median decision | RMS error of the fit |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for correlation in CORRELATIONS:
        rows = [r for r in record["results"] if r["study"] == "designs" and r["correlation"] == correlation]
        mean = {name: sum(r[name] for r in rows) / len(rows) for name in ("best", "fit", "alpha", "median", "mean")}
        lost, strong = (sum(r[name] for r in rows) for name in ("lost", "strong"))
        worst = max(r["fit"] - r["best"] for r in rows)
        bounds = f"{mean['best']:.3f} | {mean['fit']:.3f} | {worst:.3f} | {lost} of {strong}"
        lines.append(f"| {correlation} | {bounds} | {mean['alpha']:.4f} | {mean['median']:.1%} | {mean['mean']:.4f} |")
    lines += [
        "",
        "The bound never exceeds the evidence. Inputs that are strongly correlated can stand for each other, and",
        "independent indicators cannot say that one of them is needed but not which: single inclusion",
        "probabilities are then to be read with care (a fit of a table warns of pairs with |r| above .98). The",
        f"averaged fit is off by little (the noise has a standard deviation of {PHI**0.5:.2f}).",
        *_about_members(record),
        *_about_evidence(record),
        "",
        provenance(record),
        "",
    ]
    return "\n".join(lines)


def _count(record: dict[str, Any], study: str) -> int:
    """How many data sets a study has for each correlation."""
    seeds = [(r["correlation"], r["seed"]) for r in record["results"] if r["study"] == study]
    return min(sum(1 for other, _ in seeds if other == one) for one, _ in seeds)


def _about_members(record: dict[str, Any]) -> list[str]:
    """A table of what several posteriors give."""
    lines = [
        "",
        "## Columns that stand for each other",
        "",
        f"`sn.mlp(..., members={MEMBERS})` starts each member of a linear model at another local maximum of the bound",
        "and weighs them by their bounds. The average of their inclusion probabilities then says what one posterior",
        f"cannot: that one of several columns is needed, but not which. {FEW} rows, {P} inputs and an intercept, means",
        f"over {_count(record, 'correlated')} data sets, `sn.fit` of {SHORT} epochs from the start that the data give.",
        "In the last row the second column is nearly the first one (r = .99) and the others are independent; there a",
        f"posterior is sure if it gives one of the two more than {SURE}.",
        "",
        f"| data | error of alpha, one posterior | {MEMBERS} members | exact posterior sure | one posterior sure "
        f"| {MEMBERS} members sure |",
        "|---|---|---|---|---|---|",
    ]
    for study, correlation, name in (
        ("correlated", 0.9, "r = 0.9"),
        ("correlated", 0.99, "r = 0.99"),
        ("duplicates", 0.99, "near-duplicates"),
    ):
        rows = [r for r in record["results"] if r["study"] == study and r["correlation"] == correlation]
        errors = [sum(r[key] for r in rows) / len(rows) for key in ("one", "members")]
        sure = [f"{sum(r[key] for r in rows)} of {len(rows)}" for key in ("exact sure", "one sure", "members sure")]
        sure = sure if study == "duplicates" else ["-"] * len(sure)
        lines.append(f"| {name} | {errors[0]:.4f} | {errors[1]:.4f} | {' | '.join(sure)} |")
    return lines


def _about_evidence(record: dict[str, Any]) -> list[str]:
    """A table of the bounds of the evidence."""
    every = [r for r in record["results"] if r["study"] == "evidence"]
    rows = [r for r in every if r[f"weighted {DRAWS[0]}"] is not None]
    lines = [
        "",
        "## Bounds of the evidence",
        "",
        "What `sn.log_evidence` gives for fits of the same kind, beside the enumerated log evidence: how far each",
        f"number is below it, as means over {len(rows)} data sets (r = {NEARLY}, {FEW} rows) with standard errors of",
        f"the simulation, {RATIOS} ratios each; for {len(every) - len(rows)} more it calls the ratios unusable.",
        "The ELBO and the importance-weighted bound are bounds; the correction by the jackknife is none, and its bias",
        "shrinks with the number of draws K.",
        "",
        "| K | ELBO | importance-weighted | corrected |",
        "|---|---|---|---|",
    ]
    for draws in DRAWS:
        cells = []
        for name in ("elbo", f"weighted {draws}", f"corrected {draws}"):
            gaps, errors = ([r[key] for r in rows] for key in (name, f"{name} error"))
            error = math.sqrt(sum(e**2 for e in errors)) / len(rows)
            cells.append(f"{sum(gaps) / len(rows):.4f} ± {error:.4f}")
        lines.append(f"| {draws} | {' | '.join(cells)} |")
    return lines


def work(job: Result) -> Result:
    """One job of a study."""
    if job["study"] == "evidence":
        return of_evidence(job["correlation"], job["seed"])
    if job["study"] == "designs":
        return of_design(job["correlation"], job["seed"])
    return of_members(job["study"], job["correlation"], job["seed"])


def jobs() -> list[Result]:
    """Every data set; the studies take turns, so that one that was stopped has some of each."""
    every = [{"study": "designs", "correlation": r, "seed": s} for s in SEEDS for r in CORRELATIONS]
    kinds = (("correlated", 0.9), ("correlated", 0.99), ("duplicates", 0.99))
    every += [{"study": study, "correlation": r, "seed": s} for s in SHARED for study, r in kinds]
    every += [{"study": "evidence", "correlation": NEARLY, "seed": s} for s in SEEDS[:5]]
    return sorted(every, key=lambda job: job["seed"])


if __name__ == "__main__":
    torch.set_num_threads(1)
    made = run_all("exactness", "python -m benchmarks.exactness", KEYS, jobs(), work)
    write_page("exactness.md", page(made))
    print(page(made))
