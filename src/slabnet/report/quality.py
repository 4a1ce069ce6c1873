"""The section on how right a model is, row by row or class by class, and which way its inputs act."""

from __future__ import annotations

import numpy as np

from slabnet.core.records import Answer
from slabnet.model.skips import Fork
from slabnet.prediction.structure import structure
from slabnet.report import quality_charts as charts
from slabnet.report.charts import Figure
from slabnet.report.measure import Measured
from slabnet.report.parts import Section

FEWEST = 2  # test rows
MOST_MATRIX = 40  # classes of a confusion matrix


def quality_section(measured: Measured, no_rows: bool) -> Section | None:
    """Predicted against observed and residuals, or what thresholds do; nothing that shows a row with `no_rows`."""
    prediction = measured.prediction
    if prediction is None or len(measured.truth) < FEWEST:
        return None
    if prediction.answer is Answer.NUMBERS:
        if no_rows:
            return None
        predicted, observed = measured.in_own_unit(prediction.mean), measured.in_own_unit(measured.truth)
        target = measured.subject.target or "response"
        figures = [make(predicted, observed, target) for make in (charts.observed_chart, charts.residual_chart)]
        return Section("quality", "How right it is", figures=figures)
    if prediction.answer is not Answer.CLASSES:
        return None
    return Section("quality", "How right it is", figures=_of_classes(measured))


def _of_classes(measured: Measured) -> list[Figure]:
    """Curves of the class that is asked for (of two the rarer one), or of the most frequent ones."""
    prediction = measured.prediction
    assert prediction is not None
    shares, truth = prediction.mean.double().cpu().numpy(), measured.truth.reshape(-1).long().cpu().numpy()
    names = measured.subject.classes(shares.shape[1])
    counts = np.bincount(truth, minlength=len(names))
    happened = [int(k) for k in np.argsort(-counts, kind="stable") if 0 < counts[k] < len(truth)]
    shown = happened[-1:] if len(names) == 2 else happened[: charts.MOST_CLASSES]
    curves = {names[k]: (shares[:, k], truth == k) for k in sorted(shown)}
    if not curves:
        return []
    figures = [charts.roc_chart(curves), charts.precision_chart(curves)]
    if len(names) == 2:
        figures.append(charts.thresholds_chart(shares[:, shown[0]], truth == shown[0], names[shown[0]]))
    if len(names) <= MOST_MATRIX:
        figures.append(charts.confusion_chart(shares.argmax(1), truth, names))
    return [*figures, charts.calibration_chart(curves)]


def effects_figure(measured: Measured) -> Figure | None:
    """Signed effects with intervals, as the estimator found them; of several classes that which an input moves most."""
    effects = measured.subject.signed_effects
    if effects is None or not effects.rows():
        return None
    best: dict[str, dict[str, object]] = {}
    for name, output, effect, low, high in effects.rows():  # largest first
        of = f"{name} → {output}" if len(effects.outputs) > 1 else name
        best.setdefault(name, {"name": of, "effect": effect, "low": low, "high": high})
    rows = [row for row in best.values() if row["low"] or row["high"]]
    unit = measured.subject.target if measured.subject.answer is Answer.NUMBERS else "probability"
    return charts.effects_chart(rows, f"change of {unit or 'the response'}") if rows else None


def structure_section(measured: Measured) -> Section | None:
    """How often each input is used, only linearly, and how deep drawn networks are; for networks with skips."""
    net = measured.net
    if not measured.selects or not any(isinstance(part, Fork) for part in net.modules()):
        return None
    names = measured.subject.inputs
    drawn = structure(net, names=names or None, seed=measured.seed)
    head, *rows = drawn.rows(len(drawn.columns))
    depth = ", ".join(f"{layers}: {share:.0%}" for layers, share in sorted(drawn.depth.items()))
    text = [
        f"In {drawn.draws} networks drawn from the posterior: the share that uses an input, and of those the share "
        "that uses it only linearly. An input that is only linear needs no hidden unit.",
        f"Layers on the longest path: {depth}.",
    ]
    table = {"header": ["input", *head[1:]], "lines": rows}
    return Section("structure", "Linear or not", text, kind="table", more={"table": table})
