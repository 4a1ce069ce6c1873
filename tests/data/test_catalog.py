"""Data by name: digits, and IDX files that the tests write themselves."""

from __future__ import annotations

import gzip
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import torch

import slabnet as sn
from slabnet.data.fetch import NoData
from slabnet.data.idx import read_idx

SUMS = {"mnist": (60_000, 10_000), "fashion-mnist": (60_000, 10_000)}


def idx_bytes(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.astype(np.uint8).tobytes()


def write_set(folder: Path, name: str, gz: bool = True) -> None:
    (folder / name).mkdir(parents=True)
    rng = np.random.default_rng(0)
    for part, rows in (("train", 12), ("t10k", 5)):
        for kind, array in (
            ("images-idx3", rng.integers(0, 256, (rows, 4, 6))),
            ("labels-idx1", rng.integers(0, 10, rows)),
        ):
            content = idx_bytes(array)
            path = folder / name / f"{part}-{kind}-ubyte{'.gz' if gz else ''}"
            path.write_bytes(gzip.compress(content) if gz else content)


def test_digits_have_one_fixed_split() -> None:
    split = sn.data.load("digits")
    assert [tuple(t.shape) for t in (*split.train, *split.test)] == [(1437, 64), (1437,), (360, 64), (360,)]
    assert 0.0 <= float(split.train[0].min()) <= float(split.train[0].max()) == 1.0
    assert torch.equal(split.test[1][:8], sn.data.load("digits").test[1][:8])
    assert split.image_shape == (8, 8)
    assert len(torch.unique(split.test[1])) == 10


@pytest.mark.parametrize("gz", [True, False])
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_idx_files_are_read(name: str, gz: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_set(tmp_path, name, gz)
    monkeypatch.setenv("SLABNET_DATA", str(tmp_path))
    split = sn.data.load(name)
    assert split.train[0].shape == (12, 24)
    assert split.image_shape == (4, 6)
    rng = np.random.default_rng(0)
    pixels = torch.tensor(rng.integers(0, 256, (12, 24)), dtype=torch.float32)
    assert torch.equal(split.train[0], pixels / 255)
    assert split.train[1].dtype == torch.int64


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLABNET_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(NoData, match=r"mnist/train-images-idx3-ubyte.gz is not here.*SLABNET_DATA"):
        sn.data.load("mnist")
    monkeypatch.setenv("SLABNET_DATA", str(tmp_path / "given"))
    with pytest.raises(NoData, match=r"not in .*given"):
        sn.data.load("mnist")
    with pytest.raises(sn.ArgumentError, match="data: name must be one of digits, mnist, fashion-mnist, got 'iris'"):
        sn.data.load("iris")


def test_damaged_idx_files(tmp_path: Path) -> None:
    path = tmp_path / "x.gz"
    good = idx_bytes(np.arange(24).reshape(2, 3, 4))
    for content, said in (
        (gzip.compress(b"\x89PNG...."), "another beginning"),
        (gzip.compress(good[:9]), "cut off in its header"),
        (gzip.compress(good[:-1]), "must hold 24 bytes after its header, got 23"),
        (gzip.compress(good + b"z"), "got 25"),
        (gzip.compress(good)[:-4], "readable file"),
        (b"not gzip", "readable file"),
        (gzip.compress(struct.pack(">BBBB3I", 0, 0, 8, 3, 2**31, 2**31, 4)), "must declare at most"),
    ):
        path.write_bytes(content)
        with pytest.raises(sn.FileError, match="read_idx: ") as caught:
            read_idx(path)
        assert said in str(caught.value)
    path.write_bytes(gzip.compress(good))
    assert read_idx(path).tolist() == np.arange(24).reshape(2, 3, 4).tolist()


def test_labels_and_pixels_must_be_what_they_are_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images, labels = np.zeros((2, 2, 2), np.uint8), np.array([0, 1], np.uint8)
    for x, y, said in (
        (images, np.array([0.0, np.nan]), "numbers that are not whole"),
        (images, np.array([0.5, 1.0]), "numbers that are not whole"),
        (images, np.array([-1, 3]), "-1 to 3"),
        (images, np.array([2, 10]), "2 to 10"),
        (images * np.nan, labels, "NaN or infinity"),
    ):
        monkeypatch.setattr("slabnet.data.catalog.find", lambda _, file, x=x, y=y: x if "images" in file else y)
        with pytest.raises(sn.FileError, match=said):
            sn.data.load("mnist")


@pytest.mark.real_data
@pytest.mark.skipif(
    not (Path(os.environ.get("SLABNET_DATA", "/nowhere")) / "mnist").is_dir(), reason="SLABNET_DATA holds no MNIST"
)
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist"])
def test_the_real_files(name: str) -> None:
    split = sn.data.load(name)
    assert (len(split.train[0]), len(split.test[0])) == SUMS[name]
    assert torch.bincount(split.test[1]).min() > 800
    net = sn.mlp((784, 20, 10))
    sn.fit(net, (split.train[0][:6000], split.train[1][:6000]), sn.TrainConfig(epochs=4, lr=5e-3))
    assert sn.accuracy(sn.predict(net, split.test[0][:2000]), split.test[1][:2000]) > 0.6
