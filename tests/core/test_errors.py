from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from slabnet.config.settings import Beta, Prior, Recipe, Start, TrainConfig
from slabnet.core.errors import ArgumentError, check_choice, check_number, check_whole, one_line


@pytest.mark.parametrize("value", [float("nan"), float("inf"), "1", None, True, 0.0, 1.0, -1])
def test_numbers_outside_are_refused_by_name(value: object) -> None:
    with pytest.raises(ArgumentError, match=r"^mlp: psi must be a number above 0 and below 1, got "):
        check_number("mlp", "psi", value, above=0, below=1)


@pytest.mark.parametrize("value", [1.0, True, "2", 0, -3, None])
def test_whole_numbers(value: object) -> None:
    with pytest.raises(ArgumentError, match=r"^f: n must be a whole number of at least 1, got "):
        check_whole("f", "n", value, at_least=1)


def test_choices_are_listed() -> None:
    with pytest.raises(ArgumentError, match=r"^f: kind must be one of a, b, got 'c'$"):
        check_choice("f", "kind", "c", ("a", "b"))


def test_messages_stay_on_one_short_line() -> None:
    text = one_line("a\nb\x1b[31m" + "x" * 500)
    assert "\n" not in text
    assert "\x1b" not in text
    assert len(text) <= 80


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: TrainConfig(epochs=-3), "TrainConfig: epochs must be greater than or equal to 1, got -3"),
        (lambda: TrainConfig(learning_rate=1), "TrainConfig: learning_rate is not a setting; there are epochs"),
        (
            lambda: TrainConfig(draw="magic"),
            "TrainConfig: draw must be one of local, relaxed, straight_through, score,",
        ),
        (lambda: TrainConfig(kl="sampled"), 'TrainConfig: kl must be "exact" when draw="local"'),
        (lambda: TrainConfig(lr=float("nan")), "TrainConfig: lr must be a finite number, got nan"),
        (lambda: Prior(psi=1.0), 'Prior: psi must be "aic", "bic", a number above 0 and below 1'),
        (lambda: Prior(psi="cic"), "got cic"),
        (lambda: Prior(psi=[0.1, 2.0]), "one such number per layer"),
        (lambda: Prior(psi="bic"), 'Prior: n must be the number of observations when psi="bic", got None'),
        (lambda: Prior(sigma_beta=0), "Prior: sigma_beta must be a number above 0"),
        (lambda: Prior(include=3), "Prior: include must be a list of positions of inputs, got 3"),
        (lambda: Prior(include="12"), "Prior: include must be a list of positions of inputs, got 12"),
        (lambda: Prior(psi={"a": -1}), "Prior: Beta: a must be greater than 0, got -1"),
        (
            lambda: Prior(slab="horseshoe"),
            "Prior: slab must be one of gaussian, laplace, student, scale-mixture, or the settings of one, "
            "got horseshoe",
        ),
        (lambda: Prior(psi="bic", n=10**200), "Prior: n must be"),
        (lambda: TrainConfig(seed=True), "TrainConfig: seed must be a number, got True"),
        (lambda: TrainConfig(epochs="1"), "TrainConfig: epochs must be a number, got '1'"),
        (lambda: Start(mu="xx"), "Start: mu must be two numbers, the first not above the second, or"),
        (lambda: Beta(1, 2, 3), "Beta: arguments must be at most a, b, got 3 of them"),
        (lambda: Prior(include=[1], exclude=[1]), "include and exclude must not share inputs, got [1]"),
        (lambda: Start(omega=(3, 2)), "Start: omega must be two numbers, the first not above the second, got (3, 2)"),
    ],
)
def test_settings_speak_the_same_grammar(make: object, said: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        make()  # type: ignore[operator]
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_toml_round_trip_and_refusals(tmp_path: Path) -> None:
    path = tmp_path / "r.toml"
    path.write_text("[train]\nepochs = 3\n[prior]\npsi = [0.1, 0.2]\n[prior.slab]\npi = 0.25\n")
    recipe = Recipe.from_toml(path)
    assert TrainConfig.from_toml(path).epochs == 3
    assert recipe.train.epochs == 3
    assert recipe.prior.psi == (0.1, 0.2)
    for text, said in (
        ("[train]\nepochz = 3\n", "Recipe: TrainConfig: epochz is not a setting"),
        ("[trian]\n", "trian is not a setting"),
        ("[train]\nepochs = 'x'\n", "TrainConfig: epochs must be a number, got 'x'"),
        ("[train\n", "must be a TOML file"),
    ):
        path.write_text(text)
        with pytest.raises(ArgumentError, match=r"^(config|Recipe): ") as caught:
            Recipe.from_toml(path)
        assert said in str(caught.value)
    with pytest.raises(ArgumentError, match="readable"):
        Recipe.from_toml(tmp_path / "none.toml")


def test_the_paper_s_settings_are_a_named_recipe() -> None:
    paper = Recipe.named("paper")
    assert paper.train.model_dump(include={"epochs", "batch_size", "lr", "omega_lr", "kl"}) == {
        "epochs": 250,
        "batch_size": 100,
        "lr": 1e-4,
        "omega_lr": 0.1,
        "kl": "sampled",
    }
    assert abs(float(paper.prior.inclusion(0, 3)) - 0.1353352832) < 1e-9  # type: ignore[arg-type]
    assert paper.train.schedule == "constant"
    assert Recipe.named("default") == Recipe()
    assert Recipe().train == TrainConfig()  # `fit(net, data)` and `slabnet fit` train the same way
    with pytest.raises(ArgumentError, match="one of default, paper"):
        Recipe.named("other")


def test_epochs_follow_the_number_of_rows() -> None:
    config = TrainConfig()
    assert config.epochs_for(60_000) == 50
    assert config.epochs_for(1000) == 500
    assert TrainConfig(epochs=3).epochs_for(10) == 3
    assert config.ramp_for(50) == 25


def test_settings_load_without_torch() -> None:
    loaded = "import sys, slabnet.config.settings, slabnet.cli.app"
    code = f"{loaded}; sys.exit('torch' in sys.modules or 'sklearn' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_settings_take_their_fields_in_order() -> None:
    assert Beta(1, 2) == Beta(a=1, b=2)
    assert Prior(0.1, 2.0) == Prior(psi=0.1, sigma_beta=2.0)


def test_errors_are_one_line_whatever_they_hold() -> None:
    assert "\n" not in str(ArgumentError("a\nb"))
