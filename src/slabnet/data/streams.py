"""Data that do not fit into memory: a folder of Parquet files as a stream of batches, shared out between processes."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slabnet.core.errors import FileError, check_whole, one_line, refuse
from slabnet.distributed.group import current_group


class ParquetStream:
    """(x, y) batches from the Parquet files of a folder, row group by row group; memory does not grow with the data.

    target: the column to predict; columns: the inputs, every other column if left out. All must be numbers (prepare
    categories beforehand). Row groups come in another random order in every epoch, rows of one are shuffled; with
    several processes each reads row groups of its own.

    >>> import tempfile, pyarrow as pa, pyarrow.parquet as pq
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table({"a": [1.0, 2.0, 3.0], "y": [0, 1, 0]}), f"{folder}/part.parquet")
    ...     stream = ParquetStream(folder, target="y", batch_size=2)
    ...     stream.n, [x.shape for x, _ in stream]
    (3, [(2, 1), (1, 1)])
    """

    sharded = True

    def __init__(
        self,
        folder: str | Path,
        *,
        target: str,
        columns: Sequence[str] | None = None,
        batch_size: int = 100,
        seed: int = 0,
    ) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        self.batch_size = check_whole("ParquetStream", "batch_size", batch_size, at_least=1)
        self.paths = sorted(Path(folder).glob("*.parquet")) if Path(folder).is_dir() else [Path(folder)]
        if not self.paths or not self.paths[0].is_file():
            refuse("ParquetStream", "folder", "a Parquet file or a folder of them", str(folder))
        self.groups: list[tuple[Path, int]] = []
        self.n, self.target, self.seed, self.epochs = 0, target, seed, 0
        for path in self.paths:
            try:
                file = pq.ParquetFile(path)
            except (pa.ArrowException, OSError) as error:
                raise FileError(f"ParquetStream: {path} must be a Parquet file, got: {one_line(error)}") from None
            names = list(file.schema_arrow.names)
            if target not in names:
                refuse("ParquetStream", "target", f"a column of {path.name}", target)
            self.columns = [name for name in names if name != target] if columns is None else list(columns)
            missing = [name for name in self.columns if name not in names]
            if missing:
                refuse("ParquetStream", "columns", f"columns of {path.name}", missing[0])
            self.n += file.metadata.num_rows
            self.groups += [(path, index) for index in range(file.metadata.num_row_groups)]

    def __iter__(self) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        group, self.epochs = current_group(), self.epochs + 1
        order = np.random.default_rng((self.seed, self.epochs))
        mine = [self.groups[i] for i in order.permutation(len(self.groups))][group.rank :: group.world]
        for path, index in mine:
            x, y = self._read(path, index)
            rows = order.permutation(len(x))
            for start in range(0, len(rows), self._share(group.world)):
                some = rows[start : start + self._share(group.world)]
                yield x[some], y[some]

    def _share(self, world: int) -> int:
        """Rows a batch in this process: `batch_size` is that of all together."""
        return max(1, self.batch_size // world)

    def _read(self, path: Path, index: int) -> tuple[NDArray[Any], NDArray[Any]]:
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            file = pq.ParquetFile(path, page_checksum_verification=True)
            table = file.read_row_group(index, columns=[*self.columns, self.target])
        except (pa.ArrowException, OSError) as error:
            raise FileError(
                f"ParquetStream: {path} must be a whole Parquet file, got: {one_line(str(error))}"
            ) from None
        columns = []
        for name in self.columns:
            values = table.column(name).to_numpy(zero_copy_only=False)
            if values.dtype.kind not in "fiub":
                refuse("ParquetStream", f"column {one_line(name)}", "of numbers", str(values.dtype))
            columns.append(values.astype(np.float32))
        return np.stack(columns, axis=1), table.column(self.target).to_numpy(zero_copy_only=False)
