"""Layers with an indicator on every weight and intercept."""

from slabnet.layers.base import SlabLayer
from slabnet.layers.conv import Conv1d, Conv2d, Conv3d
from slabnet.layers.linear import Linear

__all__ = ["Conv1d", "Conv2d", "Conv3d", "Linear", "SlabLayer"]
