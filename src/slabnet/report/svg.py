"""Small charts as SVG text. Colours are CSS classes, so that the page's theme decides them. Imports no torch."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from markupsafe import Markup, escape

from slabnet.core.figures import told_apart, written

WIDTH, HEIGHT = 400, 260
LEFT, RIGHT, TOP, BOTTOM = 52, 12, 12, 40
THIN = " "  # a narrow space between thousands
SERIES = 8  # colours the style sheet has


@dataclass
class Axis:
    """One direction of a chart: from data to pixels, on a plain or a logarithmic scale."""

    low: float
    high: float
    label: str
    log: bool = False
    ticks: Sequence[tuple[float, str]] | None = None

    def __post_init__(self) -> None:
        if self.log:
            self.low, self.high = max(self.low, 1e-12), max(self.high, 1e-11)
        if not self.high > self.low:
            self.low, self.high = (self.low / 2, self.low * 2) if self.log else (self.low - 0.5, self.low + 0.5)

    def place(self, value: float) -> float:
        """Where a value lies between 0 and 1."""
        if self.log:
            value, low, high = math.log(max(value, self.low)), math.log(self.low), math.log(self.high)
            return (value - low) / (high - low)
        return (value - self.low) / (self.high - self.low)

    def marks(self) -> list[tuple[float, str]]:
        """Ticks with their labels."""
        if self.ticks is not None:
            return [(value, text) for value, text in self.ticks if self.low <= value <= self.high]
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            if last > first + 1:
                step = max(1, (last - first) // 4)
                return [(10.0**e, _power(e)) for e in range(first, last + 1, step)]
            lead = math.floor(math.log10(self.low))
            values = [k * 10.0**e for e in range(lead, lead + 4) for k in (1, 2, 5)]
            values = [value for value in values if self.low <= value <= self.high] or [self.low, self.high]
        else:
            values = nice_steps(self.low, self.high)
        return list(zip(values, told_apart(values, THIN), strict=True))


@dataclass
class Chart:
    """Axes, and what is drawn between them."""

    x: Axis
    y: Axis
    width: int = WIDTH
    height: int = HEIGHT
    parts: list[str] = field(default_factory=list)

    def px(self, value: float) -> float:
        return LEFT + self.x.place(value) * (self.width - LEFT - RIGHT)

    def py(self, value: float) -> float:
        return self.height - BOTTOM - self.y.place(value) * (self.height - TOP - BOTTOM)

    def line(self, xs: Sequence[float], ys: Sequence[float], colour: int, kind: str = "") -> None:
        """A line; colour is a number of the page's series."""
        if len(xs) == 1:
            self.point(xs[0], ys[0], colour, "")
            return
        points = " ".join(f"{self.px(a):.1f},{self.py(b):.1f}" for a, b in zip(xs, ys, strict=True))
        self.parts.append(f'<polyline class="line s{colour % SERIES} {kind}" points="{points}"/>')

    def point(self, x: float, y: float, colour: int, title: str, kind: str = "dot") -> None:
        """A "dot", "square" or "diamond" (with "ring": an empty one), with a title that a pointer shows."""
        a, b = self.px(x), self.py(y)
        mark = f'class="{kind} s{colour % SERIES}"'
        tip = f"<title>{escape(title)}</title>" if title else ""
        if "square" in kind or "diamond" in kind:
            turn = f' transform="rotate(45 {a:.1f} {b:.1f})"' if "diamond" in kind else ""
            self.parts.append(f'<rect {mark}{turn} x="{a - 4:.1f}" y="{b - 4:.1f}" width="8" height="8">{tip}</rect>')
        else:
            self.parts.append(f'<circle {mark} cx="{a:.1f}" cy="{b:.1f}" r="4.5">{tip}</circle>')

    def bar(self, left: float, right: float, value: float, colour: int, title: str = "") -> None:
        """A bar from the bottom of the chart."""
        a, b, top, low = self.px(left), self.px(right), self.py(value), self.height - BOTTOM
        if low - top < 0.05:
            return
        self.parts.append(
            f'<rect class="bar s{colour % SERIES}" x="{a + 0.5:.1f}" y="{top:.1f}" width="{max(b - a - 1, 0.5):.1f}" '
            f'height="{low - top:.1f}"><title>{escape(title)}</title></rect>'
        )

    def rule(self, *, x: float | None = None, y: float | None = None, kind: str = "rule", name: str = "") -> None:
        """A line across the chart at a value of x or of y."""
        a, c = (LEFT, self.width - RIGHT) if x is None else (self.px(x), self.px(x))
        b, d = (TOP, self.height - BOTTOM) if y is None else (self.py(y), self.py(y))
        named = f' id="{name}"' if name else ""
        self.parts.append(f'<line class="{kind}"{named} x1="{a:.1f}" y1="{b:.1f}" x2="{c:.1f}" y2="{d:.1f}"/>')

    def diagonal(self) -> None:
        """A dashed line from corner to corner: what a calibrated prediction would give."""
        ends = (self.px(self.x.low), self.py(self.y.low), self.px(self.x.high), self.py(self.y.high))
        a, b, c, d = (f"{end:.1f}" for end in ends)
        self.parts.append(f'<line class="rule dashed" x1="{a}" y1="{b}" x2="{c}" y2="{d}"/>')

    def render(self, label: str) -> Markup:
        """The chart, with `label` for those who do not see it."""
        low, right = self.height - BOTTOM, self.width - RIGHT
        grid = []
        for value, text in self.y.marks():
            at = self.py(value)
            grid.append(f'<line class="grid" x1="{LEFT}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}"/>')
            grid.append(f'<text class="tick" x="{LEFT - 6}" y="{at + 4:.1f}" text-anchor="end">{escape(text)}</text>')
        for value, text in self.x.marks():
            at = self.px(value)
            grid.append(f'<line class="grid" x1="{at:.1f}" y1="{TOP}" x2="{at:.1f}" y2="{low}"/>')
            grid.append(f'<text class="tick" x="{at:.1f}" y="{low + 15}" text-anchor="middle">{escape(text)}</text>')
        middle = (TOP + low) / 2
        grid.append(
            f'<text class="axis" x="{(LEFT + right) / 2:.1f}" y="{self.height - 6}" text-anchor="middle">'
            f"{escape(self.x.label)}</text>"
            f'<text class="axis" transform="translate(10 {middle:.1f}) rotate(-90)" text-anchor="middle">'
            f"{escape(self.y.label)}</text>"
        )
        return svg(self.width, self.height, label, "".join(grid + self.parts))


def svg(width: float, height: float, label: str, inside: str, kind: str = "chart") -> Markup:
    """The frame of a picture. `inside` is SVG that was made here, its texts escaped."""
    head = f'<svg class="{kind}" viewBox="0 0 {width:g} {height:g}" role="img" aria-label="{escape(label)}">'
    return Markup(head + inside + "</svg>")


def nice_steps(low: float, high: float, about: int = 5) -> list[float]:
    """Round numbers from low to high, about so many.

    >>> nice_steps(0, 1)
    [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    """
    raw = (high - low) / about
    unit = 10.0 ** math.floor(math.log10(raw))
    step = next((unit * k for k in (1, 2, 2.5, 5, 10) if unit * k >= raw * 0.999), unit * 10)
    first = math.ceil(low / step - 1e-9)
    return [round(i * step, 12) for i in range(first, math.floor(high / step + 1e-9) + 1)]


def short(value: float) -> str:
    """A number as short as it can be read: 0.25, 1 200, 0.00003.

    >>> short(0.25), short(12000), short(0.00003)
    ('0.25', '12 000', '0.00003')
    """
    return written(value, 3, THIN)


def number(value: float | None, digits: int = 4) -> str:
    """A number for a table, a dash where there is none."""
    return "–" if value is None or not math.isfinite(value) else written(value, digits, THIN)


def percent(value: float | None, digits: int = 1) -> str:
    """A share as per cent.

    >>> percent(0.5), percent(0.00004)
    ('50.0%', '0.004%')
    """
    if value is None:
        return "–"
    size = abs(100 * value)
    return f"{100 * value:.{digits}f}%" if size == 0 or size >= 0.1 else f"{100 * value:.2g}%"


def _power(exponent: int) -> str:
    return f"{10.0**exponent:g}" if -3 <= exponent <= 3 else f"1e{exponent}"
