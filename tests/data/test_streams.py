"""Data that stay on disk: the same answers as in memory, and memory that does not grow with them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import slabnet as sn
from slabnet.data import ParquetStream
from slabnet.distributed.group import Group
from slabnet.training.batches import MappedBatches, Prepare


def mapped(tmp_path: Path, rows: int = 1000) -> tuple[np.memmap, np.memmap]:
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (rows, 3))
    y = np.lib.format.open_memmap(tmp_path / "y.npy", "w+", np.int64, (rows,))
    x[:] = np.random.default_rng(0).normal(size=(rows, 3))
    y[:] = x[:, 0] > 0
    return x, y


def batches(tmp_path: Path, batch_size: int) -> MappedBatches:
    net = sn.mlp((3, 2))
    return MappedBatches(
        *mapped(tmp_path), batch_size, Prepare(net, net.likelihood, torch.float32, torch.device("cpu"))
    )


@pytest.mark.parametrize("batch_size", [7, 100, 400])
def test_every_row_comes_once_an_epoch_and_shares_are_parts_of_the_batch(batch_size: int, tmp_path: Path) -> None:
    data = batches(tmp_path, batch_size)
    whole = list(data.epoch(torch.Generator().manual_seed(1), Group()))
    rest = [1000 % batch_size] if 1000 % batch_size else []
    assert [len(share.x) for share in whole] == [batch_size] * (1000 // batch_size) + rest
    assert sorted(np.concatenate([s.x[:, 0] for s in whole]).tolist()) == sorted(data.x[:, 0].tolist())
    parts = [list(data.epoch(torch.Generator().manual_seed(1), Group(rank, 3))) for rank in range(3)]
    for one, *three in zip(whole, *parts, strict=True):
        together = sorted(np.concatenate([share.x[:, 0] for share in three]).tolist())
        assert together == sorted(one.x[:, 0].tolist())
        assert {share.total for share in three} == {len(one.x)}
    later = list(data.epoch(torch.Generator().manual_seed(1), Group(), skip=3))
    assert all(torch.equal(a.x, b.x) for a, b in zip(whole[3:], later, strict=True))
    other = next(iter(data.epoch(torch.Generator().manual_seed(2), Group())))
    assert not torch.equal(other.x, whole[0].x)


def test_a_fit_from_a_file_learns(tmp_path: Path) -> None:
    net = sn.mlp((3, 2))
    sn.fit(net, mapped(tmp_path), sn.TrainConfig(epochs=20, batch_size=50, lr=0.02), progress="off")
    x, y = mapped(tmp_path)
    assert sn.accuracy(sn.predict(net, np.asarray(x)), torch.as_tensor(np.asarray(y))) > 0.95


def write_parquet(folder: Path, rows: int = 900) -> tuple[np.ndarray, np.ndarray]:
    source = np.random.default_rng(0)
    x = source.normal(size=(rows, 3)).astype(np.float32)
    y = (x[:, 0] > 0).astype(np.int64)
    for part in range(3):
        some = slice(part * rows // 3, (part + 1) * rows // 3)
        table = pa.table({"a": x[some, 0], "b": x[some, 1], "c": x[some, 2], "y": y[some]})
        pq.write_table(table, folder / f"part-{part}.parquet", row_group_size=90)
    return x, y


def test_a_folder_of_parquet(tmp_path: Path) -> None:
    x, y = write_parquet(tmp_path)
    stream = ParquetStream(tmp_path, target="y", batch_size=50)
    assert stream.n == 900
    assert stream.columns == ["a", "b", "c"]
    first, second = list(stream), list(stream)
    for epoch in (first, second):
        assert sorted(np.concatenate([part[0][:, 0] for part in epoch]).tolist()) == sorted(x[:, 0].tolist())
    assert not np.array_equal(first[0][0], second[0][0])
    net = sn.mlp((3, 2))
    sn.fit(net, stream, sn.TrainConfig(epochs=15, lr=0.02), progress="off")
    assert sn.accuracy(sn.predict(net, x), torch.as_tensor(y)) > 0.95


def test_bad_parquet(tmp_path: Path) -> None:
    with pytest.raises(sn.ArgumentError, match="folder must be a Parquet file or a folder of them"):
        ParquetStream(tmp_path, target="y")
    (tmp_path / "x.parquet").write_bytes(b"PAR1 and nothing more")
    with pytest.raises(sn.FileError, match=r"x\.parquet must be a Parquet file"):
        ParquetStream(tmp_path, target="y")
    pq.write_table(pa.table({"a": ["text"], "y": [1]}), tmp_path / "x.parquet")
    with pytest.raises(sn.ArgumentError, match="target must be a column"):
        ParquetStream(tmp_path, target="z")
    with pytest.raises(sn.ArgumentError, match="column a must be of numbers"):
        next(iter(ParquetStream(tmp_path, target="y")))


def test_a_damaged_page_is_one_line(tmp_path: Path) -> None:
    table = pa.table({"a": np.arange(5000.0), "y": np.arange(5000) % 2})
    pq.write_table(table, tmp_path / "x.parquet", write_page_checksum=True)
    whole, said = (tmp_path / "x.parquet").read_bytes(), 0
    for place in range(4, 400, 4):
        (tmp_path / "x.parquet").write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        try:
            list(ParquetStream(tmp_path, target="y"))
        except sn.FileError:  # its text is one line always
            said += 1
    assert said > 90  # some bits of a page's header mean nothing


LARGE = """
import resource, sys
import numpy as np, torch, slabnet as sn, slabnet.training.fit, slabnet.data.streams
torch.set_num_threads(1)
now = int(open("/proc/self/statm").read().split()[5]) * 4096
resource.setrlimit(resource.RLIMIT_DATA, (now + (64 << 20), now + (64 << 20)))  # 64 MB more than what is loaded
rows = 1_000_000
x = np.load(sys.argv[1] + "/x.npy", mmap_mode="r")
y = np.load(sys.argv[1] + "/y.npy", mmap_mode="r")
assert x.nbytes >= 4 * (64 << 20)
net = sn.mlp((64, 4, 2))
sn.fit(net, (x, y), sn.TrainConfig(epochs=1, batch_size=2000, lr=0.02), progress="off")
print("done")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the limit on memory is Linux's")
def test_four_times_the_memory_there_is(tmp_path: Path) -> None:
    x = np.lib.format.open_memmap(tmp_path / "x.npy", "w+", np.float32, (1_050_000, 64))
    y = np.lib.format.open_memmap(tmp_path / "y.npy", "w+", np.int64, (1_050_000,))
    block = np.random.default_rng(0).normal(size=(10_500, 64)).astype(np.float32)
    for start in range(0, len(x), len(block)):
        x[start : start + len(block)] = block
        y[start : start + len(block)] = block[:, 0] > 0
    del x, y
    run = subprocess.run([sys.executable, "-c", LARGE, str(tmp_path)], capture_output=True, text=True, check=False)
    assert run.stdout == "done\n", run.stderr[-1000:]
