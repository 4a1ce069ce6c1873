"""The exact posterior of a small linear model, by enumerating all 2^p models: a yardstick for the bound."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from slabnet.core.errors import check_number, refuse

LARGEST = 12  # inputs; 4 096 models


@dataclass(frozen=True)
class ExactPosterior:
    """Averages over all models, weighted by their posterior probability.

    alpha: inclusion probability of each input; mu, sigma: mean and standard deviation of its weight given
    that it is in; models: posterior probability of each model, `gammas` its indicators.
    """

    log_evidence: float
    alpha: Tensor
    mu: Tensor
    sigma: Tensor
    mean: Tensor
    gammas: Tensor
    models: Tensor


def enumerate_linear(x: Tensor, y: Tensor, *, phi: float, psi: float, sigma_beta: float) -> ExactPosterior:
    """Exact inference for y ~ N(x beta, phi), beta_j = 0 with probability 1 - psi, else N(0, sigma_beta^2) (eq. 3).

    >>> x = torch.eye(2, dtype=torch.float64)
    >>> bool(enumerate_linear(x, x[:, 0] * 9, phi=1.0, psi=0.5, sigma_beta=3.0).alpha.argmax() == 0)
    True
    """
    n, p = x.shape
    if p > LARGEST:
        refuse("enumerate_linear", "x", f"at most {LARGEST} columns wide", p)
    check_number("enumerate_linear", "phi", phi, above=0)
    check_number("enumerate_linear", "psi", psi, above=0, below=1)
    check_number("enumerate_linear", "sigma_beta", sigma_beta, above=0)
    x, y = x.double(), y.double()
    logs, gammas = [], torch.tensor(list(itertools.product((0.0, 1.0), repeat=p)), dtype=torch.float64)
    means, variances = torch.zeros(len(gammas), p).double(), torch.zeros(len(gammas), p).double()
    for index, gamma in enumerate(gammas):
        inside = gamma > 0
        chosen = x[:, inside]
        covariance = phi * torch.eye(n).double() + sigma_beta**2 * chosen @ chosen.T
        size = int(inside.sum())
        log_prior = size * math.log(psi) + (p - size) * math.log1p(-psi)
        logs.append(_log_normal(y, covariance) + log_prior)
        precision = chosen.T @ chosen / phi + torch.eye(chosen.shape[1]).double() / sigma_beta**2
        posterior = torch.linalg.inv(precision)
        means[index, inside] = posterior @ chosen.T @ y / phi
        variances[index, inside] = posterior.diagonal()
    log_joint = torch.stack(logs)
    log_evidence = torch.logsumexp(log_joint, 0)
    models = torch.exp(log_joint - log_evidence)
    alpha = models @ gammas
    given = models[:, None] * gammas / alpha
    mu = (given * means).sum(0)
    sigma = ((given * (variances + means**2)).sum(0) - mu**2).sqrt()
    return ExactPosterior(float(log_evidence), alpha, mu, sigma, models @ means, gammas, models)


def _log_normal(y: Tensor, covariance: Tensor) -> Tensor:
    """log N(y; 0, covariance)."""
    root = torch.linalg.cholesky(covariance)
    white = torch.linalg.solve_triangular(root, y[:, None], upper=False)
    value: Tensor = -0.5 * (white.square().sum() + len(y) * math.log(2 * math.pi)) - root.diagonal().log().sum()
    return value
