"""Pictures. Each function draws one chart on matplotlib axes, from a network or from the record of a run."""

from slabnet.plots.demo import demo_picture, plot_doubtful, plot_history, plot_inputs, plot_network
from slabnet.plots.explained import effect, plot_effect, plot_waterfall
from slabnet.plots.fitted import (
    plot_alphas,
    plot_importances,
    plot_input_map,
    plot_reliability,
    plot_risk_coverage,
    plot_ways,
)
from slabnet.plots.runs import (
    plot_alpha,
    plot_averaging,
    plot_case,
    plot_drawn_layer,
    plot_entropies,
    plot_inclusion_history,
)
from slabnet.plots.structure import plot_structure

__all__ = [
    "demo_picture",
    "effect",
    "plot_alpha",
    "plot_alphas",
    "plot_averaging",
    "plot_case",
    "plot_doubtful",
    "plot_drawn_layer",
    "plot_effect",
    "plot_entropies",
    "plot_history",
    "plot_importances",
    "plot_inclusion_history",
    "plot_input_map",
    "plot_inputs",
    "plot_network",
    "plot_reliability",
    "plot_risk_coverage",
    "plot_structure",
    "plot_waterfall",
    "plot_ways",
]
