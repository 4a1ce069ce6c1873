"""A teacher: the objective, what is refused, and that a network learns what only the teacher knows."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.ensemble import RandomForestClassifier, RandomForestRegressor

import slabnet as sn
from slabnet.model.likelihoods import likelihood_from

TEACHABLE = ["categorical", "bernoulli", "gaussian", "poisson", "ordinal"]


def rows(seed: int = 0, n: int = 120) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 3, generator=generator)
    return x, (x[:, 0] > 0).long()


def test_with_hard_labels_of_its_own_a_teacher_changes_nothing() -> None:
    x, y = rows()
    plain, taught = sn.mlp((3, 2)), sn.mlp((3, 2))
    config = sn.TrainConfig(epochs=3, batch_size=40)
    sn.fit(plain, (x, y), config)
    history = sn.fit(taught, (x, y), config, teacher=torch.nn.functional.one_hot(y, 2).float(), teacher_share=0.7)
    assert history.teacher_share == pytest.approx(0.7)
    for one, other in zip(plain.parameters(), taught.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-5)


def test_the_objective_is_the_expectation_over_the_teachers_classes() -> None:
    """Against drawing the class: sum_c q_c log p(c), with the share of it that was asked for."""
    _, y = rows(1, 6)
    likelihood = likelihood_from("categorical")
    output = torch.randn(6, 2, generator=torch.Generator().manual_seed(2))
    soft = torch.softmax(torch.randn(6, 2, generator=torch.Generator().manual_seed(3)), -1)
    target = sn.Target(y, soft=soft, soft_share=torch.full((6,), 0.25), weight=torch.arange(6.0))
    by_class = torch.stack([likelihood.log_prob(output, torch.full_like(y, c)) for c in range(2)], 1)
    each = 0.75 * likelihood.log_prob(output, y) + 0.25 * (soft * by_class).sum(1)
    assert likelihood.total(output, target) == pytest.approx(float((torch.arange(6.0) * each).sum()), rel=1e-6)


@pytest.mark.parametrize("name", TEACHABLE)
def test_a_share_of_zero_is_the_response_alone(name: str) -> None:
    outputs = 3 if name == "categorical" else 1
    likelihood = sn.Ordinal(3) if name == "ordinal" else likelihood_from(name, outputs)
    output = torch.randn(4, outputs, generator=torch.Generator().manual_seed(4))
    y = torch.tensor([0, 1, 1, 0])
    y = y if name in ("categorical", "ordinal") else y.float()[:, None]
    with torch.no_grad():
        soft, alone = likelihood.mean(output), float(likelihood.total(output, y))
        none = likelihood.total(output, sn.Target(y, soft=soft, soft_share=torch.zeros(4)))
        whole = likelihood.total(output, sn.Target(y, soft=soft, soft_share=torch.ones(4)))
    assert float(none) == pytest.approx(alone, rel=1e-5)
    assert float(whole) != pytest.approx(alone, rel=1e-3)


def test_a_forest_teaches_what_noisy_labels_hide() -> None:
    """Labels flipped for a third of the rows; the teacher saw clean ones."""
    x, clean = rows(5, 300)
    flip = torch.rand(300, generator=torch.Generator().manual_seed(6)) < 0.35
    y = torch.where(flip, 1 - clean, clean)
    forest = RandomForestClassifier(50, random_state=0).fit(x.numpy(), clean.numpy())
    config = sn.TrainConfig(epochs=40, batch_size=50)
    alone, taught = sn.mlp((3, 2)), sn.mlp((3, 2))
    sn.fit(alone, (x, y), config)
    sn.fit(taught, (x, y), config, teacher=forest, teacher_share=0.9)
    new, right = rows(7, 400)
    losses = [sn.negative_log_likelihood(sn.predict(net, new), right) for net in (alone, taught)]
    assert losses[1] < 0.7 * losses[0]


def test_numbers_are_taught_by_a_regressor() -> None:
    x, _ = rows(8, 200)
    y = 2 * x[:, 0]
    forest = RandomForestRegressor(30, random_state=0).fit(x.numpy(), y.numpy())
    net = sn.mlp((3, 1), likelihood="gaussian")
    history = sn.fit(net, (x, y + 3 * torch.randn(200)), sn.TrainConfig(epochs=40), teacher=forest, teacher_share=1.0)
    assert history.teacher_share == 1.0
    assert sn.rmse(sn.predict(net, x), y) < 0.6


def test_what_is_no_teacher_is_refused_in_one_line() -> None:
    x, y = rows()
    net = sn.mlp((3, 2))
    good = torch.full((120, 2), 0.5)
    for teacher, share, words in [
        (good, 0.0, "fit: teacher_share must be a number above 0 and at most 1, got 0"),
        ("forest", 0.5, "fit: teacher must be something with predict_proba or predict"),
        (good[:5], 0.5, "fit: soft must be one prediction for each of the 120 rows"),
        (good * 2, 0.5, "fit: soft must be probabilities that sum to 1 in each row"),
        (good[:, :1], 0.5, "fit: soft must be probabilities of the classes, 2 a row"),
        (np.full((120, 2), np.nan), 0.5, "fit: soft must be finite numbers"),
    ]:
        with pytest.raises(sn.ArgumentError, match=words):
            sn.fit(net, (x, y), teacher=teacher, teacher_share=share)
    with pytest.raises(sn.ArgumentError, match="fit: teacher must be used with"):
        sn.fit(net, [(x, y)], n=120, teacher=good)
