"""The dilution prior (George 2010): a set S of columns has its usual probability times det(R_S), R their correlations.

Columns that say the same share the probability that one of them would have alone. With independent indicators of
probabilities a the determinant has the mean

    E det(R_S) = sum_S prod_{j in S} a_j prod_{j not in S} (1 - a_j) det(R_S) = det(I - A + A R),  A = diag(a),

so that at the prior's own psi this is its normaliser, in closed form; under the posterior log E det(R_S) stands for
E log det(R_S). It is not below it, and the same once every a is 0 or 1.
"""

from __future__ import annotations

import torch
from torch import Tensor


def log_mean_determinant(alpha: Tensor, correlation: Tensor) -> Tensor:
    """log E det(R_S), the columns of S in with probability alpha, each for itself.

    >>> same = torch.tensor([[1.0, 0.8], [0.8, 1.0]])
    >>> round(float(log_mean_determinant(torch.ones(2), same).exp()), 4)
    0.36
    """
    wide = alpha.double()
    matrix = torch.diag(1 - wide) + wide[:, None] * correlation.to(wide)
    determinant: Tensor = torch.linalg.slogdet(matrix).logabsdet
    return determinant.to(alpha)


def diluted_inclusion(psi: Tensor, correlation: Tensor) -> Tensor:
    """P(j in S) under the prior of sets: one minus (1 - psi_j) det(R without j) / det, all at psi.

    >>> bool(diluted_inclusion(torch.tensor([0.5, 0.5]), torch.eye(2)).allclose(torch.tensor([0.5, 0.5])))
    True
    """
    wide = psi.double()
    matrix = torch.diag(1 - wide) + wide[:, None] * correlation.to(wide)
    inverse: Tensor = torch.linalg.inv(matrix)
    return (1 - (1 - wide) * inverse.diagonal()).clamp(1e-12, 1 - 1e-12).to(psi)
