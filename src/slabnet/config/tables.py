"""What the fit of a table takes where nothing was given: width, epochs, batch and steps, from n and p.

The rule, for n rows and p inputs:

| setting | rule |
|---|---|
| hidden | two layers of 50 units |
| skip | every layer reads the inputs again: a linear relation takes one weight for each input |
| gates | one indicator for each column, where the method has indicators and neither prior nor psi was given |
| members | one |
| psi | 0.5 below a gate, whose own is learned (Beta(1, 1)); without gates 1 / p (at most 0.5) for inputs, else 0.5 |
| sigma_beta | 1 |
| batch_size | 256, or all rows if there are fewer |
| epochs | as many as it takes for 2 000 steps, at least 80; never more than 20 000 steps take |
| ramp_epochs | half of the epochs: the KL comes in while the data speak for the weights |
| lr, omega_lr, schedule | 0.02, 0.05, falling as a cosine |
| kl_weight | 1; in regression with hidden layers, n >= 100 and n >= 20 columns: 1 or 0.5, by a trial (`tempering.py`) |
| phi | learned with the weights; after a trial, from the rows it held out |

Standardised columns make one pair of step sizes good for all tables; steps, not epochs, are what the inclusion
probabilities need to settle.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

INTERCEPT_PSI = 0.5
GATES = "inputs"
MOST_ROWS_A_STEP = 256
STEPS = 2000
FEWEST_EPOCHS = 80
MOST_STEPS = 20_000  # a minute on one core: from 64 000 rows on more rows mean fewer passes


@dataclass(frozen=True)
class Defaults:
    """The settings for one table.

    >>> defaults_for(506, 13).hidden
    (50, 50)
    """

    hidden: tuple[int, ...]
    skip: bool
    gates: str
    members: int
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
    [2000, 80, 52, 6]
    """
    batch = min(n, MOST_ROWS_A_STEP)
    steps = math.ceil(n / batch)
    epochs = max(FEWEST_EPOCHS, math.ceil(STEPS / steps))
    epochs = min(epochs, math.ceil(MOST_STEPS / steps))
    return Defaults((50, 50), True, GATES, 1, batch_size=batch, epochs=epochs, ramp_epochs=epochs // 2)


def psi_for(p: int, layers: int) -> tuple[float, ...]:
    """The chance of a weight to be in the network, for each layer.

    >>> psi_for(100, 3)
    (0.01, 0.5, 0.5)
    """
    return (min(0.5, 1 / max(1, p)), *(0.5 for _ in range(layers - 1)))
