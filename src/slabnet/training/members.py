"""The members of a mixture, trained one after the other: each is a whole run of Algorithm 1 from a start of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, Literal

import torch

from slabnet.core.noise import Seed, seed_number
from slabnet.core.records import Epoch, History, Selection
from slabnet.model.likelihoods import Likelihood
from slabnet.model.mixture import Mixture, member_seed
from slabnet.model.network import Network
from slabnet.training.checkpoints import Checkpoints
from slabnet.training.starts import DataStart

Fixed = Selection | Literal["alpha"] | None
FitOne = Callable[[Network, Fixed, int, Checkpoints | None, int], History]


def fit_members(
    net: Mixture,
    fit_one: FitOne,
    begin: DataStart,
    likelihood: Likelihood,
    fixed: Fixed,
    seed: Seed,
    checkpoint: Checkpoints | None,
) -> History:
    """Train every member by `fit_one(network, fixed, seed, checkpoint, number)`, each with a dispersion of its own.

    The dispersion of the mixture is then one for all: each parameter of its posterior is the mean over the members.
    Linear members that began at different maxima (`begin`) are weighed by their bounds.
    """
    number = seed_number(seed, "fit")
    learned, histories = [], []
    for k, (member, masks) in enumerate(zip(net.members, _fixed_of(net, fixed), strict=True)):
        alone = copy.deepcopy(likelihood)
        member.take_likelihood(alone)
        checkpoints = None if checkpoint is None else replace(checkpoint, folder=member_folder(checkpoint.folder, k))
        try:
            histories.append(fit_one(member, masks, member_seed(number, k), checkpoints, k))
        finally:
            net.take_likelihood(likelihood)
        learned.append(alone)
    device, dtype = next((p.device, p.dtype) for p in net.members[0].parameters())
    net.to(device, dtype)
    net.take_likelihood(likelihood)
    weights = begin.weights(net.members)
    if weights is not None:
        net.weigh(weights)
    _average(likelihood, learned, net.weights.tolist())
    return joined(histories, net.weights.tolist())


def member_folder(folder: str | Path, member: int) -> Path:
    """Where the run of a member is kept, in the folder of the whole fit."""
    return Path(folder) / f"member-{member}"


def _fixed_of(net: Mixture, fixed: Fixed) -> Sequence[Fixed]:
    """What is fixed of each member."""
    if not isinstance(fixed, Selection):
        return [fixed] * len(net.members)
    return [replace(fixed, masks=masks) for masks in net.split(fixed.masks)]


@torch.no_grad()
def _average(likelihood: Likelihood, learned: Sequence[Likelihood], weights: Sequence[float]) -> None:
    for values in zip(likelihood.parameters(), *(each.parameters() for each in learned), strict=True):
        mixed, *each = values
        mixed.copy_(sum(w * value for w, value in zip(weights, each, strict=True)))


def joined(histories: Sequence[History], weights: Sequence[float]) -> History:
    """One history of all members: means of their epochs; a member that stopped early stays at its last one."""
    first = histories[0]
    longest = max(map(len, histories))
    rows = [[history[min(e, len(history) - 1)] for history in histories] for e in range(longest)]
    return History(
        epochs=tuple(_mean_epoch(e + 1, row, weights) for e, row in enumerate(rows)),
        n=first.n,
        steps=sum(history.steps for history in histories),
        kl_weight=sum(w * history.kl_weight for w, history in zip(weights, histories, strict=True)),
        stopped_early=any(history.stopped_early for history in histories),
        config=first.config,
        members=tuple(histories),
        teacher_share=first.teacher_share,
    )


def _mean_epoch(number: int, epochs: Sequence[Epoch], weights: Sequence[float]) -> Epoch:
    values: dict[str, Any] = {"epoch": number}
    for name in (field.name for field in fields(Epoch) if field.name != "epoch"):
        column = [getattr(epoch, name) for epoch in epochs]
        known = None not in column
        values[name] = sum(w * value for w, value in zip(weights, column, strict=True)) if known else None
    return Epoch(**values | {"seconds": sum(epoch.seconds for epoch in epochs)})
