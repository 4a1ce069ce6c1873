"""Every response in the page: its script, run by node, against `predict`; its case cards and figures."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.export.test_responses import TARGETS, X, fitted

import slabnet as sn
from slabnet.model.likelihoods import Mixture, likelihood_from
from slabnet.report import page

NODE = shutil.which("node")
needs_node = pytest.mark.skipif(NODE is None, reason="node is not installed")
TEMPLATES = Path(page.__file__).parent / "templates"
FAMILIES = [name for name in TARGETS if name != "ordinal"]
SHARES = [0.025, 0.32, 0.53, 0.975]  # no share of the 20 draws, where a distribution is flat


def run(script: str, *arguments: Any) -> Any:
    """What a script logs, given arguments as JSON; a page's names stand in for the browser's."""
    known = json.dumps(list(arguments))
    whole = f"const given = {known};\n{script}"
    done = subprocess.run([str(NODE), "-"], input=whole, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_node
@pytest.mark.parametrize("name", FAMILIES)
def test_quantiles_are_those_of_the_mixture(name: str) -> None:
    """The same outputs and dispersions on both sides: small counts, large counts, narrow and wide noise."""
    generator = torch.Generator().manual_seed(0)
    likelihood = likelihood_from(name).double()
    outputs = torch.randn(20, 6, 2 if name == "heteroscedastic" else 1, generator=generator, dtype=torch.float64)
    if name in ("poisson", "negative-binomial"):
        outputs = outputs + torch.tensor([-3.0, 0.0, 1.0, 3.0, 6.0, 8.0])[:, None]
    phis = torch.stack([likelihood.draw_dispersion(generator) for _ in range(20)]).double()
    mixture = Mixture.of(likelihood, outputs, phis)
    assert mixture is not None
    wanted = mixture.quantile(torch.tensor(SHARES, dtype=torch.float64))[..., 0]
    told = phis if name != "student-t" else torch.cat([phis[:, :1], phis[:, 1:] - 2], 1)
    script = (
        (TEMPLATES / "responses.js").read_text()
        + """
    const [name, rows, phis, shares] = given, family = responses.families[name];
    console.log(JSON.stringify(shares.map((s) => rows.map((outs) => responses.quantile(family, outs, phis, s)))));"""
    )
    head = likelihood.head(outputs.shape[2])
    assert head is not None
    found = np.array(run(script, head.name, outputs.transpose(0, 1).tolist(), told.tolist(), SHARES))
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-7, atol=1e-7)


@needs_node
@pytest.mark.parametrize("name", TARGETS)
def test_a_page_predicts_as_python_does(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    test = (X[:12], TARGETS[name][:12])
    text = sn.write_report(tmp_path / "r.html", model, test, target="y & z").read_text()
    assert "is not run in the page" not in text
    assert "Single cases" in text
    assert "NaN" not in text.partition('id="data"')[2].partition("</script>")[0]
    data = re.search(r'<script[^>]*id="data"[^>]*>(.*?)</script>', text, re.DOTALL)
    assert data is not None
    chosen = sn.median_model(model.network_, infeasible="path")
    scaled = torch.as_tensor(model.scaling_x_.apply(X[:4]))
    rate = getattr(model, "rate_", None)
    exposure = None if rate is None else np.full(4, 3 * rate)
    options: dict[str, Any] = {"exposure": exposure, "intervals": 0.95, "seed": 1}
    one = sn.predict(model.network_, scaled, draw=sn.fixed(chosen.masks), exposure=exposure)
    all_draws = sn.predict(model.network_, scaled, 1500, draw=sn.fixed(chosen.masks, sn.exact), **options)
    script = (
        """
    const document = { getElementById: () => ({ textContent: given[0] }) }, window = {};
    """
        + page.page_script().partition("window.slabnet = slabnet;")[0]
        + """
    const { at, predict } = slabnet.network;
    const found = given[1].map((x) => [at(x, 3), predict(x, { draws: 1500, exposure: 3 })]);
    found.forEach((pair) => { delete pair[1].samples; });
    console.log(JSON.stringify(found));"""
    )
    found = run(script, data[1], scaled.tolist())
    if name != "weibull":  # whose median at the means is averaged over the shape too
        np.testing.assert_allclose([at for at, _ in found], one.mean.numpy(), rtol=1e-4, atol=1e-5)
    means = np.array([answer["mean"] for _, answer in found])
    if name == "ordinal":
        np.testing.assert_allclose(means, all_draws.mean.numpy(), atol=0.03)
        return
    low, high = all_draws.predictive_interval(0.95)
    width = (high - low).numpy()
    assert (np.abs(means - all_draws.mean.numpy()) < 0.08 * width).all()
    ends = np.array([answer["predictive"] for _, answer in found])
    for mine, theirs in ((ends[:, :1], low.numpy()), (ends[:, 1:], high.numpy())):
        assert (
            np.abs(mine - theirs) <= np.maximum(0.12 * width, 1.0 if name in ("poisson", "negative-binomial") else 0)
        ).all()
