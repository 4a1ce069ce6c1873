from __future__ import annotations

import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss, root_mean_squared_error

import slabnet as sn

X = torch.randn(80, 4, generator=torch.Generator().manual_seed(0))
Y = torch.randint(3, (80,), generator=torch.Generator().manual_seed(1))


def test_against_scikit_learn() -> None:
    found = sn.predict(sn.mlp((4, 5, 3)), X, 20)
    assert sn.accuracy(found, Y) == pytest.approx(accuracy_score(Y, found.mean.argmax(-1)))
    assert sn.negative_log_likelihood(found, Y) == pytest.approx(
        log_loss(Y, found.mean.double() / found.mean.double().sum(-1, keepdim=True)), rel=1e-5
    )
    response = sn.predict(sn.mlp((4, 1), likelihood="gaussian"), X, 5)
    assert sn.rmse(response, X[:, 0]) == pytest.approx(root_mean_squared_error(X[:, 0], response.mean), rel=1e-5)


def test_accuracy_with_doubt_counts_only_what_was_decided() -> None:
    found = sn.predict(sn.mlp((4, 5, 3)), X, 20)
    sure = found.mean.amax(-1) > 0.5
    doubt = sn.accuracy_with_doubt(found, Y, 0.5)
    assert doubt.decided == int(sure.sum()) > 0
    assert doubt.accuracy == pytest.approx(accuracy_score(Y[sure], found.labels[sure]))
    assert sn.accuracy_with_doubt(found, Y, 1.0) == (None, 0)


def test_lengths_must_agree() -> None:
    with pytest.raises(sn.ArgumentError, match="metrics: y must be as long as the prediction, 80 rows, got 3 rows"):
        sn.accuracy(sn.predict(sn.mlp((4, 3)), X), Y[:3])
