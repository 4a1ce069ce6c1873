"""What the model is made of: which columns are in it, which of them only linearly, and how deep it is."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn

from slabnet.core.devices import device_of
from slabnet.core.errors import check_whole, one_line, refuse
from slabnet.core.noise import Seed, keyed_generator, seed_number
from slabnet.model.drawing import Mask, drawing
from slabnet.model.draws import exact
from slabnet.model.paths import find_paths
from slabnet.model.wrapped import Wraps
from slabnet.selection.rules import slab_layers


@dataclass(frozen=True)
class Structure:
    """Shares of networks drawn from the posterior.

    used: for each input, those in which a path leads from it to an output. linear: those in which it is used and every
    path from it enters at the last layer, so that it is in the model only linearly. depth: layers on the longest path
    (0: no input reaches an output) -> share.
    """

    names: tuple[str, ...]
    used: tuple[float, ...]
    linear: tuple[float, ...]
    depth: Mapping[int, float]
    draws: int

    def rows(self) -> list[tuple[str, str, str]]:
        """One for each input: name, share used, and share of those in which it is only linear."""
        triples = zip(self.names, self.used, self.linear, strict=True)
        return [(name, f"{used:.2f}", f"{linear / used:.2f}" if used else "-") for name, used, linear in triples]

    def __str__(self) -> str:
        table = [
            ("input", "used", "only linearly, if used"),
            *((one_line(row[0], 40), *row[1:]) for row in self.rows()),
        ]
        widths = [max(len(row[i]) for row in table) for i in range(3)]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in table
        ]
        depths = ", ".join(f"{layers}: {share:.2f}" for layers, share in sorted(self.depth.items()))
        return "\n".join([*lines, f"Layers on the longest path, in {self.draws} drawn networks: {depths}."])

    def _repr_html_(self) -> str:
        cells = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in self.rows())
        head = "<tr><th>input</th><th>used</th><th>only linearly, if used</th></tr>"
        return f"<table>{head}{cells}</table>"


@torch.no_grad()
def structure(
    net: nn.Module | Wraps, draws: int = 100, *, names: Sequence[str] | None = None, seed: Seed = 0
) -> Structure:
    """What networks drawn from the posterior are made of; `net`: a network that is a chain of layers, or an estimator.

    names: of the inputs; None takes those of the estimator, or x0, x1 and so on.

    >>> from slabnet.model.networks import mlp
    >>> structure(mlp((2, 3, 1), skip=True, likelihood="gaussian"), draws=5).names
    ('x0', 'x1')
    """
    check_whole("structure", "draws", draws, at_least=1)
    if isinstance(net, Wraps):
        whole = net.wrapped()
        net, names = whole.net, whole.inputs if names is None else names
    number, device = seed_number(seed, "structure"), device_of(net)[0]
    used = linear = torch.zeros(0)
    depth: dict[int, int] = {}
    for r in range(draws):
        with drawing(net, exact, keyed_generator(number, "draw", r, device=device), r) as scope:
            masks: dict[str, Mask] = {name: (scope.used(layer),) for name, layer in slab_layers(net).items()}
        paths = find_paths(net, masks)
        if paths is None:
            refuse("structure", "net", "a chain of layers, whose paths are known", type(net).__name__)
        inputs, straight = paths.inputs.double().cpu(), paths.linear.double().cpu()
        used, linear = (inputs, straight) if r == 0 else (used + inputs, linear + straight)
        depth[paths.depth] = depth.get(paths.depth, 0) + 1
    names = [f"x{i}" for i in range(len(used))] if names is None else [str(name) for name in names]
    if len(names) != len(used):
        refuse("structure", "names", f"one for each of the {len(used)} inputs", f"{len(names)} names")
    shares = {layers: count / draws for layers, count in depth.items()}
    return Structure(tuple(names), tuple((used / draws).tolist()), tuple((linear / draws).tolist()), shares, draws)
