from __future__ import annotations

import torch

from slabnet.core.noise import keyed_generator, seed_number, uniform_like


def test_keys_give_streams_of_their_own() -> None:
    first = torch.randn(4000, generator=keyed_generator(0, "draw", 1))
    again = torch.randn(4000, generator=keyed_generator(0, "draw", 1))
    others = [keyed_generator(1, "draw", 1), keyed_generator(0, "draw", 2), keyed_generator(0, "noise", 1)]
    assert torch.equal(first, again)
    for other in others:
        correlation = torch.corrcoef(torch.stack([first, torch.randn(4000, generator=other)]))[0, 1]
        assert abs(float(correlation)) < 5 / 4000**0.5


def test_a_generator_is_a_seed_too() -> None:
    a, b = torch.Generator().manual_seed(3), torch.Generator().manual_seed(3)
    assert seed_number(a, "t") == seed_number(b, "t") != seed_number(a, "t")


def test_uniforms_are_strictly_inside() -> None:
    nu = uniform_like(torch.empty(2_000_000), keyed_generator(0))
    assert float(nu.min()) > 0
    assert float(nu.max()) < 1
    assert bool(torch.isfinite(torch.logit(nu)).all())


def test_global_state_is_left_alone() -> None:
    import slabnet as sn

    before = torch.get_rng_state()
    x = torch.ones(20, 3)
    y = torch.arange(20) % 2
    for method in sn.METHODS:
        net = sn.mlp((3, 4, 2), method=method)
        sn.fit(net, (x, y), sn.TrainConfig(epochs=2, batch_size=10))
        sn.predict(net, x, draws=3)
    sn.convnet((1, 8, 8), 2, method="deterministic")
    sn.convert(torch.nn.utils.skip_init(torch.nn.Linear, 3, 2), keep_weights=False)
    assert torch.equal(before, torch.get_rng_state())
