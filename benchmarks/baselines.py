"""Every method on the demo's data through the same calls, and the docs page that describes the methods."""

from __future__ import annotations

import time
from typing import Any

import slabnet as sn
from benchmarks.record import provenance, write_page, write_record
from slabnet.model.drawing import drawable_layers

EPOCHS, DRAWS, SEED = 100, 10, 0

PAGES: dict[str, str] = {
    "lbbnn": """Assumes each weight and intercept is in the network with probability psi and then N(0, sigma_beta^2). The posterior has an
inclusion probability, mean and spread for every weight, all independent. Maximises the evidence lower bound; the only method here that
is uncertain about single weights being there at all, so the only one with a median model. Read alpha as one minus a dropout rate that
belongs to one weight and has a meaning: the posterior probability that the weight is needed.
Costs three numbers a weight and two matrix products a layer (`local`), one for drawn weights.
Choose it when you want to know which weights or inputs are needed, a small network, or both kinds of uncertainty.""",
    "gaussian": """Assumes every weight is in the network and N(0, sigma_beta^2). The posterior is an independent Gaussian for every weight.
Maximises the bound, in closed form but for the likelihood. Two numbers a weight; a step as for lbbnn, without the indicators.
Choose it for accurate averaged predictions from a dense network when size does not matter. It is lbbnn with every indicator at one, so the
difference between the two is the price or gain of sparsity.""",
    "mixture": """Assumes every weight comes from a wide or a narrow Gaussian (weights 0.5, variances 1 and exp(-6); set `Prior(slab=ScaleMixture(...))`).
The posterior is Gaussian, as above. The bound has no closed-form divergence: it is sampled at the very weights a pass draws, or integrated
under `local`, which draws none and makes a step several times as expensive. The narrow part pulls small weights towards zero but takes none out.
Choose it to compare with published results; as a prior it shrinks rather than selects.""",
    "concrete-dropout": """Assumes plain weights with a Gaussian prior of the given length scale, and drops whole inputs of a layer with one rate per
layer. The objective adds length_scale^2 |W|^2 / (2(1-p)) - K H(p) over all rows; it is motivated by a bound and is not one. Rates are learned by a
concrete relaxation and masks are 0 or 1 when predicting. One number a weight, a step nearly as cheap as a plain one.
It has one rate a layer, so it cannot single out weights or inputs. `fit(fixed="alpha")` post-trains with the rates kept.
Choose it for cheap, accurate averaging; look at its confidence before trusting it.""",
    "horseshoe": """Assumes w = s z_i v with a half-Cauchy scale z_i for each input of a layer and s for the layer: most scales near zero, a few free. The four
Gamma and inverse-Gamma factors have log-normal posteriors, v a Gaussian one; every divergence is a closed form and the objective is a bound,
looser than the others because the factors are taken as independent. Two numbers a weight and a few a unit.
`sn.prune(net)` cuts the units whose log scale is in the lower of two modes (or below a threshold you give), `fit(fixed=...)` post-trains the rest.
Choose it to remove whole inputs or neurons rather than weights.""",
    "normal-jeffreys": """Assumes w = z_i v with a factor z_i for each input of a layer whose prior, proportional to 1 / |z|, has no scale of its own. The posterior
of a factor is Gaussian, and its ratio of variance to squared mean, alpha, is a dropout rate: a unit with a large one is noise. The prior is improper, so its
divergence is known up to a constant and the objective is no bound. Two numbers a weight and two a unit; a step as for the dense Gaussian.
`sn.prune(net, threshold)` cuts the units whose log alpha is above minus the threshold, `fit(fixed=...)` post-trains the rest.
Choose it to compare with the paper's horseshoe rows, whose public script trains this.""",
    "mc-dropout": """A plain network with dropout at a fixed rate on the inputs of every layer, kept on when predicting; weight decay from the length scale.
Not a bound. One number a weight, as cheap as a plain network. Draws differ only by their masks.
Choose it as the first thing to compare with.""",
    "ensemble": """Five plain networks from different starts, trained on the same batches; probabilities are averaged. No prior and no bound.
Five times the cost of one network in training and prediction, and five times its size. Asked for a single network it gives the first member.
Choose it when cost does not matter.""",
    "deterministic": """A plain network of maximum likelihood. One network, no uncertainty about weights; its probabilities are all there is.
Choose it to see what the others add.""",
}


def measure() -> list[dict[str, Any]]:
    split = sn.data.load("digits")
    rows = []
    for name in sn.METHODS:
        net = sn.mlp((split.inputs, 100, 100, split.classes), method=name, seed=SEED)
        started = time.perf_counter()
        sn.fit(net, split.train, sn.TrainConfig(epochs=EPOCHS, seed=SEED), progress="off")
        seconds = time.perf_counter() - started
        averaged = sn.predict(net, split.test[0], DRAWS, seed=SEED)
        single = sn.predict(net, split.test[0], draw=sn.mean)
        doubt = sn.accuracy_with_doubt(averaged, split.test[1])
        rows.append(
            {
                "method": name,
                "draws": averaged.draws if drawable_layers(net) else 1,
                "accuracy": sn.accuracy(averaged, split.test[1]),
                "accuracy_mean": sn.accuracy(single, split.test[1]),
                "nll": sn.negative_log_likelihood(averaged, split.test[1]),
                "calibration_error": sn.calibration_error(averaged, split.test[1]),
                "decided": doubt.decided,
                "right": doubt.accuracy,
                "density_used": averaged.density_used,
                "seconds": round(seconds, 1),
            }
        )
        print(rows[-1], flush=True)
    return rows


def page(record: dict[str, Any]) -> str:
    lines = [
        "# The methods",
        "",
        "All run through the same `mlp(..., method=name)`, `fit`, `predict`, metrics and files.",
        "",
    ]
    for name, method in sn.METHODS.items():
        lines += [f"## {name}", "", f"*{method.source}.*", "", PAGES[name], ""]
        if method.options:
            options = ", ".join(f"`{key}` ({value:g})" for key, value in method.options)
            lines += [f"Options, with defaults: {options}.", ""]
    lines += [
        "## Side by side",
        "",
        f"scikit-learn's digits, 64-100-100-10, {EPOCHS} epochs with the default settings, one run each, no tuning of any of them;",
        "360 test rows. Seconds were taken one after the other on a shared machine and say only what is dear and what is cheap.",
        "",
        "| method | draws | accuracy | at the mean | NLL | ECE | decided at 0.95 | right among those | density in use | seconds |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in record["results"]:
        right = "-" if r["right"] is None else f"{r['right']:.3f}"
        shares = f"{r['accuracy']:.3f} | {r['accuracy_mean']:.3f} | {r['nll']:.3f} | {r['calibration_error']:.3f}"
        rest = f"{r['decided']} | {right} | {r['density_used']:.3f} | {r['seconds']:.0f}"
        lines.append(f"| {r['method']} | {r['draws']} | {shares} | {rest} |")
    return "\n".join([*lines, "", provenance(record), ""])


if __name__ == "__main__":
    made = write_record("baselines", "python -m benchmarks.baselines", SEED, measure())
    write_page("methods.md", page(made))
