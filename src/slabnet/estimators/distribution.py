"""The distribution of a new observation in each row of a table, in the units of the response."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from slabnet.core.errors import check_number
from slabnet.core.records import Predictive
from slabnet.estimators.scaling import Array, Scaling


@dataclass(frozen=True)
class PredictedDistribution:
    """What `predict_distribution` gives: an average over drawn networks; quantiles invert averaged probabilities.

    Arrays have one row for each row of X; with several responses one column for each.
    """

    mixture: Predictive
    scaling: Scaling
    rows: int
    flat: bool

    def quantile(self, share: float) -> Array:
        """The value below which an observation lies with probability `share`; 0.5 for the median."""
        share = check_number("quantile", "share", share, above=0, below=1)
        values = self.mixture.quantile(torch.tensor([share], dtype=torch.float64))[0]
        return self._shape(self.scaling.undo(values.numpy()))

    def interval(self, level: float = 0.95) -> tuple[Array, Array]:
        """The central interval that holds an observation with probability `level`."""
        level = check_number("interval", "level", level, above=0, below=1)
        return self.quantile((1 - level) / 2), self.quantile((1 + level) / 2)

    def cdf(self, y: Any) -> Array:
        """P(Y <= y); y: one value for all rows, or one for each."""
        return self._shape(self.mixture.cdf(self._inside(y)).numpy())

    def exceeds(self, y: Any) -> Array:
        """P(Y > y): for times the survival curve."""
        return self._shape(self.mixture.exceeds(self._inside(y)).numpy())

    def density(self, y: Any) -> Array:
        """The density at y (for counts: its probability), all responses of a row together."""
        units = float(np.log(self.scaling.scale).sum())
        return np.asarray((self.mixture.log_density(self._inside(y)) - units).exp().numpy())

    def _inside(self, y: Any) -> torch.Tensor:
        columns = len(self.scaling.scale)
        values = np.asarray(y, dtype=np.float64)
        table = values.reshape(self.rows, -1) if values.ndim else np.full((self.rows, columns), values)
        return torch.as_tensor(self.scaling.apply(np.broadcast_to(table, (self.rows, columns))))

    def _shape(self, values: Any) -> Array:
        return np.asarray(values[:, 0] if self.flat else values, dtype=np.float64)
