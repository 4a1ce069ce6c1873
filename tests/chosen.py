"""A network with random parameters and a model chosen from it at random."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import slabnet as sn
from slabnet.model.drawing import drawable_layers
from slabnet.selection.rules import describe


def random_model(
    net: nn.Module, share: float, seed: int, *, intercepts: float = 0.6, rho: tuple[float, float] | None = None
) -> sn.Selection:
    """Keep a weight with probability `share`, an intercept with `intercepts`; rho is drawn from a range, if given."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in drawable_layers(net).values():
            for block in layer.blocks():
                block.mu.normal_(0, 1, generator=generator)
                if rho is not None:
                    block.rho.uniform_(*rho, generator=generator)
    masks = {
        name: tuple(
            torch.rand(b.mu.shape, generator=generator) < (share if b.mu.ndim > 1 else intercepts)
            for b in layer.blocks()
        )
        for name, layer in drawable_layers(net).items()
    }
    return describe(net, masks, "test")


def masked(net: nn.Module, chosen: sn.Selection, x: Tensor) -> Tensor:
    """What the full network gives with the chosen weights at their means."""
    with torch.no_grad(), sn.drawing(net, sn.fixed(chosen.masks)):
        return net(x)  # type: ignore[no-any-return]
