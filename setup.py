"""Builds the C passes, once for each instruction set. Without a compiler the package installs all the same."""

import os
import runpy
import shutil
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

UNIX = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fvisibility=hidden"]
# The loops are long chains of arithmetic: scheduling them before registers are given out overlaps the chains.
WIDE = ["-march=skylake-avx512", "-mprefer-vector-width=512", "-fschedule-insns"]
HEADERS = ("adam", "draws", "elementary", "meeting", "mixture", "pages", "products", "sparse")
C = Path(__file__).parent / "src" / "slabnet" / "kernels" / "c"
SOURCES = runpy.run_path(str(C.parent / "sources.py"))["digest"](C)
COST = "slabnet: no C compiler: the passes are made in torch, and a training step takes about 4 times as long"
VARIANTS = {
    "baseline": {"unix": [], "msvc": []},
    "avx2": {"unix": ["-march=haswell"], "msvc": ["/arch:AVX2"]},
    "avx512": {"unix": WIDE, "msvc": ["/arch:AVX512"]},
}


class BuildVariants(build_ext):
    """Compiles the one C file with the options of each variant, into a folder of its own."""

    def run(self):
        super().run()
        made = [path for path in self.get_outputs() if Path(path).exists()]
        compiler = shutil.which(os.environ.get("CC", "cc").split()[0]) or shutil.which("gcc") or shutil.which("clang")
        if not made and os.name != "nt":
            print(
                COST if compiler is None else f"slabnet: {compiler} is there, but the C passes did not build",
                file=sys.stderr,
            )

    def build_extension(self, ext):
        kind = "msvc" if self.compiler.compiler_type == "msvc" else "unix"
        name = ext.name.rpartition("_")[2]
        options = VARIANTS[name][kind] + (["/O2"] if kind == "msvc" else UNIX)
        openmp = "/openmp" if kind == "msvc" else "-fopenmp"
        self.build_temp = f"{self.build_temp}-{name}"
        try:
            ext.extra_compile_args = [*options, openmp]  # not linked: torch has loaded the runtime, and one is enough
            super().build_extension(ext)
        except Exception:  # a compiler without OpenMP: one thread is better than none
            ext.extra_compile_args = options
            super().build_extension(ext)

    def get_ext_filename(self, fullname):
        """kernels.avx2.so: a library that is loaded, not a module that can be imported."""
        package, _, name = fullname.rpartition(".")
        return os.path.join(*package.split("."), name.replace("_", ".") + (".dll" if os.name == "nt" else ".so"))

    def get_export_symbols(self, ext):
        return []


class AnyPythonWheel(bdist_wheel):
    """The libraries are loaded with ctypes, so that one wheel serves every Python 3 of a platform."""

    def get_tag(self):
        return ("py3", "none", super().get_tag()[2])


PURE = os.environ.get("SLABNET_PURE") == "1"  # a wheel without libraries, for any platform

setup(
    cmdclass={"build_ext": BuildVariants, "bdist_wheel": AnyPythonWheel},
    ext_modules=[]
    if PURE
    else [
        Extension(
            f"slabnet.kernels.kernels_{name}",
            ["src/slabnet/kernels/c/kernels.c"],
            depends=[f"src/slabnet/kernels/c/{name}.h" for name in HEADERS],
            define_macros=[("SLABNET_SOURCES", SOURCES)],
            optional=True,
        )
        for name in VARIANTS
        if name == "baseline" or sys.maxsize > 2**32
    ],
)
