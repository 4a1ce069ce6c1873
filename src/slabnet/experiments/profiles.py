"""Profiles: how every method of a comparison is trained, as TOML files in the package. Imports no torch."""

from __future__ import annotations

import tomllib
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import Field, SerializerFunctionWrapHandler, model_serializer

from slabnet.config.methods import METHODS
from slabnet.config.settings import NetworkConfig, Prior, Recipe, Start, TrainConfig
from slabnet.core.errors import Settings, check_choice, check_whole

PAPERS_TABLES, PAPERS_TEXT = (400, 600), (400, 600, 600)  # hidden layers
Changes = dict[str, dict[str, Any]]  # table -> setting -> value, as in a recipe


class Maps(Settings):
    """The convolutions of a network for images, which stand before its hidden layers; arguments as in `convnet`."""

    channels: tuple[int, ...]
    kernel_size: int = 5
    padding: str = "valid"
    pool: int = 2


class Plan(Settings):
    """One run, with everything it depends on: the same plan gives the same record.

    maps: convolutions, where there are any. post_alpha: whether the whole posterior is post-trained too, not only the
        chosen model.
    """

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
    maps: Maps | None = None
    post_alpha: bool = True

    @model_serializer(mode="wrap")
    def _without_what_came_later(self, usual: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """A plan without convolutions is written as it was before there were any."""
        written: dict[str, Any] = usual(self)
        return {
            name: value
            for name, value in written.items()
            if (name, value) not in (("maps", None), ("post_alpha", True))
        }

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
    network: what is not as in the recipe; maps, post_alpha: see `Plan`. prior: what every method changes.

    >>> Profile.named("paper").plan("mnist", "gaussian", 3).train.kl
    'exact'
    """

    name: str
    summary: str
    recipe: str
    departures: tuple[str, ...] = ()
    network: dict[str, Any] = Field(default_factory=dict)
    maps: Maps | None = None
    post_alpha: bool = True
    prior: dict[str, Any] = Field(default_factory=dict)
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
        network = base.network.model_dump() | self.network | changes.get("network", {}) | {"method": method}
        network |= {} if hidden is None else {"hidden": hidden}
        return Plan(
            dataset=dataset,
            profile=self.name,
            seed=seed,
            network=NetworkConfig(**network),
            prior=Prior(**base.prior.model_dump() | self.prior | changes.get("prior", {})),
            start=Start(**base.start.model_dump() | changes.get("start", {})),
            train=TrainConfig(**train),
            post=TrainConfig(**post),
            departures=(*self.departures, *_departures(tuple(network["hidden"]), self.maps, train, post, usual)),
            maps=self.maps,
            post_alpha=self.post_alpha,
        )


def _departures(
    hidden: tuple[int, ...], maps: Maps | None, train: dict[str, Any], post: dict[str, Any], usual: tuple[Any, Any]
) -> list[str]:
    """Where widths and epochs that were asked for are not those of the paper's text, or of the profile."""
    lines = []
    if maps is not None:
        kernels, widths = (", ".join(map(str, part)) for part in (maps.channels, hidden))
        size = f"{maps.kernel_size} x {maps.kernel_size}"
        lines.append(f"convolutions of {kernels} channels ({size}), then hidden layers {widths}; the paper has none")
    elif hidden == PAPERS_TABLES:
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
