"""Formulas as outlines (SVG), made when the site is built: they look the same everywhere, and nothing is fetched."""

from html import escape
from typing import Any
from xml.etree import ElementTree

import ziafont
import ziamath
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

SIZE = 20.0  # of the outlines; the page scales them with the text around
TALLEST = 12.0  # lines; brackets that grow with what is inside sometimes do not stop
ziafont.config.svg2 = False  # outlines in place: ids of shared ones would meet between the formulas of a page


def picture(latex: str, inline: bool) -> str:
    """One formula in the colour and size of the text, standing on its line."""
    made = ziamath.Latex(latex, size=SIZE, color="currentColor", inline=inline)
    drawn = made.svgxml()
    sizes = {name: float(drawn.get(name, "0")) / SIZE for name in ("width", "height")}
    if sizes["height"] > TALLEST:
        raise ExtensionError(f"a formula is {sizes['height']:.0f} lines tall, take fixed brackets in it: {latex}")
    for name in sizes:
        drawn.attrib.pop(name)
    below = made.getyofst() / SIZE
    drawn.set("style", f"width:{sizes['width']:.3f}em;height:{sizes['height']:.3f}em;vertical-align:{below:.3f}em")
    spoken = escape(" ".join(latex.split()), quote=True)  # for those who cannot see it
    outline = ElementTree.tostring(drawn, encoding="unicode")
    return f'<span class="formula" role="img" aria-label="{spoken}">{outline}</span>'


def inline(writer: Any, node: nodes.math) -> None:
    writer.body.append(picture(node.astext(), inline=True))
    raise nodes.SkipNode


def display(writer: Any, node: nodes.math_block) -> None:
    writer.body.append(f'<div class="formula-block">{picture(node.astext(), inline=False)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("outlines", inline_renderers=(inline, None), block_renderers=(display, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
