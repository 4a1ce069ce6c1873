"""Noise and the weight of the KL, from rows that were held out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import optimize, special, stats

import slabnet as sn
from slabnet.core.noise import keyed_generator
from slabnet.estimators import load_estimator, save_estimator
from slabnet.estimators.tempering import KL_WEIGHTS, mixture_log_density, noise_around

HALF = sn.TrainConfig(kl_weight=0.5)


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


def test_a_trial_takes_the_noise_from_held_out_rows() -> None:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(400, 3))
    y = np.sin(2 * x[:, 0]) + 0.3 * rng.normal(size=400)
    model = sn.SlabRegressor(hidden=(20,), config=HALF, epochs=200, random_state=0).fit(x, y)
    trial = model.trial_
    assert trial is not None
    assert trial.rows == 80
    assert list(trial.log_densities) == [0.5]
    assert model.history_.kl_weight == trial.kl_weight == 0.5
    assert model.noise_std_ == pytest.approx(np.sqrt(trial.phi[0]) * y.std(), rel=0.01)
    assert model.noise_std_ == pytest.approx(0.3, rel=0.35)


def test_the_bound_stands_where_half_its_kl_lets_noise_in() -> None:
    """Two of twelve columns matter: under half the KL most columns come in."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 12))
    y = 2 * x[:, 0] + np.sin(x[:, 1]) + rng.normal(size=400)
    model = sn.SlabRegressor(hidden=(20,), epochs=400, random_state=0).fit(x, y)
    assert model.trial_ is not None
    assert set(model.trial_.log_densities) == {1.0, 0.5}
    assert model.history_.kl_weight == 1.0
    assert model.selected_features_.tolist() == [0, 1]


def test_there_is_no_trial_where_rows_are_few_or_a_weight_is_given() -> None:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(120, 3))
    y = x[:, 0] + 0.3 * rng.normal(size=120)
    for options in ({"hidden": ()}, {"config": sn.TrainConfig(kl_weight=1.0)}):
        assert sn.SlabRegressor(**{"hidden": (4,), "epochs": 2} | options).fit(x, y).trial_ is None
    assert sn.SlabRegressor(hidden=(4,), epochs=2).fit(x[:99], y[:99]).trial_ is None
    assert sn.SlabClassifier(hidden=(4,), epochs=2).fit(x, y > 0).history_.kl_weight == 1.0


@pytest.mark.parametrize("config", [sn.TrainConfig(kl_weight=1.0), HALF])
def test_noise_follows_rows_that_come_later(config: sn.TrainConfig) -> None:
    """Ten times the noise in later rows: intervals hold them after a few thousand."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(200, 3))
    model = sn.SlabRegressor(config=config, epochs=600, random_state=0).fit(x, x[:, 0] + 0.1 * rng.normal(size=200))
    assert (model.trial_ is None) == (config is not HALF)
    before = model.noise_std_
    for _ in range(6):
        x = rng.normal(size=(500, 3))
        y = x[:, 0] + rng.normal(size=500)
        model.partial_fit(x, y)
    assert before < 0.3
    assert model.noise_std_ == pytest.approx(1.0, rel=0.15)
    low, high = model.predict_interval(x)
    assert np.mean((low <= y) & (y <= high)) > 0.9


def test_a_small_model_has_the_noise_of_its_own_errors() -> None:
    rng = np.random.default_rng(0)
    x = rng.uniform(-2, 2, size=(800, 5))
    y = 3 * np.sin(2 * x[:, 0]) + 2 * x[:, 1] * x[:, 2] + 0.5 * rng.normal(size=800)
    model = sn.SlabRegressor(epochs=100, random_state=0).fit(x[:400], y[:400])
    small = model.sparsify(rule="budget", weights=8, data=(x[:400], y[:400]), epochs=100)
    low, high = small.predict_interval(x[400:])
    assert np.mean((low <= y[400:]) & (y[400:] <= high)) > 0.88
    assert small.noise_std_ > model.noise_std_


def test_a_saved_estimator_goes_on_as_the_one_it_was(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 3))
    y = x[:, 0] + 0.1 * rng.normal(size=200)
    options = {"standardize": False, "lr": 0.001, "psi": 0.2, "epochs": 5, "random_state": 1, "batch_size": 32}
    model = sn.SlabRegressor(**options).fit(x, y)
    save_estimator(model, tmp_path / "m.slab")
    loaded = load_estimator(tmp_path / "m.slab")
    assert {name: getattr(loaded, name) for name in options} == options
    model.partial_fit(x, y)
    loaded.partial_fit(x, y)
    np.testing.assert_allclose(loaded.predict(x), model.predict(x), rtol=1e-6)


def test_bad_parameters_of_tables() -> None:
    x, y = np.random.default_rng(0).normal(size=(20, 2)), np.arange(20.0)
    for size in (0, -3, 2.5):
        with pytest.raises(sn.ArgumentError, match="batch_size must be a whole number of at least 1"):
            sn.SlabRegressor(batch_size=size, epochs=1).fit(x, y)
    with pytest.raises(sn.ArgumentError, match="columns have different names, got a twice"):
        sn.SlabRegressor(epochs=1).fit(pd.DataFrame(x, columns=["a", "a"]), y)
    model = sn.SlabRegressor(hidden=np.int64(3), epochs=1).fit(x, y)
    with pytest.raises(sn.ArgumentError, match=r"data must be a pair \(X, y\)"):
        model.sparsify(data=x)
    classes = sn.SlabClassifier(hidden=(), epochs=1).fit(x, y > 9)
    with pytest.raises(sn.ArgumentError, match="classes must be those of the first call"):
        classes.partial_fit(x, y > 9, classes=[0, 1, 2])


@pytest.mark.parametrize("response", ["heteroscedastic", "poisson", "weibull"])
def test_every_response_is_tried(response: str, tmp_path: Path) -> None:
    """The densities of the trial are those of rows it did not fit, cut-off and exposed ones too; files keep it."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(150, 2))
    y, sides = x[:, 0] + rng.normal(size=150), {}
    if response == "poisson":
        sides["exposure"] = rng.uniform(1, 3, 150)
        y = rng.poisson(sides["exposure"] * np.exp(x[:, 0]))
    elif response == "weibull":
        y, sides["event"] = np.exp(x[:, 0]) * rng.weibull(2, 150), (rng.uniform(size=150) < 0.8).astype(float)
    model = sn.SlabRegressor(hidden=(4,), epochs=15, draws=20, response=response, random_state=0).fit(x, y, **sides)
    assert model.trial_ is not None
    assert (model.trial_.phi, model.trial_.rows) == ((), 30)
    assert set(model.trial_.log_densities) == set(KL_WEIGHTS)
    assert model.history_.kl_weight == model.trial_.kl_weight
    save_estimator(model, tmp_path / "m.slab")
    again = load_estimator(tmp_path / "m.slab").trial_
    assert again is not None
    assert (again.kl_weight, again.phi) == (model.trial_.kl_weight, ())


def test_rows_count_as_often_as_their_weight_in_the_trial() -> None:
    samples, y = np.zeros((1, 4, 1)), np.array([[1.0], [-1.0], [3.0], [1.0]])
    weight = np.array([2.0, 1.0, 1.0, 0.0])
    assert noise_around(samples, y, weight=weight).tolist() == noise_around(samples, y[[0, 0, 1, 2]] * 1).tolist()
    rng = np.random.default_rng(1)
    x = rng.normal(size=(200, 1))
    y = np.where(np.arange(200) < 150, x[:, 0], 50 * x[:, 0])
    model = sn.SlabRegressor(hidden=(4,), epochs=10, random_state=0).fit(
        x, y, sample_weight=(np.arange(200) < 150) * 1.0
    )
    assert model.trial_ is not None
    assert model.trial_.rows == 30  # of those that count
