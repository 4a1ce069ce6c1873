"""Which likelihood a network has: its own for ours, an attached one for modules of the user's class.

It is attached outside the module's registry because a container such as `nn.Sequential` would call it.
"""

from __future__ import annotations

from torch import nn

from slabnet.likelihoods import Categorical, Likelihood
from slabnet.networks import Network

_KEY = "_slabnet_likelihood"


def likelihood_of(net: nn.Module) -> Likelihood:
    """The likelihood that `net` was built or fitted with; classes where none was ever given."""
    if isinstance(net, Network):
        return net.likelihood
    kept = net.__dict__.get(_KEY)
    return kept if isinstance(kept, Likelihood) else Categorical()


def attach_likelihood(net: nn.Module, likelihood: Likelihood | None) -> Likelihood:
    """Give `net` a likelihood (None keeps what it has) and return the one it has now."""
    if likelihood is not None and isinstance(net, Network):
        net.likelihood = likelihood
        net.spec["likelihood"] = likelihood.spec()
    elif likelihood is not None:
        net.__dict__[_KEY] = likelihood
    elif not isinstance(net, Network):
        net.__dict__[_KEY] = likelihood_of(net)
    return likelihood_of(net)
