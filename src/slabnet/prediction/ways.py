"""The rows of the paper's Table 1 for one fitted network: every way to predict with it."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, replace
from typing import Any

from torch import Tensor, nn

from slabnet.config.methods import METHODS
from slabnet.core.records import Selection
from slabnet.model.drawing import Draw, drawable_layers, mean
from slabnet.model.draws import exact, fixed
from slabnet.model.layers import SlabLayer
from slabnet.model.networks import Network
from slabnet.prediction.metrics import accuracy, accuracy_with_doubt
from slabnet.prediction.predict import predict
from slabnet.prediction.readings import authors_reading, scripts_density

DOUBT = 0.95
RAW_LOGITS = ("horseshoe", "normal-jeffreys")  # whose public scripts decide by raw logits
# more than weights is drawn: SIM in Table 1
DRAWS_STRUCTURE = ("concrete-dropout", "mc-dropout", "horseshoe", "normal-jeffreys")

Rows = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Row:
    """One way to predict. gamma: SIM drawn, MED median model, PRN pruned, ALL every weight; beta: SIM drawn, EXP mean.

    weights: how many weights the way uses, over all its draws; intercepts are not counted.
    authors: what the authors' scripts would print for the same draws (`readings.py`), None where that was not computed.
    """

    method: str
    gamma: str
    beta: str
    post_trained: bool
    draws: int
    accuracy: float
    accuracy_at_95: float | None
    classified_at_95: int
    density_used: float
    density_median: float
    density_expected: float
    density_active: float | None
    weights: int
    authors: dict[str, float | int | None] | None = None

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def spike_slab_rows(
    method: str,
    joint: nn.Module,
    chosen_net: nn.Module,
    chosen: Selection,
    test: Rows,
    *,
    post_trained: bool,
    draws: int,
    seed: int,
    readings: bool = False,
) -> list[Row]:
    """The six rows of Table 1 for a network with indicators.

    joint: the network for the rows that draw or average gamma; chosen_net: that for the rows of the median
    model (the same network before post-training).
    """
    masks = chosen.masks
    ways: list[tuple[str, str, nn.Module, Draw, int]] = [
        ("SIM", "SIM", joint, exact, 1),
        ("SIM", "SIM", joint, exact, draws),
        ("ALL", "EXP", joint, mean, 1),
        ("MED", "SIM", chosen_net, fixed(masks, exact), 1),
        ("MED", "SIM", chosen_net, fixed(masks, exact), draws),
        ("MED", "EXP", chosen_net, fixed(masks), 1),
    ]
    return [
        _row(method, gamma, beta, post_trained, net, draw, number, chosen, test, seed, readings)
        for gamma, beta, net, draw, number in ways
    ]


def rows_of(
    net: Network,
    chosen: Selection | None,
    chosen_net: nn.Module | None,
    test: Rows,
    *,
    post_trained: bool,
    draws: int,
    seed: int,
    readings: bool = False,
) -> list[Row]:
    """The rows of Table 1 that the method of `net` has.

    chosen, chosen_net: the model that was chosen (by alpha or by pruning), and the network that predicts with it.
    readings: also read the averaged rows as the authors' scripts do, which draws everything once more.
    """
    method = net.method
    options: dict[str, Any] = {"post_trained": post_trained, "seed": seed, "readings": readings}
    if method.selects:
        assert chosen is not None
        return spike_slab_rows(method.name, net, chosen_net or net, chosen, test, draws=draws, **options)
    drawn = drawable_layers(net)
    gamma = "SIM" if method.wrapper in DRAWS_STRUCTURE else "ALL"
    ways: list[tuple[str, str, nn.Module, Draw, int]] = []
    if chosen is None or not post_trained:
        ways += [(gamma, "SIM", net, exact, r) for r in (1, draws)] if drawn else []
        ways += [("ALL", "EXP", net, mean, 1)]
    if chosen is not None:
        assert chosen_net is not None
        ways += [("PRN", "SIM", chosen_net, fixed(chosen.masks, exact), r) for r in (1, draws)]
        ways += [("PRN", "EXP", chosen_net, fixed(chosen.masks), 1)]
    return [
        _row(method.name, g, b, post_trained, way_net, draw, r, chosen if g == "PRN" else None, test, seed, readings)
        for g, b, way_net, draw, r in ways
    ]


def plain_row(method: str, net: nn.Module, test: Rows, *, draws: int = 1, seed: int = 0) -> Row:
    """The row of a network without indicators: every weight in use."""
    draw = mean if draws == 1 else exact
    return _row(method, "ALL", "EXP" if draws == 1 else "SIM", False, net, draw, draws, None, test, seed)


def _row(
    method: str,
    gamma: str,
    beta: str,
    post_trained: bool,
    net: nn.Module,
    draw: Draw,
    draws: int,
    chosen: Selection | None,
    test: Rows,
    seed: int,
    readings: bool = False,
) -> Row:
    x, y = test
    prediction = predict(net, x, draws, draw=draw, seed=seed)
    authors = _authors(method, gamma, net, draw, draws, test, seed) if readings and draws > 1 else None
    doubt = accuracy_with_doubt(prediction, y, DOUBT)
    return Row(
        method=method,
        gamma=gamma,
        beta=beta,
        post_trained=post_trained,
        draws=prediction.draws,  # an ensemble has as many as it has members
        accuracy=accuracy(prediction, y),
        accuracy_at_95=doubt.accuracy,
        classified_at_95=doubt.decided,
        density_used=prediction.density_used,
        density_median=1.0 if chosen is None else chosen.total.median,
        density_expected=1.0 if chosen is None else chosen.total.expected,
        density_active=1.0 if chosen is None else chosen.total.active,
        weights=prediction.used_weights,
        authors=authors,
    )


def _authors(
    method: str, gamma: str, net: nn.Module, draw: Draw, draws: int, test: Rows, seed: int
) -> dict[str, float | int | None]:
    """The scripts' reading of the same draws, and the density they print where indicators are drawn."""
    reading = authors_reading(net, *test, draws, draw=draw, seed=seed, raw=method in RAW_LOGITS)
    if gamma == "SIM" and METHODS[method].selects:
        alphas = [part.alpha.detach().cpu() for part in drawable_layers(net).values() if isinstance(part, SlabLayer)]
        reading = replace(reading, density=scripts_density(alphas))
    return reading.to_dict()


def print_rows(title: str, rows: list[Row]) -> None:
    """A table like the paper's Table 1."""
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in ("method", "gamma", "beta", "post-tr.", "R", "accuracy", "at 0.95", "decided", "density", "weights"):
        table.add_column(name, justify="left" if name in ("method", "gamma", "beta") else "right")
    for row in rows:
        sure = "-" if row.accuracy_at_95 is None else f"{row.accuracy_at_95:.3f}"
        post = "Y" if row.post_trained else "N"
        numbers = [f"{row.accuracy:.3f}", sure, str(row.classified_at_95), f"{row.density_used:.4f}", str(row.weights)]
        table.add_row(row.method, row.gamma, row.beta, post, str(row.draws), *numbers)
    Console(width=None if sys.stdout.isatty() else 110).print(table)
