"""The command `slabnet fit`. Answers `--help` and argument errors without loading torch."""

from __future__ import annotations

import os
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from slabnet.cli import fit_options as options
from slabnet.cli.options import DATA_HELP, check_data, names_in, speaks, table_or_name
from slabnet.config.resolve import resolve
from slabnet.core.errors import Stopped, check_choice, check_number, printable, refuse
from slabnet.core.files import check_writable, checkpoints_of, remove_leftovers
from slabnet.core.json_text import json_text
from slabnet.core.locks import holding
from slabnet.core.short_help import ShortHelp
from slabnet.core.signals import halting, number_of
from slabnet.experiments.commands import Json, parse_widths
from slabnet.report.commands import ReportFile, check_report, write_model_card, write_model_report

commands = typer.Typer()
Checkpointed = tuple[Path, bool, float]  # the model, whether to resume, minutes between checkpoints


@commands.command(
    cls=ShortHelp,
    short_help="Fit a network to a table or a data set by name.",
    help="Fit a network to a table of yours (CSV, Parquet) or to a data set by name, and write it to a .slab file.",
    epilog="Example: slabnet fit houses.csv --target price --out houses.slab",
)
def fit(
    data: Annotated[str, typer.Argument(help=DATA_HELP, autocompletion=table_or_name)],
    out: options.Out,
    target: options.Target = None,
    task: options.TaskName = None,
    test_size: options.TestSize = None,
    drop: options.Drop = None,
    categorical: options.Categorical = None,
    response: options.Response = None,
    group: options.Group = None,
    time: options.Time = None,
    exposure: options.Exposure = None,
    event: options.Event = None,
    levels: options.Levels = None,
    method: options.MethodName = None,
    epochs: options.Epochs = None,
    hidden: options.Hidden = None,
    members: options.Members = None,
    skip: options.Skip = None,
    gates: options.Gates = None,
    activation: options.ActivationNames = None,
    teacher: options.TeacherFile = None,
    teacher_share: options.TeacherShare = 0.5,
    recipe: options.RecipeName = "default",
    config: options.Config = None,
    seed: options.Seed = None,
    resume: options.Resume = False,
    checkpoint_every: options.CheckpointEvery = 5.0,
    workers: options.Workers = 1,
    report: ReportFile = None,
    no_report: options.NoReport = False,
    card: options.Card = False,
    json: Json = False,
) -> None:
    only = {"--target": target, "--task": task, "--test-size": test_size, "--drop": drop, "--categorical": categorical}
    only |= {"--group": group, "--time": time}
    only |= {"--response": response, "--exposure": exposure, "--event": event, "--levels": levels}
    is_table = check_data("fit", data, "--target", target)
    network: dict[str, Any] = {"method": method, "hidden": parse_widths("fit", hidden), "members": members}
    network |= {"skip": skip, "gates": gates, "activation": None if activation is None else names_in(activation)}
    settings = resolve(recipe, config, network, {"epochs": epochs, "seed": seed})
    page = page_of(out, report, no_report or json)
    _check_fit(data, {} if is_table else only, task, workers, checkpoint_every, (out, page))
    job: tuple[Any, ...] = (settings, _teacher(teacher, teacher_share))
    if is_table:
        asked = (job[1], (response, exposure, event, names_in(levels)))
        job = (str(target), settings, task, test_size, names_in(drop), names_in(categorical), group, time, *asked)
    if _train(data, (out, resume, checkpoint_every), workers, json, job, is_table):
        with _stoppable(out):
            write_model_report(out, page, data if is_table else None)
            write_model_card(out, card)
        if not json:
            print("\n".join(_next_steps(out, data, page, is_table)))


def page_of(out: Path, asked: Path | None, none: bool) -> Path | None:
    """Where the page of a fit goes: where it was asked for, beside the model on a terminal, or nowhere."""
    if asked is not None or none or not (sys.stdout.isatty() and speaks()):
        return asked
    return out.with_name(f"{out.stem}.report.html")


def _teacher(path: Path | None, share: float) -> tuple[Path, float] | None:
    """The model to learn from, or one line that says what is wrong with it."""
    if path is None:
        return None
    if not path.is_file():
        refuse("fit", "--teacher", "a .slab file", str(path))
    check_number("fit", "--teacher-share", share, above=0, at_most=1)
    return path, share


def _train(
    data: str, checkpoints: Checkpointed, workers: int, json: bool, job: tuple[Any, ...], is_table: bool
) -> bool:
    """Train and write the model. False in the process that only starts the workers: they do the rest."""
    out, resume, every = checkpoints
    with _stoppable(out):
        from slabnet.distributed.group import join, launch, leave, restarted

        if workers > 1 and "RANK" not in os.environ:
            launch(workers, sys.argv[1:])
            return False
        join()
        checkpoints = (out, resume or restarted(), every)
        try:
            with holding(checkpoints_of(out), "fit") if speaks() else nullcontext():
                remove_leftovers(out)
                (_fit_table if is_table else _fit_named)(data, checkpoints, json, job)
        finally:
            leave()
    return True


def _next_steps(out: Path, data: str, page: Path | None, is_table: bool) -> list[str]:
    """What was written, and the commands that come next, as a shell reads them."""
    model, table = shlex.quote(str(out)), shlex.quote(data)
    page_name = shlex.quote(str(out.with_suffix(".html")))
    shown = f"slabnet report {model}{f' --data {table}' if is_table else ''} --out {page_name}"
    predicted = "NEW.csv --out predictions.csv" if is_table else table
    return [
        printable(f"Written: {out}"),
        printable(f"Report:  {shown if page is None else page}"),
        printable(f"Next:    slabnet predict {model} {predicted}"),
    ]


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
        raise Stopped(f"slabnet: {reason}; {then}" if speaks() else "", number) from None


def _say_finished(out: Path, json: bool) -> None:
    if not speaks():
        from slabnet.distributed.group import Followed

        raise Followed
    message = f"{printable(str(out))} is finished: there is nothing to resume."
    print(json_text({"finished": True, "model": str(out)}) if json else message)


def _fit_named(data: str, checkpoints: Checkpointed, json: bool, job: tuple[Any, ...]) -> None:
    from slabnet.cli.teachers import Teacher
    from slabnet.cli.workflow import fit_named, is_finished
    from slabnet.prediction.ways import print_rows

    out, resume, every = checkpoints
    settings, teacher = job[0], None if job[1] is None else Teacher(*job[1])
    if resume and is_finished(out, data, settings):
        _say_finished(out, json)
        return
    fitted = fit_named(data, settings, out, resume, every, teacher)
    if json:
        print(json_text(fitted.to_dict()))
        return
    print_rows(f"{data}: {fitted.test_rows} test rows", fitted.rows)
    for line in fitted.notes:
        print(line)


def _fit_table(data: str, checkpoints: Checkpointed, json: bool, job: tuple[Any, ...]) -> None:
    from slabnet.cli.responses import ResponseColumns
    from slabnet.cli.tables import TableJob, fit_table, table_finished
    from slabnet.cli.teachers import Teacher

    out, resume, every = checkpoints
    *words, teacher, asked = job
    whole = replace(TableJob(Path(data), *words), response=ResponseColumns(*asked))
    whole = replace(whole, teacher=None if teacher is None else Teacher(*teacher))
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
