"""Single rows worth a look: the most doubtful ones, and those decided wrongly."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from slabnet.core.records import Answer
from slabnet.report.measure import DOUBT, Measured
from slabnet.report.parts import Case
from slabnet.report.pictures import grey, image_tag, votes_picture
from slabnet.report.svg import number, percent, svg

SHOWN = 8
VALUES = 12  # inputs of a row that are shown


def doubtful_cases(measured: Measured) -> list[Case]:
    """The rows of highest entropy, or of the widest spread."""
    assert measured.prediction is not None
    total = measured.prediction.total.reshape(len(measured.truth), -1).mean(1)
    return _cases(measured, total.argsort(descending=True, stable=True)[:SHOWN])


def wrong_cases(measured: Measured) -> list[Case]:
    """The rows that are wrong although they are the surest, or furthest off for how sure they are."""
    prediction, truth = measured.prediction, measured.truth
    assert prediction is not None
    if prediction.answer is Answer.NUMBERS:
        off = (prediction.mean - truth.reshape(prediction.mean.shape)).abs() / prediction.total.sqrt()
        return _cases(measured, off.reshape(len(truth), -1).amax(1).argsort(descending=True, stable=True)[:SHOWN])
    wrong = (prediction.labels != truth.reshape(-1)).nonzero().flatten()
    order = prediction.confidence[wrong].argsort(descending=True, stable=True)
    return _cases(measured, wrong[order][:SHOWN])


def _cases(measured: Measured, rows: Tensor) -> list[Case]:
    assert measured.prediction is not None
    make = _number if measured.prediction.answer is Answer.NUMBERS else _classes
    return [make(measured, row) for row in rows.tolist()]


def _classes(measured: Measured, row: int) -> Case:
    prediction = measured.prediction
    assert prediction is not None
    assert prediction.votes is not None
    names = measured.subject.classes(prediction.mean.shape[1])
    truth, best = int(measured.truth.reshape(-1)[row]), int(prediction.labels[row])
    sure = float(prediction.confidence[row])
    verdict = "decided" if sure > DOUBT else "in doubt"
    caption = (
        f"{_called(measured, row)}: truth {names[truth]}, predicted {names[best]} with {percent(sure)} ({verdict}), "
    )
    caption += f"entropy {float(prediction.total[row]):.2f}"
    votes = [v / prediction.draws for v in prediction.votes[row].tolist()]
    return Case(
        caption,
        votes_picture(votes, prediction.mean[row].tolist(), truth, f"Votes for {caption}", names),
        **_shown(measured, row),
    )


def _number(measured: Measured, row: int) -> Case:
    prediction, scale = measured.prediction, measured.subject.scale_y
    assert prediction is not None
    low, high = (float(end[row].reshape(-1)[0]) for end in prediction.predictive_interval(DOUBT))
    values = [
        float(prediction.mean[row].reshape(-1)[0]),
        float(measured.truth.reshape(len(measured.truth), -1)[row, 0]),
        low,
        high,
    ]
    if scale is not None:
        values = [v * float(scale.scale.reshape(-1)[0]) + float(scale.centre.reshape(-1)[0]) for v in values]
    centre, truth, low, high = values
    ends = min(low, truth), max(high, truth)
    width = (ends[1] - ends[0]) or 1.0

    def at(value: float) -> float:
        return 10 + 180 * (value - ends[0]) / width

    inside = (
        f'<line class="grid" x1="5" y1="20" x2="195" y2="20"/>'
        f'<rect class="vote other" x="{at(low):.1f}" y="14" width="{at(high) - at(low):.1f}" height="12"/>'
        f'<line class="mean" x1="{at(centre):.1f}" y1="10" x2="{at(centre):.1f}" y2="30"/>'
        f'<circle class="ring truth" cx="{at(truth):.1f}" cy="20" r="5"/>'
    )
    caption = f"{_called(measured, row)}: observed {number(truth)}, "
    caption += f"predicted {number(centre)} ({number(low)} to {number(high)})"
    return Case(caption, svg(200, 40, f"Interval of {caption}", inside, "votes"), **_shown(measured, row))


def _called(measured: Measured, row: int) -> str:
    """What a test row is called: its number in the file that it comes from, the first below the names being 1."""
    numbers = measured.subject.row_numbers
    return f"test row {row + 1}" if numbers is None else f"row {numbers[row]}"


def _shown(measured: Measured, row: int) -> dict[str, Any]:
    """The row itself: as an image, or as values of the inputs in use first."""
    subject = measured.subject
    assert subject.test is not None
    x = subject.test[0][row]
    if subject.image_shape is not None:
        return {"image": image_tag(grey(x.reshape(subject.image_shape).numpy()), f"test image {row}")}
    values = x.flatten().double().numpy()
    shown = values if subject.scale_x is None else subject.scale_x.undo(values)
    reach = measured.reach
    order = range(len(values)) if reach is None else sorted(range(len(values)), key=lambda i: (-reach[i], i))
    names = subject.inputs
    pairs = tuple((names[i] if i < len(names) else f"input {i}", number(float(shown[i]))) for i in order)
    return {"values": pairs[:VALUES], "more": max(0, len(pairs) - VALUES)}
