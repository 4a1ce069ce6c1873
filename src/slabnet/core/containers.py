"""One file format for everything we keep: safetensors with one JSON header and a checksum over both.

Nothing in such a file is ever run or imported. Sizes, checksum and format are looked at before a tensor is used.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from slabnet.core.errors import FileError, one_line
from slabnet.core.files import write_atomically
from slabnet.core.version import __version__

_HEADER = "slabnet"
# What a file may hold, so that one of 16 MB is read within 2 s and 500 MB; whoever writes keeps to it too.
LONGEST_HEADER = 1 << 24  # characters; what is read from them takes some twenty times as much
MOST_LISTS = 1 << 18  # lists and tables in the header
MOST_NAMES = 1 << 19  # names in its tables
MOST_DIGITS = 100  # of a whole number in it
MOST_TENSORS = 1 << 14
MOST_DIMENSIONS = 8


def as_text(header: dict[str, Any]) -> str:
    """The header as it is written: sorted, so that the same header gives the same bytes."""
    return json.dumps(header, sort_keys=True, allow_nan=False)


def write_container(path: str | Path, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Write header and tensors so that the name holds either what it held before, or all of it."""
    text = as_text(header | {"checksum": _checksum(as_text(header), tensors)})
    too_much = _too_much(text, {name: tuple(value.shape) for name, value in tensors.items()})
    if too_much:
        raise FileError(f"write: {path} must hold {too_much}")
    write_atomically(path, to_bytes(tensors, {_HEADER: text}))  # one key: safetensors does not sort several


def read_container(path: str | Path, where: str, newest: int) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Header and tensors of a file that is whole, undamaged and of a format up to `newest`; else one line."""
    try:
        with safe_open(path, framework="pt") as file:
            text = (file.metadata() or {}).get(_HEADER)
            if text is None:
                raise FileError(f"{where}: {path} must be a slabnet file, got a safetensors file without its header")
            names = file.keys()
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names[: MOST_TENSORS + 1]}
            too_much = _too_much(text, shapes)
            if too_much:
                raise FileError(f"{where}: {path} must hold {too_much}")
            header: dict[str, Any] = json.loads(text, parse_int=_whole)
            tensors = {name: file.get_tensor(name) for name in names}
    except (SafetensorError, ValueError, RecursionError, OSError, MemoryError, RuntimeError) as error:
        raise FileError(f"{where}: {path} must be a whole slabnet file, got: {one_line(str(error))}") from None
    if not isinstance(header, dict) or not _is_number(header.get("format")):
        raise FileError(f"{where}: {path} must have a slabnet header, got one without a format number")
    if not 1 <= header["format"] <= newest:
        version = (
            f"format {one_line(header['format'])}; this is slabnet {__version__}, which reads formats up to {newest}"
        )
        raise FileError(f"{where}: {path} must be of a format this version reads, got {version}")
    checksum = header.pop("checksum", None)
    if checksum != _checksum(_safe_text(header, path, where), tensors):
        raise FileError(f"{where}: {path} must match its checksum, got a damaged file")
    return header, tensors


def _too_much(text: str, shapes: dict[str, tuple[int, ...]]) -> str:
    """What of a file is more than any of ours needs, in words; found before anything is made of it."""
    dimensions = max(map(len, shapes.values()), default=0)
    counts = [
        (len(text), LONGEST_HEADER, "characters of header"),
        (text.count("[") + text.count("{"), MOST_LISTS, "lists and tables in its header"),
        (text.count('":'), MOST_NAMES, "names in its header"),
        (len(shapes), MOST_TENSORS, "tensors"),
        (dimensions, MOST_DIMENSIONS, "dimensions in a tensor"),
    ]
    return next((f"at most {most} {what}, got {count} or more" for count, most, what in counts if count > most), "")


def _whole(text: str) -> int:
    if len(text) > MOST_DIGITS:
        raise ValueError(f"a whole number of {len(text)} digits")
    return int(text)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _safe_text(header: dict[str, Any], path: str | Path, where: str) -> str:
    try:
        return as_text(header)
    except (ValueError, RecursionError):  # NaN, which JSON's own reader takes
        raise FileError(f"{where}: {path} must have a plain header, got numbers that are none") from None


def _checksum(text: str, tensors: dict[str, Tensor]) -> str:
    """SHA-256 over the header and over names, types, shapes and bytes of the tensors."""
    digest = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        value = tensors[name]
        digest.update(f"{name} {value.dtype} {tuple(value.shape)}\n".encode())
        digest.update(value.contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()
