"""Build the sdist and both wheels, and check that they are what a package index and a user's machine expect.

    python release/wheels.py build dist      # sdist, a wheel with libraries, and one without for any platform
    python release/wheels.py check dist      # what is in them; auditwheel, twine
    python release/wheels.py install dist    # each into a clean environment without a compiler: kernels, the demo
    python release/wheels.py sdist dist      # the tests of the unpacked sdist

The libraries are not linked to an OpenMP runtime: torch has loaded one, and a second one beside it would start threads
of its own. So no wheel may bring libgomp or ask for it, and nothing is repaired into it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PLATFORM = "manylinux_2_28_x86_64"
NEWEST_GLIBC = (2, 28)
MAY_NEED = {"libc.so.6", "libm.so.6"}
ONE_RUNTIME = """
import re, sys
import slabnet as sn
from slabnet.kernels import native
assert "/site-packages/" in sn.__file__, sn.__file__
split = sn.data.load("digits")
net = sn.mlp((64, 20, 10))
sn.fit(net, split.train, sn.TrainConfig(epochs=2), progress="off")
maps = open("/proc/self/maps").read() if sys.platform == "linux" else ""
runtimes = set(re.findall(r"\\S*lib(?:gomp|iomp5|omp)[^\\s/]*", maps))
homes = {path for path in runtimes if "scikit_learn.libs" not in path}
assert len(homes) <= 1, f"more than one OpenMP runtime: {sorted(runtimes)}"
print(native.variant())
"""


def run(*words: str | Path, **options: object) -> str:
    """Run a command; what it printed, or its output and an end where it failed."""
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload]
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stdout}\n{done.stderr}")
    return str(done.stdout)


def build(dist: Path) -> None:
    """Everything is built from the unpacked sdist, so that a file that is missing from it is noticed."""
    shutil.rmtree(dist, ignore_errors=True)
    dist.mkdir(parents=True)
    run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", dist, ROOT)
    for options, pure in (([f"-C--build-option=--plat-name={PLATFORM}"], "0"), ([], "1")):
        with tempfile.TemporaryDirectory() as folder:
            source = unpacked(dist, Path(folder))
            words = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", dist, *options, source]
            run(*words, env=os.environ | {"SLABNET_PURE": pure})
    for path in sorted(dist.iterdir()):
        print(f"{path.name}: {path.stat().st_size / 1e6:.2f} MB")


def unpacked(dist: Path, folder: Path) -> Path:
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    return folder / archive.name.removesuffix(".tar.gz")


def check(dist: Path) -> None:
    """What is in the wheels, and what auditwheel and twine say of them."""
    compiled, pure = wheels(dist)
    with zipfile.ZipFile(compiled) as packed, tempfile.TemporaryDirectory() as folder:
        libraries = [name for name in packed.namelist() if name.endswith(".so")]
        assert len(libraries) == 3, libraries
        assert not [name for name in packed.namelist() if "gomp" in name or ".libs/" in name]
        for name in libraries:
            check_library(Path(packed.extract(name, folder)))
    with zipfile.ZipFile(pure) as packed:
        names = packed.namelist()
    assert not [name for name in names if name.endswith((".so", ".dll"))]
    for part in ("py.typed", "kernels/c/kernels.c", "report/templates/report.js", "config/recipes/paper.toml"):
        assert f"slabnet/{part}" in names, part
    assert any(name.endswith("licenses/LICENSE") for name in names)
    shown = run(sys.executable, "-m", "auditwheel", "show", compiled)
    tags = re.findall(r'"(manylinux_2_(\d+)_x86_64)"', shown)
    assert tags, shown
    assert min(int(minor) for _, minor in tags) <= NEWEST_GLIBC[1], shown
    run(sys.executable, "-m", "twine", "check", "--strict", *dist.iterdir())
    print(f"wheels: three libraries, {tags[0][0]} or older by auditwheel, no second OpenMP; twine has no complaint")


def wheels(dist: Path) -> tuple[Path, Path]:
    (compiled,) = dist.glob(f"*-py3-none-{PLATFORM}.whl")
    (pure,) = dist.glob("*-py3-none-any.whl")
    return compiled, pure


def check_library(path: Path) -> None:
    """It needs nothing but libc and libm, and no symbol of a glibc newer than the platform's."""
    dynamic = run("readelf", "-d", path)
    needed = set(re.findall(r"NEEDED.*\[(.*?)\]", dynamic))
    assert needed <= MAY_NEED, needed
    versions = {tuple(map(int, found)) for found in re.findall(r"GLIBC_(\d+)\.(\d+)", run("readelf", "-V", path))}
    assert versions, path
    assert max(versions) <= NEWEST_GLIBC, (path.name, max(versions))


def install(dist: Path) -> None:
    """Each wheel in an environment of its own, where no compiler can be found."""
    for wheel, variants in zip(wheels(dist), ({"baseline", "avx2", "avx512"}, {"None"}), strict=True):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            venv.create(folder / "env", with_pip=True)
            python = folder / "env" / "bin" / "python"
            environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "CC")}
            environment |= {"PATH": str(python.parent), "CC": "no-compiler"}
            words = ["-m", "pip", "install", "--quiet", "--only-binary", ":all:", "-c", ROOT / "constraints.txt", wheel]
            run(python, *words, env=environment)
            variant = run(python, "-c", ONE_RUNTIME, env=environment, cwd=folder).strip().splitlines()[-1]
            assert variant in variants, (wheel.name, variant)
            if variant != "None":
                run(python, "-m", "slabnet", "demo", "--out", folder / "demo", env=environment, cwd=folder)
                assert (folder / "demo" / "digits.slab").is_file()
            print(f"{wheel.name}: installed without a compiler; kernels: {variant}")


def sdist(dist: Path) -> None:
    """The tests that come with the sdist, on the package that is built from it."""
    with tempfile.TemporaryDirectory() as folder:
        source = unpacked(dist, Path(folder))
        run(sys.executable, "setup.py", "-q", "build_ext", "--inplace", cwd=source)
        environment = os.environ | {"PYTHONPATH": str(source / "src")}
        print(run(sys.executable, "-m", "pytest", "-q", "-n", "2", env=environment, cwd=source).splitlines()[-1])


if __name__ == "__main__":
    {"build": build, "check": check, "install": install, "sdist": sdist}[sys.argv[1]](Path(sys.argv[2]).resolve())
