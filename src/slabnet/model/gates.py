"""Gates: an indicator above the weights' own, for all weights that read one column or one hidden unit.

w_ij = gamma_g gamma_ij beta_ij with gamma_g ~ Bernoulli(psi_g) for the group g that column j of the layer belongs to,
and q(gamma_ij | gamma_g = 0) equal to its prior. So alpha_g is the posterior probability that the column is in the
model, and

    KL = sum_g KL(alpha_g || psi_g) + sum_ij alpha_g [KL(alpha_ij || psi) + alpha_ij KL(N(mu, sigma^2) || slab)].

A gate is shared: by every unit that reads the column, and by every layer that does. Draws of weights draw each gate
once. Local reparametrisation takes the moments of each pre-activation with the gate averaged over, M_g the part of its
mean that the columns of g give:

    mean = sum_g alpha_g M_g
    variance = sum_g [alpha_g sum_j x_j^2 (alpha_j (sigma_j^2 + mu_j^2) - alpha_j^2 mu_j^2)
                      + alpha_g (1 - alpha_g) M_g^2]

These are right for one pre-activation. What they ignore is that pre-activations share the gate: given x, two units of
a layer, or units of two layers, that read one column are drawn as if each had a gate of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from slabnet.config.settings import Beta, Start
from slabnet.core.errors import check_choice, check_number, check_whole, refuse
from slabnet.kernels import local_draw
from slabnet.maths.divergences import kl_bernoulli
from slabnet.model.drawing import Draw, Drawable, Scope
from slabnet.model.draws import Score
from slabnet.model.layers.linear import Linear
from slabnet.model.posteriors import PIN, Block, Drawn
from slabnet.model.priors import beta_posterior

KINDS = ("inputs", "units")
SURE = -40.0  # rho of a slab that is a single number


class Gates(Drawable):
    """One indicator for each group of columns, with its posterior; the network's values pass through unchanged.

    kind: "inputs" or "units", what the gates are for; names: what each belongs to. psi: the chance of a gate to be open
        before the data, or `Beta(a, b)` to learn it.

    >>> Gates("inputs", ["age", "city"], 0.5, Start(), torch.Generator()).alpha.shape
    torch.Size([2])
    """

    def __init__(
        self, kind: str, names: Sequence[str], psi: float | Beta, start: Start, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.kind, self.names, self.psi = kind, tuple(names), psi
        self.omega = nn.Parameter(torch.empty(len(names)).uniform_(*start.omega, generator=generator))

    @property
    def alpha(self) -> Tensor:
        """The posterior probability of each gate to be open."""
        return torch.sigmoid(self.omega)

    def logs(self) -> tuple[Tensor, Tensor, Tensor]:
        """E log psi, E log(1 - psi), and the price of a learned psi, Beta(a + sum alpha, b + sum (1 - alpha))."""
        if isinstance(self.psi, Beta):
            block = Block(self.omega, self.omega, self.omega)
            return beta_posterior(self.psi, [block], self.omega)
        psi = torch.as_tensor(self.psi).to(self.omega)
        return psi.log(), torch.log1p(-psi), torch.zeros_like(psi)

    @property
    def psi_now(self) -> Tensor:
        """Where alpha of a gate rests when the data say nothing."""
        on, off, _ = self.logs()
        return torch.sigmoid(on - off)

    def divergence(self, scope: Scope, sampled: bool) -> Tensor:
        on, off, price = self.logs()
        return kl_bernoulli(self.omega, on, off).sum() + price

    def used(self, scope: Scope) -> None:
        return None

    def drawn(self, scope: Scope) -> Tensor:
        """The gates of this draw: drawn once, the same for every layer that they belong to."""

        def draw() -> Tensor:
            block = Block(torch.ones_like(self.omega), torch.full_like(self.omega, SURE), self.omega)
            gamma = scope.draw.draw(block, scope.seed()).gamma
            assert gamma is not None
            return gamma

        return scope.keep(self, draw)

    def forward(self, x: Tensor) -> Tensor:
        return x

    def extra_repr(self) -> str:
        return f"{len(self.names)}"


class GatedLinear(Linear):
    """A `Linear` layer each of whose columns stands behind a gate.

    `alpha`, and all that is chosen by it, is the probability of a weight to be in the model, alpha_g alpha_ij;
    `weight.alpha` is alpha_ij, the probability where its gate is open.

    reads: for the columns one after the other, the gates they stand behind (None: none) and which of them each has.
    """

    reads: tuple[tuple[Gates | None, Tensor], ...] = ()

    def behind(self, *reads: tuple[Gates | None, Tensor]) -> GatedLinear:
        """This layer with its columns behind gates."""
        columns = sum(len(group) for _, group in reads)
        if columns != self.in_features:
            refuse("GatedLinear", "reads", f"a gate for each of {self.in_features} columns", columns)
        self.reads = reads
        return self

    def by_column(self, value: Callable[[Gates], Tensor], no_gate: float) -> Tensor:
        """What each column's gate gives, `no_gate` where it has none."""
        like = self.weight.mu
        return torch.cat(
            [
                like.new_full((len(group),), no_gate) if gates is None else value(gates)[group.to(like.device)]
                for gates, group in self.reads
            ]
        )

    def own_blocks(self) -> tuple[Block, ...]:
        """Weights and intercepts as they are where every gate is open."""
        return super().blocks()

    def blocks(self) -> tuple[Block, ...]:
        weight, *bias = self.own_blocks()
        assert weight.omega is not None
        both = jointly(weight.omega, self.by_column(lambda gates: gates.omega, PIN))
        both = both if weight.pinned is None else torch.where(weight.pinned, weight.omega, both)
        return weight._replace(omega=both), *bias

    @property
    def plain_prior(self) -> bool:
        return False

    def psi_now(self) -> Tensor:
        return self.prior.psi_now(self.own_blocks()) * self._psi_of_gates()

    def resting_alpha(self) -> Tensor:
        return self.prior.resting_alpha(self.own_blocks()) * self._psi_of_gates()

    def _psi_of_gates(self) -> Tensor:
        return self.by_column(lambda gates: gates.psi_now.expand_as(gates.omega), 1.0)

    def kl(self) -> Tensor:
        return self._kl(self.own_blocks())

    def _kl(self, blocks: Sequence[Block]) -> Tensor:
        weight, *bias = self.prior.each_kl(blocks)
        shown = self.by_column(lambda gates: gates.alpha, 1.0)
        if blocks[0].pinned is not None:  # decided, whatever the gate says
            shown = shown.expand_as(weight).masked_fill(blocks[0].pinned, 1.0)
        return torch.stack([(weight * shown).sum(), *(part.sum() for part in bias)]).sum()

    def divergence(self, scope: Scope, sampled: bool) -> Tensor:
        if sampled:
            refuse("elbo", "kl", '"exact" in a network with gates', "sampled")
        return self._kl(scope.blocks(self) if scope.decides(self) else self.own_blocks())

    def informed(self, blocks: Sequence[Block]) -> list[Tensor]:
        masks = self.prior.informed(self.own_blocks())
        return [one if part.pinned is None else one | part.pinned for one, part in zip(masks, blocks, strict=True)]

    def drawn_parameters(self) -> Iterable[Tensor]:
        return [*super().drawn_parameters(), *(gates.omega for gates, _ in self.reads if gates is not None)]

    def drawn_by(self, draw: Draw, scope: Scope) -> tuple[tuple[Drawn, ...], Tensor | None]:
        if scope.decides(self) or not draw.draws_indicators:
            return super().drawn_by(draw, scope)
        if isinstance(draw, Score):
            refuse("drawing", "draw", "local, relaxed or straight_through in a network with gates", draw.name)
        blocks = self.own_blocks()
        weight, *bias = (draw.draw(block, scope.seed()) for block in blocks)
        opened = self.by_column(lambda gates: gates.drawn(scope), 1.0).expand_as(weight.value)
        if blocks[0].pinned is not None:
            opened = opened.masked_fill(blocks[0].pinned, 1.0)
        assert weight.gamma is not None
        return (weight._replace(value=weight.value * opened, gamma=weight.gamma * opened), *bias), None

    def local(self, x: Tensor, scope: Scope, seed: Tensor) -> Tensor:
        if scope.decides(self):
            return super().local(x, scope, seed)
        blocks, first_row = scope.blocks(self), scope.place.first_row
        shared = list(self._shared())
        fused = None if shared else self.prior.local_linear(blocks, x, seed, first_row)
        if fused is not None:
            return fused[0]  # its divergence is that of independent weights: not ours
        weight, *bias = self.prior.moments(blocks)[0]
        mean = self.affine(x, weight[0], bias[0][0] if bias else None)
        variance = self.affine(x * x, weight[1], bias[0][1] if bias else None)
        below = self.own_blocks()[0]
        assert below.omega is not None
        part = torch.sigmoid(below.omega) * below.mu
        for alpha, columns in shared:  # the variance of each column's own gate is in there; they share one
            m = part[:, columns]
            together, apart = x[:, columns] @ m.T, (x[:, columns] ** 2) @ (m * m).T
            variance = variance + alpha * (1 - alpha) * (together**2 - apart)
        return local_draw(mean, variance.clamp_min(0.0), seed, first_row)

    def _shared(self) -> Iterable[tuple[Tensor, Tensor]]:
        """alpha of each gate that several columns stand behind, and those columns."""
        before = 0
        for gates, group in self.reads:
            for g, count in enumerate(torch.bincount(group).tolist()):
                if gates is not None and count > 1:
                    yield gates.alpha[g], (group == g).nonzero()[:, 0] + before
            before += len(group)


@dataclass(frozen=True)
class GatePlan:
    """Which gates a network gets: of its inputs (`names`, and the gate of each input), of its hidden units, or both."""

    kinds: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    group: tuple[int, ...] = ()
    psi: float | Beta = 0.5

    @classmethod
    def of(
        cls,
        inputs: int,
        gates: str | Sequence[str] | None,
        column_groups: Mapping[str, Sequence[int]] | None,
        psi_gate: float | Beta | None,
    ) -> GatePlan:
        """What was asked for, looked at."""
        kinds = () if gates is None else (gates,) if isinstance(gates, str) else tuple(gates)
        for kind in kinds:
            check_choice("mlp", "gates", kind, KINDS)
        for name, value in (("column_groups", column_groups), ("psi_gate", psi_gate)):
            if value is not None and ("inputs" not in kinds if name == "column_groups" else not kinds):
                refuse("mlp", name, 'left out without gates="inputs"', value)
        if psi_gate is not None and not isinstance(psi_gate, Beta):
            check_number("mlp", "psi_gate", psi_gate, above=0, below=1)
        names, group = _grouped(inputs, column_groups or {}) if "inputs" in kinds else ((), ())
        return cls(kinds, names, group, Beta() if psi_gate is None else psi_gate)

    def spec(self, column_groups: Mapping[str, Sequence[int]] | None) -> dict[str, Any]:
        """The same as plain text and numbers, for the file of a network; nothing where there is no gate."""
        if not self.kinds:
            return {}
        psi = self.psi.model_dump() if isinstance(self.psi, Beta) else self.psi
        groups = {name: [int(i) for i in at] for name, at in column_groups.items()} if column_groups else {}
        return {"gates": list(self.kinds), "psi_gate": psi} | ({"column_groups": groups} if groups else {})


def _grouped(inputs: int, column_groups: Mapping[str, Sequence[int]]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Names of the gates in the order of their first column, and the gate of each input; the others stand alone."""
    owner: dict[int, str] = {}
    for name, positions in column_groups.items():
        if len(positions) == 0:
            refuse("mlp", f"column_groups[{name}]", "positions of at least one input", "none")
        for position in positions:
            if check_whole("mlp", f"column_groups[{name}]", position, at_least=0) >= inputs:
                refuse("mlp", f"column_groups[{name}]", f"positions of inputs, 0 to {inputs - 1}", position)
            if position in owner:
                refuse("mlp", f"column_groups[{name}]", f"inputs of no other group ({owner[position]})", position)
            owner[int(position)] = str(name)
    alone = [f"x{i}" for i in range(inputs) if i not in owner]
    if clash := set(alone) & set(owner.values()):
        refuse("mlp", "column_groups", "names other than those of single inputs", min(clash))
    named = [owner.get(i, f"x{i}") for i in range(inputs)]
    names = tuple(dict.fromkeys(named))
    return names, tuple(names.index(name) for name in named)


def jointly(omega: Tensor, gate: Tensor) -> Tensor:
    """logit(alpha alpha_g) from both logits, without a difference of close numbers.

    >>> a, b = torch.tensor(1.2), torch.tensor(-0.3)
    >>> bool((torch.sigmoid(jointly(a, b)) - torch.sigmoid(a) * torch.sigmoid(b)).abs() < 1e-7)
    True
    """
    a, b = torch.broadcast_tensors(omega, gate)  # type: ignore[no-untyped-call]
    return (-torch.stack([-a, -b, -a - b]).logsumexp(0)).clamp_min(-2 * PIN)


def column_inclusion(net: nn.Module) -> dict[str, float]:
    """For each gate of inputs, by its name, the posterior probability that it is open: that its column is in the model.

    In a mixture that is the mean over its members. Hidden units have gates too where they were asked for; those are
    found among `net.modules()`.

    >>> from slabnet.model.networks import mlp
    >>> list(column_inclusion(mlp((3, 2), gates="inputs", column_groups={"size": (0, 1)})))
    ['size', 'x2']
    """
    gates = [part for part in net.modules() if isinstance(part, Gates) and part.kind == "inputs"]
    if not gates:
        allowed = 'a network with gates of its inputs, such as mlp(sizes, gates="inputs")'
        refuse("column_inclusion", "net", allowed, type(net).__name__)
    alpha = torch.stack([part.alpha.detach().double() for part in gates]).mean(0)
    return dict(zip(gates[0].names, alpha.tolist(), strict=True))
