"""What is believed before the data, as frozen, validated records that read from TOML. Imports no torch."""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol, Self, runtime_checkable

from pydantic import Field, PrivateAttr, ValidationInfo, field_serializer, field_validator, model_validator

from slabnet.config.slabs import SLABS, GaussianSlab, SlabSettings, slab_settings, slab_spec
from slabnet.core.errors import Settings, one_line, refuse

MOST_DILUTED = 500  # columns: a file holds the matrix


@runtime_checkable
class Listed(Protocol):
    """An array of numpy or torch, which can say itself as a list."""

    def tolist(self) -> Any: ...


class Beta(Settings):
    """psi ~ Beta(a, b), one psi for each layer; its posterior is learned along with the weights."""

    a: float = Field(default=1.0, gt=0)
    b: float = Field(default=1.0, gt=0)


class InverseGamma(Settings):
    """Prior of a variance, InverseGamma(shape, scale): of sigma_beta^2, one for each layer, or of Gaussian noise.

    Given the weights the best posterior of sigma_beta^2 is
    InverseGamma(shape + sum alpha / 2, scale + sum alpha (mu^2 + sigma^2) / 2).
    """

    shape: float = Field(default=1.0, gt=0)
    scale: float = Field(default=1.0, gt=0)


class WeightPsi(Settings):
    """psi of every single weight, as a file holds what a function gave: each of `values` as often as `runs` says.

    shapes: (units, inputs) of each layer; the weights of all layers come one after the other, row by row.

    >>> WeightPsi.of([[0.1, 0.1, 0.2]], [(1, 3)]).runs
    (2, 1)
    """

    shapes: tuple[tuple[int, int], ...]
    values: tuple[float, ...]
    runs: tuple[int, ...]
    _ends: tuple[int, ...] = PrivateAttr(default=())  # how many weights there are up to the end of each run

    def model_post_init(self, context: Any, /) -> None:
        self._ends = tuple(itertools.accumulate(self.runs))

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        whole = sum(units * inputs for units, inputs in self.shapes)
        good = all(0 < value < 1 for value in self.values) and all(run > 0 for run in self.runs)
        if not good or len(self.values) != len(self.runs) or sum(self.runs) != whole:
            raise ValueError(
                f"psi must be a number above 0 and below 1 for each of {whole} weights, got something else"
            )
        return self

    @classmethod
    def of(cls, layers: Sequence[Sequence[float]], shapes: Sequence[tuple[int, int]]) -> Self:
        """The weights of these layers."""
        runs = [(value, len(list(run))) for value, run in itertools.groupby(itertools.chain(*layers))]
        return cls(shapes=tuple(shapes), values=tuple(v for v, _ in runs), runs=tuple(n for _, n in runs))

    def of_layer(self, index: int, shape: tuple[int, ...]) -> list[float]:
        """psi of the weights of one layer, which must have the shape that was written."""
        if index >= len(self.shapes) or self.shapes[index] != tuple(shape):
            refuse("Prior", "psi", f"values for layers of the shapes {list(self.shapes)}", f"layer {index} of {shape}")
        place = sum(units * inputs for units, inputs in self.shapes[:index])
        end, run = place + math.prod(shape), bisect.bisect_right(self._ends, place)
        values: list[float] = []
        while place < end:
            count = min(end, self._ends[run]) - place
            values += [self.values[run]] * count
            place, run = place + count, run + 1
        return values


PsiFunction = Callable[[int, int, int], float]


class Prior(Settings):
    """What is believed before the data (eq. 3).

    psi: "aic" = exp(-2), "bic" = exp(-2 log n) (needs `n`), a number in (0, 1), one number per layer,
        `Beta(a, b)` to learn it, or a function of (layer, unit, input), counted from 0, that gives a number for each
        weight of a network of linear layers (in later layers of an input-skip network the inputs count behind the
        units). A file holds the numbers, not the function. Intercepts have one half then, or `intercept_psi`.
    sigma_beta: scale of the slab: a number, one per layer, "learned" (empirical Bayes, one per layer), or
        `InverseGamma(shape, scale)`: learned with a posterior of its own, for Gaussian slabs.
    slab: the distribution of a weight that is in the network, by name or with its settings: "gaussian", "laplace",
        "student" or `Student(df)`, all with the scale sigma_beta; `ScaleMixture`, which has scales of its own; or one
        that was registered.
    input_psi: one psi for each input of the first layer, in place of `psi` there.
    intercept_psi: psi of the intercepts: a number, or one per layer; None gives them what their layer's weights have.
    skip_psi: in input-skip networks, psi of the weights by which later layers read the inputs: a number, or one for
        each input; None takes what the first layer has.
    dilution: the correlation matrix of the columns (`sn.correlations`), for networks with gates="inputs" and a number
        as `psi_gate` (one half where nothing is said): sets of columns that say the same are less probable, by the
        determinant of their correlations (George 2010; `slabnet.maths.dilution` says what stands for its logarithm).
    include, exclude: inputs (by position) whose weights are all in, or all out, in every layer that reads inputs.

    >>> round(Prior(psi="bic", n=100).inclusion(0, 1), 6)
    0.0001
    """

    psi: Literal["aic", "bic"] | float | tuple[float, ...] | Beta | WeightPsi | PsiFunction = "aic"
    sigma_beta: Literal["learned"] | float | tuple[float, ...] | InverseGamma = 1.0
    slab: SlabSettings = GaussianSlab()
    n: int | None = Field(default=None, ge=2, le=10**12)
    input_psi: tuple[float, ...] | None = None
    intercept_psi: float | tuple[float, ...] | None = None
    skip_psi: float | tuple[float, ...] | None = None
    dilution: tuple[tuple[float, ...], ...] | None = None
    include: tuple[int, ...] = ()
    exclude: tuple[int, ...] = ()

    @field_validator("psi", mode="before")
    @classmethod
    def _psi(cls, value: Any) -> Any:
        allowed = '"aic", "bic", a number above 0 and below 1, one such number per layer, Beta(a, b), or a function'
        if (
            isinstance(value, (Beta, WeightPsi))
            or callable(value)
            or (isinstance(value, str) and value in ("aic", "bic"))
        ):
            return value
        if isinstance(value, dict):
            return WeightPsi(**value) if "runs" in value else Beta(**value)
        return _inside(value, "psi", allowed, 0.0, 1.0)

    @field_validator("sigma_beta", mode="before")
    @classmethod
    def _sigma_beta(cls, value: Any) -> Any:
        if isinstance(value, InverseGamma) or (isinstance(value, str) and value == "learned"):
            return value
        if isinstance(value, dict):
            return InverseGamma(**value)
        allowed = 'a number above 0, one per layer, "learned", or InverseGamma(shape, scale)'
        return _inside(value, "sigma_beta", allowed, 0.0, math.inf)

    @field_validator("input_psi", "intercept_psi", "skip_psi", mode="before")
    @classmethod
    def _single_psi(cls, value: Any, info: ValidationInfo) -> Any:
        allowed = {
            "input_psi": "one number above 0 and below 1 for each input",
            "intercept_psi": "a number above 0 and below 1, or one such number per layer",
            "skip_psi": "a number above 0 and below 1, or one such number for each input",
        }
        name = str(info.field_name)
        return None if value is None else _inside(value, name, allowed[name], 0.0, 1.0)

    @field_validator("slab", mode="before")
    @classmethod
    def _slab(cls, value: Any) -> Any:
        settings = slab_settings(value)
        if settings is None:
            raise ValueError(f"slab must be one of {', '.join(SLABS)}, or the settings of one, got {one_line(value)}")
        return settings

    @field_serializer("slab")
    def _slab_spec(self, value: SlabSettings) -> str | dict[str, Any]:
        return slab_spec(value)

    @field_validator("dilution", mode="before")
    @classmethod
    def _dilution(cls, value: Any) -> Any:
        allowed = f"a correlation matrix of at most {MOST_DILUTED} columns: symmetric, with ones on the diagonal"
        plain = value.tolist() if isinstance(value, Listed) else value
        rows = [] if not isinstance(plain, (list, tuple)) else list(plain)
        square = 0 < len(rows) <= MOST_DILUTED and all(
            isinstance(row, (list, tuple)) and len(row) == len(rows) for row in rows
        )
        if plain is None:
            return None
        if not square or not all(_correlates(rows, i, j) for i in range(len(rows)) for j in range(i + 1)):
            raise ValueError(f"dilution must be {allowed}, got {one_line(value)}")
        return tuple(tuple(float(number) for number in row) for row in rows)

    @field_validator("include", "exclude", mode="before")
    @classmethod
    def _positions(cls, value: Any, info: ValidationInfo) -> Any:
        plain = value.tolist() if isinstance(value, Listed) else value
        numbers = list(plain) if isinstance(plain, (list, tuple)) else None
        if numbers is None or not all(isinstance(v, int) and not isinstance(v, bool) for v in numbers):
            raise ValueError(f"{info.field_name} must be a list of positions of inputs, got {one_line(value)}")
        return tuple(numbers)

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.psi == "bic" and self.n is None:
            raise ValueError('n must be the number of observations when psi="bic", got None')
        if isinstance(self.sigma_beta, InverseGamma) and not isinstance(self.slab, GaussianSlab):
            raise ValueError(f"slab must be gaussian when sigma_beta is InverseGamma, got {one_line(self.slab)}")
        if self.by_weight and (self.input_psi is not None or self.skip_psi is not None):
            raise ValueError("input_psi and skip_psi must be left out when psi says all of each weight, got them too")
        if both := set(self.include) & set(self.exclude):
            raise ValueError(f"include and exclude must not share inputs, got {sorted(both)} in both")
        return self

    @property
    def by_weight(self) -> bool:
        """Whether psi is given for every single weight."""
        return callable(self.psi) or isinstance(self.psi, WeightPsi)

    def inclusion(self, index: int, layers: int) -> float | Beta:
        """psi of layer `index` of `layers`."""
        if self.psi == "aic":
            return math.exp(-2.0)
        if self.psi == "bic":
            return math.exp(-2.0 * math.log(self.n or 2))
        if isinstance(self.psi, tuple):
            return _pick("psi", self.psi, index, layers)
        if isinstance(self.psi, (float, Beta)):
            return self.psi
        return 0.5  # of the intercepts: every weight has its own

    def intercept_inclusion(self, index: int, layers: int) -> float | None:
        """psi of the intercepts of layer `index` of `layers`, None where it is that of the weights."""
        if isinstance(self.intercept_psi, tuple):
            return _pick("intercept_psi", self.intercept_psi, index, layers)
        return self.intercept_psi

    def scale(self, index: int, layers: int) -> float | Literal["learned"] | InverseGamma:
        """sigma_beta of layer `index` of `layers`."""
        if isinstance(self.sigma_beta, tuple):
            return _pick("sigma_beta", self.sigma_beta, index, layers)
        return self.sigma_beta


def _correlates(rows: list[Any], i: int, j: int) -> bool:
    """Whether entry (i, j) can be a correlation, and (j, i) the same."""
    value, other = rows[i][j], rows[j][i]
    good = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in (value, other))
    return good and abs(value - other) < 1e-9 and (abs(value - 1) < 1e-9 if i == j else -1 < value < 1)


def _inside(value: Any, name: str, allowed: str, low: float, high: float) -> Any:
    """`value` if it is a number, or a non-empty list of numbers, strictly between low and high."""
    plain = value.tolist() if isinstance(value, Listed) else value
    numbers = list(plain) if isinstance(plain, (list, tuple)) else [plain]
    good = all(isinstance(v, (int, float)) and not isinstance(v, bool) and low < v < high for v in numbers)
    if not numbers or not good:
        raise ValueError(f"{name} must be {allowed}, got {one_line(value)}")
    return tuple(map(float, plain)) if isinstance(plain, (list, tuple)) else float(plain)


def _pick(name: str, values: tuple[float, ...], index: int, layers: int) -> float:
    if len(values) != layers:
        refuse("Prior", name, f"one number for each of the {layers} layers", f"{len(values)} numbers")
    return values[index]
