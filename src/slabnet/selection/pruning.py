"""Cut the inputs of layers whose factors say that they are not needed (horseshoe, normal-Jeffreys)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from slabnet.core.errors import check_number, refuse
from slabnet.core.records import Selection
from slabnet.model.baselines import PrunableInputs
from slabnet.model.drawing import Mask
from slabnet.selection.rules import describe, slab_layers

SEPARATED = 0.8  # a uniform histogram split in the middle explains 0.75 of its variance


@torch.no_grad()
def prune(net: nn.Module, threshold: float | Sequence[float] | None = None) -> Selection:
    """Keep the input units whose score is above `threshold`: one number, or one for each layer.

    The score is the mean log scale of the horseshoe, and minus log alpha of normal-Jeffreys. Without a threshold, each
    layer has its own: the split of its scores into two groups that explains most of their variance (Otsu's). If that
    is under 0.8 the histogram has not two modes, and nothing of the layer is cut.
    """
    layers = {name: part for name, part in net.named_modules() if isinstance(part, PrunableInputs)}
    if not layers:
        refuse("prune", "net", "a network built with method horseshoe or normal-jeffreys", type(net).__name__)
    limits = _limits(threshold, len(layers))
    masks: dict[str, Mask] = {}
    for (name, layer), limit in zip(slab_layers(net).items(), limits, strict=True):
        scale = layers[name.removesuffix(".inner")].pruning_score()
        limit = two_modes(scale) if limit is None else limit
        is_in = torch.ones_like(scale, dtype=torch.bool) if limit is None else scale > limit
        shape = (1, -1, *(1 for _ in layer.weight.mu.shape[2:]))
        parts = [is_in.reshape(shape).expand(layer.weight.mu.shape).contiguous()]
        parts += [torch.ones_like(block.mu, dtype=torch.bool) for block in layer.blocks()[1:]]
        masks[name] = tuple(parts)
    return describe(net, masks, "pruned", limits[0] if len(set(limits)) == 1 else None)


def _limits(threshold: float | Sequence[float] | None, layers: int) -> list[float | None]:
    """A threshold for each layer, None where the layer finds its own."""
    if threshold is None:
        return [None] * layers
    if not isinstance(threshold, Sequence):
        return [check_number("prune", "threshold", threshold)] * layers
    if len(threshold) != layers:
        refuse("prune", "threshold", f"one number, or one for each of the {layers} layers", f"{len(threshold)} numbers")
    return [check_number("prune", "threshold", each) for each in threshold]


def two_modes(values: Tensor) -> float | None:
    """The threshold between two groups that explains most of the variance, None if they are not two groups.

    >>> two_modes(torch.tensor([-5.0, -4.9, -5.1, 1.0, 1.1]))
    -1.95
    """
    ordered = values.double().sort().values
    n, total = len(ordered), float(ordered.var(correction=0)) if len(ordered) > 1 else 0.0
    if total == 0.0:
        return None
    size = torch.arange(1, n, dtype=torch.float64)
    low = ordered.cumsum(0)[:-1] / size
    high = (ordered.sum() - ordered.cumsum(0)[:-1]) / (n - size)
    between = size / n * (1 - size / n) * (high - low) ** 2
    best = int(between.argmax())
    if float(between[best]) / total < SEPARATED:
        return None
    return round(float(ordered[best] + ordered[best + 1]) / 2, 6)
