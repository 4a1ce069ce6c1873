"""The compiled passes: finding the library, and calling it on data pointers.

The same C file is built once for each instruction set, where a compiler was there when the package was installed.
The best variant this processor can run is loaded when it is first needed, after torch, whose OpenMP it shares.
"""

from __future__ import annotations

import ctypes
import os
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

import torch
from torch import Tensor

from slabnet.core.errors import check_choice, one_line
from slabnet.kernels.sources import SYMBOL, digest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Passes = Literal["auto", "torch", "compiled"]
VARIANTS = {"AVX512": ("avx512", "avx2", "baseline"), "AVX2": ("avx2", "baseline")}
_WANTED = "SLABNET_KERNELS"  # auto, torch, or the name of a variant; "checked" is that of `make test-asan`
MISFIT = 2  # as in sparse.h
_passes: ContextVar[Passes] = ContextVar("slabnet_passes", default="auto")
_TYPES = {"p": ctypes.c_void_p, "n": ctypes.c_int64, "i": ctypes.c_int, "f": ctypes.c_float}
_SIGNATURES = {
    "moments": "inpppppipppp",
    "moments_back": "inpppppipppppppp",
    "draw": "inpppppipppfiipppp",
    "draw_back": "inpppppipppfiipppppp",
    "noise": "nnnpppp",
    "uniforms": "nnnpp",
    "local": "nnnppfpppp",
    "local_back": "nnpppp",
    "adam": "npppppppffff",
    "moments_step": "npppppippppppppppffffff",
    "products_step": "nnnpppppippppppppppffffff",
    "draw_step": "npppppipppfiippppppppffffff",
    "linear": "npppppinpppppippppnpp",
    "linear_back": "npppppinpppppippppppppppp",
    "bump": "npffpp",
    "chain": "npnnpnp",
    "take": "npnnnpp",
    "large_pages": "pn",
    "meet": "pnnnn",
    "sparse_local": "ppnppnppfpp",
    "sparse_local_back": "ppnpnppppppp",
}


def _one_thread_after_fork() -> None:
    torch.set_num_threads(1)  # the parent's other threads are not in the child, and would be waited for for ever


if os.name == "posix":
    os.register_at_fork(after_in_child=_one_thread_after_fork)


@contextmanager
def passes(kind: Passes) -> Iterator[None]:
    """Choose how the passes over the weights are made inside the block.

    "auto": compiled C where it was built and the numbers are float32 on the CPU, else torch.
    "torch": torch everywhere. "compiled": torch, through `torch.compile`, for accelerators.
    """
    check_choice("passes", "kind", kind, get_args(Passes))
    token = _passes.set(kind)
    try:
        yield
    finally:
        _passes.reset(token)


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]
def chosen() -> Passes:
    """How the passes are made here."""
    return _passes.get()


def applies(like: Tensor) -> bool:
    """Whether the C library makes the passes over a block like this one."""
    return like.dtype == torch.float32 and on_cpu(like)


def on_cpu(like: Tensor) -> bool:
    """Whether the C library may be used where this tensor is."""
    return like.device.type == "cpu" and _in_force()


@torch.compiler.assume_constant_result  # type: ignore[untyped-decorator]  # a graph keeps what it was traced with
def _in_force() -> bool:
    return chosen() == "auto" and library() is not None


def variant() -> str | None:
    """The instruction set of the library in use, None where the passes are made in torch."""
    in_use = library()
    return None if in_use is None else in_use[0]


@cache
def library() -> tuple[str, ctypes.CDLL] | None:
    """The best variant that was built and that this processor runs, or the one SLABNET_KERNELS names."""
    wanted = os.environ.get(_WANTED, "auto")
    check_choice(_WANTED, "value", wanted, ("auto", "torch", "avx512", "avx2", "baseline", "checked"))
    if wanted == "torch":
        return None
    able = VARIANTS.get(torch.backends.cpu.get_cpu_capability(), ("baseline",))
    for name in able if wanted == "auto" else (wanted,):
        path = Path(__file__).with_name(f"kernels.{name}{'.dll' if os.name == 'nt' else '.so'}")
        if path.exists() and (loaded := _load(path)) is not None:
            return name, loaded
    return None


def cost_of_torch() -> str | None:
    """What it costs that nothing was built here, in one line; None where it was, or where torch was chosen."""
    if library() is not None or os.environ.get(_WANTED, "auto") != "auto":
        return None
    there = sorted(Path(__file__).parent.glob("kernels.*.so"))
    why = next((reason for path in there if (reason := refusal(path)) is not None), "no C library was built here")
    slower = "the passes are made in torch, and a training step takes about 4 times as long"
    return f"{slower}: {why} (reinstall with a C compiler)"


def refusal(path: Path) -> str | None:
    """Why a library is not used, None where it is: it does not load, or was built from other sources than these."""
    try:
        compiled_from = _sources_of(ctypes.CDLL(str(path)))
    except OSError as error:  # torch's OpenMP is not there to be shared, or another machine's library
        return one_line(str(error))
    installed = digest(Path(__file__).parent / "c")
    if compiled_from == installed:
        return None
    return f"{path.name} was built from C sources {compiled_from or 'of no name'}, installed are {installed}"


def _sources_of(loaded: ctypes.CDLL) -> str:
    try:
        named = getattr(loaded, SYMBOL)
    except AttributeError:  # built before libraries said so
        return ""
    named.argtypes, named.restype = [], ctypes.c_char_p
    return str(named().decode())


def _load(path: Path) -> ctypes.CDLL | None:
    if refusal(path) is not None:
        return None
    loaded = ctypes.CDLL(str(path))
    freed = torch.empty(31 << 20, dtype=torch.uint8)  # glibc keeps freed memory up to twice the largest block it
    del freed  # has seen freed: without this a step's buffers go back to the system and fault in again
    for name, signature in _SIGNATURES.items():
        in_c = getattr(loaded, f"slabnet_{name}")
        in_c.argtypes = [_TYPES[letter] for letter in signature] + [ctypes.c_int]
        in_c.restype = ctypes.c_int
    return loaded


@cache
def function(name: str) -> Callable[..., int]:
    """The C function behind a pass; called with addresses, and the number of threads last.

    ctypes takes more arguments than a function has: how many there are is compared here, with the signature.
    """
    loaded = library()
    assert loaded is not None
    in_c, arity = getattr(loaded[1], f"slabnet_{name}"), len(_SIGNATURES[name]) + 1

    def checked(*arguments: int | float | None) -> int:
        if len(arguments) != arity:
            raise TypeError(f"the pass {name} takes {arity} arguments, threads last, got {len(arguments)}")
        return int(in_c(*arguments))

    return checked


def call(name: str, *arguments: Tensor | int | float | None) -> None:
    """Call one of the passes; tensors go by their address, and must be contiguous."""
    run(name, *[a.data_ptr() if isinstance(a, Tensor) else a for a in arguments])


def run(name: str, *arguments: int | float | None) -> None:
    """Call one of the passes with addresses already taken."""
    outcome(name, function(name)(*arguments, torch.get_num_threads()))


def outcome(name: str, code: int) -> None:
    """Raise what a pass that was not made has returned."""
    if code == MISFIT:
        raise IndexError(f"the pass {name} was given arrays that do not fit each other")
    if code:
        raise MemoryError(f"no memory for the pass {name}")
