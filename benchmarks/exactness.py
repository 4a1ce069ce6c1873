"""How far `sn.fit` is from the exact posterior on linear models, and a docs page that says so.

`python -m benchmarks.exactness` can be stopped and started again: finished fits are kept in the record.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

import slabnet as sn
from benchmarks.record import provenance, write_page
from benchmarks.tables import Result, run_all
from slabnet.config.settings_0_1 import TRAIN_0_1
from slabnet.maths.coordinate_ascent import LinearProblem, coordinate_ascent, factorised_posterior
from slabnet.maths.enumeration import enumerate_linear

PSI, SIGMA_BETA, PHI = 0.2, 1.5, 0.5
CORRELATIONS = (0.0, 0.5, 0.9, 0.99)
P, N, SEEDS = 8, 100, range(50)
STRONG = 0.95
RANDOM_STARTS = 64
WAYS: dict[str, tuple[sn.Start, sn.TrainConfig]] = {
    "default": (sn.Start(), sn.TrainConfig()),
    "random start": (sn.Start(mu="he"), sn.TrainConfig()),
    "0.1": (sn.Start(mu="he"), sn.TrainConfig(**TRAIN_0_1)),
}
COMMAND, KEYS = "python -m benchmarks.exactness", ("way", "correlation", "seed")
CASES = [*(("default", r) for r in CORRELATIONS), ("random start", 0.0), ("0.1", 0.0)]
JOBS = [{"way": way, "correlation": r, "seed": seed} for seed in SEEDS for way, r in CASES]


def designs(p: int, n: int, correlation: float, seed: int) -> tuple[Tensor, Tensor]:
    """Columns with this correlation between neighbours (orthogonal to rounding at 0); half of them matter."""
    generator = torch.Generator().manual_seed(seed)
    q, _ = torch.linalg.qr(torch.randn(n, p, generator=generator, dtype=torch.float64))
    covariance = correlation ** (torch.arange(p)[:, None] - torch.arange(p)).abs().double()
    x = math.sqrt(n) * q @ torch.linalg.cholesky(covariance).T
    beta = torch.where(torch.arange(p) % 2 == 0, 0.4 * torch.randn(p, generator=generator, dtype=torch.float64), 0.0)
    return x, x @ beta + math.sqrt(PHI) * torch.randn(n, generator=generator, dtype=torch.float64)


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


def fitted(
    x: Tensor, y: Tensor, *, phi: float, psi: float, sigma_beta: float, seed: int, way: str = "default"
) -> sn.Linear:
    """What `sn.fit` makes of a one-layer network (with an intercept); the default way gives no setting of training."""
    prior, (start, config) = sn.Prior(psi=psi, sigma_beta=sigma_beta), WAYS[way]
    net = sn.mlp((x.shape[1], 1), prior=prior, start=start, likelihood=sn.Gaussian(phi=phi), seed=seed)
    sn.fit(net, (x.float(), y.float()[:, None]), config, seed=seed, progress="off")
    layer = net.double().body[1]
    assert isinstance(layer, sn.Linear)
    return layer


def work(job: Result) -> Result:
    """One fit, and how far it is from the exact posterior and from the best factorised one."""
    x, y = designs(P, N, job["correlation"], job["seed"])
    x1 = torch.cat([x, x.new_ones(N, 1)], 1)
    known = {"phi": PHI, "psi": PSI, "sigma_beta": SIGMA_BETA}
    exact = enumerate_linear(x1, y, **known)
    _, best = best_factorised(x1, y, **known)
    layer = fitted(x, y, seed=job["seed"], way=job["way"], **known)
    parts = (layer.weight, layer.bias)
    alpha, means = (torch.cat([getattr(part, name).detach().flatten() for part in parts]) for name in ("alpha", "mu"))
    strong = exact.alpha > STRONG
    return {
        "best": exact.log_evidence - best,
        "fit": exact.log_evidence - float(bound(layer, x, y, PHI).detach()),
        "alpha": float((alpha - exact.alpha).abs().mean()),
        "mean": float((x1 @ (alpha * means - exact.mean)).square().mean().sqrt()),
        "median": bool(((alpha > 0.5) == (exact.alpha > 0.5)).all()),
        "strong": int(strong.sum()),
        "lost": int((strong & (alpha < 0.5)).sum()),
    }


def summary(results: Sequence[Result], way: str, correlation: float) -> Result:
    """Means and sums over the data sets of one line; the gap is to the best factorised posterior."""
    rows = [r for r in results if r["way"] == way and r["correlation"] == correlation]
    gaps = [r["fit"] - r["best"] for r in rows]
    means = {name: sum(r[name] for r in rows) / len(rows) for name in ("best", "alpha", "mean")}
    sums = {name: sum(r[name] for r in rows) for name in ("strong", "lost", "median")}
    return means | sums | {"gap": sum(gaps) / len(gaps), "largest": max(gaps), "sets": len(rows)}


def page(record: dict[str, Any]) -> str:
    header = "evidence minus best bound | gap of the fit | largest gap | strong weights lost | median model right"

    def line(name: Any, way: str, correlation: float) -> str:
        r = summary(record["results"], way, correlation)
        bounds = f"{r['best']:.3f} | {r['gap']:.3f} | {r['largest']:.3f} | {r['lost']} of {r['strong']}"
        return f"| {name} | {bounds} | {r['median']} of {r['sets']} | {r['alpha']:.3f} | {r['mean']:.3f} |"

    def table(first: str, lines: Sequence[str]) -> list[str]:
        return [f"| {first} | {header} | mean error of alpha | RMS error of the fit |", "|---" * 8 + "|", *lines]

    lines = [
        "# How exact is a fit?",
        "",
        f"A linear model with {P} inputs, an intercept, {N} rows and known noise has 2^{P + 1} models, which can be",
        "enumerated (`slabnet.maths.enumeration.enumerate_linear`). Two posteriors in which weights are independent",
        "stand beside the exact one: the best there is (coordinate ascent from many starts, and a local search), and",
        "the one that `sn.fit` ends with. The gap of a fit is the best bound minus its bound, in nats. A weight is",
        f"strong if its exact inclusion probability is above {STRONG}, and lost if the fit gives it less than one half.",
        "Data sets are simulated, with correlation r^|j-k| between inputs j and k; `lost` and `right` count over all.",
        "",
        "With default settings, that is `sn.fit(net, data)`:",
        "",
        *table("r", [line(r, "default", r) for r in CORRELATIONS]),
        "",
        "The bound never exceeds the evidence. Inputs that are strongly correlated can stand for each other, and",
        "independent indicators cannot say that one of them is needed but not which: single inclusion",
        "probabilities are then to be read with care (a fit of a table warns of pairs with |r| above .98). The",
        f"averaged fit is off by little (the noise has a standard deviation of {PHI**0.5:.2f}).",
        "",
        "## What the start does",
        "",
        "The default start of a linear model is the posterior that coordinate ascent finds in the data. From a random",
        "start (`Start(mu=\"he\")`) half of the means have the wrong sign. Their indicators must not close before the",
        "means have turned: `TrainConfig.omega_hold` lets omega wait. The last line is the training of 0.1, where omega",
        "moved from the first step on, and faster than the means. All at r = 0.",
        "",
        *table("training", [line(way, way, 0.0) for way in WAYS]),
        "",
        provenance(record),
        "",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    torch.set_num_threads(1)
    made = run_all("exactness", COMMAND, KEYS, JOBS, work)
    write_page("exactness.md", page(made))
    print(page(made))
