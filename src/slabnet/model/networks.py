"""Ready-made networks: `mlp`, `convnet`, and the registry of methods they can be built with."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from slabnet.config.activations import ACTIVATIONS
from slabnet.config.methods import METHODS
from slabnet.config.settings import Beta, Prior, Start
from slabnet.config.slabs import GaussianSlab, slab_spec
from slabnet.core.errors import check_choice, check_whole, refuse
from slabnet.core.noise import Seed, keyed_generator, seed_number
from slabnet.model.activations import make_activation
from slabnet.model.baselines import ConcreteDropout, Ensemble, Horseshoe, MCDropout, NormalJeffreys
from slabnet.model.declared import members_of_spec
from slabnet.model.drawing import drawable_layers
from slabnet.model.gate_plan import GatePlan
from slabnet.model.gated import Gated, GatedConv1d, GatedConv2d, GatedConv3d, GatedLinear
from slabnet.model.gates import Gates
from slabnet.model.layers import Conv1d, Conv2d, Conv3d, Linear, SlabLayer
from slabnet.model.likelihoods import Likelihood, likelihood_from
from slabnet.model.mixture import MOST_MEMBERS, Mixture, member_seed
from slabnet.model.network import Network
from slabnet.model.posteriors import Gaussian, Posterior, SpikeSlab
from slabnet.model.priors import Again, layer_prior
from slabnet.model.skips import Fork, Join, chained
from slabnet.model.slabs import slab_of

__all__ = ["POSTERIORS", "WRAPPERS", "Network", "build_network", "convnet", "mlp"]


_PLAIN: dict[int, type[nn.Module]] = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
_SLAB: dict[int, Callable[..., SlabLayer]] = {1: Conv1d, 2: Conv2d, 3: Conv3d}
_GATED: dict[int, Callable[..., SlabLayer]] = {1: GatedConv1d, 2: GatedConv2d, 3: GatedConv3d}
_POOL: dict[int, Callable[[int], nn.Module]] = {1: nn.MaxPool1d, 2: nn.MaxPool2d, 3: nn.MaxPool3d}


WRAPPERS: dict[str, Callable[..., nn.Module]] = {
    "concrete-dropout": ConcreteDropout,
    "mc-dropout": MCDropout,
    "horseshoe": Horseshoe,
    "normal-jeffreys": NormalJeffreys,
}
POSTERIORS: dict[str, type[Posterior]] = {"spike_slab": SpikeSlab, "gaussian": Gaussian}


class Direct(NamedTuple):
    """Weights that lead straight from an input to an output: the layer, and which of its columns read inputs."""

    layer: Linear
    columns: Tensor


def direct_weights(net: nn.Module) -> Direct | None:
    """Where `net` is linear from inputs to outputs, None where it nowhere is.

    >>> direct_weights(mlp((3, 2))).columns.tolist(), direct_weights(mlp((3, 4, 2)))
    ([0, 1, 2], None)
    """
    layers = list(drawable_layers(net).values()) if isinstance(net, (Network, Linear)) else []
    only = layers[0] if len(layers) == 1 else None
    if not isinstance(only, Linear):
        return None
    return Direct(only, torch.arange(only.in_features, device=only.weight.mu.device))


class _Builder:
    """Makes the layers of one network, each with its share of the prior and its own start."""

    def __init__(
        self,
        method: str,
        prior: Prior | None,
        start: Start | None,
        seed: Seed,
        layers: int,
        options: Mapping[str, float] | None,
    ) -> None:
        self.method = METHODS[check_choice("network", "method", method, METHODS)]
        self.given = dict(options or {})
        for name in self.given:
            check_choice(method, "options", name, dict(self.method.options))
        self.options: dict[str, Any] = dict(self.method.options) | self.given
        if prior is not None and not isinstance(prior, Prior):
            refuse("network", "prior", "a Prior", type(prior).__name__)
        prior = prior or Prior()
        if self.method.slab is not None and isinstance(prior.slab, GaussianSlab):
            prior = prior.model_copy(update={"slab": self.method.slab})
        if self.method.wrapper in (
            "horseshoe",
            "normal-jeffreys",
        ):  # the weights are standard normal, the scales do the rest
            prior = prior.model_copy(update={"sigma_beta": 1.0})
        self.prior, self.start, self.layers, self.built = prior, start or Start(), layers, 0
        self.seed = seed_number(seed, "network")

    def linear(
        self, inputs: int, outputs: int, again: Again | None, reads: Sequence[tuple[Gates | None, Tensor]]
    ) -> nn.Module:
        gated = any(gates is not None for gates, _ in reads)
        kind = GatedLinear if gated else Linear
        made = self._layer(kind, nn.Linear, (outputs, inputs), (inputs, outputs), {}, again)
        return made.behind(*reads) if isinstance(made, Gated) else made

    def dense(
        self, sizes: Sequence[int], activation: str, skip: bool, plan: GatePlan, of_maps: Gates | None = None
    ) -> list[nn.Module]:
        """Linear layers with activations between them; with `skip` each one behind the first reads [units; inputs].

        of_maps: the gates of the channels whose flattened maps the first layer reads.
        """
        first, features = self.built, sizes[0]
        skip = skip and len(sizes) > 2  # a single layer reads the inputs as it is
        parts: list[nn.Module] = [Fork(features)] if skip else []
        if of_maps is None:
            gates = self._gates(plan, plan.names, "inputs", parts)
            if gates is not None:
                gates.group = plan.group
            of_inputs = gates, torch.tensor(plan.group or range(features))
        else:
            of_inputs = of_maps, torch.arange(len(of_maps.names)).repeat_interleave(features // len(of_maps.names))
        reads = of_inputs
        for inputs, outputs in itertools.pairwise(sizes):
            if skip and self.built > first:
                again = Again(features, first)
                parts += [Join(), self.linear(inputs + features, outputs, again, (reads, of_inputs))]
            else:
                parts.append(self.linear(inputs, outputs, None, (reads,)))
            parts.append(make_activation(activation))
            names = [f"unit {self.built - first}.{i}" for i in range(outputs)]
            if self.built - first < len(sizes) - 1:
                reads = self._gates(plan, names, "units", parts), torch.arange(outputs)
        return parts[:-1]

    def maps(
        self, widths: Sequence[int], kernel_size: int, pool: int, dimensions: int, activation: str, plan: GatePlan
    ) -> tuple[list[nn.Module], Gates | None]:
        """Convolutions from channels to channels, each with activation and pooling; and the gates of the last ones."""
        parts: list[nn.Module] = []
        gates: Gates | None = None
        for number, (inputs, outputs) in enumerate(itertools.pairwise(widths), start=1):
            parts += [self.conv(dimensions, inputs, outputs, kernel_size, gates), make_activation(activation)]
            parts += [_POOL[dimensions](pool)] if pool > 1 else []
            gates = self._gates(plan, [f"channel {number}.{i}" for i in range(outputs)], "channels", parts)
        return parts, gates

    def _gates(self, plan: GatePlan, names: Sequence[str], kind: str, parts: list[nn.Module]) -> Gates | None:
        """Gates of this kind where the plan has them, as one more part."""
        if kind not in plan.kinds:
            return None
        if self.method.posterior != "spike_slab" or self.method.wrapper is not None:
            refuse("network", "gates", "left out for a method without indicators of its own", self.method.name)
        if not slab_of(self.prior.slab).closed_form:
            refuse(
                "network", "gates", "used with a slab whose divergence has a closed form", slab_spec(self.prior.slab)
            )
        made = Gates(kind, names, plan.psi, self.start, keyed_generator(self.seed, "gates", len(parts)))
        parts.append(made)
        return made

    def conv(self, dimensions: int, inputs: int, outputs: int, kernel: int, gates: Gates | None) -> nn.Module:
        shape = (outputs, inputs, *(kernel for _ in range(dimensions)))
        size = {"kernel_size": kernel, "padding": kernel // 2}
        kinds = _SLAB if gates is None else _GATED
        made = self._layer(kinds[dimensions], _PLAIN[dimensions], shape, (inputs, outputs), size)
        return made.behind((gates, torch.arange(inputs))) if isinstance(made, Gated) else made

    def _layer(
        self,
        ours: Callable[..., SlabLayer],
        plain: type[nn.Module],
        shape: tuple[int, ...],
        sizes: tuple[int, int],
        size: dict[str, int],
        again: Again | None = None,
    ) -> nn.Module:
        """A layer of the method: spike-and-slab, Gaussian or plain, in its wrapper where it has one."""
        index, self.built = self.built, self.built + 1
        if self.method.wrapper == "ensemble":
            members = check_whole("ensemble", "members", self.options["members"], at_least=1)
            return Ensemble([self._plain(_unset(plain, *sizes, **size), index, m) for m in range(members)])
        if self.method.posterior is None:
            made = self._plain(_unset(plain, *sizes, **size), index)
        else:
            made = ours(
                *sizes,
                **size,
                prior=layer_prior(self.prior, index, self.layers, shape, again=again),
                posterior=POSTERIORS[self.method.posterior],
                start=self.start,
                seed=keyed_generator(self.seed, "layer", index),
            )
            if self.layers == 1 and self.method.wrapper is None and self.start.mu == "data":
                made.set_means(torch.zeros(shape), None)  # until `fit` has rows to start them from
        wrapper = WRAPPERS.get(self.method.wrapper or "")
        return made if wrapper is None else wrapper(made, sizes[0], **self.options)

    def _plain(self, layer: nn.Module, index: int, member: int = 0) -> nn.Module:
        """He's start from our own generator: torch's constructors would touch the global one."""
        generator = keyed_generator(self.seed, "layer", index, *([member] if member else []))
        weight, bias = layer.get_parameter("weight"), layer.get_parameter("bias")
        with torch.no_grad():
            weight.normal_(0.0, math.sqrt(2.0 / math.prod(weight.shape[1:])), generator=generator)
            bias.zero_()
        return layer


def _unset(kind: type[nn.Module], *sizes: int, **options: int) -> nn.Module:
    layer: nn.Module = skip_init(kind, *sizes, **options)  # type: ignore[no-untyped-call]
    return layer


def mlp(
    sizes: Sequence[int],
    *,
    activation: str = "relu",
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

    method: a row of `METHODS`; options: settings of that method, such as {"rate": 0.2} for mc-dropout.
    skip: every layer behind the first reads the inputs again, beside the units of the layer before (an input-skip
        network): what is linear then takes a weight for each input, and depth is there for the rest.
    gates: "inputs" puts an indicator above all weights that read one input, in whatever layer, and "units" above all
        that read one hidden unit; both may be given. `column_inclusion` gives their posterior probabilities.
    column_groups: inputs that have one gate together, by name; psi_gate: the chance of a gate to be open before the
        data, a number or `Beta(a, b)`; None learns it from `Beta(1, 1)`.
    members: more than one makes a `Mixture` of as many posteriors, each from a start of its own.

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
    check_choice("mlp", "activation", activation, ACTIVATIONS)
    if check_whole("mlp", "members", members, at_least=1) > 1:
        given: dict[str, Any] = {"activation": activation, "method": method, "prior": prior, "start": start}
        given |= {"likelihood": likelihood, "options": options, "skip": skip}
        given |= {"gates": gates, "column_groups": column_groups, "psi_gate": psi_gate}
        return _several(members, seed, lambda member_seed: mlp(sizes, seed=member_seed, **given))
    build = _Builder(method, prior, start, seed, len(sizes) - 1, options)
    plan = GatePlan.of("mlp", sizes[0], gates, column_groups, psi_gate)
    parts = [nn.Flatten(), *build.dense(sizes, activation, _checked_skip("mlp", skip), plan)]
    spec: dict[str, Any] = {"kind": "mlp", "sizes": list(sizes), "activation": activation}
    spec |= ({"skip": True} if skip else {}) | plan.spec(column_groups)
    return _finish(parts, spec, build, likelihood, sizes[-1])


def convnet(
    input_shape: Sequence[int],
    classes: int,
    *,
    channels: Sequence[int] = (16, 32),
    kernel_size: int = 3,
    pool: int = 2,
    hidden: Sequence[int] = (100,),
    activation: str = "relu",
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
    skip: every fully connected layer behind the first reads the features that the convolutions give again.
    gates: "channels" puts an indicator above all weights that read one channel of a convolution, "units" above all that
        read one hidden unit; both may be given. psi_gate: as in `mlp`.
    members: more than one makes a `Mixture` of as many posteriors, each from a start of its own.

    >>> convnet((1, 8, 8), 10, channels=(4,), hidden=())(torch.zeros(2, 1, 8, 8)).shape
    torch.Size([2, 10])
    """
    shape = tuple(check_whole("convnet", "input_shape", size, at_least=1) for size in input_shape)
    dimensions = len(shape) - 1
    if dimensions not in _SLAB:
        refuse("convnet", "input_shape", "channels and one to three sizes", shape)
    check_whole("convnet", "classes", classes, at_least=1)
    check_choice("convnet", "activation", activation, ACTIVATIONS)
    if check_whole("convnet", "kernel_size", kernel_size, at_least=1) % 2 == 0:
        refuse("convnet", "kernel_size", "odd, so that maps keep their size", kernel_size)
    widths = [check_whole("convnet", "channels", width, at_least=1) for width in channels]
    sides = [size // check_whole("convnet", "pool", pool, at_least=1) ** len(widths) for size in shape[1:]]
    if check_whole("convnet", "members", members, at_least=1) > 1:
        given: dict[str, Any] = {"channels": channels, "kernel_size": kernel_size, "pool": pool, "hidden": hidden}
        given |= {"activation": activation, "method": method, "prior": prior, "start": start, "options": options}
        given |= {"skip": skip, "gates": gates, "psi_gate": psi_gate}
        given |= {"likelihood": likelihood}
        return _several(members, seed, lambda member_seed: convnet(shape, classes, seed=member_seed, **given))
    if min(sides) < 1:
        refuse("convnet", "pool", f"small enough to leave something of {shape} after {len(widths)} layers", pool)
    build = _Builder(method, prior, start, seed, len(widths) + len(hidden) + 1, options)
    plan = GatePlan.of("convnet", 0, gates, None, psi_gate)
    parts, of_maps = build.maps([shape[0], *widths], kernel_size, pool, dimensions, activation, plan)
    parts.append(nn.Flatten())
    flat = (widths[-1] if widths else shape[0]) * math.prod(sides)
    dense = [flat, *(check_whole("convnet", "hidden", width, at_least=1) for width in hidden), classes]
    parts += build.dense(dense, activation, _checked_skip("convnet", skip), plan, of_maps)
    spec: dict[str, Any] = {"kind": "convnet", "input_shape": list(shape), "classes": classes, "channels": widths}
    spec |= {"kernel_size": kernel_size, "pool": pool, "hidden": list(hidden), "activation": activation}
    spec |= ({"skip": True} if skip else {}) | plan.spec(None)
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
    parts: list[nn.Module], spec: dict[str, Any], build: _Builder, likelihood: Likelihood | str, outputs: int
) -> Network:
    made = likelihood_from(likelihood, outputs) if isinstance(likelihood, str) else likelihood
    if not isinstance(made, Likelihood):
        refuse("network", "likelihood", "a likelihood or its name", made)
    made.check_outputs(outputs)
    spec |= {"options": build.given} if build.given else {}
    later = ("skip_psi", "intercept_psi")  # a network without them reads in earlier versions
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
    return (mlp if kind == "mlp" else convnet)(**options, prior=prior, likelihood=likelihood)
