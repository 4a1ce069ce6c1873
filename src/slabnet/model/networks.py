"""Ready-made networks: `mlp`, `convnet`, and the registry of methods they can be built with."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from slabnet.config.activations import Activations, as_written, check_activation
from slabnet.config.settings import Beta, Prior, Start
from slabnet.core.errors import check_choice, check_whole, refuse
from slabnet.core.noise import Seed, seed_number
from slabnet.model.beyond import Beyond
from slabnet.model.builder import DIMENSIONS, POSTERIORS, WRAPPERS, Builder
from slabnet.model.declared import members_of_spec
from slabnet.model.drawing import drawable_layers
from slabnet.model.gate_plan import GatePlan
from slabnet.model.layers import Linear
from slabnet.model.layers.conv import Kernel
from slabnet.model.likelihoods import Likelihood, likelihood_from
from slabnet.model.mixture import MOST_MEMBERS, Mixture, member_seed
from slabnet.model.network import Network
from slabnet.model.skips import chained

__all__ = ["POSTERIORS", "WRAPPERS", "Network", "build_network", "convnet", "mlp"]


class Direct(NamedTuple):
    """Weights that lead straight from an input to an output: the layer, and which of its columns read inputs."""

    layer: Linear
    columns: Tensor


def direct_weights(net: nn.Module) -> Direct | None:
    """Where `net` is linear from inputs to outputs, None where it nowhere is.

    >>> direct_weights(mlp((3, 2))).columns.tolist(), direct_weights(mlp((3, 4, 2)))
    ([0, 1, 2], None)
    """
    drawables = drawable_layers(net).values() if isinstance(net, (Network, Linear)) else []
    layers = [layer for layer in drawables if not layer.at_prior]
    only = layers[0] if len(layers) == 1 else None
    if not isinstance(only, Linear):
        return None
    return Direct(only, torch.arange(only.in_features, device=only.weight.mu.device))


def mlp(
    sizes: Sequence[int],
    *,
    activation: Activations = "relu",
    method: str = "lbbnn",
    skip: bool = False,
    prior: Prior | None = None,
    start: Start | None = None,
    likelihood: Likelihood | str = "categorical",
    options: Mapping[str, float] | None = None,
    members: int = 1,
    gates: str | Sequence[str] | None = None,
    column_groups: Mapping[str, Sequence[int]] | None = None,
    psi_gate: float | Beta | None = None,
    seed: Seed = 0,
) -> Network:
    """A fully connected network: inputs, hidden widths, outputs (eq. 2). The last layer has no activation.

    activation: one for all units, or several, as in ("relu", "tanh", "identity"): each hidden layer then has units of
        each kind, as many of one as of another, and unit gates choose among them (for methods with indicators).
    method: a row of `METHODS`; options: settings of that method, such as {"rate": 0.2} for mc-dropout.
    skip: every layer behind the first reads the inputs again, beside the units of the layer before (an input-skip
        network): what is linear then takes a weight for each input, and depth is there for the rest.
    gates: "inputs" puts an indicator above all weights that read one input, in whatever layer, and "units" above all
        that read one hidden unit; both may be given. `column_inclusion` gives their posterior probabilities.
    column_groups: inputs that have one gate together, by name; psi_gate: the chance of a gate to be open before the
        data, a number or `Beta(a, b)`; None learns it from `Beta(1, 1)`.
    members: more than one makes a `Mixture` of as many posteriors, each from a start of its own. Without hidden layers
        `fit` starts them at different maxima of the bound and weighs them by it: they then say which inputs can stand
        for each other.

    >>> net = mlp((4, 8, 3))
    >>> net(torch.zeros(5, 4)).shape
    torch.Size([5, 3])
    >>> [tuple(layer.alpha.shape) for layer in mlp((4, 8, 3), skip=True).body if isinstance(layer, Linear)]
    [(8, 4), (3, 12)]
    """
    if not isinstance(sizes, Sequence) or isinstance(sizes, str):
        refuse("mlp", "sizes", "widths, as in (64, 100, 10)", sizes)
    sizes = tuple(sizes)
    if len(sizes) < 2:
        refuse("mlp", "sizes", "at least two widths, inputs and outputs", sizes)
    sizes = tuple(check_whole("mlp", "sizes", size, at_least=1) for size in sizes)
    activation = check_activation("mlp", activation)
    if check_whole("mlp", "members", members, at_least=1) > 1:
        given: dict[str, Any] = {"activation": activation, "method": method, "prior": prior, "start": start}
        given |= {"likelihood": likelihood, "options": options, "skip": skip}
        given |= {"gates": gates, "column_groups": column_groups, "psi_gate": psi_gate}
        return _several(members, seed, lambda member_seed: mlp(sizes, seed=member_seed, **given))
    build = Builder(method, prior, start, seed, len(sizes) - 1, options)
    wanted = build.gates_for(activation, gates, units=sizes[1:-1])
    psi_gate = build.psi_gate(psi_gate)
    plan = GatePlan.of("mlp", sizes[0], wanted, column_groups, psi_gate)
    parts = [nn.Flatten(), *build.dense(sizes, activation, _checked_skip("mlp", skip), plan)]
    spec: dict[str, Any] = {"kind": "mlp", "sizes": list(sizes), "activation": as_written(activation)}
    spec |= ({"skip": True} if skip else {}) | plan.spec(column_groups)
    return _finish(parts, spec, build, likelihood, sizes[-1])


def convnet(
    input_shape: Sequence[int],
    classes: int,
    *,
    channels: Sequence[int] = (16, 32),
    kernel_size: int = 3,
    padding: str = "same",
    pool: int = 2,
    hidden: Sequence[int] = (100,),
    activation: Activations = "relu",
    method: str = "lbbnn",
    skip: bool = False,
    prior: Prior | None = None,
    start: Start | None = None,
    likelihood: Likelihood | str = "categorical",
    options: Mapping[str, float] | None = None,
    members: int = 1,
    gates: str | Sequence[str] | None = None,
    psi_gate: float | Beta | None = None,
    seed: Seed = 0,
) -> Network:
    """Convolutions (each with activation and max-pooling), then fully connected layers.

    input_shape: (channels, length), (channels, height, width) or (channels, depth, height, width).
    padding: "same" has zeros around maps, which keep their size; "valid" has none, as in LeNet-5.
    activation: as in `mlp`; channels are of several kinds too, and have gates.
    skip: every fully connected layer behind the first reads the features that the convolutions give again.
    gates: "channels" puts an indicator above all weights that read one channel of a convolution, "units" above all that
        read one hidden unit; both may be given. psi_gate: as in `mlp`.
    members: more than one makes a `Mixture` of as many posteriors, each from a start of its own.

    >>> convnet((1, 8, 8), 10, channels=(4,), hidden=())(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    shape = tuple(check_whole("convnet", "input_shape", size, at_least=1) for size in input_shape)
    if (dimensions := len(shape) - 1) not in DIMENSIONS:
        refuse("convnet", "input_shape", "channels and one to three sizes", shape)
    check_whole("convnet", "classes", classes, at_least=1)
    activation = check_activation("convnet", activation)
    kernel = Kernel.of(kernel_size, padding)
    widths = [check_whole("convnet", "channels", width, at_least=1) for width in channels]
    sides = [kernel.side(size, len(widths), check_whole("convnet", "pool", pool, at_least=1)) for size in shape[1:]]
    if check_whole("convnet", "members", members, at_least=1) > 1:
        given: dict[str, Any] = {"channels": channels, "kernel_size": kernel_size, "pool": pool, "hidden": hidden}
        given |= {"activation": activation, "method": method, "prior": prior, "start": start, "options": options}
        given |= {"skip": skip, "gates": gates, "psi_gate": psi_gate, "likelihood": likelihood, "padding": padding}
        return _several(members, seed, lambda member_seed: convnet(shape, classes, seed=member_seed, **given))
    if min(sides) < 1:
        refuse("convnet", "pool", f"small enough to leave something of {shape} after {len(widths)} layers", pool)
    build = Builder(method, prior, start, seed, len(widths) + len(hidden) + 1, options)
    plan = GatePlan.of("convnet", 0, build.gates_for(activation, gates, channels=widths, units=hidden), None, psi_gate)
    parts, of_maps = build.maps([shape[0], *widths], kernel, pool, dimensions, activation, plan)
    parts.append(nn.Flatten())
    flat = (widths[-1] if widths else shape[0]) * math.prod(sides)
    dense = [flat, *(check_whole("convnet", "hidden", width, at_least=1) for width in hidden), classes]
    parts += build.dense(dense, activation, _checked_skip("convnet", skip), plan, of_maps)
    spec: dict[str, Any] = {"kind": "convnet", "input_shape": list(shape), "classes": classes, "channels": widths}
    spec |= {"kernel_size": kernel_size, "pool": pool, "hidden": list(hidden), "activation": as_written(activation)}
    spec |= ({"skip": True} if skip else {}) | ({} if padding == "same" else {"padding": padding}) | plan.spec(None)
    return _finish(parts, spec, build, likelihood, classes)


def _checked_skip(where: str, skip: bool) -> bool:
    if not isinstance(skip, bool):
        refuse(where, "skip", "True or False", skip)
    return skip


def _several(members: int, seed: Seed, build: Callable[[int], Network]) -> Mixture:
    """A mixture of networks that differ in their starts; the first is the one that would stand alone."""
    if members > MOST_MEMBERS:
        refuse("network", "members", f"at most {MOST_MEMBERS}", members)
    number = seed_number(seed, "network")
    return Mixture([build(member_seed(number, member)) for member in range(members)])


def _finish(
    parts: list[nn.Module], spec: dict[str, Any], build: Builder, likelihood: Likelihood | str, outputs: int
) -> Network:
    made = likelihood_from(likelihood, outputs) if isinstance(likelihood, str) else likelihood
    if not isinstance(made, Likelihood):
        refuse("network", "likelihood", "a likelihood or its name", made)
    made.check_outputs(outputs)
    spec |= {"options": build.given} if build.given else {}
    later = ("skip_psi", "intercept_psi", "dilution")  # a network without them reads in earlier versions
    without = {name for name in later if getattr(build.prior, name) is None}
    prior = build.prior.model_dump(mode="json", exclude=without)
    spec |= {"method": build.method.name, "prior": prior, "likelihood": made.spec()}
    return Network(chained(parts), made, spec)


def build_network(spec: dict[str, Any]) -> Network:
    """Build a network from its specification, as a model file holds it; the parameters are fresh."""
    options = dict(spec)
    if options.get("kind") == "mixture":
        return Mixture([build_network(member) for member in members_of_spec(spec)])
    kind = check_choice("network", "kind", options.pop("kind", None), ("mlp", "convnet"))
    for name in ("start", "seed"):
        if name in options:
            refuse("network", name, "left out of a specification", options[name])
    prior = Prior(**options.pop("prior"))
    if isinstance(options.get("psi_gate"), dict):
        options["psi_gate"] = Beta(**options["psi_gate"])
    likelihood = likelihood_from(options.pop("likelihood"))
    beyond = options.pop("beyond", False)
    net = (mlp if kind == "mlp" else convnet)(**options, prior=prior, likelihood=likelihood)
    if beyond is True and net.row_shape is not None and not isinstance(net, Mixture):
        net.take_beyond(Beyond(math.prod(net.row_shape), net.outputs))
    return net
