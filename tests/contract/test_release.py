"""What a release needs: one version everywhere, files that the sdist takes along, metadata a package index accepts."""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import slabnet as sn

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_the_version_is_the_same_everywhere() -> None:
    cited = re.search(r"^version: (\S+)", (ROOT / "CITATION.cff").read_text(), re.MULTILINE)
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert cited is not None
    assert newest is not None
    assert PROJECT["version"] == sn.__version__ == cited[1] == newest[1]


def test_the_sdist_takes_along_every_file_that_is_tracked() -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if tracked.returncode or not tracked.stdout:
        pytest.skip("no repository here")
    rules = (ROOT / "MANIFEST.in").read_text().splitlines()
    grafted = tuple(f"{rule.split()[1]}/" for rule in rules if rule.startswith("graft"))
    included = next(rule.split()[1:] for rule in rules if rule.startswith("include"))
    always = {"pyproject.toml", "setup.py", "MANIFEST.in"}
    for name in tracked.stdout.splitlines():
        alone = "/" not in name and (name in always or any(Path(name).match(pattern) for pattern in included))
        assert name.startswith(grafted) or alone, name


def test_every_python_and_system_of_the_metadata_is_in_the_workflow() -> None:
    workflow = (ROOT / ".github" / "workflows" / "tests.yml").read_text()
    pythons = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert pythons
    assert all(f'"{version}"' in workflow for version in pythons)
    named = {"MacOS": "macos", "Microsoft :: Windows": "windows", "POSIX :: Linux": "ubuntu"}
    for classifier in PROJECT["classifiers"]:
        if classifier.startswith("Operating System"):
            assert f"{named[classifier.removeprefix('Operating System :: ')]}-latest" in workflow


def test_the_lowest_versions_are_those_of_the_metadata(capsys: pytest.CaptureFixture[str]) -> None:
    lines = runpy.run_path(str(ROOT / "release" / "lowest.py"))["lowest"]()
    wanted = [line.replace(">=", "==") for line in PROJECT["dependencies"] if not line.startswith("torch")]
    assert set(wanted) <= set(lines)
    assert [line for line in lines if line.startswith("torch==")] != ["torch==2.6"]


@pytest.mark.skipif(sys.platform != "linux" or shutil.which("readelf") is None, reason="readelf of Linux")
def test_libraries_ask_for_no_second_openmp_and_for_no_new_glibc() -> None:
    libraries = sorted((ROOT / "src" / "slabnet" / "kernels").glob("kernels.*.so"))
    check = runpy.run_path(str(ROOT / "release" / "wheels.py"))["check_library"]
    for library in libraries:
        if library.name != "kernels.checked.so":
            check(library)


def test_links_of_the_readme_work_on_a_package_index() -> None:
    base = PROJECT["urls"]["Homepage"]
    links = re.findall(r"\]\(([^)\s]+)\)", (ROOT / "README.md").read_text("utf-8"))
    for link in links:
        assert link.startswith("https://"), link
        match = re.match(rf"{re.escape(base)}/(?:blob|raw|tree)/main/([^#]*)", link)
        assert match is None or (ROOT / match[1]).exists(), link
