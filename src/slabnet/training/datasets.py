"""torch's `Dataset` and `DataLoader` as data of ours: rows that know how many they are."""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, IterableDataset

from slabnet.core.errors import refuse
from slabnet.distributed.group import Group
from slabnet.training.batches import Batches, Prepare, Share


class DatasetBatches(Batches):
    """Rows of a `Dataset`, fetched one by one in an order that `generator` decides."""

    def __init__(self, dataset: Dataset[Any], batch_size: int, prepare: Prepare) -> None:
        self.dataset, self.n = dataset, rows_of_dataset(dataset, "fit")
        self.batch_size, self.prepare = batch_size, prepare
        if batch_size > self.n:
            refuse("fit", "batch_size", f"at most the number of rows, {self.n}", batch_size)

    def epoch(self, generator: torch.Generator, group: Group, skip: int = 0) -> Iterator[Share]:
        for rows in torch.split(torch.randperm(self.n, generator=generator), self.batch_size)[skip:]:
            first, end = group.rows(len(rows))
            mine = rows[first:end].tolist()
            items = [_pair(self.dataset[row]) for row in mine or [0]]
            x, y = self.prepare(
                *(torch.stack([torch.as_tensor(part) for part in parts]) for parts in zip(*items, strict=True))
            )
            yield Share(x[: len(mine)], y[: len(mine)], first, len(rows))


def rows_of_dataset(dataset: Dataset[Any], where: str) -> int:
    """How many rows a dataset has."""
    if isinstance(dataset, IterableDataset) or not isinstance(dataset, Sized) or not len(dataset):
        refuse(where, "data", "a dataset with rows and a length", type(dataset).__name__)
    return len(dataset)


def rows_of_loader(loader: DataLoader[Any]) -> int:
    """How many rows one epoch of a loader has."""
    rows = rows_of_dataset(loader.dataset, "fit")
    return rows - rows % loader.batch_size if loader.drop_last and loader.batch_size else rows


def features_of(x: Any) -> Any:
    """The inputs of a loader or a dataset as one tensor; anything else as it is."""
    if isinstance(x, DataLoader):
        return torch.cat([torch.as_tensor(_first(batch)) for batch in x])
    if isinstance(x, Dataset):
        return torch.stack([torch.as_tensor(_first(x[row])) for row in range(rows_of_dataset(x, "predict"))])
    return x


def _first(given: Any) -> Tensor | Any:
    return given[0] if isinstance(given, (tuple, list)) else given


def _pair(item: Any) -> tuple[Any, Any]:
    if not isinstance(item, (tuple, list)) or len(item) != 2:
        refuse("fit", "train", "a dataset of rows (x, y)", type(item).__name__)
    return item[0], item[1]
