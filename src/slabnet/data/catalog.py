"""Names of data sets, and where their files are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from slabnet.config.settings import DATA_SETS
from slabnet.core.errors import FileError, check_choice, refuse
from slabnet.data.fetch import find, located
from slabnet.data.sources import SOURCES

DIGITS_TEST = 360  # a fifth of scikit-learn's digits


@dataclass(frozen=True)
class Split:
    """A data set: `train` and `test` are (x, y), ready for `fit` and `predict`; pixels are in [0, 1]."""

    name: str
    train: tuple[Tensor, Tensor]
    test: tuple[Tensor, Tensor]
    classes: int
    image_shape: tuple[int, int] | None = None

    @property
    def inputs(self) -> int:
        return int(self.train[0].shape[1])


_REGISTERED: dict[str, Callable[[], Split]] = {}


def load(name: str) -> Split:
    """A data set by name: "digits" comes with scikit-learn; the others are looked for and, if need be, downloaded.

    They are looked for under SLABNET_DATA, in the user's cache and where Debian's packages put them (`slabnet data`).

    >>> load("digits").train[0].shape
    torch.Size([1437, 64])
    """
    check_choice("data", "name", name, DATA_SETS)
    if name in _REGISTERED:
        split = _REGISTERED[name]()
        if not isinstance(split, Split):
            refuse("data", "make", f"a function that gives a Split, for {name}", type(split).__name__)
        return split
    return _digits() if name == "digits" else _idx(name)


def register(name: str, make: Callable[[], Split]) -> None:
    """Make a data set of yours known by name: `load`, `slabnet fit` and `slabnet report` take it from then on.

    name: letters, digits, - and _, another than those that are known. make: a function that gives the `Split`; it is
    called whenever the data are asked for.

    >>> rows = torch.eye(4), torch.arange(4)
    >>> register("corners", lambda: Split("corners", rows, rows, 4))
    >>> load("corners").inputs
    4
    >>> DATA_SETS.remove("corners")
    """
    word = isinstance(name, str) and name.replace("-", "_").isidentifier()
    if not word or (name in DATA_SETS and name not in _REGISTERED):
        refuse("data.register", "name", f"a word of its own, not {', '.join(DATA_SETS)}", repr(name))
    if not callable(make):
        refuse("data.register", "make", "a function that gives a Split", type(make).__name__)
    _REGISTERED[name] = make
    if name not in DATA_SETS:
        DATA_SETS.append(name)


def _digits() -> Split:
    """scikit-learn's 1 797 digits of 8 x 8 pixels in one fixed split."""
    from sklearn.datasets import load_digits  # slow to import, and needed here only

    bunch = load_digits()
    order = np.random.default_rng(0).permutation(len(bunch.target))
    x = torch.tensor(bunch.data[order] / 16.0, dtype=torch.float32)
    y = torch.tensor(bunch.target[order], dtype=torch.int64)
    return Split("digits", (x[:-DIGITS_TEST], y[:-DIGITS_TEST]), (x[-DIGITS_TEST:], y[-DIGITS_TEST:]), 10, (8, 8))


def _idx(name: str) -> Split:
    train, shape = _part(name, "train")
    test, test_shape = _part(name, "t10k")
    if test_shape != shape:
        raise FileError(f"data: {name} must have test images of the size of its training images, got {test_shape}")
    return Split(name, train, test, 10, shape)


def _part(name: str, part: str) -> tuple[tuple[Tensor, Tensor], tuple[int, int]]:
    images = find(SOURCES[name], f"{part}-images-idx3-ubyte")
    labels = find(SOURCES[name], f"{part}-labels-idx1-ubyte")
    if images.ndim != 3 or images.size == 0 or labels.ndim != 1 or len(labels) != len(images):
        came = f"shapes {images.shape} and {labels.shape}"
        raise FileError(f"data: {name} must have images in rows and columns and one label for each, got {came}")
    if labels.dtype.kind not in "iu" or int(labels.min()) < 0 or int(labels.max()) > 9:
        came = f"{labels.min()} to {labels.max()}" if labels.dtype.kind in "iu" else "numbers that are not whole"
        raise FileError(f"data: {name} must have labels from 0 to 9, got {came}")
    pixels = images.reshape(len(images), -1).astype(np.float32)
    pixels /= 255.0  # in place: no second copy
    if not np.isfinite(pixels).all():
        raise FileError(f"data: {name} must have pixels that are numbers, got NaN or infinity")
    x = torch.from_numpy(pixels)
    return (x, torch.from_numpy(labels.astype(np.int64))), (int(images.shape[1]), int(images.shape[2]))


def available() -> list[dict[str, str | bool | None]]:
    """Every data set by name: where it is (None: nowhere), whether its files are damaged, and where it comes from."""
    sets: list[dict[str, str | bool | None]] = [
        {"name": "digits", "where": "with scikit-learn", "damaged": False, "source": None}
    ]
    for source in SOURCES.values():
        folders, refused = located(source)
        bad = folders is None and bool(refused)
        place = ", ".join(map(str, folders or [path.parent for path in refused[:1]])) or None
        sets.append({"name": source.name, "where": place, "damaged": bad, "source": source.mirrors[0]})
    sets += [
        {"name": name, "where": "registered", "damaged": False, "source": None}
        for name in DATA_SETS
        if name in _REGISTERED
    ]
    return sets
