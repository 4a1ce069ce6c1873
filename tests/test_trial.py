"""Noise and the weight of the KL, from rows that were kept aside."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import optimize, special, stats

import slabnet as sn
from slabnet.estimators.trial import KL_WEIGHTS, mixture_log_density, noise_around
from slabnet.noise import keyed_generator


def test_noise_around_draws_is_the_most_probable_one() -> None:
    """Against a search over log phi with scipy's own densities."""
    rng = np.random.default_rng(5)
    samples = rng.normal(size=(7, 40, 1))
    y = samples[0] + rng.normal(size=(40, 1))

    def density(log_phi: float) -> float:
        logs = stats.norm.logpdf(y, samples, np.exp(log_phi / 2))[:, :, 0]
        return float((special.logsumexp(logs, axis=0) - np.log(7)).mean())

    best = optimize.minimize_scalar(lambda v: -density(v), bounds=(-6, 4), method="bounded", options={"xatol": 1e-9})
    phi = noise_around(samples, y)
    assert float(phi[0]) == pytest.approx(np.exp(best.x), rel=1e-4)
    assert mixture_log_density(samples, y, phi).mean() == pytest.approx(density(np.log(phi[0])), rel=1e-9)
    both = noise_around(np.concatenate([samples, samples * 3], axis=2), np.concatenate([y, y * 3], axis=1))
    np.testing.assert_allclose(both, [phi[0], 9 * phi[0]], rtol=1e-6)


def test_the_log_of_a_variance_is_as_uncertain_as_its_rows_make_it() -> None:
    rows = 60
    seen = np.log(np.random.default_rng(6).normal(size=(20_000, rows)).var(1))
    likelihood = sn.Gaussian()
    likelihood.set_noise([0.3], rows)
    drawn = torch.stack([likelihood.draw_phi(keyed_generator(0, r)) for r in range(4000)]).log()
    assert float(drawn.std()) == pytest.approx(float(seen.std()), rel=0.05)
    assert float(drawn.mean()) == pytest.approx(np.log(0.3), abs=0.02)


def test_a_trial_takes_noise_and_weight_from_rows_kept_aside() -> None:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(400, 3))
    y = np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=400)
    model = sn.SlabRegressor(hidden=(20,), epochs=200, random_state=0).fit(x, y)
    trial = model.trial_
    assert trial is not None
    assert trial.rows == 80
    assert set(trial.log_densities) == set(KL_WEIGHTS)
    assert trial.kl_weight == 1 or trial.log_densities[0.5] > trial.log_densities[1.0]
    assert model.history_.kl_weight == trial.kl_weight
    assert model.noise_std_ == pytest.approx(np.sqrt(trial.phi[0]) * y.std(), rel=0.01)
    assert model.noise_std_ == pytest.approx(0.3, rel=0.35)
    told = sn.SlabRegressor(hidden=(20,), epochs=2, config=sn.TrainConfig(kl_weight=0.7), random_state=0).fit(x, y)
    assert told.trial_ is not None
    assert list(told.trial_.log_densities) == [0.7]
    plain = {"hidden": (), "epochs": 2}, {"config": sn.TrainConfig(kl_weight=1.0), "epochs": 2}
    for options in plain:  # a linear model, and one whose weight was said to be that of the bound itself
        assert sn.SlabRegressor(**options).fit(x, y).trial_ is None
    assert sn.SlabRegressor(epochs=2).fit(x[:59], y[:59]).trial_ is None
