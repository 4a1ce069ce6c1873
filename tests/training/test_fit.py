"""Algorithm 1: what it is given, what it records, and how it stops."""

from __future__ import annotations

import copy
import io
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import slabnet as sn
from slabnet.model.drawing import drawable_layers
from slabnet.selection.rules import threshold_model
from slabnet.training.convergence import active_weights

Data = tuple[torch.Tensor, torch.Tensor]
QUICK = sn.TrainConfig(epochs=3, batch_size=50)


def state(net: torch.nn.Module) -> list[torch.Tensor]:
    return [p.detach().clone() for p in net.parameters()]


def same(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_it_learns_and_prunes(blobs: Data) -> None:
    net = sn.mlp((4, 8, 3))
    history = sn.fit(net, blobs, sn.TrainConfig(epochs=250, batch_size=50, omega_lr=0.05, lr=5e-3))
    chosen = sn.median_model(net)
    assert sn.accuracy(sn.predict(net, blobs[0]), blobs[1]) > 0.9
    assert chosen.weights < 30 < chosen.total.weights
    used = chosen.active["body.1"].any(0)  # type: ignore[index]
    assert used.tolist()[:2] == [True, True]
    assert not used[2:].any()  # the two inputs of noise are cut off
    first, last = history[0], history[-1]
    assert last.log_likelihood > first.log_likelihood
    assert last.density_median == pytest.approx(chosen.density)
    assert last.kl_weight == 1.0
    assert first.kl_weight < 0.05
    assert last.elbo == last.log_likelihood - last.kl


def test_the_same_seed_gives_the_same_bits_and_another_one_others(blobs: Data) -> None:
    results = []
    for seed in (1, 1, 2):
        net = sn.mlp((4, 5, 3))
        history = sn.fit(net, blobs, QUICK, seed=seed)
        results.append((state(net), history.column("kl")))
    assert same(results[0][0], results[1][0])
    assert results[0][1] == results[1][1]
    assert not same(results[0][0], results[2][0])
    by_generator = sn.mlp((4, 5, 3))
    sn.fit(by_generator, blobs, QUICK, seed=torch.Generator().manual_seed(5))
    again = sn.mlp((4, 5, 3))
    sn.fit(again, blobs, QUICK, seed=torch.Generator().manual_seed(5))
    assert same(state(by_generator), state(again))


def test_tensors_arrays_and_iterables_are_the_same_data(blobs: Data) -> None:
    x, y = blobs
    config = sn.TrainConfig(epochs=2, batch_size=150)  # one batch, so that the order does not matter
    forms: list[tuple[Any, dict[str, Any]]] = [
        ((x, y), {}),
        ((x.numpy(), y.numpy()), {}),
        ([(x, y)], {"n": 150}),
        (DataLoader(TensorDataset(x, y), batch_size=150), {"n": 150}),
        ((x.double(), y.to(torch.int32)), {}),
    ]
    nets = []
    for data, options in forms:
        net = sn.mlp((4, 5, 3))
        sn.fit(net, data, config, **options)
        nets.append(torch.cat([p.flatten() for p in state(net)]))
    for i, j in ((0, 1), (0, 4), (2, 3)):  # arrays are shuffled, so noise meets other rows than in a stream
        torch.testing.assert_close(nets[i], nets[j], rtol=0, atol=0)


def test_terms_are_weighted_by_batch_size(blobs: Data) -> None:
    """With the posterior nearly still, an epoch of uneven batches reports what one whole batch does."""
    x, y = blobs
    found = []
    for size in (150, 40):  # 40, 40, 40, 30
        net = sn.mlp((4, 3), start=sn.Start(mu="he"))
        with torch.no_grad():
            for block in next(iter(drawable_layers(net).values())).blocks():
                block.rho.fill_(-30.0)
                assert block.omega is not None
                block.omega.fill_(30.0)
        history = sn.fit(net, (x, y), sn.TrainConfig(epochs=1, batch_size=size, lr=1e-9, omega_lr=1e-9))
        found.append(history[0].log_likelihood)
    assert found[0] == pytest.approx(found[1], rel=1e-4)


@pytest.mark.parametrize("draw", ["local", "relaxed", "straight_through", "score"])
@pytest.mark.parametrize("samples", [1, 3])
def test_every_draw_trains(blobs: Data, draw: str, samples: int) -> None:
    net = sn.mlp((4, 5, 3))
    before = state(net)
    history = sn.fit(net, blobs, sn.TrainConfig(epochs=2, batch_size=50, draw=draw, samples=samples))  # type: ignore[arg-type]
    assert not same(before, state(net))
    assert all(np.isfinite(history.column("kl")))


def test_the_paper_s_settings_run(blobs: Data) -> None:
    recipe = sn.Recipe.named("paper")
    net = sn.mlp((4, 5, 3), prior=recipe.prior, start=recipe.start)
    history = sn.fit(net, blobs, recipe.train.model_copy(update={"epochs": 3}))
    assert history[0].kl_weight == 1.0
    assert history[0].lr == 1e-4
    assert history[0].omega_lr == 0.1


def test_step_sizes_settle_and_fall(blobs: Data) -> None:
    config = sn.TrainConfig(epochs=4, batch_size=50, omega_settle_epoch=2, omega_settle_lr=1e-5, schedule="cosine")
    history = sn.fit(sn.mlp((4, 3)), blobs, config)
    assert history[1].omega_lr > 1e-3
    assert history[2].omega_lr < 1e-5
    assert history[0].lr > history[1].lr > history[3].lr > 0


def test_ramp_and_tempering(blobs: Data) -> None:
    history = sn.fit(sn.mlp((4, 3)), blobs, sn.TrainConfig(epochs=4, batch_size=50, ramp_epochs=2, kl_weight=0.5))
    assert [round(w, 2) for w in history.column("kl_weight")] == [0.25, 0.5, 0.5, 0.5]
    assert history.tempered
    assert not sn.fit(sn.mlp((4, 3)), blobs, QUICK).tempered


def test_clipping_bounds_the_gradient(blobs: Data) -> None:
    free, bound, start = (sn.mlp((4, 3), start=sn.Start(mu="he")) for _ in range(3))
    sn.fit(free, blobs, QUICK)
    sn.fit(bound, blobs, sn.TrainConfig(epochs=3, batch_size=50, clip=1e-9))

    def moved(net: sn.Network) -> float:
        return sum(float((a - b).abs().sum()) for a, b in zip(state(net), state(start), strict=True))

    assert moved(bound) < 0.9 * moved(free)  # Adam rescales, but its epsilon no longer vanishes


def test_early_stopping_waits_for_the_ramp_and_restores_the_best(blobs: Data) -> None:
    x, y = blobs
    noise = torch.randint(3, (50,), generator=torch.Generator().manual_seed(0))
    config = sn.TrainConfig(epochs=60, batch_size=50, ramp_epochs=5, patience=3, lr=0.01)
    net = sn.mlp((4, 8, 3))
    history = sn.fit(net, (x[:100], y[:100]), config, validation=(x[100:], noise))
    assert history.stopped_early
    assert history.best_epoch is not None
    assert history.best_epoch > 5
    assert len(history) == history.best_epoch + 3
    values = history.column("validation_log_likelihood")
    assert max(values[5:]) == values[history.best_epoch - 1]
    with torch.no_grad():
        now = float(net.likelihood.log_prob(net(x[100:]), noise).mean())
    assert now == pytest.approx(values[history.best_epoch - 1], rel=1e-5)


def test_a_validation_fraction_is_held_out(blobs: Data) -> None:
    history = sn.fit(sn.mlp((4, 3)), blobs, sn.TrainConfig(epochs=2, batch_size=20, validation_fraction=0.2))
    assert history.n == 120
    assert history[0].validation_log_likelihood is not None


def test_convergence_of_alpha_is_followed(blobs: Data) -> None:
    """Weights of an input that never varies end at the prior, and are counted as resting there."""
    x = blobs[0].clone()
    x[:, 2:] = 0.0
    net = sn.mlp((4, 3), start=sn.Start(mu="he"))
    history = sn.fit(
        net, (x, blobs[1]), sn.TrainConfig(epochs=800, batch_size=150, lr=0.02, omega_lr=0.1, omega_hold=0)
    )
    assert history[5].alpha_moving > 0.5
    assert history[-1].alpha_moving < 0.2
    assert history[-1].alpha_at_prior >= 0.5
    torch.testing.assert_close(net.body[1].weight.alpha[:, 2:].detach(), torch.full((3, 2), 0.1353), atol=0.02, rtol=0)


def test_post_training_moves_only_the_chosen_weights(blobs: Data) -> None:
    net = sn.mlp((4, 6, 3))
    sn.fit(net, blobs, sn.TrainConfig(epochs=40, batch_size=50, omega_lr=0.1))
    chosen = sn.median_model(net)
    assert 0 < chosen.weights < chosen.total.weights
    before = copy.deepcopy(net)
    sn.fit(net, blobs, sn.TrainConfig(epochs=5, batch_size=50), fixed=chosen)
    for name, layer in drawable_layers(net).items():
        for block, old, mask in zip(
            layer.blocks(), before.get_submodule(name).blocks(), chosen.masks[name], strict=True
        ):  # type: ignore[operator]
            assert torch.equal(block.omega, old.omega)
            assert torch.equal(block.mu[~mask], old.mu[~mask])
            assert torch.equal(block.rho[~mask], old.rho[~mask])
            assert not mask.any() or not torch.equal(block.mu[mask], old.mu[mask])


def test_post_training_with_alpha_kept(blobs: Data) -> None:
    net = sn.mlp((4, 6, 3))
    sn.fit(net, blobs, QUICK)
    before = copy.deepcopy(net)
    history = sn.fit(net, blobs, QUICK, fixed="alpha")
    assert torch.equal(net.body[1].weight.omega, before.body[1].weight.omega)
    assert not torch.equal(net.body[1].weight.mu, before.body[1].weight.mu)
    assert history[0].kl_weight == 1.0  # no ramp: nothing is pruned
    with pytest.raises(sn.ArgumentError, match="fixed must be a Selection"):
        sn.fit(net, blobs, QUICK, fixed="gamma")  # type: ignore[arg-type]


def test_a_loss_that_is_not_finite_stops_with_the_last_good_state(blobs: Data) -> None:
    x, y = blobs
    net = sn.mlp((4, 3))
    states = []
    calls = 0

    class Poisoned:
        def __iter__(self) -> Any:
            nonlocal calls
            calls += 1
            states.append(state(net))
            for rows in range(0, 150, 50):
                if calls == 3 and rows == 50:
                    with torch.no_grad():
                        net.body[1].weight.mu.fill_(float("inf"))
                yield x[rows : rows + 50], y[rows : rows + 50]

    with pytest.raises(
        sn.TrainingDiverged, match=r"not finite at step 8 \(epoch 3\).*holds its state after epoch 2"
    ) as caught:
        sn.fit(net, Poisoned(), sn.TrainConfig(epochs=5), n=150)
    assert "\n" not in str(caught.value)
    assert same(state(net), states[2])


@pytest.mark.parametrize(
    ("change", "options", "said"),
    [
        (lambda x, y: (x[:0], y[:0]), {}, "fit: x must be at least one row"),
        (lambda x, y: (x[:, :3], y), {}, "fit: x must be rows of 4 numbers, got shape (150, 3)"),
        (lambda x, y: (x, y[:-1]), {}, "fit: y must be as long as x, 150 rows, got shape (149,)"),
        (
            lambda x, y: (x.masked_fill(x > 2, float("nan")), y),
            {},
            "fit: x must be finite numbers, got NaN or infinity",
        ),
        (lambda x, y: (x, y + 1), {}, "fit: y must be class labels from 0 to 2, got 3 in row 2"),
        (lambda x, y: (x, [["a"]] * 150), {}, "fit: y must be an array of numbers, got list"),
        (lambda x, y: (x, np.array(["a"] * 150)), {}, "fit: y must be an array of numbers"),
        (lambda x, y: (x[:10], y[:10]), {}, "fit: batch_size must be at most the number of rows, 10, got 50"),
        (lambda x, y: (x, y), {"n": 100}, "fit: n must be the number of rows, 150, or left out, got 100"),
        (lambda x, y: [(x, y)], {}, "fit: n must be given with an iterable"),
        (lambda x, y: [(x, y)], {"n": 100}, "fit: n must be at least the size of a batch, 150, got 100"),
        (lambda x, y: [], {"n": 100}, "fit: train must be not empty"),
        (lambda x, y: [x], {"n": 150}, "fit: train must be an iterable of (x, y) batches"),
        (lambda x, y: 3, {}, "fit: train must be (x, y) or an iterable"),
        (lambda x, y: iter([(x, y)]), {"n": 150}, "readable once an epoch, as a list or a DataLoader is"),
    ],
)
def test_bad_data_trains_nothing(blobs: Data, change: Any, options: dict[str, Any], said: str) -> None:
    net = sn.mlp((4, 3))
    before = state(net)
    with pytest.raises(sn.ArgumentError) as caught:
        sn.fit(net, change(*blobs), QUICK, **options)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    if "once an epoch" not in said:
        assert same(before, state(net))


def test_a_device_that_is_not_there(blobs: Data) -> None:
    with pytest.raises(sn.ArgumentError, match="a device this machine has"):
        sn.fit(sn.mlp((4, 3)), blobs, sn.TrainConfig(epochs=1, device="warp"))


def test_float64_all_the_way(blobs: Data) -> None:
    net = sn.mlp((4, 3))
    sn.fit(net, blobs, sn.TrainConfig(epochs=1, batch_size=50, dtype="float64"))
    assert all(p.dtype == torch.float64 for p in net.parameters())
    assert sn.predict(net, blobs[0]).mean.dtype == torch.float64


def test_progress_shows_both_terms(blobs: Data, capsys: pytest.CaptureFixture[str]) -> None:
    net = sn.mlp((4, 3))
    sn.fit(net, blobs, QUICK, progress="lines")
    said = capsys.readouterr().err
    assert "epoch 3/3" in said
    assert "log-lik" in said
    assert "KL" in said
    assert said.splitlines()[-1].endswith(f"{sn.median_model(net).weights} active weights")
    sn.fit(sn.mlp((4, 3)), blobs, QUICK)
    assert capsys.readouterr().err == ""


def test_the_bar_shows_them_too(blobs: Data, monkeypatch: pytest.MonkeyPatch) -> None:
    screen = io.StringIO()
    monkeypatch.setattr("sys.stderr", screen)
    net = sn.mlp((4, 3))
    sn.fit(net, blobs, QUICK, progress="bar")
    assert "fit" in screen.getvalue()
    assert f"{sn.median_model(net).weights} active weights" in " ".join(screen.getvalue().split())


def test_what_is_shown_counts_paths_and_leaves_out_what_rests_at_the_prior() -> None:
    """psi = .5 is the threshold: alphas that rest there are in or out by chance alone."""
    net = sn.mlp((3, 4, 1), prior=sn.Prior(psi=0.5, sigma_beta=1.0), likelihood="gaussian")
    first, last = net.body[1].weight, net.body[3].weight
    with torch.no_grad():
        for weight in (first, last):
            weight.mu.zero_()
            weight.rho.fill_(math.log(math.expm1(1.0)))
            weight.omega.fill_(0.01)
    assert active_weights(net) == threshold_model(net).weights == 0
    with torch.no_grad():
        for weight, row, column in ((first, 2, 1), (last, 0, 2), (first, 3, 0)):  # a path, and a weight into nothing
            weight.mu[row, column], weight.rho[row, column], weight.omega[row, column] = 2.0, -3.0, 8.0
    assert active_weights(net) == sn.median_model(net).weights == 2
    assert sn.median_model(net).total.median_weights == 3
    assert active_weights(sn.mlp((3, 4, 1), members=2, skip=True, likelihood="gaussian")) == 2 * (12 + 4 + 3)


def test_regression_learns_its_noise() -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(400, 3, generator=generator)
    y = 2 * x[:, 0] - x[:, 1] + 0.5 * torch.randn(400, generator=generator)
    net = sn.mlp((3, 1), likelihood="gaussian", prior=sn.Prior(sigma_beta=3.0))
    sn.fit(net, (x, y), sn.TrainConfig(epochs=200, batch_size=100, lr=0.01, omega_lr=0.05))
    assert isinstance(net.likelihood, sn.Gaussian)
    assert float(net.likelihood.expected_phi) == pytest.approx(0.25, rel=0.2)
    chosen = sn.median_model(net)
    assert chosen.masks["body.1"][0].tolist() == [[True, True, False]]
    before = net.likelihood.log_phi.clone()
    sn.fit(net, (x, y), sn.TrainConfig(epochs=2, batch_size=100), fixed=chosen)
    assert not torch.equal(net.likelihood.log_phi, before)  # the dispersion stays trainable in post-training


def test_learned_hyperpriors_train(blobs: Data) -> None:
    net = sn.mlp((4, 6, 3), prior=sn.Prior(psi=sn.Beta(), sigma_beta="learned"))
    sn.fit(net, blobs, sn.TrainConfig(epochs=30, batch_size=50))
    assert net.body[1].prior.sigma_beta != 1.0


def test_the_state_that_is_kept_is_one_that_works(blobs: Data) -> None:
    """A step that ruins the network is only seen in the next loss: the state before it must come back."""
    net = sn.mlp((4, 8, 3))
    with pytest.raises(sn.TrainingDiverged, match="holds its state after epoch 0"):
        sn.fit(net, blobs, sn.TrainConfig(epochs=10, batch_size=150, lr=1e20))
    assert bool(torch.isfinite(sn.predict(net, blobs[0]).mean).all())
    with pytest.raises(sn.TrainingDiverged, match="after step 1"):  # and also when it is the last step of all
        sn.fit(net, blobs, sn.TrainConfig(epochs=1, batch_size=150, lr=1e30))
    assert bool(torch.isfinite(sn.predict(net, blobs[0]).mean).all())


def test_a_refused_call_changes_nothing(blobs: Data) -> None:
    net = sn.mlp((4, 3))
    with pytest.raises(sn.ArgumentError, match="fit: "):
        sn.fit(net, (blobs[0], blobs[1] + 9), sn.TrainConfig(epochs=1, dtype="float64"), likelihood="gaussian")
    assert next(net.parameters()).dtype == torch.float32
    assert isinstance(net.likelihood, sn.Categorical)


def test_likelihoods_by_name_and_through_wrappers(blobs: Data) -> None:
    net = sn.convert(torch.nn.Sequential(torch.nn.Linear(4, 1)))
    sn.fit(net, (blobs[0], blobs[0][:, 0]), QUICK, likelihood="gaussian")
    assert isinstance(sn.likelihood_of(net), sn.Gaussian)
    inside = torch.nn.Sequential(sn.mlp((4, 2), likelihood="gaussian"))
    assert isinstance(sn.likelihood_of(inside), sn.Gaussian)
    with pytest.raises(sn.ArgumentError, match="likelihood must be a likelihood or its name"):
        sn.fit(net, blobs, QUICK, likelihood=3)  # type: ignore[arg-type]


def test_outputs_must_be_a_table(blobs: Data) -> None:
    class Flat(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.outputs = torch.nn.Linear(4, 1)  # a name of ours, in a module that is not

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.outputs(x).squeeze(-1)

    with pytest.raises(sn.ArgumentError, match=r"net must be one that gives a table, \(rows, outputs\)"):
        sn.fit(sn.convert(Flat()), (blobs[0], blobs[0][:, 0]), QUICK, likelihood="gaussian")


def test_dropout_of_a_converted_module_is_reproducible(blobs: Data) -> None:
    states, before = [], torch.get_rng_state()
    for _ in range(2):
        net = sn.convert(
            torch.nn.Sequential(torch.nn.utils.skip_init(torch.nn.Linear, 4, 3), torch.nn.Dropout(0.5)),
            keep_weights=False,
        )
        sn.fit(net, blobs, QUICK)
        states.append(state(net))
    assert same(*states)
    assert torch.equal(before, torch.get_rng_state())


def test_lists_and_foreign_arrays_are_taken(blobs: Data) -> None:
    x, y = blobs[0].numpy(), blobs[1].numpy()
    for pair in ((x.tolist(), y.tolist()), (x[::-1], y[::-1]), (x.astype(">f8"), y.astype(">i4"))):
        sn.fit(sn.mlp((4, 3)), pair, QUICK)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda n, d: sn.fit(n, (d[0].double() * 1e300, d[1]), QUICK), "x, in float32 must be finite"),
        (lambda n, d: sn.fit(n, (d[0] * 1j, d[1]), QUICK), "dense array of real numbers"),
        (lambda n, d: sn.fit(n, d, {"epochs": 3}), "config must be a TrainConfig, got dict"),
        (lambda n, d: sn.fit(n, d, QUICK, validation=d[0]), "validation must be a pair (x, y)"),
        (lambda n, d: sn.fit(3, d, QUICK), "net must be a network, got int"),
        (lambda n, d: sn.fit(n, d, QUICK, progress="loud"), "progress must be one of auto, bar, lines, off"),
        (
            lambda n, d: sn.fit(n, [(d[0][:50], d[1][:50])] * 3, QUICK, n=60),
            "n must be the number of rows in one epoch, 150",
        ),
    ],
)
def test_more_bad_calls(blobs: Data, call: Any, said: str) -> None:
    with pytest.raises(sn.ArgumentError, match="fit: ") as caught:
        call(sn.mlp((4, 3)), blobs)
    assert said in str(caught.value)


def test_a_frozen_layer_stays_frozen() -> None:
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 2))
    module[0].requires_grad_(False)
    net = sn.convert(module)
    assert not any(p.requires_grad for p in net[0].parameters())  # type: ignore[index]
    assert all(p.requires_grad for p in net[1].parameters())  # type: ignore[index]


def test_pretraining_moves_only_means_and_then_everything() -> None:
    """The first epochs are those of a plain network: no KL, and spreads and indicators wait."""
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(100, 4, generator=generator)
    y = (x[:, 0] * x[:, 1] > 0).long()
    net = sn.mlp((4, 10, 2))
    before = {name: value.clone() for name, value in net.named_parameters()}
    seen: list[dict[str, torch.Tensor]] = []

    def look(epoch: sn.Epoch) -> None:
        seen.append({name: value.detach().clone() for name, value in net.named_parameters()})

    config = sn.TrainConfig(epochs=6, pretrain_epochs=3, ramp_epochs=2, batch_size=50, cut_every=0)
    history = sn.fit(net, (x, y), config, on_epoch=look)
    for name, value in before.items():
        moved = not torch.equal(seen[2][name], value)
        assert moved == name.endswith("mu"), name
        assert not torch.equal(seen[5][name], value), name
    assert [epoch.kl_weight for epoch in history][:3] == [0.0, 0.0, 0.0]
    assert 0 < history[3].kl_weight < 1
    assert history[5].kl_weight == 1.0


def test_a_pretrained_fit_resumes_to_the_same_parameters(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(60, 3, generator=generator)
    y = (x[:, 0] > 0).long()
    config = sn.TrainConfig(epochs=5, pretrain_epochs=3, batch_size=20)
    whole, stopped = sn.mlp((3, 5, 2)), sn.mlp((3, 5, 2))
    sn.fit(whole, (x, y), config)
    for last in (2, 4):

        def stop(epoch: sn.Epoch, last: int = last) -> None:
            if epoch.epoch == last:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            sn.fit(stopped, (x, y), config, checkpoint=tmp_path, resume=True, on_epoch=stop)
        stopped = sn.mlp((3, 5, 2))
    sn.fit(stopped, (x, y), config, checkpoint=tmp_path, resume=True)
    for one, other in zip(whole.parameters(), stopped.parameters(), strict=True):
        assert torch.equal(one, other)


def test_pretraining_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(sn.ArgumentError, match="pretrain_epochs must be below epochs, 5, got 5"):
        sn.TrainConfig(epochs=5, pretrain_epochs=5)
