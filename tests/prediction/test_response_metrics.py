"""Scores of counts, levels and times against scikit-learn, and against definitions written out in loops."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.metrics import (
    d2_tweedie_score,
    mean_gamma_deviance,
    mean_pinball_loss,
    mean_poisson_deviance,
    r2_score,
)

import slabnet as sn
from slabnet.prediction.response_metrics import (
    concordance,
    coverage_by_fifths,
    d2,
    deviance,
    integrated_brier,
    quantile_loss,
    rank_probability_score,
)

X = torch.randn(60, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.arange(60).double() % 5 + 1
EVENT = (torch.arange(60) % 3 > 0).double()


def predicted(likelihood: object) -> sn.Prediction:
    net = sn.mlp((2, 4, 1), likelihood=likelihood, start=sn.Start(mu=(-1, 1))).double()  # type: ignore[arg-type]
    return sn.predict(net, X, 7, intervals=0.8, keep_draws=True)


@pytest.fixture(scope="module")
def counts() -> sn.Prediction:
    return predicted("poisson")


def test_deviance_and_the_share_of_it(counts: sn.Prediction) -> None:
    y, mean = Y.numpy(), counts.mean[:, 0].numpy()
    assert deviance(counts, Y) == pytest.approx(mean_poisson_deviance(y, mean))
    assert deviance(counts, Y, "gamma") == pytest.approx(mean_gamma_deviance(y, mean))
    assert deviance(counts, Y * 0) == pytest.approx(mean_poisson_deviance(0 * y, mean))
    assert d2(counts, Y) == pytest.approx(d2_tweedie_score(y, mean, power=1))
    assert d2(counts, Y, "gamma") == pytest.approx(d2_tweedie_score(y, mean, power=2))
    assert d2(counts, Y, "gaussian") == pytest.approx(r2_score(y, mean))


def test_quantile_loss_and_coverage_by_fifths(counts: sn.Prediction) -> None:
    assert counts.mixture is not None
    at = counts.mixture.quantile(torch.tensor([0.8]))[0, :, 0].numpy()
    assert quantile_loss(counts, Y, 0.8) == pytest.approx(mean_pinball_loss(Y.numpy(), at, alpha=0.8))
    low, high = (end[:, 0].numpy() for end in counts.predictive_interval(0.8))
    order = np.argsort(counts.mean[:, 0].numpy(), kind="stable")
    found = coverage_by_fifths(counts, Y, 0.8)
    assert [part.rows for part in found] == [12] * 5
    for part, rows in zip(found, np.split(order, 5), strict=True):
        assert part.coverage == pytest.approx(((low <= Y.numpy()) & (Y.numpy() <= high))[rows].mean())
        assert part.prediction == pytest.approx(counts.mean[:, 0].numpy()[rows].mean())


def test_the_rank_probability_score() -> None:
    found = predicted(sn.Ordinal(4))
    y = torch.arange(60) % 4
    shares, total = found.mean.numpy(), 0.0
    for row in range(60):
        for cut in range(3):
            total += (shares[row, : cut + 1].sum() - (y[row].item() <= cut)) ** 2
    assert rank_probability_score(found, y) == pytest.approx(total / 60)


def test_the_order_of_times() -> None:
    found = predicted("weibull")
    said, pairs, right = found.mean[:, 0].tolist(), 0, 0.0
    for i in range(60):
        for j in range(60):
            known = EVENT[i] == 1 and (Y[j] > Y[i] or (Y[j] == Y[i] and EVENT[j] == 0))
            if known:
                pairs += 1
                right += 1.0 if said[j] > said[i] else 0.5 if said[j] == said[i] else 0.0
    assert concordance(found, Y, EVENT) == pytest.approx(right / pairs)
    assert concordance(found, found.mean[:, 0]) == 1.0
    with pytest.raises(sn.ArgumentError, match="no pair whose order is known"):
        concordance(found, Y, torch.zeros(60))


def test_the_brier_score_over_time() -> None:
    """Kaplan-Meier of the censoring and the weighted score, in loops; without censoring it is the plain one."""
    found = predicted("weibull")
    assert found.mixture is not None

    def free(t: float, before: bool) -> float:
        share = 1.0
        for u in sorted(set(Y.tolist())):
            if u < t or (u == t and not before):
                at_risk = sum(1 for v in Y.tolist() if v >= u)
                cut = sum(1 for v, e in zip(Y.tolist(), EVENT.tolist(), strict=True) if v == u and e == 0)
                share *= 1 - cut / at_risk
        return share

    end, total = float(Y[EVENT > 0].max()), 0.0
    for k in range(1, 101):
        t = end * k / 100
        survives = found.mixture.exceeds(torch.full((60, 1), t))[:, 0]
        for i in range(60):
            if Y[i] > t:
                total += float((1 - survives[i]) ** 2) / free(t, False) / 60
            elif EVENT[i] > 0:
                total += float(survives[i] ** 2) / free(float(Y[i]), True) / 60
    assert integrated_brier(found, Y, EVENT) == pytest.approx(total / 100)


def test_evaluate_knows_times_that_were_cut_off() -> None:
    found = predicted("weibull")
    values = sn.evaluate(found, sn.Target(Y, event=EVENT))
    assert set(values) == {"negative_log_likelihood", "concordance", "integrated_brier"}
    assert values["concordance"] == concordance(found, Y, EVENT)
    assert values["integrated_brier"] == integrated_brier(found, Y, EVENT)
    assert found.mixture is not None
    each = found.mixture.log_density(Y[:, None], EVENT)
    assert values["negative_log_likelihood"] == pytest.approx(-float(each.mean()))
    assert sn.evaluate(found, sn.Target(Y)) == sn.evaluate(found, Y)


def test_what_a_score_is_not_for(counts: sn.Prediction) -> None:
    classes = predicted(sn.Ordinal(3))
    for call, said in (
        (lambda: deviance(classes, Y), "deviance: prediction must be of numbers, got a ordinal response"),
        (lambda: rank_probability_score(counts, Y), "of classes, got a poisson response"),
        (lambda: deviance(counts, Y, "cauchy"), "family must be one of gaussian, poisson, gamma"),
        (lambda: deviance(counts, Y[:3]), "y must be as long as the prediction"),
        (lambda: quantile_loss(counts, Y, 1.5), "share must be a number above 0 and below 1"),
    ):
        with pytest.raises(sn.ArgumentError) as caught:
            call()
        assert said in str(caught.value)
