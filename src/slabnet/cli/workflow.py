"""What `slabnet fit` and `slabnet predict` do with a data set by name."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slabnet.cli.teachers import Teacher
from slabnet.config.fit_card import FitCard
from slabnet.config.settings import Recipe
from slabnet.core.errors import one_line, refuse
from slabnet.core.files import checkpoints_of, write_atomically
from slabnet.core.records import History, Prediction
from slabnet.data import load
from slabnet.distributed.group import Followed, current_group
from slabnet.model.drawing import Draw, drawable_layers
from slabnet.model.draws import exact, fixed
from slabnet.model.networks import Network, mlp
from slabnet.prediction.evaluation import evaluate, registered_metrics
from slabnet.prediction.inspection import inspect_network
from slabnet.prediction.metrics import accuracy, accuracy_with_doubt, negative_log_likelihood
from slabnet.prediction.predict import predict
from slabnet.prediction.ways import DOUBT, Row, plain_row, spike_slab_rows
from slabnet.selection.rules import threshold_model
from slabnet.store import load as load_model
from slabnet.store import load_selection, read_card, read_header, read_selection, save
from slabnet.training.checkpoints import Checkpoints, forget, holds_any
from slabnet.training.fit import fit

DRAWS = 10


@dataclass(frozen=True)
class Fitted:
    """What a fit from the command line found."""

    rows: list[Row]
    notes: list[str]
    history: History
    test_rows: int

    def to_dict(self) -> dict[str, Any]:
        return {"rows": [row.to_dict() for row in self.rows], "history": self.history.to_dict()}


def is_finished(out: Path, name: str, recipe: Recipe) -> bool:
    """Whether `out` is the model of this very fit, so that there is nothing to resume."""
    if not out.is_file() or holds_any(checkpoints_of(out)):
        return False
    card = read_card(out)
    came = {"data": card.data, "recipe": card.recipe}
    wanted = {"data": name, "recipe": recipe.model_dump(mode="json")}
    for key, value in wanted.items():
        if came[key] != value:
            refuse("fit", "--resume", f"used with the settings {out} was fitted with", f"another {key}")
    return True


def fit_named(
    name: str,
    recipe: Recipe,
    out: Path,
    resume: bool = False,
    every_minutes: float = 5.0,
    teacher: Teacher | None = None,
) -> Fitted:
    """Fit a data set by name, write the model, and say how good it is on the test rows."""
    split = load(name)
    method, seed = recipe.network.method, recipe.train.seed
    sizes = (split.inputs, *recipe.network.hidden, split.classes)
    activation = recipe.network.activation
    network: dict[str, Any] = {"activation": activation, "method": method, "members": recipe.network.members}
    net = mlp(
        sizes,
        skip=recipe.network.skip,
        gates="inputs" if recipe.network.gates else None,
        prior=recipe.prior,
        start=recipe.start,
        seed=seed,
        **network,
    )
    folder = checkpoints_of(out)
    keeping = Checkpoints(folder, every_minutes)
    soft = None if teacher is None else teacher.of_rows(split.train[0], split.classes, seed)
    options: dict[str, Any] = {} if teacher is None else {"teacher": soft, "teacher_share": teacher.share}
    history = fit(net, split.train, recipe.train, progress="lines", checkpoint=keeping, resume=resume, **options)
    if not current_group().leads:
        raise Followed
    last, notes = history[-1], []
    if net.method.selects:
        chosen = threshold_model(net, rule="median")
        rows = spike_slab_rows(method, net, net, chosen, split.test, post_trained=False, draws=DRAWS, seed=seed)
        notes.append(f"The median model keeps {chosen.weights} of {chosen.total.weights} weights.")
        if not chosen.feasible:
            notes.append(f"It is infeasible: no input can reach an output, every path ends in {chosen.broken}.")
        if last.alpha_moving > 0.01:
            notes.append(
                f"{last.alpha_moving:.1%} of the inclusion probabilities still move: more epochs may change it."
            )
    else:
        rows = [plain_row(method, net, split.test, seed=seed)]
        if drawable_layers(net):
            rows.insert(0, plain_row(method, net, split.test, draws=DRAWS, seed=seed))
    if teacher is not None:
        notes.append(teacher.line)
    if history.tempered:
        notes.append(f"The KL had weight {history.kl_weight:g}: this is a tempered posterior.")
    about = {"data": name, "recipe": recipe.model_dump(mode="json"), "history": history.to_dict()["epochs"][-1]}
    about["history"].pop("seconds")  # the same fit gives the same bytes
    about |= {"epochs": history.columns(), "rows": [row.to_dict() for row in rows]}
    save(net, out, **about)
    forget(folder)  # the model holds all that matters now
    return Fitted(rows, notes, history, len(split.test[1]))


def predict_named(model: Path, name: str, draws: int, seed: int, out: Path | None) -> dict[str, Any]:
    """Predict the test rows of a data set by name; optionally write one CSV line a row."""
    net = load_model(model)
    assert isinstance(net, Network)
    split = load(name)
    if net.row_shape != (split.inputs,) or net.outputs != split.classes:
        made = f"{net.row_shape} numbers a row and {net.outputs} outputs"
        refuse("predict", "DATA", f"what {model} was made for, {made}", f"{name} with {split.inputs} numbers a row")
    x, y = split.test
    draw: Draw = exact
    rule = read_header(model).get("rule")
    if rule is not None:  # a chosen model was post-trained: that is what the file is for
        draw = fixed(load_selection(model, net).masks, exact)
    prediction = predict(net, x, draws, draw=draw, seed=seed)
    if out is not None:
        write_atomically(out, _as_csv(prediction).encode())
    doubt = accuracy_with_doubt(prediction, y, DOUBT)
    return {
        "data": name,
        "rows": len(y),
        "draws": prediction.draws,
        "model": f"the {one_line(rule, 40)} model" if rule else "structure and weights",
        "accuracy": accuracy(prediction, y),
        "nll": negative_log_likelihood(prediction, y),
        "accuracy_at_95": doubt.accuracy,
        "classified_at_95": doubt.decided,
        "density_used": prediction.density_used,
        **evaluate(prediction, y, registered_metrics(prediction)),
    }


def inspect_file(model: Path, draws: int) -> dict[str, Any]:
    """What `slabnet inspect` shows of a model file."""
    header = read_header(model)
    described = {"model": str(model), "version": str(header.get("version")), "method": None}
    if "network" not in header:
        return described | {"selection": read_selection(model)}
    net = load_model(model)
    assert isinstance(net, Network)
    if net.method.posterior is None:
        has = "a method whose weights have a posterior"
        refuse("inspect", "MODEL", has, f"{net.method.name}, whose weights are plain numbers, all in use")
    card = FitCard.of(header, model) if net.method.selects else None
    return described | {"method": net.method.name} | inspect_network(net, card, draws)


def _as_csv(prediction: Prediction) -> str:
    """prediction, decided, entropies, then a probability for each class."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    classes = prediction.mean.shape[1]
    writer.writerow(["row", "prediction", "decided", "entropy", "aleatoric", "epistemic", *range(classes)])
    decided = prediction.decided(DOUBT)
    for row in range(len(prediction.mean)):
        uncertain = (prediction.total[row], prediction.aleatoric[row], prediction.epistemic[row])
        numbers = [f"{float(v):.6g}" for v in (*uncertain, *prediction.mean[row])]
        writer.writerow([row, int(prediction.labels[row]), int(decided[row]), *numbers])
    return buffer.getvalue()
