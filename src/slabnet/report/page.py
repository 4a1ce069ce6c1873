"""Sections to one HTML page: nothing is fetched, every text is escaped, only the page's own script may run."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from slabnet.config.activations import ACTIVATIONS
from slabnet.core.errors import SlabnetError
from slabnet.core.files import check_writable, write_atomically

LARGEST = 3_000_000  # bytes
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")  # in names of the user's; our own lines end in \n
PLACE = "/* the table of activations */"  # in network.js
SCRIPTS = ("responses.js", "network.js", "report.js")


def render_page(title: str, lead: str, sections: Sequence[Any], data: dict[str, Any]) -> bytes:
    """The page as UTF-8."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    style, script = _part("report.css"), page_script()
    policy = (
        f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    page = environment.from_string(_part("page.html.j2")).render(
        title=title,
        lead=lead,
        sections=sections,
        policy=policy,
        style=Markup(style),  # our own files, not the user's text
        script=Markup(script),
        data=as_json(data),
    )
    return _CONTROL.sub("\ufffd", page).encode("utf-8", errors="replace")


def page_script() -> str:
    """The page's own script, with the table of activations written into it."""
    rows = [row for row in ACTIVATIONS.values() if row.javascript is not None]
    table = "".join(f"\n    {json.dumps(row.name)}: ({row.arguments('x')}) => ({row.javascript})," for row in rows)
    return "\n".join(_part(name) for name in SCRIPTS).replace(PLACE, f"{table}\n  ")


def write_page(path: str | Path, page: bytes, where: str = "report") -> Path:
    """Write a page whole or not at all; one that is too large to be mailed around is refused."""
    path = check_writable(where, path)
    if len(page) > LARGEST:
        raise SlabnetError(f"{where}: a page must have at most {LARGEST} bytes, got {len(page)}; try --no-rows")
    write_atomically(path, page)
    return path


def as_json(data: dict[str, Any]) -> Markup:
    """JSON that cannot end the element it stands in."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for sign, code in (
        ("<", "\\u003c"),
        (">", "\\u003e"),
        ("&", "\\u0026"),
        ("\u2028", "\\u2028"),
        ("\u2029", "\\u2029"),
    ):
        text = text.replace(sign, code)
    return Markup(text)


def _part(name: str) -> str:
    return resources.files("slabnet.report").joinpath("templates", name).read_text("utf-8").strip()


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
