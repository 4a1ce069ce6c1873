"""What a record keeps of a fitted network besides its rows: inclusion per layer, averaging, calibration, OOD rows."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from slabnet.core.records import Selection
from slabnet.model.drawing import drawable_layers
from slabnet.model.layers import SlabLayer
from slabnet.model.networks import Network
from slabnet.prediction.evaluation import evaluate, registered_metrics
from slabnet.prediction.metrics import accuracy, brier, calibration_error, negative_log_likelihood, out_of_domain
from slabnet.prediction.predict import predict
from slabnet.prediction.ways import Rows

BINS = 20
MOST_DRAWS = 100
QUANTILES = 101


@torch.no_grad()
def describe_layers(net: Network, chosen: Selection | None) -> list[dict[str, Any]]:
    """Mean inclusion and a histogram of alpha for each layer (Table 3, fig. hist); densities of what was chosen."""
    layers = []
    for name, layer in drawable_layers(net).items():
        if not isinstance(layer, SlabLayer):
            continue
        alpha = layer.alpha.detach().double()
        part: dict[str, Any] = {"layer": name, "shape": list(layer.weight.mu.shape), "weights": alpha.numel()}
        if net.method.selects:
            part["inclusion"] = float(alpha.mean())
            part["histogram"] = torch.histc(alpha, BINS, 0.0, 1.0).long().tolist()
        if chosen is not None:
            numbers = chosen.layers[name]
            part |= {"median": numbers.median, "active": numbers.active, "active_neurons": numbers.active_neurons}
            part |= {"active_weights": numbers.active_weights}
        layers.append(part)
    return layers


def averaging_curve(net: Network, test: Rows, seed: int) -> list[dict[str, float]]:
    """Accuracy against the number of draws averaged (fig. predsamples): the first R of the same draws."""
    if not drawable_layers(net):
        return []
    x, y = test
    prediction = predict(net, x, MOST_DRAWS, seed=seed, keep_draws=True)
    assert prediction.samples is not None
    sums = prediction.samples.double().cumsum(0)
    right = (sums.argmax(-1) == y).double().mean(-1)
    steps = sorted({r for r in (1, 2, 3, 5, 7, 10, 15, 20, 30, 50, 70, 100) if r <= len(right)} | {len(right)})
    return [{"draws": r, "accuracy": float(right[r - 1])} for r in steps]


def trustworthiness(net: nn.Module, test: Rows, draws: int, seed: int) -> dict[str, float]:
    """Calibration of the averaged probabilities, and the metrics that a user registered."""
    x, y = test
    prediction = predict(net, x, draws, seed=seed)
    return {
        "nll": negative_log_likelihood(prediction, y),
        "brier": brier(prediction, y),
        "calibration_error": calibration_error(prediction, y),
        **evaluate(prediction, y, registered_metrics(prediction)),
    }


def ood_entropies(net: nn.Module, test: Rows, ood: Rows, draws: int, seed: int) -> dict[str, Any]:
    """Entropies in and out of distribution as quantiles (fig. entrop), and how well they tell the two apart."""
    inside, outside = (predict(net, rows[0], draws, seed=seed) for rows in (test, ood))
    by_entropy, by_information = (out_of_domain(inside, outside, by) for by in ("entropy", "mutual_information"))
    return {
        "auroc": by_entropy.auroc,
        "aupr": by_entropy.aupr,
        "auroc_mutual_information": by_information.auroc,
        "in_distribution": _quantiles(inside.entropy),
        "out_of_distribution": _quantiles(outside.entropy),
        "accuracy_in_distribution": accuracy(inside, test[1]),
    }


def _quantiles(values: Tensor) -> list[float]:
    levels = torch.linspace(0, 1, QUANTILES, dtype=torch.float64)
    return [float(f"{v:.5g}") for v in torch.quantile(values.double(), levels).tolist()]
