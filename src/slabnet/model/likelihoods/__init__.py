"""Response distributions f(mu_i, phi) (eq. 1), one file each: what turns a network's output into probabilities of y."""

from slabnet.model.likelihoods.base import Conditional, Head, Likelihood, Support, check_finite
from slabnet.model.likelihoods.bernoulli import Bernoulli
from slabnet.model.likelihoods.categorical import Categorical
from slabnet.model.likelihoods.gaussian import Gaussian, InverseGamma, LogNormal
from slabnet.model.likelihoods.mixture import Mixture
from slabnet.model.likelihoods.registry import LIKELIHOODS, likelihood_from, register_likelihood

__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Categorical",
    "Conditional",
    "Gaussian",
    "Head",
    "InverseGamma",
    "Likelihood",
    "LogNormal",
    "Mixture",
    "Support",
    "check_finite",
    "likelihood_from",
    "register_likelihood",
]
