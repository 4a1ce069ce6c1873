"""Every example in the README and on the site is run, and shows what it prints."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from unittest import mock

import pytest
from benchmarks.record import DOCS, ROOT
from tests.pages import check_shown, commands, examples, run_page, same, site_pages

import slabnet as sn
from slabnet.config.settings import DATA_SETS
from slabnet.config.slabs import SLABS
from slabnet.model.likelihoods import LIKELIHOODS
from slabnet.model.networks import WRAPPERS
from slabnet.prediction.evaluation import METRICS

PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "SECURITY.md", ROOT / "CHANGELOG.md", *site_pages()]
MARKED: dict[Path, list[pytest.MarkDecorator]] = {
    DOCS / "tutorials" / "paper.md": [pytest.mark.slow],
    DOCS / "tutorials" / "scaling.md": [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")],  # Ray's own affairs
}
WITH_EXAMPLES = [pytest.param(p, marks=MARKED.get(p, ()), id=str(p.relative_to(ROOT))) for p in PAGES if examples(p)]


@pytest.fixture(autouse=True)
def _registries() -> Iterator[None]:
    """What a page adds to a registry is gone after it."""
    named = list(DATA_SETS)
    with ExitStack() as stack:
        for table in (sn.METHODS, WRAPPERS, LIKELIHOODS, SLABS, METRICS):
            stack.enter_context(mock.patch.dict(table))
        yield
    DATA_SETS[:] = named


@pytest.mark.parametrize("page", WITH_EXAMPLES)
def test_a_page_runs_and_shows_what_it_prints(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.name == "scaling.md":
        pytest.importorskip("ray", reason="ray is not installed: make test-cluster installs it")
        monkeypatch.setenv("RAY_ADDRESS", "local")  # not a cluster that happens to run on this machine
        monkeypatch.setenv("RAY_ENABLE_UV_RUN_RUNTIME_ENV", "0")
    monkeypatch.chdir(tmp_path)
    run_page(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_no_code_escapes(page: Path) -> None:
    """However a block is fenced: if it is coloured as Python or shell, it is one that was run."""
    text = page.read_text("utf-8")
    found = re.findall(
        r"^[ >]*(?:`{3,}|~{3,}) *{?(?:python|py|py3|pycon|bash|sh|shell|zsh|code-block)\b", text, re.M | re.I
    )
    assert len(found) == len(examples(page))
    assert text.count("\n```text\n") >= sum(example.shown is not None for example in examples(page))


def test_shown_lines_are_found_in_order() -> None:
    check_shown("a 100\n...\nc", "a 104\nb\nc\n", "here")
    with pytest.raises(AssertionError, match="here: shows 'a'"):
        check_shown("c\na", "a\nb\nc\n", "here")
    assert same("kept 200 of 1000", "kept 218 of 1000")
    assert not same("kept 200 of 1000", "kept 221 of 1000")
    assert same("error 0.02", "error 0.01")
    assert not same("error 0.02", "error 0.04")
    assert not same("1e-5", "2e-5")
    assert same("alpha: [..., 0.5]", "alpha: [1.0, 0.49]")
    assert not same("accuracy 0.95", "accuracy nan")


def test_commands_are_read_as_a_shell_would() -> None:
    block = "slabnet fit a.csv \\\n  --target 'the price'  # a comment\n\nslabnet data\n"
    assert list(commands(block)) == [["slabnet", "fit", "a.csv", "--target", "the price"], ["slabnet", "data"]]
