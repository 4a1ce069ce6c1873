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

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor

from slabnet.config.settings import DRAWS
from slabnet.core.errors import check_choice, check_number, refuse
from slabnet.model.drawing import Draw, Drawable, Mask, Scope
from slabnet.model.posteriors import Block, Drawn, draw_exact, draw_median, draw_relaxed


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
        return layer.local(x, scope, scope.seed())


@dataclass(frozen=True)
class Relaxed(Draw):
    """Continuous relaxation of gamma at temperature delta (Prop. 2)."""

    delta: float = 0.5

    @property
    def trains(self) -> bool:
        return True

    def __post_init__(self) -> None:
        check_number(self.name, "delta", self.delta, above=0)

    @property
    def draws_indicators(self) -> bool:
        return True

    @property
    def hard(self) -> bool:
        """Whether the forward pass rounds gamma."""
        return False

    def draw(self, block: Block, seed: Tensor) -> Drawn:
        return draw_relaxed(block, self.delta, self.hard, seed)

    def draw_layer(self, layer: Drawable, scope: Scope) -> tuple[tuple[Drawn, ...], Tensor | None]:
        if scope.divergence is not None:
            blocks = scope.blocks(layer)
            seeds = [scope.seed() for _ in blocks]
            drawn = layer.draw_relaxed(blocks, seeds, self.delta, self.hard, scope.divergence)
            if drawn is not None:
                return tuple(Drawn(value, None, value, None) for value in drawn[0]), drawn[1]
            return tuple(self.draw(block, seed) for block, seed in zip(blocks, seeds, strict=True)), None
        return super().draw_layer(layer, scope)


@dataclass(frozen=True)
class StraightThrough(Relaxed):
    """gamma is 0 or 1 in the forward pass; backwards it has the derivative of the relaxation."""

    @property
    def name(self) -> str:
        return "straight_through"

    @property
    def hard(self) -> bool:
        return True


@dataclass(frozen=True)
class Exact(Draw):
    """gamma ~ Bernoulli(alpha), beta ~ N(mu, sigma^2): the posterior itself (Algorithm 2)."""

    @property
    def draws_indicators(self) -> bool:
        return True

    def draw(self, block: Block, seed: Tensor) -> Drawn:
        return draw_exact(block, seed)


@dataclass(frozen=True)
class Score(Exact):
    """The exact draw, with the score-function gradient for omega; `elbo` adds the control variate."""

    @property
    def trains(self) -> bool:
        return True


@dataclass(frozen=True)
class Median(Draw):
    """The median probability model: gamma = 1 where alpha > threshold; beta at its mean, or drawn.

    Weights that rest at their prior are not in it (`median_model` says why).
    """

    threshold: float = 0.5
    drawn: bool = False

    def __post_init__(self) -> None:
        check_number("median", "threshold", self.threshold, at_least=0, below=1)

    @property
    def random(self) -> bool:
        return self.drawn

    def draw(self, block: Block, seed: Tensor) -> Drawn:
        return draw_median(block, self.threshold, seed if self.drawn else None)

    def draw_layer(self, layer: Drawable, scope: Scope) -> tuple[tuple[Drawn, ...], Tensor | None]:
        drawn, kl = super().draw_layer(layer, scope)
        moved = layer.informed(scope.blocks(layer))
        return tuple(_only(one, mask) for one, mask in zip(drawn, moved, strict=True)), kl


@dataclass(frozen=True)
class Fixed(Draw):
    """gamma as given by `masks` (layer name -> gamma of its weight and intercept), beta as `base` draws it.

    Keeps a chosen model while everything else goes on: `fixed(selection.masks)` for means,
    `fixed(selection.masks, exact)` for draws of the weights that are left.
    """

    masks: Mapping[str, Mask]
    base: Draw = Median()

    @property
    def decided(self) -> Mapping[str, Mask]:
        return self.masks

    @property
    def random(self) -> bool:
        return self.base.random

    @property
    def draws_weights(self) -> bool:
        return self.base.draws_weights

    @property
    def draws_indicators(self) -> bool:
        return self.base.draws_indicators

    @property
    def trains(self) -> bool:
        return self.base.trains

    def draw(self, block: Block, seed: Tensor) -> Drawn:
        return self.base.draw(block, seed)

    def draw_layer(self, layer: Drawable, scope: Scope) -> tuple[tuple[Drawn, ...], Tensor | None]:
        return self.base.draw_layer(layer, scope)

    def forward(self, layer: Drawable, x: Tensor, scope: Scope) -> Tensor:
        return self.base.forward(layer, x, scope)


def _only(drawn: Drawn, mask: Tensor) -> Drawn:
    """The draw without the weights outside of `mask`; without indicators as it is."""
    if drawn.gamma is None:
        return drawn
    gamma = drawn.gamma * mask
    return drawn._replace(value=gamma * drawn.beta, gamma=gamma)


local = Local()
score = Score()
exact = Exact()
median = Median()
median_drawn = Median(drawn=True)
relaxed = Relaxed
straight_through = StraightThrough
fixed = Fixed


_TRAINING: dict[str, Callable[[float], Draw]] = {
    "local": lambda delta: local,
    "relaxed": Relaxed,
    "straight_through": StraightThrough,
    "score": lambda delta: score,
}


def register_draw(name: str, make: Callable[[float], Draw]) -> None:
    """Add a draw for training: from here on `TrainConfig(draw=name)` takes it, and so do files of settings.

    make: gives the draw for a temperature (`TrainConfig.delta`), which it may leave unused. Its values must lead
        gradients back to the block they were drawn from.

    >>> register_draw("warm", lambda delta: Relaxed(2 * delta))
    >>> named_draw("warm", 0.5)
    Relaxed(delta=1.0)
    >>> DRAWS.remove("warm")
    """
    if not isinstance(name, str) or not name.isidentifier() or name in DRAWS:
        refuse("register_draw", "name", f"a word of its own, not {', '.join(DRAWS)}", name)
    if not callable(make) or not isinstance(made := make(0.5), Draw):
        refuse("register_draw", "make", "a function of delta that gives a Draw", type(make).__name__)
    if not made.random:
        refuse("register_draw", "make", "a function of delta that gives a draw with noise", made.name)
    DRAWS.append(name)
    _TRAINING[name] = make


def named_draw(name: str, delta: float) -> Draw:
    """The training draw that a configuration calls `name`."""
    return _TRAINING[check_choice("draw", "name", name, DRAWS)](delta)
