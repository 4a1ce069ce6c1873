"""One table of text in four formats: plain text, Markdown, LaTeX, CSV."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass

from slabnet.core.errors import check_choice
from slabnet.core.files import safe_text

# in words where a spreadsheet would take a sign for a formula
_MARKS = {"+": "better", "-": "worse", "=": "same"}
_MARKS |= {f"{sign}*": f"{word}, in range" for sign, word in _MARKS.items()}
FORMATS = ("text", "markdown", "latex", "csv")
_LATEX = {"&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{", "}": r"\}"}
_LATEX |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}


@dataclass(frozen=True)
class Table:
    """A title, names of columns, and lines of text.

    >>> print(Table("t", ["a", "b"], [["1", "2"]]).render("csv"))
    a,b
    1,2
    """

    title: str
    header: list[str]
    lines: list[list[str]]

    def render(self, form: str = "text") -> str:
        """The table as text in one of the formats."""
        check_choice("table", "format", form, FORMATS)
        return {"text": self._text, "markdown": self._markdown, "latex": self._latex, "csv": self._csv}[form]()

    def titled(self, form: str) -> str:
        """The table under its title, as several tables in one text need it."""
        before = {
            "text": "",
            "markdown": f"### {self.title}\n\n",
            "latex": f"% {self.title}\n",
            "csv": f"# {self.title}\n",
        }
        return before[form] + self.render(form)

    def to_dicts(self) -> list[dict[str, str]]:
        """Each line with the names of its columns."""
        return [dict(zip(self.header, line, strict=True)) for line in self.lines]

    def _text(self) -> str:
        widths = [max(len(line[i]) for line in [self.header, *self.lines]) for i in range(len(self.header))]
        lines = [
            self.title,
            *(
                "  ".join(c.ljust(w) for c, w in zip(line, widths, strict=True)).rstrip()
                for line in [self.header, ["-" * w for w in widths], *self.lines]
            ),
        ]
        return "\n".join(lines)

    def _markdown(self) -> str:
        def line(cells: list[str]) -> str:
            return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

        return "\n".join([line(self.header), line(["---"] * len(self.header)), *map(line, self.lines)])

    def _latex(self) -> str:
        def line(cells: list[str]) -> str:
            return " & ".join("".join(_LATEX.get(c, c) for c in cell) for cell in cells) + r" \\"

        columns = "l" * len(self.header)
        body = [line(self.header), r"\midrule", *map(line, self.lines)]
        return "\n".join([rf"\begin{{tabular}}{{{columns}}}", r"\toprule", *body, r"\bottomrule", r"\end{tabular}"])

    def _csv(self) -> str:
        buffer = io.StringIO()
        lines = [[safe_text(_MARKS.get(cell, cell)) for cell in line] for line in [self.header, *self.lines]]
        csv.writer(buffer, lineterminator="\n").writerows(lines)
        return buffer.getvalue().rstrip("\n")
