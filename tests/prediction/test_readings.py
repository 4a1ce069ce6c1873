"""Decisions as the authors' scripts take them, against the same steps written out with numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import slabnet as sn
from slabnet.prediction.readings import authors_reading, scripts_density
from slabnet.prediction.ways import rows_of

Data = tuple[torch.Tensor, torch.Tensor]


@pytest.mark.parametrize("raw", [False, True])
def test_the_reading_by_hand(raw: bool, blobs: Data) -> None:
    x, y = blobs
    net = sn.mlp((4, 8, 3), seed=1)
    sn.fit(net, blobs, sn.TrainConfig(epochs=30, batch_size=50, lr=5e-3))
    reading = authors_reading(net, x, y, 5, draw=sn.exact, seed=7, raw=raw)
    samples = sn.predict(net, x, 5, seed=7, keep_draws=True).samples
    assert samples is not None
    if raw:  # logits up to a constant of the row are not known from probabilities: draw them again
        from slabnet.core.noise import keyed_generator

        outputs = []
        for r in range(5):
            with torch.no_grad(), sn.drawing(net, sn.exact, keyed_generator(7, "draw", r), r):
                outputs.append(net(x).numpy())
        each = np.stack(outputs).astype(float)
    else:
        each = np.log(samples.double().numpy())
    share = 1 / (1 + np.exp(-each))
    share = (share / share.sum(-1, keepdims=True)).mean(0)
    labels = each.mean(0).argmax(-1)
    decided = share[np.arange(len(y)), labels] >= 0.95
    right = labels == y.numpy()
    assert reading.accuracy == pytest.approx(right.mean())
    assert (reading.decided, reading.right) == (decided.sum(), (decided & right).sum())


def test_fewer_are_decided_by_raw_logits_than_by_probabilities(blobs: Data) -> None:
    """A raw logit must be about 46 for a decision among ten classes: what made the paper's horseshoe so unsure."""
    net = sn.mlp((4, 8, 3), seed=1)
    sn.fit(net, blobs, sn.TrainConfig(epochs=60, batch_size=50, lr=5e-3))
    probable, raw = (authors_reading(net, *blobs, 5, draw=sn.mean, seed=0, raw=raw) for raw in (False, True))
    ours = int(sn.predict(net, blobs[0], draw=sn.mean).decided(0.95).sum())
    assert ours >= probable.decided > raw.decided


def test_rows_hold_both_readings(blobs: Data) -> None:
    net = sn.mlp((4, 5, 3))
    chosen = sn.median_model(net)
    rows = rows_of(net, chosen, net, blobs, post_trained=False, draws=3, seed=0, readings=True)
    by_way = {(row.gamma, row.beta, row.draws): row.authors for row in rows}
    assert by_way["SIM", "SIM", 1] is None
    drawn, median = by_way["SIM", "SIM", 3], by_way["MED", "SIM", 3]
    assert drawn is not None
    assert median is not None
    alphas = [layer.alpha.detach() for layer in (net.body[1], net.body[3])]
    assert drawn["density"] == pytest.approx(scripts_density(alphas))
    assert median["density"] is None


def test_the_density_the_scripts_print() -> None:
    alpha = torch.tensor([1.0, 0.0, 1e-5, 0.5])
    used = [1, 0, 1 - (1 - 1e-5) ** 20_000, 1]
    assert scripts_density([alpha[:2], alpha[2:]]) == pytest.approx(sum(used) / 4 / 10, rel=1e-5)
