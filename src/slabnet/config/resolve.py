"""From layers of settings to one: a recipe by name or a file, then flags; for a table first its rule, then all else.

Image sets start from `Recipe()`, tables from the rule in `slabnet.config.tables`. A setting is given if somebody wrote
it down (`model_fields_set`); all others are open, and take what the layer below says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from slabnet.config.methods import METHODS
from slabnet.config.settings import NetworkConfig, Prior, Recipe, TrainConfig
from slabnet.config.tables import INTERCEPT_PSI, defaults_for, psi_for
from slabnet.core.errors import check_whole, refuse


def resolve(recipe: str, file: Path | None, network: Mapping[str, Any], train: Mapping[str, Any]) -> Recipe:
    """The recipe of that name, or that of a file, under what flags say; None is a flag that was not given.

    >>> resolve("paper", None, {"hidden": (5,)}, {"epochs": None}).train.epochs
    250
    """
    base = Recipe.named(recipe) if file is None else Recipe.from_toml(file)
    parts = {
        "network": NetworkConfig(**base.network.model_dump(exclude_unset=True) | _given(network)),
        "train": TrainConfig(**base.train.model_dump(exclude_unset=True) | _given(train)),
    }
    return base.model_copy(update=parts)


def table_hidden(n: int, p: int, hidden: int | Sequence[int] | None) -> int | Sequence[int]:
    """Widths for a table of n rows and p inputs, where none were given."""
    return defaults_for(n, p).hidden if hidden is None else hidden


class Structure(NamedTuple):
    """What a network for a table is made of beside its widths."""

    skip: bool
    gates: str | Sequence[str] | None
    members: int


def table_structure(
    n: int,
    p: int,
    hidden: Sequence[int],
    method: str,
    open_prior: bool,
    skip: bool | None,
    gates: str | Sequence[str] | bool | None,
    members: int | None,
) -> Structure:
    """Skips, gates and members: those given, else those of the rule.

    open_prior: nobody gave a prior, or a psi; the rule has gates only then, since they are part of the prior.

    >>> table_structure(400, 12, (50,), "lbbnn", True, None, None, None).gates
    'inputs'
    >>> table_structure(400, 12, (50,), "lbbnn", True, None, False, None).gates is None
    True
    """
    rule, kind = defaults_for(n, p), METHODS.get(method)
    if skip is not None and str(skip) not in ("True", "False"):  # numpy's are taken too
        refuse("estimator", "skip", "True or False, or None for the rule", skip)
    if gates is None:
        gates = open_prior and bool(hidden) and kind is not None and kind.selects
    if isinstance(gates, bool):
        gates = rule.gates if gates else None
    count = rule.members if members is None else check_whole("estimator", "members", members, at_least=1)
    return Structure(bool(hidden) and rule.skip if skip is None else bool(skip), gates, count)


def table_prior(n: int, p: int, layers: int, prior: Prior | None, psi: Any, sigma_beta: Any) -> Prior:
    """The prior for a table: the one given, else one of the rule in which psi and sigma_beta may be given.

    >>> table_prior(100, 10, 2, None, None, 1.0).intercept_psi, table_prior(100, 10, 2, None, 0.1, 1.0).intercept_psi
    (0.5, None)
    """
    if prior is not None:
        return prior
    rule = psi is None
    chances = psi_for(p, layers) if rule else psi
    return Prior(psi=chances, intercept_psi=INTERCEPT_PSI if rule else None, sigma_beta=sigma_beta, n=max(2, n))


def table_training(
    n: int, p: int, config: TrainConfig | None, arguments: Mapping[str, Any], seed: int, where: str
) -> TrainConfig:
    """How a table is fitted: the rule, over it what `config` sets, over that single arguments that are not None.

    >>> table_training(506, 13, TrainConfig(lr=0.01), {"epochs": 5}, 0, "fit").lr
    0.01
    """
    settings = defaults_for(n, p).training()
    given = {} if config is None else config.model_dump(exclude_unset=True)
    given |= _given(arguments)
    if "epochs" in given:
        settings.pop("ramp_epochs")  # half of them, as ever
    settings |= {"seed": seed} | given | {"dtype": "float32"}
    rows = n if "validation_fraction" not in given else n - max(1, round(n * given["validation_fraction"]))
    size = check_whole(where, "batch_size", settings["batch_size"], at_least=1)
    return TrainConfig(**settings | {"batch_size": min(size, max(1, rows))})


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}
