"""Which likelihood a network has: its own for ours, an attached one for modules of the user's class.

It is attached outside the module's registry because a container such as `nn.Sequential` would call it.
"""

from __future__ import annotations

from torch import nn

from slabnet.core.errors import refuse
from slabnet.model.likelihoods import Categorical, Likelihood, likelihood_from
from slabnet.model.networks import Network

_KEY = "_slabnet_likelihood"


def likelihood_of(net: nn.Module) -> Likelihood:
    """The likelihood that `net` was built or fitted with; classes where none was ever given.

    Looks through wrappers, such as a compiled network, for the one network of ours inside.
    """
    inside = [part for part in net.modules() if isinstance(part, Network)]
    if inside and {id(part) for part in inside} <= {id(part) for part in inside[0].modules()}:  # it, or its members
        return inside[0].likelihood
    for part in net.modules():
        attached = part.__dict__.get(_KEY)
        if isinstance(attached, Likelihood):
            return attached
    return Categorical()


def uncompiled(net: nn.Module) -> nn.Module:
    """The network inside one that `torch.compile` made; any other as it is.

    A compiled graph keeps what was drawn when it was traced, so that predictions ask the network itself.
    """
    return net._modules.get("_orig_mod") or net


def resolve_likelihood(net: nn.Module, given: Likelihood | str | None) -> Likelihood:
    """The likelihood to fit `net` with: what was given, by name or as it is, or the one it has."""
    if given is None:
        return likelihood_of(net)
    if isinstance(given, str):
        return likelihood_from(given, net.outputs if isinstance(net, Network) else 1)
    if not isinstance(given, Likelihood):
        refuse("fit", "likelihood", "a likelihood or its name", type(given).__name__)
    return given


def attach_likelihood(net: nn.Module, likelihood: Likelihood) -> None:
    """Give `net` this likelihood."""
    if isinstance(net, Network):
        net.take_likelihood(likelihood)
    elif likelihood_of(net) is not likelihood:
        net.__dict__[_KEY] = likelihood
