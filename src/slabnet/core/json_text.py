"""What a command prints for programs: JSON that every reader takes, so that no NaN and no infinity is in it."""

from __future__ import annotations

import json
import math
from typing import Any


def json_text(value: Any) -> str:
    """`value` as JSON; a number that is none, such as the accuracy over no rows, is null.

    >>> json_text({"nll": float("inf"), "rows": [1, float("nan")]})
    '{"nll": null, "rows": [1, null]}'
    """
    return json.dumps(_plain(value), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {name: _plain(part) for name, part in value.items()}
    return [_plain(part) for part in value] if isinstance(value, (list, tuple)) else value
