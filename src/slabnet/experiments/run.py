"""One run of a comparison: fit, choose, post-train, predict in every way, and write all of it as one record.

The way of the data: Split -> fit -> Selection -> fit(fixed) -> predict -> metrics -> record. A record is plain JSON and
the only source of tables and figures.
"""

from __future__ import annotations

import copy
import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slabnet.checkpoints import Checkpoints
from slabnet.checks import ArgumentError, FileError
from slabnet.data import Split, load
from slabnet.experiments.measures import averaging_curve, describe_layers, foreign_entropies, trustworthiness
from slabnet.experiments.pictures import pictures_of
from slabnet.experiments.profiles import Plan
from slabnet.experiments.provenance import provenance
from slabnet.experiments.rows import rows_of
from slabnet.files import write_atomically
from slabnet.networks import Network, mlp
from slabnet.progress import Show
from slabnet.pruning import prune
from slabnet.records import History, Selection
from slabnet.select import InfeasibleModel, median_model, threshold_model
from slabnet.store import save
from slabnet.train import fit

FORMAT = 1
DRAWS = 10
FOREIGN = {"mnist": "fashion-mnist", "fashion-mnist": "mnist"}


@dataclass(frozen=True)
class Files:
    """The files of one run in a results folder."""

    folder: Path
    key: str

    @property
    def record(self) -> Path:
        return self.folder / f"{self.key}.json"

    @property
    def pictures(self) -> Path:
        return self.folder / f"{self.key}.pictures.json"

    @property
    def model(self) -> Path:
        return self.folder / f"{self.key}.slab"

    @property
    def work(self) -> Path:
        """Checkpoints, while the run goes on."""
        return self.folder / f"{self.key}.run"


def is_done(plan: Plan, folder: Path) -> bool:
    """Whether the record of this very plan is there; a record of another plan under its name is refused."""
    path = Files(folder, plan.key).record
    if not path.is_file():
        return False
    came = read_record(path)["plan"]
    wanted = plan.model_dump(mode="json")
    differs = [name for name in wanted if name != "departures" and wanted[name] != came.get(name)]
    if differs:
        said = f"got another {differs[0]}; use another --out"
        raise ArgumentError(f"reproduce: {path} must be of the same settings, {said}")
    return True


def read_record(path: Path) -> dict[str, Any]:
    """A record, or one line that says why the file is none."""
    try:
        found = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise FileError(f"records: {path} must be a record of a run, got: {error}") from None
    if not isinstance(found, dict) or found.get("format") != FORMAT or not {"plan", "rows", "layers"} <= set(found):
        raise FileError(f"records: {path} must be a record of a run, got another kind of JSON")
    return found


def run(plan: Plan, folder: Path, *, show: Show = "lines", pictures: bool = False) -> dict[str, Any]:
    """Run `plan` from where its checkpoints left off, write its record into `folder`, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    return _Experiment(plan, Files(folder, plan.key), show).run(pictures)


class _Experiment:
    """The stages of one run, each with checkpoints of its own."""

    def __init__(self, plan: Plan, files: Files, show: Show) -> None:
        self.plan, self.files, self.show = plan, files, show
        self.split = load(plan.dataset)
        self.histories: dict[str, History] = {}
        self.seconds: dict[str, float] = {}

    def run(self, pictures: bool) -> dict[str, Any]:
        plan, test = self.plan, self.split.test
        network = plan.network
        sizes = (self.split.inputs, *network.hidden, self.split.classes)
        net = mlp(
            sizes,
            activation=network.activation,
            method=plan.method,
            prior=plan.prior,
            start=plan.start,
            seed=plan.seed,
        )
        self._fit("fit", net, None)
        chosen = _choose(net)
        options: dict[str, Any] = {"draws": DRAWS, "seed": plan.seed}
        rows = rows_of(net, chosen, net, test, post_trained=False, **options)
        joint: Network = net
        small: Network = net
        if "alpha" in net.method.post_training:
            joint = copy.deepcopy(net)
            self._fit("post-alpha", joint, "alpha")
        if "a Selection" in net.method.post_training and chosen is not None:
            small = copy.deepcopy(net)
            self._fit("post-chosen", small, chosen)
        if net.method.post_training:
            rows += rows_of(joint, chosen, small, test, post_trained=True, **options)
        foreign = self._foreign()
        versions: dict[str, Network] = {"as fitted": net} | ({"post-trained": joint} if joint is not net else {})
        started = time.perf_counter()
        record = {
            "format": FORMAT,
            "plan": plan.model_dump(mode="json"),
            "command": _command(plan),
            **provenance(),
            "data": {"train": len(self.split.train[1]), "test": len(test[1]), "foreign": FOREIGN.get(plan.dataset)},
            "rows": [row.to_dict() for row in rows],
            "layers": describe_layers(net, chosen),
            "averaging": averaging_curve(net, test, plan.seed),
            "trust": {name: trustworthiness(version, test, DRAWS, plan.seed) for name, version in versions.items()},
            "foreign": None
            if foreign is None
            else {
                name: foreign_entropies(version, test, foreign.test, DRAWS, plan.seed)
                for name, version in versions.items()
            },
            "history": {name: _columns(history) for name, history in self.histories.items()},
        }
        self.seconds["measure"] = time.perf_counter() - started
        record["seconds"] = {name: round(value, 1) for name, value in self.seconds.items()}
        save(small, self.files.model, selection=chosen if small is not net else None, data=plan.dataset)
        if pictures and net.method.selects:
            _write(self.files.pictures, pictures_of(net, self.split, foreign, plan.seed))
        _write(self.files.record, record)
        shutil.rmtree(self.files.work, ignore_errors=True)
        return record

    def _fit(self, stage: str, net: Network, fixed: Any) -> None:
        config = self.plan.train if stage == "fit" else self.plan.post
        kept = Checkpoints(self.files.work / stage)
        history = fit(net, self.split.train, config, fixed=fixed, progress=self.show, checkpoint=kept, resume=True)
        self.histories[stage] = history
        self.seconds[stage] = sum(history.column("seconds"))

    def _foreign(self) -> Split | None:
        """The data set that a network of this one should not recognise, where its files are at hand."""
        name = FOREIGN.get(self.plan.dataset)
        try:
            return None if name is None else load(name)
        except ArgumentError:
            return None


def _choose(net: Network) -> Selection | None:
    """The median model, or what is left after pruning; None for methods that choose nothing."""
    if net.method.wrapper == "horseshoe":
        return prune(net)
    if not net.method.selects:
        return None
    try:
        return median_model(net)
    except InfeasibleModel:
        return threshold_model(net, rule="median")  # its rows say what it is worth


def _command(plan: Plan) -> str:
    widths = ",".join(map(str, plan.network.hidden))
    return (
        f"slabnet reproduce --dataset {plan.dataset} --profile {plan.profile} --methods {plan.method} "
        f"--first-seed {plan.seed} --runs 1 --hidden {widths}"
    )


def _columns(history: History) -> dict[str, Any]:
    """The epochs as columns of six digits: a long history stays small."""
    names = ("log_likelihood", "kl", "kl_weight", "density_expected", "density_median", "alpha_moving", "omega_lr")
    found: dict[str, Any] = {name: [float(f"{v:.6g}") for v in history.column(name)] for name in names}
    return found | {"steps": history.steps, "n": history.n, "tempered": history.tempered}


def _write(path: Path, value: dict[str, Any]) -> None:
    write_atomically(path, (json.dumps(value, allow_nan=False) + "\n").encode())
