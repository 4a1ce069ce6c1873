"""The layers of a ready-made network, one after the other, each with its share of the prior and its own start."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils import skip_init

from slabnet.config.activations import Activations
from slabnet.config.methods import METHODS
from slabnet.config.priors import Beta, Prior, WeightPsi
from slabnet.config.settings import Start
from slabnet.config.slabs import GaussianSlab, slab_spec
from slabnet.core.errors import check_choice, check_whole, refuse
from slabnet.core.noise import Seed, keyed_generator, seed_number
from slabnet.model.baselines import ConcreteDropout, Ensemble, Horseshoe, MCDropout, NormalJeffreys
from slabnet.model.elementwise import make_elementwise
from slabnet.model.gate_plan import GatePlan
from slabnet.model.gated import Gated, GatedConv1d, GatedConv2d, GatedConv3d, GatedLinear
from slabnet.model.gates import Gates
from slabnet.model.layers import Conv1d, Conv2d, Conv3d, Linear, SlabLayer
from slabnet.model.layers.conv import Kernel
from slabnet.model.posteriors import Gaussian, Posterior, SpikeSlab
from slabnet.model.prior_columns import Again, each_psi
from slabnet.model.priors import layer_prior
from slabnet.model.skips import Fork, Join
from slabnet.model.slabs import slab_of

DIMENSIONS = (1, 2, 3)  # of a convolution
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


class Builder:
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
        if callable(prior.psi) and self.method.posterior is None:
            refuse("network", "psi", "no function for a method whose weights have no posterior", self.method.name)
        self.prior, self.start, self.layers, self.built = prior, start or Start(), layers, 0
        self._psi = prior.psi  # a function, until the shapes are known
        self._values: list[list[float]] = []
        self._shapes: list[tuple[int, int]] = []
        self.seed = seed_number(seed, "network")

    def linear(
        self, inputs: int, outputs: int, again: Again | None, reads: Sequence[tuple[Gates | None, Tensor]]
    ) -> nn.Module:
        gated = any(gates is not None for gates, _ in reads)
        kind = GatedLinear if gated else Linear
        made = self._layer(kind, nn.Linear, (outputs, inputs), (inputs, outputs), {}, again)
        return made.behind(*reads) if isinstance(made, Gated) else made

    def dense(
        self, sizes: Sequence[int], activation: Activations, skip: bool, plan: GatePlan, of_maps: Gates | None = None
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
            if self.built - first < len(sizes) - 1:
                parts.append(make_elementwise(activation, outputs))
                names = [f"unit {self.built - first}.{i}" for i in range(outputs)]
                reads = self._gates(plan, names, "units", parts), torch.arange(outputs)
        return parts

    def maps(
        self,
        widths: Sequence[int],
        kernel: Kernel,
        pool: int,
        dimensions: int,
        activation: Activations,
        plan: GatePlan,
    ) -> tuple[list[nn.Module], Gates | None]:
        """Convolutions from channels to channels, each with activation and pooling; and the gates of the last ones."""
        parts: list[nn.Module] = []
        gates: Gates | None = None
        for number, (inputs, outputs) in enumerate(itertools.pairwise(widths), start=1):
            parts += [self.conv(dimensions, inputs, outputs, kernel, gates), make_elementwise(activation, outputs)]
            parts += [_POOL[dimensions](pool)] if pool > 1 else []
            gates = self._gates(plan, [f"channel {number}.{i}" for i in range(outputs)], "channels", parts)
        return parts, gates

    @property
    def can_gate(self) -> bool:
        """Whether layers of this method and prior can stand behind gates."""
        indicators = self.method.posterior == "spike_slab" and self.method.wrapper is None
        return indicators and slab_of(self.prior.slab).closed_form

    def gates_for(
        self, activation: Activations, gates: str | Sequence[str] | None, **units: Sequence[int]
    ) -> str | Sequence[str] | None:
        """What gets gates: what was asked for, and the units among which activations of several kinds are chosen.

        units: the widths of the layers that have units of a kind ("units", "channels").
        """
        if self.prior.dilution is not None and "inputs" not in (gates or ()):
            refuse("network", "gates", '"inputs" where the prior has a dilution', gates)
        for kind, widths in units.items():
            if not widths and kind in (gates or ()):
                refuse("network", "gates", f"left out for {kind} where there are no such layers", kind)
        if isinstance(activation, str) or not self.can_gate or not isinstance(gates, (str, list, tuple, type(None))):
            return gates
        asked = [] if gates is None else [gates] if isinstance(gates, str) else list(gates)
        return [*asked, *(kind for kind, widths in units.items() if widths and kind not in asked)] or None

    def psi_gate(self, given: float | Beta | None) -> float | Beta | None:
        """One half where columns are diluted and nothing was said: a learned one has no closed form there."""
        return 0.5 if given is None and self.prior.dilution is not None else given

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
        dilution = self.prior.dilution if kind == "inputs" else None
        made = Gates(kind, names, plan.psi, self.start, keyed_generator(self.seed, "gates", len(parts)), dilution)
        parts.append(made)
        return made

    def conv(self, dimensions: int, inputs: int, outputs: int, kernel: Kernel, gates: Gates | None) -> nn.Module:
        shape = (outputs, inputs, *(kernel.size for _ in range(dimensions)))
        size = {"kernel_size": kernel.size, "padding": kernel.edge}
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
            self._evaluate(index, shape)
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

    def _evaluate(self, index: int, shape: tuple[int, ...]) -> None:
        """The numbers that a function gives for the weights of a layer, in place of it: a file holds those."""
        if callable(self._psi):
            values = each_psi(self.prior.model_copy(update={"psi": self._psi}), index, shape)
            assert values is not None
            self._values.append(values.flatten().tolist())
            self._shapes.append((shape[0], shape[1]))
            self.prior = self.prior.model_copy(update={"psi": WeightPsi.of(self._values, self._shapes)})

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
