"""Cut the inputs of horseshoe layers whose scale is negligible."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from slabnet.core.errors import check_number, refuse
from slabnet.core.records import Selection
from slabnet.model.baselines import Horseshoe
from slabnet.model.drawing import Mask
from slabnet.selection.rules import describe, slab_layers

SEPARATED = 0.8  # a uniform histogram split in the middle explains 0.75 of its variance


@torch.no_grad()
def prune(net: nn.Module, threshold: float | None = None) -> Selection:
    """Keep the input units whose mean log scale is above `threshold`.

    Without one, each layer has its own: the split of its log scales into two groups that explains most of their
    variance (Otsu's). If that is under 0.8 the histogram has not two modes, and nothing of the layer is cut.
    """
    layers = {name: part for name, part in net.named_modules() if isinstance(part, Horseshoe)}
    if not layers:
        refuse("prune", "net", "a network built with method horseshoe", type(net).__name__)
    if threshold is not None:
        check_number("prune", "threshold", threshold)
    masks: dict[str, Mask] = {}
    for name, layer in slab_layers(net).items():
        owner = layers[name.removesuffix(".inner")]
        scale = owner.log_scale[0]
        limit = two_modes(scale) if threshold is None else threshold
        kept = torch.ones_like(scale, dtype=torch.bool) if limit is None else scale > limit
        shape = (1, -1, *(1 for _ in layer.weight.mu.shape[2:]))
        parts = [kept.reshape(shape).expand(layer.weight.mu.shape).contiguous()]
        parts += [torch.ones_like(block.mu, dtype=torch.bool) for block in layer.blocks()[1:]]
        masks[name] = tuple(parts)
    return describe(net, masks, "pruned", threshold)


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
