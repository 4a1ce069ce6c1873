"""What the figures with images need of a run (E7-E9): a drawn network, images, and what 100 draws say of them."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from slabnet.core.noise import keyed_generator
from slabnet.core.records import Prediction
from slabnet.data import Split
from slabnet.experiments.packing import pack
from slabnet.model.drawing import drawable_layers, drawing
from slabnet.model.draws import exact
from slabnet.model.networks import Network
from slabnet.prediction.predict import predict

DRAWS = 100
WRONG = 30
STEPS = 127  # weights are kept to one part in so many of the largest


def pictures_of(net: Network, split: Split, ood: Split | None, seed: int) -> dict[str, Any]:
    """One drawn network, wrongly classified images, and images in and out of distribution with their votes."""
    x, y = split.test
    prediction = predict(net, x, DRAWS, seed=seed)
    wrong = (prediction.labels != y).nonzero().flatten()[:WRONG]
    some = torch.arange(min(WRONG, len(y)))
    pictures: dict[str, Any] = {
        "dataset": split.name,
        "draws": DRAWS,
        "image_shape": split.image_shape,
        "network": _drawn(net, seed),
        "wrong": _cases(x, y, prediction, wrong),
        "in_distribution": _cases(x, y, prediction, some),
    }
    if ood is not None:
        images = ood.test[0][: len(some)]
        pictures["out_of_distribution"] = _cases(images, None, predict(net, images, DRAWS, seed=seed), some)
        pictures["ood"] = ood.name
    return pictures


def _cases(x: Tensor, y: Tensor | None, prediction: Prediction, rows: Tensor) -> list[dict[str, Any]]:
    """Images with hard votes and averaged probabilities; truth is None out of distribution."""
    assert prediction.votes is not None
    return [
        {
            "image": pack((x[row] * 255).round().to(torch.uint8).numpy()),
            "truth": None if y is None else int(y[row]),
            "votes": prediction.votes[row].tolist(),
            "mean": [round(float(v), 4) for v in prediction.mean[row]],
        }
        for row in rows.tolist()
    ]


@torch.no_grad()
def _drawn(net: Network, seed: int) -> list[dict[str, Any]]:
    """The weights of one drawn network (fig. strm), exact zeros where gamma is zero."""
    layers = []
    with drawing(net, exact, keyed_generator(seed, "picture")) as scope:
        net(torch.zeros(1, *(net.row_shape or ())))
        for name, layer in drawable_layers(net).items():
            weight = scope.weights(layer)[0].value
            largest = float(weight.abs().max().clamp_min(1e-30))
            small = (weight / largest * STEPS).sign() * (weight.abs() / largest * STEPS).ceil()  # none becomes zero
            layers.append(
                {
                    "layer": name,
                    "shape": list(weight.shape),
                    "largest": float(f"{largest:.5g}"),
                    "weights": pack(small.to(torch.int8).numpy()),
                }
            )
    return layers
