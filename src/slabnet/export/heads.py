"""What stands at the end of an exported network: the heads that likelihoods name, and what each gives."""

from __future__ import annotations

from slabnet.core.errors import refuse
from slabnet.model.likelihoods import Head, Likelihood

CLASSES = ("logits", "probabilities", "entropy")
NUMBERS = ("mean", "variance")
MEDIANS = ("median", "log_variance")  # of numbers whose mean does not exist, and of their logarithm

# name of a head -> what a file gives for its outputs; `as_onnx`, `as_torch` and `numpy_runtime` each have a row for it
HEADS: dict[str, tuple[str, ...]] = {
    "softmax": CLASSES,
    "sigmoid": CLASSES,
    "ordinal": CLASSES,
    "normal": NUMBERS,
    "student-t": NUMBERS,
    "heteroscedastic": NUMBERS,
    "poisson": NUMBERS,
    "negative-binomial": NUMBERS,
    "gamma": NUMBERS,
    "lognormal": MEDIANS,
    "weibull": MEDIANS,
}
SCALED = ("normal", "student-t")  # whose noise has the unit of the response, squared
ONE_NETWORK = "logits"  # given only where nothing is averaged
HALVINGS = 30  # of what lies between the medians of the draws, where the median of them all is


def head_of(likelihood: Likelihood, outputs: int) -> Head:
    """The head of a likelihood; one that has none, or one that no format knows, is refused by its name."""
    head = likelihood.head(outputs)
    if head is None or head.name not in HEADS:
        came = f"{likelihood.name}, which has no such form"
        refuse("export", "likelihood", f"one that ends in {', '.join(HEADS)}", came)
    return head


def names_of(head: str, draws: int) -> list[str]:
    """What a file with this head gives."""
    return [name for name in HEADS[head] if not (draws and name == ONE_NETWORK)]
