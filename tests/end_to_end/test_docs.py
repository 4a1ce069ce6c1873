"""Generated pages match their records, links lead somewhere, the reference has every public name."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path

import pytest
from benchmarks import (
    baselines,
    choosing,
    compact,
    exactness,
    explain,
    gradients,
    readme,
    recipes,
    results,
    scaling_out,
    security,
    sparsity,
    speed,
)
from benchmarks.record import DOCS, RECORDS, ROOT
from tests.pages import site_pages

import slabnet as sn

RECORDED = [("exactness", exactness), ("gradients", gradients), ("choosing", choosing), ("baselines", baselines)]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", *site_pages()]


def test_the_readme_s_numbers_are_those_of_its_record() -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    assert readme.fill(text, readme.record()) == text
    assert readme.fill_tables(text) == text


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


def test_the_page_on_deploying_is_made_from_its_records() -> None:
    record = json.loads((RECORDS / "compact.json").read_text("utf-8"))
    assert (DOCS / "deploy.md").read_text("utf-8") == compact.page(record)


def test_the_page_on_explanations_is_made_from_its_records() -> None:
    assert (DOCS / "explain.md").read_text("utf-8") == explain.page(*explain.records())


def test_the_page_on_scale_is_made_from_its_record() -> None:
    record = json.loads((RECORDS / "scaling_out.json").read_text("utf-8"))
    assert (DOCS / "scale.md").read_text("utf-8") == scaling_out.page(record)


def test_the_pages_on_results_and_recipes_are_made_from_records() -> None:
    assert (DOCS / "results.md").read_text("utf-8") == results.page()
    assert (DOCS / "recipes.md").read_text("utf-8") == recipes.page()
    assert (DOCS / "sparsity.md").read_text("utf-8") == sparsity.page()
    text = (ROOT / "README.md").read_text("utf-8")
    assert results.fill(text) == text


def test_security_has_the_counts_of_a_run() -> None:
    counts = json.loads((RECORDS / "security.json").read_text("utf-8"))
    assert (ROOT / "SECURITY.md").read_text("utf-8") == security.page(counts)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_local_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", page.read_text("utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_the_reference_has_every_public_name_once() -> None:
    listed: dict[str, list[str]] = {}
    for page in sorted((DOCS / "reference").glob("*.md")):
        for module, names in re.findall(r"```{api} (\S+)\n(.*?)```", page.read_text("utf-8"), re.DOTALL):
            listed.setdefault(module, []).extend(names.split())
    assert sorted(listed["slabnet"]) == sorted(set(sn.__all__) - {"__version__", "data"})
    for module in ("slabnet.data", "slabnet.plots"):
        assert sorted(listed[module]) == sorted(importlib.import_module(module).__all__)
    for module, names in listed.items():
        assert all(hasattr(importlib.import_module(module), name) for name in names), module
