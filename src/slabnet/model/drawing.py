"""What happens in one forward pass: which draw is in force, and what the layers drew.

A draw is a value (`draws.py`); `drawing` sets it for a block and restores it after. One block is one joint draw of
the whole network: weights are drawn once and stay the same for every call inside it, so layers that are used twice
and rows that arrive in chunks see the same network.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from slabnet.core.errors import ArgumentError, check_whole, refuse
from slabnet.core.noise import Seed, keyed_generator
from slabnet.kernels import local_draw, next_seeds
from slabnet.kernels.dispatch import Divergence
from slabnet.model.posteriors import Block, Drawn, draw_mean, log_q_gamma, pin

Mask = tuple[Tensor, ...]  # gamma of the weight, and of the intercept where there is one


class Drawable(nn.Module):
    """A module that `drawing` reaches: something of it is drawn in a pass, and has a divergence from its prior.

    members: how many networks there are to draw from, where they can be counted (an ensemble).
    decided: whether every indicator was decided for good, so that only means and spreads are left to learn.
    at_prior: whether its posterior is its prior, which no training row says anything about.
    """

    members: int | None = None
    decided: bool = False
    at_prior: bool = False

    @property
    def closed_form(self) -> bool:
        """Whether the divergence has a closed form; otherwise it is sampled where weights are drawn."""
        return True

    def divergence(self, scope: Scope, sampled: bool) -> Tensor:
        """KL of what is drawn here from its prior, as the pass sees it; `sampled`: at the drawn values."""
        raise NotImplementedError(f"{type(self).__name__} must give its divergence")

    def used(self, scope: Scope) -> Tensor | None:
        """Which weights (not intercepts) this draw used; None where another module counts them."""
        return None

    def draws_of(self, draw: Draw, draws: int) -> int:
        """How many of `draws` draws are networks of their own."""
        return draws if draw.random else 1

    def absent(self, index: int) -> Iterable[Drawable]:
        """What draw number `index` leaves out, such as the members it is not of."""
        return ()

    def blocks(self) -> tuple[Block, ...]:
        """The weight, and the intercept where there is one, of a layer whose weights have a posterior."""
        return ()

    def informed(self, blocks: Sequence[Block]) -> list[Tensor]:
        """Of each block, the weights that say more than their prior does: all of them, where nothing else is known."""
        return [torch.ones_like(block.mu, dtype=torch.bool) for block in blocks]

    def drawn_parameters(self) -> Iterable[Tensor]:
        """What a draw depends on: it must not change while a draw lasts."""
        return self.parameters()

    def affine(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer's map for given weights; linear in them."""
        raise NotImplementedError(f"{type(self).__name__} must give its map")

    def moments(self, blocks: Sequence[Block]) -> tuple[list[tuple[Tensor, Tensor]], Tensor | None]:
        """Mean and variance of the weights of each block, and the divergence where the same pass gives it."""
        raise NotImplementedError(f"{type(self).__name__} must give its moments")

    def local(self, x: Tensor, scope: Scope, seed: Tensor) -> Tensor:
        """The layer's pre-activation under local reparametrisation: one normal for each."""
        weight, *bias = scope.moments(self)
        mean = self.affine(x, weight[0], bias[0][0] if bias else None)
        variance = self.affine(x * x, weight[1], bias[0][1] if bias else None)
        return local_draw(mean, variance, seed, scope.place.first_row)

    def drawn_by(self, draw: Draw, scope: Scope) -> tuple[tuple[Drawn, ...], Tensor | None]:
        """The layer's blocks as `draw` draws them, and the divergence where the same pass gives it."""
        return draw.draw_layer(self, scope)

    def draw_relaxed(
        self, blocks: Sequence[Block], seeds: Sequence[Tensor], delta: float, hard: bool, kl: Divergence
    ) -> tuple[list[Tensor], Tensor] | None:
        """Drawn weights of each block and the divergence from one pass; None where that takes two."""
        return None


@dataclass(frozen=True)
class Place:
    """Where the rows of a pass stand in a larger batch, so that their noise is theirs wherever they are computed.

    first_row: of these in the whole batch. generator: for noise that is not keyed by row, a generator of this process.
    """

    first_row: int = 0
    generator: torch.Generator | None = None


WHOLE = Place()


@dataclass(frozen=True)
class Draw:
    """Base of all draws. `random`: needs noise; `draws_weights`: gives each weight a value."""

    @property
    def name(self) -> str:
        return type(self).__name__.lower()

    @property
    def random(self) -> bool:
        return True

    @property
    def draws_weights(self) -> bool:
        return True

    @property
    def draws_indicators(self) -> bool:
        """Whether gamma is drawn too, where it was not decided."""
        return False

    @property
    def decided(self) -> Mapping[str, Mask] | None:
        """gamma of every layer, where it was decided beforehand."""
        return None

    @property
    def trains(self) -> bool:
        """Whether this is a draw for training, where rows need not share one network."""
        return False

    def draw(self, block: Block, seed: Tensor) -> Drawn:
        """One draw of a block of weights."""
        raise NotImplementedError(f"{self.name} draws no weights")

    def draw_layer(self, layer: Drawable, scope: Scope) -> tuple[tuple[Drawn, ...], Tensor | None]:
        """One draw of all blocks of a layer, and its divergence where that comes out of the same pass."""
        return tuple(self.draw(block, scope.seed()) for block in scope.blocks(layer)), None

    def forward(self, layer: Drawable, x: Tensor, scope: Scope) -> Tensor:
        """The layer's pre-activation for `x` under this draw."""
        drawn = scope.weights(layer)
        return layer.affine(x, drawn[0].value, drawn[1].value if len(drawn) > 1 else None)


@dataclass(frozen=True)
class Mean(Draw):
    """Every weight at its posterior mean alpha*mu (supplement B)."""

    @property
    def random(self) -> bool:
        return False

    def draw(self, block: Block, seed: Tensor) -> Drawn:
        return draw_mean(block)


mean = Mean()


class Scope:
    """One joint draw of a network: what its layers drew, kept while the block lasts."""

    def __init__(
        self,
        draw: Draw,
        generator: torch.Generator | None,
        masks: Mapping[Drawable, Mask] | None = None,
        index: int = 0,
        divergence: Divergence | None = None,
        place: Place = WHOLE,
        absent: frozenset[Drawable] = frozenset(),
    ) -> None:
        self.draw, self.index, self.divergence, self.place, self.absent = draw, index, divergence, place, absent
        self._generator = generator
        self._masks = masks or {}
        self._drawn: dict[Drawable, tuple[Drawn, ...]] = {}
        self._versions: dict[Drawable, int] = {}
        self._kept: dict[Drawable, Tensor] = {}
        self._seeds: list[Tensor] = []
        self._moments: dict[Drawable, list[tuple[Tensor, Tensor]]] = {}
        self._kl: dict[Drawable, tuple[Divergence, Tensor]] = {}

    @property
    def generator(self) -> torch.Generator:
        generator = self.place.generator or self._generator
        assert generator is not None
        return generator

    def blocks(self, layer: Drawable) -> tuple[Block, ...]:
        """The layer's blocks, with gamma decided where a selection is fixed."""
        blocks = layer.blocks()
        if not self._masks or layer not in self._masks:
            return blocks
        return tuple(
            pin(block, torch.ones_like(mask), mask) for block, mask in zip(blocks, self._masks[layer], strict=True)
        )

    def decides(self, layer: Drawable) -> bool:
        """Whether the layer's gamma was decided beforehand."""
        return layer in self._masks

    def weights(self, layer: Drawable) -> tuple[Drawn, ...]:
        """The layer's drawn weights: drawn at the first call, the same ever after."""
        if self.first_use(layer):
            self._drawn[layer], kl = layer.drawn_by(self.draw, self)
            if kl is not None and self.divergence is not None:
                self._kl[layer] = self.divergence, kl
        return self._drawn[layer]

    def moments(self, layer: Drawable) -> list[tuple[Tensor, Tensor]]:
        """Mean and variance of each block's weights: computed at the first call, the same ever after."""
        first = self.first_use(layer)
        if layer not in self._moments:
            self._moments[layer], kl = layer.moments(self.blocks(layer))
            if first and kl is not None:
                self._kl[layer] = "exact", kl
        return self._moments[layer]

    def note_kl(self, layer: Drawable, kl: Tensor) -> None:
        """Keep a divergence that a pass gave along with its result; a layer that is used twice counts once."""
        if self.first_use(layer):
            self._kl[layer] = "exact", kl

    def kl(self, layer: Drawable, kind: Divergence) -> Tensor | None:
        """The layer's divergence, where the pass that drew it has computed that kind already."""
        known = self._kl.get(layer)
        return known[1] if known is not None and known[0] == kind else None

    def seed(self) -> Tensor:
        """The key of the next stream of noise."""
        if self._generator is None:
            return _NO_SEED
        if not self._seeds:  # a few at a time: each call into torch costs as much as a small pass
            self._seeds = list(next_seeds(self._generator, SEEDS_AT_ONCE))
        return self._seeds.pop()

    def first_use(self, layer: Drawable) -> bool:
        """Whether this layer has not been used yet in this draw; its parameters must then stay as they are."""
        version = 0
        for part in layer.drawn_parameters():
            version += part._version
        if layer not in self._versions:
            self._versions[layer] = version
            return True
        if self._versions[layer] != version:
            raise ArgumentError(
                "drawing: the parameters must not change inside one block, which is one draw of the network; "
                "open a new block for each training step"
            )
        return False

    def log_q_gamma(self) -> Tensor:
        """log q(gamma) of all that was drawn; its gradient is the score."""
        terms = [
            log_q_gamma(block, one.gamma.detach())
            for layer, drawn in self._drawn.items()
            for block, one in zip(self.blocks(layer), drawn, strict=True)
            if one.gamma is not None
        ]
        return torch.stack(terms).sum() if terms else torch.zeros(())

    def keep(self, layer: Drawable, make: Callable[[], Tensor]) -> Tensor:
        """What `layer` drew besides weights: made at the first call, the same ever after."""
        if layer not in self._kept:
            self._kept[layer] = make()
        return self._kept[layer]

    def used(self, layer: Drawable) -> Tensor:
        """Which weights (not intercepts) of a layer with blocks this draw used."""
        if layer in self.absent:
            return torch.zeros_like(layer.blocks()[0].mu, dtype=torch.bool)
        drawn = self.weights(layer)[0]
        if layer in self._masks:
            return self._masks[layer][0]
        if drawn.gamma is not None:
            return drawn.gamma > 0
        certain = self.blocks(layer)[0].omega is None
        return torch.ones_like(drawn.value, dtype=torch.bool) if certain else drawn.value != 0


SEEDS_AT_ONCE = 8
_NO_SEED = torch.zeros((), dtype=torch.int64)  # for draws that are not random
_NOTHING_DRAWN = (
    "a network in training mode was called outside `drawing`: this trains the posterior means alone, nothing is drawn. "
    "Call it inside `with drawing(net, relaxed(0.5), seed):`; or, for gradients of the means, after `net.eval()`"
)
_active: ContextVar[Mapping[Drawable, Scope]] = ContextVar("slabnet_drawing")


def scope_of(layer: Drawable) -> Scope:
    """The scope a layer is called in; outside every block the posterior mean."""
    scopes = _active.get({})
    return scopes[layer] if layer in scopes else Scope(mean, None)


def warn_if_trained(layer: Drawable, output: Tensor) -> Tensor:
    """`output` of a layer; where nothing was drawn for it, a gradient that comes back through it is warned of."""
    if layer.training and output.requires_grad and layer not in _active.get({}) and not torch.compiler.is_compiling():
        output.register_hook(_warn_of_means)  # type: ignore[no-untyped-call]
    return output


def _warn_of_means(gradient: Tensor) -> None:
    warnings.warn(_NOTHING_DRAWN, UserWarning, stacklevel=1)  # one place in the code, so that it comes once


Layers = Mapping[str, Drawable]


def drawable_layers(net: nn.Module) -> dict[str, Drawable]:
    """The layers of `net` that carry a posterior, by name."""
    return {name: part for name, part in net.named_modules() if isinstance(part, Drawable)}


def members_of(net: nn.Module) -> int | None:
    """How many networks `net` holds to draw from, None where there are endlessly many."""
    counts = [layer.members for layer in drawable_layers(net).values() if layer.members is not None]
    return counts[0] if counts else None


def count_draws(net: nn.Module, draw: Draw, draws: int) -> int:
    """How many different networks `draws` draws of `net` are; at least one."""
    return max((layer.draws_of(draw, draws) for layer in drawable_layers(net).values()), default=1)


@contextmanager
def drawing(
    net: nn.Module | Layers,
    draw: Draw,
    seed: Seed | None = None,
    index: int = 0,
    divergence: Divergence | None = None,
    place: Place = WHOLE,
) -> Iterator[Scope]:
    """Make every layer of `net` draw with `draw` inside the block; restored afterwards, also after an error.

    `seed`: a generator on the network's device, or a whole number; needed where the draw is random.
    `net`: the network, or its layers as `drawable_layers` found them, which a loop need not look for again.
    `index`: which of several draws this is; an ensemble takes that member, a mixture the one whose turn it is.
    `divergence`: the kind that will be asked for, so that it can be computed while the weights are drawn.
    `place`: where the rows stand in a larger batch that several processes share.
    The setting belongs to the current thread and task: others are not disturbed. Recomputation in the backward
    pass (activation checkpointing) must happen inside the block too: call `backward` there.
    """
    layers = drawable_layers(net) if isinstance(net, nn.Module) else net
    if draw.random and seed is None and layers:
        refuse("drawing", "seed", f"a generator or a whole number for the random draw {draw.name}", seed)
    generator: torch.Generator | None
    if seed is not None and not isinstance(seed, torch.Generator):
        seed = check_whole("drawing", "seed", seed, at_least=0)
        device = next((p.device for layer in layers.values() for p in layer.parameters()), torch.device("cpu"))
        generator = keyed_generator(seed, device=device)
    else:
        generator = seed
    absent = frozenset(other for layer in layers.values() for other in layer.absent(index))
    scope = Scope(draw, generator, _masks_by_layer(draw, layers), index, divergence, place, absent)
    token = _active.set({**_active.get({}), **dict.fromkeys(layers.values(), scope)})
    try:
        yield scope
    finally:
        _active.reset(token)


def _masks_by_layer(draw: Draw, layers: Mapping[str, Drawable]) -> dict[Drawable, Mask] | None:
    masks = draw.decided
    if masks is None:
        return None
    layers = {name: layer for name, layer in layers.items() if layer.blocks()}
    if set(masks) != set(layers):
        refuse("fixed", "masks", f"for the layers {', '.join(layers)}", ", ".join(masks))
    for name, layer in layers.items():
        shapes = [tuple(block.mu.shape) for block in layer.blocks()]
        came = [tuple(mask.shape) for mask in masks[name]]
        if shapes != came:
            refuse("fixed", f"masks[{name}]", f"of shapes {shapes}", came)
        if any(mask.dtype != torch.bool for mask in masks[name]):
            refuse("fixed", f"masks[{name}]", "true or false", [str(mask.dtype) for mask in masks[name]])
    device = {name: layer.blocks()[0].mu.device for name, layer in layers.items()}
    return {layer: tuple(mask.to(device[name]) for mask in masks[name]) for name, layer in layers.items()}
