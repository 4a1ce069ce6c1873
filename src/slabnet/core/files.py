"""Files are written to a temporary name beside their final one, flushed to disk and renamed; text for spreadsheets."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from slabnet.core.errors import ArgumentError, FileError, refuse

LONGEST_NAME = 255 - len(f"..{secrets.token_hex(4)}.tmp")  # of a file: its temporary name is longer
_FORMULA = ("=", "+", "-", "@", "\uff1d", "\uff0b", "\uff0d", "\uff20")  # wide ones too
_SEPARATORS = ',;\t|"\n\r'
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")  # half characters, which no file takes, too


def write_atomically(path: str | Path, content: bytes) -> None:
    """Write `content` under `path` so that the name holds either what it held before, or all of it."""
    with writing(path) as file:
        file.write(content)


@contextlib.contextmanager
def writing(path: str | Path) -> Iterator[IO[bytes]]:
    """A file to write to piece by piece, which takes the name `path` once the block has ended well."""
    path = Path(os.path.realpath(path))  # what a link leads to is written, and the link stays
    _check_plain("write", path)
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        file = temporary.open("xb")
    except OSError as error:
        raise ArgumentError(f"write: {path} must be in a folder that can be written, got: {error.strerror}") from None
    try:
        with file:
            yield file
            file.flush()
            with contextlib.suppress(OSError):  # there was none, or it is somebody else's
                os.fchmod(file.fileno(), stat.S_IMODE(path.stat().st_mode))
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        reason = error.strerror or type(error).__name__
        raise FileError(f"write: {path} could not be written: {reason}; what was there before is as it was") from error
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    _flush_folder(path.parent)


def remove_leftovers(path: str | Path) -> None:
    """Take away what processes that were killed while they wrote `path` have left beside it."""
    path = Path(os.path.realpath(path))
    for left in path.parent.glob(f".{glob.escape(path.name)}.????????.tmp"):
        left.unlink(missing_ok=True)


def _flush_folder(folder: Path) -> None:
    """Let the new name itself reach the disk, where the system can do that."""
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def check_writable(where: str, path: str | Path) -> Path:
    """`path`, if a file can be put there; asked before long work, so that none is lost."""
    path, real = Path(path), Path(os.path.realpath(path))
    if len(os.fsencode(real.name)) > LONGEST_NAME:
        refuse(where, "the output", f"a name of at most {LONGEST_NAME} bytes", f"{path.name[:20]}...")
    if path.is_dir():
        refuse(where, "the output", "the name of a file", f"{path}, a folder")
    _check_plain(where, path)
    if not real.parent.is_dir():
        refuse(where, "the output", "in a folder that exists", path)
    if not os.access(real.parent, os.W_OK):
        refuse(where, "the output", "in a folder that can be written", path)
    return path


def _check_plain(where: str, path: Path) -> None:
    """Refuse to put a file in the place of a device, a pipe or a socket."""
    if path.exists() and not path.is_file():
        refuse(where, "the output", "a file, where there is something already", f"{path.name}, a device or a pipe")


def is_there(path: str | Path) -> bool:
    """Whether there is a file of that name; a name that no file can have is none."""
    try:
        return Path(path).is_file()
    except (OSError, ValueError):
        return False


def checkpoints_of(out: Path) -> Path:
    """The folder beside a model in which its fit is kept while it runs."""
    return out.with_name(f"{out.name}.checkpoints")


def csv_line(cells: Iterable[Any]) -> str:
    """A line of CSV. Quotes stand around whatever some reader may take for the end of a cell, a semicolon too.

    >>> csv_line([1, "a;b", 'c"d', ""])
    '1,"a;b","c""d",\\n'
    """
    return ",".join(_quoted(str(cell)) for cell in cells) + "\n"


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in _SEPARATORS) else text


def safe_text(text: str) -> str:
    """`text` for a cell: control characters are spaces, and an apostrophe goes before what a spreadsheet would run.

    >>> safe_text("=1+1"), safe_text("-1.5"), safe_text("red"), safe_text("b\\r=1+1")
    ("'=1+1", '-1.5', 'red', 'b =1+1')
    """
    plain = _CONTROL.sub(" ", text)
    if plain.strip() == "-" or not plain.lstrip().startswith(_FORMULA):
        return plain
    try:
        float(plain)
    except ValueError:
        return f"'{plain}"
    return plain
