"""Response distributions f(mu_i, phi) (eq. 1), one file each: what turns a network's output into probabilities of y."""

from slabnet.config.priors import InverseGamma
from slabnet.model.likelihoods.base import Conditional, Head, Likelihood, Point, Support, YScale, check_finite
from slabnet.model.likelihoods.bernoulli import Bernoulli
from slabnet.model.likelihoods.categorical import Categorical
from slabnet.model.likelihoods.gamma import Gamma
from slabnet.model.likelihoods.gaussian import Gaussian, LogNormal
from slabnet.model.likelihoods.heteroscedastic import Heteroscedastic
from slabnet.model.likelihoods.lognormal import LogNormalResponse
from slabnet.model.likelihoods.mixture import Mixture
from slabnet.model.likelihoods.negative_binomial import NegativeBinomial
from slabnet.model.likelihoods.ordinal import Ordinal
from slabnet.model.likelihoods.poisson import Poisson
from slabnet.model.likelihoods.registry import LIKELIHOODS, likelihood_from, register_likelihood
from slabnet.model.likelihoods.student_t import StudentT
from slabnet.model.likelihoods.target import Response, Target, parts_of, response_of
from slabnet.model.likelihoods.weibull import Weibull

__all__ = [
    "LIKELIHOODS",
    "Bernoulli",
    "Categorical",
    "Conditional",
    "Gamma",
    "Gaussian",
    "Head",
    "Heteroscedastic",
    "InverseGamma",
    "Likelihood",
    "LogNormal",
    "LogNormalResponse",
    "Mixture",
    "NegativeBinomial",
    "Ordinal",
    "Point",
    "Poisson",
    "Response",
    "StudentT",
    "Support",
    "Target",
    "Weibull",
    "YScale",
    "check_finite",
    "likelihood_from",
    "parts_of",
    "register_likelihood",
    "response_of",
]
