"""A folder that one process at a time works in; the claim ends with the process, however that ends."""

from __future__ import annotations

import contextlib
import os
import platform
import threading
from collections.abc import Iterator
from pathlib import Path

from slabnet.core.errors import one_line, refuse

LOCK = ".in-use"
_LONGEST = 300  # characters of a holder's name
_held: dict[str, int] = {}  # folder -> the thread that has it


@contextlib.contextmanager
def holding(folder: str | Path, where: str) -> Iterator[None]:
    """Have `folder`, which is made if need be, to oneself; who has it may ask again. Refused if another one has it.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as made, holding(f"{made}/run", "fit"):
    ...     (Path(made) / "run" / LOCK).read_text().startswith(f"process {os.getpid()} on ")
    True
    """
    folder = Path(folder)
    key, thread = os.path.realpath(folder), threading.get_ident()
    if _held.get(key) == thread:
        yield
        return
    ours = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = _take(folder, where)
    except OSError as error:
        refuse(where, "the folder of the run", "one that can be written", f"{folder} ({error.strerror})")
    _held[key] = thread
    try:
        yield
    finally:
        del _held[key]
        with contextlib.suppress(OSError):
            if _is_at(lock, folder / LOCK):
                (folder / LOCK).unlink()
            if ours:
                folder.rmdir()  # if nothing came into it
        os.close(lock)


def _take(folder: Path, where: str) -> int:
    """An open, locked file in the folder, which says who has it; the system unlocks it when the process ends."""
    path = folder / LOCK
    while True:
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        try:
            _lock(lock)
        except BlockingIOError:
            holder = os.read(lock, _LONGEST).decode(errors="replace").strip()
            os.close(lock)
            came = f"{one_line(holder) or 'another process'}, which works in {folder}"
            refuse(where, "the folder of the run", "free of other processes", came)
        except OSError:  # a file system without locks
            pass
        if _is_at(lock, path):
            break
        os.close(lock)  # its holder has just ended, and took the file away
    os.ftruncate(lock, 0)
    os.write(lock, f"process {os.getpid()} on {platform.node()}\n".encode())
    return lock


def _lock(file: int) -> None:
    """Lock an open file, or raise BlockingIOError; a system without such locks (Windows) locks nothing."""
    try:
        import fcntl
    except ImportError:
        return
    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def _is_at(lock: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(lock), path.stat())
    except FileNotFoundError:
        return False
