"""What a page is made of, before it is HTML. Imports no torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from markupsafe import Markup

from slabnet.report.charts import Figure


@dataclass(frozen=True)
class Case:
    """One row of data: what it is (an image, or values), what the draws say of it, and the same in words."""

    caption: str
    picture: Markup
    image: Markup | None = None
    values: tuple[tuple[str, str], ...] = ()
    more: int = 0


@dataclass(frozen=True)
class Section:
    """A heading, sentences, figures, and what the template adds for its `kind`."""

    key: str
    title: str
    text: Sequence[str] = ()
    figures: Sequence[Figure] = ()
    kind: str = ""
    cases: Sequence[tuple[str, Sequence[Case]]] = ()
    facts: Sequence[tuple[str, str]] = ()
    code: Sequence[tuple[str, str]] = ()
    more: dict[str, Any] = field(default_factory=dict)
