"""Docstrings are written to be read in a terminal; here they become what Sphinx reads.

`name: what it is` at the start of a line becomes an item of a list, `code` in backticks becomes code, a doctest stays
as it is, and everything else is plain text, whatever stars and bars its formulas have.
"""

import dataclasses
import inspect
import re
from typing import Any

from sphinx.application import Sphinx

from slabnet.core.errors import Settings
from slabnet.model.drawing import Draw

ITEM = re.compile(r"^([a-z_]\w*(?:, [a-z_]\w*)*): (.*)$")
MARKUP = re.compile(r"(`[^`]+`)")


def plain(text: str) -> str:
    """A line with its code as code and nothing else as markup."""
    parts = MARKUP.split(text)
    return "".join(f"`{p}`" if p.startswith("`") and len(p) > 2 else re.sub(r"([\\*|_])", r"\\\1", p) for p in parts)


def paragraph(lines: list[str]) -> list[str]:
    """One paragraph of a docstring as reStructuredText."""
    if lines[0].lstrip().startswith(">>>"):
        return [*lines, ""]
    if all(line.startswith("    ") for line in lines):
        return ["::", "", *lines, ""]
    made: list[str] = []
    items = ITEM.match(lines[0]) is not None
    for line in lines:
        item = ITEM.match(line)
        if item and (items or line is lines[0]):
            made.append(f"- **{plain(item[1])}**: {plain(item[2])}")
        else:
            made.append(("  " if items else "") + plain(line.strip()))
    return [*made, ""]


def rewrite(app: Sphinx, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    made: list[str] = []
    block: list[str] = []
    for line in [*lines, ""]:
        if line.strip():
            block.append(line.rstrip())
        elif block:
            made += paragraph(block)
            block = []
    lines[:] = made


def short(app: Sphinx, what: str, name: str, thing: Any, options: Any, given: str, returned: str) -> Any:
    """Records and settings show names and defaults; what each may be is told below, in words."""
    if what != "class" or not (dataclasses.is_dataclass(thing) or issubclass(thing, Settings)):
        return given, returned
    if issubclass(thing, Settings):
        fields = [(key, field.get_default(call_default_factory=True)) for key, field in thing.model_fields.items()]
    else:
        fields = [(p.name, p.default) for p in inspect.signature(thing).parameters.values()]
    written = [key if default is inspect.Parameter.empty else f"{key}={shown(default)}" for key, default in fields]
    return f"({', '.join(written)})", None


def shown(default: Any) -> str:
    """A default as one would type it."""
    if isinstance(default, Settings):
        return f"{type(default).__name__}()"
    if isinstance(default, Draw):
        return default.name
    return "{}" if "factory" in repr(default) else repr(default)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", rewrite)
    app.connect("autodoc-process-signature", short)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
