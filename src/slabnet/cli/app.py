"""The command line. Answers `--help` and argument errors without loading torch; errors are one line."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from slabnet.cli.check_up import commands as doctor_commands
from slabnet.config.methods import METHODS
from slabnet.config.resolve import resolve
from slabnet.config.settings import DATA_SETS, TABLE_FILES, Recipe
from slabnet.core.errors import SlabnetError, Stopped, check_choice, one_line, printable, refuse
from slabnet.core.files import check_writable, checkpoints_of, is_there, remove_leftovers
from slabnet.core.json_text import json_text
from slabnet.core.locks import holding
from slabnet.core.signals import halting, number_of
from slabnet.core.version import __version__
from slabnet.experiments.commands import Json, commands, parse_widths
from slabnet.report.commands import ReportFile, check_report, write_model_report, write_runs_report
from slabnet.report.commands import commands as report_commands

app = typer.Typer(
    name="slabnet",
    help="Bayesian neural networks that are uncertain about their own structure as well as their weights.\n\n"
    "Start with: slabnet demo",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

app.add_typer(commands)
app.add_typer(report_commands)
app.add_typer(doctor_commands)

USAGE_ERROR: Any = typer.BadParameter.__mro__[1]  # typer carries its own copy of click
PATIENCE = 3.0  # seconds
Seed = Annotated[int, typer.Option(min=0, help="Seed: the same one gives the same result.")]


RESPONSE_HELP = (
    "Distribution of the target: auto, gaussian, heteroscedastic, student-t, lognormal, gamma, poisson, "
    "negative-binomial, weibull or ordinal."
)
DATA_HELP = f"A table ({', '.join(TABLE_FILES)}), or a data set by name: {', '.join(DATA_SETS)}."


@app.callback(invoke_without_command=True)
def main(
    context: typer.Context, version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False
) -> None:
    context.obj = write_runs_report  # what `reproduce` makes its page with
    if version:
        print(f"slabnet {__version__}")
    elif context.invoked_subcommand is None:
        print(context.get_help())


@app.command(
    help="Fit, select and post-train on scikit-learn's digits; a table, a model, a picture and a page in a minute.",
    epilog="Example: slabnet demo --out demo-out",
)
def demo(
    out: Annotated[Path, typer.Option(help="Folder for the model, the numbers, picture and page.")] = Path("demo-out"),
    seed: Seed = 0,
    json: Json = False,
) -> None:
    if out.exists() and not out.is_dir():
        refuse("demo", "--out", "a folder", str(out))
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        refuse("demo", "--out", "a folder that can be made", f"{out} ({error.strerror})")
    check_writable("demo", out / "digits.slab")
    from slabnet.cli.demo import run_demo, write_demo

    result = run_demo(seed, show="lines")
    paths = write_demo(result, out)
    if json:
        print(json_text(result.to_dict()))
        return
    trained, tested = len(result.split.train[1]), len(result.split.test[1])
    from slabnet.prediction.ways import print_rows

    print_rows(f"digits: {trained} training and {tested} test images of 8 x 8 pixels", result.rows)
    total, chosen = result.chosen.total, result.chosen
    reached = "every output can be reached" if not chosen.unreachable else f"outputs cut off: {chosen.unreachable}"
    print(f"\nThe median model keeps {chosen.weights} of {total.weights} weights ({chosen.density:.2%}); {reached}.")
    print(printable(f"Done in {result.seconds:.0f} s. Written: {', '.join(str(path) for path in paths)}"))


@app.command(
    help="Fit a network to a table of yours (CSV, Parquet) or to a data set by name, and write it to a .slab file.",
    epilog="Example: slabnet fit houses.csv --target price --out houses.slab",
)
def fit(
    data: Annotated[str, typer.Argument(help=DATA_HELP)],
    out: Annotated[Path, typer.Option(help="Where to write the model.")],
    target: Annotated[str | None, typer.Option(help="Column to predict, for a table.")] = None,
    task: Annotated[str | None, typer.Option(help="classification or regression; guessed from the target.")] = None,
    test_size: Annotated[float | None, typer.Option(help="Share of a table's rows to test on; 0.2.")] = None,
    drop: Annotated[str | None, typer.Option(help="Columns to leave out, as in id,comment.")] = None,
    categorical: Annotated[str | None, typer.Option(help="Columns of numbers that are labels, as in zip.")] = None,
    group: Annotated[str | None, typer.Option(help="Column of groups: no group is fitted and tested on.")] = None,
    time: Annotated[str | None, typer.Option(help="Column of times: the latest rows are tested on.")] = None,
    response: Annotated[str | None, typer.Option(help=RESPONSE_HELP)] = None,
    exposure: Annotated[str | None, typer.Option(help="Column over which counts were taken (time, area).")] = None,
    event: Annotated[str | None, typer.Option(help="Column with 1 for a time that was seen, 0 if cut off.")] = None,
    levels: Annotated[str | None, typer.Option(help="Ordered classes, as in low,middle,high.")] = None,
    method: Annotated[str | None, typer.Option(help=f"One of {', '.join(METHODS)}.")] = None,
    epochs: Annotated[int | None, typer.Option(help="Passes over the data; chosen from its size if left out.")] = None,
    hidden: Annotated[str | None, typer.Option(help="Widths of the hidden layers, as in 400,600.")] = None,
    members: Annotated[int | None, typer.Option(min=1, max=100, help="Posteriors to fit and average; 1.")] = None,
    skip: Annotated[bool | None, typer.Option("--skip/--no-skip", help="Every layer reads the inputs again.")] = None,
    gates: Annotated[bool | None, typer.Option("--gates/--no-gates", help="One indicator for each column.")] = None,
    recipe: Annotated[str, typer.Option(help=f"Settings by name: {', '.join(Recipe.names())}.")] = "default",
    config: Annotated[Path | None, typer.Option(help="Settings from a TOML file instead.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed: the same one gives the same model.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a fit that was stopped.")] = False,
    checkpoint_every: Annotated[float, typer.Option(help="Minutes between checkpoints, besides epochs.")] = 5.0,
    workers: Annotated[int, typer.Option(help="Processes that train together on this machine.")] = 1,
    report: ReportFile = None,
    json: Json = False,
) -> None:
    only = {"--target": target, "--task": task, "--test-size": test_size, "--drop": drop, "--categorical": categorical}
    only |= {"--group": group, "--time": time}
    only |= {"--response": response, "--exposure": exposure, "--event": event, "--levels": levels}
    is_table = _check_data("fit", data, "--target", target)
    network = {"method": method, "hidden": parse_widths("fit", hidden), "members": members}
    settings = resolve(recipe, config, network | {"skip": skip, "gates": gates}, {"epochs": epochs, "seed": seed})
    _check_fit(data, {} if is_table else only, task, workers, checkpoint_every, (out, report))
    with _stoppable(out):
        from slabnet.distributed.group import join, launch, leave, restarted

        if workers > 1 and "RANK" not in os.environ:
            launch(workers, sys.argv[1:])
            return
        join()
        checkpoints = (out, resume or restarted(), checkpoint_every)
        try:
            with holding(checkpoints_of(out), "fit") if _speaks() else nullcontext():
                remove_leftovers(out)
                if is_table:
                    asked = (response, exposure, event, _names(levels))
                    job = (str(target), settings, task, test_size, _names(drop), _names(categorical))
                    _fit_table(data, checkpoints, json, (*job, group, time, asked))
                else:
                    _fit_named(data, checkpoints, json, settings)
        finally:
            leave()
        write_model_report(out, report, data if is_table else None)
    if not json:
        table = f" --data {data}" if is_table else ""
        shown = printable(f"in: {report}" if report else f"with: slabnet report {out}{table} --out report.html")
        print(f"Look at it {shown}")


def _check_fit(
    data: str, left_out: dict[str, Any], task: str | None, workers: int, every: float, written: tuple[Path, Path | None]
) -> None:
    """Refuse what a fit cannot be given; left_out: options that must not be there; written: the model and its page."""
    for name, value in left_out.items():
        if value is not None:
            refuse("fit", name, f"left out for the data set {data}", value)
    if task is not None:
        check_choice("fit", "--task", task, ("classification", "regression"))
    check_writable("fit", written[0])
    check_report("fit", written[1])
    if workers < 1:
        refuse("fit", "--workers", "a whole number of at least 1", workers)
    if not every > 0:
        refuse("fit", "--checkpoint-every", "minutes, more than 0", every)


@contextmanager
def _stoppable(out: Path) -> Iterator[None]:
    """Make one line of Ctrl-C and SIGTERM at any moment of a fit, which says whether there is something to resume."""
    try:
        with halting():
            yield
    except KeyboardInterrupt as stopped:  # typer would make a bare exit of it
        for other in (signal.SIGINT, signal.SIGTERM):
            signal.signal(other, signal.SIG_IGN)  # what is to be said is said, and the code is that of the first one
        number = number_of(stopped)
        resumable = any(checkpoints_of(out).rglob("checkpoint-*.slab"))
        then = "go on with the same command and --resume" if resumable else "there is nothing to resume"
        reason = str(stopped) or f"stopped by {signal.Signals(number).name}"
        raise Stopped(f"slabnet: {reason}; {then}" if _speaks() else "", number) from None


def _say_finished(out: Path, json: bool) -> None:
    if not _speaks():
        from slabnet.distributed.group import Followed

        raise Followed
    message = f"{printable(str(out))} is finished: there is nothing to resume."
    print(json_text({"finished": True, "model": str(out)}) if json else message)


def _fit_named(data: str, checkpoints: tuple[Path, bool, float], json: bool, settings: Recipe) -> None:
    from slabnet.cli.workflow import fit_named, is_finished
    from slabnet.prediction.ways import print_rows

    out, resume, every = checkpoints
    if resume and is_finished(out, data, settings):
        _say_finished(out, json)
        return
    fitted = fit_named(data, settings, out, resume, every)
    if json:
        print(json_text(fitted.to_dict()))
        return
    print_rows(f"{data}: {fitted.test_rows} test rows", fitted.rows)
    for line in fitted.notes:
        print(line)
    print(printable(f"Written: {out}. Predict with: slabnet predict {out} {data}"))


def _fit_table(data: str, checkpoints: tuple[Path, bool, float], json: bool, job: tuple[Any, ...]) -> None:
    from slabnet.cli.responses import ResponseColumns
    from slabnet.cli.tables import TableJob, fit_table, table_finished

    out, resume, every = checkpoints
    whole = replace(TableJob(Path(data), *job[:-1]), response=ResponseColumns(*job[-1]))
    whole = replace(whole, test_size=0.2) if whole.test_size is None else whole
    whole.response.check(whole.task)
    if resume and table_finished(out, whole):
        _say_finished(out, json)
        return
    fitted = fit_table(whole, out, resume, every)
    if json:
        print(json_text(fitted.numbers))
        return
    for line in fitted.lines:
        print(line)
    print(printable(f"Written: {out}. Predict with: slabnet predict {out} NEW.csv --out predictions.csv"))


@app.command(
    help="Predict the rows of a table, or the test rows of a data set by name, averaging over draws of the network.",
    epilog="Example: slabnet predict houses.slab new.csv --out predictions.csv",
)
def predict(
    model: Annotated[Path, typer.Argument(help="A .slab file.")],
    data: Annotated[str, typer.Argument(help=DATA_HELP)],
    out: Annotated[Path | None, typer.Option(help="Where to write the predictions as CSV.")] = None,
    draws: Annotated[int | None, typer.Option(help="Networks to draw and average; 10, or 100 for a table.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the draws; for a table, that of the fit.")] = None,
    json: Json = False,
) -> None:
    is_table = _check_data("predict", data)
    if draws is not None and draws < 1:
        refuse("predict", "--draws", "a whole number of at least 1", draws)
    if not is_there(model):
        refuse("predict", "MODEL", "a file that exists", str(model))
    if out is not None:
        check_writable("predict", out)
    if is_table:
        from slabnet.cli.table_predictions import lines_of, predict_table

        answers = predict_table(model, Path(data), out, draws, seed)
        print(json_text(answers) if json else "\n".join(lines_of(answers, out)))
        return
    from slabnet.cli.workflow import predict_named

    scores = predict_named(model, data, draws or 10, seed or 0, out)
    if json:
        print(json_text(scores))
        return
    decided = scores["classified_at_95"]
    way = f"averaged over {scores['draws']} draws of {scores['model']}"
    print(f"{data}: accuracy {scores['accuracy']:.4f} on {scores['rows']} test rows, {way}")
    if decided:
        print(f"Decided at 0.95: {decided} rows, of which {scores['accuracy_at_95']:.4f} right; the rest is in doubt.")
    else:
        print("Decided at 0.95: none; every row is in doubt.")
    if out is not None:
        print(printable(f"Written: {out}"))


@app.command(
    help="Show what is inside a model: densities and alpha per layer, paths, inputs in use, convergence.",
    epilog="Example: slabnet inspect digits.slab",
)
def inspect(
    model: Annotated[Path, typer.Argument(help="A .slab file of a network that slabnet can build.")],
    draws: Annotated[int, typer.Option(help="Draws for the density in use.")] = 10,
    json: Json = False,
) -> None:
    if not is_there(model):
        refuse("inspect", "MODEL", "a file that exists", str(model))
    if draws < 1:
        refuse("inspect", "--draws", "a whole number of at least 1", draws)
    from slabnet.cli.workflow import inspect_file
    from slabnet.prediction.inspection import as_text

    inspected = inspect_file(model, draws)
    print(json_text(inspected) if json else as_text(inspected))


@app.command(
    help="Write the chosen model of a .slab file, without what is not in it, to be run where slabnet is not installed.",
    epilog="Example: slabnet export digits.slab --to onnx --out digits.onnx",
)
def export(
    model: Annotated[Path, typer.Argument(help="A .slab file of a network that slabnet can build.")],
    to: Annotated[str, typer.Option(help="onnx, torch (a torch.export program) or numpy (one Python file).")],
    out: Annotated[Path, typer.Option(help="Where to write it: a new file.")],
    draws: Annotated[int, typer.Option(help="Draws to fix and average in it; 0 for the means.")] = 0,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    if not is_there(model):
        refuse("export", "MODEL", "a file that exists", str(model))
    from slabnet.export import export as write

    exported = write(model, to, out, draws=draws, seed=seed)  # type: ignore[arg-type]
    if json:
        print(json_text(exported))
        return
    gives = f"the average of {draws} draws" if draws else "the means"
    written = printable(", ".join(exported["written"]))
    print(f"{exported['weights']} weights, {gives}: {exported['bytes']} bytes. Written: {written}")


@app.command(help="List the methods a network can be built with.", epilog="Example: slabnet methods --json")
def methods(json: Json = False) -> None:
    if json:
        keys = ("name", "summary", "source", "selects", "bound")
        print(json_text([{key: getattr(method, key) for key in keys} for method in METHODS.values()]))
        return
    for method in METHODS.values():
        print(f"{method.name:<15} {method.summary}\n{'':<15} {method.source}")


def _check_data(where: str, data: str, option: str = "", value: str | None = "") -> bool:
    """Whether DATA is a table; refuse what is neither that nor a data set by name."""
    if data in DATA_SETS:
        return False
    if Path(data).suffix.lower() not in TABLE_FILES:
        refuse(where, "DATA", f"a {', '.join(TABLE_FILES)} file or one of {', '.join(DATA_SETS)}", repr(data))
    if not is_there(data):
        refuse(where, "DATA", "a file that exists", data)
    if value is None:
        refuse(where, option, f"given for a table: the column of {data} to predict", None)
    return True


def _names(text: str | None) -> tuple[str, ...]:
    return () if text is None else tuple(part.strip() for part in text.split(",") if part.strip())


def run() -> NoReturn:
    """Run the command line: one line on stderr for an error; exit 0, 1 (failed), 2 (bad call), 130 or 143 (stopped)."""
    try:
        code = app(standalone_mode=False)
    except SlabnetError as error:
        _leave(str(error), error.exit_code)
    except USAGE_ERROR as error:
        where = "slabnet" if error.ctx is None else error.ctx.command_path
        _leave(f"{where}: {one_line(error.format_message(), 300)}", 2)
    except (typer.Abort, KeyboardInterrupt):
        _leave("slabnet: interrupted; nothing was written", 130)
    except BrokenPipeError:  # the reader of a pipe went away
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
    except OSError as error:
        if os.environ.get("SLABNET_DEBUG"):
            raise
        _leave(f"slabnet: the system refused: {one_line(error.strerror or str(error))}", 1)
    except Exception as error:
        if os.environ.get("SLABNET_DEBUG"):
            raise
        _leave(f"slabnet: unexpected {type(error).__name__}: {one_line(str(error))} (SLABNET_DEBUG=1 shows where)", 1)
    if code == 130:  # what typer makes of Ctrl-C
        _leave("slabnet: interrupted; nothing was written", 130)
    sys.exit(code if isinstance(code, int) else 0)


def _speaks() -> bool:
    """Whether this is the process, of several that fit together, that talks to the user."""
    return os.environ.get("RANK", "0") == "0"


def _leave(message: str, code: int) -> NoReturn:
    if message and not _speaks() and not message.startswith("distributed:"):
        time.sleep(PATIENCE)  # the first one says the same, and ends this one
    if message:
        print(message, file=sys.stderr)
    sys.exit(code)
