"""Pages as a person meets them: nothing is asked of any network, numbers are Python's, every control is in reach."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import slabnet as sn
from slabnet.cli.tables import TableJob, fit_table
from slabnet.cli.workflow import fit_named
from slabnet.estimators.scaling import Scaling
from slabnet.experiments.engines import Here
from slabnet.experiments.grid import run_grid
from slabnet.experiments.profiles import Profile
from slabnet.report.measure import Measured
from slabnet.report.runs import report_runs
from slabnet.report.subject import subject_from_file
from slabnet.report.write import report_file

pytestmark = pytest.mark.browser
SHOTS = os.environ.get("SLABNET_SHOTS")  # a folder to keep the screenshots in
WIDTHS = {"phone": (375, 800), "desktop": (1280, 900)}
RULES = ["color-contrast", "label", "button-name", "image-alt", "svg-img-alt", "link-name", "document-title"]
RULES += ["html-has-lang", "aria-valid-attr", "aria-allowed-attr", "aria-required-attr", "heading-order", "list"]
RULES += ["scrollable-region-focusable", "duplicate-id-aria", "select-name", "role-img-alt", "aria-input-field-name"]


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("pages") / "digits.slab"
    network, train = sn.NetworkConfig(hidden=(20,)), sn.TrainConfig(epochs=20)
    fit_named("digits", sn.Recipe(network=network, train=train), out)
    return out


@pytest.fixture(scope="session")
def regression() -> tuple[sn.Network, torch.Tensor, torch.Tensor, sn.History]:
    generator = torch.Generator().manual_seed(3)
    x = torch.randn(150, 4, generator=generator)
    x[:, 2] = (x[:, 2] > 0).float()
    y = 2 * x[:, 0] - x[:, 1] + x[:, 2] + 0.3 * torch.randn(150, generator=generator)
    net = sn.mlp((4, 6, 1), likelihood="gaussian", activation="gelu")
    return net, x, y, sn.fit(net, (x, y), sn.TrainConfig(epochs=60, batch_size=25, lr=0.02), progress="off")


@pytest.fixture(scope="session")
def pages(model: Path, regression: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("html")
    net, x, y, history = regression
    scale_x = Scaling(np.array([10.0, 0.0, 0.0, 3.0]), np.array([2.0, 1.0, 1.0, 0.5]))
    names = ["size <m²>", "age", "garden", "nothing"]
    options: dict[str, Any] = {"history": history, "input_names": names, "target": "price", "scale_x": scale_x}
    options["scale_y"] = Scaling(np.array([100.0]), np.array([20.0]))
    plans = [
        Profile.named("recommended").plan("digits", m, 0, hidden=(8,), epochs=2, post_epochs=1)
        for m in ("lbbnn", "gaussian")
    ]
    run_grid(plans, folder / "runs", engine=Here("off"))
    source = np.random.default_rng(2)
    lines = ["size,colour,answer"]
    for colour in source.choice(["red", "blue", "<i>green</i>"], 200):
        lines.append(f"{source.normal()},{colour},{10 * (colour == 'red') + source.normal()}")
    (folder / "colours.csv").write_text("\n".join(lines))
    recipe = sn.Recipe(network=sn.NetworkConfig(hidden=(4,)), train=sn.TrainConfig(epochs=60, lr=0.02))
    fit_table(TableJob(folder / "colours.csv", "answer", recipe), folder / "colours.slab")
    return {
        "category": report_file(folder / "colours.slab", folder / "category.html", str(folder / "colours.csv")),
        "image": report_file(model, folder / "image.html"),
        "no-rows": report_file(model, folder / "no-rows.html", no_rows=True),
        "table": sn.write_report(folder / "table.html", net, (x, y), title="houses", **options),
        "runs": report_runs(folder / "runs", folder / "runs.html"),
    }


class Opened:
    """A page in the browser, and what it complained of or asked for."""

    def __init__(self, browser: Any, path: Path, size: tuple[int, int] = (1280, 900), scheme: str = "light") -> None:
        self.context = browser.new_context(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
        self.page = self.context.new_page()
        self.complaints: list[str] = []
        self.asked: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda r: self.asked.append(r.url))
        self.page.goto(path.as_uri())

    def __enter__(self) -> Any:
        return self.page

    def __exit__(self, *_: object) -> None:
        self.context.close()
        assert self.complaints == []
        assert not [url for url in self.asked if not url.startswith(("file:", "data:"))]


@pytest.mark.parametrize("name", ["image", "no-rows", "table", "category", "runs"])
@pytest.mark.parametrize("size", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_open_quietly_and_fit_the_screen(
    browser: Any, pages: dict[str, Path], name: str, size: str, scheme: str
) -> None:
    with Opened(browser, pages[name], WIDTHS[size], scheme) as page:
        assert page.evaluate("document.documentElement.scrollWidth") <= WIDTHS[size][0]
        if SHOTS:
            page.screenshot(path=f"{SHOTS}/{name}-{size}-{scheme}.png", full_page=True)


@pytest.mark.parametrize("name", ["image", "no-rows", "table", "category", "runs"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_labels(browser: Any, axe: str, pages: dict[str, Path], name: str, scheme: str) -> None:
    context = browser.new_context(bypass_csp=True, color_scheme=scheme)  # the page's policy lets no other script run
    page = context.new_page()
    page.goto(pages[name].as_uri())
    page.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")
    page.evaluate(axe)
    found = page.evaluate("rules => axe.run(document, {runOnly: {type: 'rule', values: rules}})", RULES)
    context.close()
    assert [(v["id"], [n["html"][:120] for n in v["nodes"][:3]]) for v in found["violations"]] == []
    assert len(found["passes"]) >= 4


def test_a_foreign_script_does_not_run(browser: Any, pages: dict[str, Path], tmp_path: Path) -> None:
    text = pages["image"].read_text("utf-8").replace("</main>", "<script>window.taken = 1</script></main>")
    (tmp_path / "changed.html").write_text(text, "utf-8")
    context = browser.new_context()
    page = context.new_page()
    page.goto((tmp_path / "changed.html").as_uri())
    assert page.evaluate("window.taken") is None
    context.close()


def test_the_slider_s_numbers_are_python_s(browser: Any, pages: dict[str, Path], model: Path) -> None:
    measured = Measured(subject_from_file(model), 0)
    prediction, truth = measured.prediction, measured.truth
    assert prediction is not None
    with Opened(browser, pages["image"]) as page:
        slider = page.locator("#threshold")
        for threshold in (0.95, 0.0, 0.5, 0.705, 0.9, 0.995, 1.0):
            slider.evaluate(
                "(s, v) => { s.value = v; s.dispatchEvent(new Event('input', {bubbles: true})); }", str(threshold)
            )
            wanted = sn.accuracy_with_doubt(prediction, truth, threshold)
            assert int(page.inner_text("#decided")) == wanted.decided
            assert page.inner_text("#share") == f"{wanted.decided / len(truth):.4f}"
            shown = page.inner_text("#accuracy")
            assert shown == ("–" if wanted.accuracy is None else f"{wanted.accuracy:.4f}")
        slider.focus()
        page.keyboard.press("Home")
        page.keyboard.press("ArrowRight")
        assert page.inner_text("#threshold-value") == "0.005"


def test_means_agree_with_python(browser: Any, pages: dict[str, Path], model: Path, regression: Any) -> None:
    net = sn.load(model)
    x = sn.data.load("digits").test[0][:50]
    wanted = sn.predict(net, x, draw=sn.fixed(sn.median_model(net).masks)).mean.numpy()
    with Opened(browser, pages["image"]) as page:
        found = page.evaluate("rows => rows.map((x) => slabnet.network.at(x))", x.tolist())
    assert np.abs(np.array(found) - wanted).max() < 1e-4

    net, x = regression[0], regression[1][:50]
    wanted = sn.predict(net, x, draw=sn.fixed(sn.median_model(net).masks)).mean.numpy()
    with Opened(browser, pages["table"]) as page:
        found = page.evaluate("rows => rows.map((x) => slabnet.network.at(x))", x.tolist())
    assert np.abs(np.array(found) - wanted).max() < 1e-4


@pytest.mark.parametrize(("activation", "skip"), [*((name, False) for name in sn.ACTIVATIONS), ("tanh", True)])
def test_every_activation_is_the_same_in_both(browser: Any, tmp_path: Path, activation: str, skip: bool) -> None:
    net = sn.mlp((5, 7, 6, 3), activation=activation, skip=skip, seed=4)
    x = 3 * torch.randn(20, 5, generator=torch.Generator().manual_seed(1))
    path = sn.write_report(tmp_path / "r.html", net, (x, torch.arange(20) % 3))
    wanted = sn.predict(net, x, draw=sn.fixed(sn.median_model(net).masks)).mean.numpy()
    with Opened(browser, path) as page:
        found = page.evaluate("rows => rows.map((x) => slabnet.network.at(x))", x.tolist())
    assert np.abs(np.array(found) - wanted).max() < 1e-4


def test_draws_agree_in_distribution(browser: Any, pages: dict[str, Path], model: Path, regression: Any) -> None:
    """Means over many draws, and their spread, within five standard errors; intervals of a number within a tenth."""
    net, draws = sn.load(model), 1000
    x = sn.data.load("digits").test[0][:8]
    masks = sn.median_model(net).masks
    ours = sn.predict(net, x, draws, draw=sn.fixed(masks, sn.exact), keep_draws=True, seed=1)
    assert ours.samples is not None
    with Opened(browser, pages["image"]) as page:
        code = "([rows, draws]) => rows.map((x) => slabnet.network.predict(x, {draws, seed: 5}))"
        theirs = page.evaluate(code, [x.tolist(), draws])
    for row, found in enumerate(theirs):
        samples, other = np.array(found["samples"]), ours.samples[:, row].numpy()
        error = np.sqrt((samples.var(0) + other.var(0)) / draws) + 1e-6
        assert (np.abs(samples.mean(0) - other.mean(0)) < 5 * error).all()
        assert np.abs(samples.std(0) - other.std(0)).max() < 0.02
        assert sum(found["votes"]) == draws
        assert found["entropy"] == pytest.approx(float(ours.entropy[row]), abs=0.03)

    net, x = regression[0], regression[1][:8]
    masks = sn.median_model(net).masks
    ours = sn.predict(net, x, draws, draw=sn.fixed(masks, sn.exact), intervals=0.95, seed=1)
    with Opened(browser, pages["table"]) as page:
        theirs = page.evaluate(code, [x.tolist(), draws])
    low, high = ours.predictive_interval(0.95)
    for row, found in enumerate(theirs):
        width = float(high[row] - low[row])
        assert found["predictive"][0] == pytest.approx(float(low[row]), abs=0.1 * width)
        assert found["predictive"][1] == pytest.approx(float(high[row]), abs=0.1 * width)
        assert found["mean"][0] == pytest.approx(float(ours.mean[row]), abs=0.05 * width)


def test_structure_is_drawn_with_alpha(browser: Any, tmp_path: Path) -> None:
    """With the box ticked each weight is in with probability alpha: the draws are those of Python's `exact`."""
    net, draws = sn.mlp((3, 2), seed=2), 4000
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.fill_(0.8) if name.endswith("omega") else None  # every weight is in the median model
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    path = sn.write_report(tmp_path / "r.html", net, (x, torch.arange(5) % 2))
    ours = sn.predict(net, x, draws, keep_draws=True, seed=1).samples
    assert ours is not None
    with Opened(browser, path) as page:
        code = (
            "([rows, draws]) => rows.map((x) => slabnet.network.predict(x, {draws, seed: 5, structure: true}).samples)"
        )
        theirs = np.array(page.evaluate(code, [x.tolist(), draws])).swapaxes(0, 1)
        before = page.evaluate("slabnet.shown.mean")
        page.locator("#structure").check()
        assert page.evaluate("slabnet.shown.mean") != before
    error = np.sqrt((theirs.var(0) + ours.numpy().var(0)) / draws)
    assert (np.abs(theirs.mean(0) - ours.numpy().mean(0)) < 5 * error).all()
    assert np.abs(theirs.std(0) - ours.numpy().std(0)).max() < 0.02


def test_a_picked_image_is_the_test_row(browser: Any, pages: dict[str, Path]) -> None:
    x = sn.data.load("digits").test[0]
    with Opened(browser, pages["image"]) as page:
        for pick in (3, 11):
            button = page.locator(f"[data-pick='{pick}']")
            button.focus()
            page.keyboard.press("Enter")
            assert page.evaluate("slabnet.shown.x") == x[pick].tolist()
            assert button.get_attribute("aria-pressed") == "true"
            assert "%" in page.inner_text("#verdict")


def test_drawing_by_mouse_and_by_keys(browser: Any, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["no-rows"]) as page:
        pad = page.locator("#pad")
        pad.scroll_into_view_if_needed()
        box = pad.bounding_box()
        page.mouse.move(box["x"] + 120, box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] + 120, box["y"] + 180, steps=8)
        page.mouse.up()
        page.wait_for_function("slabnet.shown && slabnet.shown.x.some((v) => v > 0.5)")
        image = np.array(page.evaluate("slabnet.shown.x")).reshape(8, 8)
        assert image.sum(1).min() > 0.3  # a stroke from top to bottom fills the height
        assert (image.sum(0) > 0.5).sum() <= 3
        assert "%" in page.inner_text("#verdict")

        page.locator("#clear").click()
        assert sum(page.evaluate("slabnet.shown.x")) == 0
        pad.focus()
        for key in [" ", *["ArrowRight"] * 6, " "]:
            page.keyboard.press(key)
        page.wait_for_function("slabnet.shown && slabnet.shown.x.some((v) => v > 0.5)")
        image = np.array(page.evaluate("slabnet.shown.x")).reshape(8, 8)
        assert (image.sum(0) > 0.3).all()
        page.keyboard.press("Delete")
        assert sum(page.evaluate("slabnet.shown.x")) == 0


def test_a_test_image_drawn_large_comes_back_as_it_was(browser: Any, pages: dict[str, Path]) -> None:
    """The page's way from a drawing to pixels leaves an image that already has the size of the data as it is."""
    image = sn.data.load("digits").test[0][4].reshape(8, 8)
    large = image.repeat_interleave(30, 0).repeat_interleave(30, 1)
    with Opened(browser, pages["image"]) as page:
        found = page.evaluate(
            "ink => Array.from(slabnet.digest(ink, 240, [8, 8], 8, [4, 4]))", large.flatten().tolist()
        )
    columns = image.sum(0) > 0
    shift = int(columns.nonzero()[0])  # only where it lies from left to right is decided anew
    other = np.array(found).reshape(8, 8)
    assert np.abs(other.sum(1) - image.sum(1).numpy()).max() < 0.05, shift


def test_the_what_if_panel_follows_its_controls(browser: Any, pages: dict[str, Path], regression: Any) -> None:
    with Opened(browser, pages["table"]) as page:
        controls = json.loads(page.locator("#data").text_content())["network"]["controls"]
        assert "size <m²>" in [control["name"] for control in controls]
        first = page.inner_text("#verdict")
        assert first.startswith("price: ")
        slider = page.locator("input[type=range][data-control]").first
        slider.focus()
        for _ in range(5):
            page.keyboard.press("ArrowRight")
        assert page.inner_text("#verdict") != first
        assert " to " in page.inner_text("#interval")
        shown = page.evaluate("slabnet.shown")
        index = next(c["index"] for c in controls if not c["binary"])
        control = next(c for c in controls if not c["binary"])
        value = float(slider.input_value())
        assert shown["x"][index] == pytest.approx((value - control["centre"]) / control["scale"], abs=1e-6)


def test_a_category_is_chosen_from_a_list(browser: Any, pages: dict[str, Path]) -> None:
    """Exactly one level at a time, and Python's answer for it."""
    net = sn.load(pages["category"].with_name("colours.slab"))
    subject = subject_from_file(pages["category"].with_name("colours.slab"))
    assert isinstance(net, sn.Network)
    assert subject.scale_x is not None
    with Opened(browser, pages["category"]) as page:
        answers = []
        for place, level in enumerate(["<i>green</i>", "blue", "red"]):
            page.get_by_label("colour", exact=True).select_option(label=level)
            shown = page.evaluate("slabnet.shown")
            plain = subject.scale_x.undo(np.array(shown["x"])[None])[0]
            assert plain[1:].round(6).tolist() == [float(k == place) for k in range(3)]
            answers.append(float(page.inner_text("#verdict").removeprefix("answer: ")))
        assert answers[2] - answers[1] == pytest.approx(10, abs=2)


@pytest.mark.parametrize("name", ["image", "table", "category"])
def test_every_control_is_reached_by_the_tab_key(browser: Any, pages: dict[str, Path], name: str) -> None:
    every = "[...document.querySelectorAll('input, select, button, summary, canvas[tabindex], a[href]')]"
    with Opened(browser, pages[name]) as page:
        wanted = page.evaluate(f"{every}.length")
        reached = set()
        for _ in range(wanted + 40):
            page.keyboard.press("Tab")
            reached.add(page.evaluate(f"{every}.indexOf(document.activeElement)"))
        assert set(range(wanted)) <= reached


def test_it_prints(browser: Any, pages: dict[str, Path]) -> None:
    with Opened(browser, pages["image"]) as page:
        assert page.pdf(format="A4")[:5] == b"%PDF-"
        page.emulate_media(media="print")
        assert not page.locator("#live").is_visible()
        assert page.locator("#trust").is_visible()


@pytest.mark.real_data
@pytest.mark.skipif(not os.environ.get("SLABNET_DATA"), reason="needs the MNIST files under SLABNET_DATA")
def test_drawings_are_placed_like_mnist_s_own(browser: Any, tmp_path: Path) -> None:
    """Enlarged test images, taken for drawings, come back nearly as they were."""
    x, y = (part[:300] for part in sn.data.load("mnist").test)
    path = sn.write_report(tmp_path / "r.html", sn.mlp((784, 10)), (x, y), image_shape=(28, 28))
    with Opened(browser, path) as page:
        assert page.evaluate("slabnet.data.network.box") == 20
        for image in x[:6].reshape(-1, 28, 28):
            large = image.repeat_interleave(10, 0).repeat_interleave(10, 1)
            code = "ink => Array.from(slabnet.digest(ink, 280, [28, 28], 20, slabnet.data.network.centre))"
            found = np.array(page.evaluate(code, large.flatten().tolist()))
            assert np.corrcoef(found, image.flatten().numpy())[0, 1] > 0.9
            assert found.sum() == pytest.approx(float(image.sum()), rel=0.02)
