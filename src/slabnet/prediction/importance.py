"""Feature importance: paths in drawn models, and how far the answer moves."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from slabnet.core.devices import device_of
from slabnet.core.errors import check_whole, refuse
from slabnet.core.noise import Seed, keyed_generator, seed_number
from slabnet.model.attach import likelihood_of
from slabnet.model.drawing import Draw, Mask, drawing
from slabnet.model.draws import exact, fixed
from slabnet.model.mixture import Mixture
from slabnet.model.paths import find_paths
from slabnet.selection.rules import slab_layers
from slabnet.training.batches import Prepare


@torch.no_grad()
def input_reach(net: nn.Module, draws: int = 100, *, draw: Draw = exact, seed: Seed = 0) -> Tensor:
    """For each input, the share of drawn models in which a path leads from it to an output.

    The exact probability of a path is hard to compute and saturates with width; see `prior_reach` for what an input
    would have before any data.

    >>> from slabnet.model.networks import mlp
    >>> input_reach(mlp((3, 2), likelihood="categorical"), draws=20).shape
    torch.Size([3])
    """
    check_whole("input_reach", "draws", draws, at_least=1)
    number, total = seed_number(seed, "input_reach"), None
    for r in range(draws):
        with drawing(net, draw, keyed_generator(number, "draw", r, device=device_of(net)[0]), r) as scope:
            masks: dict[str, Mask] = {name: (scope.used(layer),) for name, layer in slab_layers(net).items()}
        paths = find_paths(net, masks)
        if paths is None:
            refuse("input_reach", "net", "a chain of layers, whose paths are known", type(net).__name__)
        reached = paths.inputs.double()
        total = reached if total is None else total + reached
    assert total is not None
    return total / draws


def member_reach(net: nn.Module, draws: int = 100, *, draw: Draw = exact, seed: Seed = 0) -> Tensor:
    """(members, inputs): `input_reach` of each member of a mixture; one row for any other network.

    Hidden units of two members are not the same unit, but inputs are: the spread over the members, beside
    `input_reach` of the whole, says how far the answer depends on where training started.

    >>> from slabnet.model.networks import mlp
    >>> member_reach(mlp((3, 2), members=2), draws=20).shape
    torch.Size([2, 3])
    """
    if not isinstance(net, Mixture):
        return input_reach(net, draws, draw=draw, seed=seed)[None]
    draws_of = [draw] * len(net.members) if draw.decided is None else [fixed(m, exact) for m in net.split(draw.decided)]
    each = [input_reach(member, draws, draw=one, seed=seed) for member, one in zip(net.members, draws_of, strict=True)]
    return torch.stack(each)


@torch.no_grad()
def prior_reach(net: nn.Module, draws: int = 100, *, seed: Seed = 0) -> float:
    """The same share, averaged over the inputs, for models drawn from the prior's psi: the yardstick."""
    number, shares = seed_number(seed, "prior_reach"), []
    for r in range(draws):
        generator = keyed_generator(number, "prior", r)
        masks: dict[str, Mask] = {}
        for name, layer in slab_layers(net).items():
            shape = layer.weight.mu.shape
            psi = torch.as_tensor(layer.psi_now(), dtype=torch.float64).cpu()
            masks[name] = (
                (torch.rand(shape, generator=generator, dtype=torch.float64) < psi).to(layer.weight.mu.device),
            )
        paths = find_paths(net, masks)
        if paths is None:
            refuse("prior_reach", "net", "a chain of layers, whose paths are known", type(net).__name__)
        shares.append(float(paths.inputs.double().mean()))
    return sum(shares) / len(shares)


class Slopes(NamedTuple):
    """Slopes of each mean response in each input: E |slope| (outputs, inputs), and mean slopes of every draw."""

    sizes: Tensor
    signed: Tensor


def input_effects(net: nn.Module, x: Any, draws: int = 20, *, draw: Draw = exact, seed: Seed = 0) -> Tensor:
    """(outputs, inputs): how far each mean response moves per unit of each input, E |d mean / d input|.

    The slope is taken in every drawn network at every row of `x`, and its size averaged over rows and draws; an
    input that a draw does not use counts with zero.

    >>> from slabnet.model.networks import mlp
    >>> input_effects(mlp((3, 2)), torch.zeros(4, 3), draws=5).shape
    torch.Size([2, 3])
    """
    return input_slopes(net, x, draws, draw=draw, seed=seed).sizes


def input_slopes(net: nn.Module, x: Any, draws: int = 20, *, draw: Draw = exact, seed: Seed = 0) -> Slopes:
    """The same with its direction: `signed` (draws, outputs, inputs) is the slope averaged over rows.

    >>> from slabnet.model.networks import mlp
    >>> input_slopes(mlp((3, 2)), torch.zeros(4, 3), draws=5).signed.shape
    torch.Size([5, 2, 3])
    """
    check_whole("input_effects", "draws", draws, at_least=1)
    device, dtype = device_of(net)
    likelihood = likelihood_of(net).to(device, dtype)
    rows = Prepare(net, likelihood, dtype, device, "input_effects").features(x)
    number, total, signed = seed_number(seed, "input_effects"), None, []
    for r in range(draws):
        inputs = rows.detach().clone().requires_grad_(True)
        with drawing(net, draw, keyed_generator(number, "draw", r, device=device), r):
            means = likelihood.mean(net(inputs))
            slopes = torch.stack(
                [torch.autograd.grad(means[:, k].sum(), inputs, retain_graph=True)[0] for k in range(means.shape[1])]
            )
        sizes = slopes.abs().mean(1).detach()
        total = sizes if total is None else total + sizes
        signed.append(slopes.mean(1).detach())
    assert total is not None
    return Slopes(total / draws, torch.stack(signed))
