"""Likelihoods by name: ours, and those that a user registers."""

from __future__ import annotations

from typing import Any, TypeVar

from slabnet.core.errors import refuse
from slabnet.model.likelihoods.base import Likelihood
from slabnet.model.likelihoods.bernoulli import Bernoulli
from slabnet.model.likelihoods.categorical import Categorical
from slabnet.model.likelihoods.gamma import Gamma
from slabnet.model.likelihoods.gaussian import Gaussian
from slabnet.model.likelihoods.heteroscedastic import Heteroscedastic
from slabnet.model.likelihoods.lognormal import LogNormalResponse
from slabnet.model.likelihoods.negative_binomial import NegativeBinomial
from slabnet.model.likelihoods.ordinal import Ordinal
from slabnet.model.likelihoods.poisson import Poisson
from slabnet.model.likelihoods.student_t import StudentT
from slabnet.model.likelihoods.weibull import Weibull

Kind = TypeVar("Kind", bound=Likelihood)
OURS: tuple[type[Likelihood], ...] = (
    Categorical,
    Bernoulli,
    Gaussian,
    Heteroscedastic,
    StudentT,
    LogNormalResponse,
    Gamma,
    Poisson,
    NegativeBinomial,
    Ordinal,
    Weibull,
)
LIKELIHOODS: dict[str, type[Likelihood]] = {c.name: c for c in OURS}


def register_likelihood(cls: type[Kind]) -> type[Kind]:
    """Make a `Likelihood` of yours known by its `name`; files with it can be read wherever this is done.

    >>> @register_likelihood
    ... class Coin(Bernoulli):
    ...     name = "coin"
    >>> likelihood_from("coin").name
    'coin'
    >>> del LIKELIHOODS["coin"]
    """
    if not (isinstance(cls, type) and issubclass(cls, Likelihood)):
        refuse("register_likelihood", "cls", "a subclass of Likelihood", cls)
    name = vars(cls).get("name")
    if not isinstance(name, str) or not name:
        refuse("register_likelihood", "name", "a word of its own", name)
    if LIKELIHOODS.get(name, cls).__qualname__ != cls.__qualname__:
        refuse("register_likelihood", "name", "one that no other likelihood has", name)
    LIKELIHOODS[name] = cls
    return cls


def likelihood_from(spec: dict[str, Any] | str, outputs: int = 1) -> Likelihood:
    """Build a likelihood from its name, or from what `spec()` gave."""
    options: dict[str, Any] = {"name": spec} if isinstance(spec, str) else dict(spec)
    name = options.pop("name", None)
    if not isinstance(name, str) or name not in LIKELIHOODS:
        refuse("likelihood", "name", f"one of {', '.join(LIKELIHOODS)}", name)
    return LIKELIHOODS[name].built(options, outputs)
