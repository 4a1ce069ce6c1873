"""The log density of each observation under a prediction: the log of the density averaged over the draws."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from slabnet.core.devices import device_of
from slabnet.core.errors import refuse
from slabnet.core.noise import Seed
from slabnet.core.records import Prediction
from slabnet.model.attach import likelihood_of
from slabnet.model.likelihoods import Target
from slabnet.prediction.metrics import row_log_densities
from slabnet.prediction.predict import predict
from slabnet.training.batches import Prepare


class ScoresRows:
    """Base of what gives the log density of rows in the units of a table, as fitted estimators do."""

    def log_densities(self, X: Any, y: Any) -> NDArray[np.float64]:
        """log of the averaged density of each row of `y` given `X`."""
        raise NotImplementedError(f"{type(self).__name__} must give log densities")


@torch.no_grad()
def log_densities(net: nn.Module, data: tuple[Any, Any], draws: int = 100, *, seed: Seed = 0) -> Tensor:
    """log of the averaged p(y_i | x_i), for each row of data = (x, y); all responses of a row together.

    A `Target` with exposures or events is read; weights do not matter to a single row.

    >>> from slabnet.model.networks import mlp
    >>> log_densities(mlp((4, 3)), (torch.zeros(2, 4), [0, 1]), draws=5).shape
    torch.Size([2])
    """
    if not isinstance(data, (tuple, list)) or len(data) != 2:
        refuse("log_densities", "data", "a pair (x, y)", type(data).__name__)
    device, dtype = device_of(net)
    x, y = Prepare(net, likelihood_of(net), dtype, device, "log_densities")(*data)
    target = Target(y) if isinstance(y, Tensor) else y
    prediction: Prediction = predict(net, x, draws, seed=seed, keep_draws=True, exposure=target.exposure)
    return row_log_densities(prediction, target.y.cpu(), target.event)
