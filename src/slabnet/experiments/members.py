"""An ensemble as runs of its own: each member is a plain network's run, wherever an engine makes it."""

from __future__ import annotations

from pathlib import Path

import torch

from slabnet.config.methods import METHODS
from slabnet.core.noise import keyed_generator
from slabnet.experiments.files import Files
from slabnet.experiments.profiles import Plan
from slabnet.model.baselines import Ensemble
from slabnet.model.networks import Network
from slabnet.store import load

MEMBER = "deterministic"


def members_of(plan: Plan) -> list[Plan]:
    """The runs that an ensemble consists of; none for every other method."""
    if METHODS[plan.method].wrapper != "ensemble":
        return []
    plans = []
    for number in range(int(dict(METHODS[plan.method].options)["members"])):
        generator = keyed_generator(plan.seed, "member", number)
        seed = int(torch.randint(2**31, (), generator=generator))
        network = plan.network.model_copy(update={"method": MEMBER})
        train = plan.train.model_copy(update={"seed": seed})
        plans.append(plan.model_copy(update={"network": network, "train": train, "seed": seed}))
    return plans


def members_folder(plan: Plan, folder: Path) -> Path:
    """Where the members' runs are kept until the ensemble's own record is written."""
    return Files(folder, plan.key).work / "members"


@torch.no_grad()
def assemble(net: Network, plan: Plan, folder: Path) -> None:
    """Fill an ensemble with its members, whose runs are finished."""
    layers = [part for part in net.body if isinstance(part, Ensemble)]
    for number, member in enumerate(members_of(plan)):
        made = load(Files(members_folder(plan, folder), member.key).model)
        plain = [part for part in made.get_submodule("body").children() if any(True for _ in part.parameters())]
        for layer, theirs in zip(layers, plain, strict=True):
            layer.layers[number].load_state_dict(theirs.state_dict())
