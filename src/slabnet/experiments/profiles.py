"""Profiles: how every method of a comparison is trained, as TOML files in the package. Imports no torch."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import Field

from slabnet.config.methods import METHODS
from slabnet.config.settings import NetworkConfig, Prior, Recipe, Start, TrainConfig
from slabnet.core.errors import Settings, check_choice, check_whole

PAPERS_TABLES, PAPERS_TEXT = (400, 600), (400, 600, 600)  # hidden layers
Changes = dict[str, dict[str, Any]]  # table -> setting -> value, as in a recipe


class Plan(Settings):
    """One run, with everything it depends on: the same plan gives the same record."""

    dataset: str
    profile: str
    seed: int
    network: NetworkConfig
    prior: Prior
    start: Start
    train: TrainConfig
    post: TrainConfig
    departures: tuple[str, ...] = ()
    fold: tuple[int, int] | None = None  # number, from 0, and how many; None: the data set's own test rows

    @property
    def method(self) -> str:
        return self.network.method

    @property
    def key(self) -> str:
        """The name of the run's files."""
        widths = "" if self.network.hidden == NetworkConfig().hidden else "-" + "x".join(map(str, self.network.hidden))
        part = "" if self.fold is None else f"-fold{self.fold[0] + 1}of{self.fold[1]}"
        return f"{self.dataset}-{self.profile}-{self.method}{widths}-{self.seed}{part}"

    def folded(self, folds: int | None) -> list[Plan]:
        """This run for every fold of a cross-validation; itself where there is none."""
        if folds is None:
            return [self]
        check_whole("reproduce", "--folds", folds, at_least=2)
        return [self.model_copy(update={"fold": (fold, folds)}) for fold in range(folds)]


class Profile(Settings):
    """A recipe, what post-training changes in it, and what each method changes.

    departures: where the settings are not those of the paper's text, to be printed with every table.

    >>> Profile.named("paper").plan("mnist", "gaussian", 3).train.kl
    'exact'
    """

    name: str
    summary: str
    recipe: str
    departures: tuple[str, ...] = ()
    train: dict[str, Any] = Field(default_factory=dict)
    post: dict[str, Any] = Field(default_factory=dict)
    methods: dict[str, Changes] = Field(default_factory=dict)

    @classmethod
    def names(cls) -> list[str]:
        """The profiles that come with the package."""
        files = resources.files("slabnet.config.recipes").joinpath("profiles").iterdir()
        return sorted(Path(file.name).stem for file in files if file.name.endswith(".toml"))

    @classmethod
    def named(cls, name: str) -> Profile:
        """A profile that comes with the package."""
        check_choice("profile", "name", name, cls.names())
        text = resources.files("slabnet.config.recipes").joinpath("profiles", f"{name}.toml").read_text("utf-8")
        return cls(name=name, **tomllib.loads(text))

    def plan(
        self,
        dataset: str,
        method: str,
        seed: int,
        *,
        hidden: tuple[int, ...] | None = None,
        epochs: int | None = None,
        post_epochs: int | None = None,
    ) -> Plan:
        """The plan of one run; hidden, epochs and post_epochs take the place of the profile's own."""
        check_choice("profile", "method", method, METHODS)
        base, changes = Recipe.named(self.recipe), self.methods.get(method, {})
        shorter = {} if epochs is None else {"epochs": epochs}
        profiles = base.train.model_dump() | self.train | changes.get("train", {})
        usual = (profiles["epochs"], (profiles | self.post | changes.get("post", {}))["epochs"])
        train = profiles | shorter | {"seed": seed}
        post = train | {"omega_settle_epoch": None, "ramp_epochs": 0} | self.post | changes.get("post", {})
        post |= {"seed": seed + 1} | ({} if post_epochs is None else {"epochs": post_epochs})
        network = base.network.model_dump() | changes.get("network", {}) | {"method": method}
        network |= {} if hidden is None else {"hidden": hidden}
        return Plan(
            dataset=dataset,
            profile=self.name,
            seed=seed,
            network=NetworkConfig(**network),
            prior=Prior(**base.prior.model_dump() | changes.get("prior", {})),
            start=Start(**base.start.model_dump() | changes.get("start", {})),
            train=TrainConfig(**train),
            post=TrainConfig(**post),
            departures=(*self.departures, *_departures(tuple(network["hidden"]), train, post, usual)),
        )


def _departures(
    hidden: tuple[int, ...], train: dict[str, Any], post: dict[str, Any], usual: tuple[Any, Any]
) -> list[str]:
    """Where widths and epochs that were asked for are not those of the paper's text, or of the profile."""
    lines = []
    if hidden == PAPERS_TABLES:
        lines.append(
            "hidden layers 400, 600 as in the paper's tables; its text says 400, 600, 600 (--hidden 400,600,600)"
        )
    elif hidden != PAPERS_TEXT:
        widths = ", ".join(map(str, hidden))
        lines.append(f"hidden layers {widths}; the paper's text says 400, 600, 600, its tables were made with 400, 600")
    for stage, ours, theirs in (("training", train["epochs"], usual[0]), ("post-training", post["epochs"], usual[1])):
        if ours != theirs:
            lines.append(f"{stage} for {ours} epochs; the profile has {theirs}")
    return lines
