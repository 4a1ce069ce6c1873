"""One run of a comparison: fit, choose, post-train, predict in every way, and write all of it as one record.

The way of the data: Split -> fit -> Selection -> fit(fixed) -> predict -> metrics -> record. A record is plain JSON and
the only source of tables and figures.
"""

from __future__ import annotations

import copy
import logging
import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from slabnet.compact.network import compact
from slabnet.core.errors import SlabnetError
from slabnet.core.records import Epoch, Selection
from slabnet.data import Split, load
from slabnet.data.fetch import NoData
from slabnet.experiments.building import in_shape, network_of
from slabnet.experiments.files import Files, is_done, read_record, write_pictures, write_record
from slabnet.experiments.folds import fold_of
from slabnet.experiments.measures import averaging_curve, describe_layers, ood_entropies, trustworthiness
from slabnet.experiments.members import assemble, members_folder, members_of
from slabnet.experiments.pictures import pictures_of
from slabnet.experiments.profiles import Plan, Profile
from slabnet.experiments.progress import note_epochs
from slabnet.experiments.provenance import provenance
from slabnet.model.networks import Network
from slabnet.prediction.ways import rows_of
from slabnet.selection.pruning import prune
from slabnet.selection.rules import InfeasibleModel, median_model, slab_layers, threshold_model
from slabnet.store import save
from slabnet.training.checkpoints import Checkpoints
from slabnet.training.fit import fit
from slabnet.training.members import Fixed
from slabnet.training.progress import Show

DRAWS = 10
SCRIPTS_PRUNING = {
    "normal-jeffreys": (2.8, 3.0, 5.0)
}  # of minus log alpha, in the three layers of the authors' scripts
logger = logging.getLogger("slabnet")
FOREIGN = {"mnist": "fashion-mnist", "fashion-mnist": "mnist"}


def run(plan: Plan, folder: Path, *, show: Show = "lines", pictures: bool = False) -> dict[str, Any]:
    """Run `plan` from where its checkpoints left off, write its record into `folder`, and return it."""
    folder.mkdir(parents=True, exist_ok=True)
    files = Files(folder, plan.key)
    with claimed(files.work):
        if is_done(plan, folder):  # by somebody else, while this one waited for its turn
            return read_record(files.record)
        return _Experiment(plan, files, show).run(pictures)


class Claimed(SlabnetError):
    """A run that another process is making."""


@contextmanager
def claimed(work: Path) -> Iterator[None]:
    """Have a run to oneself, or raise `Claimed`; the claim ends with the process, however that ends.

    Without `fcntl` (Windows) nothing is claimed: two processes would both make the run, and write the same record.
    """
    try:
        import fcntl
    except ImportError:
        yield
        return
    work.mkdir(parents=True, exist_ok=True)
    lock = work.with_suffix(".lock")
    with open(lock, "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(file.fileno()).st_ino != lock.stat().st_ino:  # its owner ended, and somebody has made a new one
                raise OSError
        except OSError:
            raise Claimed(f"reproduce: {work.stem} is being run by another process") from None
        try:
            yield
        finally:
            lock.unlink(missing_ok=True)
            if work.is_dir() and not any(work.iterdir()):
                work.rmdir()


class _Experiment:
    """The stages of one run, each with checkpoints of its own."""

    def __init__(self, plan: Plan, files: Files, show: Show) -> None:
        self.plan, self.files, self.show = plan, files, show
        whole = load(plan.dataset)
        self.split = in_shape(plan, whole if plan.fold is None else fold_of(whole, *plan.fold))
        other = _ood(plan)
        self.ood = None if other is None else in_shape(plan, other)
        self.made_by = provenance()  # of what runs here, whatever is committed meanwhile
        self.histories: dict[str, dict[str, Any]] = {}  # columns of the epochs
        self.seconds: dict[str, float] = {}

    def run(self, pictures: bool) -> dict[str, Any]:
        plan, test = self.plan, self.split.test
        net = network_of(plan, self.split)
        if members_of(plan):
            self._fit_members(net)
        else:
            self._fit("fit", net, None)
        chosen = _choose(net)
        options: dict[str, Any] = {"draws": DRAWS, "seed": plan.seed, "readings": True}
        rows = rows_of(net, chosen, net, test, post_trained=False, **options)
        joint: Network = net
        small: Network = net
        if plan.post_alpha and "alpha" in net.method.post_training:
            joint = copy.deepcopy(net)
            self._fit("post-alpha", joint, "alpha")
        if "a Selection" in net.method.post_training and chosen is not None:
            small = copy.deepcopy(net)
            self._post_train(small, chosen)
        if net.method.post_training:
            rows += rows_of(joint, chosen, small, test, post_trained=True, **options)
        versions: dict[str, Network] = {"as fitted": net} | ({"post-trained": joint} if joint is not net else {})
        record = self._measure(net, chosen, versions) | {"rows": [row.to_dict() for row in rows]}
        record["seconds"] = {name: round(value, 1) for name, value in self.seconds.items()}
        about = {"data": plan.dataset, "seed": plan.seed, "config": record["plan"], "command": record["command"]}
        about |= {"rows": record["rows"], "epochs": record["history"]["fit"]}
        save(small, self.files.model, selection=chosen if small is not net else None, **about)
        if pictures and net.method.selects and plan.maps is None:  # pictures show matrices
            write_pictures(self.files.pictures, pictures_of(net, self.split, self.ood, plan.seed))
        write_record(self.files.record, record)
        shutil.rmtree(self.files.work, ignore_errors=True)
        return read_record(self.files.record)

    def _measure(self, net: Network, chosen: Selection | None, versions: dict[str, Network]) -> dict[str, Any]:
        """What a record holds besides the rows of Table 1."""
        plan, test, ood, started = self.plan, self.split.test, self.ood, time.perf_counter()
        sizes = {"train": len(self.split.train[1]), "test": len(test[1])}
        entropies = None
        if ood is not None:
            entropies = {
                name: ood_entropies(version, test, ood.test, DRAWS, plan.seed) for name, version in versions.items()
            }
        record = {
            "plan": plan.model_dump(mode="json"),
            "command": _command(plan),
            **self.made_by,
            "data": sizes | {"ood": None if ood is None else ood.name},
            "layers": describe_layers(net, chosen),
            "counts": None if chosen is None else chosen.counts._asdict(),
            "averaging": averaging_curve(net, test, plan.seed),
            "trust": {name: trustworthiness(version, test, DRAWS, plan.seed) for name, version in versions.items()},
            "ood": entropies,
            "history": self.histories,
        }
        self.seconds["measure"] = time.perf_counter() - started
        return record

    def _fit(self, stage: str, net: Network, fixed: Fixed) -> None:
        config = self.plan.train if stage == "fit" else self.plan.post
        checkpoints = Checkpoints(self.files.work / stage)
        before = sum(len(columns["kl"]) for columns in self.histories.values())

        def note(epoch: Epoch) -> None:
            note_epochs(self.files.work, before + epoch.epoch)

        options: dict[str, Any] = {"progress": self.show, "checkpoint": checkpoints, "resume": True, "on_epoch": note}
        history = fit(net, self.split.train, config, fixed=fixed, **options)
        self.histories[stage] = history.columns()
        self.seconds[stage] = sum(history.column("seconds"))

    def _post_train(self, net: Network, chosen: Selection) -> None:
        """Post-train a chosen model, in its compact form where it has one: the same steps for less."""
        if net.method.wrapper is not None or chosen.feasible is False:
            self._fit("post-chosen", net, chosen)
            return
        small = compact(net, chosen, keep="distribution")
        self._fit("post-chosen", small, None)
        small.put_back(net)

    def _fit_members(self, net: Network) -> None:
        """The members that no engine has made yet, then all of them as one network."""
        folder = members_folder(self.plan, self.files.folder)
        for number, member in enumerate(members_of(self.plan)):
            record = run(member, folder, show=self.show)
            name = "fit" if number == 0 else f"member-{number + 1}"
            self.histories[name], self.seconds[name] = record["history"]["fit"], record["seconds"]["fit"]
        assemble(net, self.plan, self.files.folder)


def _ood(plan: Plan) -> Split | None:
    """The data set that a network of this one should not recognise, where its files are at hand."""
    name = FOREIGN.get(plan.dataset)
    try:
        return None if name is None else load(name)
    except NoData as error:
        logger.warning("%s; %s goes on without out-of-distribution rows", error, plan.key)
        return None


def _choose(net: Network) -> Selection | None:
    """The median model, or what is left after pruning; None for methods that choose nothing."""
    if net.method.prunes:
        limits = SCRIPTS_PRUNING.get(net.method.name)
        return prune(net, limits if limits is not None and len(limits) == len(slab_layers(net)) else None)
    if not net.method.selects:
        return None
    try:
        return median_model(net)
    except InfeasibleModel:
        return threshold_model(net, rule="median")  # its rows say what it is worth


def _command(plan: Plan) -> str:
    widths = ",".join(map(str, plan.network.hidden))
    folds = "" if plan.fold is None else f" --folds {plan.fold[1]}"
    usual = Profile.named(plan.profile).plan(plan.dataset, plan.method, plan.seed, hidden=plan.network.hidden)
    for option, ours, theirs in (("epochs", plan.train, usual.train), ("post-epochs", plan.post, usual.post)):
        folds += "" if ours.epochs == theirs.epochs else f" --{option} {ours.epochs}"
    return (
        f"slabnet reproduce --dataset {plan.dataset} --profile {plan.profile} --methods {plan.method} "
        f"--first-seed {plan.seed} --runs 1 --hidden {widths}{folds}"
    )
