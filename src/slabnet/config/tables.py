"""What the fit of a table takes where nothing was given: width, epochs, batch and steps, from n and p.

The rule, for n rows and p inputs:

| setting | rule |
|---|---|
| hidden | two layers of 50 units |
| psi | 1 / p (at most 0.5) for the inputs: a unit is expected to read one; 0.5 between units, and for all intercepts |
| sigma_beta | 1 |
| batch_size | n / 7, at least 64 (or all rows, if there are fewer) and at most 256 |
| epochs | as many as it takes for 2 500 steps, at least 100 and at most 1 000; never more than 20 000 steps take |
| ramp_epochs | half of the epochs: the KL comes in while the data speak for the weights |
| lr, omega_lr, schedule | 0.02, 0.05, falling as a cosine |
| kl_weight | 1; in regression with hidden layers, n >= 100 and n >= 20 p: 1 or 0.5, by a trial (`tempering.py`) |
| phi | learned with the weights; where there is a trial, from the rows it held out |

Standardised columns make one pair of step sizes good for all tables; steps, not epochs, are what the inclusion
probabilities need to settle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

INTERCEPT_PSI = 0.5
STEPS = 2500
FEWEST_EPOCHS, MOST_EPOCHS = 100, 1000
MOST_STEPS = 20_000  # a minute on one core: from 51 000 rows on more rows mean fewer passes


@dataclass(frozen=True)
class Defaults:
    """The settings for one table.

    >>> defaults_for(506, 13).hidden
    (50, 50)
    """

    hidden: tuple[int, ...]
    batch_size: int
    epochs: int
    ramp_epochs: int
    lr: float = 0.02
    omega_lr: float = 0.05
    schedule: str = "cosine"

    def training(self) -> dict[str, Any]:
        """The part of them that `TrainConfig` takes."""
        names = ("batch_size", "epochs", "ramp_epochs", "lr", "omega_lr", "schedule")
        return {name: getattr(self, name) for name in names}


def defaults_for(n: int, p: int) -> Defaults:
    """The rule above for n rows and p inputs.

    >>> [defaults_for(n, 5).epochs for n in (100, 10_000, 100_000, 1_000_000)]
    [1000, 100, 52, 6]
    """
    batch = min(n, max(64, min(256, n // 7)))
    steps = math.ceil(n / batch)
    epochs = max(FEWEST_EPOCHS, min(MOST_EPOCHS, math.ceil(STEPS / steps)))
    epochs = min(epochs, math.ceil(MOST_STEPS / steps))
    return Defaults(hidden=(50, 50), batch_size=batch, epochs=epochs, ramp_epochs=epochs // 2)


def psi_for(p: int, layers: int) -> tuple[float, ...]:
    """The chance of a weight to be in the network, for each layer.

    >>> psi_for(100, 3)
    (0.01, 0.5, 0.5)
    """
    return (min(0.5, 1 / max(1, p)), *(0.5 for _ in range(layers - 1)))
