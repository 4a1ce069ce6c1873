"""A posterior of several members: q = sum_k w_k q_k, each q_k a whole network's posterior from a start of its own.

ELBO(q) = sum_k w_k ELBO(q_k) + sum_k w_k KL(q_k || q), and the second sum lies between 0 and log K: what the functions
of the bound give for a mixture leaves it out, so that they stay below. A draw of the posterior belongs to one member.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TypeVar

import torch
from torch import Tensor, nn

from slabnet.config.activations import Activations
from slabnet.config.methods import Method
from slabnet.core.errors import check_whole, refuse
from slabnet.core.noise import keyed_generator, seed_number
from slabnet.model.drawing import Draw, Drawable, Scope, scope_of
from slabnet.model.likelihoods import Likelihood
from slabnet.model.network import Network

MOST_MEMBERS = 100
TURNS_AT_ONCE = 128
T = TypeVar("T")
ALLOWED = "networks (not mixtures) of a method that draws single weights or none"


@lru_cache(maxsize=64)
def turns(weights: tuple[float, ...], count: int) -> tuple[int, ...]:
    """The member of each of the first `count` draws: always the one that is furthest behind its share so far.

    Equal weights take turns. Which member draw r is of depends on r alone, not on how many draws there will be.

    >>> turns((0.5, 0.25, 0.25), 8)
    (0, 1, 2, 0, 0, 1, 2, 0)
    """
    had, order = [0] * len(weights), []
    for r in range(1, count + 1):
        behind = [round(w * r - n, 9) for w, n in zip(weights, had, strict=True)]
        member = behind.index(max(behind))
        had[member] += 1
        order.append(member)
    return tuple(order)


def member_seed(seed: int, member: int) -> int:
    """The seed of a member; the first one has that of the whole."""
    return seed if member == 0 else seed_number(keyed_generator(seed, "member", member), "members")


class Members(Drawable):
    """The networks of a mixture: draw r goes through one of them, as `turns` says."""

    weights: Tensor

    def __init__(self, networks: Sequence[Network], weights: Tensor) -> None:
        super().__init__()
        self.networks = nn.ModuleList(networks)
        self.register_buffer("weights", weights)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.networks[self.member(scope_of(self).index)](x)
        return out

    def member(self, index: int) -> int:
        """Which member draw number `index` is of."""
        enough = (index // TURNS_AT_ONCE + 1) * TURNS_AT_ONCE
        return turns(tuple(self.weights.tolist()), enough)[index]

    def divergence(self, scope: Scope, sampled: bool) -> Tensor:
        return self.weights.new_zeros(())

    def draws_of(self, draw: Draw, draws: int) -> int:
        """Without noise each member is one network: once each, or in as many turns as show their weights."""
        if draw.random:
            return draws
        equal = bool(torch.allclose(self.weights, self.weights[:1]))
        return len(self.networks) if equal else max(draws, len(self.networks))

    def absent(self, index: int) -> Iterable[Drawable]:
        chosen = self.member(index)
        for number, network in enumerate(self.networks):
            if number != chosen:
                yield from (part for part in network.modules() if isinstance(part, Drawable))


class Mixture(Network):
    """Several networks as one posterior, sum_k w_k q_k; `fit` trains them in place, `predict` mixes their densities.

    networks: the members, with what they have learned so far; all take the likelihood of the first one.
    weights: of the members, not below 0, with the sum 1; None weighs them equally. See `stack` to learn them.

    A layer of member k has its name in the member with `body.0.networks.k.` in front. Draws without noise (`mean`,
    `median`) are one network for each member. Called plainly, outside a drawing block, it is its first member.

    >>> from slabnet.model.networks import mlp
    >>> net = Mixture([mlp((4, 8, 3), seed=0), mlp((4, 8, 3), seed=1)])
    >>> net(torch.zeros(5, 4)).shape, net.weights.tolist()
    (torch.Size([5, 3]), [0.5, 0.5])
    """

    def __init__(self, networks: Sequence[Network], weights: Sequence[float] | Tensor | None = None) -> None:
        if not isinstance(networks, (list, tuple)):
            refuse("Mixture", "networks", "a list of networks", type(networks).__name__)
        _check_members(networks)
        count = len(networks)
        shares = torch.full((count,), 1 / count) if weights is None else _checked_weights(weights, count)
        first = networks[0]
        dtype = next((p.dtype for p in first.parameters()), torch.get_default_dtype())
        spec = {"kind": "mixture", "members": [network.spec for network in networks]}
        super().__init__(nn.Sequential(Members(networks, shares.to(dtype))), first.likelihood, spec)
        self.take_likelihood(first.likelihood)

    @property
    def members(self) -> tuple[Network, ...]:
        return tuple(part for part in self._inside.networks if isinstance(part, Network))

    def member_of(self, draw: int) -> int:
        """Which member draw number `draw` is of."""
        return self._inside.member(draw)

    @property
    def _inside(self) -> Members:
        part = self.body[0]
        assert isinstance(part, Members)
        return part

    @property
    def weights(self) -> Tensor:
        """w_k, one for each member."""
        return self._inside.weights

    @torch.no_grad()
    def weigh(self, weights: Sequence[float] | Tensor) -> None:
        """Give the members these weights."""
        self._inside.weights.copy_(_checked_weights(weights, len(self.members)))

    @property
    def method(self) -> Method:
        return self.members[0].method

    @property
    def row_shape(self) -> tuple[int, ...] | None:
        return self.members[0].row_shape

    @property
    def outputs(self) -> int:
        return self.members[0].outputs

    @property
    def hidden(self) -> tuple[int, ...]:
        return self.members[0].hidden

    @property
    def activation(self) -> Activations:
        return self.members[0].activation

    @property
    def skip(self) -> bool:
        return self.members[0].skip

    @property
    def gates(self) -> tuple[str, ...]:
        return self.members[0].gates

    def take_likelihood(self, likelihood: Likelihood) -> None:
        for member in self.members:
            member.take_likelihood(likelihood)
        super().take_likelihood(likelihood)

    def split(self, by_layer: Mapping[str, T]) -> list[dict[str, T]]:
        """What is known by layer, for each member by its own names."""
        starts = [_prefix(number) for number in range(len(self.members))]
        return [
            {name.removeprefix(start): value for name, value in by_layer.items() if name.startswith(start)}
            for start in starts
        ]

    @staticmethod
    def join(by_member: Iterable[Mapping[str, T]]) -> dict[str, T]:
        """What is known of each member by its own names, by layer of the mixture."""
        return {
            f"{_prefix(number)}{name}": value
            for number, by_layer in enumerate(by_member)
            for name, value in by_layer.items()
        }


def _prefix(member: int) -> str:
    return f"body.0.networks.{member}."


def members_in(net: nn.Module) -> tuple[Network, ...]:
    """The members of a mixture; none of any other network."""
    return net.members if isinstance(net, Mixture) else ()


def refuse_mixture(where: str, net: nn.Module) -> None:
    """Refuse a mixture where only one network's posterior can be looked at."""
    if isinstance(net, Mixture):
        refuse(where, "net", "one network, such as one of net.members", f"a mixture of {len(net.members)} members")


def _check_members(networks: Sequence[Network]) -> None:
    check_whole("Mixture", "the number of networks", len(networks), at_least=1)
    if len(networks) > MOST_MEMBERS:
        refuse("Mixture", "networks", f"at most {MOST_MEMBERS}", len(networks))
    first = networks[0]
    for network in networks:
        if not isinstance(network, Network) or isinstance(network, Mixture):
            refuse("Mixture", "networks", ALLOWED, type(network).__name__)
        if network.method.wrapper is not None:
            refuse("Mixture", "networks", ALLOWED, f"one of the method {network.method.name}")
        same = (network.row_shape, network.outputs) == (first.row_shape, first.outputs)
        if not same or network.likelihood.spec() != first.likelihood.spec():
            came = f"rows of {network.row_shape} with {network.outputs} outputs and {network.likelihood.name}"
            allowed = f"alike: rows of {first.row_shape} with {first.outputs} outputs and {first.likelihood.name}"
            refuse("Mixture", "networks", allowed, came)
    if len({id(network) for network in networks}) < len(networks):
        refuse("Mixture", "networks", "different networks", "one of them twice")


def _checked_weights(weights: Sequence[float] | Tensor, count: int) -> Tensor:
    values = torch.as_tensor(weights, dtype=torch.float64).detach().flatten()
    good = len(values) == count and bool(torch.isfinite(values).all()) and bool((values >= 0).all())
    if not good or abs(float(values.sum()) - 1) > 1e-4:
        refuse("Mixture", "weights", f"{count} numbers not below 0 with the sum 1", values.tolist())
    return values / values.sum()
