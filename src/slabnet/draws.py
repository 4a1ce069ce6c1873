"""How a forward pass draws. A draw is a value; `drawing` sets it for a block and restores it after.

    with drawing(net, relaxed(0.5), generator) as scope:
        output = net(x)

One `drawing` block is one joint draw of the whole network: weights are drawn once and stay the same for
every call inside it, so layers that are used twice and rows that arrive in chunks see the same network.
(`local` is the exception: it draws pre-activations, anew for every call.)

For training: `local`, `relaxed(delta)`, `straight_through(delta)`, `score`.
For prediction: `exact`, `median`, `median_drawn`, `mean`; `fixed(masks)` decides gamma for any of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from slabnet.checks import ArgumentError, check_number, check_whole, refuse
from slabnet.noise import Seed, keyed_generator, normal_like
from slabnet.posteriors import (
    Block,
    Drawn,
    draw_exact,
    draw_mean,
    draw_median,
    draw_relaxed,
    log_q_gamma,
    moments,
    pin,
)

VARIANCE_FLOOR = 1e-16  # the root of a variance of exactly zero has no gradient


class Drawable(nn.Module):
    """A module that `drawing` reaches: something of it is drawn in a pass, and has a divergence from its prior.

    members: how many networks there are to draw from, where they can be counted (an ensemble).
    """

    members: int | None = None

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

    def blocks(self) -> tuple[Block, ...]:
        """The weight, and the intercept where there is one, of a layer whose weights have a posterior."""
        return ()

    def affine(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The layer's map for given weights; linear in them."""
        raise NotImplementedError(f"{type(self).__name__} must give its map")


Mask = tuple[Tensor, ...]  # gamma of the weight, and of the intercept where there is one


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
    def trains(self) -> bool:
        """Whether this is a draw for training, where rows need not share one network."""
        return False

    def draw(self, block: Block, generator: torch.Generator) -> Drawn:
        """One draw of a block of weights."""
        raise NotImplementedError(f"{self.name} draws no weights")

    def forward(self, layer: Drawable, x: Tensor, scope: Scope) -> Tensor:
        """The layer's pre-activation for `x` under this draw."""
        drawn = scope.weights(layer)
        return layer.affine(x, drawn[0].value, drawn[1].value if len(drawn) > 1 else None)


@dataclass(frozen=True)
class Local(Draw):
    """Local reparametrisation: one normal per pre-activation, with the right mean and variance.

    A Gaussian approximation of a sum of spike-and-slab terms, exact in its first two moments. In a
    convolution the positions of a map are drawn independently although they share a kernel.
    """

    @property
    def draws_weights(self) -> bool:
        return False

    @property
    def trains(self) -> bool:
        return True

    def forward(self, layer: Drawable, x: Tensor, scope: Scope) -> Tensor:
        means, variances = zip(*(moments(block) for block in scope.blocks(layer)), strict=True)
        mean = layer.affine(x, means[0], means[1] if len(means) > 1 else None)
        variance = layer.affine(x * x, variances[0], variances[1] if len(variances) > 1 else None)
        noise = normal_like(mean, scope.generator)
        return mean + variance.clamp_min(VARIANCE_FLOOR).sqrt() * noise


@dataclass(frozen=True)
class Relaxed(Draw):
    """Continuous relaxation of gamma at temperature delta (Prop. 2)."""

    delta: float = 0.5

    @property
    def trains(self) -> bool:
        return True

    def __post_init__(self) -> None:
        check_number(self.name, "delta", self.delta, above=0)

    def draw(self, block: Block, generator: torch.Generator) -> Drawn:
        return draw_relaxed(block, self.delta, hard=False, generator=generator)


@dataclass(frozen=True)
class StraightThrough(Relaxed):
    """gamma is 0 or 1 in the forward pass; backwards it has the derivative of the relaxation."""

    @property
    def name(self) -> str:
        return "straight_through"

    def draw(self, block: Block, generator: torch.Generator) -> Drawn:
        return draw_relaxed(block, self.delta, hard=True, generator=generator)


@dataclass(frozen=True)
class Exact(Draw):
    """gamma ~ Bernoulli(alpha), beta ~ N(mu, sigma^2): the posterior itself (Algorithm 2)."""

    def draw(self, block: Block, generator: torch.Generator) -> Drawn:
        return draw_exact(block, generator)


@dataclass(frozen=True)
class Score(Exact):
    """The exact draw, with the score-function gradient for omega; `elbo` adds the control variate."""

    @property
    def trains(self) -> bool:
        return True


@dataclass(frozen=True)
class Mean(Draw):
    """Every weight at its posterior mean alpha*mu (supplement B)."""

    @property
    def random(self) -> bool:
        return False

    def draw(self, block: Block, generator: torch.Generator) -> Drawn:
        return draw_mean(block)


@dataclass(frozen=True)
class Median(Draw):
    """The median probability model: gamma = 1 where alpha > threshold; beta at its mean, or drawn."""

    threshold: float = 0.5
    drawn: bool = False

    def __post_init__(self) -> None:
        check_number("median", "threshold", self.threshold, at_least=0, below=1)

    @property
    def random(self) -> bool:
        return self.drawn

    def draw(self, block: Block, generator: torch.Generator) -> Drawn:
        return draw_median(block, self.threshold, generator if self.drawn else None)


@dataclass(frozen=True)
class Fixed(Draw):
    """gamma as given by `masks` (layer name -> gamma of its weight and intercept), beta as `base` draws it.

    Keeps a chosen model while everything else goes on: `fixed(selection.masks)` for means,
    `fixed(selection.masks, exact)` for draws of the weights that are left.
    """

    masks: Mapping[str, Mask]
    base: Draw = Median()

    @property
    def random(self) -> bool:
        return self.base.random

    @property
    def draws_weights(self) -> bool:
        return self.base.draws_weights

    @property
    def trains(self) -> bool:
        return self.base.trains

    def draw(self, block: Block, generator: torch.Generator) -> Drawn:
        return self.base.draw(block, generator)

    def forward(self, layer: Drawable, x: Tensor, scope: Scope) -> Tensor:
        return self.base.forward(layer, x, scope)


local = Local()
score = Score()
exact = Exact()
mean = Mean()
median = Median()
median_drawn = Median(drawn=True)
relaxed = Relaxed
straight_through = StraightThrough
fixed = Fixed


def named_draw(name: str, delta: float) -> Draw:
    """The training draw that a configuration calls `name`."""
    draws: dict[str, Draw] = {
        "local": local,
        "score": score,
        "relaxed": Relaxed(delta),
        "straight_through": StraightThrough(delta),
    }
    if name not in draws:
        refuse("draw", "name", f"one of {', '.join(draws)}", name)
    return draws[name]


class Scope:
    """One joint draw of a network: what its layers drew, kept while the block lasts."""

    def __init__(
        self,
        draw: Draw,
        generator: torch.Generator | None,
        masks: Mapping[Drawable, Mask] | None = None,
        index: int = 0,
    ) -> None:
        self.draw, self.index = draw, index
        self._generator = generator
        self._masks = masks or {}
        self._drawn: dict[Drawable, tuple[Drawn, ...]] = {}
        self._versions: dict[Drawable, int] = {}
        self._kept: dict[Drawable, Tensor] = {}

    @property
    def generator(self) -> torch.Generator:
        assert self._generator is not None
        return self._generator

    def blocks(self, layer: Drawable) -> tuple[Block, ...]:
        """The layer's blocks, with gamma decided where a selection is fixed."""
        blocks = layer.blocks()
        if layer not in self._masks:
            return blocks
        return tuple(
            pin(block, torch.ones_like(mask), mask) for block, mask in zip(blocks, self._masks[layer], strict=True)
        )

    def weights(self, layer: Drawable) -> tuple[Drawn, ...]:
        """The layer's drawn weights: drawn at the first call, the same ever after."""
        version = sum(parameter._version for parameter in layer.parameters())
        if layer not in self._drawn:
            generator = self._generator if self._generator is not None else torch.Generator()
            self._drawn[layer] = tuple(self.draw.draw(block, generator) for block in self.blocks(layer))
            self._versions[layer] = version
        elif self._versions[layer] != version:
            raise ArgumentError(
                "drawing: the parameters must not change inside one block, which is one draw of the network; "
                "open a new block for each training step"
            )
        return self._drawn[layer]

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
        drawn = self.weights(layer)[0]
        if layer in self._masks:
            return self._masks[layer][0]
        return torch.ones_like(drawn.value, dtype=torch.bool) if drawn.gamma is None else drawn.gamma > 0


_active: ContextVar[Mapping[Drawable, Scope]] = ContextVar("slabnet_drawing")


def scope_of(layer: Drawable) -> Scope:
    """The scope a layer is called in; outside every block the posterior mean."""
    scopes = _active.get({})
    return scopes[layer] if layer in scopes else Scope(mean, None)


def drawable_layers(net: nn.Module) -> dict[str, Drawable]:
    """The layers of `net` that carry a posterior, by name."""
    return {name: part for name, part in net.named_modules() if isinstance(part, Drawable)}


def members_of(net: nn.Module) -> int | None:
    """How many networks `net` holds to draw from, None where there are endlessly many."""
    counts = [layer.members for layer in drawable_layers(net).values() if layer.members is not None]
    return counts[0] if counts else None


@contextmanager
def drawing(net: nn.Module, draw: Draw, seed: Seed | None = None, index: int = 0) -> Iterator[Scope]:
    """Make every layer of `net` draw with `draw` inside the block; restored afterwards, also after an error.

    `seed`: a generator on the network's device, or a whole number; needed where the draw is random.
    `index`: which of several draws this is; an ensemble takes that member.
    The setting belongs to the current thread and task: others are not disturbed. Recomputation in the backward
    pass (activation checkpointing) must happen inside the block too: call `backward` there.
    """
    layers = drawable_layers(net)
    if draw.random and seed is None and layers:
        refuse("drawing", "seed", f"a generator or a whole number for the random draw {draw.name}", seed)
    generator: torch.Generator | None
    if seed is not None and not isinstance(seed, torch.Generator):
        seed = check_whole("drawing", "seed", seed, at_least=0)
        device = next((p.device for layer in layers.values() for p in layer.parameters()), torch.device("cpu"))
        generator = keyed_generator(seed, device=device)
    else:
        generator = seed
    scope = Scope(draw, generator, _masks_by_layer(draw, layers), index)
    token = _active.set({**_active.get({}), **dict.fromkeys(layers.values(), scope)})
    try:
        yield scope
    finally:
        _active.reset(token)


def _masks_by_layer(draw: Draw, layers: Mapping[str, Drawable]) -> dict[Drawable, Mask] | None:
    if not isinstance(draw, Fixed):
        return None
    layers = {name: layer for name, layer in layers.items() if layer.blocks()}
    if set(draw.masks) != set(layers):
        refuse("fixed", "masks", f"for the layers {', '.join(layers)}", ", ".join(draw.masks))
    for name, layer in layers.items():
        shapes = [tuple(block.mu.shape) for block in layer.blocks()]
        came = [tuple(mask.shape) for mask in draw.masks[name]]
        if shapes != came:
            refuse("fixed", f"masks[{name}]", f"of shapes {shapes}", came)
        if any(mask.dtype != torch.bool for mask in draw.masks[name]):
            refuse("fixed", f"masks[{name}]", "true or false", [str(mask.dtype) for mask in draw.masks[name]])
    device = {name: layer.blocks()[0].mu.device for name, layer in layers.items()}
    return {layer: tuple(mask.to(device[name]) for mask in draw.masks[name]) for name, layer in layers.items()}
