"""Training data in one shape: tensors that know their n, or any iterable of batches with n given."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from slabnet.core.devices import device_of
from slabnet.core.errors import check_whole, one_line, refuse
from slabnet.core.threads import IMAGE
from slabnet.distributed.group import Group
from slabnet.model.likelihoods import Likelihood, Response, Target, check_finite
from slabnet.model.networks import Network

logger = logging.getLogger("slabnet")
RUN, WINDOW = 256, 64  # neighbouring rows read at once, and how many such runs are mixed
Data = tuple[Any, Any] | Iterable[tuple[Any, Any]]
Places = NDArray[np.int_]  # of rows in a file


class Share(NamedTuple):
    """This process's rows of a batch: the first of them is row `first` of the `total` that all processes have."""

    x: Tensor
    y: Response
    first: int
    total: int


class Batches:
    """Rows to train on. `n` is the size of the whole data set, which scales the log-likelihood.

    sharded: each process has rows of its own. epochs: of a stream, how often it was read to its end.
    """

    n: int
    sharded: bool = False
    epochs: int = 0
    positions: int = IMAGE  # of a row, that a kernel meets

    def epoch(self, generator: torch.Generator, group: Group, skip: int = 0) -> Iterator[Share]:
        """This process's share of each batch of one epoch, without the first `skip`."""
        raise NotImplementedError(f"{type(self).__name__} must give its batches")


class TensorBatches(Batches):
    """Data in memory, batched by index in an order that `generator` decides."""

    def __init__(self, x: Tensor, y: Response, batch_size: int) -> None:
        self.x, self.y, self.n, self.batch_size = x, y, len(x), batch_size
        self.positions = x.shape[2:].numel()

    def epoch(self, generator: torch.Generator, group: Group, skip: int = 0) -> Iterator[Share]:
        order = torch.randperm(self.n, generator=generator).to(self.x.device)
        for rows in torch.split(order, self.batch_size)[skip:]:
            first, end = group.rows(len(rows))
            yield Share(self.x[rows[first:end]], self.y[rows[first:end]], first, len(rows))


class Rows(list[tuple[Any, Any]]):
    """Batches that are known to be a part of the n rows there are."""


@runtime_checkable
class Counted(Protocol):
    """A stream that knows how many rows one reading of it gives."""

    n: int


@runtime_checkable
class Sharded(Protocol):
    """A stream that says whether each process has rows of its own."""

    sharded: bool


@runtime_checkable
class AsArray(Protocol):
    """What numpy takes for an array, such as a column of a data frame."""

    def __array__(self) -> NDArray[Any]: ...


class StreamBatches(Batches):
    """Any iterable of (x, y) batches that can be read once an epoch.

    Every process reads the whole stream and takes its share of each batch, unless the stream says `sharded`: then each
    process has a stream of its own, and who is through adds nothing until all are.
    """

    def __init__(self, batches: Iterable[tuple[Any, Any]], n: int, prepare: Prepare) -> None:
        self.batches, self.n, self.prepare = batches, n, prepare
        self.sharded = isinstance(batches, Sharded) and bool(batches.sharded)
        self.epochs = 0

    def epoch(self, generator: torch.Generator, group: Group, skip: int = 0) -> Iterator[Share]:
        if not self.sharded or group.world == 1:
            for x, y in self._read(skip):
                first, end = group.rows(len(x))
                yield Share(x[first:end], y[first:end], first, len(x))
            return
        batches, last = self._read(skip), None
        while True:
            last = next(batches, None) or (None if last is None else (last[0][:0], last[1][:0]))
            if last is None:
                refuse("fit", "train", "a stream with rows for every process", f"none for process {group.rank}")
            count, first = group.total(len(last[0]))
            if count == 0:
                return
            yield Share(*last, first, count)

    def _read(self, skip: int) -> Iterator[tuple[Tensor, Response]]:
        rows = 0
        for position, batch in enumerate(self.batches):
            if not isinstance(batch, (tuple, list)) or len(batch) != 2:
                refuse("fit", "train", "an iterable of (x, y) batches", type(batch).__name__)
            x, y = self.prepare(*batch)
            if len(x) > self.n:
                refuse("fit", "n", f"at least the size of a batch, {len(x)}", self.n)
            rows += len(x)
            if position >= skip:
                yield x, y
        if not rows:
            allowed = "not empty" if not self.epochs else "readable once an epoch, as a list or a DataLoader is"
            refuse("fit", "train", allowed, f"no batch in epoch {self.epochs + 1}")
        if rows > self.n:
            refuse("fit", "n", f"the number of rows in one epoch, {rows}", self.n)
        if rows < self.n and not self.epochs and not self.sharded and not isinstance(self.batches, Rows):
            logger.warning("fit: n is %d, but an epoch had %d rows: the log-likelihood counts for n", self.n, rows)
        self.epochs += 1


class Prepare:
    """Turns what a user gave for `net` into tensors on the device, or says what is wrong with it."""

    def __init__(
        self, net: nn.Module, likelihood: Likelihood, dtype: torch.dtype, device: torch.device, where: str = "fit"
    ) -> None:
        self.net, self.likelihood, self.where = net, likelihood, where
        self.dtype, self.device = dtype, device
        self.row_shape = net.row_shape if isinstance(net, Network) else None
        self.outputs = net.outputs if isinstance(net, Network) else None

    def __call__(self, x: Any, y: Any) -> tuple[Tensor, Response]:
        features = self.features(x)
        if not isinstance(y, Target):
            return features, self._responses(features, y)
        rows, soft = self._responses(features, y.y), {}
        if y.soft is not None:
            soft = {"soft": self._soft(y.soft, len(features))}
        sides = {name: self.side(name, value, len(features)) for name, value in y.parts() if name not in ("y", "soft")}
        target = Target(rows, **sides, **soft)
        self.likelihood.check_rows(target, self.where)
        return features, target

    def _responses(self, features: Tensor, y: Any) -> Tensor:
        targets = as_tensor(y, self.where, "y")
        if targets.ndim < 1 or len(features) != len(targets):
            refuse(self.where, "y", f"as long as x, {len(features)} rows", f"shape {tuple(targets.shape)}")
        if self.outputs is None:
            self.outputs = _outputs(self.net, features[:1], self.where)
        return self.likelihood.targets(targets, self.outputs, self.dtype, self.where).to(self.device)

    def _soft(self, soft: Any, rows: int) -> Tensor:
        targets = as_tensor(soft, self.where, "soft")
        if targets.ndim < 1 or len(targets) != rows:
            refuse(self.where, "soft", f"one prediction for each of the {rows} rows", f"shape {tuple(targets.shape)}")
        assert self.outputs is not None
        return self.likelihood.soft_targets(targets, self.outputs, self.dtype, self.where).to(self.device)

    def side(self, name: str, value: Any, rows: int) -> Tensor:
        """What else rows say, one number each."""
        if name not in ("weight", "soft_share", *self.likelihood.sides):
            refuse(self.where, name, f"left out for a {self.likelihood.name} response", "given")
        side = as_tensor(value, self.where, name)
        if side.shape != (rows,) or side.is_complex():
            refuse(self.where, name, f"one number for each of the {rows} rows", f"shape {tuple(side.shape)}")
        check_finite(side, self.where, name)
        numbers = side.to(self.dtype)
        wrong = {
            "weight": (numbers < 0, "numbers of at least 0"),
            "soft_share": ((numbers < 0) | (numbers > 1), "numbers between 0 and 1"),
            "exposure": (numbers <= 0, "numbers above 0"),
            "event": ((numbers != 0) & (numbers != 1), "1 (the event was seen) or 0 (cut off before)"),
        }[name]
        if bool(wrong[0].any()):
            row = int(wrong[0].nonzero()[0, 0])
            refuse(self.where, name, wrong[1], f"{side[row].item()} in row {row}")
        if name == "weight" and not bool((numbers > 0).any()):
            refuse(self.where, name, "above 0 for some row", "0 for all")
        return numbers.to(self.device)

    def features(self, x: Any) -> Tensor:
        """x alone, checked."""
        features = as_tensor(x, self.where, "x")
        if features.ndim < 1 or len(features) == 0:
            refuse(self.where, "x", "at least one row", f"shape {tuple(features.shape)}")
        if self.row_shape is not None:
            fits = features.shape[1:] == self.row_shape or (
                len(self.row_shape) == 1 and features[0].numel() == self.row_shape[0] and features.ndim > 1
            )
            if not fits:
                wanted = " x ".join(str(size) for size in self.row_shape)
                refuse(self.where, "x", f"rows of {wanted} numbers", f"shape {tuple(features.shape)}")
        if features.is_complex() or features.is_sparse:
            refuse(self.where, "x", "a dense array of real numbers", "complex or sparse numbers")
        check_finite(features, self.where, "x")
        cast = features.to(self.device, self.dtype)
        if features.dtype != self.dtype:  # 1e300 is finite, and is not in float32
            check_finite(cast, self.where, f"x, in {self.dtype}".replace("torch.", ""))
        return cast


class MappedBatches(Batches):
    """Arrays that stay in their files: read in runs of neighbouring rows, whose order is random, mixed a few at a time.

    A batch is drawn from a window of `WINDOW` runs, so that reading is nearly sequential and memory does not grow with
    the data. Rows that lie next to each other in the file meet in a batch more often than by chance.
    """

    def __init__(self, x: Any, y: Any, batch_size: int, prepare: Prepare) -> None:
        self.x, self.y, self.n, self.batch_size, self.prepare = x, y, len(x), batch_size, prepare

    def epoch(self, generator: torch.Generator, group: Group, skip: int = 0) -> Iterator[Share]:
        run = max(RUN, self.batch_size)
        starts = torch.randperm(-(-self.n // run), generator=generator) * run
        windows = [self._window(some.tolist(), run, generator) for some in torch.split(starts, WINDOW)]
        left = np.zeros(0, dtype=np.int64)
        number = 0
        for rows in windows:
            left = np.concatenate([left, rows])
            while len(left) >= self.batch_size:
                now, left = left[: self.batch_size], left[self.batch_size :]
                if number >= skip:
                    yield self._share(now, group)
                number += 1
        if len(left) and number >= skip:
            yield self._share(left, group)

    def _window(self, starts: list[int], run: int, generator: torch.Generator) -> Places:
        rows = np.concatenate([np.arange(start, min(start + run, self.n)) for start in starts])
        mixed: Places = rows[torch.randperm(len(rows), generator=generator).numpy()]
        return mixed

    def _share(self, rows: Places, group: Group) -> Share:
        first, end = group.rows(len(rows))
        mine = np.sort(rows[first:end])  # in the order of the file: the reading is faster, the batch is the same
        if not len(mine):
            empty = self.prepare(np.asarray(self.x[:1]), _taken(self.y, slice(0, 1)))
            return Share(empty[0][:0], empty[1][:0], first, len(rows))
        x, y = self.prepare(np.asarray(self.x[mine]), _taken(self.y, mine))
        return Share(x, y, first, len(rows))


def as_batches(train: Data, n: int | None, batch_size: int, prepare: Prepare) -> Batches:
    """`train` as batches: (x, y) arrays know their n, any other iterable must be told."""
    if isinstance(train, (tuple, list)) and is_pair(train) and isinstance(train[0], np.memmap):
        x, y = train
        if len(x) != len(y) or len(x) < batch_size:
            refuse("fit", "y", f"as long as x, {len(x)} rows, and at least a batch of {batch_size}", f"{len(y)} rows")
        prepare(np.asarray(x[:1]), _taken(y, slice(0, 1)))
        return MappedBatches(x, y, batch_size, prepare)
    if is_pair(train):
        x, y = prepare(*train)
        if n is not None and n != len(x):
            refuse("fit", "n", f"the number of rows, {len(x)}, or left out", n)
        if batch_size > len(x):
            refuse("fit", "batch_size", f"at most the number of rows, {len(x)}", batch_size)
        return TensorBatches(x, y, batch_size)
    if not isinstance(train, Iterable):
        refuse("fit", "train", "(x, y) or an iterable of (x, y) batches", type(train).__name__)
    n = train.n if n is None and isinstance(train, Counted) else n
    if n is None:
        refuse("fit", "n", "given with an iterable: the number of rows in one epoch", None)
    return StreamBatches(train, check_whole("fit", "n", n, at_least=1), prepare)


def is_pair(train: Any) -> bool:
    """Whether `train` is (x, y) as two arrays, not two batches."""
    if not isinstance(train, (tuple, list)) or len(train) != 2:
        return False
    if isinstance(train, tuple):  # two batches come as a list or other iterable
        return not any(isinstance(part, tuple) for part in train)
    return all(_is_array(part) for part in train)


def as_tensor(value: Any, where: str, name: str) -> Tensor:
    """An array of numbers as a tensor, without a copy where that is possible."""
    try:
        if isinstance(value, Tensor):
            return value
        array = np.ascontiguousarray(value)
        tensor = torch.as_tensor(array.astype(array.dtype.newbyteorder("="), copy=False))
    except (TypeError, ValueError, OverflowError):
        refuse(where, name, "an array of numbers", type(value).__name__)
    return tensor


def _taken(y: Any, rows: Any) -> Any:
    """Some rows of the responses, read from their file."""
    return y[rows] if isinstance(y, Target) else np.asarray(y[rows])


def _is_array(value: Any) -> bool:
    return isinstance(value, (Tensor, np.ndarray, AsArray))


def _outputs(net: nn.Module, row: Tensor, where: str) -> int:
    """How many numbers a network of unknown shape gives for a row, found by asking it."""
    modes = {part: part.training for part in net.modules()}
    try:
        with torch.no_grad():
            shape = tuple(net.eval()(row.to(*device_of(net))).shape)
    except (RuntimeError, ValueError, IndexError) as error:
        refuse(where, "x", "rows that the network can take", f"shape {tuple(row.shape)} ({one_line(str(error))})")
    finally:
        for part, mode in modes.items():
            part.training = mode
    if len(shape) != 2:
        refuse(where, "net", "one that gives a table, (rows, outputs)", f"shape {shape} for one row")
    return int(shape[1])
