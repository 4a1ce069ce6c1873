"""How far the inclusion probabilities have come: moving, resting at the prior, or settled."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

import torch
from torch import Tensor, nn

from slabnet.model.drawing import drawable_layers
from slabnet.model.layers import SlabLayer
from slabnet.model.paths import find_paths, masks_above

MOVED = 0.02  # a change of alpha that counts
WINDOW = 5  # epochs over which a change is looked for


class AlphaState(NamedTuple):
    """Shares of the weights (not intercepts)."""

    density_expected: float
    density_median: float
    moving: float
    at_prior: float


class AlphaTracker:
    """Compares alpha now with alpha `WINDOW` epochs ago. A network without indicators has density one."""

    def __init__(self, net: nn.Module) -> None:
        layers = [layer for layer in drawable_layers(net).values() if isinstance(layer, SlabLayer)]
        self.layers = [layer for layer in layers if layer.weight.omega is not None]
        self.past: deque[list[Tensor]] = deque(maxlen=WINDOW)
        if self.layers:
            self.past.append(self._now())

    def update(self) -> AlphaState:
        """Where alpha stands at the end of an epoch."""
        if not self.layers:
            return AlphaState(1.0, 1.0, 0.0, 0.0)
        now, then = self._now(), self.past[0]
        self.past.append(now)
        weights = sum(alpha.numel() for alpha in now)
        expected = median = moving = at_prior = 0.0
        with torch.no_grad():
            for layer, alpha, before in zip(self.layers, now, then, strict=True):
                moved = (alpha - before).abs() > MOVED
                rests = (alpha - layer.resting_alpha().cpu()).abs() <= MOVED
                expected += float(alpha.sum(dtype=torch.float64))
                median += int((alpha > 0.5).sum())
                moving += int(moved.sum())
                at_prior += int((rests & ~moved).sum())
        return AlphaState(expected / weights, median / weights, moving / weights, at_prior / weights)

    @torch.no_grad()
    def _now(self) -> list[Tensor]:
        return [layer.alpha.detach().float().cpu() for layer in self.layers]


def active_weights(net: nn.Module) -> int | None:
    """The weights of the median model that lie on a path, as `median_model` counts them; None without indicators.

    >>> from slabnet.model.networks import mlp
    >>> active_weights(mlp((4, 3, 2))), active_weights(mlp((4, 3, 2), method="gaussian"))
    (18, None)
    """
    layers = {name: layer for name, layer in drawable_layers(net).items() if isinstance(layer, SlabLayer)}
    if all(layer.weight.omega is None for layer in layers.values()):
        return None
    paths = find_paths(net, masks_above(layers, 0.5))
    return None if paths is None else sum(int(on_path.sum()) for on_path in paths.active.values())
