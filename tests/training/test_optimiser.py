"""Our Adam against torch's own: the same steps, the same state, with tensors of many sizes and two step sizes."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import slabnet as sn
from slabnet import kernels
from slabnet.kernels import native
from slabnet.kernels.fused import FEW_ROWS, SOME_UNITS, gradients_to
from slabnet.model.drawing import Draw, drawable_layers
from slabnet.model.elbo import elbo
from slabnet.training.optimiser import LARGE, FusedAdam, make_optimiser


def parameters(dtype: torch.dtype = torch.float32) -> list[nn.Parameter]:
    g = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(s, generator=g).to(dtype)) for s in ((3,), (70, 90), (), (5000,), (2, 3, 4))]


def groups(params: list[nn.Parameter]) -> list[dict[str, object]]:
    return [{"params": params[:2], "lr": 1e-2, "name": "a"}, {"params": params[2:], "lr": 3e-3, "name": "b"}]


def take_steps(optimiser: torch.optim.Optimizer, params: list[nn.Parameter], steps: int, seed: int = 1) -> None:
    g = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        for p in params:
            p.grad = torch.randn(p.shape, generator=g).to(p.dtype) * 10 ** float(torch.randn((), generator=g))
        optimiser.step()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_steps_are_torch_s(dtype: torch.dtype) -> None:
    ours, theirs = parameters(dtype), parameters(dtype)
    mine, reference = FusedAdam(groups(ours)), torch.optim.Adam(groups(theirs))
    take_steps(mine, ours, 25)
    take_steps(reference, theirs, 25)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-6)
    state, wanted = mine.state_dict()["state"], reference.state_dict()["state"]
    for key in wanted:
        for name in ("exp_avg", "exp_avg_sq", "step"):
            size = float(wanted[key][name].abs().max())
            torch.testing.assert_close(state[key][name], wanted[key][name], rtol=2e-5, atol=1e-6 * size)


def test_large_pages_change_no_number() -> None:
    """Tensors large enough to be moved into large pages, between steps and with views of them held elsewhere."""
    g = torch.Generator().manual_seed(3)
    start = torch.randn(3 * LARGE // 4 + 5, generator=g)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    view = ours.detach()[LARGE // 4 : LARGE // 2]
    mine = FusedAdam([{"params": [ours], "lr": 1e-2}])
    reference = torch.optim.Adam([theirs], lr=1e-2)
    for one, parameter in ((mine, ours), (reference, theirs)):
        take_steps(one, [parameter], 4)
    torch.testing.assert_close(ours, theirs)
    assert torch.equal(view, ours.detach()[LARGE // 4 : LARGE // 2])


def test_state_can_be_saved_and_loaded_at_any_moment() -> None:
    through, apart = parameters(), parameters()
    one, two = FusedAdam(groups(through)), FusedAdam(groups(apart))
    take_steps(one, through, 6)
    one.state_dict()
    take_steps(one, through, 6, seed=2)
    take_steps(two, apart, 6)
    kept = copy.deepcopy(two.state_dict())
    fresh = FusedAdam(groups(apart))
    fresh.load_state_dict(kept)
    take_steps(fresh, apart, 6, seed=2)
    for a, b in zip(through, apart, strict=True):
        assert bool((a == b).all())


def test_a_missing_gradient_and_moved_parameters_are_no_trouble() -> None:
    ours, theirs = parameters(), parameters()
    mine, reference = FusedAdam(groups(ours)), torch.optim.Adam(groups(theirs))
    for optimiser, params in ((mine, ours), (reference, theirs)):
        take_steps(optimiser, params, 5)
        params[0].grad = None
        optimiser.step()
        with torch.no_grad():
            params[1].data = params[1].data.clone()
        take_steps(optimiser, params, 3, seed=3)
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-5, atol=2e-6)


def test_changed_parameters_are_seen_inside_a_draw() -> None:
    net = sn.mlp((3, 2)).eval()
    optimiser = make_optimiser(net, net.likelihood, sn.TrainConfig(), omega=True)
    for _ in range(3):
        net(torch.ones(1, 3)).sum().backward()
        for p in net.parameters():
            p.grad = torch.ones_like(p)
        optimiser.step()
    with sn.drawing(net, sn.local, 0):
        net(torch.ones(1, 3))
        optimiser.step()
        with pytest.raises(sn.ArgumentError, match="must not change inside one block"):
            net(torch.ones(1, 3))


def test_torch_s_own_step_where_the_passes_are_torch_s() -> None:
    params = parameters()
    optimiser = FusedAdam(groups(params))
    with kernels.passes("torch"):
        take_steps(optimiser, params, 3)
        assert optimiser._table is None
    assert native.chosen() == "auto"


@pytest.mark.skipif(native.library() is None, reason="the package was installed without a C compiler")
@pytest.mark.parametrize("method", ["lbbnn", "gaussian", "mixture"])
@pytest.mark.parametrize(
    ("draw", "kl", "rows"),
    [
        (sn.local, "exact", 30),
        (sn.local, "exact", FEW_ROWS + 1),
        *((d, k, 30) for d in (sn.relaxed(0.5), sn.straight_through(0.3)) for k in ("exact", "sampled")),
    ],
    ids=str,
)
def test_gradient_and_step_in_one_pass_are_the_two_passes(method: str, draw: Draw, kl: Any, rows: int) -> None:
    g = torch.Generator().manual_seed(4)
    x, y = torch.randn(rows, 40, generator=g), torch.randint(0, 3, (rows,), generator=g)
    found = []
    for put_off in (True, False):
        net = sn.mlp((40, 70, SOME_UNITS, 3), method=method, seed=2)
        optimiser = make_optimiser(net, net.likelihood, sn.TrainConfig(lr=0.01), omega=True)
        if put_off:
            optimiser.defer(drawable_layers(net).values())
        noise = torch.Generator().manual_seed(1)
        for _ in range(12):
            optimiser.zero_grad()
            with gradients_to(optimiser):
                terms = elbo(net, net.likelihood, x, y, n=300, draw=draw, kl=kl, seed=noise)
                (terms.kl - terms.log_likelihood).backward()  # type: ignore[no-untyped-call]
            if put_off and (method != "mixture" or kl == "sampled"):
                assert all(layer.weight.mu.grad is None for layer in drawable_layers(net).values())
            optimiser.step()
        optimiser.release()
        state = optimiser.state_dict()["state"].values()
        found.append([*net.parameters(), *(value for part in state for value in part.values())])
        terms = elbo(net, net.likelihood, x, y, n=300, seed=noise)
        (terms.kl - terms.log_likelihood).backward()  # type: ignore[no-untyped-call]
        assert all(p.grad is not None for p in net.parameters())  # as ever
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.skipif(native.library() is None, reason="the package was installed without a C compiler")
def test_a_layer_that_is_used_twice_gets_both_gradients() -> None:
    found = []
    x = torch.randn(9, 8, generator=torch.Generator().manual_seed(4))
    for put_off in (True, False):
        layer, other = sn.Linear(8, 8, seed=1), sn.Linear(8, 8, seed=2)
        net = nn.Sequential(layer, nn.ReLU(), layer, other)
        optimiser = make_optimiser(net, sn.Gaussian(phi=1.0), sn.TrainConfig(lr=0.01), omega=True)
        if put_off:
            optimiser.defer(drawable_layers(net).values())
        for step in range(5):
            optimiser.zero_grad()
            with sn.drawing(net, sn.local, step), gradients_to(optimiser):
                out = net(x)
            out.square().sum().backward()
            optimiser.step()
        optimiser.release()
        found.append(list(net.parameters()))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


class TwoRoutes(nn.Module):
    """One layer on rows and on a stack of rows: one use is one node of the graph, the other is several."""

    def __init__(self, stack_first: bool) -> None:
        super().__init__()
        self.layer, self.out, self.stack_first = (
            sn.Linear(SOME_UNITS, SOME_UNITS, seed=1),
            sn.Linear(SOME_UNITS, 2, seed=2),
            stack_first,
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def stacked(rows: torch.Tensor) -> torch.Tensor:
            return self.layer(torch.stack([rows, 2 * rows], 1)).mean(1)

        first, second = (stacked, self.layer) if self.stack_first else (self.layer, stacked)
        found: torch.Tensor = self.out(second(torch.relu(first(x))))
        return found


@pytest.mark.skipif(native.library() is None, reason="the package was installed without a C compiler")
@pytest.mark.parametrize("stack_first", [True, False])
def test_a_layer_that_is_used_by_two_routes_gets_both_gradients(stack_first: bool) -> None:
    x = torch.randn(9, SOME_UNITS, generator=torch.Generator().manual_seed(4))
    found = []
    for put_off in (True, False):
        net = TwoRoutes(stack_first)
        likelihood = sn.Gaussian(phi=1.0)
        optimiser = make_optimiser(net, likelihood, sn.TrainConfig(lr=0.01), omega=True)
        if put_off:
            optimiser.defer(drawable_layers(net).values())
        noise = torch.Generator().manual_seed(1)
        for _ in range(5):
            with gradients_to(optimiser):
                terms = elbo(net, likelihood, x, x[:, :2], n=90, draw=sn.local, seed=noise)
            optimiser.zero_grad()
            (terms.kl - terms.log_likelihood).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        optimiser.release()
        found.append(list(net.parameters()))
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)
