"""`Network`: a chain of layers with its likelihood, and the specification that can build it again."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from slabnet.config.activations import Activations
from slabnet.config.methods import METHODS, Method
from slabnet.core.html_table import html_table
from slabnet.model.beyond import Beyond
from slabnet.model.layers import SlabLayer
from slabnet.model.likelihoods import Likelihood


class Network(nn.Module):
    """A chain of layers with its likelihood, and the specification that can build it again.

    Called plainly it gives its outputs (logits or means) at the posterior mean; inside a `drawing` block
    it draws.
    """

    beyond: Beyond | None

    def __init__(self, body: nn.Sequential, likelihood: Likelihood, spec: dict[str, Any]) -> None:
        super().__init__()
        self.body, self.likelihood, self.spec = body, likelihood, spec
        self.register_module("beyond", None)

    @property
    def method(self) -> Method:
        return METHODS[self.spec["method"]]

    @property
    def row_shape(self) -> tuple[int, ...] | None:
        """The shape of one row of x, None where it is not known."""
        return tuple(self.spec["input_shape"]) if self.spec["kind"] == "convnet" else (self.spec["sizes"][0],)

    @property
    def outputs(self) -> int:
        return int(self.spec["classes"] if self.spec["kind"] == "convnet" else self.spec["sizes"][-1])

    @property
    def hidden(self) -> tuple[int, ...]:
        """Widths of the fully connected hidden layers."""
        return tuple(self.spec["hidden"] if self.spec["kind"] == "convnet" else self.spec["sizes"][1:-1])

    @property
    def activation(self) -> Activations:
        """The activation of all hidden units, or those that each hidden layer has units of."""
        written = self.spec["activation"]
        return written if isinstance(written, str) else tuple(written)

    @property
    def skip(self) -> bool:
        """Whether every layer reads the inputs again."""
        return bool(self.spec.get("skip", False))

    @property
    def gates(self) -> tuple[str, ...]:
        """Of what it has gates: "inputs", "units", both or nothing."""
        return tuple(self.spec.get("gates", ()))

    @property
    def reads(self) -> Tensor | None:
        """Positions of the inputs that it reads, where it was made to read some only; None: all of them."""
        return None

    def _repr_html_(self) -> str:
        layers = [(name, part) for name, part in self.named_modules() if isinstance(part, SlabLayer)]
        rows = [
            [name, type(part).__name__, " x ".join(map(str, part.weight.mu.shape)), part.weight.mu.numel()]
            for name, part in layers
        ]
        width = " x ".join(map(str, self.row_shape or ()))
        caption = f"{self.method.name}: {width} numbers to {self.outputs} ({self.likelihood.name})"
        return html_table(caption, ["layer", "kind", "shape", "weights"], rows)

    def take_likelihood(self, likelihood: Likelihood) -> None:
        """Have this likelihood from now on."""
        self.likelihood = likelihood
        self.spec["likelihood"] = likelihood.spec()

    def take_beyond(self, beyond: Beyond) -> None:
        """Have this where inputs leave the range of the training rows."""
        self.beyond = beyond
        self.spec["beyond"] = True

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        more = None if self.beyond is None else self.beyond(x)
        return out if more is None else out + more
