"""Stability over seeds: how far several fits of one architecture choose the same weights and inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import torch
from torch import Tensor, nn

from slabnet.core.errors import refuse
from slabnet.selection.rules import threshold_model


@dataclass(frozen=True)
class Stability:
    """How often each weight and input was chosen over several fits.

    weights: layer name -> share of the fits whose model has the weight; inputs: the same for inputs on a path.
    kappa_inputs, kappa_weights: mean agreement of two fits beyond chance (Cohen's kappa): 1 is the same choice,
        0 what two random choices of the same sizes would share. Hidden units have no identity from seed to
        seed, so agreement on weights is expected to be low where layers are hidden, and on inputs not.
    sizes: number of weights in each model.
    """

    weights: dict[str, Tensor]
    inputs: Tensor | None
    kappa_weights: float
    kappa_inputs: float | None
    sizes: tuple[int, ...]


def stability(nets: Sequence[nn.Module], threshold: float = 0.5) -> Stability:
    """Compare the models that several fits of one architecture choose."""
    if len(nets) < 2:
        refuse("stability", "nets", "at least two fitted networks", len(nets))
    chosen = [threshold_model(net, threshold) for net in nets]
    shapes = [{name: tuple(m[0].shape) for name, m in one.masks.items()} for one in chosen]
    if any(shape != shapes[0] for shape in shapes):
        refuse("stability", "nets", "networks of one architecture", "networks of different shapes")
    weights = {name: torch.stack([one.masks[name][0] for one in chosen]).double().mean(0) for name in chosen[0].masks}
    flat = [torch.cat([mask[0].flatten() for mask in one.masks.values()]) for one in chosen]
    inputs = [one.inputs for one in chosen]
    known = [i for i in inputs if i is not None]
    return Stability(
        weights=weights,
        inputs=torch.stack(known).double().mean(0) if len(known) == len(chosen) else None,
        kappa_weights=_mean_kappa(flat),
        kappa_inputs=_mean_kappa(known) if len(known) == len(chosen) else None,
        sizes=tuple(one.weights for one in chosen),
    )


def _mean_kappa(masks: Sequence[Tensor]) -> float:
    values = []
    for a, b in combinations(masks, 2):
        agree = float((a == b).double().mean())
        p, q = float(a.double().mean()), float(b.double().mean())
        chance = p * q + (1 - p) * (1 - q)
        values.append(1.0 if chance == 1.0 else (agree - chance) / (1 - chance))
    return sum(values) / len(values)
