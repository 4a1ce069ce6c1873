"""Convolutions in one, two and three dimensions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch.nn.functional as F
from torch import Tensor

from slabnet.config.settings import Prior, Start
from slabnet.core.errors import check_choice, check_whole, refuse
from slabnet.core.noise import Seed
from slabnet.model.layers.base import DEFAULT_POSTERIOR, SlabLayer
from slabnet.model.posteriors import Posterior
from slabnet.model.priors import LayerPrior

Size = int | Sequence[int]
CONVOLUTIONS: dict[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class Kernel(NamedTuple):
    """How wide a kernel is, and how many zeros stand around a map it passes over."""

    size: int
    edge: int

    @classmethod
    def of(cls, size: int, padding: str) -> Kernel:
        check_choice("convnet", "padding", padding, ("same", "valid"))
        if check_whole("convnet", "kernel_size", size, at_least=1) % 2 == 0 and padding == "same":
            refuse("convnet", "kernel_size", 'odd, so that maps keep their size, or used with padding="valid"', size)
        return cls(size, size // 2 if padding == "same" else 0)

    def side(self, size: int, layers: int, pool: int) -> int:
        """What is left of a side of an image after so many layers, each with pooling."""
        for _ in range(layers):
            size = max(0, size + 2 * self.edge - self.size + 1) // pool
        return size


class ConvNd(SlabLayer):
    """A convolution whose kernel weights and intercepts carry indicators; arguments as in torch's ConvNd."""

    dimensions: int

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: Size,
        stride: Size = 1,
        padding: Size | str = 0,
        dilation: Size = 1,
        groups: int = 1,
        bias: bool = True,
        padding_mode: str = "zeros",
        *,
        prior: Prior | LayerPrior | None = None,
        posterior: type[Posterior] = DEFAULT_POSTERIOR,
        start: Start | None = None,
        seed: Seed = 0,
    ) -> None:
        where = type(self).__name__
        check_whole(where, "groups", groups, at_least=1)
        if in_channels % groups or out_channels % groups:
            refuse(where, "groups", f"a divisor of {in_channels} and {out_channels} channels", groups)
        check_choice(where, "padding_mode", padding_mode, ("zeros", "reflect", "replicate", "circular"))
        kernel = _spread(kernel_size, self.dimensions, where, "kernel_size", 1)
        shape = (out_channels, in_channels // groups, *kernel)
        super().__init__(shape, bias, prior, posterior, start, seed, groups)
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.stride = _spread(stride, self.dimensions, where, "stride", 1)
        self.dilation = _spread(dilation, self.dimensions, where, "dilation", 1)
        self.padding_mode = padding_mode
        self.edges = self._edges(padding, kernel)

    def _edges(self, padding: Size | str, kernel: tuple[int, ...]) -> tuple[int, ...]:
        """What to pad before and after each dimension, last dimension first, as `F.pad` wants it."""
        where = type(self).__name__
        if isinstance(padding, str):
            check_choice(where, "padding", padding, ("same", "valid"))
            if padding == "same" and max(self.stride) > 1:
                refuse(where, "padding", 'a number where stride is above 1 ("same" is undefined)', padding)
            reach = [d * (k - 1) if padding == "same" else 0 for d, k in zip(self.dilation, kernel, strict=True)]
            pairs = [(total // 2, total - total // 2) for total in reach]
        else:
            pairs = [(p, p) for p in _spread(padding, self.dimensions, where, "padding", 0)]
        return tuple(side for pair in reversed(pairs) for side in pair)

    def affine(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        if any(self.edges):  # padding commutes with squaring, so one method serves mean and variance
            mode = "constant" if self.padding_mode == "zeros" else self.padding_mode
            x = F.pad(x, self.edges, mode=mode)
        out: Tensor = CONVOLUTIONS[self.dimensions](
            x, weight, bias, stride=self.stride, dilation=self.dilation, groups=self.groups
        )
        return out

    def resized(self, in_channels: int, out_channels: int, prior: LayerPrior) -> ConvNd:
        """A convolution like this one with other numbers of channels, with fresh parameters."""
        kernel, bias = tuple(self.weight.mu.shape[2:]), self.bias is not None
        options: dict[str, Any] = {"stride": self.stride, "dilation": self.dilation, "bias": bias, "prior": prior}
        made = type(self)(in_channels, out_channels, kernel, padding_mode=self.padding_mode, **options)
        made.edges = self.edges
        return made

    def extra_repr(self) -> str:
        return (
            f"{self.in_channels}, {self.out_channels}, kernel={tuple(self.weight.mu.shape[2:])}, stride={self.stride}"
        )


class Conv1d(ConvNd):
    """`nn.Conv1d` with an indicator on every weight and intercept."""

    dimensions = 1


class Conv2d(ConvNd):
    """`nn.Conv2d` with an indicator on every weight and intercept.

    >>> import torch
    >>> Conv2d(1, 4, 3, padding=1)(torch.ones(2, 1, 8, 8)).shape
    torch.Size([2, 4, 8, 8])
    """

    dimensions = 2


class Conv3d(ConvNd):
    """`nn.Conv3d` with an indicator on every weight and intercept."""

    dimensions = 3


def _spread(value: Size, dimensions: int, where: str, name: str, at_least: int) -> tuple[int, ...]:
    values = tuple(value) if isinstance(value, Sequence) else (value,) * dimensions
    if len(values) != dimensions:
        refuse(where, name, f"a whole number or {dimensions} of them", value)
    return tuple(check_whole(where, name, v, at_least=at_least) for v in values)
