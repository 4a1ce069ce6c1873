"""A page about a fitted table, judged by rows of a table."""

from __future__ import annotations

import shlex
from pathlib import Path

import numpy as np
import pytest

import slabnet as sn
from slabnet.cli.app import app
from slabnet.cli.tables import TableJob, fit_table
from slabnet.config.settings import NetworkConfig, Recipe, TrainConfig
from slabnet.report.fitted import subject_of
from slabnet.report.live import pack_network
from slabnet.report.measure import Measured
from slabnet.report.subject import subject_from_file
from slabnet.report.write import report_file


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_rows_of_a_table_are_read_as_the_network_reads_them(task: str, tmp_path: Path) -> None:
    source = np.random.default_rng(0)
    size, colour = source.normal(50, 10, 60), source.choice(["red", "blue"], 60)
    answer = 3 * size + 20 * (colour == "red")
    target = [str(v) for v in answer] if task == "regression" else ["large" if v > 160 else "small" for v in answer]
    lines = ["size,colour,answer", *(f"{s},{c},{t}" for s, c, t in zip(size, colour, target, strict=True))]
    (tmp_path / "t.csv").write_text("\n".join([*lines, "51,red,"]))  # the last row has no answer
    recipe = Recipe(network=NetworkConfig(hidden=(4,)), train=TrainConfig(epochs=30, batch_size=20))
    fit_table(TableJob(tmp_path / "t.csv", "answer", recipe, task), tmp_path / "m.slab")  # type: ignore[arg-type]
    text = (tmp_path / "t.csv").read_text()
    (tmp_path / "more.csv").write_text(text + "\n")  # another file: all of its rows are shown
    aside = subject_from_file(tmp_path / "m.slab", str(tmp_path / "t.csv"))
    assert aside.test is not None
    assert len(aside.test[1]) == 12
    assert "12 that were held out" in aside.notes[0]
    subject = subject_from_file(tmp_path / "m.slab", str(tmp_path / "more.csv"))
    assert "those of more.csv, another file than the one that was fitted" in subject.notes[0]
    assert subject.title == "t.csv"
    assert subject.seed == 0
    words = ["slabnet", "fit", "t.csv", "--target", "answer", "--out", "m.slab", "--seed", "0", "--test-size", "0.2"]
    words += ["--task", task, "--hidden", "4", "--epochs", "30", "--config", "settings.toml"]
    assert shlex.split(str(subject.command)) == words
    assert (list(subject.categories), subject.indicators) == ([], {1})
    assert subject.input_names == ["size", "colour=red"]
    assert subject.row_numbers == list(range(1, 61))
    assert subject.test is not None
    x, y = subject.test
    assert x.shape == (60, 2)
    assert subject.scale_x is not None
    np.testing.assert_allclose(subject.scale_x.undo(x.numpy())[:, 0], size, rtol=1e-6)
    if task == "regression":
        assert subject.scale_y is not None
        np.testing.assert_allclose(subject.scale_y.undo(y.numpy()).reshape(-1), answer, rtol=1e-6)
    else:
        assert [subject.classes(2)[int(v)] for v in y] == target
    assert subject.test is not None
    every = {tuple(row) for row in x.tolist()}
    assert {tuple(row) for row in aside.test[0].tolist()} < every
    report_file(tmp_path / "m.slab", tmp_path / "r.html", str(tmp_path / "t.csv"))
    text = (tmp_path / "r.html").read_text()
    assert "colour" in text
    report_file(tmp_path / "m.slab", tmp_path / "no.html", str(tmp_path / "t.csv"), no_rows=True)
    (tmp_path / "other.csv").write_text("size,colour\n1,red\n")
    with pytest.raises(sn.ArgumentError, match="--data must be a table with the column answer"):
        subject_from_file(tmp_path / "m.slab", str(tmp_path / "other.csv"))


def test_a_category_is_one_control(tmp_path: Path) -> None:
    """One list of levels, which starts with the most frequent; also without rows."""
    source = np.random.default_rng(2)
    colour = source.choice(["red", "blue", "<i>"], 200, p=[0.2, 0.5, 0.3])
    lines = ["size,colour,answer"]
    lines += [f"{source.normal()},{c},{10 * (c == 'red') + source.normal()}" for c in colour]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    recipe = Recipe(network=NetworkConfig(hidden=(4,)), train=TrainConfig(epochs=60, lr=0.02))
    fit_table(TableJob(tmp_path / "t.csv", "answer", recipe), tmp_path / "m.slab")
    for data in (str(tmp_path / "t.csv"), None):
        measured = Measured(subject_from_file(tmp_path / "m.slab", data))
        controls = {control["name"]: control for control in pack_network(measured, rows=False)["controls"]}
        assert controls["colour"]["options"] == ["<i>", "blue", "red"]
        assert controls["colour"]["start"] == 1
        assert not any("=" in name for name in controls)


def test_a_table_s_fit_has_a_page_of_the_held_out_rows(tmp_path: Path) -> None:
    """The numbers on the page are those that the fit printed, for the same rows."""
    source = np.random.default_rng(1)
    size = source.normal(50, 10, 80)
    lines = [
        "size,answer",
        *(f"{s},{'yes' if s + e > 50 else 'no'}" for s, e in zip(size, source.normal(0, 3, 80), strict=True)),
    ]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    words = ["fit", str(tmp_path / "t.csv"), "--target", "answer", "--out", str(tmp_path / "m.slab"), "--epochs", "30"]
    app([*words, "--report", str(tmp_path / "r.html")], standalone_mode=False)
    text = (tmp_path / "r.html").read_text()
    assert "The rows below are the 16 that were held out" in text
    words[words.index("--out") + 1] = str(tmp_path / "all.slab")
    app([*words, "--test-size", "0", "--report", str(tmp_path / "all.html")], standalone_mode=False)
    assert "they make it look better than it is" in (tmp_path / "all.html").read_text()


def test_what_rounding_left_of_a_zero_is_no_start_of_a_slider() -> None:
    """A median of zero, standardised and back, is some 1e-17."""
    x = np.random.default_rng(1).poisson(0.3, size=(90, 2)).astype(float)
    x[:, 1] += np.arange(90)
    model = sn.SlabRegressor(hidden=(), epochs=30, random_state=0).fit(x, x[:, 0] + x[:, 1])
    subject = subject_of(model, (x, x[:, 0] + x[:, 1]), "counts", None)
    control = pack_network(Measured(subject), rows=True)["controls"][0]
    assert (control["low"], control["start"]) == (0.0, 0.0)
