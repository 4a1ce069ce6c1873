"""Training steps of other libraries on the same network, each as its own documentation builds it.

Dense Gaussian posteriors, no indicators. A library that cannot be imported is listed as missing, with the reason.
"""

from __future__ import annotations

import itertools
import sys
import types
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

Step = Callable[[Tensor, Tensor], Any]


def peers(sizes: tuple[int, ...], n: int) -> tuple[dict[str, Step], dict[str, str]]:
    """The steps that could be built, and why the others could not."""
    made: dict[str, Step] = {}
    missing: dict[str, str] = {}
    _stand_in_for_torchvision()
    for name, build in (
        ("bayesian-torch", _bayesian_torch),
        ("torchbnn", _torchbnn),
        ("blitz", _blitz),
        ("pyro", _pyro),
    ):
        try:
            made[name] = build(sizes, n)
        except ImportError as error:
            missing[name] = str(error)
    return made, missing


def _stand_in_for_torchvision() -> None:
    """Two of them import torchvision for examples that are not run here."""
    try:
        import torchvision  # noqa: F401
    except ImportError:
        for name in ("torchvision", "torchvision.transforms", "torchvision.datasets"):
            sys.modules.setdefault(name, types.ModuleType(name))


def _chain(make: Callable[[int, int], nn.Module], sizes: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for i, (a, b) in enumerate(itertools.pairwise(sizes)):
        layers += [make(a, b)] if i == len(sizes) - 2 else [make(a, b), nn.ReLU()]
    return nn.Sequential(*layers)


def _adam(net: nn.Module) -> torch.optim.Adam:
    return torch.optim.Adam(net.parameters(), lr=1e-3, fused=True)


def _trained(net: nn.Module, loss_of: Callable[[Tensor, Tensor], Tensor]) -> Step:
    optimiser = _adam(net)

    def step(x: Tensor, y: Tensor) -> None:
        optimiser.zero_grad(set_to_none=True)
        loss_of(x, y).backward()  # type: ignore[no-untyped-call]
        optimiser.step()

    return step


def _bayesian_torch(sizes: tuple[int, ...], n: int) -> Step:
    from bayesian_torch.layers import LinearReparameterization

    layers = [LinearReparameterization(a, b) for a, b in itertools.pairwise(sizes)]
    net = nn.ModuleList(layers)

    def loss(x: Tensor, y: Tensor) -> Tensor:
        divergence: Any = 0.0
        for i, layer in enumerate(layers):
            x, kl = layer(x if i == 0 else torch.relu(x))
            divergence = divergence + kl
        return nn.functional.cross_entropy(x, y) + divergence / n

    return _trained(net, loss)


def _torchbnn(sizes: tuple[int, ...], n: int) -> Step:
    import torchbnn as bnn

    net = _chain(lambda a, b: bnn.BayesLinear(prior_mu=0, prior_sigma=1.0, in_features=a, out_features=b), sizes)
    divergence = bnn.BKLLoss(reduction="sum", last_layer_only=False)
    return _trained(net, lambda x, y: nn.functional.cross_entropy(net(x), y) + divergence(net).sum() / n)


def _blitz(sizes: tuple[int, ...], n: int) -> Step:
    from blitz.modules import BayesianLinear
    from blitz.utils import variational_estimator

    @variational_estimator  # type: ignore[untyped-decorator]
    class Chain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = _chain(BayesianLinear, sizes)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.body(x)
            return out

    net: Any = Chain()
    criterion = nn.CrossEntropyLoss()
    return _trained(
        net,
        lambda x, y: net.sample_elbo(
            inputs=x, labels=y, criterion=criterion, sample_nbr=1, complexity_cost_weight=1 / n
        ),
    )


def _pyro(sizes: tuple[int, ...], n: int) -> Step:
    import pyro
    import pyro.distributions as dist
    from pyro.infer import SVI, Trace_ELBO
    from pyro.infer.autoguide import AutoDiagonalNormal
    from pyro.nn import PyroModule, PyroSample

    class Layer(PyroModule[nn.Linear]):  # type: ignore[misc]
        def __init__(self, a: int, b: int) -> None:
            super().__init__(a, b)
            self.weight = PyroSample(dist.Normal(0.0, 1.0).expand([b, a]).to_event(2))
            self.bias = PyroSample(dist.Normal(0.0, 1.0).expand([b]).to_event(1))

    class Chain(PyroModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layers = PyroModule[nn.ModuleList]([Layer(a, b) for a, b in itertools.pairwise(sizes)])

        def forward(self, x: Tensor, y: Tensor) -> None:
            for i, layer in enumerate(self.layers):
                x = layer(x if i == 0 else torch.relu(x))
            with pyro.plate("rows", n, subsample=x):
                pyro.sample("y", dist.Categorical(logits=x), obs=y)

    pyro.clear_param_store()
    net = Chain()
    guide = AutoDiagonalNormal(net)
    optimiser = pyro.optim.Adam({"lr": 1e-3, "fused": True})
    svi = SVI(net, guide, optimiser, Trace_ELBO())
    return svi.step  # type: ignore[no-any-return]
