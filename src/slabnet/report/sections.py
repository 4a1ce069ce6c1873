"""The sections of a model's page, in the order in which one comes to trust it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from slabnet.core.records import Answer
from slabnet.model.paths import chain_of
from slabnet.prediction.metrics import calibration_error, out_of_domain, reliability, risk_coverage
from slabnet.report import charts, pictures
from slabnet.report.cases import doubtful_cases, wrong_cases
from slabnet.report.charts import Figure
from slabnet.report.live import pack_network, typed_array, why_absent
from slabnet.report.measure import DOUBT, DRAWS, Measured, doubt_table
from slabnet.report.parts import Section
from slabnet.report.quality import effects_figure, quality_section, structure_section
from slabnet.report.subject import versions
from slabnet.report.svg import number, percent, short

SATURATED = 0.9  # share of drawn prior models that use an input, above which it tells little
THRESHOLDS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.925, 0.95, 0.975, 0.99, 0.995, 0.999)


def model_sections(measured: Measured, no_rows: bool) -> tuple[list[Section], dict[str, Any]]:
    """The sections of the page, and the numbers its script runs on."""
    data: dict[str, Any] = {}
    sections = [
        _summary(measured),
        _live(measured, no_rows, data),
        quality_section(measured, no_rows),
        _ways(measured),
        _inputs(measured),
        structure_section(measured),
        _network(measured),
        _alphas(measured),
        _training(measured),
        _trust(measured, data),
        _cases(measured, no_rows),
        _ood(measured),
        _settings(measured),
    ]
    return [section for section in sections if section is not None], data


def _summary(measured: Measured) -> Section:
    subject, chosen = measured.subject, measured.chosen
    total = chosen.total if chosen is not None else None
    rows = "" if measured.subject.epochs is None else f"{short(measured.subject.epochs['n'])} rows of "
    size = (
        ""
        if chosen is None or total is None
        else (
            f"; the {chosen.rule} model keeps {short(chosen.weights)} of its"
            f" {short(total.weights)} weights ({percent(chosen.density, 2)})"
        )
    )
    what = f" to predict {subject.target}" if subject.target else ""
    first = f"A network ({subject.method}) was fitted to {rows}{subject.title}{what}{size}."
    lines = [first, *_how_good(measured), *_beside(measured), *_further(measured), *subject.notes]
    return Section("summary", "What was fitted, and how good it is", lines)


def _how_good(measured: Measured) -> list[str]:
    tested = measured.subject.tested or {}
    if measured.prediction is None and ("rmse" in tested or "log_density" in tested):
        return [_when_fitted(tested)]
    if measured.prediction is None or measured.score is None:
        return ["How good it is on new rows is not known here: no test rows were given (--data)."]
    count, prediction, scores = len(measured.truth), measured.prediction, measured.scores
    averaged = f"Averaged over {prediction.draws} draws of {measured.model_name}"
    if prediction.answer is Answer.NUMBERS:
        return [_error_said(measured, averaged, count)]
    if scores is None:
        return [f"{averaged}, its accuracy is {percent(measured.score, 2)} on {short(count)} test rows."]
    names = measured.subject.classes(prediction.mean.shape[1])
    missed = [names[k] for k in scores["never_predicted"]]
    sentence = f"{averaged}, its accuracy is {percent(scores['accuracy'], 2)} on {short(count)} test rows"
    sentence = f"{sentence}; always saying the most frequent class gives {percent(scores['baseline'], 2)}."
    if missed:
        sentence = f"It never predicts {' or '.join(missed)}. {sentence}"
    area = "" if scores["auc"] is None else f", area under the ROC curve {number(scores['auc'], 3)}"
    more = f"Balanced accuracy {percent(scores['balanced_accuracy'], 2)}, log-loss {number(scores['log_loss'], 3)}"
    lines = [sentence, f"{more}, Brier score {number(scores['brier'], 3)}{area}."]
    if not scores["decided"]:
        return [*lines, f"None of them reaches the {DOUBT} it takes to decide without doubt."]
    share, good = percent(scores["decided"] / count), percent(scores["accuracy_decided"], 2)
    return [*lines, f"It decides {share} of them without doubt (above {DOUBT}), of which {good} are right."]


def _beside(measured: Measured) -> list[str]:
    """The linear model that the fit was compared with."""
    linear = (measured.subject.tested or {}).get("linear")
    if not linear:
        return []
    told = number(linear["rmse"]) if "rmse" in linear else percent(linear["accuracy"], 2)
    return [f"On the rows that the fit held out, {linear['name']} reached {told} ({measured.measure})."]


def _when_fitted(tested: Mapping[str, Any]) -> str:
    """What the fit found on its held-out rows, for a page that cannot judge rows itself."""
    if "rmse" not in tested:
        return f"On the rows that the fit held out, its log density is {number(tested['log_density'])} a row."
    said = f"On the rows that the fit held out, its error (RMSE) is {number(tested['rmse'])}"
    said += f" (always saying the mean: {number(tested['baseline'])})"
    return f"{said}, and its {DOUBT:.0%} prediction intervals cover {percent(tested.get('coverage'))} of them."


def _further(measured: Measured) -> list[str]:
    """Metrics that no other sentence gives: of this likelihood, and those that a user registered."""
    values = [f"{words} {number(value, 3)}" for words, value in measured.further]
    return [f"Further metrics on these rows: {', '.join(values)}."] if values else []


def _error_said(measured: Measured, averaged: str, count: int) -> str:
    """The same of numbers."""
    scores, prediction = measured.scores, measured.prediction
    assert scores is not None
    assert prediction is not None
    sentence = f"{averaged}, its error ({measured.measure}) is {number(measured.score)} on {short(count)} test rows"
    sentence += f" (always saying the mean: {number(scores['baseline'])}"
    sentence += ")" if scores["r2"] is None else f"; R2 {number(scores['r2'], 3)})"
    if "coverage" not in scores:
        return f"{sentence}; a {prediction.kind} response has no intervals."
    return f"{sentence}, and its {DOUBT:.0%} prediction intervals cover {percent(scores['coverage'])} of them."


def _live(measured: Measured, no_rows: bool, data: dict[str, Any]) -> Section:
    why = why_absent(measured)
    if why is not None:
        return Section("live", "Interactive network", [why])
    packed = data["network"] = pack_network(measured, rows=not no_rows)
    kind = f"live-{packed['kind']}"
    pick = ", or pick a test image" if packed.get("images") else ""
    what = f"Draw an image{pick}" if kind == "live-image" else "Move the inputs"
    text = f"{what}: {DRAWS} networks, drawn from what is left after selection, answer in this page. Nothing leaves it."
    return Section(
        "live", "Interactive network", [text], kind=kind, more={"network": packed, "picks": _picks(measured, packed)}
    )


def _picks(measured: Measured, packed: dict[str, Any]) -> list[Any]:
    """Test images as pictures, for the buttons that pick one."""
    if not packed.get("images"):
        return []
    assert measured.subject.test is not None
    shape = measured.subject.image_shape
    assert shape is not None
    tiles = [pictures.grey(row.reshape(shape).numpy()) for row in measured.subject.test[0][: len(packed["images"])]]
    return [pictures.image_tag(tile, "") for tile in tiles]


def _ways(measured: Measured) -> Section | None:
    if not measured.ways:
        return None
    return Section("ways", "Every way to predict", figures=[charts.ways_chart(measured.ways, measured.measure)])


def _inputs(measured: Measured) -> Section | None:
    reach, shape = measured.reach, measured.subject.image_shape
    if reach is None:
        return None
    if shape is not None and len(reach) == shape[0] * shape[1]:
        return Section("inputs", "Feature importance", figures=_maps(measured, shape))
    effects, names = measured.effects, measured.subject.inputs
    inside = (
        set()
        if measured.chosen is None or measured.chosen.inputs is None
        else set(measured.chosen.inputs.nonzero().flatten().tolist())
    )
    order = sorted(range(len(reach)), key=lambda i: (-reach[i], -(0 if effects is None else effects[i]), i))
    with_effects = effects is not None and len(effects) == len(reach)
    rows = [
        {"input": names[i] if i < len(names) else f"channel {i}", "share": float(reach[i]), "selected": i in inside}
        | (
            {"effect": float(effects[i]) * measured.unit}
            if effects is not None and with_effects
            else {"effect": math.nan}
        )
        for i in order
    ]
    figures = [charts.importance_chart(rows, measured.reach_before, with_effects), effects_figure(measured)]
    return Section("inputs", "Feature importance", figures=[figure for figure in figures if figure is not None])


def _maps(measured: Measured, shape: tuple[int, int]) -> list[Figure]:
    """How often drawn models use a pixel, and how much it moves the answer."""
    reach, before, alpha, effects = measured.reach, measured.reach_before, measured.pixel_alpha, measured.effects
    assert reach is not None
    share = {"posterior inclusion probability": reach}
    if alpha is not None and before is not None and before > SATURATED:
        how = (
            "The stronger its colour, the surer it is that some weight reads the pixel: the largest alpha of the "
            "weights that do. (The probability of a path from it says little in so wide a network: "
            f"{percent(before)} before any data.)"
        )
        often = pictures.input_map("Which pixels are read", how, "largest alpha", alpha, shape, share)
    else:
        yardstick = "" if before is None else f" (the prior alone would give {percent(before)} to each)"
        how = f"The stronger its colour, the more drawn models have a path from the pixel to an output{yardstick}."
        more = {} if alpha is None else {"largest alpha": alpha}
        often = pictures.input_map("Which pixels are read", how, "posterior inclusion probability", reach, shape, more)
    if effects is None or not effects.max() > 0:
        return [often]
    how = (
        "The stronger its colour, the further the class probabilities move with the pixel, on average over drawn "
        f"models and test rows; full colour is {number(float(effects.max()), 3)} for a step from white to black."
    )
    size = effects / effects.max()
    return [
        often,
        pictures.input_map("How much they matter", how, "share of the largest", size, shape, {"effect": effects}),
    ]


def _network(measured: Measured) -> Section | None:
    chosen, chain = measured.chosen, chain_of(measured.net)
    if chosen is None or chosen.active is None or chain is None or not chosen.feasible:
        return None
    parts = [
        (name, layer.weight.mu.detach().cpu(), layer.alpha.detach().cpu(), chosen.active[name].cpu())
        for name, layer, *_ in chain
    ]
    flat = all(mu.ndim == 2 for _, mu, _, _ in parts)
    if flat and sum(int(inside.sum()) for *_, inside in parts) <= pictures.MOST_EDGES:
        edges = [
            (
                (index, source) if source < (units := mu.shape[1] - link.again) else (link.reader, source - units),
                (index + 1, target),
                float(mu[target, source]),
                float(alpha[target, source]),
            )
            for index, (link, (_, mu, alpha, inside)) in enumerate(zip(chain, parts, strict=True))
            for target, source in inside.nonzero().tolist()
        ]
        sizes = [parts[0][1].shape[1], *(mu.shape[0] for _, mu, _, _ in parts)]
        figure = pictures.network_picture(edges, sizes, _unit_names(measured, sizes))
    else:
        figure = pictures.matrix_picture(
            [(n, mu.flatten(1).numpy(), inside.flatten(1).numpy()) for n, mu, _, inside in parts]
        )
    outputs = measured.subject.classes(parts[-1][1].shape[0])
    text = []
    if chosen.unreachable:
        text = [f"No input reaches the outputs {', '.join(outputs[i] for i in chosen.unreachable)}."]
    return Section("network", "The network", text, [figure])


def _unit_names(measured: Measured, sizes: Sequence[int]) -> dict[tuple[int, int], str]:
    subject = measured.subject
    if subject.image_shape is not None:
        width = subject.image_shape[1]
        names = {(0, i): f"{i // width},{i % width}" for i in range(sizes[0])}
    else:
        names = {(0, i): name for i, name in enumerate(subject.inputs[: sizes[0]])}
    last = len(sizes) - 1
    if subject.answer is Answer.CLASSES and subject.likelihood.classes(sizes[-1]) == sizes[-1]:
        return names | {(last, i): name for i, name in enumerate(subject.classes(sizes[-1]))}
    return names | {(last, i): subject.target or f"output {i}" for i in range(sizes[-1])}


def _alphas(measured: Measured) -> Section | None:
    figures = [charts.alpha_chart(f"layer {i + 1}", counts) for i, counts in enumerate(measured.histograms.values())]
    return Section("alpha", "How sure it is of its structure", figures=figures) if figures else None


def _training(measured: Measured) -> Section | None:
    epochs = measured.subject.epochs
    if not epochs or not epochs.get("kl"):
        return None
    figures = [charts.bound_chart(epochs)]
    figures += [charts.density_chart(epochs)] if measured.selects else []
    tempered = [f"The KL ended with weight {number(epochs['kl_weight'][-1])}: this is a tempered posterior."]
    return Section("training", "How it was trained", tempered if epochs.get("tempered") else [], figures)


def _trust(measured: Measured, data: dict[str, Any]) -> Section | None:
    prediction = measured.prediction
    if prediction is None:
        return None
    if prediction.answer is Answer.NUMBERS:
        held = measured.intervals()
        return Section("trust", "Can it be trusted?", figures=[charts.coverage_chart(held)]) if held else None
    if prediction.answer is not Answer.CLASSES:
        return None
    truth = measured.truth.reshape(-1)
    bins = [part._asdict() for part in reliability(prediction, truth)]
    curve = risk_coverage(prediction, truth)
    order = prediction.confidence.argsort(descending=True, stable=True)  # sorted: no row can be told by its place
    data["doubt"] = {
        "confidence": typed_array(prediction.confidence[order], "<f4"),
        "right": "".join("1" if r else "0" for r in (prediction.labels == truth)[order].tolist()),
        "threshold": DOUBT,
    }
    figures = [
        charts.reliability_chart(bins, calibration_error(prediction, truth)),
        charts.risk_chart(
            curve.coverage.tolist(), curve.risk.tolist(), doubt_table(prediction, truth, THRESHOLDS), curve.area
        ),
    ]
    start = doubt_table(prediction, truth, [DOUBT])[0]
    return Section(
        "trust",
        "Can it be trusted?",
        figures=figures,
        kind="doubt",
        more={"start": start, "threshold": DOUBT, "rows": len(truth)},
    )


def _cases(measured: Measured, no_rows: bool) -> Section | None:
    if measured.prediction is None or measured.prediction.answer is Answer.YES_OR_NO:
        return None
    if measured.prediction.answer is Answer.NUMBERS and not measured.prediction.predictive:
        return None
    if no_rows:
        return Section("cases", "Single cases", ["Left out: this page was made without raw rows (--no-rows)."])
    groups = [("Most doubtful", doubtful_cases(measured)), ("Wrong, the surest first", wrong_cases(measured))]
    if measured.prediction.answer is Answer.NUMBERS:
        groups = [("Least sure", groups[0][1]), ("Furthest off", groups[1][1])]
        text = f"The bar is the {DOUBT:.0%} interval, the tick the prediction, the ring what was observed."
    else:
        text = (
            f"Bars are the votes of {measured.prediction.draws} draws for each class, ticks the averaged "
            "probabilities. Green is the truth, red a wrong prediction."
        )
    return Section(
        "cases", "Single cases", [text], kind="cases", cases=[(title, list(cases)) for title, cases in groups]
    )


def _ood(measured: Measured) -> Section | None:
    ood, inside = measured.subject.ood, measured.prediction
    if ood is None or inside is None or inside.answer is not Answer.CLASSES:
        return None
    name, x = ood
    outside = measured.predict(x)
    levels = torch.linspace(0, 1, 101, dtype=torch.float64)
    curves = {
        title: torch.quantile(p.entropy.double(), levels).tolist()
        for title, p in ((measured.subject.title, inside), (name, outside))
    }
    told = out_of_domain(inside, outside)
    figure = charts.entropy_chart(
        curves, inside.mean.shape[1], f" By entropy the two are told apart with an AUROC of {told.auroc:.3f}."
    )
    return Section("ood", "Out-of-distribution rows", figures=[figure])


def _settings(measured: Measured) -> Section:
    subject = measured.subject
    facts = [
        ("method", subject.method),
        *(((("fitted with slabnet"), subject.fitted_with),) if subject.fitted_with else ()),
    ]
    facts += [("seed", str(subject.seed))] if subject.seed is not None else []
    facts += [(f"page made with {name}", value) for name, value in versions().items()]
    code = [("To repeat it, as the file says", subject.command)] if subject.command else []
    lines = list(_flat(subject.settings))
    text = "\n".join(f"{name} = {value}" for name, value in lines)
    code += [("Settings", text)] if text else []
    return Section("settings", "How to repeat it", facts=facts, code=code)


def _flat(settings: Any, prefix: str = "") -> Iterator[tuple[str, str]]:
    """Nested settings as dotted names."""
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)
