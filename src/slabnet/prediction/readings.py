"""Decisions as the authors' public scripts take them, beside ours: the same draws, read in another way.

The scripts pass the output of each draw through the logistic function, divide by the sum over the classes, and
average that over the draws: p / (1 + p) for log-probabilities, 1 / (1 + exp(-logit)) for raw logits. The class is the
one whose output is largest on average, and it is decided where its number is at least 0.95. Ours averages
probabilities (Algorithm 2).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
from torch import Tensor, nn

from slabnet.core.devices import device_of
from slabnet.core.noise import keyed_generator
from slabnet.model.drawing import Draw, count_draws, drawing

CHUNK = 1000
SCRIPT_DRAWS, SCRIPT_SHARE = 20_000, 10  # their test loop draws anew for every five images; the count is divided by ten


@dataclass(frozen=True)
class AuthorsReading:
    """What the scripts would print for the same draws.

    accuracy: of the class with the largest averaged output. decided, right: how many images are decided at 0.95, and
        how many of those are right. density: the share of weights they print for ten draws, None where there is none.
    """

    accuracy: float
    decided: int
    right: int
    density: float | None = None

    def to_dict(self) -> dict[str, float | int | None]:
        return asdict(self)


def renormalised_sigmoid(outputs: Tensor) -> Tensor:
    """The logistic function of each output, divided by the sum over the classes.

    >>> renormalised_sigmoid(torch.tensor([[0.974, 0.026]]).log()).round(decimals=2).tolist()
    [[0.949999988079071, 0.05000000074505806]]
    """
    each = torch.sigmoid(outputs)
    return each / each.sum(-1, keepdim=True)


@torch.no_grad()
def authors_reading(
    net: nn.Module, x: Tensor, y: Tensor, draws: int, *, draw: Draw, seed: int, raw: bool, threshold: float = 0.95
) -> AuthorsReading:
    """Read `draws` joint draws of the network as the scripts do; the draws are those of `predict` with this seed.

    net: a network with logits for its classes. x, y: the rows and their classes.
    raw: whether the script works on raw logits (horseshoe) or on log-probabilities (all others).
    threshold: what the averaged number of the predicted class must reach for a decision.

    >>> from slabnet.model.draws import exact
    >>> from slabnet.model.networks import mlp
    >>> rows = torch.zeros(3, 4)
    >>> authors_reading(mlp((4, 2)), rows, torch.zeros(3).long(), 2, draw=exact, seed=0, raw=False).decided
    0
    """
    device, dtype = device_of(net)
    outputs = sureness = torch.zeros(())
    draws = count_draws(net, draw, draws)
    for r in range(draws):
        with drawing(net, draw, keyed_generator(seed, "draw", r, device=device), r):
            logits = torch.cat([net(rows.to(device, dtype)) for rows in torch.split(x, CHUNK)]).double().cpu()
        each = logits if raw else torch.log_softmax(logits, -1)
        outputs, sureness = outputs + each, sureness + renormalised_sigmoid(each)
    labels = outputs.argmax(-1)
    decided = (sureness / draws).gather(1, labels[:, None])[:, 0] >= threshold
    right = labels == y.cpu()
    return AuthorsReading(float(right.double().mean()), int(decided.sum()), int((decided & right).sum()))


def scripts_density(alphas: list[Tensor]) -> float:
    """The density the scripts print for ten draws: the expected share of weights used in their 20 000 draws, over ten.

    >>> scripts_density([torch.tensor([1.0, 0.0])])
    0.05
    """
    used = sum(float((1 - (1 - alpha.double()) ** SCRIPT_DRAWS).sum()) for alpha in alphas)
    return used / sum(alpha.numel() for alpha in alphas) / SCRIPT_SHARE
