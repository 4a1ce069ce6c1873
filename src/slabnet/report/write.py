"""`write_report`: a page about a network in memory, about a model file, or about a folder of runs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from slabnet.core.devices import device_of
from slabnet.core.errors import FileError, SlabnetError, one_line, refuse
from slabnet.core.files import check_writable
from slabnet.core.records import History, Selection
from slabnet.estimators.base import SlabEstimator
from slabnet.estimators.scaling import Scaling
from slabnet.model.attach import likelihood_of
from slabnet.model.likelihoods import response_of
from slabnet.report.fitted import subject_of
from slabnet.report.measure import Measured
from slabnet.report.page import render_page, write_page
from slabnet.report.sections import model_sections
from slabnet.report.subject import Subject, subject_from_file
from slabnet.training.batches import Prepare

MOST_ROWS = 100_000


def write_report(
    out: str | Path,
    net: nn.Module | SlabEstimator,
    test: tuple[Any, Any] | None = None,
    *,
    title: str = "a fitted network",
    selection: Selection | None = None,
    history: History | None = None,
    rows: Sequence[Mapping[str, Any]] | None = None,
    input_names: Sequence[str] | None = None,
    class_names: Sequence[str] | None = None,
    target: str | None = None,
    image_shape: tuple[int, int] | None = None,
    scale_x: Scaling | None = None,
    scale_y: Scaling | None = None,
    ood: tuple[str, Any] | None = None,
    settings: Mapping[str, Any] | None = None,
    command: str | None = None,
    no_rows: bool = False,
    seed: int = 0,
    foreign: tuple[str, Any] | None = None,
) -> Path:
    """Write one self-contained HTML page about `net` to `out`, with the network itself running in it.

    net: a network, or a fitted estimator, which knows names, units and classes itself.
    test: (x, y) to judge it by, in the network's own units, or as the estimator takes them; left out: no test rows.
    selection: the model that was chosen and post-trained; else the median model is shown.
    history: what `fit` returned; rows: the ways to predict, where they were measured already.
    scale_x, scale_y: how inputs and response were standardised. image_shape: (height, width) of rows that are images.
    ood: (name, x) of out-of-distribution rows; in 0.1 `foreign`. no_rows: leave out single cases and test images.

    >>> import tempfile
    >>> from slabnet.model.networks import mlp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_report(f"{folder}/r.html", mlp((3, 2)), (torch.eye(3), torch.arange(3) % 2))
    ...     page.read_text().startswith("<!doctype html>")
    True
    """
    check_writable("write_report", out)
    if isinstance(net, SlabEstimator):
        return write_page(out, model_page(subject_of(net, test, title, target), no_rows), "write_report")
    subject = Subject(
        net=net,
        title=title,
        test=_ready(net, test, image_shape, input_names),
        selection=selection,
        rows=rows,
        epochs=None if history is None else history.columns(),
        input_names=input_names,
        class_names=class_names,
        target=target,
        image_shape=image_shape,
        scale_x=scale_x,
        scale_y=scale_y,
        ood=_renamed(ood, foreign),
        settings=settings if settings is not None else {} if history is None else dict(history.config),
        seed=seed,
        command=command,
    )
    return write_page(out, model_page(subject, no_rows), "write_report")


def _check_width(inputs: int, image_shape: tuple[int, int] | None, input_names: Sequence[str] | None) -> None:
    """Refuse a picture's sides or names of inputs that do not fit a row."""
    if image_shape is not None and inputs != image_shape[0] * image_shape[1]:
        refuse("write_report", "image_shape", f"of the {inputs} numbers a row has", image_shape)
    if input_names is not None and len(input_names) != inputs:
        refuse("write_report", "input_names", f"{inputs} of them, one an input", f"{len(input_names)}")


def report_file(model: Path, out: Path, data: str | None = None, ood: str | None = None, no_rows: bool = False) -> Path:
    """The page of a model file; what `slabnet report MODEL` does."""
    check_writable("report", out)
    try:
        page = model_page(subject_from_file(model, data, ood), no_rows)
    except SlabnetError:
        raise
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:  # what it says of its fit
        raise FileError(f"report: {model} must describe its fit as slabnet does, got: {one_line(error)}") from None
    return write_page(out, page)


def model_page(subject: Subject, no_rows: bool = False) -> bytes:
    """The page of one model, as bytes; the same for the same model and rows."""
    measured = Measured(_some_rows(subject), subject.seed or 0)
    was_training = subject.net.training
    subject.net.eval()
    try:
        sections, data = model_sections(measured, no_rows)
    finally:
        subject.net.train(was_training)
    return render_page(subject.title, f"a network fitted with {subject.method}", sections, data)


def _some_rows(subject: Subject) -> Subject:
    """The subject with at most MOST_ROWS test rows, evenly spaced; the page says so."""
    if subject.test is None or len(subject.test[1]) <= MOST_ROWS:
        return subject
    rows = len(subject.test[1])
    places = torch.linspace(0, rows - 1, MOST_ROWS).long()
    note = f"It is judged here by {MOST_ROWS} of the {rows} test rows, evenly spaced."
    numbers = None if subject.row_numbers is None else [subject.row_numbers[i] for i in places.tolist()]
    test = (subject.test[0][places], subject.test[1][places])
    return replace(subject, test=test, notes=[*subject.notes, note], row_numbers=numbers)


def _renamed(ood: tuple[str, Any] | None, foreign: tuple[str, Any] | None) -> tuple[str, Tensor] | None:
    """Out-of-distribution rows, under the name of 0.1 too."""
    if foreign is not None:
        warnings.warn("write_report: foreign is called ood now, and will go", DeprecationWarning, stacklevel=3)
    outside = foreign if ood is None else ood
    return None if outside is None else (outside[0], torch.as_tensor(outside[1]))


def _ready(
    net: nn.Module,
    test: tuple[Any, Any] | None,
    image_shape: tuple[int, int] | None,
    input_names: Sequence[str] | None,
) -> tuple[Tensor, Tensor] | None:
    """Test rows as the network takes them; refuses what does not fit each other."""
    if not isinstance(net, nn.Module):
        refuse("write_report", "net", "a network or a fitted estimator", type(net).__name__)
    if test is None:
        return None
    device, dtype = device_of(net)
    rows, target = Prepare(net, likelihood_of(net), dtype, device, "write_report")(*test)
    _check_width(rows[0].numel(), image_shape, input_names)
    return rows, response_of(target)
