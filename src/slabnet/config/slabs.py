"""What a user says of the slab, the distribution of a weight that is in the network. No torch.

The densities are in `model/slabs/`, one file for each; `model.slabs.register_slab` adds one from outside.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

from pydantic import Field, field_validator

from slabnet.core.errors import Settings


class SlabSettings(Settings):
    """The settings of a slab; a subclass has its `name`, by which files and TOML know it."""

    name: ClassVar[str]

    def spec(self) -> dict[str, Any]:
        """Name and settings as plain numbers and text: what a file holds."""
        return {"name": self.name} | self.model_dump(mode="json")


class GaussianSlab(SlabSettings):
    """N(0, sigma_beta^2), the slab of the paper (eq. 3)."""

    name: ClassVar[str] = "gaussian"


class Laplace(SlabSettings):
    """Density exp(-|beta| / sigma_beta) / (2 sigma_beta): small weights smaller, large ones larger than a normal's.

    >>> Laplace().spec()
    {'name': 'laplace'}
    """

    name: ClassVar[str] = "laplace"


class Student(SlabSettings):
    """Student's t with `df` degrees of freedom and scale sigma_beta: lets a few weights be very large."""

    name: ClassVar[str] = "student"
    df: float = Field(default=4.0, gt=0)


class ScaleMixture(SlabSettings):
    """Slab pi*N(0, variances[0]) + (1-pi)*N(0, variances[1]) (Blundell et al. 2015; sec. 4 of the paper)."""

    name: ClassVar[str] = "scale-mixture"
    pi: float = Field(default=0.5, gt=0, lt=1)
    variances: tuple[float, float] = (1.0, math.exp(-6.0))

    @field_validator("variances")
    @classmethod
    def _positive(cls, value: tuple[float, float]) -> tuple[float, float]:
        if min(value) <= 0:
            raise ValueError(f"variances must be two numbers above 0, got {value}")
        return value

    def spec(self) -> dict[str, Any]:
        """Without its name: files of format 1 know it by its settings."""
        return self.model_dump(mode="json")


SLABS: dict[str, type[SlabSettings]] = {kind.name: kind for kind in (GaussianSlab, Laplace, Student, ScaleMixture)}


def slab_spec(settings: SlabSettings) -> str | dict[str, Any]:
    """A slab as a file holds it: by its name alone, if that says all."""
    spec = settings.spec()
    return settings.name if list(spec) == ["name"] else spec


def slab_settings(value: Any) -> SlabSettings | None:
    """The settings that `value` stands for: settings, a name, or what a file holds; None if it is none of them.

    >>> slab_settings({"name": "student", "df": 3.0}), slab_settings("horseshoe")
    (Student(df=3.0), None)
    """
    if isinstance(value, SlabSettings):
        return value if SLABS.get(value.name) is type(value) else None
    if isinstance(value, dict):
        rest = {key: part for key, part in value.items() if key != "name"}
        name = value.get("name", ScaleMixture.name)
        return SLABS[name](**rest) if isinstance(name, str) and name in SLABS else None
    return SLABS[value]() if isinstance(value, str) and value in SLABS else None
