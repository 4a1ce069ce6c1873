"""Numbers as a person writes them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slabnet.core.figures import told_apart, written
from slabnet.report.svg import Axis, number


@pytest.mark.parametrize(
    ("value", "text"),
    [(22463.2, "22463"), (-7.105e-15, "0"), (0.5, "0.5"), (1.23456, "1.235"), (-1234.56, "-1235"), (3e-8, "3e-08")],
)
def test_numbers_by_hand(value: float, text: str) -> None:
    assert written(value) == text


@given(st.floats(min_value=-1e14, max_value=1e14))
def test_no_exponent_where_none_is_needed_and_no_digit_that_matters_lost(value: float) -> None:
    text = written(value)
    assert float(text) == pytest.approx(value, rel=5.1e-4, abs=1e-12)
    assert "e" not in text or abs(value) < 1e-6


def test_ticks_are_told_apart() -> None:
    for low, high in ((1000.1, 1000.9), (0.12341, 0.12349), (-7.1e-15, 2.0), (22_000, 22_003), (0.9990, 0.9999)):
        texts = [text for _, text in Axis(low, high, "").marks()]
        assert len(set(texts)) == len(texts) > 1
        assert not any("e-" in text for text in texts)
    assert told_apart([1.0, 2.0]) == ["1", "2"]
    assert number(2.246e4) == "22\u0020460"
