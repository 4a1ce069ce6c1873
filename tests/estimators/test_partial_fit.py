"""More rows for a fitted estimator, a few at a time: they must not undo what was learned."""

from __future__ import annotations

import numpy as np
import pytest

import slabnet as sn
from slabnet.estimators.tempering import Trial, noise_around
from slabnet.estimators.warnings import near_duplicates


def rows(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, 3))
    return x, np.sin(2 * x[:, 0]) + 0.5 * x[:, 1] + 0.5 * rng.normal(size=n)


def test_one_row_at_a_time_makes_nothing_worse_and_keeps_the_noise() -> None:
    x, y = rows(150, 0)
    x_test, y_test = rows(400, 1)
    model = sn.SlabRegressor(hidden=(20,), epochs=600, draws=30, random_state=0).fit(x, y)
    before, noise = float(np.sqrt(((model.predict(x_test) - y_test) ** 2).mean())), model.noise_std_
    more = rows(15, 2)
    for i in range(15):
        model.partial_fit(more[0][i : i + 1], more[1][i : i + 1])
    after = float(np.sqrt(((model.predict(x_test) - y_test) ** 2).mean()))
    assert after < 1.03 * before
    assert model.noise_std_ == pytest.approx(noise, rel=0.1)
    assert model.n_samples_seen_ == 165


def test_the_weight_of_the_kl_stays_what_it_was() -> None:
    x, y = rows(120, 0)
    half = sn.TrainConfig(kl_weight=0.5)
    model = sn.SlabRegressor(hidden=(5,), config=half, epochs=5, draws=5, random_state=0).fit(x, y)
    model.config = None
    assert model.partial_fit(x[:5], y[:5]).history_.config["kl_weight"] == 0.5
    model.partial_fit(x[:5], y[:5])
    assert model.history_.kl_weight == 0.5


def test_single_rows_say_the_noise_without_bias() -> None:
    """Rows one by one, each a mixture over draws around it: the running mean stays at the true variance."""
    rng = np.random.default_rng(0)
    trial = Trial(1.0, (0.49,), 50, {})
    for _ in range(400):
        samples = 0.3 * rng.normal(size=(30, 1, 1))
        y = np.array([[0.3 * rng.normal() + 0.7 * rng.normal()]])
        trial = trial.with_rows(noise_around(samples, y, trial.phi), 1)
    assert trial.phi[0] == pytest.approx(0.49, abs=0.08)


def test_columns_that_are_nearly_alike_are_named() -> None:
    x, y = rows(80, 0)
    x[:, 2] = x[:, 0] + 0.01 * np.random.default_rng(3).normal(size=80)
    assert [pair[:2] for pair in near_duplicates(x)] == [(0, 2)]
    with pytest.warns(UserWarning, match=r"columns nearly alike .*: 0 and 2 \(r = 1.000\)"):
        sn.SlabRegressor(hidden=(), epochs=2, draws=2, random_state=0).fit(x, y)
    assert near_duplicates(np.ones((10, 2))) == []
