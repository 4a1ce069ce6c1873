"""Generated pages match their records, examples run, links lead somewhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks import (
    baselines,
    choosing,
    compact,
    exactness,
    gradients,
    readme,
    recipes,
    results,
    scaling_out,
    security,
    speed,
)
from benchmarks.record import DOCS, RECORDS, ROOT

RECORDED = [("exactness", exactness), ("gradients", gradients), ("choosing", choosing), ("baselines", baselines)]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *sorted(DOCS.glob("*.md"))]


def test_the_readme_s_numbers_are_those_of_its_record() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert readme.fill(text, readme.record()) == text


@pytest.mark.parametrize(
    ("name", "module"),
    [("exactness", exactness), ("gradients", gradients), ("choosing", choosing), ("baselines", baselines)],
)
def test_pages_are_made_from_their_records(name: str, module: object) -> None:
    record = json.loads((RECORDS / f"{name}.json").read_text("utf-8"))
    page = "methods" if name == "baselines" else name
    assert (DOCS / f"{page}.md").read_text("utf-8") == module.page(record)  # type: ignore[attr-defined]


def test_the_page_on_speed_is_made_from_its_records() -> None:
    assert (DOCS / "speed.md").read_text("utf-8") == speed.page()
    assert (DOCS / "scaling.svg").read_bytes() == speed.picture()
    text = (ROOT / "README.md").read_text("utf-8")
    assert speed.fill(text) == text


def test_the_page_on_deploying_is_made_from_its_records() -> None:
    record = json.loads((RECORDS / "compact.json").read_text("utf-8"))
    assert (DOCS / "deploy.md").read_text("utf-8") == compact.page(record)


def test_the_page_on_scale_is_made_from_its_record() -> None:
    record = json.loads((RECORDS / "scaling_out.json").read_text("utf-8"))
    assert (DOCS / "scale.md").read_text("utf-8") == scaling_out.page(record)


def test_the_pages_on_results_and_recipes_are_made_from_records() -> None:
    assert (DOCS / "results.md").read_text("utf-8") == results.page()
    assert (DOCS / "recipes.md").read_text("utf-8") == recipes.page()
    text = (ROOT / "README.md").read_text("utf-8")
    assert results.fill(text) == text


def test_security_has_the_counts_of_a_run() -> None:
    counts = json.loads((RECORDS / "security.json").read_text("utf-8"))
    assert (ROOT / "SECURITY.md").read_text("utf-8") == security.page(counts)


def test_the_page_on_reports_has_an_example_that_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (DOCS / "report.md").read_text("utf-8"), re.DOTALL)
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, check=True)
    assert (tmp_path / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_local_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_the_readme_s_example_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    run = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "Selection(median" in run.stdout
    assert (tmp_path / "digits.slab").exists()


def test_the_tutorial_on_a_table_runs(tmp_path: Path) -> None:
    text = (DOCS / "table.md").read_text("utf-8")
    blocks = re.findall(r"```(python|bash)\n(.*?)```", text, re.DOTALL)
    code = ["import sys", "from slabnet.cli import run"]
    for kind, block in blocks:
        if kind == "python":
            code.append(block)
            continue
        for line in block.strip().splitlines():  # the commands in the same process: loading torch takes seconds
            code += [f"sys.argv = {line.split()!r}", "try:", "    run()", "except SystemExit as left:"]
            code.append(f"    assert left.code == 0, {line!r}")
    script = tmp_path / "tutorial.py"
    script.write_text("\n".join(code), "utf-8")
    run = subprocess.run([sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "Task: regression, guessed from progression" in run.stdout
    assert "The median model keeps" in run.stdout
    assert "'bmi'" in run.stdout
    assert {path.name for path in tmp_path.iterdir()} >= {"predictions.csv", "small.slab", "diabetes.slab"}
