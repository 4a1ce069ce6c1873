"""Numbers as a person writes them, for pages and summaries."""

from __future__ import annotations

import math

ROUNDING = 1e-12  # smaller numbers are what rounding left of a zero
LARGEST, SMALLEST = 1e15, 1e-6  # beyond these only an exponent can be read


def written(value: float, digits: int = 4, mark: str = "") -> str:
    """A number with so many digits that matter, without an exponent where it can be read without.

    mark: what sets thousands apart.

    >>> written(22463.2), written(22463.2, mark=" "), written(-7.105e-15), written(0.00003), written(1.23456)
    ('22463', '22 463', '0', '0.00003', '1.235')
    """
    if abs(value) < ROUNDING:
        return "0"
    if not math.isfinite(value) or not SMALLEST <= abs(value) < LARGEST:
        return f"{value:.{digits}g}"
    decimals = max(0, digits - 1 - math.floor(math.log10(abs(value))))
    text = f"{value:,.{decimals}f}"
    text = text.rstrip("0").rstrip(".") if decimals else text
    return text.replace(",", mark)


def told_apart(values: list[float], mark: str = "") -> list[str]:
    """Labels for the ticks of an axis: as short as they can be while no two are the same.

    >>> told_apart([1000.2, 1000.4]), told_apart([0.0, 0.5])
    (['1000.2', '1000.4'], ['0', '0.5'])
    """
    texts: list[str] = []
    for digits in range(3, 17):
        texts = [written(value, digits, mark) for value in values]
        if len(set(texts)) == len(values):
            break
    return texts
