"""The demo's network, chosen by every rule: accuracy, negative log-likelihood and weights side by side."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

import slabnet as sn
from benchmarks.record import provenance, write_page, write_record
from slabnet.cli.demo import EPOCHS, HIDDEN

SEED = 0


def focus(outputs: Tensor) -> Tensor:
    """For FIC: the mean largest logit, a summary of how sure the network is."""
    return outputs.amax(-1).mean()


def measure() -> dict[str, Any]:
    split = sn.data.load("digits")
    x, y = split.train
    net = sn.mlp((split.inputs, *HIDDEN, split.classes), seed=SEED)
    # a fifth of the training rows is kept to calibrate the doubt threshold on
    held_out = len(x) // 5
    history = sn.fit(net, (x[held_out:], y[held_out:]), sn.TrainConfig(epochs=EPOCHS, seed=SEED), progress="lines")
    data = (x[held_out:], y[held_out:])
    rules: list[tuple[str, str, sn.Selection]] = [
        ("median model", "median_model(net)", sn.median_model(net)),
        ("threshold 0.2", "median_model(net, 0.2)", sn.median_model(net, 0.2)),
        ("threshold 0.9", "median_model(net, 0.9)", sn.median_model(net, 0.9, infeasible="lower")),
        ("most probable", "most_probable_model(net)", sn.most_probable_model(net)),
        ("half a percent", "budget_model(net, density=0.005)", sn.budget_model(net, density=0.005)),
        ("100 weights", "budget_model(net, weights=100)", sn.budget_model(net, weights=100, infeasible="path")),
        *(
            (name.upper(), f'criterion_model(net, data, "{name}")', _by_criterion(net, data, name))
            for name in ("waic", "dic", "fic")
        ),
    ]
    rows = [_row(net, name, call, chosen, split.test) for name, call, chosen in rules]
    folded, small = sn.path_model(net, rules[0][2])
    rows.append(_row(folded, "median, paths only", "path_model(net, chosen)", small, split.test))
    doubt = sn.calibrate_doubt(sn.predict(net, x[:held_out], 100, seed=SEED), y[:held_out], accuracy=0.95)
    test = sn.predict(net, split.test[0], 100, seed=SEED)
    at = None if doubt.threshold is None else sn.accuracy_with_doubt(test, split.test[1], doubt.threshold)
    return {
        "rows": rows,
        "alpha_moving": history[-1].alpha_moving,
        "doubt": {
            "rows": held_out,
            "promised": doubt.promised,
            "confidence": doubt.confidence,
            "threshold": doubt.threshold,
            "decided": doubt.decided,
            "test_accuracy": None if at is None else at.accuracy,
            "test_decided": None if at is None else at.decided / len(split.test[1]),
        },
    }


def _by_criterion(net: sn.Network, data: tuple[Tensor, Tensor], name: str) -> sn.Selection:
    return sn.criterion_model(net, data, name, focus=focus if name == "fic" else None, seed=SEED)  # type: ignore[arg-type]


def _row(
    net: torch.nn.Module, name: str, call: str, chosen: sn.Selection, test: tuple[Tensor, Tensor]
) -> dict[str, Any]:
    single = sn.predict(net, test[0], draw=sn.fixed(chosen.masks))
    averaged = sn.predict(net, test[0], 10, draw=sn.fixed(chosen.masks, sn.exact), seed=SEED)
    return {
        "rule": name,
        "call": call,
        "weights": chosen.weights,
        "active": chosen.total.active_weights,
        "inputs": None if chosen.inputs is None else int(chosen.inputs.sum()),
        "unreachable": list(chosen.unreachable),
        "accuracy": sn.accuracy(single, test[1]),
        "nll": sn.negative_log_likelihood(single, test[1]),
        "accuracy_10": sn.accuracy(averaged, test[1]),
        "nll_10": sn.negative_log_likelihood(averaged, test[1]),
    }


def page(record: dict[str, Any]) -> str:
    results = record["results"]
    lines = [
        "# Choosing a model",
        "",
        "One fit gives a probability to every structure. Each rule below picks one; all return a `Selection` that",
        "`fit` can post-train (`fixed=chosen`) and `predict` can use (`draw=sn.fixed(chosen.masks)`). The network is",
        "the demo's, fitted to four fifths of its training rows, not post-trained; numbers are on the test rows.",
        "",
        "| rule | call | weights | on a path | inputs | accuracy | NLL | accuracy, 10 draws | NLL, 10 draws |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for r in results["rows"]:
        means = f"{r['accuracy']:.3f} | {r['nll']:.3f} | {r['accuracy_10']:.3f} | {r['nll_10']:.3f}"
        lines.append(f"| {r['rule']} | `{r['call']}` | {r['weights']} | {r['active']} | {r['inputs']} | {means} |")
    doubt = results["doubt"]
    lines += [
        "",
        "- Indicators are independent under q, so the most probable model is the median model where that is feasible.",
        "- WAIC, DIC and FIC choose among 50 models drawn from q, the median model among them. q(beta | gamma) is not",
        "  fitted again for each (`refit=` does that), and a drawn model holds many weights that the data say nothing",
        "  about. FIC needs a focus: here the mean largest logit.",
        "- A budget far below the median model cuts weights the network relies on: post-train it before use.",
        "- Paths only: the weights that lie on a path from an input to an output, what cut-off neurons send folded",
        "  into intercepts. It predicts the same as the median model at the means.",
        "",
        "## When in doubt",
        "",
        f"`sn.calibrate_doubt` finds a low threshold with accuracy {doubt['promised']} or more among the decided;",
        f"that holds for {doubt['confidence']:.0%} of all validation sets, although the threshold is chosen on them",
        "(`tests/prediction/test_abstention.py` simulates it).",
    ]
    if doubt["threshold"] is None:
        lines.append(f"With {doubt['rows']} validation rows it could promise nothing.")
    else:
        at = f"{doubt['threshold']}, which decides {doubt['decided']:.1%} of them"
        test = f"{doubt['test_decided']:.1%}, of which {doubt['test_accuracy']:.1%} are right"
        lines += [f"With {doubt['rows']} validation rows it chose {at};", f"on the test rows it decides {test}."]
    return "\n".join([*lines, "", provenance(record), ""])


if __name__ == "__main__":
    made = write_record("choosing", "python -m benchmarks.choosing", SEED, measure())
    write_page("choosing.md", page(made))
    print(page(made))
