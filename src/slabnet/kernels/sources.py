"""Which C sources these are: a library built from others is not loaded. Imports nothing, for `setup.py` runs it."""

from __future__ import annotations

import hashlib
from pathlib import Path

SYMBOL = "slabnet_sources"


def digest(folder: Path) -> str:
    """A short hash of the C files in a folder: their names and what they hold.

    >>> len(digest(Path(__file__).parent / "c"))
    16
    """
    total = hashlib.sha256()
    for path in sorted(folder.glob("*.[ch]"), key=lambda path: path.name):
        text = path.read_bytes().replace(b"\r\n", b"\n")
        total.update(b"%s %d\n" % (path.name.encode(), len(text)) + text)
    return total.hexdigest()[:16]


if __name__ == "__main__":
    print(digest(Path(__file__).parent / "c"))
