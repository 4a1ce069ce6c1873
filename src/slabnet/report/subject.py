"""What a report is about: a network with its test rows, and what is known of its fit."""

from __future__ import annotations

import platform
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from slabnet.config.fit_card import EstimatorCard, FitCard, ScalingCard
from slabnet.config.settings import DATA_SETS, Recipe
from slabnet.core.errors import one_line, refuse
from slabnet.core.records import Answer, Selection
from slabnet.core.version import __version__
from slabnet.data import Split, load
from slabnet.data.cells import as_label
from slabnet.data.columns import as_numbers
from slabnet.data.fetch import NoData
from slabnet.data.holdout import held_out, with_answers
from slabnet.data.reading import read_all
from slabnet.data.tabular import Table
from slabnet.estimators.effects import FeatureEffects
from slabnet.estimators.scaling import Scaling
from slabnet.model.attach import likelihood_of
from slabnet.model.likelihoods import Likelihood
from slabnet.model.networks import Network
from slabnet.store import load as load_model
from slabnet.store import load_selection, read_header

Rows = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Subject:
    """All that a page is made from.

    selection: the model that was chosen and post-trained; without it the median model of `net` is taken.
    rows: the ways to predict, as `experiments.rows` gives them; computed from `test` where they are not known.
    epochs: the fit's history in columns (`History.columns`).
    scale_x, scale_y: to show inputs and response as the user knows them.
    ood: (name, x) of out-of-distribution rows.
    categories: the columns of a table that became several inputs: name, levels, and the place of the first.
    indicators: positions of inputs that are zero or one.
    usual: what someone would say who knows no inputs: the place of the most frequent class of the fit, or its mean.
    row_numbers: what each test row is called in its file. draws, draws_seed: of the estimator that was saved, whose
        predictions are then the ones that are shown, so that every command gives the same figures. effects: how far
        it said that each input moves the answer, on the rows it was fitted to; signed_effects: which way, and how
        surely. tested: what the fit found on the rows it held out, of itself and of a linear model.
    rate: of counts, what exposures are counted in; exposure, exposure_name: that of each test row, and its column.
    """

    net: nn.Module
    title: str
    test: Rows | None = None
    data: str | None = None
    selection: Selection | None = None
    rows: Sequence[Mapping[str, Any]] | None = None
    epochs: Mapping[str, Any] | None = None
    input_names: Sequence[str] | None = None
    class_names: Sequence[str] | None = None
    target: str | None = None
    image_shape: tuple[int, int] | None = None
    scale_x: Scaling | None = None
    scale_y: Scaling | None = None
    ood: tuple[str, Tensor] | None = None
    categories: Sequence[tuple[str, Sequence[str], int]] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)
    seed: int | None = None
    command: str | None = None
    fitted_with: str | None = None
    notes: Sequence[str] = ()
    indicators: frozenset[int] = frozenset()
    row_numbers: Sequence[int] | None = None
    usual: float | None = None
    draws: int | None = None
    draws_seed: int | None = None
    effects: Sequence[float] | None = None
    signed_effects: FeatureEffects | None = None
    tested: Mapping[str, Any] | None = None
    rate: float | None = None
    exposure: Tensor | None = None
    exposure_name: str | None = None

    def exposures(self, rows: int) -> Tensor | None:
        """What the network takes as the exposure of the test rows; of other rows it is 1."""
        if self.rate is None:
            return None
        known = self.exposure is not None and len(self.exposure) == rows
        return self.rate * (self.exposure if known and self.exposure is not None else torch.ones(rows))

    @property
    def likelihood(self) -> Likelihood:
        return likelihood_of(self.net)

    @property
    def answer(self) -> Answer:
        """What the network's predictions are about."""
        return self.likelihood.answer

    @property
    def method(self) -> str:
        return self.net.method.name if isinstance(self.net, Network) else type(self.net).__name__

    @property
    def inputs(self) -> list[str]:
        """A name for each input of a table, as far as they are known."""
        if self.input_names is not None:
            return [str(name) for name in self.input_names]
        count = int(np.prod(self.net.row_shape or 0)) if isinstance(self.net, Network) else 0
        return [f"input {i}" for i in range(count)]

    def classes(self, count: int) -> list[str]:
        return [str(i) for i in range(count)] if self.class_names is None else [str(name) for name in self.class_names]


def versions() -> dict[str, str]:
    """What the page was made with."""
    return {"slabnet": __version__, "torch": torch.__version__, "python": platform.python_version()}


def subject_from_file(model: Path, data: str | None = None, ood: str | None = None) -> Subject:
    """Read a model file, and the test rows of the data set it was fitted to, or of `data`."""
    header = read_header(model)
    net = load_model(model)
    assert isinstance(net, Network)
    card = FitCard.of(header, model)
    name = card.data if data is None and card.data in DATA_SETS else data
    split: Split | None = None
    rows_of_table, numbers, exposure, notes = None, None, None, list[str]()
    if name is not None and card.table is not None and (card.job or {}).get("event"):
        notes.append("A page does not judge times of which some were cut off; `slabnet predict` does, row by row.")
        name = None
    if name in DATA_SETS and card.table is not None:
        refuse("report", "--data", "a table with the columns that were fitted", name)
    if name is not None and card.table is not None:
        rows_of_table, numbers, remarks, exposure = _table_rows(card, Path(name))
        notes += remarks
    elif name is not None:
        try:
            split = _split_of(name, net, model)
        except NoData as error:
            if data is not None:
                raise
            notes.append(f"The test rows of {name} are not here, so what needs them is left out ({error}).")
    recipe, estimator, job = card.recipe, card.estimator or EstimatorCard(), card.job or {}
    trained = job or (recipe or {}).get("train", {})
    same = data is None or data == card.data
    return Subject(
        net=net,
        title=f"{job.get('file') or card.data or name or model.stem}",
        test=rows_of_table if split is None else split.test,
        data=name,
        selection=None if header.get("rule") is None else load_selection(model, net),
        rows=card.rows if same else None,
        epochs=card.epochs,
        input_names=card.input_names,
        class_names=estimator.classes,
        target=card.target,
        image_shape=None if split is None else split.image_shape,
        scale_x=_scale(estimator.scaling_x),
        scale_y=_scale(estimator.scaling_y),
        ood=_ood(ood, net),
        settings=recipe or card.config or {"network": net.spec},
        categories=_categories(card.table),
        indicators=_indicators(card.table),
        usual=(card.tested or {}).get("usual"),
        seed=trained.get("seed") if card.seed is None else card.seed,
        command=card.command or _command(card, model),
        fitted_with=header["version"],
        notes=notes,
        row_numbers=numbers,
        draws=estimator.draws,
        draws_seed=estimator.seed,
        effects=estimator.feature_effects,
        signed_effects=_signed(estimator, card.input_names),
        tested=card.tested,
        rate=estimator.rate,
        exposure=exposure,
        exposure_name=job.get("exposure"),
    )


def _signed(card: EstimatorCard, names: Sequence[str] | None) -> FeatureEffects | None:
    """Effects with their signs; None in a file of 0.1, or one whose numbers do not fit."""
    if not card.signed_effects or not names or card.feature_effects is None:
        return None
    columns = [str(i) for i in range(len(card.feature_effects))]
    return FeatureEffects.from_dict(columns, card.feature_effects, [str(n) for n in names], card.signed_effects)


def _split_of(name: str, net: Network, model: Path) -> Split:
    """The data set of this name, if it is one that the network was made for."""
    if name not in DATA_SETS:
        refuse("report", "--data", f"one of {', '.join(DATA_SETS)}", name)
    split = load(name)
    if net.row_shape != (split.inputs,) or net.outputs != split.classes:
        made = f"{net.row_shape} numbers a row and {net.outputs} outputs"
        refuse("report", "--data", f"what {model} was made for, {made}", f"{name} with {split.inputs} numbers a row")
    return split


def _table_rows(card: FitCard, path: Path) -> tuple[Rows, list[int], list[str], Tensor | None]:
    """The rows of a table whose target is known, as the network reads them, their numbers, what is said of them, and
    their exposure where there is one.

    Of the very table the model was fitted to, only the held-out rows: the others would flatter it.
    """
    table = read_all(path, "report")
    target, estimator = str(card.target), card.estimator or EstimatorCard()
    if target not in table:
        refuse("report", "--data", f"a table with the column {one_line(target)}, which was fitted", str(path))
    answers = table.pop(target)
    known = with_answers(answers, estimator.classes is not None)
    notes = _whose(card.job, path)
    aside = held_out(card.job, path, answers, estimator.classes is not None, table)
    if aside is not None and len(aside):
        known = aside.tolist()
        notes = [f"The rows below are the {len(aside)} that were held out when it was fitted."]
    elif aside is not None:
        notes = ["The rows below were also fitted, since none were held out: they make it look better than it is."]
    if not known:
        refuse("report", "--data", f"a table with values of {one_line(target)}", f"{path} without any")
    chosen = {name: [values[i] for i in known] for name, values in table.items()}
    exposure = _exposure(card, chosen, [i + 1 for i in known])
    learned = Table.from_dict(card.table)
    x, _ = learned.apply(chosen, "report", numbers=[i + 1 for i in known])
    scale_x, scale_y = _scale(estimator.scaling_x), _scale(estimator.scaling_y)
    rows = x if scale_x is None else scale_x.apply(x)
    values = [answers[i] for i in known]
    if estimator.classes is not None:
        places = {as_label(name): index for index, name in enumerate(estimator.classes)}
        strange = next((v for v in values if as_label(v) not in places), None)
        if strange is not None:
            refuse("report", "--data", f"a table with classes that were fitted in {one_line(target)}", repr(strange))
        y: Any = torch.tensor([places[as_label(v)] for v in values])
    else:
        numbers = as_numbers(values, target, "report", [i + 1 for i in known], learned.target).reshape(len(rows), -1)
        y = torch.as_tensor(numbers if scale_y is None else scale_y.apply(numbers))
    return (torch.as_tensor(rows), y), [i + 1 for i in known], notes, exposure


def _exposure(card: FitCard, table: dict[str, list[Any]], numbers: list[int]) -> Tensor | None:
    """The column of exposures, taken out of a table; None where none was fitted."""
    name = (card.job or {}).get("exposure")
    if name is None:
        return None
    if name not in table:
        refuse("report", "--data", f"a table with the column {one_line(name)}, the exposure that was fitted", "none")
    return torch.as_tensor(as_numbers(table.pop(name), name, "report", numbers))


def _whose(job: Any, path: Path) -> list[str]:
    """What is said of rows of another file than the one that was fitted."""
    if not isinstance(job, Mapping):
        return []
    note = f"The rows below are those of {path.name}, another file than the one that was fitted"
    return [f"{note}: rows that are in both would make it look better than it is."]


def _ood(name: str | None, net: Network) -> tuple[str, Tensor] | None:
    if name is None:
        return None
    if name not in DATA_SETS:
        refuse("report", "--ood", f"one of {', '.join(DATA_SETS)}", name)
    x = load(name).test[0]
    if net.row_shape != (x.shape[1],):
        refuse("report", "--ood", f"rows of {net.row_shape} numbers, as the model reads", f"{name} with {x.shape[1]}")
    return name, x


def _scale(card: ScalingCard | None) -> Scaling | None:
    return None if card is None else Scaling.from_dict(card.model_dump())


def _categories(table: Any) -> list[tuple[str, Sequence[str], int]]:
    """The columns of a table that became an input for each of their levels."""
    categories: list[tuple[str, Sequence[str], int]] = []
    place = 0
    for column in Table.from_dict(table).columns if table else ():
        if column.kind == "category" and column.base is None:
            categories.append((column.name, column.levels, place))
        place += len(column.inputs)
    return categories


def _indicators(table: Any) -> frozenset[int]:
    """Positions of the inputs of a table that are zero or one."""
    places_of_indicators: set[int] = set()
    if table:
        learned = Table.from_dict(table)
        for column, places in zip(learned.columns, learned.column_groups.values(), strict=True):
            places_of_indicators |= set(places if column.kind == "category" else places[1:])
    return frozenset(places_of_indicators)


def _table_command(job: Mapping[str, Any], model: Path) -> str:
    """The call that fits this table again; settings that have no option are in the page, to be put in a file."""
    words = ["slabnet", "fit", str(job["file"]), "--target", str(job["target"]), "--out", model.name]
    words += ["--seed", str(job["seed"]), "--test-size", f"{job['test_size']:g}"]
    words += ["--task", str(job["task"])] if job.get("task") else []
    words += [word for option in ("group", "time") if job.get(option) for word in (f"--{option}", str(job[option]))]
    for option in ("drop", "categorical"):
        words += [f"--{option}", ",".join(job[option])] if job.get(option) else []
    recipe: dict[str, dict[str, Any]] = {name: dict(part) for name, part in job.get("recipe", {}).items()}
    network, train = recipe.get("network", {}), recipe.get("train", {})
    train.pop("seed", None)
    for part, option in ((network, "method"), (network, "hidden"), (network, "members"), (train, "epochs")):
        value = part.pop(option, None)
        if value is not None:
            words += [f"--{option}", ",".join(map(str, value)) if isinstance(value, list) else str(value)]
    return shlex.join(words + (["--config", "settings.toml"] if any(recipe.values()) else []))


def _command(card: FitCard, model: Path) -> str | None:
    """The call that fits this again: by the name of a recipe where one has these settings, else from a file of them."""
    if card.job is not None:
        return _table_command(card.job, model)
    if card.recipe is None or card.data is None or card.data not in DATA_SETS:
        return None
    recipe = Recipe(**card.recipe)
    words = ["slabnet", "fit", card.data, "--out", model.name]
    for name in Recipe.names():
        known = Recipe.named(name)
        network = known.network.model_copy(update={"method": recipe.network.method, "hidden": recipe.network.hidden})
        train = known.train.model_copy(update={"epochs": recipe.train.epochs, "seed": recipe.train.seed})
        if known.model_copy(update={"network": network, "train": train}) != recipe:
            continue
        words += ["--recipe", name, "--method", recipe.network.method, "--seed", str(recipe.train.seed)]
        words += ["--hidden", ",".join(map(str, recipe.network.hidden))] if recipe.network.hidden else []
        words += [] if recipe.train.epochs is None else ["--epochs", str(recipe.train.epochs)]
        return shlex.join(words)
    return shlex.join([*words, "--config", "settings.toml"])
