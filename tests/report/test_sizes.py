"""Large models and long histories still make a page that can be sent around; runs are shown without torch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import slabnet as sn
from slabnet.experiments.engines import Here
from slabnet.experiments.grid import run_grid
from slabnet.experiments.profiles import Profile
from slabnet.report import write
from slabnet.report.charts import bound_chart
from slabnet.report.page import LARGEST, write_page
from slabnet.report.pictures import MOST_SIDE, _shrunk, grey, matrix_picture, png
from slabnet.report.runs import runs_page


def test_the_largest_network_that_runs_in_a_page_fits() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(300, 784, generator=generator)
    net = sn.mlp((784, 62, 10))  # 49 228 weights, all of them in
    subject = write.Subject(net=net, title="t", test=(x, torch.arange(300) % 10), image_shape=(28, 28))
    page = write.model_page(subject)
    assert len(page) < LARGEST
    assert b"at most 50000" not in page


def test_many_test_rows_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "MOST_ROWS", 20)
    subject = write.Subject(net=sn.mlp((2, 2)), title="t", test=(torch.randn(50, 2), torch.arange(50) % 2))
    assert b"judged here by 20 of the 50 test rows" in write.model_page(subject)


def test_large_matrices_show_the_strongest_weight_of_a_block() -> None:
    mu = np.zeros((2 * MOST_SIDE + 1, 5))
    mu[1, 2], mu[7, 0] = -3.0, 0.5
    figure = matrix_picture([("layer", mu, mu != 0)])
    assert 'width="5" height="201"' in figure.picture  # three rows to a block
    assert figure.lines == [["layer", "601 × 5", "2", "0.067%"]]
    small, inside = _shrunk(mu, mu != 0)
    assert (small[0, 2], small[2, 0], int(inside.sum())) == (-3.0, 0.5, 2)


def test_long_histories_keep_their_ends() -> None:
    count = 20_000
    values = np.linspace(5, 1, count).tolist()
    figure = bound_chart({"n": 1, "log_likelihood": [-v for v in values], "kl": values})
    assert (figure.lines[0][0], figure.lines[-1][0], len(figure.lines)) == ("1", str(count), 500)
    assert len(figure.picture) < 20_000


def test_a_page_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(sn.SlabnetError, match="at most 3000000 bytes"):
        write_page(tmp_path / "r.html", b"x" * (LARGEST + 1))
    assert not list(tmp_path.iterdir())


def test_a_png_is_what_matplotlib_reads() -> None:
    from io import BytesIO

    import matplotlib.image

    values = np.linspace(0, 1, 12).reshape(3, 4)
    read = matplotlib.image.imread(BytesIO(png(grey(values))))
    assert np.abs(read - (1 - values)).max() < 0.003


def test_runs_have_a_page_without_torch(tmp_path: Path) -> None:
    plans = [
        Profile.named("recommended").plan("digits", method, 0, hidden=(6,), epochs=2, post_epochs=1)
        for method in ("lbbnn", "deterministic")
    ]
    run_grid(plans, tmp_path / "runs", engine=Here("off"))
    page = runs_page(tmp_path / "runs").decode()
    for said in ("2 runs of 2 settings", "Accuracy against density", "Table 1", "slabnet reproduce --dataset digits"):
        assert said in page
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    words = [sys.executable, "-m", "slabnet", "report", "runs", "--out", "r.html"]
    run = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "r.html").read_text("utf-8") == page

    (tmp_path / "torch.py").unlink()
    words = [sys.executable, "-m", "slabnet", "reproduce", "--dataset", "digits", "--methods", "lbbnn", "--runs", "1"]
    words += ["--profile", "recommended", "--hidden", "6", "--epochs", "2", "--post-epochs", "1", "--out", "runs"]
    run = subprocess.run([*words, "--report", "all.html"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert (tmp_path / "all.html").read_text("utf-8") == page


def test_a_model_of_a_run_has_a_page_too(tmp_path: Path) -> None:
    plan = Profile.named("recommended").plan("digits", "lbbnn", 0, hidden=(6,), epochs=2, post_epochs=1)
    run_grid([plan], tmp_path, engine=Here("off"))
    text = write.report_file(tmp_path / f"{plan.key}.slab", tmp_path / "r.html").read_text("utf-8")
    assert "post-trained" in text
    assert "slabnet reproduce --dataset digits" in text
