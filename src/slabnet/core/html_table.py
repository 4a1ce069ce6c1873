"""Records as small tables for notebooks; every text is escaped."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

MOST_ROWS = 10


def html_table(caption: str, header: Sequence[str], rows: Iterable[Sequence[object]], whole: int | None = None) -> str:
    """A table of at most MOST_ROWS rows; whole: how many there are, where `rows` has only some.

    >>> html_table("a < b", ["n"], [[1]])
    '<table><caption>a &lt; b</caption><tr><th>n</th></tr><tr><td>1</td></tr></table>'
    """
    lines = [list(row) for row in rows]
    count = len(lines) if whole is None else whole
    head = "".join(f"<th>{html.escape(name)}</th>" for name in header)
    body = "".join(
        f"<tr>{''.join(f'<td>{html.escape(str(cell))}</td>' for cell in row)}</tr>" for row in lines[:MOST_ROWS]
    )
    rest = count - min(len(lines), MOST_ROWS)
    more = f"<p>and {rest} rows more</p>" if rest > 0 else ""
    return f"<table><caption>{html.escape(caption)}</caption><tr>{head}</tr>{body}</table>{more}"


def some(count: int) -> list[int]:
    """At most MOST_ROWS places of `count`, evenly, the first and the last among them.

    >>> some(3), some(100)[-1], len(some(100))
    ([0, 1, 2], 99, 10)
    """
    if count <= MOST_ROWS:
        return list(range(count))
    return sorted({round(i * (count - 1) / (MOST_ROWS - 1)) for i in range(MOST_ROWS)})
