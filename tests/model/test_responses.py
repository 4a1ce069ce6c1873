"""Each response distribution against scipy: density, distribution function, quantiles, expectations over q(phi)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, optimize, stats
from torch import Tensor

import slabnet as sn
from slabnet.model.likelihoods import Likelihood, Mixture, likelihood_from

D = torch.float64
OUTPUTS = torch.tensor([[[0.3], [-0.8], [1.4]], [[0.1], [-0.5], [2.0]]], dtype=D)  # two draws of three rows
LEVELS = torch.tensor([0.025, 0.5, 0.9], dtype=D)
Frozen = Callable[[np.ndarray[Any, Any], np.ndarray[Any, Any]], Any]

NUMBERS: dict[str, tuple[Callable[[], Likelihood], Frozen, list[float]]] = {
    "gaussian": (sn.Gaussian, lambda o, p: stats.norm(o, np.sqrt(p[:, None])), [0.1, -2.0, 3.0]),
    "lognormal": (
        sn.LogNormalResponse,
        lambda o, p: stats.lognorm(np.sqrt(p[:, None]), scale=np.exp(o)),
        [0.1, 2.0, 3.0],
    ),
    "poisson": (sn.Poisson, lambda o, p: stats.poisson(np.exp(o)), [0.0, 3.0, 12.0]),
    "negative-binomial": (
        sn.NegativeBinomial,
        lambda o, p: stats.nbinom(p[:, None], p[:, None] / (p[:, None] + np.exp(o))),
        [0.0, 3.0, 12.0],
    ),
    "gamma": (
        sn.Gamma,
        lambda o, p: stats.gamma(p[:, None] * np.ones_like(o), scale=np.exp(o) / p[:, None]),
        [0.2, 1.0, 7.0],
    ),
    "weibull": (sn.Weibull, lambda o, p: stats.weibull_min(p[:, None] * np.ones_like(o), scale=np.exp(o)), [0.2, 1, 7]),
    "student-t": (
        sn.StudentT,
        lambda o, p: stats.t(p[:, None, 1:] * np.ones_like(o), loc=o, scale=p[:, None, :1]),
        [0.1, -9.0, 3.0],
    ),
    "student-t of 3": (
        lambda: sn.StudentT(df=3.0),
        lambda o, p: stats.t(p[:, None, 1:] * np.ones_like(o), loc=o, scale=p[:, None, :1]),
        [0.1, -9.0, 3.0],
    ),
}
every_number = pytest.mark.parametrize("name", NUMBERS)


def made(name: str) -> Likelihood:
    """With a posterior of the dispersion that is neither at its start nor narrow."""
    likelihood = NUMBERS[name][0]().double()
    with torch.no_grad():
        for i, parameter in enumerate(likelihood.parameters()):
            parameter.fill_((0.4, -0.9, 1.1, -1.2)[i])
    return likelihood


def two_draws(likelihood: Likelihood) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.stack([likelihood.draw_dispersion(generator) for _ in range(2)]).double()


def logs(frozen: Any, y: Any) -> Any:
    return frozen.logpmf(y) if hasattr(frozen, "logpmf") else frozen.logpdf(y)


@every_number
def test_densities_and_probabilities(name: str) -> None:
    likelihood, (_, frozen, values) = made(name), NUMBERS[name]
    phi = two_draws(likelihood)
    truth, y = frozen(OUTPUTS.numpy(), phi.numpy()), torch.tensor(values, dtype=D)[:, None]
    part = likelihood.conditional(OUTPUTS, phi)
    assert part is not None
    torch.testing.assert_close(part.log_prob(y), torch.as_tensor(logs(truth, y.numpy())))
    torch.testing.assert_close(part.cdf(y), torch.as_tensor(truth.cdf(y.numpy())))
    torch.testing.assert_close(part.log_survival(y), torch.as_tensor(truth.logsf(y.numpy())))
    mixture = Mixture.of(likelihood, OUTPUTS, phi)
    assert mixture is not None
    density = np.exp(logs(truth, y.numpy())).mean(0)[:, 0]
    torch.testing.assert_close(mixture.log_density(y), torch.as_tensor(density).log())
    cut = torch.tensor([1.0, 0.0, 0.0])
    survival = truth.sf(y.numpy()).mean(0)[:, 0]
    torch.testing.assert_close(mixture.log_density(y, cut)[1:], torch.as_tensor(survival).log()[1:])
    torch.testing.assert_close(mixture.exceeds(y)[:, 0], torch.as_tensor(survival))


@every_number
def test_quantiles_invert_the_averaged_distribution(name: str) -> None:
    likelihood, frozen = made(name), NUMBERS[name][1]
    phi = two_draws(likelihood)
    truth, mixture = frozen(OUTPUTS.numpy(), phi.numpy()), Mixture.of(likelihood, OUTPUTS, phi)
    assert mixture is not None
    found = mixture.quantile(LEVELS)
    ends = truth.ppf(1e-9).min(), truth.ppf(1 - 1e-9).max()
    for i, level in enumerate(LEVELS.tolist()):
        for row in range(3):

            def gap(t: float, level: float = level, row: int = row) -> float:
                return float(truth.cdf(t)[:, row, 0].mean()) - level

            value = float(found[i, row, 0])
            if hasattr(truth, "logpmf"):
                assert gap(value) >= 0 > gap(value - 1)
            else:
                assert value == pytest.approx(optimize.brentq(gap, *ends, xtol=1e-12), rel=1e-6, abs=1e-8)


@every_number
def test_expected_log_density_and_variance_over_the_posterior_of_the_dispersion(name: str) -> None:
    """Against draws of phi (4 standard errors), and the variance by the law of total variance with scipy's own."""
    likelihood, (_, frozen, values) = made(name), NUMBERS[name]
    generator = torch.Generator().manual_seed(0)
    phi = torch.stack([likelihood.draw_dispersion(generator) for _ in range(20_000)]).double()
    y, output = torch.tensor(values, dtype=D)[:, None], OUTPUTS[0]
    each = logs(frozen(output.numpy()[None], phi.numpy()), y.numpy())[..., 0]
    error = each.std(0) / math.sqrt(len(phi)) + 1e-9
    with torch.no_grad():
        expected, variance = likelihood.log_prob(output, y), likelihood.variance(output)
    assert (np.abs(each.mean(0) - expected.numpy()) < 4 * error).all()
    if name in ("lognormal", "weibull"):
        spread = phi if name == "lognormal" else math.pi**2 / 6 / phi**2
        assert float(variance[0]) == pytest.approx(float(spread.mean()), rel=0.03)
        t = frozen(output.numpy()[None], phi.numpy()[:1]).rvs(size=(200_000, 3, 1), random_state=1)
        assert np.log(t).var() == pytest.approx(float(spread[0]) + float(output.var(correction=0)), rel=0.02)
    else:
        own = frozen(output.numpy()[None], phi.numpy()).var()
        np.testing.assert_allclose(variance.numpy(), own.mean(0) * np.ones_like(variance), rtol=0.05)


@every_number
def test_the_score_of_a_distribution(name: str) -> None:
    likelihood, (_, frozen, values) = made(name), NUMBERS[name]
    phi = two_draws(likelihood)
    truth, mixture = frozen(OUTPUTS.numpy(), phi.numpy()), Mixture.of(likelihood, OUTPUTS, phi)
    assert mixture is not None
    y = torch.tensor(values, dtype=D)[:, None]
    found = mixture.crps(y)
    for row in range(3):

        def cdf(t: float, row: int = row) -> float:
            return float(truth.cdf(t)[:, row, 0].mean())

        at = values[row]
        if hasattr(truth, "logpmf"):
            wanted = sum((cdf(k) - (at <= k)) ** 2 for k in range(400))
        else:
            low, high = (float(f(truth.ppf(p)[:, row, 0])) for f, p in ((np.min, 1e-7), (np.max, 1 - 1e-7)))
            wanted = integrate.quad(lambda t: cdf(t) ** 2, min(low, at), at, limit=200)[0]
            wanted += integrate.quad(lambda t: (1 - cdf(t)) ** 2, at, max(high, at), limit=200)[0]
        assert float(found[row]) == pytest.approx(wanted, rel=2e-3)


def test_a_normal_whose_noise_depends_on_the_inputs() -> None:
    likelihood = sn.Heteroscedastic()
    output = torch.tensor([[0.3, -1.0, 0.4, 1.2], [2.0, 0.0, -3.0, 0.0]], dtype=D)
    y = torch.tensor([[0.1, -2.0], [1.0, 1.0]], dtype=D)
    truth = stats.norm(output[:, :2].numpy(), (output[:, 2:] / 2).exp().numpy())
    torch.testing.assert_close(likelihood.log_prob(output, y), torch.as_tensor(truth.logpdf(y.numpy())).sum(-1))
    torch.testing.assert_close(likelihood.variance(output), torch.as_tensor(truth.var()))
    part = likelihood.conditional(output[None], torch.zeros(1, 0))
    torch.testing.assert_close(part.cdf(y)[0], torch.as_tensor(truth.cdf(y.numpy())))


def test_ordered_levels_are_differences_of_logistic_curves() -> None:
    likelihood = sn.Ordinal(levels=4).double()
    with torch.no_grad():
        likelihood.gaps.add_(torch.tensor([0.7, -1.0]))
    output = torch.tensor([[0.3], [-30.0], [40.0]], dtype=D)
    below = stats.logistic.cdf(likelihood.cuts.detach().numpy() - output.numpy())
    wanted = np.diff(np.hstack([np.zeros((3, 1)), below, np.ones((3, 1))]), axis=1)
    np.testing.assert_allclose(likelihood.mean(output).detach().numpy(), wanted, atol=1e-14)
    levels = torch.arange(3)
    assert bool(torch.isfinite(likelihood.log_prob(output, levels)).all())  # where the difference has no digits left
    np.testing.assert_allclose(likelihood.log_prob(output[:1], levels[1:2]).exp().item(), wanted[0, 1])
    assert likelihood.targets(torch.tensor([0, 3]), 1, D, "fit").tolist() == [0, 3]
    two = sn.Ordinal(levels=2)
    torch.testing.assert_close(two.mean(output.float())[:, 1], torch.sigmoid(output.float()[:, 0] - two.first))


def test_a_time_that_was_cut_off_counts_with_its_survival() -> None:
    likelihood = made("weibull")
    y, output = torch.tensor([[2.0], [0.5]], dtype=D), torch.tensor([[0.1], [0.3]], dtype=D)
    target = sn.Target(y, event=torch.tensor([1.0, 0.0], dtype=D))
    found = likelihood.log_likelihood(output, target).detach()
    generator = torch.Generator().manual_seed(1)
    k = torch.stack([likelihood.draw_dispersion(generator) for _ in range(20_000)]).numpy()
    truth = stats.weibull_min(k, scale=np.exp(output.numpy().T))
    each = np.stack([truth.logpdf(2.0)[:, 0], truth.logsf(0.5)[:, 1]], 1)
    assert (np.abs(each.mean(0) - found.numpy()) < 4 * each.std(0) / math.sqrt(len(k))).all()
    torch.testing.assert_close(likelihood.log_likelihood(output, y)[0].detach(), found[0])


@pytest.mark.parametrize("name", ["poisson", "negative-binomial"])
def test_exposure_multiplies_the_rate(name: str) -> None:
    likelihood = made(name)
    output, y = OUTPUTS[0], torch.tensor([[0.0], [3.0], [12.0]], dtype=D)
    target = sn.Target(y, exposure=torch.tensor([1.0, 2.5, 0.1], dtype=D))
    assert target.exposure is not None
    shifted = output + target.exposure.log()[:, None]
    torch.testing.assert_close(likelihood.log_likelihood(output, target), likelihood.log_prob(shifted, y))
    torch.testing.assert_close(
        likelihood.mean(likelihood.exposed(output, target.exposure)), likelihood.mean(output) * target.exposure[:, None]
    )


@every_number
def test_dispersions_have_a_divergence_that_is_that_of_normals(name: str) -> None:
    likelihood = made(name)
    own = float(likelihood.kl().detach())
    if name == "poisson":
        assert own == 0
        return
    if name in ("gaussian", "lognormal"):
        pairs = [(0.4, -0.9, 0.0, 3.0)]
    else:
        pairs = [(0.4, -0.9, 0.0, 1.5)] + ([(1.1, -1.2, math.log(8), 1.0)] if name == "student-t" else [])
    wanted = 0.0
    for mean, rho, prior, prior_sd in pairs:
        q = torch.distributions.Normal(torch.tensor(mean), torch.nn.functional.softplus(torch.tensor(rho)))
        wanted += float(torch.distributions.kl_divergence(q, torch.distributions.Normal(prior, prior_sd)))
    assert own == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize(
    ("likelihood", "y", "said"),
    [
        (sn.Poisson(), [0.0, -1.0, 2.0], "y must be counts, whole numbers from 0, got -1 in row 1"),
        (sn.NegativeBinomial(), [0.0, 1.0, 2.5], "whole numbers from 0, got 2.5 in row 2"),
        (sn.LogNormalResponse(), [1.0, 0.0, 2.0], "y must be numbers above 0, got 0 in row 1"),
        (sn.Gamma(), [1.0, -3.0, 2.0], "y must be numbers above 0, got -3 in row 1"),
        (sn.Weibull(), [0.0, 3.0, 2.0], "y must be numbers above 0, got 0 in row 0"),
        (sn.StudentT(), [0.0, float("nan"), 2.0], "finite numbers, got NaN or infinity in row 1"),
        (sn.Ordinal(levels=3), [0, 1, 3], "class labels from 0 to 2, got 3 in row 2"),
        (sn.Heteroscedastic(), [0, 1, 3], "1 outputs"),
    ],
)
def test_bad_targets(likelihood: Likelihood, y: list[float], said: str) -> None:
    with pytest.raises(sn.ArgumentError, match=r"fit: |network: ") as caught:
        likelihood.targets(torch.tensor(y), 1, torch.float32, "fit")
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("build", "said"),
    [
        (lambda: sn.Ordinal(levels=1), "levels must be a whole number of at least 2, got 1"),
        (lambda: likelihood_from("ordinal"), "levels must be given with ordinal"),
        (lambda: sn.mlp((2, 3), likelihood=sn.Ordinal(levels=3)), "ordinal levels come from 1 output, got 3 outputs"),
        (lambda: sn.mlp((2, 3), likelihood="heteroscedastic"), "a mean and a log variance each, got 3 outputs"),
        (lambda: sn.StudentT(df="few"), 'df must be "learned" or a number above 0'),  # type: ignore[arg-type]
        (lambda: sn.StudentT(df=0.0), "df must be a number above 0"),
    ],
)
def test_bad_likelihoods(build: Callable[[], object], said: str) -> None:
    with pytest.raises(sn.ArgumentError) as caught:
        build()
    assert said in str(caught.value)


@pytest.mark.parametrize(
    "likelihood", [*(entry[0]() for entry in NUMBERS.values()), sn.Ordinal(4), sn.Heteroscedastic()]
)
def test_specifications_build_the_same_again(likelihood: Likelihood) -> None:
    again = likelihood_from(likelihood.spec())
    assert type(again) is type(likelihood)
    assert again.spec() == likelihood.spec()
    assert set(again.state_dict()) == set(likelihood.state_dict())
