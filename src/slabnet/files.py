"""Files are written to a temporary name beside their final one, flushed to disk and renamed."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from slabnet.checks import ArgumentError, refuse


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write `content` under `path` so that the name holds either what it held before, or all of it."""
    with writing(path) as file:
        file.write(content)


@contextmanager
def writing(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to write to piece by piece, which takes the name `path` once the block has ended well."""
    path = Path(path)
    try:
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".tmp")
    except OSError as error:
        raise ArgumentError(f"write: {path} must be in a folder that can be written, got: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def check_writable(where: str, path: str | Path) -> Path:
    """`path`, if a file can be put there; asked before long work, so that none is lost."""
    path = Path(path)
    if path.is_dir():
        refuse(where, "the output", "the name of a file", f"{path}, a folder")
    if not path.parent.is_dir():
        refuse(where, "the output", "in a folder that exists", path)
    if not os.access(path.parent, os.W_OK):
        refuse(where, "the output", "in a folder that can be written", path)
    return path


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
