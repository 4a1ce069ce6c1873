"""Arrays of bytes as text in JSON."""

from __future__ import annotations

import base64
import zlib
from typing import Any

import numpy as np


def pack(values: np.ndarray[Any, Any]) -> str:
    """Bytes as text: compressed, base64."""
    return base64.b64encode(zlib.compress(np.ascontiguousarray(values).tobytes(), 9)).decode()


def unpack(text: str, kind: type[np.generic], shape: tuple[int, ...]) -> np.ndarray[Any, Any]:
    """What `pack` packed."""
    return np.frombuffer(zlib.decompress(base64.b64decode(text)), kind).reshape(shape)
