"""`slabnet reproduce`: the paper's comparison from the command line. Loads torch only when there is work to do."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from slabnet.config.methods import METHODS
from slabnet.config.settings import DATA_SETS
from slabnet.core.errors import SlabnetError, Stopped, check_choice, check_whole, refuse
from slabnet.core.files import check_writable
from slabnet.core.json_text import json_text
from slabnet.core.short_help import MORE, ShortHelp
from slabnet.core.signals import halting, number_of
from slabnet.experiments.engines import ENGINES, Engine, Here, Processes, Ray
from slabnet.experiments.files import read_records
from slabnet.experiments.formats import FORMATS
from slabnet.experiments.profiles import Plan, Profile
from slabnet.experiments.tables import READINGS, TABLES, table1

if TYPE_CHECKING:
    from slabnet.experiments.grid import Grid

PAPER_METHODS = "lbbnn,gaussian,mixture,concrete-dropout,horseshoe,normal-jeffreys"
LEGEND = "+ better than the paper's median, - worse, = the same in three decimals; * inside the paper's range."
commands = typer.Typer()

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else there.")]

Folds = Annotated[
    int | None, typer.Option(help="Cross-validate on the training rows, in this many folds.", rich_help_panel=MORE)
]
EngineName = Annotated[
    str, typer.Option(help="Where runs are made: local (processes) or ray (a cluster).", rich_help_panel=MORE)
]
Jobs = Annotated[int, typer.Option(help="Runs at a time, for the local engine.", rich_help_panel=MORE)]
Threads = Annotated[int | None, typer.Option(help="Threads of each run; all cores if left out.", rich_help_panel=MORE)]
Address = Annotated[
    str | None, typer.Option(help="Address of the Ray cluster; a local one if left out.", rich_help_panel=MORE)
]
Cpus = Annotated[float, typer.Option(help="Cores each run asks of the Ray cluster.", rich_help_panel=MORE)]
Gpus = Annotated[float, typer.Option(help="GPUs each run asks of the Ray cluster.", rich_help_panel=MORE)]


@commands.command(
    cls=ShortHelp,
    short_help="Run the paper's comparison.",
    help="Run the paper's comparison: every method, several seeds, one record each. Finished runs are skipped, "
    "stopped ones go on; start it again with the same command.",
    epilog="Example: slabnet reproduce --dataset mnist --methods lbbnn --runs 3 --profile recommended --out results",
)
def reproduce(
    context: typer.Context,
    dataset: Annotated[str, typer.Option(help=f"One of {', '.join(DATA_SETS)}.")] = "mnist",
    methods: Annotated[str, typer.Option(help=f"With commas between: {', '.join(METHODS)}.")] = PAPER_METHODS,
    runs: Annotated[int, typer.Option(help="Runs of each method, from seed to seed.")] = 10,
    profile: Annotated[str, typer.Option(help=f"One of {', '.join(Profile.names())}.")] = "paper",
    out: Annotated[Path, typer.Option(help="Folder for the records.")] = Path("results"),
    hidden: Annotated[str | None, typer.Option(help="Hidden widths, as in 400,600,600 (the paper's text).")] = None,
    epochs: Annotated[int | None, typer.Option(help="Fewer epochs than the profile's, to try it out.")] = None,
    post_epochs: Annotated[int | None, typer.Option(help="The same for post-training.")] = None,
    first_seed: Annotated[int, typer.Option(help="Seed of the first run.")] = 0,
    folds: Folds = None,
    engine: EngineName = "local",
    jobs: Jobs = 1,
    threads: Threads = None,
    address: Address = None,
    cpus: Cpus = 1.0,
    gpus: Gpus = 0.0,
    report: Annotated[Path | None, typer.Option(help="Also write a page about all records in --out.")] = None,
    json: Json = False,
) -> None:
    _check_reproduce(dataset, profile, engine, out, {"--runs": (runs, 1), "--first-seed": (first_seed, 0)}, threads)
    names = _methods_of(methods)
    if report is not None:
        check_writable("reproduce", report)
    if folds is not None:
        check_whole("reproduce", "--folds", folds, at_least=2)
        from slabnet.data import load
        from slabnet.experiments.folds import fold_of

        fold_of(load(dataset), 0, folds)  # too many are refused before anything runs
    chosen, widths = Profile.named(profile), parse_widths("reproduce", hidden)
    plans = [
        plan
        for seed in range(first_seed, first_seed + runs)
        for name in names
        for plan in chosen.plan(dataset, name, seed, hidden=widths, epochs=epochs, post_epochs=post_epochs).folded(
            folds
        )
    ]
    where: Engine = Here() if jobs == 1 else Processes(jobs)
    if engine == "ray":
        where = Ray(address, cpus, gpus)
    if threads is None and (jobs > 1 or engine == "ray"):
        threads = max(1, (os.cpu_count() or 1) // jobs) if engine == "local" else max(1, int(cpus))
    grid = _run(plans, out, dataset if engine == "local" else None, where, threads)
    if report is not None and grid.records:
        context.obj(out, report)  # pages are made from runs: the command line hands over how
    _say(plans, grid, out, json)


def _check_reproduce(
    dataset: str, profile: str, engine: str, out: Path, counts: dict[str, tuple[int, int]], threads: int | None
) -> None:
    check_choice("reproduce", "--dataset", dataset, DATA_SETS)
    check_choice("reproduce", "--profile", profile, Profile.names())
    check_choice("reproduce", "--engine", engine, ENGINES)
    for option, (value, least) in counts.items():
        if value < least:
            refuse("reproduce", option, f"a whole number of at least {least}", value)
    if threads is not None:
        check_whole("reproduce", "--threads", threads, at_least=1)
    if out.exists() and not out.is_dir():
        refuse("reproduce", "--out", "a folder", str(out))


def _methods_of(text: str) -> list[str]:
    names = list(dict.fromkeys(name.strip() for name in text.split(",")))
    return [check_choice("reproduce", "--methods", name, METHODS) for name in names]


def _run(plans: list[Plan], out: Path, dataset: str | None, engine: Engine, threads: int | None) -> Grid:
    """Make the records that are missing. dataset: the one to look for first; None where another machine has it."""
    from slabnet.experiments.grid import missing, run_grid

    make_folder("reproduce", out)
    if dataset is not None and missing(plans, out):
        from slabnet.data import load

        load(dataset)  # data that cannot be had are said once, not by every run
    try:
        with halting():
            return run_grid(plans, out, engine=engine, threads=threads)
    except KeyboardInterrupt as stopped:  # typer would make a bare exit of it
        message = "slabnet: stopped; finished runs and checkpoints are kept; go on with the same command"
        raise Stopped(message, number_of(stopped)) from None


def _say(plans: list[Plan], grid: Grid, out: Path, json: bool) -> None:
    """Print what became of the runs; raise if one failed."""
    departures = list(dict.fromkeys(line for plan in plans for line in plan.departures))
    if json:
        counts = {"records": len(grid.records), "failed": grid.failed, "elsewhere": grid.elsewhere}
        print(json_text(counts | {"departures": departures}))
    else:
        print(f"{len(grid.records)} of {len(plans)} records are in {out} ({grid.skipped} were there before).")
        print("Where the settings are not those of the paper's text:")
        for line in departures:
            print(f"- {line}")
        for key in grid.elsewhere:
            print(f"{key} is being run by another process.")
        if grid.records:
            print(f"See them with: slabnet table {out}, or: slabnet report {out} --out report.html")
    if grid.failed:
        raise SlabnetError(f"reproduce: {len(grid.failed)} of {len(plans)} runs failed: {', '.join(grid.failed)}")


@commands.command(
    cls=ShortHelp,
    short_help="Print the paper's tables beside ours.",
    help="Print the paper's tables beside ours, from the records in a folder.",
    epilog="Example: slabnet table results --format markdown --only 1",
)
def table(
    results: Annotated[Path, typer.Argument(help="A folder of records, as `slabnet reproduce` writes them.")],
    format: Annotated[str, typer.Option("--format", help=f"One of {', '.join(FORMATS)}.")] = "text",
    only: Annotated[str | None, typer.Option(help=f"One table: {', '.join(TABLES)}; all if left out.")] = None,
    reading: Annotated[
        str,
        typer.Option(help="ours: probabilities are averaged; authors: decisions as the authors' scripts take them."),
    ] = "ours",
    json: Json = False,
) -> None:
    check_choice("table", "--format", format, FORMATS)
    check_choice("table", "--reading", reading, READINGS)
    names = list(TABLES) if only is None else [check_choice("table", "--only", only, TABLES)]
    records = read_records(results)
    made = {name: TABLES[name](records) for name in names}
    if "1" in made:
        made["1"] = table1(records, reading)
    departures = departures_of(records)
    if json:
        print(json_text({name: t.to_dicts() for name, t in made.items()} | {"departures": departures}))
        return
    print("\n\n".join(t.titled(format) if len(made) > 1 else t.render(format) for t in made.values()))
    if format == "csv":
        return
    notes = [LEGEND] if "1" in names else []
    for profile, lines in departures.items():
        notes += [
            f"Where the settings of {profile} are not those of the paper's text:",
            *(f"- {line}" for line in lines),
        ]
    before = "% " if format == "latex" else ""
    print("", *(before + line for line in notes), sep="\n")


@commands.command(
    cls=ShortHelp,
    short_help="Write the paper's figures.",
    help="Write the paper's figures as SVG and PNG, from the records in a folder.",
    epilog="Example: slabnet figures results --out figures",
)
def figures(
    results: Annotated[Path, typer.Argument(help="A folder of records, as `slabnet reproduce` writes them.")],
    out: Annotated[Path, typer.Option(help="Folder for the pictures.")] = Path("figures"),
    json: Json = False,
) -> None:
    read_records(results)
    make_folder("figures", out)
    from slabnet.experiments.figures import write_figures

    paths = [str(path) for path in write_figures(results, out)]
    print(json_text({"figures": paths}) if json else "\n".join(paths))


@commands.command(
    cls=ShortHelp,
    short_help="List the data sets by name, or load one.",
    help="List the data sets by name and where they are; with NAME, load that one, downloading it if need be.",
    epilog="Example: slabnet data mnist",
)
def data(
    name: Annotated[str | None, typer.Argument(help=f"One of {', '.join(DATA_SETS)}.")] = None,
    json: Json = False,
) -> None:
    if name is not None:
        check_choice("data", "NAME", name, DATA_SETS)
    from slabnet.data import available, load

    if name is not None:
        split = load(name)
        numbers = {"name": name, "train": len(split.train[1]), "test": len(split.test[1]), "inputs": split.inputs}
        line = f"{name}: {numbers['train']} training and {numbers['test']} test rows of {split.inputs} numbers"
        print(json_text(numbers) if json else line)
        return
    sets = available()
    if json:
        print(json_text(sets))
        return
    for part in sets:
        fetches = f"; slabnet data {part['name']} fetches it"
        there = f"{part['where']}{', but damaged' + fetches if part['damaged'] else ''}"
        print(f"{part['name']:<15} {there if part['where'] else 'not here' + fetches}")


def make_folder(where: str, out: Path) -> None:
    """The folder of --out, or one line that names it."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError:
        refuse(where, "--out", "a folder that is there or can be made", str(out))


SETTLED = "omega's step is 1e-4 from epoch 21 on; the text has 0.1 throughout, with which alpha climbs"
CORRECTED = {  # what earlier records say wrongly
    f"{SETTLED} back towards psi": f"{SETTLED}: Adam moves excluded weights at its full step"
}


def departures_of(records: list[dict[str, Any]]) -> dict[str, list[str]]:
    """Where the settings of each profile are not those of the paper's text."""
    of_profile: dict[str, dict[str, None]] = {}
    for record in records:
        lines = [CORRECTED.get(line, line) for line in record["plan"]["departures"]]
        of_profile.setdefault(record["plan"]["profile"], {}).update(dict.fromkeys(lines))
    return {profile: list(lines) for profile, lines in of_profile.items()}


def parse_widths(where: str, text: str | None) -> tuple[int, ...] | None:
    """Widths of hidden layers from "400,600"; None where nothing was given."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        refuse(where, "--hidden", "whole numbers with commas, as in 400,600", text)
    return tuple(int(part) for part in parts)
