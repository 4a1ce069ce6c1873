"""Builds the C passes, once for each instruction set. Without a compiler the package installs all the same."""

import os
import sys

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

UNIX = ["-O3", "-fno-math-errno", "-fno-trapping-math", "-fno-signed-zeros", "-fvisibility=hidden"]
# The loops are long chains of arithmetic: scheduling them before registers are given out overlaps the chains.
WIDE = ["-march=skylake-avx512", "-mprefer-vector-width=512", "-fschedule-insns"]
HEADERS = ("adam", "draws", "elementary", "meeting", "mixture", "pages", "products", "sparse")
VARIANTS = {
    "baseline": {"unix": [], "msvc": []},
    "avx2": {"unix": ["-march=haswell"], "msvc": ["/arch:AVX2"]},
    "avx512": {"unix": WIDE, "msvc": ["/arch:AVX512"]},
}


class BuildVariants(build_ext):
    """Compiles the one C file with the options of each variant, into a folder of its own."""

    def build_extension(self, ext):
        kind = "msvc" if self.compiler.compiler_type == "msvc" else "unix"
        name = ext.name.rpartition("_")[2]
        options = VARIANTS[name][kind] + (["/O2"] if kind == "msvc" else UNIX)
        openmp = "/openmp" if kind == "msvc" else "-fopenmp"
        self.build_temp = f"{self.build_temp}-{name}"
        try:
            ext.extra_compile_args = [*options, openmp]
            ext.extra_link_args = [] if kind == "msvc" else [openmp]
            super().build_extension(ext)
        except Exception:  # a compiler without OpenMP: one thread is better than none
            ext.extra_compile_args, ext.extra_link_args = options, []
            super().build_extension(ext)

    def get_ext_filename(self, fullname):
        """kernels.avx2.so: a library that is loaded, not a module that can be imported."""
        package, _, name = fullname.rpartition(".")
        return os.path.join(*package.split("."), name.replace("_", ".") + (".dll" if os.name == "nt" else ".so"))

    def get_export_symbols(self, ext):
        return []


setup(
    cmdclass={"build_ext": BuildVariants},
    ext_modules=[
        Extension(
            f"slabnet.kernels.kernels_{name}",
            ["src/slabnet/kernels/c/kernels.c"],
            depends=[f"src/slabnet/kernels/c/{name}.h" for name in HEADERS],
            optional=True,
        )
        for name in VARIANTS
        if name == "baseline" or sys.maxsize > 2**32
    ],
)
