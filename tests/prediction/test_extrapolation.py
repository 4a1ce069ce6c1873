"""Rows outside the training data are marked, and a summary of its columns is all that is stored."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest
from scipy.spatial.distance import mahalanobis

import slabnet as sn
from slabnet.prediction.extrapolation import TrainingSupport


def table(rows: int = 300, inputs: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(rows, inputs)) * [1.0, 100.0, 1e-3][:inputs] + 5


def test_the_range_counts_with_a_tenth_of_it_on_either_side() -> None:
    support = TrainingSupport.of(np.array([[0.0, 7.0], [10.0, 7.0], [5.0, 7.0]]))
    rows = np.array([[-0.99, 7], [-1.01, 7], [10.99, 7], [11.01, 7], [5, 7], [5, 7.5]])
    assert support.extrapolates(rows).tolist() == [False, True, False, True, False, True]


def test_the_distance_is_mahalanobis_and_its_limit_that_of_rows_left_out_one_by_one() -> None:
    x = table()
    support = TrainingSupport.of(x)
    inverse = np.linalg.inv(np.cov(x.T))
    wanted = [mahalanobis(row, x.mean(0), inverse) for row in x]
    np.testing.assert_allclose(support.distances(x), wanted, rtol=1e-8)
    alone = []
    for i in range(len(x)):
        rest = np.delete(x, i, axis=0)
        alone.append(mahalanobis(x[i], rest.mean(0), np.linalg.inv(np.cov(rest.T))))
    assert support.limit == pytest.approx(math.sqrt(np.quantile(np.square(alone), 0.999)), rel=1e-8)


def test_rows_inside_every_range_may_be_far_together() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(500, 1)) + 0.05 * rng.normal(size=(500, 2))
    support = TrainingSupport.of(x)
    assert support.extrapolates(np.array([[1.5, 1.5], [1.5, -1.5]])).tolist() == [False, True]


def test_rows_of_the_same_kind_are_rarely_marked() -> None:
    support = TrainingSupport.of(table(2000))
    assert support.extrapolates(table(20_000, seed=1)).mean() < 0.004  # .001 each way of looking, and chance


def test_inputs_that_are_not_used_mark_nothing() -> None:
    x = table()
    far = x[:1].copy()
    far[0, 1] = 1e6
    assert TrainingSupport.of(x).extrapolates(far).all()
    assert not TrainingSupport.of(x, np.array([True, False, True])).extrapolates(far).any()
    assert not TrainingSupport.of(x).only(np.array([True, False, True])).extrapolates(far).any()


def test_a_category_that_was_never_seen_leaves_the_plane_of_the_indicators() -> None:
    levels = np.eye(3)[np.random.default_rng(0).integers(0, 3, 200)]
    support = TrainingSupport.of(levels)
    assert support.extrapolates(np.array([[1.0, 0, 0], [0, 0, 0]])).tolist() == [False, True]


def test_few_rows_for_many_inputs_are_told_by_their_ranges_alone() -> None:
    x = np.random.default_rng(0).normal(size=(20, 15))
    support = TrainingSupport.of(x)
    assert support.scatter is None
    assert not support.extrapolates(np.random.default_rng(1).uniform(-0.5, 0.5, (50, 15))).any()


def test_more_rows_make_the_summary_of_all_of_them() -> None:
    x = table()
    used = np.ones(3, dtype=bool)
    merged, whole = TrainingSupport.of(x[:100]).with_rows(x[100:], used), TrainingSupport.of(x)
    rows = table(50, seed=3)
    np.testing.assert_allclose(merged.distances(rows), whole.distances(rows), rtol=1e-8)
    np.testing.assert_array_equal(merged.low, whole.low)
    assert merged.rows == 300


def test_a_file_holds_the_summary_and_no_row() -> None:
    x = table()
    support = TrainingSupport.of(x)
    text = json.dumps(support.to_dict())
    again = TrainingSupport.from_dict(json.loads(text), 3)
    rows = np.vstack([x, x * 2])
    np.testing.assert_array_equal(again.extrapolates(rows), support.extrapolates(rows))
    assert len(text) < 1000
    for broken in ({"low": [0.0]}, {"scale": [0.0, 1, 1]}, {"rows": 0}, {"scatter": [1.0]}, {"limit": -1.0}):
        with pytest.raises(ValueError, match=r"a (summary|covariance|limit)"):
            TrainingSupport.from_dict(support.to_dict() | broken, 3)


@pytest.fixture(scope="module")
def classifier() -> sn.SlabClassifier:
    x = np.random.default_rng(0).normal(size=(200, 2))
    return sn.SlabClassifier(hidden=(), epochs=200, random_state=0).fit(x, np.where(x[:, 0] > 0, "up", "down"))


def test_a_row_far_away_stays_undecided_unless_told_otherwise(classifier: sn.SlabClassifier, tmp_path: Path) -> None:
    rows = [[2.0, 0.0], [999.0, 0.0]]
    assert classifier.predict_proba(rows)[:, 1].min() > 0.95
    assert classifier.predict_with_doubt(rows)[1].tolist() == [False, True]
    assert classifier.predict_with_doubt(rows, decide_outside=True)[1].tolist() == [False, False]
    assert classifier.extrapolates(rows).tolist() == [False, True]
    sn.save_estimator(classifier, tmp_path / "m.slab")
    assert sn.load_estimator(tmp_path / "m.slab").extrapolates(rows).tolist() == [False, True]
    assert classifier.sparsify().extrapolates(rows).tolist() == [False, True]


def test_predict_marks_rows_where_it_is_given_a_summary() -> None:
    x = table(100, 2).astype(np.float32)
    net = sn.mlp((2, 2))
    assert sn.predict(net, x).extrapolates is None
    marked = sn.predict(net, x * 3, support=sn.TrainingSupport.of(x)).extrapolates
    assert marked is not None
    assert marked.tolist() == sn.TrainingSupport.of(x).extrapolates(x * 3).tolist()


def test_a_file_of_an_earlier_version_marks_nothing(classifier: sn.SlabClassifier) -> None:
    old = sn.SlabClassifier().set_params(**classifier.get_params())
    old.__dict__ |= classifier.__dict__ | {"support_": None}
    assert old._predict([[999.0, 0.0]]).extrapolates is None
    with pytest.raises(sn.ArgumentError, match="extrapolates: model must be one that holds a summary"):
        old.extrapolates([[0.0, 0.0]])
