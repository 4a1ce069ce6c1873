"""Charts of how right a model is, against scikit-learn, and the sections they are in."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import average_precision_score, confusion_matrix, precision_recall_curve, roc_auc_score

import slabnet as sn
from slabnet.report import quality_charts as charts
from slabnet.report.fitted import subject_of
from slabnet.report.measure import Measured
from slabnet.report.quality import effects_figure, quality_section, structure_section


@pytest.fixture(scope="module")
def rare() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(1)
    yes = rng.random(400) < 0.1
    share = np.round(np.clip(0.1 + 0.2 * yes + 0.1 * rng.normal(size=400), 0, 1), 2)  # with ties
    return share, yes


def test_areas_and_precision_are_those_of_scikit_learn(rare: tuple[np.ndarray, np.ndarray]) -> None:
    share, yes = rare
    area = charts.roc_chart({"yes": rare}).lines[0]
    assert float(area[2]) == pytest.approx(roc_auc_score(yes, share), abs=1e-3)
    average = charts.precision_chart({"yes": rare}).lines[0]
    assert float(average[2]) == pytest.approx(average_precision_score(yes, share), abs=1e-3)
    _, caught, right = charts.rates(share, yes)
    precision, recall, _ = precision_recall_curve(yes, share)
    assert np.allclose(caught, recall[::-1])
    assert np.allclose(right, precision[::-1])


def test_counts_are_those_of_a_confusion_matrix(rare: tuple[np.ndarray, np.ndarray]) -> None:
    share, yes = rare
    for line in charts.thresholds_chart(share, yes, "yes").lines:
        tn, fp, fn, tp = confusion_matrix(yes, share > float(line[0]), labels=[False, True]).ravel()
        assert [int(cell) for cell in line[1:]] == [tp, fp, fn, tn]
    truth, predicted = np.array([0, 0, 1, 2, 2]), np.array([0, 1, 1, 2, 0])
    drawn = charts.confusion_chart(predicted, truth, ["a", "b", "<c>"])
    assert [[int(cell) for cell in line[1:]] for line in drawn.lines] == confusion_matrix(truth, predicted).tolist()
    assert "<c>" not in drawn.picture
    assert "&lt;c&gt;" in drawn.picture


def test_calibration_counts_every_row_once(rare: tuple[np.ndarray, np.ndarray]) -> None:
    lines = charts.calibration_chart({"yes": rare}).lines
    assert sum(int(line[3]) for line in lines) == len(rare[0])
    assert sum(float(line[2]) * int(line[3]) for line in lines) == pytest.approx(rare[1].sum(), abs=0.5)


def test_residuals_are_in_the_unit_of_the_response_and_left_out_without_rows() -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 2))
    y = 1000 + 50 * X[:, 0] + rng.normal(size=120)
    model = sn.SlabRegressor(hidden=(4,), epochs=40, random_state=0, skip=True).fit(X, y)
    measured = Measured(subject_of(model, (X, y), "t", "price"))
    section = quality_section(measured, no_rows=False)
    assert section is not None
    observed, residuals = section.figures
    assert all(800 < float(b.replace("\u202f", "").replace(" ", "")) < 1200 for _, b in observed.lines)
    assert sum(int(line[3]) for line in residuals.lines) == 120
    assert quality_section(measured, no_rows=True) is None
    effects = effects_figure(measured)
    assert effects is not None
    assert float(effects.lines[0][1]) == pytest.approx(float(model.feature_effects_.effect[0, 0]), rel=0.01)
    assert 30 < float(effects.lines[0][1]) < 60
    structure = structure_section(measured)
    assert structure is not None
    assert structure.more["table"]["lines"][0][0] == measured.subject.inputs[0]


def test_a_page_of_counts_says_what_the_fit_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from slabnet.cli.responses import ResponseColumns
    from slabnet.cli.tables import TableJob, fit_table
    from slabnet.report.write import report_file

    rng = np.random.default_rng(0)
    rows = "\n".join(f"{x:.3f},{rng.poisson(np.exp(x))}" for x in rng.normal(size=80))
    (tmp_path / "t.csv").write_text(f"x,n\n{rows}\n")
    recipe = sn.Recipe(network=sn.NetworkConfig(hidden=(3,)), train=sn.TrainConfig(epochs=3))
    job = TableJob(tmp_path / "t.csv", "n", recipe, "regression", response=ResponseColumns("poisson", None, None, ()))
    fit_table(job, tmp_path / "m.slab")
    page = report_file(tmp_path / "m.slab", tmp_path / "r.html", str(tmp_path / "t.csv")).read_text()
    assert "On the rows that the fit held out, ridge reached" in page
    assert "How good it is on new rows is not known" not in page
