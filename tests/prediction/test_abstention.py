"""The promise about accuracy holds as often as it says, although the threshold is chosen on data."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import slabnet as sn
from slabnet.core.records import Answer, Prediction


def simulated(rows: int, generator: torch.Generator, sharp: float = 1.6) -> tuple[Prediction, torch.Tensor]:
    """A two-class predictor that is somewhat too sure: truth follows a flatter probability than it states."""
    logit = 2.5 * torch.randn(rows, generator=generator, dtype=torch.float64)
    stated, true = torch.sigmoid(sharp * logit), torch.sigmoid(logit)
    y = (torch.rand(rows, generator=generator, dtype=torch.float64) < true).long()
    mean = torch.stack([1 - stated, stated], 1)
    zero = torch.zeros(rows)
    return Prediction("categorical", mean, 10, zero, zero, zero, Answer.CLASSES), y


def true_accuracy(threshold: float, sharp: float = 1.6) -> float:
    prediction, y = simulated(400_000, torch.Generator().manual_seed(99), sharp)
    found = sn.accuracy_with_doubt(prediction, y, threshold).accuracy
    assert found is not None
    return found


def _chosen_and_quoted(prediction: Prediction, y: torch.Tensor) -> float:
    """The lowest threshold that looks good enough on the rows it is chosen on."""
    for threshold in (0.5 + i / 200 for i in range(100)):
        if (sn.accuracy_with_doubt(prediction, y, threshold).accuracy or 0) >= 0.95:
            return threshold
    return 0.999


@pytest.mark.slow
def test_the_promise_holds_as_often_as_it_says() -> None:
    """400 validation sets: the share of broken promises stays under 1 - confidence (plus Monte Carlo error)."""
    confidence, broken, promised = 0.9, 0, 0
    generator = torch.Generator().manual_seed(0)
    known: dict[float, float] = {}
    naive_broken = 0
    for _ in range(400):
        prediction, y = simulated(3000, generator)
        found = sn.calibrate_doubt(prediction, y, accuracy=0.95, confidence=confidence)
        if found.threshold is not None:
            promised += 1
            if found.threshold not in known:
                known[found.threshold] = true_accuracy(found.threshold)
            broken += known[found.threshold] < 0.95
        naive = _chosen_and_quoted(prediction, y)
        if round(naive, 4) not in known:
            known[round(naive, 4)] = true_accuracy(naive)
        naive_broken += known[round(naive, 4)] < 0.95
    assert promised > 350
    assert broken / 400 <= 0.1 + 2 * (0.1 * 0.9 / 400) ** 0.5
    assert naive_broken / 400 > 0.25  # what choosing and quoting on the same rows would do


def test_what_it_reports() -> None:
    prediction, y = simulated(4000, torch.Generator().manual_seed(1))
    found = sn.calibrate_doubt(prediction, y, accuracy=0.9)
    assert found.threshold is not None
    doubt = sn.accuracy_with_doubt(prediction, y, found.threshold)
    assert found.accuracy == pytest.approx(doubt.accuracy)
    assert found.decided == pytest.approx(doubt.decided / 4000)
    assert (found.promised, found.confidence) == (0.9, 0.95)
    stricter = sn.calibrate_doubt(prediction, y, accuracy=0.97)
    assert stricter.threshold is None or stricter.threshold > found.threshold


def test_too_little_data_promises_nothing() -> None:
    prediction, y = simulated(20, torch.Generator().manual_seed(1))
    found = sn.calibrate_doubt(prediction, y, accuracy=0.999)
    assert (found.threshold, found.decided, found.accuracy) == (None, 0.0, None)
    with pytest.raises(sn.ArgumentError, match="calibrate_doubt: accuracy must be a number above 0 and below 1"):
        sn.calibrate_doubt(prediction, y, accuracy=1.0)
    with pytest.raises(sn.ArgumentError, match="y must be as long as the prediction"):
        sn.calibrate_doubt(prediction, y[:3])


def test_probabilities_and_labels_of_an_estimator_give_the_same() -> None:
    prediction, y = simulated(4000, torch.Generator().manual_seed(1))
    expected = sn.calibrate_doubt(prediction, y, accuracy=0.9)
    shares, labels = prediction.mean.numpy(), np.array(["no", "yes"])[y.numpy()]
    assert sn.calibrate_doubt(shares, labels, accuracy=0.9) == expected
    assert sn.calibrate_doubt(shares, labels.tolist(), accuracy=0.9, classes=["no", "yes"]) == expected
    assert sn.calibrate_doubt(shares, y.numpy(), accuracy=0.9) == expected
    some = labels == "yes"
    for arguments, said in (
        (
            (shares[some], labels[some]),
            "classes must be the 2 labels in the order of the columns, as estimator.classes_",
        ),
        ((shares, labels[:5]), "y must be as long as the prediction, 4000 rows, got 5 rows"),
        ((shares * 2, labels), "prediction must be a Prediction, or probabilities: one column a class"),
    ):
        with pytest.raises(sn.ArgumentError, match=said):
            sn.calibrate_doubt(*arguments)
    with pytest.raises(sn.ArgumentError, match=r"y must be one of the classes .* got 'yes'"):
        sn.calibrate_doubt(shares, labels, classes=["no", "maybe"])
