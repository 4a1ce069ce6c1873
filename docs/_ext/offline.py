"""The site must work without a network: a page that would load anything from elsewhere fails the build."""

import re
from pathlib import Path

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

LOADS = re.compile(
    r"""<(?:script|img|iframe|source|video|audio)\b[^>]*\ssrc=["']?(?:https?:)?//[^"'\s>]+"""
    r"""|<link\b[^>]*\srel=["']?(?:stylesheet|preload|preconnect|icon)[^>]*\shref=["']?(?:https?:)?//[^"'\s>]+"""
    r"""|url\(["']?(?:https?:)?//[^)]+\)|@import\s+["'](?:https?:)?//[^"']+"""
)


def look(app: Sphinx, failed: Exception | None) -> None:
    if failed is not None or app.builder.format != "html":
        return
    for path in sorted(Path(app.outdir).rglob("*")):
        if path.suffix in (".html", ".css"):
            loads = LOADS.search(path.read_text("utf-8"))
            if loads:
                raise ExtensionError(f"{path.relative_to(app.outdir)} would load from elsewhere: {loads[0][:200]}")


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", look)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
