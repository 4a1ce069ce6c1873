"""What a user can set, as frozen, validated records that read from TOML. Imports no torch.

`Prior` (in `config/priors.py`) says what is believed before the data, `Start` where training starts, `TrainConfig` how
it goes, `NetworkConfig` what is trained; a `Recipe` is all four under a name.
"""

from __future__ import annotations

import math
import re
import tomllib
from importlib import resources
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import (
    Field,
    SerializerFunctionWrapHandler,
    ValidationInfo,
    field_validator,
    model_serializer,
    model_validator,
)

from slabnet.config.activations import Activations, check_activation
from slabnet.config.methods import METHODS
from slabnet.config.priors import Beta as Beta
from slabnet.config.priors import Prior as Prior
from slabnet.core.errors import ArgumentError, Settings, check_choice, one_line, refuse

DATA_SETS = ["digits", "mnist", "fashion-mnist"]  # by name; `data.register` adds to them
DRAWS = ["local", "relaxed", "straight_through", "score"]  # for training, by name; `register_draw` adds to them
TABLE_FILES = (".csv", ".tsv", ".txt", ".parquet", ".pq")
MOST_BYTES, MOST_DOTS = 2**20, 100  # of a TOML file, and of a key in it
WIDEST = 10**7
MOVE = 2.0  # how far a mean may have to go before its indicator may move: a start of a standard normal, and back
MANY = 10**9  # more epochs, rows a step and so on than anybody will have


class Start(Settings):
    """Where training starts: ranges of uniform starts for omega, rho and mu, or for mu a word.

    mu: "he" is He's normal. "data" is the same, except for weights that lead straight from an input to an output:
        they wait at zero, and `fit` starts them, with their rho and omega, at the posterior of the linear model.

    >>> Start().omega
    (2.0, 3.0)
    """

    omega: tuple[float, float] = (2.0, 3.0)
    rho: tuple[float, float] = (-5.0, -4.0)
    mu: Literal["data", "he"] | tuple[float, float] = "data"

    @field_validator("omega", "rho", "mu", mode="before")
    @classmethod
    def _range(cls, value: Any, info: ValidationInfo) -> Any:
        text = info.field_name == "mu" and value in ("data", "he")
        words = ', or "data" or "he"' if info.field_name == "mu" else ""
        allowed = f"two numbers, the first not above the second{words}"
        pair = list(value) if isinstance(value, (tuple, list)) else []
        good = len(pair) == 2 and all(isinstance(v, (int, float)) and math.isfinite(v) for v in pair)
        if not text and not (good and pair[0] <= pair[1]):
            raise ValueError(f"{info.field_name} must be {allowed}, got {one_line(value)}")
        return value


class TrainConfig(Settings):
    """How Algorithm 1 is run. The defaults are those of image sets, and need no tuning there: local
    reparametrisation, and a KL that comes in over half of the epochs, so that the data speak for a weight before the
    prior removes it. Tables have a rule of their own (`slabnet.config.tables`).

    epochs: None means at least 50, and as many as it takes for 5 000 steps.
    batch_size: rows a step, of all processes together; samples: M, draws a step.
    lr: step size of mu and rho (and of everything that is not omega); omega_lr: that of omega.
    omega_hold: steps for which omega waits, or indicators close before the means have turned to where the data want
        them. None means as many as a mean needs to move by 2 (2 / lr), at most a fifth of all.
    pretrain_epochs: the first epochs, of all, in which only the means are trained, as in a plain network: without noise
        and without the KL, while omega waits. A start from there finds a better optimum on images.
    omega_settle_epoch, omega_settle_lr: from that epoch on omega takes this step size instead.
    schedule: how both step sizes fall over training: "constant", "linear" or "cosine". Falling steps settle the
        weights near the threshold, and need long training: a short fit ends before it has learned.
    draw: "local", "relaxed", "straight_through" (both at temperature `delta`), "score", or one that was registered.
    kl: "exact" where a closed form exists, or "sampled": the paper's log q - log p at the drawn weights.
    ramp_epochs: epochs, after pretraining, over which the weight of the KL grows to kl_weight; None means half of all,
        or none where the weights start from the data (`Start(mu="data")` in a network of one layer).
        Post-training (a fixed selection) uses no ramp: nothing is being pruned.
    kl_weight: 1 is the bound itself; anything else is a tempered posterior, and the history says so.
    validation_fraction: share of the rows held out; patience: epochs without a better validation
        log-likelihood, counted after the ramp, before training stops and the best state is restored.
    clip: largest norm of the gradient of the loss per row; None for no clipping.
    cut_every: epochs between two looks for neurons that carry nothing any more, which are then left out of the
        computation (in networks of linear layers with many weights; docs/speed.md). 0 computes everything to the end.
    shared_draws: in a fit of several processes all draw the same weights, as one process would; otherwise each
        draws its own, which lowers the variance of the gradient. Under "local" every row has its own noise anyway.
    compile: make the passes over the weights with `torch.compile`, for accelerators; the CPU has its own in C.
    device: "auto" takes CUDA, then Apple's MPS, then the CPU. dtype: None keeps the network's own.

    >>> TrainConfig(epochs=0)
    Traceback (most recent call last):
        ...
    slabnet.core.errors.ArgumentError: TrainConfig: epochs must be greater than or equal to 1, got 0
    """

    epochs: int | None = Field(default=None, ge=1, le=MANY)
    batch_size: int = Field(default=100, ge=1, le=MANY)
    samples: int = Field(default=1, ge=1, le=MANY)
    lr: float = Field(default=0.01, gt=0)
    omega_lr: float = Field(default=0.05, gt=0)
    omega_hold: int | None = Field(default=None, ge=0, le=MANY)
    pretrain_epochs: int = Field(default=0, ge=0, le=MANY)
    omega_settle_epoch: int | None = Field(default=None, ge=1, le=MANY)
    omega_settle_lr: float = Field(default=1e-4, gt=0)
    schedule: Literal["constant", "linear", "cosine"] = "cosine"
    draw: str = "local"
    delta: float = Field(default=0.5, gt=0)
    kl: Literal["exact", "sampled"] = "exact"
    ramp_epochs: int | None = Field(default=None, ge=0, le=MANY)
    kl_weight: float = Field(default=1.0, gt=0)
    validation_fraction: float = Field(default=0.0, ge=0, lt=1)
    patience: int | None = Field(default=None, ge=1, le=MANY)
    clip: float | None = Field(default=None, gt=0)
    seed: int = Field(default=0, ge=0)
    cut_every: int = Field(default=2, ge=0, le=MANY)
    shared_draws: bool = False
    compile: bool = False
    device: str = "auto"
    dtype: Literal["float32", "float64"] | None = None

    @field_validator("draw")
    @classmethod
    def _draw(cls, value: str) -> str:
        if value not in DRAWS:
            raise ValueError(f"draw must be one of {', '.join(DRAWS)}, got {one_line(repr(value))}")
        return value

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.kl == "sampled" and self.draw == "local":
            raise ValueError(
                'kl must be "exact" when draw="local", which draws no weights to take the sampled one at, got "sampled"'
            )
        if self.epochs is not None and self.pretrain_epochs >= self.epochs:
            raise ValueError(f"pretrain_epochs must be below epochs, {self.epochs}, got {self.pretrain_epochs}")
        return self

    @classmethod
    def from_toml(cls, path: str | Path) -> TrainConfig:
        """Read the [train] table of a TOML file, or a file that holds nothing else."""
        tables = read_toml(path)
        train = tables.get("train", tables)
        if not isinstance(train, dict):
            refuse("config", "train", "a table, [train]", train)
        return cls(**train)

    def epochs_for(self, n: int) -> int:
        """The number of epochs for n rows."""
        return self.epochs or max(50, math.ceil(5000 / math.ceil(n / self.batch_size)))

    def hold_for(self, steps: int) -> int:
        """The number of steps, of so many in all, for which omega waits.

        >>> TrainConfig(lr=0.01).hold_for(5000), TrainConfig(lr=0.01).hold_for(500)
        (200, 100)
        """
        return min(math.ceil(MOVE / self.lr), steps // 5) if self.omega_hold is None else self.omega_hold

    def ramp_for(self, epochs: int) -> int:
        """The number of epochs over which the KL comes in."""
        return epochs // 2 if self.ramp_epochs is None else self.ramp_epochs


class NetworkConfig(Settings):
    """What is trained: hidden widths, activation or several, the method by its name in the registry, how many members,
    whether every layer reads the inputs again (`skip`), and whether each column stands behind a gate (`gates`)."""

    hidden: tuple[int, ...] = (400, 600)
    activation: str | tuple[str, ...] = "relu"
    method: str = "lbbnn"
    members: int = Field(default=1, ge=1, le=100)
    skip: bool = False
    gates: bool = False

    @model_serializer(mode="wrap")
    def _without_what_came_later(self, usual: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """One network without skips and gates is written as it was before there could be others."""
        written: dict[str, Any] = usual(self)
        plain = {"members": 1} | {name: False for name in ("skip", "gates") if name not in self.model_fields_set}
        return {name: value for name, value in written.items() if name not in plain or value != plain[name]}

    @field_validator("hidden")
    @classmethod
    def _widths(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if any(not 1 <= width <= WIDEST for width in value):
            raise ValueError(f"hidden must be widths of at least 1 and at most {WIDEST}, got {one_line(value)}")
        return value

    @field_validator("activation", mode="before")
    @classmethod
    def _activation(cls, value: Any) -> Activations:
        try:
            return check_activation("NetworkConfig", value)
        except ArgumentError as error:  # the settings say their own name
            raise ValueError(str(error).removeprefix("NetworkConfig: ")) from None

    @field_validator("method")
    @classmethod
    def _method(cls, value: str) -> str:
        if value not in METHODS:
            raise ValueError(f"method must be one of {', '.join(METHODS)}, got {one_line(repr(value))}")
        return value


class Recipe(Settings):
    """Everything a fit needs but the data, under a name. `Recipe()` is the one for image sets, "default".

    >>> Recipe.named("paper").train.kl
    'sampled'
    """

    network: NetworkConfig = NetworkConfig()
    prior: Prior = Prior()
    start: Start = Start()
    train: TrainConfig = TrainConfig()

    @classmethod
    def names(cls) -> list[str]:
        """The recipes that come with the package."""
        files = resources.files("slabnet.config.recipes").iterdir()
        return sorted(["default", *(Path(file.name).stem for file in files if file.name.endswith(".toml"))])

    @classmethod
    def named(cls, name: str) -> Recipe:
        """A recipe that comes with the package: "default", or "paper" for sec. 4 of the paper."""
        check_choice("recipe", "name", name, cls.names())
        if name == "default":
            return cls()
        text = resources.files("slabnet.config.recipes").joinpath(f"{name}.toml").read_text("utf-8")
        return cls(**tomllib.loads(text))

    @classmethod
    def from_toml(cls, path: str | Path) -> Recipe:
        """Read a TOML file with the tables [network], [prior], [start] and [train], each optional."""
        return cls(**read_toml(path))


def read_toml(path: str | Path) -> dict[str, Any]:
    """The contents of a TOML file, or one line that says what is wrong with it."""
    try:
        with Path(path).open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            refuse("config", "the file", f"at most {MOST_BYTES} bytes long", path)
        text = content.decode("utf-8").replace("\r\n", "\n")
        _check_keys(text, path)
        return tomllib.loads(text)
    except ArgumentError:
        raise
    except OSError as error:
        refuse("config", "the file", "readable", f"{path} ({error.strerror})")
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits are a plain ValueError
        raise ArgumentError(f"config: {path} must be a TOML file, got: {one_line(str(error))}") from None


def _check_keys(text: str, path: str | Path) -> None:
    """Refuse keys of very many parts, which take tomllib the square of their number."""
    for number, line in enumerate(text.split("\n"), start=1):
        parts = [line] if '"' in line or "'" in line else re.split(r"[,=\[\]{}]", line)
        if max(part.count(".") for part in parts) > MOST_DOTS:
            refuse("config", "a key", f"of at most {MOST_DOTS} parts", f"more in line {number} of {path}")
