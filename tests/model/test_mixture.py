"""A mixture of members: draws, densities, counts, bounds, files, and what refuses it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

import slabnet as sn
from slabnet.core.containers import read_container, write_container
from slabnet.core.errors import ArgumentError, FileError
from slabnet.core.noise import keyed_generator
from slabnet.model.drawing import drawing
from slabnet.model.mixture import Mixture, turns
from slabnet.store import FORMAT

QUICK = sn.TrainConfig(epochs=12, batch_size=40, lr=0.02, omega_lr=0.1)


def rows(n: int = 80) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 3, generator=generator)
    return x, 2 * x[:, :1] + 0.3 * torch.randn(n, 1, generator=generator)


@pytest.fixture(scope="module")
def fitted() -> Mixture:
    net = sn.mlp((3, 5, 1), likelihood="gaussian", members=3, prior=sn.Prior(psi=0.3))
    sn.fit(net, rows(), QUICK, progress="off")
    assert isinstance(net, Mixture)
    return net


@pytest.mark.parametrize("weights", [(0.5, 0.5), (0.7, 0.2, 0.1), (1 / 3, 1 / 3, 1 / 3), (0.0, 0.61, 0.39), (1.0,)])
def test_draws_belong_to_members_in_proportion_whatever_their_number(weights: tuple[float, ...]) -> None:
    order = turns(weights, 200)
    assert order[:50] == turns(weights, 50)
    for count in range(1, 201):
        had = np.bincount(order[:count], minlength=len(weights))
        assert np.abs(had - count * np.asarray(weights)).max() < 1


def test_the_density_is_the_weighted_mean_of_the_members_densities(fitted: Mixture) -> None:
    x, y = rows()
    fitted.weigh([0.5, 0.25, 0.25])
    found = sn.log_densities(fitted, (x, y), 8)
    each = []
    for r in range(8):  # by hand: draw r is that member's network, its noise the draw of the common phi
        member = fitted.members[turns((0.5, 0.25, 0.25), 8)[r]]
        with torch.no_grad(), drawing(member, sn.exact, keyed_generator(0, "draw", r)):
            mean = member(x)
        phi = fitted.likelihood.draw_dispersion(keyed_generator(0, "phi", r))
        each.append(torch.distributions.Normal(mean.double(), phi.double().sqrt()).log_prob(y.double())[:, 0])
    fitted.weigh([1 / 3, 1 / 3, 1 / 3])
    wanted = torch.stack(each).exp().mean(0).log()
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


def test_members_differ_and_the_first_is_the_network_that_would_stand_alone() -> None:
    net = sn.mlp((3, 5, 1), likelihood="gaussian", members=2, seed=4)
    assert isinstance(net, Mixture)
    alone = sn.mlp((3, 5, 1), likelihood="gaussian", seed=4)
    first, second = (dict(member.named_parameters()) for member in net.members)
    assert all(torch.equal(value, first[name]) for name, value in alone.named_parameters())
    assert not torch.equal(first["body.1.weight.mu"], second["body.1.weight.mu"])
    sn.fit(net, rows(), QUICK, progress="off", seed=7)
    sn.fit(alone, rows(), QUICK, progress="off", seed=7)
    mine = {name: value for name, value in net.members[0].named_parameters() if name.startswith("body")}
    assert all(torch.equal(dict(alone.named_parameters())[name], value) for name, value in mine.items())


def test_single_networks_are_one_for_each_member(fitted: Mixture) -> None:
    x = rows()[0]
    found = sn.predict(fitted, x, draw=sn.mean)
    with torch.no_grad():
        means = torch.stack([member(x) for member in fitted.members])
    assert found.draws == 3
    torch.testing.assert_close(found.mean, means.mean(0))
    torch.testing.assert_close(found.epistemic, means.var(0, correction=0))


def test_a_chosen_model_counts_every_member(fitted: Mixture) -> None:
    chosen = sn.median_model(fitted)
    each = [sn.median_model(member) for member in fitted.members]
    assert chosen.weights == sum(one.weights for one in each)
    for one, masks in zip(each, fitted.split(chosen.masks), strict=True):
        assert all(torch.equal(masks[name][0], mask[0]) for name, mask in one.masks.items())
    budget = sn.budget_model(fitted, weights=12, infeasible="path")
    assert budget.feasible


def test_a_draw_uses_weights_of_its_member_only(fitted: Mixture) -> None:
    one = sn.predict(fitted, rows()[0], 1)
    used = fitted.split(one.density_used_by_layer)
    assert any(share > 0 for share in used[0].values())
    assert all(share == 0 for other in used[1:] for share in other.values())


def test_reach_is_the_mean_over_members(fitted: Mixture) -> None:
    by_member = sn.member_reach(fitted, 90)
    assert by_member.shape == (3, 3)
    whole = sn.input_reach(fitted, 270)
    assert float((whole - by_member.mean(0)).abs().max()) < 4 * (0.25 / 90) ** 0.5


def test_the_divergence_is_the_mean_of_the_members(fitted: Mixture) -> None:
    wanted = sum(sn.kl(member).detach() for member in fitted.members) / 3
    assert float(sn.kl(fitted).detach()) == pytest.approx(float(wanted), rel=1e-5)
    x, y = rows()
    terms = sn.elbo(fitted, fitted.likelihood, x, y, n=len(x), seed=0, samples=3)
    assert float(terms.kl.detach()) == pytest.approx(float(wanted + fitted.likelihood.kl().detach()), rel=1e-5)


def test_a_file_holds_all_members(fitted: Mixture, tmp_path: Path) -> None:
    chosen = sn.median_model(fitted, infeasible="path")
    sn.save(fitted, tmp_path / "m.slab", selection=chosen)
    back = sn.load(tmp_path / "m.slab")
    assert isinstance(back, Mixture)
    assert torch.equal(sn.predict(back, rows()[0], 6).mean, sn.predict(fitted, rows()[0], 6).mean)
    assert sn.load_selection(tmp_path / "m.slab", back).weights == chosen.weights
    sn.save(back, tmp_path / "again.slab", selection=chosen)
    assert (tmp_path / "again.slab").read_bytes() == (tmp_path / "m.slab").read_bytes()


@pytest.mark.parametrize("members", [[], "three", [{"kind": "mixture", "members": []}], [7], [{}] * 101])
def test_a_made_up_file_is_refused(fitted: Mixture, tmp_path: Path, members: object) -> None:
    sn.save(fitted, tmp_path / "m.slab")
    header, tensors = read_container(tmp_path / "m.slab", "load", FORMAT)
    header["network"]["members"] = members
    write_container(tmp_path / "m.slab", header, tensors)
    with pytest.raises(FileError, match="load"):
        sn.load(tmp_path / "m.slab")


class Stop(Exception):
    """Raised to stop a fit between two epochs."""


def test_a_fit_that_was_stopped_goes_on_to_the_same_bytes(tmp_path: Path) -> None:
    def fresh() -> sn.Network:
        return sn.mlp((3, 5, 1), likelihood="gaussian", members=3)

    whole = fresh()
    sn.fit(whole, rows(), QUICK, progress="off", checkpoint=tmp_path / "whole")
    seen = []

    def stop(epoch: sn.Epoch) -> None:
        seen.append(epoch)
        if len(seen) == 20:  # in the second member
            raise Stop

    with pytest.raises(Stop):
        sn.fit(fresh(), rows(), QUICK, progress="off", checkpoint=tmp_path / "kept", on_epoch=stop)
    again = fresh()
    history = sn.fit(again, rows(), QUICK, progress="off", checkpoint=tmp_path / "kept", resume=True)
    assert len(history.members) == 3
    for name, value in whole.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_post_training_fixes_each_members_model(fitted: Mixture, tmp_path: Path) -> None:
    sn.save(fitted, tmp_path / "m.slab")
    net = sn.load(tmp_path / "m.slab")
    chosen = sn.median_model(net, infeasible="path")
    before = [member.body[1].weight.omega.clone() for member in net.members]
    sn.fit(net, rows(), QUICK, fixed=chosen, progress="off")
    assert all(torch.equal(o, m.body[1].weight.omega) for o, m in zip(before, net.members, strict=True))
    assert not torch.equal(net.members[1].body[1].weight.mu, fitted.members[1].body[1].weight.mu)


def test_compact_is_a_mixture_of_small_networks(fitted: Mixture) -> None:
    x = rows()[0]
    chosen = sn.median_model(fitted, infeasible="path")
    small = sn.compact(fitted, chosen, "distribution")
    wanted = sn.predict(fitted, x, 7, draw=sn.fixed(chosen.masks, sn.exact))
    torch.testing.assert_close(sn.predict(small, x, 7).mean, wanted.mean, rtol=1e-4, atol=1e-5)
    means = sn.compact(fitted, chosen)
    wanted = sn.predict(fitted, x, draw=sn.fixed(chosen.masks))
    torch.testing.assert_close(sn.predict(means, x, draw=sn.mean).mean, wanted.mean, rtol=1e-4, atol=1e-5)
    with pytest.raises(ArgumentError, match="whole mixture"):
        sn.save(small, "never.slab")


def test_stopped_members_and_other_methods() -> None:
    net = sn.mlp((3, 5, 1), likelihood="gaussian", members=2, method="gaussian")
    history = sn.fit(net, rows(), QUICK, progress="off")
    assert history[-1].kl == pytest.approx(np.mean([part[-1].kl for part in history.members]))
    with pytest.raises(ArgumentError, match="horseshoe"):
        sn.mlp((3, 5, 1), likelihood="gaussian", members=2, method="horseshoe")


def test_what_looks_at_one_posterior_refuses_by_name(fitted: Mixture) -> None:
    for call in (
        lambda: sn.pareto_k(fitted, rows()),
        lambda: sn.criterion_model(fitted, rows()),
        lambda: sn.coefficients(fitted),
    ):
        with pytest.raises(ArgumentError, match="mixture of 3 members"):
            call()


@pytest.mark.parametrize("weights", [[0.5, 0.5], [0.5, 0.6, -0.1], [0.2, 0.2, 0.2], [float("nan"), 0.5, 0.5]])
def test_weights_are_checked(fitted: Mixture, weights: list[float]) -> None:
    with pytest.raises(ArgumentError, match="weights must be 3 numbers"):
        fitted.weigh(weights)


def test_members_may_differ_in_depth() -> None:
    net = sn.Mixture([sn.mlp((3, 2)), sn.mlp((3, 4, 5, 2)), sn.mlp((3, 4, 2), skip=True)])
    sn.fit(net, (rows()[0], (rows()[1][:, 0] > 0).long()), QUICK, progress="off")
    chosen = sn.median_model(net, infeasible="path")
    assert chosen.inputs is not None
    assert sn.predict(net, rows()[0], 6, draw=sn.fixed(chosen.masks, sn.exact)).draws == 6
    assert sn.input_reach(net, 9).shape == (3,)


def test_members_must_be_alike() -> None:
    one = sn.mlp((3, 2))
    for others in ([one, sn.mlp((4, 2))], [one, one], [one, "net"], [], [sn.mlp((3, 2), members=2)], one):
        with pytest.raises(ArgumentError, match="Mixture"):
            sn.Mixture(others)  # type: ignore[arg-type]
