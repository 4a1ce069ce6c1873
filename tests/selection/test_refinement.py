"""`refine`: against every model of a small design, against every single change, and what it leaves alone."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from torch import Tensor

import slabnet as sn
from slabnet.core.errors import ArgumentError
from slabnet.model.drawing import drawable_layers
from slabnet.model.layers import SlabLayer


def layers(net: sn.Network) -> list[SlabLayer]:
    return list(drawable_layers(net).values())  # type: ignore[arg-type]


def with_masks(net: sn.Network, inside: list[bool]) -> sn.Selection:
    """A model of these weights (of the first layer; all of the others) and every intercept."""
    with torch.no_grad():
        first = layers(net)[0].weight
        assert first.omega is not None
        first.omega.copy_(torch.tensor(inside).reshape(first.omega.shape).float() * 8 - 4)
    return sn.median_model(net, infeasible="allow")


def evidence_of(x: Tensor, y: Tensor, psi: float, phi: float) -> dict[tuple[bool, ...], float]:
    """log p(y | gamma) + log p(gamma) of every model of a linear one with an orthogonal design, in closed form."""
    n, p = x.shape
    values = {}
    for inside in itertools.product([False, True], repeat=p):
        some = x[:, list(inside)].double()
        cov = phi * torch.eye(n).double() + some @ some.T
        log_p = torch.distributions.MultivariateNormal(torch.zeros(n).double(), cov).log_prob(y[:, 0].double())
        values[inside] = float(log_p) + sum(math.log(psi if one else 1 - psi) for one in inside)
    return values


@pytest.mark.parametrize("start", [[True] * 6, [True, False, False, False, False, True], [False, True] * 3])
def test_with_an_orthogonal_design_the_best_of_all_models_is_found(start: list[bool]) -> None:
    g = torch.Generator().manual_seed(3)
    x = torch.linalg.qr(torch.randn(60, 6, generator=g))[0] * math.sqrt(60)
    y = (x @ torch.tensor([1.0, 0.6, 0.45, 0.25, 0.0, 0.0])).unsqueeze(1) + torch.randn(60, 1, generator=g)
    net = sn.mlp((6, 1), likelihood="gaussian", prior=sn.Prior(psi=0.1))
    phi = float(net.likelihood.at_mean().noise_variances()[0])
    with torch.no_grad():
        (layer,) = layers(net)
        precision = (x**2).sum(0) / phi + 1
        layer.weight.mu.copy_((x.T @ y)[:, 0] / phi / precision)
        layer.weight.rho.copy_(torch.log(torch.expm1(precision.rsqrt())))
        assert layer.bias is not None
        layer.bias.mu.zero_()
    values = evidence_of(x, y, 0.1, phi)
    chosen = sn.refine(net, (x, y), with_masks(net, start))
    assert tuple(chosen.masks["body.1"][0][0].tolist()) == max(values, key=lambda inside: values[inside])
    assert chosen.looked_at


@torch.no_grad()
def objective(net: sn.Network, x: Tensor, y: Tensor, masks: dict[str, tuple[Tensor, ...]]) -> float:
    """F of a one-hidden-layer classifier, written out."""
    first, second = layers(net)
    names = list(masks)
    w, v = ((layer.weight.mu * masks[n][0]).double() for layer, n in zip((first, second), names, strict=True))
    b, c = ((layer.bias.mu * masks[n][1]).double() for layer, n in zip((first, second), names, strict=True))  # type: ignore[union-attr]
    h = torch.relu(x.double() @ w.T + b)
    logits = h @ v.T + c
    total = torch.log_softmax(logits, 1)[torch.arange(len(y)), y].sum()
    p = torch.softmax(logits, 1)
    total = total - 0.5 * (((p * (1 - p)).T @ h**2) * second.weight.sigma.double() ** 2 * masks[names[1]][0]).sum()
    for layer, name in zip((first, second), names, strict=True):
        q = torch.distributions.Normal(layer.weight.mu.double(), layer.weight.sigma.double())
        kl = torch.distributions.kl_divergence(q, torch.distributions.Normal(0.0, 1.0))
        inside = masks[name][0]
        total = total - (kl * inside).sum() + math.log(0.2) * inside.sum() + math.log(0.8) * (~inside).sum()
    return float(total)


def classifier() -> tuple[sn.Network, Tensor, Tensor]:
    g = torch.Generator().manual_seed(5)
    x = torch.randn(80, 4, generator=g)
    y = (x[:, 0] + 0.5 * x[:, 1] > 0).long() + (x[:, 2] > 1).long()
    net = sn.mlp((4, 3, 3), prior=sn.Prior(psi=0.2))
    sn.fit(net, (x, y), sn.TrainConfig(epochs=30, batch_size=20), progress="off")
    return net, x, y


def test_a_drop_of_the_last_layer_is_the_best_of_all_drops() -> None:
    net, x, y = classifier()
    with torch.no_grad():
        for layer in layers(net):
            assert layer.weight.omega is not None
            layer.weight.omega.fill_(4.0)
            layer.weight.mu.add_(0.1 * torch.randn(layer.weight.mu.shape, generator=torch.Generator().manual_seed(1)))
    before = sn.median_model(net)
    scores = {}
    for name, mask in before.masks.items():
        for place in range(mask[0].numel()):
            other = {n: tuple(part.clone() for part in m) for n, m in before.masks.items()}
            other[name][0].view(-1)[place] = False
            scores[name, place] = objective(net, x, y, other)
    after = sn.refine(net, (x, y), before, changes=1, tried=100)
    changed = [
        (name, int(place))
        for name in before.masks
        for place in (before.masks[name][0] ^ after.masks[name][0]).flatten().nonzero()[:, 0]
    ]
    assert changed == [max(scores, key=lambda key: scores[key])]


def test_the_bound_never_falls_and_the_refined_model_is_no_worse() -> None:
    net, x, y = classifier()
    before = sn.median_model(net, infeasible="path")
    start = objective(net, x, y, dict(before.masks))
    values = [start]
    for changes in (1, 2, 8):
        again, *_ = classifier()
        chosen = sn.refine(again, (x, y), before, changes=changes)
        values.append(objective(again, x, y, dict(chosen.masks)))
    assert values == sorted(values)
    assert chosen.rule == "refined"


def test_forced_inputs_and_their_values_stay() -> None:
    g = torch.Generator().manual_seed(2)
    x = torch.randn(50, 3, generator=g)
    net = sn.mlp((3, 1), likelihood="gaussian", prior=sn.Prior(include=(2,), exclude=(0,)))
    chosen = sn.refine(net, (x, 3 * x[:, :1]))
    assert chosen.masks["body.1"][0][0, [0, 2]].tolist() == [False, True]


def test_what_cannot_be_refined_is_refused() -> None:
    x, y = torch.zeros(4, 3), torch.zeros(4).long()
    for net, said in (
        (sn.mlp((3, 2), method="gaussian"), "an indicator for every weight"),
        (sn.mlp((3, 2), gates="inputs"), "an indicator for every weight"),
        (sn.mlp((3, 2), prior=sn.Prior(slab="laplace")), "one with a Gaussian slab"),
    ):
        with pytest.raises(ArgumentError, match=said):
            sn.refine(net, (x, y), sn.median_model(net))
    with pytest.raises(ArgumentError, match="tried must be"):
        sn.refine(sn.mlp((3, 2)), (x, y), tried=0)
