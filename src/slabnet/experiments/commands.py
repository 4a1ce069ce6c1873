"""`slabnet reproduce`: the paper's comparison from the command line. Loads torch only when there is work to do."""

from __future__ import annotations

import json as json_module
from pathlib import Path
from typing import Annotated

import typer

from slabnet.checks import SlabnetError, check_choice, refuse
from slabnet.config import DATA_SETS
from slabnet.experiments.profiles import Profile
from slabnet.methods import METHODS

PAPER_METHODS = "lbbnn,gaussian,mixture,concrete-dropout,horseshoe"
commands = typer.Typer()

Json = Annotated[bool, typer.Option("--json", help="Print one JSON object on stdout, and nothing else there.")]


@commands.command(
    help="Run the paper's comparison: every method, several seeds, one record each. Finished runs are skipped, "
    "stopped ones go on; start it again with the same command.",
    epilog="Example: slabnet reproduce --dataset mnist --methods lbbnn --runs 3 --profile recommended --out results",
)
def reproduce(
    dataset: Annotated[str, typer.Option(help=f"One of {', '.join(DATA_SETS)}.")] = "mnist",
    methods: Annotated[str, typer.Option(help=f"With commas between: {', '.join(METHODS)}.")] = PAPER_METHODS,
    runs: Annotated[int, typer.Option(help="Runs of each method, from seed to seed.")] = 10,
    profile: Annotated[str, typer.Option(help=f"One of {', '.join(Profile.names())}.")] = "paper",
    out: Annotated[Path, typer.Option(help="Folder for the records.")] = Path("results"),
    hidden: Annotated[str | None, typer.Option(help="Hidden widths, as in 400,600,600 (the paper's text).")] = None,
    epochs: Annotated[int | None, typer.Option(help="Fewer epochs than the profile's, to try it out.")] = None,
    post_epochs: Annotated[int | None, typer.Option(help="The same for post-training.")] = None,
    first_seed: Annotated[int, typer.Option(help="Seed of the first run.")] = 0,
    json: Json = False,
) -> None:
    check_choice("reproduce", "--dataset", dataset, DATA_SETS)
    check_choice("reproduce", "--profile", profile, Profile.names())
    names = [name.strip() for name in methods.split(",")]
    for name in names:
        check_choice("reproduce", "--methods", name, METHODS)
    for option, value, least in (("--runs", runs, 1), ("--first-seed", first_seed, 0)):
        if value < least:
            refuse("reproduce", option, f"a whole number of at least {least}", value)
    if out.exists() and not out.is_dir():
        refuse("reproduce", "--out", "a folder", str(out))
    chosen = Profile.named(profile)
    widths = parse_widths("reproduce", hidden)
    plans = [
        chosen.plan(dataset, name, seed, hidden=widths, epochs=epochs, post_epochs=post_epochs)
        for seed in range(first_seed, first_seed + runs)
        for name in names
    ]
    from slabnet.experiments.grid import run_grid

    grid = run_grid(plans, out)
    if json:
        print(json_module.dumps({"records": len(grid.records), "failed": grid.failed, "elsewhere": grid.elsewhere}))
    else:
        print(f"{len(grid.records)} of {len(plans)} records are in {out} ({grid.skipped} were there before).")
        print("Where the settings are not those of the paper's text:")
        for line in chosen.departures:
            print(f"- {line}")
        for key in grid.elsewhere:
            print(f"{key} is being run by another process.")
        print(f"See them with: slabnet table {out}")
    if grid.failed:
        names_of = ", ".join(grid.failed)
        raise SlabnetError(f"reproduce: {len(grid.failed)} of {len(plans)} runs failed: {names_of}")


def parse_widths(where: str, text: str | None) -> tuple[int, ...] | None:
    """Widths of hidden layers from "400,600"; None where nothing was given."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() for part in parts):
        refuse(where, "--hidden", "whole numbers with commas, as in 400,600", text)
    return tuple(int(part) for part in parts)
