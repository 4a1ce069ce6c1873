"""The IDX format of MNIST and Fashion-MNIST, plain or gzipped."""

from __future__ import annotations

import gzip
import hashlib
import math
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from slabnet.core.errors import FileError, refuse
from slabnet.core.files import is_there

LARGEST = 1 << 26  # bytes; MNIST's training images are 47 million, and four times that as numbers
MOST_DIMENSIONS = 8
_TYPES: dict[int, str] = {0x08: "u1", 0x09: "i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}


def read_idx(path: str | Path) -> NDArray[np.generic]:
    """The array in an IDX file (`.gz` or not), its size checked against what the header declares."""
    return read_idx_checked(path)[0]


def read_idx_checked(path: str | Path) -> tuple[NDArray[np.generic], str]:
    """The array, and the SHA-256 of the uncompressed file: gzip wrappers differ from mirror to mirror."""
    path = Path(path)
    if not is_there(path):
        refuse("read_idx", "path", "a file that exists", str(path))
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            head = file.read(4)
            if len(head) < 4 or head[:2] != b"\0\0" or head[2] not in _TYPES or head[3] > MOST_DIMENSIONS:
                raise FileError(f"read_idx: {path} must be an IDX file, got another beginning")
            declared = file.read(4 * head[3])
            if len(declared) < 4 * head[3]:
                raise FileError(f"read_idx: {path} must be whole, got one cut off in its header")
            sizes = np.frombuffer(declared, ">u4")
            kind = np.dtype(_TYPES[head[2]])
            wanted = math.prod(int(size) for size in sizes) * kind.itemsize
            if wanted > LARGEST:
                raise FileError(f"read_idx: {path} must declare at most {LARGEST} bytes, got {wanted}")
            body = file.read(wanted + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise FileError(f"read_idx: {path} must be a readable file, got: {error}") from None
    if len(body) != wanted:
        raise FileError(f"read_idx: {path} must hold {wanted} bytes after its header, got {len(body)}")
    sha = hashlib.sha256(head + declared)
    sha.update(body)
    return np.frombuffer(body, kind).reshape([int(size) for size in sizes]), sha.hexdigest()
