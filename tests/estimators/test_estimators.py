"""The estimators as scikit-learn, and people who use it, expect them."""

from __future__ import annotations

import pickle
import warnings
from datetime import date
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import polars as pl
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer, load_iris
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

import slabnet as sn
from slabnet.config.methods import METHODS
from slabnet.config.tables import defaults_for, psi_for
from slabnet.core.noise import keyed_generator
from slabnet.estimators.scaling import Scaling
from slabnet.estimators.warnings import far_values
from slabnet.selection.rules import threshold_model

QUICK: dict[str, Any] = {"hidden": (6,), "epochs": 20, "batch_size": 20, "draws": 5}


PER_ROW = "noise is drawn for each row, so a row of weight 2 and two rows differ in their draws, not in expectation"
EXPECTED = {f"check_sample_weight_equivalence_on_{kind}_data": PER_ROW for kind in ("dense", "sparse")}


@parametrize_with_checks(
    [sn.SlabClassifier(**QUICK), sn.SlabRegressor(**QUICK)], expected_failed_checks=lambda estimator: EXPECTED
)
def test_every_check_of_scikit_learn(estimator: Any, check: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # constant columns are among what the checks try
        check(estimator)


@pytest.fixture(scope="module")
def line() -> tuple[Any, Any]:
    """y depends on the first two of five inputs, in units far from one."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(300, 5)) * [1, 10, 100, 1, 1] + [0, 50, -1000, 3, 0]
    return x, 1000 + 40 * x[:, 0] - 3 * x[:, 1] + 10 * rng.normal(size=300)


@pytest.fixture(scope="module")
def fitted(line: tuple[Any, Any]) -> sn.SlabRegressor:
    return sn.SlabRegressor(hidden=(), epochs=120, random_state=0).fit(*line)


def test_a_linear_model_finds_what_least_squares_finds(line: tuple[Any, Any], fitted: sn.SlabRegressor) -> None:
    x, y = line
    design = np.hstack([np.ones((300, 1)), x[:, :2]])
    coefficients, *_ = np.linalg.lstsq(design, y, rcond=None)
    residual = y - design @ coefficients
    assert np.abs(fitted.predict(x) - design @ coefficients).max() < 0.2 * residual.std()
    assert fitted.noise_std_ == pytest.approx(residual.std(), rel=0.1)
    assert fitted.selected_features_.tolist() == [0, 1]
    assert fitted.feature_reach_[:2].tolist() == [1, 1]
    assert fitted.feature_reach_[2:].max() < 0.5
    assert fitted.feature_importances_.sum() == pytest.approx(1.0)
    effects = np.abs(coefficients[1:]) * x[:, :2].std(0)  # the slope in y's units per standard deviation of the input
    np.testing.assert_allclose(fitted.feature_effects_.sizes[:2], effects, rtol=0.05)
    np.testing.assert_allclose(fitted.feature_importances_[:2], effects / effects.sum(), rtol=0.05)
    name, output, effect, low, high = fitted.feature_effects_.rows()[1]
    assert (name, output) == ("x1", "response")
    assert low < coefficients[2] * x[:, 1].std() < high < 0  # the sign is told, and how sure it is
    assert effect == pytest.approx(coefficients[2] * x[:, 1].std(), rel=0.2)
    assert fitted.density_ == pytest.approx(2 / 5)
    assert fitted.n_weights_ == 2
    assert fitted.inclusion_probabilities_[0].shape == (1, 5)


def test_intervals_cover_and_std_matches_them(line: tuple[Any, Any], fitted: sn.SlabRegressor) -> None:
    rng = np.random.default_rng(4)
    x, _ = line
    new = 1000 + 40 * x[:, 0] - 3 * x[:, 1] + 10 * rng.normal(size=300)  # other noise than was fitted
    low, high = fitted.predict_interval(x, 0.95)
    assert 0.91 <= np.mean((low <= new) & (new <= high)) <= 0.99
    mean, std = fitted.predict(x, return_std=True)
    np.testing.assert_allclose((high - low) / 2, 1.96 * std, rtol=0.05)
    inner = fitted.predict_interval(x, 0.5)
    assert (inner[0] > low).all()
    assert (inner[1] < high).all()
    normal = -0.5 * ((new - mean) / std) ** 2 - np.log(std) - 0.5 * np.log(2 * np.pi)
    assert fitted.log_density(x, new) == pytest.approx(normal.mean(), abs=0.02)


def test_units_do_not_matter(line: tuple[Any, Any], fitted: sn.SlabRegressor) -> None:
    x, y = line
    fitted = clone(fitted).set_params(epochs=20).fit(x, y)
    other = clone(fitted).fit(x * 2.0**10, y * 2.0**-20)
    np.testing.assert_allclose(other.predict(x * 2.0**10) * 2.0**20, fitted.predict(x), rtol=1e-9)


def test_effects_are_slopes(line: tuple[Any, Any]) -> None:
    """Against finite differences of the drawn networks themselves."""
    x, y = line
    model = sn.SlabRegressor(hidden=(6,), activation="tanh", epochs=30, random_state=0).fit(x, y)
    inside = ((x > x.min(0)) & (x < x.max(0))).all(1)  # at the ends of the data slopes may change
    rows = model.scaling_x_.apply(x[inside][:20])
    found = sn.input_effects(model.network_, rows, draws=7, seed=1).numpy()[0]
    step, sizes = 1e-6, []
    for i in range(5):
        ends = []
        for sign in (1, -1):
            moved = rows.copy()
            moved[:, i] += sign * step
            drawn = []
            for r in range(7):
                with sn.drawing(model.network_, sn.exact, keyed_generator(1, "draw", r), r):
                    drawn.append(model.network_(torch.as_tensor(moved)).detach().numpy()[:, 0])
            ends.append(np.array(drawn))
        sizes.append(np.abs((ends[0] - ends[1]) / (2 * step)).mean())
    np.testing.assert_allclose(found, sizes, rtol=1e-4, atol=1e-8)


def test_reach_is_the_share_of_models_with_a_path() -> None:
    """Two inputs, one hidden unit: the chance of a path is the product of two inclusion probabilities."""
    net = sn.mlp((2, 1, 1), likelihood="gaussian", seed=0)
    with torch.no_grad():
        layers = [part for part in net.body if isinstance(part, sn.Linear)]
        layers[0].weight.omega.copy_(torch.logit(torch.tensor([[0.9, 0.3]])))
        layers[1].weight.omega.copy_(torch.logit(torch.tensor([[0.5]])))
    share = sn.input_reach(net, draws=2000)
    assert share.tolist() == pytest.approx([0.45, 0.15], abs=0.03)
    assert sn.prior_reach(net, draws=2000) == pytest.approx(np.exp(-4), abs=0.01)


def test_several_responses(line: tuple[Any, Any]) -> None:
    x, y = line
    both = np.column_stack([y, 1e-6 * (x[:, 3] + 0.1 * np.random.default_rng(4).normal(size=300))])
    model = sn.SlabRegressor(hidden=(), epochs=80, random_state=0).fit(x, both)
    assert model.predict(x).shape == (300, 2)
    assert model.score(x, both) > 0.9
    low, high = model.predict_interval(x[:3])
    assert low.shape == high.shape == (3, 2)
    assert model.selected_features_.tolist() == [0, 1, 3]
    assert model.noise_std_.shape == (2,)


def test_classes_with_names_and_doubt() -> None:
    data = load_iris(as_frame=True)
    labels = np.array(data.target_names)[data.target]
    model = sn.SlabClassifier(epochs=60, random_state=0).fit(data.data, labels)
    assert model.classes_.tolist() == sorted(data.target_names)
    assert model.score(data.data, labels) > 0.9
    assert model.feature_names_in_.tolist() == list(data.data.columns)
    chosen, doubt = model.predict_with_doubt(data.data, threshold=0.8)
    shares = model.predict_proba(data.data)
    np.testing.assert_array_equal(doubt, shares.max(1) <= 0.8)
    assert (chosen == labels)[~doubt].mean() > (chosen == labels).mean() - 1e-12
    low, high = model.predict_interval(data.data, 0.9)
    assert ((low <= shares + 0.2) & (shares - 0.2 <= high)).all()
    total, own, network = model.predict_uncertainty(data.data)
    np.testing.assert_allclose(total, own + network, atol=1e-9)
    names = model.get_feature_names_out()
    assert set(names) <= set(data.data.columns)
    table = model.set_output(transform="pandas").transform(data.data)
    assert table.columns.tolist() == names.tolist()


def test_two_classes_have_one_output() -> None:
    x, y = load_breast_cancer(return_X_y=True)
    with pytest.warns(UserWarning, match=r"columns nearly alike .*: 0 and 2 \(r = 0.998\)"):
        model = sn.SlabClassifier(hidden=(10,), epochs=400, random_state=0).fit(x, y)
    assert model.network_.outputs == 1
    assert model.score(x, y) > 0.95
    np.testing.assert_allclose(model.predict_proba(x).sum(1), 1)
    low, high = model.predict_interval(x)
    np.testing.assert_allclose(low[:, 0], 1 - high[:, 1])
    small = model.sparsify()
    assert small.score(x, y) > 0.93
    assert small.density_ == model.density_ < 0.2
    assert {float(v) for layer in small.inclusion_probabilities_ for v in layer.ravel()} <= {0.0, 1.0}
    post = model.sparsify("budget", weights=12, data=(x, y), epochs=10)
    assert post.chosen_.total.median_weights == 12 >= post.n_weights_ > 0
    assert post.score(x, y) > 0.9
    assert model.selection_ is None  # the first one is as it was
    with pytest.raises(sn.ArgumentError, match="rule must be one of median"):
        model.sparsify("smallest")


def test_every_kind_of_table_gives_the_same(line: tuple[Any, Any]) -> None:
    x, y = line
    names = list("abcde")
    model = sn.SlabRegressor(hidden=(), epochs=20, random_state=0)
    wanted = model.fit(x, y).predict(x)
    for table in (pd.DataFrame(x, columns=names), pl.DataFrame(x, schema=names), sparse.csr_array(x), x.tolist()):
        np.testing.assert_allclose(clone(model).fit(table, y).predict(table), wanted, rtol=1e-12)
    assert clone(model).fit(pl.DataFrame(x, schema=names), y).feature_names_in_.tolist() == names


def test_a_large_sparse_table_says_what_it_takes(monkeypatch: pytest.MonkeyPatch, line: tuple[Any, Any]) -> None:
    monkeypatch.setattr("slabnet.estimators.checks.LARGE", 1000)
    with pytest.warns(UserWarning, match="X is sparse and is made dense: 0 MB"):
        sn.SlabRegressor(hidden=(), epochs=1).fit(sparse.csr_array(line[0]), line[1])


def test_in_the_company_of_scikit_learn(line: tuple[Any, Any], tmp_path: Path) -> None:
    x, y = line
    pipe = make_pipeline(StandardScaler().set_output(transform="pandas"), sn.SlabRegressor(hidden=(), random_state=0))
    grid = GridSearchCV(pipe, {"slabregressor__epochs": [1, 60], "slabregressor__psi": ["bic"]}, cv=2).fit(x, y)
    assert grid.best_params_["slabregressor__epochs"] == 60
    scores = cross_val_score(sn.SlabRegressor(hidden=(), epochs=60, random_state=0), x, y, cv=2, n_jobs=2)
    assert scores.min() > 0.9
    best = grid.best_estimator_
    joblib.dump(best, tmp_path / "m.joblib")
    for again in (pickle.loads(pickle.dumps(best)), joblib.load(tmp_path / "m.joblib")):
        np.testing.assert_array_equal(again.predict(x), best.predict(x))


@pytest.mark.parametrize("method", METHODS)
def test_every_method(method: str, line: tuple[Any, Any], tmp_path: Path) -> None:
    x, y = line
    model = sn.SlabRegressor(hidden=(5,), method=method, epochs=5, draws=3, random_state=0).fit(x, y)
    assert np.isfinite(model.predict(x)).all()
    assert model.feature_importances_.shape == model.feature_effects_.sizes.shape == (5,)
    assert hasattr(model, "inclusion_probabilities_") == METHODS[method].selects
    if not METHODS[method].selects:
        assert model.density_ == 1
        with pytest.raises(sn.ArgumentError, match="method must be one that selects"):
            model.sparsify()
    sn.save_estimator(model, tmp_path / "m.slab")
    again = sn.load_estimator(tmp_path / "m.slab")
    np.testing.assert_array_equal(again.predict(x), model.predict(x))
    assert again.n_weights_ == model.n_weights_


def test_files_keep_a_sparsified_classifier(tmp_path: Path) -> None:
    x, y = load_iris(return_X_y=True)
    model = sn.SlabClassifier(epochs=20, draws=5, random_state=0).fit(x, y.astype(str)).sparsify()
    sn.save_estimator(model, tmp_path / "m.slab", note="kept")
    again = sn.load_estimator(tmp_path / "m.slab")
    np.testing.assert_array_equal(again.predict_proba(x), model.predict_proba(x))
    assert again.classes_.tolist() == ["0", "1", "2"]
    assert again.n_weights_ == model.n_weights_
    sn.save(sn.mlp((2, 2)), tmp_path / "n.slab")
    with pytest.raises(sn.ArgumentError, match="the file of an estimator"):
        sn.load_estimator(tmp_path / "n.slab")
    with pytest.raises(sn.ArgumentError, match="a fitted estimator"):
        sn.save_estimator(sn.SlabClassifier(), tmp_path / "o.slab")


def test_going_on_with_more_rows(line: tuple[Any, Any], caplog: pytest.LogCaptureFixture) -> None:
    x, y = line
    model = sn.SlabRegressor(hidden=(), epochs=100, random_state=0)
    model.partial_fit(x[:100], y[:100])
    before = model.history_
    for start in (100, 200):
        model.partial_fit(x[start : start + 100], y[start : start + 100])
    assert model.n_samples_seen_ == 300
    assert len(model.history_) == len(before) + 2
    assert model.score(x, y) > 0.9
    assert not caplog.records  # a part of the rows is what was meant
    labels = sn.SlabClassifier(hidden=(), epochs=5).partial_fit(x, y > 1000, classes=[False, True])
    with pytest.raises(sn.ArgumentError, match="y must be one of the classes False, True, got"):
        labels.partial_fit(x, np.full(300, 7))
    several = sn.SlabClassifier(hidden=(), epochs=5).partial_fit(x, np.repeat([0, 1], 150), classes=[0, 1, 2])
    assert several.predict_proba(x).shape == (300, 3)
    with pytest.raises(sn.ArgumentError, match="whose structure is still open"):
        model.sparsify().partial_fit(x, y)


def test_silent_and_not(line: tuple[Any, Any], capfd: pytest.CaptureFixture[str]) -> None:
    x, y = line
    sn.SlabRegressor(hidden=(), epochs=10).fit(x, y).predict(x)
    assert capfd.readouterr() == ("", "")
    sn.SlabRegressor(hidden=(), epochs=10, verbose=1).fit(x, y)
    assert "epoch 10/10" in capfd.readouterr().err


def test_random_states(line: tuple[Any, Any]) -> None:
    x, y = line

    def answer(state: Any) -> Any:
        return sn.SlabRegressor(hidden=(), epochs=3, random_state=state).fit(x, y).predict(x)

    np.testing.assert_array_equal(answer(1), answer(1))
    np.testing.assert_array_equal(answer(np.random.RandomState(1)), answer(1))
    assert not np.array_equal(answer(1), answer(2))
    assert not np.array_equal(answer(None), answer(None))


@pytest.mark.parametrize("change", [1e38, -1e38, 1e300])
def test_huge_values(change: float, line: tuple[Any, Any]) -> None:
    x, y = line
    x = x.copy()
    x[:, 2] *= change / 1e5
    model = sn.SlabRegressor(hidden=(4,), epochs=10, random_state=0).fit(x, y)
    assert np.isfinite(model.predict(x)).all()
    assert np.isfinite(model.fit(x[:, :2], y * 1e30).predict(x[:, :2])).all()


def test_more_inputs_than_rows() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(40, 120))
    model = sn.SlabRegressor(random_state=0, epochs=200)
    with pytest.warns(UserWarning, match=r"more columns \(120\) than rows \(40\)"):
        model.fit(x, 3 * x[:, 7] + 0.1 * rng.normal(size=40))
    assert np.isfinite(model.predict(x)).all()
    assert model.feature_importances_.argmax() == 7


@pytest.mark.parametrize(
    ("model", "x", "y", "said"),
    [
        (sn.SlabClassifier(), [[1.0], [2.0]], [1, 1], "y must be labels of at least 2 classes, got one class"),
        (sn.SlabClassifier(), [["a"], ["b"]], [1, 2], "X must be numbers .* got 'a' in column 0, row 0"),
        (sn.SlabClassifier(), np.array([["1", "2"], ["3", "x"]]), [1, 2], "got 'x' in column 1, row 1"),
        (
            sn.SlabClassifier(),
            pd.DataFrame({"b": ["1", "3", "x"]}),
            [1, 2, 2],
            "column b must be numbers, got 'x' in row 2",
        ),
        (
            sn.SlabClassifier(),
            pl.DataFrame({"b": ["1", "3", "x"]}),
            [1, 2, 2],
            "column b must be numbers, got 'x' in row 2",
        ),
        (
            sn.SlabRegressor(),
            pd.DataFrame({"a": [1.0, np.inf], "c": ["u", "v"]}),
            [1, 2],
            "column a must be finite numbers",
        ),
        (sn.SlabRegressor(), [[1.0], [np.inf]], [1, 2], "contains infinity"),
        (sn.SlabRegressor(), pd.DataFrame({"d": pd.to_datetime(["2020", "2021"])}), [1, 2], "got dates in column d"),
        (sn.SlabRegressor(), pl.DataFrame({"d": [date(2020, 1, 1)] * 2}), [1, 2], "got dates in column d"),
        (sn.SlabRegressor(), [[1.0], [2.0]], ["1", "b"], "y must be numbers .* got 'b' in row 1"),
        (sn.SlabRegressor(standardize="no"), [[1.0], [2.0]], [1, 2], "standardize must be True or False, got no"),
        (sn.SlabRegressor(verbose="x"), [[1.0], [2.0]], [1, 2], "verbose must be 0 .* got x"),
        (sn.SlabRegressor(method="none"), [[1.0], [2.0]], [1, 2], "method must be one of lbbnn"),
        (sn.SlabRegressor(draws=0), [[1.0], [2.0]], [1, 2], "draws must be a whole number of at least 1, got 0"),
        (sn.SlabRegressor(epochs=0), [[1.0], [2.0]], [1, 2], "epochs must be greater than or equal to 1, got 0"),
        (sn.SlabRegressor(hidden=(0,)), [[1.0], [2.0]], [1, 2], "sizes must be a whole number of at least 1, got 0"),
        (sn.SlabRegressor(hidden=4.5), [[1.0], [2.0]], [1, 2], "hidden must be widths, as in"),
        (sn.SlabRegressor(psi=2), [[1.0], [2.0]], [1, 2], "psi must be"),
        (sn.SlabRegressor(config={}), [[1.0], [2.0]], [1, 2], "config must be a TrainConfig or None, got dict"),
        (sn.SlabRegressor(start="x"), [[1.0], [2.0]], [1, 2], "start must be a Start or None, got str"),
        (sn.SlabRegressor(hidden=True), [[1.0], [2.0]], [1, 2], "hidden must be widths, as in"),
        (sn.SlabClassifier(), [[1.0], [2.0]], ["a", "a"], "one class, 'a'"),
        (
            sn.SlabClassifier(),
            [[1.0], [2.0], [3.0]],
            np.array(["a", None, "b"], dtype=object),
            "y must be a label in every row, got None in row 1",
        ),
    ],
)
def test_bad_input_is_one_line(model: Any, x: Any, y: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        model.fit(x, y)
    assert isinstance(caught.value, sn.SlabnetError) is (type(caught.value) is not ValueError)


def test_text_is_refused_at_prediction_too_and_a_lazy_table_is_collected() -> None:
    x, y = np.arange(20.0), np.arange(20) > 9
    lazy = pl.LazyFrame({"a": x, "b": x % 3})
    model = sn.SlabClassifier(hidden=(), epochs=2, verbose=False, random_state=0).fit(lazy, y)
    assert model.feature_names_in_.tolist() == ["a", "b"]
    np.testing.assert_array_equal(model.predict_proba(lazy), model.predict_proba(lazy.collect()))
    with pytest.raises(sn.ArgumentError, match="column b must be numbers, got 'no' in row 2"):
        model.predict(pd.DataFrame({"a": [1, 2, 3], "b": ["1", "2", "no"]}))
    with pytest.raises(sn.ArgumentError, match=r"column b must be numbers without a gap, .* got none in row 0"):
        model.predict(pd.DataFrame({"a": [1.0], "b": [np.nan]}))


def test_constant_columns_are_said() -> None:
    x = pd.DataFrame({"a": np.arange(20.0), "same": 3.0})
    with pytest.warns(UserWarning, match="columns with one value only tell nothing: same"):
        model = sn.SlabRegressor(hidden=(), epochs=100, random_state=0).fit(x, x["a"])
    assert model.selected_features_.tolist() == [0]


def test_one_value_beyond_all_others_is_said() -> None:
    x = pd.DataFrame({"a": np.arange(30.0), "b": np.arange(30.0) % 7})
    wrong, y = x.copy(), np.arange(30.0)
    wrong.loc[4, "b"] = 1e38
    model = sn.SlabRegressor(hidden=(), epochs=3, random_state=0)
    with pytest.warns(UserWarning, match=r"all others of the column look alike: b has 1e\+38 in row 4"):
        assert np.isfinite(model.fit(wrong, y).predict(wrong)).all()
    y[7] = -1e38
    with pytest.warns(UserWarning, match=r"beside -1e\+38 in row 7 all other values of y look alike"):
        model.fit(x, y)
    with pytest.warns(UserWarning, match="y has one value only"):
        model.fit(x, np.full(30, 5.5))
    assert far_values(np.exp(np.random.default_rng(0).normal(size=(500, 3)) * 2)) == []  # skewed, and nothing odd
    assert far_values(np.eye(50)) == []


def test_a_refused_fit_leaves_what_was_fitted(line: tuple[Any, Any]) -> None:
    x, y = line
    model = sn.SlabRegressor(hidden=(4,), epochs=3, draws=5, random_state=0).fit(x, y)
    before = model.predict(x)
    with pytest.raises(ValueError, match="method must be one of"):
        model.set_params(method="none").fit(x, 1000 * y + 5)
    np.testing.assert_array_equal(model.set_params(method="lbbnn").predict(x), before)
    names = np.where(y > np.median(y), "up", "down")
    classes = sn.SlabClassifier(hidden=(4,), epochs=3, draws=5, random_state=0).fit(x, names)
    shares = classes.predict_proba(x)
    with pytest.raises(ValueError, match="at least 2 classes"):
        classes.fit(x[names == "up"], names[names == "up"])
    np.testing.assert_array_equal(classes.predict_proba(x), shares)
    with pytest.raises(ValueError, match="epochs must be a whole number of at least 1"):
        model.sparsify(data=(x, y), epochs=0)
    with pytest.raises(NotFittedError):
        _ = sn.SlabRegressor().noise_std_


def test_inputs_a_chosen_model_does_not_read_have_no_effect(line: tuple[Any, Any]) -> None:
    x, y = line
    model = sn.SlabRegressor(hidden=(6,), epochs=60, random_state=0).fit(x, y)
    small = model.sparsify("budget", weights=2)
    assert np.flatnonzero(small.feature_importances_).tolist() == small.selected_features_.tolist()
    assert np.count_nonzero(model.feature_importances_) == x.shape[1]


def test_the_rule_for_defaults() -> None:
    small, large = defaults_for(100, 3), defaults_for(100_000, 300)
    assert small.batch_size <= 100
    assert small.epochs > large.epochs >= 50
    assert small.hidden <= large.hidden
    assert defaults_for(1, 1).batch_size == 1
    assert psi_for(1, 1) == (0.5,)
    assert sn.SlabRegressor(epochs=1).fit(np.eye(4), range(4)).network_.spec["prior"]["psi"] == 0.5  # below gates
    prior = sn.SlabRegressor(gates=False, epochs=1).fit(np.eye(4), range(4)).network_.spec["prior"]
    assert (prior["psi"], prior["intercept_psi"]) == ([0.25, 0.5, 0.5], 0.5)
    given = sn.SlabRegressor(epochs=7, config=sn.TrainConfig(lr=0.5, epochs=9))
    given.n_features_in_, given._seed = 3, 0
    found = given._training(100)
    assert (found.epochs, found.lr, found.omega_lr) == (7, 0.5, small.omega_lr)
    assert found.ramp_for(7) == 3


def test_a_chosen_model_predicts_as_the_masked_network(line: tuple[Any, Any], tmp_path: Path) -> None:
    x, y = line
    plain = {"skip": False, "gates": False, "batch_size": 64}
    model = sn.SlabRegressor(hidden=(8, 6), epochs=60, draws=11, random_state=0, **plain).fit(x, y)
    for small in (model.sparsify(), model.sparsify("budget", weights=9), model.sparsify(data=(x, y), epochs=5)):
        assert small.selection_ is not None
        assert small.compact_ is not None
        chosen = small.selection_.total.median_weights  # among them those of units that are constant
        assert small.n_weights_ <= small.compact_.weights <= chosen < 8 * 5 + 6 * 8 + 6
        rows = small.scaling_x_.apply(x)
        masked = sn.fixed(small.selection_.masks, sn.exact)
        found = sn.predict(small.network_, rows, small.draws, draw=masked, seed=small._seed, intervals=0.9)
        wanted = small.scaling_y_.undo(found.mean.numpy())[:, 0]
        mean, std = small.predict(x, return_std=True)
        np.testing.assert_allclose(mean, wanted, rtol=1e-9)
        np.testing.assert_allclose(std, found.total.sqrt().numpy()[:, 0] * y.std(), rtol=1e-9)
        low, high = small.predict_interval(x, 0.9)
        ends = found.predictive_interval(0.9)
        np.testing.assert_allclose(low, small.scaling_y_.undo(ends[0].numpy())[:, 0], rtol=1e-9)
        np.testing.assert_allclose(high, small.scaling_y_.undo(ends[1].numpy())[:, 0], rtol=1e-9)
        slopes = sn.input_effects(small.network_, rows[:50], 50, draw=masked, seed=small._seed).numpy()[0] * y.std()
        np.testing.assert_allclose(small._effects_of(x[:50]).sizes, slopes, rtol=1e-9)
        assert small.feature_reach_.tolist() == small.get_support().astype(float).tolist()
        assert (small.feature_importances_ > 0).tolist() == small.get_support().tolist()
    joblib.dump(small, tmp_path / "m.joblib")
    sn.save_estimator(small, tmp_path / "m.slab")
    copies = pickle.loads(pickle.dumps(small)), joblib.load(tmp_path / "m.joblib")
    for again in (*copies, sn.load_estimator(tmp_path / "m.slab")):
        np.testing.assert_array_equal(again.predict_interval(x), small.predict_interval(x))
        assert again.n_weights_ == small.n_weights_
        assert again.density_ == small.density_


def test_scaling_is_undone() -> None:
    table = np.array([[1e200, 5.0, -3.0], [3e200, 5.0, 4.0]])
    scaling = Scaling.of(table)
    np.testing.assert_allclose(scaling.apply(table), [[-1, 0, -1], [1, 0, 1]])
    np.testing.assert_allclose(scaling.undo(scaling.apply(table)), table)
    again = Scaling.from_dict(scaling.to_dict())
    np.testing.assert_array_equal(again.apply(table), scaling.apply(table))


def test_old_names_go_on_with_a_warning(fitted: sn.SlabRegressor) -> None:
    with pytest.warns(FutureWarning, match=r"feature_effects_\.sizes"):
        assert np.asarray(fitted.feature_effects_).tolist() == fitted.feature_effects_.sizes.tolist()
    with pytest.warns(FutureWarning, match=r"feature_effects_\.sizes"):
        assert fitted.feature_effects_[0] == fitted.feature_effects_.sizes[0]
    with pytest.warns(FutureWarning, match="feature_reach_prior_"):
        assert fitted.feature_importances_prior_ == fitted.feature_reach_prior_
    with pytest.warns(FutureWarning, match="feature_reach_spread_"):
        assert fitted.feature_importances_spread_.tolist() == fitted.feature_reach_spread_.tolist()


def test_effects_of_classes_and_of_several_responses(line: tuple[Any, Any], tmp_path: Path) -> None:
    x, y = line
    both = sn.SlabRegressor(hidden=(), epochs=60, random_state=0).fit(x, np.column_stack([y, -y]))
    effects = both.feature_effects_
    assert effects.effect is not None
    assert effects.outputs == ("response 0", "response 1")
    np.testing.assert_allclose(effects.effect[0], [40.0, -40.0], rtol=0.2)
    labels = np.digitize(y, np.quantile(y, [0.3, 0.6]))
    model = sn.SlabClassifier(hidden=(4,), epochs=30, random_state=0).fit(x, labels)
    assert model.feature_effects_.effect is not None
    assert model.feature_effects_.outputs == ("0", "1", "2")
    assert model.feature_effects_.effect[0, 0] < 0 < model.feature_effects_.effect[0, 2]
    np.testing.assert_allclose(model.feature_effects_.effect.sum(1), 0, atol=1e-9)  # probabilities sum to one
    sn.save_estimator(model, tmp_path / "m.slab")
    back = sn.load_estimator(tmp_path / "m.slab")
    assert str(back.feature_effects_) == str(model.feature_effects_)
    assert "<td>x0</td>" in back.feature_effects_._repr_html_()


def test_selected_features_are_those_of_the_median_model(fitted: sn.SlabRegressor) -> None:
    inputs = threshold_model(fitted.network_).inputs
    assert inputs is not None
    assert fitted.get_support().tolist() == inputs.tolist()


def test_a_file_keeps_the_arguments_of_the_constructor(line: tuple[Any, Any], tmp_path: Path) -> None:
    for hidden in (None, (5,)):
        model = sn.SlabRegressor(hidden, epochs=2, draws=3, random_state=0).fit(*line)
        sn.save_estimator(model, tmp_path / "m.slab")
        again = sn.load_estimator(tmp_path / "m.slab")
        assert again.get_params() == model.get_params()
