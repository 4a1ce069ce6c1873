"""Where the IDX data sets come from, and the SHA-256 their uncompressed files must have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

PARTS = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")


@dataclass(frozen=True)
class Source:
    """One data set: mirrors to try in turn (https first), checksums by file, and folders other packages put it in.

    rows: of the training images, so that somebody's own files under the name are not taken for a damaged copy.
    """

    name: str
    mirrors: tuple[str, ...]
    sha256: Mapping[str, str]
    rows: Mapping[str, int]
    folders: tuple[Path, ...] = ()


_ROWS = dict(zip(PARTS, (60_000, 60_000, 10_000, 10_000), strict=True))

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source(
            name="mnist",
            mirrors=(
                "https://ossci-datasets.s3.amazonaws.com/mnist/",
                "https://storage.googleapis.com/cvdf-datasets/mnist/",
            ),
            sha256={
                "train-images-idx3-ubyte": "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
                "train-labels-idx1-ubyte": "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
                "t10k-images-idx3-ubyte": "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
                "t10k-labels-idx1-ubyte": "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
            },
            rows=_ROWS,
        ),
        Source(
            name="fashion-mnist",
            mirrors=(
                "https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",
                "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
            ),
            sha256={
                "train-images-idx3-ubyte": "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
                "train-labels-idx1-ubyte": "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
                "t10k-images-idx3-ubyte": "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
                "t10k-labels-idx1-ubyte": "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
            },
            rows=_ROWS,
            folders=(Path("/usr/share/datasets/fashion-mnist"),),  # Debian's dataset-fashion-mnist
        ),
    )
}
