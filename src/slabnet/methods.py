"""The registry of methods: one row for each way to be (or not to be) Bayesian about a network. No torch."""

from __future__ import annotations

import math
from dataclasses import dataclass

from pydantic import Field, field_validator

from slabnet.checks import Settings


class ScaleMixture(Settings):
    """Slab pi*N(0, variances[0]) + (1-pi)*N(0, variances[1]) (Blundell et al. 2015; sec. 4 of the paper)."""

    pi: float = Field(default=0.5, gt=0, lt=1)
    variances: tuple[float, float] = (1.0, math.exp(-6.0))

    @field_validator("variances")
    @classmethod
    def _positive(cls, value: tuple[float, float]) -> tuple[float, float]:
        if min(value) <= 0:
            raise ValueError(f"variances must be two numbers above 0, got {value}")
        return value


@dataclass(frozen=True)
class Method:
    """One row of `METHODS`.

    posterior: what every weight has, None for plain weights. slab: the slab the method is defined by, None
    for the prior's own. selects: has indicators to choose a model by. bound: its objective is a lower
    bound of the log evidence.
    """

    name: str
    summary: str
    source: str
    posterior: str | None
    slab: ScaleMixture | None
    selects: bool
    bound: bool


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            name="lbbnn",
            summary="spike-and-slab posterior: an inclusion probability, mean and spread for every weight",
            source="Hubin & Storvik 2019, Combining model and parameter uncertainty in Bayesian neural networks",
            posterior="spike_slab",
            slab=None,
            selects=True,
            bound=True,
        ),
        Method(
            name="gaussian",
            summary="dense mean-field Gaussian posterior: every weight in the network, with a mean and spread",
            source="Graves 2011, Practical variational inference for neural networks",
            posterior="gaussian",
            slab=None,
            selects=False,
            bound=True,
        ),
        Method(
            name="mixture",
            summary="dense Gaussian posterior under a prior that mixes a wide and a narrow Gaussian",
            source="Blundell et al. 2015, Weight uncertainty in neural networks",
            posterior="gaussian",
            slab=ScaleMixture(),
            selects=False,
            bound=True,
        ),
        Method(
            name="deterministic",
            summary="a plain network of point weights, for comparison",
            source="maximum likelihood",
            posterior=None,
            slab=None,
            selects=False,
            bound=False,
        ),
    )
}
