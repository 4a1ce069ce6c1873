"""The page: what is in it, what must not be, and that it is the same again."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import slabnet as sn
from slabnet.core.containers import read_container, write_container
from slabnet.estimators.scaling import Scaling
from slabnet.report import live
from slabnet.report.measure import Measured, as_classes
from slabnet.report.page import as_json
from slabnet.report.subject import Subject, subject_from_file
from slabnet.report.write import model_page, report_file
from slabnet.store import FORMAT

ORDER = ["summary", "live", "quality", "ways", "inputs", "network", "alpha", "training", "trust", "cases", "settings"]
HOSTILE = ["<script>alert(1)</script>", "</style><b>", "\"'>&", "</script><img src=x onerror=alert(1)>"]


class Reader(HTMLParser):
    """Tags, attributes and the scripts and styles of a page."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.inside: dict[str, list[str]] = {"script": [], "style": []}
        self._now: str | None = None
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        self._now = tag if tag in self.inside else None

    def handle_endtag(self, tag: str) -> None:
        self._now = None

    def handle_data(self, data: str) -> None:
        if self._now is None:
            self.text += data
        else:
            self.inside[self._now].append(data)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report") / "m.slab"
    words = ["fit", "digits", "--out", str(out), "--epochs", "6", "--hidden", "12", "--report", str(out) + ".html"]
    run = subprocess.run([sys.executable, "-m", "slabnet", *words], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "Report:  " in run.stdout
    return out


@pytest.fixture(scope="module")
def page(model: Path) -> str:
    return Path(f"{model}.html").read_text("utf-8")


def data_of(page: str) -> dict[str, Any]:
    return json.loads(Reader(page).inside["script"][0])  # type: ignore[no-any-return]


def test_sections_come_in_the_order_of_trust(page: str) -> None:
    keys = [attributes["id"] for tag, attributes in Reader(page).tags if tag == "section"]
    assert keys == ORDER
    assert len(page.encode()) < 3_000_000


def test_the_page_fetches_nothing_and_runs_its_own_script_only(page: str) -> None:
    reader = Reader(page)
    policy = next(
        a["content"] for t, a in reader.tags if t == "meta" and "Content-Security" in (a.get("http-equiv") or "")
    )
    assert policy is not None
    assert policy.startswith("default-src 'none'")
    for kind, text in (("script", reader.inside["script"][1]), ("style", reader.inside["style"][0])):
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{kind}-src 'sha256-{digest}'" in policy
    for tag, attributes in reader.tags:
        assert not {name for name in attributes if name.startswith("on") or name == "style"}, tag
        for name in ("src", "href", "action", "data"):
            assert (attributes.get(name) or "#").startswith(("#", "data:")), (tag, attributes)
    assert "http://" not in page.replace("http://www.w3.org", "")
    assert "https://" not in page


def test_every_chart_says_how_to_read_it_and_has_its_numbers(page: str) -> None:
    figures = re.findall(r"<figure>.*?</figure>", page, re.DOTALL)
    assert len(figures) >= 7
    for figure in figures:
        assert len(re.sub("<.*?>", "", re.findall(r"<figcaption>(.*?)</figcaption>", figure, re.DOTALL)[0])) > 40
        assert figure.count("<tr>") > 1
        assert "<details>" in figure
        assert 'aria-label="' in figure


def test_numbers_are_those_of_python(model: Path, page: str) -> None:
    subject = subject_from_file(model)
    measured = Measured(subject, 0)
    prediction = measured.prediction
    assert prediction is not None
    assert subject.test is not None
    doubt = sn.accuracy_with_doubt(prediction, subject.test[1], 0.95)
    text = Reader(page).text
    assert f"{100 * sn.accuracy(prediction, subject.test[1]):.2f}%" in text
    assert f"{measured.chosen.weights} of its" in text if measured.chosen else False
    packed = data_of(page)["doubt"]
    sure = np.frombuffer(base64.b64decode(packed["confidence"]), "<f4")
    assert int((sure > np.float32(0.95)).sum()) == doubt.decided
    assert packed["right"].count("1") == int((prediction.labels == subject.test[1]).sum())


def test_the_packed_network_is_the_chosen_one(model: Path, page: str) -> None:
    """The sparse weights of the page, run in numpy, give the means of Python."""
    net = sn.load(model)
    chosen = sn.median_model(net)
    packed = data_of(page)["network"]
    x = sn.data.load("digits").test[0][:20]
    wanted = sn.predict(net, x, draw=sn.fixed(chosen.masks)).mean.numpy()
    assert np.abs(run_packed(packed, x.numpy()) - wanted).max() < 1e-5
    assert sum(len(base64.b64decode(layer["blocks"][0]["at"])) // 4 for layer in packed["layers"]) == chosen.weights
    assert packed["box"] == 8
    assert len(packed["images"]) == live.PICKED


def run_packed(packed: dict[str, Any], x: Any) -> Any:
    now = np.asarray(x, dtype=np.float64)
    for depth, layer in enumerate(packed["layers"]):
        parts = []
        for size, block in zip((layer["outputs"] * layer["inputs"], layer["outputs"]), layer["blocks"], strict=True):
            full = np.zeros(size)
            at = np.frombuffer(base64.b64decode(block["at"]), "<u4")
            full[at] = np.frombuffer(base64.b64decode(block["mu"]), "<f4")
            parts.append(full)
        now = now @ parts[0].reshape(layer["outputs"], layer["inputs"]).T + parts[1]
        now = np.maximum(now, 0) if depth < len(packed["layers"]) - 1 else now
    now = np.exp(now - now.max(1, keepdims=True))
    return now / now.sum(1, keepdims=True)


def test_the_same_model_gives_the_same_bytes(model: Path, page: str, tmp_path: Path) -> None:
    assert report_file(model, tmp_path / "again.html").read_text("utf-8") == page


def test_without_rows_no_image_and_no_case_is_in_it(model: Path, tmp_path: Path) -> None:
    text = report_file(model, tmp_path / "r.html", no_rows=True).read_text("utf-8")
    assert not [
        a for t, a in Reader(text).tags if t == "img" and a.get("class") != "pixels wide"
    ]  # weights may be seen
    assert "<canvas" in text
    assert data_of(text)["network"]["images"] == []
    assert "test image" not in text
    assert "without raw rows" in text
    x, _ = sn.data.load("digits").test
    assert all(base64.b64encode(row.numpy().tobytes()).decode() not in text for row in x)


def table(kind: str, rows: int = 80) -> tuple[sn.Network, Any, Any, sn.History]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(rows, 4, generator=generator)
    x[:, 3] = (x[:, 3] > 0).float()
    signal = 2 * x[:, 0] - x[:, 1]
    y = {"gaussian": signal + 0.1 * torch.randn(rows, generator=generator), "categorical": (signal > 0).long()}
    y["bernoulli"] = y["categorical"].float()
    outputs = 2 if kind == "categorical" else 1
    net = sn.mlp((4, 5, outputs), likelihood=kind, activation="gelu")
    history = sn.fit(net, (x, y[kind]), sn.TrainConfig(epochs=30, batch_size=20, lr=0.02), progress="off")
    return net, x, y[kind], history


@pytest.mark.parametrize("kind", ["gaussian", "categorical", "bernoulli"])
def test_tables_have_a_what_if_panel_and_hostile_names_stay_text(kind: str, tmp_path: Path) -> None:
    net, x, y, history = table(kind)
    out = sn.write_report(
        tmp_path / "r.html",
        net,
        (x, y),
        title=HOSTILE[0],
        history=history,
        input_names=HOSTILE,
        class_names=HOSTILE[:2],
        target=HOSTILE[3],
        scale_x=Scaling(np.full(4, 10.0), np.full(4, 2.0)),
        scale_y=Scaling(np.array([5.0]), np.array([3.0])),
        settings={HOSTILE[1]: HOSTILE[2]},
        command=HOSTILE[0],
    )
    text = out.read_text("utf-8")
    reader = Reader(text)
    tags = {tag for tag, _ in reader.tags}
    assert "b" not in tags or all(a.get("id") for t, a in reader.tags if t == "b")
    assert len(reader.inside["script"]) == 2
    assert len(reader.inside["style"]) == 1
    assert not [a for t, a in reader.tags if t == "img" and not (a.get("src") or "").startswith("data:")]
    assert HOSTILE[0] in reader.text
    packed = data_of(text)["network"]
    assert packed["kind"] == "table"
    assert {control["name"] for control in packed["controls"]} <= set(HOSTILE)
    assert all(control["centre"] == 10.0 for control in packed["controls"])
    if kind == "gaussian":
        assert "RMSE" in reader.text
        assert packed["response"]["scale"] == 3.0


def test_what_if_ranges_without_rows_hold_no_observed_value(tmp_path: Path) -> None:
    net, x, y, _ = table("gaussian")
    shown = sn.write_report(tmp_path / "r.html", net, (x, y), no_rows=True).read_text("utf-8")
    for control in data_of(shown)["network"]["controls"]:
        assert (control["low"], control["high"]) in ((-2.0, 2.0), (0.0, 1.0))
    values = [f"{value:.5g}" for value in x[:, :3].flatten().tolist()]
    assert not [value for value in values if len(value) > 5 and value in shown]


def test_the_panel_says_why_it_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MOST_WEIGHTS", 10)
    cases = [
        (sn.mlp((4, 9, 2)), "54 weights are left, and a page carries at most 10"),
        (sn.mlp((4, 2), method="deterministic"), "no posterior to draw from"),
        (sn.mlp((4, 2), method="horseshoe"), "Only networks whose single weights are drawn"),
        (sn.convnet((1, 4, 4), 2, channels=(2,), hidden=()), "convolutions are not run"),
        (sn.mlp((4, 3), likelihood="bernoulli"), "several yes-or-no outputs"),
    ]
    for net, said in cases:
        text = model_page(Subject(net=net, title="t")).decode()
        assert said in Reader(text).text
        assert data_of(text) == {}


@pytest.mark.parametrize("method", list(sn.METHODS))
def test_every_method_has_a_page(method: str, tmp_path: Path) -> None:
    x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0).long()
    path = sn.write_report(tmp_path / "r.html", sn.mlp((4, 6, 2), method=method), (x, y))
    assert method in path.read_text("utf-8")


def test_an_infeasible_model_is_said_to_be(tmp_path: Path) -> None:
    net = sn.mlp((3, 4, 2))
    with torch.no_grad():
        for parameter in (p for name, p in net.named_parameters() if name.endswith("omega")):
            parameter.fill_(-3.0)
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0))
    text = sn.write_report(tmp_path / "r.html", net, (x, (x[:, 0] > 0).long())).read_text("utf-8")
    assert "No input can reach an output" in text


def test_yes_or_no_is_two_classes() -> None:
    net, x, _, _ = table("bernoulli", 40)
    found = sn.predict(net, x, 7)
    both = as_classes(found)
    assert both.votes is not None
    assert both.votes.sum(-1).tolist() == [7] * 40
    assert torch.allclose(both.mean[:, 1:], found.mean)
    assert as_classes(both) is both


@pytest.mark.parametrize(
    "about",
    [
        {"rows": [{"gamma": 1}]},
        {"epochs": {"kl": ["x"], "n": 3}},
        {"epochs": [1]},
        {"recipe": {"network": {"hidden": "</script>"}}, "data": "digits"},
        {"estimator": {"scaling_x": {"centre": "x"}}},
    ],
)
def test_a_file_that_misdescribes_its_fit_is_one_line(about: dict[str, Any], tmp_path: Path) -> None:
    sn.save(sn.mlp((64, 10)), tmp_path / "m.slab")
    header, tensors = read_container(tmp_path / "m.slab", "test", FORMAT)
    write_container(tmp_path / "m.slab", header | {"about": {"data": "digits"} | about}, tensors)
    with pytest.raises(sn.SlabnetError) as found:
        report_file(tmp_path / "m.slab", tmp_path / "r.html")
    assert "\n" not in str(found.value)
    assert not (tmp_path / "r.html").exists()


def test_hostile_text_in_a_file_stays_text(tmp_path: Path) -> None:
    about = {"data": HOSTILE[0], "command": HOSTILE[3], "config": {HOSTILE[1]: HOSTILE[2]}, "target": HOSTILE[1]}
    sn.save(sn.mlp((4, 2)), tmp_path / "m.slab", input_names=HOSTILE, estimator={"classes": HOSTILE[:2]}, **about)
    reader = Reader(report_file(tmp_path / "m.slab", tmp_path / "r.html").read_text("utf-8"))
    assert len(reader.inside["script"]) == 2
    assert not [tag for tag, _ in reader.tags if tag == "img"]
    assert HOSTILE[3] in reader.text


def test_json_cannot_end_its_element() -> None:
    text = str(as_json({"a": "</script><!-- & \u2028"}))
    assert not set("<>&\u2028") & set(text)
    assert json.loads(text) == {"a": "</script><!-- & \u2028"}


def test_bad_calls_are_one_line_without_torch(model: Path, tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise SystemExit('torch was imported')")
    (tmp_path / "jinja2.py").write_text("raise SystemExit('jinja2 was imported')")
    (tmp_path / "runs").mkdir()
    for words, said in (
        (["none.slab", "--out", "r.html"], "report: MODEL|RUNS must be a file or folder that exists, got none.slab"),
        ([str(model), "--out", "no/r.html"], "report: the output must be in a folder that exists"),
        ([str(model), "--out", "r.html", "--data", "iris"], "report: --data must be one of digits"),
        (["runs", "--out", "r.html", "--data", "digits"], "report: --data must be left out for a folder of runs"),
        ([str(model)], "slabnet report: Missing option '--out'"),
        (["--help"], ""),
    ):
        run = slabnet(["report", *words], tmp_path)
        assert run.returncode == (0 if words == ["--help"] else 2), run.stderr
        assert said in run.stderr
        assert run.stderr.count("\n") == (0 if words == ["--help"] else 1)
    assert not (tmp_path / "r.html").exists()


def slabnet(words: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    import os

    paths = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, "-m", "slabnet", *words]
    env = os.environ | {"PYTHONPATH": paths}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env, check=False)


def test_bad_arguments_of_write_report_are_named(tmp_path: Path) -> None:
    net, x, y = sn.mlp((4, 2)), torch.zeros(5, 4), torch.zeros(5)
    with pytest.raises(sn.ArgumentError, match="input_names must be 4 of them"):
        sn.write_report(tmp_path / "r.html", net, (x, y), input_names=["a"])
    with pytest.raises(sn.ArgumentError, match="image_shape must be of the 4 numbers"):
        sn.write_report(tmp_path / "r.html", net, (x, y), image_shape=(3, 3))
    with pytest.raises(sn.ArgumentError, match="in a folder that exists"):
        sn.write_report(tmp_path / "no" / "r.html", net)
    with pytest.raises(sn.ArgumentError, match="net must be a network"):
        sn.write_report(tmp_path / "r.html", "net")  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())
