"""Help of a command in two sizes: `--help` shows the options most people use on one screen, `--help-all` every one."""

from __future__ import annotations

from typing import Any

from typer.core import TyperCommand

MORE = "More options"  # typer.Option(rich_help_panel=MORE): shown by --help-all only
_ALL = "slabnet.help-all"


class ShortHelp(TyperCommand):
    """A command of which `--help` leaves out the options under MORE, and `--help-all` nothing.

    Examples:
        >>> import typer
        >>> app = typer.Typer()
        >>> @app.command(cls=ShortHelp)
        ... def fit(data: str, width: int = typer.Option(9, rich_help_panel=MORE)) -> None: ...
        >>> command = typer.main.get_command(app)
        >>> isinstance(command, ShortHelp)
        True
    """

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Answer --help-all, wherever it stands; all else is parsed as ever."""
        before = args[: args.index("--")] if "--" in args else args
        if "--help-all" in before:
            ctx.meta[_ALL] = True
            print(self.get_help(ctx))
            ctx.exit()
        return super().parse_args(ctx, args)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options; without those under MORE, and with the way to them, unless all were asked for."""
        parameters: list[Any] = [] if ctx.meta.get(_ALL) else list(self.params)
        rest = [one for one in parameters if one.rich_help_panel == MORE and not one.hidden]
        for parameter in rest:
            parameter.hidden = True
        try:
            super().format_options(ctx, formatter)
        finally:
            for parameter in rest:
                parameter.hidden = False
        if rest:
            formatter.write(f"\n  --help-all shows {len(rest)} more options.\n")
