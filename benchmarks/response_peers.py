"""What a statistician would fit to counts, ordered levels, censored times and numbers: statsmodels, lifelines, NGBoost.

Each takes standardised columns that are no sums of each other, (rows to fit, responses, rows to test, responses, seed).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

Array = np.ndarray[Any, Any]
TINY = 1e-12


@dataclass(frozen=True)
class Answers:
    """What a method says of the test rows: log densities, and what it has of class probabilities, means, intervals."""

    log_densities: Array
    shares: Array | None = None
    centre: Array | None = None
    interval: tuple[Array, Array] | None = None


def with_constant(x: Array) -> Array:
    return np.hstack([np.ones((len(x), 1)), x])


def _counts(distribution: Any, mean: Array, y: Array) -> Answers:
    return Answers(distribution.logpmf(y), centre=mean, interval=distribution.interval(0.95))


def poisson_regression(x: Array, y: Array, x_test: Array, y_test: Array, seed: int) -> Answers:
    import statsmodels.api as sm

    fitted = sm.GLM(y, with_constant(x), family=sm.families.Poisson()).fit()
    mean = fitted.predict(with_constant(x_test))
    return _counts(stats.poisson(mean), mean, y_test)


def negative_binomial_regression(x: Array, y: Array, x_test: Array, y_test: Array, seed: int) -> Answers:
    import statsmodels.api as sm

    fitted = sm.NegativeBinomial(y, with_constant(x)).fit(disp=0, maxiter=500, method="bfgs")
    mean, theta = fitted.predict(with_constant(x_test)), 1 / fitted.params[-1]
    return _counts(stats.nbinom(theta, theta / (theta + mean)), mean, y_test)


def poisson_boosting(x: Array, y: Array, x_test: Array, y_test: Array, seed: int) -> Answers:
    model = HistGradientBoostingRegressor(loss="poisson", random_state=seed).fit(x, y)
    mean = np.maximum(model.predict(x_test), TINY)
    return _counts(stats.poisson(mean), mean, y_test)


def ngboost_poisson(x: Array, y: Array, x_test: Array, y_test: Array, seed: int) -> Answers:
    from ngboost import NGBRegressor
    from ngboost.distns import Poisson

    model = NGBRegressor(Dist=Poisson, random_state=seed, verbose=False).fit(x, y)
    mean = np.asarray(model.pred_dist(x_test).params["mu"])
    return _counts(stats.poisson(mean), mean, y_test)


def _classes(shares: Array, y: Array) -> Answers:
    return Answers(np.log(np.maximum(shares[np.arange(len(y)), y], TINY)), shares=shares)


def ordered_logit(x: Array, y: Array, x_test: Array, y_test: Array, seed: int) -> Answers:
    from statsmodels.miscmodels.ordinal_model import OrderedModel

    fitted = OrderedModel(y, x, distr="logit").fit(method="bfgs", disp=0, maxiter=500)
    return _classes(np.asarray(fitted.model.predict(fitted.params, exog=x_test)), y_test)


def boosted_classes(x: Array, y: Array, x_test: Array, y_test: Array, seed: int) -> Answers:
    return _classes(HistGradientBoostingClassifier(random_state=seed).fit(x, y).predict_proba(x_test), y_test)


def ngboost_classes(x: Array, y: Array, x_test: Array, y_test: Array, seed: int) -> Answers:
    from ngboost import NGBClassifier
    from ngboost.distns import k_categorical

    model = NGBClassifier(Dist=k_categorical(int(y.max()) + 1), random_state=seed, verbose=False).fit(x, y)
    return _classes(model.predict_proba(x_test), y_test)


def _censored(distribution: Any, centre: Array, y: Array) -> Answers:
    times, event = y.T
    return Answers(np.where(event > 0, distribution.logpdf(times), distribution.logsf(times)), centre=centre)


def weibull_regression(x: Array, y: Array, x_test: Array, y_test: Array, seed: int) -> Answers:
    from lifelines import WeibullAFTFitter

    names = [f"x{i}" for i in range(x.shape[1])]
    frame = pd.DataFrame(x, columns=names).assign(time=y[:, 0], event=y[:, 1])
    fitted = WeibullAFTFitter().fit(frame, "time", "event")
    slopes = fitted.params_["lambda_"]
    scale = np.exp(x_test @ slopes[names].to_numpy() + slopes["Intercept"])
    shape = float(np.exp(fitted.params_["rho_"]["Intercept"]))
    return _censored(stats.weibull_min(shape, scale=scale), scale * np.log(2) ** (1 / shape), y_test)


def ngboost_times(x: Array, y: Array, x_test: Array, y_test: Array, seed: int) -> Answers:
    from ngboost import NGBSurvival
    from ngboost.distns import LogNormal

    model = NGBSurvival(Dist=LogNormal, random_state=seed, verbose=False).fit(x, y[:, 0], y[:, 1])
    params = model.pred_dist(x_test).params
    return _censored(stats.lognorm(params["s"], scale=params["scale"]), np.asarray(params["scale"]), y_test)


def linear_regression(x: Array, y: Array, x_test: Array, y_test: Array, seed: int) -> Answers:
    import statsmodels.api as sm

    fitted = sm.OLS(y, with_constant(x)).fit()
    centre = fitted.predict(with_constant(x_test))
    return _normal(centre, np.full(len(centre), np.sqrt(fitted.scale)), y_test)


def ngboost_normal(x: Array, y: Array, x_test: Array, y_test: Array, seed: int) -> Answers:
    from ngboost import NGBRegressor

    params = NGBRegressor(random_state=seed, verbose=False).fit(x, y).pred_dist(x_test).params
    return _normal(params["loc"], params["scale"], y_test)


def _normal(centre: Array, sd: Array, y: Array) -> Answers:
    distribution = stats.norm(centre, sd)
    return Answers(distribution.logpdf(y), centre=centre, interval=distribution.interval(0.95))


Peer = Callable[[Array, Array, Array, Array, int], Answers]
PEERS: dict[str, dict[str, Peer]] = {
    "count": {
        "negative binomial regression": negative_binomial_regression,
        "Poisson regression": poisson_regression,
        "boosting, Poisson loss": poisson_boosting,
        "NGBoost, Poisson": ngboost_poisson,
    },
    "ordinal": {
        "ordered logit": ordered_logit,
        "boosting, classes": boosted_classes,
        "NGBoost, classes": ngboost_classes,
    },
    "survival": {"Weibull regression": weibull_regression, "NGBoost, log-normal": ngboost_times},
    "noise": {"linear regression": linear_regression, "NGBoost, normal": ngboost_normal},
}
PARAMETRIC = {
    "count": "negative binomial regression",
    "ordinal": "ordered logit",
    "survival": "Weibull regression",
    "noise": "linear regression",
}
