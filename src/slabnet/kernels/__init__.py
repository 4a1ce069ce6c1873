"""The passes over the weights that every training step makes: moments or a draw, with the divergence.

`kernels.c` makes them in one loop per direction, called by `native.py` and registered with torch in `operators.py`;
`layer.py` joins them for a whole layer;
`reference.py` is the readable version in torch and `philox.py` the random numbers; `switch.py` picks one.
"""

from slabnet.kernels.dispatch import (
    draw_layer,
    local_draw,
    local_linear,
    next_seed,
    next_seeds,
    noise_like,
    slab_draw,
    slab_moments,
)
from slabnet.kernels.mixture import mixture_bump, mixture_bump_at
from slabnet.kernels.native import passes, variant

__all__ = [
    "draw_layer",
    "local_draw",
    "local_linear",
    "mixture_bump",
    "mixture_bump_at",
    "next_seed",
    "next_seeds",
    "noise_like",
    "passes",
    "slab_draw",
    "slab_moments",
    "variant",
]
