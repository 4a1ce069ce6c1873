"""What a model file says of its fit: one typed record, written once, read by report, inspect, predict and export.

In a file it is the entry `about` of the header. Every field may be missing: files hold what their fit knew. What a
user keeps beside a model under other names (`save(net, path, note=...)`) is taken along as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field

from slabnet.core.errors import ArgumentError, FileError, Settings


class ScalingCard(Settings):
    """What was subtracted from each column, and what it was divided by."""

    centre: list[float]
    scale: list[float]


class EstimatorCard(Settings):
    """What an estimator needs besides its network to predict as it did.

    named: the columns had names. columns: their names, where a table was learned of them. hidden_given, params: what
    its user set. support: a `TrainingSupport`; background: `ColumnPoints`; trial: the weight of the KL, the noise, and
    the rows they came from.
    classes, classes_type: labels, and their type in numpy. flat: the response was one column without a second axis.
    response: the likelihood that was taken, and why; rate: what exposures are counted in.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    kind: Literal["classifier", "regressor"] | None = None
    draws: int | None = None
    seed: int | None = None
    samples_seen: int | None = None
    scaling_x: ScalingCard | None = None
    scaling_y: ScalingCard | None = None
    feature_effects: list[float] | None = None
    signed_effects: dict[str, Any] | None = None
    named: bool = False
    columns: list[Any] | None = None
    hidden_given: bool = True
    params: dict[str, Any] = Field(default_factory=dict)
    support: dict[str, Any] | None = None
    background: dict[str, Any] | None = None
    trial: list[Any] | None = None
    classes: list[Any] | None = None
    classes_type: str | None = None
    conformal: Any = None
    flat: bool = False
    rate: float | None = None
    response: list[str] | None = None


class FitCard(Settings):
    """What a model file says of its fit.

    data: a data set by name. recipe: the settings it was fitted with; config: those of a run of an experiment.
    task, target, table, input_names: what a table was, and how its columns became inputs. job: the call of
    `slabnet fit` for a table. history: the last epoch; epochs: all of them in columns. rows, tested: metrics on test
    rows. command: the call that makes the model again.

    >>> FitCard(data="digits", note="mine").to_header()
    {'data': 'digits', 'note': 'mine'}
    """

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=True)

    data: str | None = None
    recipe: dict[str, Any] | None = None
    config: dict[str, Any] | None = None
    seed: int | None = None
    command: str | None = None
    task: Literal["classification", "regression"] | None = None
    target: str | None = None
    table: dict[str, Any] | None = None
    input_names: list[str] | None = None
    estimator: EstimatorCard | None = None
    job: dict[str, Any] | None = None
    history: dict[str, Any] | None = None
    epochs: dict[str, Any] | None = None
    rows: list[dict[str, Any]] | None = None
    tested: dict[str, Any] | None = None

    @classmethod
    def of(cls, header: Mapping[str, Any], path: object) -> Self:
        """The card in the header of a model file; one that says what no fit can have been is refused."""
        try:
            return cls(**header.get("about", {}))
        except ArgumentError as error:
            raise FileError(f"load: {path} must say what its fit was, got a file in which {error}") from None

    def to_header(self) -> dict[str, Any]:
        """What was given, as plain JSON."""
        return self.model_dump(exclude_unset=True)
