"""Outside the training rows: slopes may change where the data end, and nothing says how.

f(x) + sum_j [b_j relu(x_j - high_j) + c_j relu(low_j - x_j)] with b_j, c_j ~ N(0, s_j^2) for each output: the terms are
zero at every training row, so that the posterior of b and c is their prior, whatever q of the weights is, and the
divergence is zero. A factorised posterior has no such units of its own: it would have to be sure of the weights that
lead into them, at a price in the bound and with no gain. s_j is the standard deviation of the slope over the training
rows: a function that is linear in an input goes on as it is, and one that bends may bend again.
"""

from __future__ import annotations

import torch
from torch import Tensor

from slabnet.kernels import noise_like
from slabnet.model.drawing import Drawable, Scope, scope_of


class Beyond(Drawable):
    """What is added to the outputs of a network where an input leaves the range of the training rows.

    Only draws of the whole posterior have it: not training, not single networks, and not a chosen model, which weights
    that rest at their prior are no part of.

    >>> Beyond(3, 2).slopes.shape
    torch.Size([2, 3])
    """

    low: Tensor
    high: Tensor
    slopes: Tensor
    at_prior = True

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.register_buffer("low", torch.zeros(inputs))
        self.register_buffer("high", torch.zeros(inputs))
        self.register_buffer("slopes", torch.zeros(outputs, inputs))

    def divergence(self, scope: Scope, sampled: bool) -> Tensor:
        return self.slopes.new_zeros(())

    def forward(self, x: Tensor) -> Tensor | None:
        """What is added for these rows under the active draw; None where that is nothing."""
        scope = scope_of(self)
        draw = scope.draw
        if draw.trains or not draw.draws_indicators or draw.decided is not None:
            return None
        rows = x.flatten(1)
        outside = torch.cat([(rows - self.high).clamp_min(0), (self.low - rows).clamp_min(0)], 1)
        if not bool((outside > 0).any()):
            return None
        return outside @ scope.keep(self, lambda: self._drawn(scope)).T

    def _drawn(self, scope: Scope) -> Tensor:
        """b and c of every output."""
        scales = torch.cat([self.slopes, self.slopes], 1)
        return scales * noise_like(scales, scope.seed(), None)[0]
