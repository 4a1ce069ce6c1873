"""The registry of methods: one row for each way to be (or not to be) Bayesian about a network. No torch."""

from __future__ import annotations

from dataclasses import dataclass

from slabnet.config.slabs import ScaleMixture


@dataclass(frozen=True)
class Method:
    """One row of `METHODS`.

    posterior: what every weight has, None for plain weights. slab: the slab the method is defined by, None
    for the prior's own. wrapper: what is drawn besides weights. selects: has indicators to choose a model by.
    bound: its objective is a lower bound of the log evidence. post_training: what `fit(fixed=...)` can keep fixed.
    options: what `mlp(..., options={...})` takes, with the defaults.
    """

    name: str
    summary: str
    source: str
    posterior: str | None
    slab: ScaleMixture | None
    selects: bool
    bound: bool
    wrapper: str | None = None
    post_training: tuple[str, ...] = ()
    options: tuple[tuple[str, float], ...] = ()

    @property
    def prunes(self) -> bool:
        """Whether whole inputs of a layer can be cut by their factors (`slabnet.prune`)."""
        return not self.selects and "a Selection" in self.post_training


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            name="lbbnn",
            summary="spike-and-slab posterior: an inclusion probability, mean and spread for every weight",
            source="Hubin & Storvik 2019, Combining model and parameter uncertainty in Bayesian neural networks",
            posterior="spike_slab",
            slab=None,
            selects=True,
            bound=True,
            post_training=("alpha", "a Selection"),
        ),
        Method(
            name="gaussian",
            summary="dense mean-field Gaussian posterior: every weight in the network, with a mean and spread",
            source="Graves 2011, Practical variational inference for neural networks",
            posterior="gaussian",
            slab=None,
            selects=False,
            bound=True,
        ),
        Method(
            name="mixture",
            summary="dense Gaussian posterior under a prior that mixes a wide and a narrow Gaussian",
            source="Blundell et al. 2015, Weight uncertainty in neural networks",
            posterior="gaussian",
            slab=ScaleMixture(),
            selects=False,
            bound=True,
        ),
        Method(
            name="concrete-dropout",
            summary="plain weights; whole inputs of a layer dropped with one learned rate per layer",
            source="Gal, Hron & Kendall 2017, Concrete dropout",
            posterior=None,
            slab=None,
            selects=False,
            bound=False,
            wrapper="concrete-dropout",
            post_training=("alpha",),
            options=(("rate", 0.1), ("length_scale", 1.0), ("temperature", 0.1)),
        ),
        Method(
            name="horseshoe",
            summary="Gaussian posterior with a heavy-tailed scale for each input of a layer, which can be pruned",
            source="Louizos, Ullrich & Welling 2017, Bayesian compression for deep learning",
            posterior="gaussian",
            slab=None,
            selects=False,
            bound=True,
            wrapper="horseshoe",
            post_training=("a Selection",),
            options=(("tau0", 1.0),),
        ),
        Method(
            name="normal-jeffreys",
            summary="Gaussian posterior with a scale-free factor for each input of a layer, which can be pruned",
            source="Louizos, Ullrich & Welling 2017, Bayesian compression for deep learning",
            posterior="gaussian",
            slab=None,
            selects=False,
            bound=False,
            wrapper="normal-jeffreys",
            post_training=("a Selection",),
        ),
        Method(
            name="mc-dropout",
            summary="plain weights; whole inputs of a layer dropped with a fixed rate, also when predicting",
            source="Gal & Ghahramani 2016, Dropout as a Bayesian approximation",
            posterior=None,
            slab=None,
            selects=False,
            bound=False,
            wrapper="mc-dropout",
            options=(("rate", 0.1), ("length_scale", 1.0)),
        ),
        Method(
            name="ensemble",
            summary="several plain networks from different starts, averaged",
            source="Lakshminarayanan, Pritzel & Blundell 2017, Deep ensembles",
            posterior=None,
            slab=None,
            selects=False,
            bound=False,
            wrapper="ensemble",
            options=(("members", 5),),
        ),
        Method(
            name="deterministic",
            summary="a plain network of point weights, for comparison",
            source="maximum likelihood",
            posterior=None,
            slab=None,
            selects=False,
            bound=False,
        ),
    )
}
