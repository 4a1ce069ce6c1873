"""Keys that records of earlier formats used, and what they are called now: the one place where old words are read."""

from __future__ import annotations

from typing import Any

NOW = {
    "foreign": "ood",
    "home": "in_distribution",
    "abroad": "out_of_distribution",
    "accuracy_home": "accuracy_in_distribution",
}


def with_present_names(part: Any) -> Any:
    """The same JSON with every old key under its present name.

    >>> with_present_names({"foreign": {"as fitted": {"home": [0.1]}}})
    {'ood': {'as fitted': {'in_distribution': [0.1]}}}
    """
    if isinstance(part, dict):
        return {NOW.get(key, key): with_present_names(value) for key, value in part.items()}
    return [with_present_names(value) for value in part] if isinstance(part, list) else part
