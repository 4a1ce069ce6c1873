"""Each metric against scikit-learn, torchmetrics or numerical integration."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from scipy import integrate, stats
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, root_mean_squared_error
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision, MulticlassCalibrationError

import slabnet as sn
from slabnet.model.likelihoods import Mixture

X = torch.randn(300, 4, generator=torch.Generator().manual_seed(0))
Y = torch.randint(3, (300,), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def classes() -> sn.Prediction:
    return sn.predict(sn.mlp((4, 5, 3), start=sn.Start(mu=(-2, 2))).double(), X, 20)


@pytest.fixture(scope="module")
def response() -> sn.Prediction:
    net = sn.mlp((4, 1), likelihood="gaussian").double()
    return sn.predict(net, X, 12, keep_draws=True, intervals=(0.9,))


def test_classes_against_scikit_learn(classes: sn.Prediction) -> None:
    assert sn.accuracy(classes, Y) == pytest.approx(accuracy_score(Y, classes.mean.argmax(-1)))
    assert sn.negative_log_likelihood(classes, Y) == pytest.approx(log_loss(Y, classes.mean))
    assert sn.brier(classes, Y) == pytest.approx(brier_score_loss(Y, classes.mean, scale_by_half=False))


@pytest.mark.parametrize("bins", [5, 15])
def test_calibration_error_against_torchmetrics(classes: sn.Prediction, bins: int) -> None:
    theirs = MulticlassCalibrationError(num_classes=3, n_bins=bins, norm="l1")(classes.mean, Y)
    assert sn.calibration_error(classes, Y, bins) == pytest.approx(float(theirs), abs=1e-6)


def test_calibration_error_in_bins_of_equal_mass(classes: sn.Prediction) -> None:
    order = classes.confidence.argsort()
    right = (classes.labels == Y)[order].double()
    parts = zip(classes.confidence[order].split(20), right.split(20), strict=True)
    wanted = sum(abs(float(c.mean() - r.mean())) for c, r in parts) / 15
    assert sn.calibration_error(classes, Y, 15, "mass") == pytest.approx(wanted)


def test_out_of_domain_against_torchmetrics(classes: sn.Prediction) -> None:
    foreign = sn.predict(sn.mlp((4, 5, 3), start=sn.Start(mu=(-2, 2))).double(), 0.3 * X[:100], 20)
    truth = torch.tensor([0] * 300 + [1] * 100)
    for by, pair in (
        ("entropy", (classes.entropy, foreign.entropy)),
        ("mutual_information", (classes.epistemic, foreign.epistemic)),
    ):
        found = sn.out_of_domain(classes, foreign, by)  # type: ignore[arg-type]
        scores = torch.cat(pair)
        scores = scores / scores.max()
        assert found.auroc == pytest.approx(float(BinaryAUROC()(scores, truth)), abs=1e-6)
        assert found.aupr == pytest.approx(float(BinaryAveragePrecision()(scores, truth)), abs=1e-6)


def test_risk_coverage_by_counting(classes: sn.Prediction) -> None:
    found = sn.risk_coverage(classes, Y)
    for k in (1, 50, 300):
        top = classes.confidence.argsort(descending=True, stable=True)[:k]
        assert float(found.risk[k - 1]) == pytest.approx(float((classes.labels[top] != Y[top]).double().mean()))
        assert float(found.coverage[k - 1]) == pytest.approx(k / 300)
    assert found.area == pytest.approx(float(found.risk.mean()))


def test_doubt_counts_only_what_was_decided(classes: sn.Prediction) -> None:
    sure = classes.mean.amax(-1) > 0.5
    doubt = sn.accuracy_with_doubt(classes, Y, 0.5)
    assert doubt.decided == int(sure.sum()) > 0
    assert doubt.accuracy == pytest.approx(accuracy_score(Y[sure], classes.labels[sure]))
    assert sn.accuracy_with_doubt(classes, Y, 1.0) == (None, 0)


def test_votes_and_the_95_of_100_rule() -> None:
    found = sn.predict(sn.mlp((4, 5, 3), start=sn.Start(omega=(1, 4), mu=(-2, 2))), X, 100)
    assert found.votes is not None
    assert torch.equal(found.decided_by_votes(), found.votes.max(-1).values >= 95)
    assert torch.equal(found.credible_classes(), found.votes >= 6)
    assert 0 < int(found.decided_by_votes().sum()) < 300
    with pytest.raises(sn.ArgumentError, match=r"share must be a number above 0\.5"):
        found.decided_by_votes(0.3)


def test_responses_against_other_routes(response: sn.Prediction) -> None:
    y = X[:, 0].double()
    assert sn.rmse(response, y) == pytest.approx(root_mean_squared_error(y, response.mean))
    low, high = response.predictive_interval(0.9)
    found = sn.interval_coverage(response, y, 0.9)
    assert found.coverage == pytest.approx(float(((y[:, None] >= low) & (y[:, None] <= high)).double().mean()))
    assert found.width == pytest.approx(float((high - low).mean()))
    assert response.samples is not None
    assert isinstance(response.mixture, Mixture)
    centres, sds = response.samples[:, :5, 0], response.mixture.dispersions[:, 0].sqrt()

    def cdf(v: float, row: int) -> float:
        return float(stats.norm.cdf(v, centres[:, row], sds).mean())

    def density(v: float, row: int) -> float:
        return float(stats.norm.pdf(v, centres[:, row], sds).mean())

    few = replace(
        response, mean=response.mean[:5], samples=response.samples[:, :5], mixture=response.mixture.rows(slice(5))
    )
    scores = [
        integrate.quad(lambda v, r=r: cdf(v, r) ** 2, -15, float(y[r]))[0]
        + integrate.quad(lambda v, r=r: (1 - cdf(v, r)) ** 2, float(y[r]), 15)[0]
        for r in range(5)
    ]
    assert sn.crps(few, y[:5]) == pytest.approx(sum(scores) / 5, rel=1e-5)
    wanted = -sum(torch.tensor(density(float(y[r]), r)).double().log() for r in range(5)) / 5
    assert sn.negative_log_likelihood(few, y[:5]) == pytest.approx(float(wanted), rel=1e-6)


def test_yes_or_no(classes: sn.Prediction) -> None:
    found = sn.predict(sn.mlp((4, 1), likelihood="bernoulli").double(), X, 5)
    y = (X[:, 0] > 0).long()
    assert sn.negative_log_likelihood(found, y) == pytest.approx(log_loss(y, found.mean[:, 0]))
    assert sn.accuracy(found, y) == pytest.approx(accuracy_score(y, found.labels))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda c, r: sn.accuracy(c, Y[:3]), "accuracy: y must be as long as the prediction, 300 rows, got 3 rows"),
        (
            lambda c, r: sn.accuracy(r, Y),
            "accuracy: prediction must be of classes or yes or no, got a gaussian response",
        ),
        (lambda c, r: sn.rmse(c, Y), "rmse: prediction must be of numbers, got a categorical response"),
        (lambda c, r: sn.calibration_error(c, Y, 0), "bins must be a whole number of at least 1"),
        (lambda c, r: sn.calibration_error(c, Y, 5, "area"), "kind must be one of width, mass"),
        (lambda c, r: sn.interval_coverage(r, Y.double()), "level must be one asked for"),
        (lambda c, r: sn.crps(sn.predict(sn.mlp((4, 1), likelihood="gaussian"), X, 2), Y), "made with keep_draws=True"),
    ],
)
def test_bad_calls(call: object, said: str, classes: sn.Prediction, response: sn.Prediction) -> None:
    with pytest.raises(sn.ArgumentError) as caught:
        call(classes, response)  # type: ignore[operator]
    assert said in str(caught.value)
