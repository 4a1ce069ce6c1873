"""`on_epoch` for trackers: every epoch's numbers to TensorBoard or MLflow, which slabnet does not import."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from slabnet.core.records import Epoch

FIELDS = ("log_likelihood", "kl", "kl_weight", "density_expected", "density_median", "alpha_moving", "alpha_at_prior")


class Writer(Protocol):
    """What is asked of `torch.utils.tensorboard.SummaryWriter`."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> object:
        """Write one number."""


class Run(Protocol):
    """What is asked of the module `mlflow`, or of a run of it."""

    def log_metrics(self, metrics: dict[str, float], step: int) -> object:
        """Write several numbers."""


def to_tensorboard(writer: Writer, prefix: str = "slabnet") -> Callable[[Epoch], None]:
    """An `on_epoch` that writes both terms of the bound, densities and how far alpha has come.

    writer: a `SummaryWriter`; prefix: what the names of the curves begin with.

    >>> class Printed:
    ...     def add_scalar(self, tag, scalar_value, global_step):
    ...         print(tag, global_step) if "kl" in tag else None
    >>> epoch = Epoch(3, -1.0, 2.0, 1.0, 0.5, 0.4, 0.0, 0.1, 0.01, 0.05, 1.0)
    >>> to_tensorboard(Printed())(epoch)
    slabnet/kl 3
    slabnet/kl_weight 3
    """

    def write(epoch: Epoch) -> None:
        for name, value in numbers_of(epoch).items():
            writer.add_scalar(f"{prefix}/{name}", value, epoch.epoch)

    return write


def to_mlflow(run: Run) -> Callable[[Epoch], None]:
    """An `on_epoch` that logs the same to MLflow.

    run: the module `mlflow` within `mlflow.start_run()`.

    >>> class Printed:
    ...     def log_metrics(self, metrics, step):
    ...         print(step, sorted(metrics)[:2])
    >>> to_mlflow(Printed())(Epoch(3, -1.0, 2.0, 1.0, 0.5, 0.4, 0.0, 0.1, 0.01, 0.05, 1.0))
    3 ['alpha_at_prior', 'alpha_moving']
    """

    def write(epoch: Epoch) -> None:
        run.log_metrics(numbers_of(epoch), step=epoch.epoch)

    return write


def numbers_of(epoch: Epoch) -> dict[str, float]:
    """The numbers of an epoch by name."""
    return {name: float(getattr(epoch, name)) for name in FIELDS}
