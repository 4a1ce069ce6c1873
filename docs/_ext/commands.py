"""`{commands}`: the command line as its own help tells it, so that this page cannot differ from the program."""

from typing import Any

import typer
from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from slabnet.cli.app import app as program


def one_row(parameter: Any, context: Any) -> tuple[str, str, str]:
    """How an argument or option is written, what it is for, and its default."""
    written, _ = parameter.get_help_record(context)
    default = parameter.get_default(context)
    absent = default is None or default is False or str(default) == ""
    when_absent = "needed" if parameter.required else "" if absent else str(default)
    return f"`{written}`", parameter.help or "", when_absent


def page() -> list[str]:
    """Markdown of every command: what it does, how it is called, what it takes, an example."""
    top = typer.main.get_command(program)
    outer = typer.Context(top, info_name="slabnet")
    lines: list[str] = []
    for name, command in top.commands.items():
        context = typer.Context(command, info_name=name, parent=outer)
        usage = " ".join(command.collect_usage_pieces(context))
        lines += [f"## slabnet {name}", "", command.help or "", "", "```text", f"slabnet {name} {usage}", "```", ""]
        lines += ["| what | for | default |", "|---|---|---|"]
        rows = [one_row(p, context) for p in command.params if not getattr(p, "hidden", False)]
        lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
        lines += ["", *(f"{command.epilog}".replace("Example: ", "Example: `").splitlines())]
        lines[-1] += "`" if command.epilog else ""
        lines.append("")
    return lines


class Commands(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        source = self.env.docname
        holder = nodes.section()
        self.state.nested_parse(StringList(page(), source), self.content_offset, holder, match_titles=True)
        return holder.children


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
