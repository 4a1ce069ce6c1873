"""Layers with an indicator on every weight and intercept."""

from slabnet.model.layers.base import SlabLayer
from slabnet.model.layers.conv import Conv1d, Conv2d, Conv3d
from slabnet.model.layers.linear import Linear

__all__ = ["Conv1d", "Conv2d", "Conv3d", "Linear", "SlabLayer"]
