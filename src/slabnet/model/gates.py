"""Gates: an indicator above the weights' own, for all weights that read one column or one hidden unit.

w_ij = gamma_g gamma_ij beta_ij with gamma_g ~ Bernoulli(psi_g) for the group g that column j of the layer belongs to,
and q(gamma_ij | gamma_g = 0) equal to its prior. So alpha_g is the posterior probability that the column is in the
model, and

    KL = sum_g KL(alpha_g || psi_g) + sum_ij alpha_g [KL(alpha_ij || psi) + alpha_ij KL(N(mu, sigma^2) || slab)].

A gate is shared: by every unit that reads the column, and by every layer that does. Draws of weights draw each gate
once. Local reparametrisation takes the moments of each pre-activation with the gate averaged over, M_g the part of its
mean that the columns of g give:

    mean = sum_g alpha_g M_g
    variance = sum_g [alpha_g sum_j x_j^2 (alpha_j (sigma_j^2 + mu_j^2) - alpha_j^2 mu_j^2)
                      + alpha_g (1 - alpha_g) M_g^2]

(in a convolution M_g is the map that channel g gives). These are right for one pre-activation. What they ignore is that
pre-activations share the gate: given x, two units of a layer, or of two layers, that read one column (two places of a
map, in a convolution) are drawn as if each had a gate of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from slabnet.config.settings import Beta, Start
from slabnet.core.errors import refuse
from slabnet.maths.dilution import diluted_inclusion, log_mean_determinant
from slabnet.maths.divergences import kl_bernoulli
from slabnet.model.drawing import Drawable, Scope
from slabnet.model.posteriors import Block
from slabnet.model.priors import beta_posterior

LEAST_EIGENVALUE = 1e-6  # of a matrix of correlations
SURE = -40.0  # rho of a slab that is a single number


class Gates(Drawable):
    """One indicator for each group of columns, with its posterior; the network's values pass through unchanged.

    kind: "inputs", "units" or "channels", what the gates are for; names: what each belongs to. psi: the chance of a
        gate to be open before the data, or `Beta(a, b)` to learn it. dilution: the correlations of the columns, with a
        number as psi: what the prior of a set of them is multiplied by (`maths/dilution.py`).

    >>> Gates("inputs", ["age", "city"], 0.5, Start(), torch.Generator()).alpha.shape
    torch.Size([2])
    """

    correlation: Tensor | None

    def __init__(
        self,
        kind: str,
        names: Sequence[str],
        psi: float | Beta,
        start: Start,
        generator: torch.Generator,
        dilution: Sequence[Sequence[float]] | None = None,
    ) -> None:
        super().__init__()
        self.register_buffer("correlation", _checked(dilution, len(names), psi), persistent=False)
        self.kind, self.names, self.psi = kind, tuple(names), psi
        self.group = tuple(range(len(names)))
        self.omega = nn.Parameter(torch.empty(len(names)).uniform_(*start.omega, generator=generator))

    def columns_of(self, gate: int) -> tuple[int, ...]:
        """The columns that stand behind a gate."""
        return tuple(column for column, of_column in enumerate(self.group) if of_column == gate)

    @property
    def alpha(self) -> Tensor:
        """The posterior probability of each gate to be open."""
        return torch.sigmoid(self.omega)

    def logs(self) -> tuple[Tensor, Tensor, Tensor]:
        """E log psi, E log(1 - psi), and the price of a learned psi, Beta(a + sum alpha, b + sum (1 - alpha))."""
        if isinstance(self.psi, Beta):
            block = Block(self.omega, self.omega, self.omega)
            return beta_posterior(self.psi, [block], self.omega)
        psi = torch.as_tensor(self.psi).to(self.omega)
        return psi.log(), torch.log1p(-psi), torch.zeros_like(psi)

    @property
    def psi_now(self) -> Tensor:
        """Where alpha of a gate rests when the data say nothing."""
        on, off, _ = self.logs()
        psi = torch.sigmoid(on - off)
        if self.correlation is None:
            return psi
        return diluted_inclusion(psi.expand_as(self.omega), self.correlation)

    def divergence(self, scope: Scope, sampled: bool) -> Tensor:
        on, off, price = self.logs()
        total = kl_bernoulli(self.omega, on, off).sum() + price
        if self.correlation is None:
            return total
        normaliser = log_mean_determinant(on.exp().expand_as(self.omega), self.correlation)
        return total + normaliser - log_mean_determinant(self.alpha, self.correlation)

    def used(self, scope: Scope) -> None:
        return None

    def drawn(self, scope: Scope) -> Tensor:
        """The gates of this draw: drawn once, the same for every layer that they belong to."""

        def draw() -> Tensor:
            block = Block(torch.ones_like(self.omega), torch.full_like(self.omega, SURE), self.omega)
            gamma = scope.draw.draw(block, scope.seed()).gamma
            assert gamma is not None
            return gamma

        return scope.keep(self, draw)

    def forward(self, x: Tensor) -> Tensor:
        return x

    def extra_repr(self) -> str:
        return f"{len(self.names)}"


def _checked(dilution: Sequence[Sequence[float]] | None, columns: int, psi: float | Beta) -> Tensor | None:
    """The matrix of a dilution prior, which has an inverse."""
    if dilution is None:
        return None
    if len(dilution) != columns:
        refuse("Prior", "dilution", f"a matrix for the {columns} columns with a gate", f"one for {len(dilution)}")
    if isinstance(psi, Beta):
        refuse("mlp", "psi_gate", "a number where the prior has a dilution", psi)
    matrix = torch.tensor(dilution, dtype=torch.float64)
    least = float(torch.linalg.eigvalsh(matrix)[0])
    if least < LEAST_EIGENVALUE:
        refuse("Prior", "dilution", f"positive definite (eigenvalues from {LEAST_EIGENVALUE:g})", f"one of {least:.2g}")
    return matrix


def column_inclusion(net: nn.Module) -> dict[str, float]:
    """For each gate of inputs, by its name, the posterior probability that it is open: that its column is in the model.

    In a mixture that is the mean over its members. Hidden units have gates too where they were asked for; those are
    found among `net.modules()`.

    >>> from slabnet.model.networks import mlp
    >>> list(column_inclusion(mlp((3, 2), gates="inputs", column_groups={"size": (0, 1)})))
    ['size', 'x2']
    """
    gates = [part for part in net.modules() if isinstance(part, Gates) and part.kind == "inputs"]
    if not gates:
        allowed = 'a network with gates of its inputs, such as mlp(sizes, gates="inputs")'
        refuse("column_inclusion", "net", allowed, type(net).__name__)
    alpha = torch.stack([part.alpha.detach().double() for part in gates]).mean(0)
    return dict(zip(gates[0].names, alpha.tolist(), strict=True))


def named_groups(net: nn.Module) -> dict[str, tuple[int, ...]]:
    """The inputs behind each gate of inputs, by its name, in the order of the columns.

    >>> from slabnet.model.networks import mlp
    >>> named_groups(mlp((3, 2), gates="inputs", column_groups={"size": (0, 2)}))
    {'size': (0, 2), 'x1': (1,)}
    """
    gates = next((part for part in net.modules() if isinstance(part, Gates) and part.kind == "inputs"), None)
    if gates is None:
        return {}
    columns: list[list[int]] = [[] for _ in gates.names]
    for column, gate in enumerate(gates.group):
        columns[gate].append(column)
    return {name: tuple(of_gate) for name, of_gate in zip(gates.names, columns, strict=True)}
