"""Model files `.slab`: safetensors with one JSON header. Loading runs no code from the file.

The header says how to build the network (for `mlp` and `convnet`); modules of your own class are rebuilt
by you and filled with `load(path, into=module)`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from slabnet.attach import attach_likelihood, likelihood_of
from slabnet.checks import FileError, SlabnetError, one_line, refuse
from slabnet.compact import Compact
from slabnet.containers import as_text, read_container, write_container
from slabnet.files import check_writable
from slabnet.layers import SlabLayer
from slabnet.likelihoods import LIKELIHOODS, Likelihood, likelihood_from
from slabnet.networks import Network, build_network
from slabnet.packing import Misfit, pack, unpack
from slabnet.records import Selection
from slabnet.scopes import Mask
from slabnet.select import describe, slab_layers
from slabnet.version import __version__

FORMAT = 1
_LIKELIHOOD = "likelihood."
_SELECTION = "selection:"


def save(net: nn.Module, path: str | Path, *, selection: Selection | None = None, **about: Any) -> None:
    """Write `net` and its likelihood to a `.slab` file; `about` (numbers, text, lists) is kept beside them.

    selection: the model that was chosen and post-trained, to be predicted with (`load_selection` reads it back).

    >>> import tempfile
    >>> from slabnet.networks import mlp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(mlp((2, 2)), f"{folder}/m.slab", note="untrained")
    ...     read_header(f"{folder}/m.slab")["about"]
    {'note': 'untrained'}
    """
    path = check_writable("save", path)
    likelihood = likelihood_of(net)
    if LIKELIHOODS.get(likelihood.name) is not type(likelihood):
        refuse(
            "save", "likelihood", f"one of {', '.join(LIKELIHOODS)}, which load can build", type(likelihood).__name__
        )
    tensors = {name: value.detach().cpu().contiguous() for name, value in _tensors(net, likelihood).items()}
    for name, value in tensors.items():
        if value.is_floating_point() and not bool(torch.isfinite(value).all()):
            refuse("save", name, "finite: a model with NaN or infinity is not written", "NaN or infinity")
    header = {
        "format": FORMAT,
        "version": __version__,
        "network": net.spec if isinstance(net, Network) else None,
        "class": None if isinstance(net, Network) else type(net).__name__,
        "likelihood": likelihood.spec(),
        "priors": {} if isinstance(net, Network) else _priors(net),
        "rule": None if selection is None else selection.rule,
        "threshold": None if selection is None else selection.threshold,
        "about": about,
    }
    tensors |= {} if selection is None else _as_tensors(selection)
    try:
        as_text(header)
    except (TypeError, ValueError) as error:
        refuse("save", "about", "numbers, text and lists of them", str(error))
    write_container(path, header, tensors)


def load(path: str | Path, into: nn.Module | None = None) -> nn.Module:
    """Read a `.slab` file. `into`: a module of your own class, converted as the saved one was, to be filled."""
    header, tensors = _read(Path(path))
    if into is None:
        if header["network"] is None:
            refuse("load", "into", f"given: {path} holds a module of the class {header['class']}", None)
        if isinstance(header["network"], dict) and header["network"].get("kind") == "compact":
            return _small(header["network"], tensors, path)
        try:
            net: nn.Module = build_network(header["network"])
        except (SlabnetError, TypeError, KeyError, ValueError) as error:
            raise FileError(f"load: {path} describes no network slabnet knows: {one_line(str(error))}") from None
        _check_tensors(net, tensors, path, likelihood_of(net))
        _fill(net, tensors, likelihood_of(net))
        return net.eval()
    likelihood = likelihood_from(header["likelihood"])
    _check_tensors(into, tensors, path, likelihood)
    wanted, came = _priors(into), header.get("priors", {})
    if wanted != came:
        name = next(n for n in [*wanted, *came] if wanted.get(n) != came.get(n))
        said = f"{came.get(name)} for {name}, not {wanted.get(name)}"
        raise FileError(f"load: {path} must hold a module converted with the same priors, got {said}")
    _fill(into, tensors, likelihood)
    attach_likelihood(into, likelihood)
    return into.eval()


def _small(spec: dict[str, Any], tensors: dict[str, Tensor], path: str | Path) -> Compact:
    """A compact network, whose tensors hold only what is left."""
    try:
        return unpack(spec, tensors)
    except Misfit as error:
        raise FileError(f"load: {path} must hold the tensors of this network, got one {error}") from None
    except (SlabnetError, TypeError, KeyError, ValueError, IndexError, RuntimeError, AttributeError) as error:
        raise FileError(f"load: {path} describes no network slabnet knows: {one_line(str(error))}") from None


def save_selection(chosen: Selection, path: str | Path) -> None:
    """Write the masks of a chosen model, with its rule, to a file of their own."""
    path = check_writable("save_selection", path)
    parts = _as_tensors(chosen)
    header = {"format": FORMAT, "version": __version__, "rule": chosen.rule, "threshold": chosen.threshold}
    write_container(path, header, parts)


def load_selection(path: str | Path, net: nn.Module) -> Selection:
    """Read a chosen model, from its own file or from that of its network, and describe it as one of `net`."""
    header, tensors = _read(Path(path))
    if header.get("rule") is None:
        raise FileError(f"load_selection: {path} must hold a selection, got a file without one")
    masks: dict[str, Mask] = {}
    for name, layer in slab_layers(net).items():
        found = tuple(tensors.get(f"{_SELECTION}{name}:{i}", torch.zeros(0)) for i in range(len(layer.blocks())))
        wanted = [tuple(block.mu.shape) for block in layer.blocks()]
        came = [tuple(part.shape) for part in found]
        if came != wanted or any(part.dtype != torch.bool for part in found):
            refuse("load_selection", "net", f"the network {path} was chosen from", f"shapes {wanted} for {came}")
        masks[name] = tuple(part.to(block.mu.device) for part, block in zip(found, layer.blocks(), strict=True))
    return describe(net, masks, header["rule"], header["threshold"])


def _as_tensors(chosen: Selection) -> dict[str, Tensor]:
    return {
        f"{_SELECTION}{name}:{i}": part.cpu().contiguous()
        for name, mask in chosen.masks.items()
        for i, part in enumerate(mask)
    }


def _priors(net: nn.Module) -> dict[str, Any]:
    """The priors of a converted module's layers, which its tensors do not tell."""
    return {name: part.prior.spec() for name, part in net.named_modules() if isinstance(part, SlabLayer)}


def read_header(path: str | Path) -> dict[str, Any]:
    """The JSON header of a model file, checked against its tensors."""
    return _read(Path(path))[0]


def _tensors(net: nn.Module, likelihood: Likelihood) -> dict[str, Tensor]:
    """Parameters and buffers by name; those of an attached likelihood under a prefix."""
    found = pack(net) if isinstance(net, Compact) else dict(net.state_dict())
    if not isinstance(net, Network):
        found |= {_LIKELIHOOD + name: value for name, value in likelihood.state_dict().items()}
    seen: dict[int, str] = {}
    return {name: value.clone() if _shared(seen, name, value) else value for name, value in found.items()}


def _shared(seen: dict[int, str], name: str, value: Tensor) -> bool:
    """safetensors refuses two names for one memory: the second one is written as a copy."""
    return seen.setdefault(value.untyped_storage().data_ptr(), name) != name


def _check_tensors(net: nn.Module, tensors: dict[str, Tensor], path: str | Path, likelihood: Likelihood) -> None:
    """Refuse a file whose names or shapes are not those of `net`."""
    tensors = {name: value for name, value in tensors.items() if not name.startswith(_SELECTION)}
    wanted = _tensors(net, likelihood)
    missing, extra = sorted(set(wanted) - set(tensors)), sorted(set(tensors) - set(wanted))
    if missing or extra:
        named = [f"without {name}" for name in missing[:1]] + [f"with the unknown {name}" for name in extra[:1]]
        raise FileError(f"load: {path} must hold the tensors of this network, got one {' and '.join(named)}")
    for name, value in wanted.items():
        if value.shape != tensors[name].shape:
            came = tuple(tensors[name].shape)
            raise FileError(f"load: {path}: {name} must have the shape {tuple(value.shape)}, got {came}")


def _fill(net: nn.Module, tensors: dict[str, Tensor], likelihood: Likelihood) -> None:
    """Fill `net`, and the likelihood that goes with it."""
    tensors = {name: value for name, value in tensors.items() if not name.startswith(_SELECTION)}
    dtype = next((value.dtype for value in tensors.values() if value.is_floating_point()), torch.float32)
    net.to(dtype)
    own = set(net.state_dict())
    net.load_state_dict({name: value for name, value in tensors.items() if name in own})
    if not isinstance(net, Network):
        rest = {name.removeprefix(_LIKELIHOOD): value for name, value in tensors.items() if name not in own}
        likelihood.to(dtype).load_state_dict(rest)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not path.is_file():
        refuse("load", "path", "a file that exists", str(path))
    header, tensors = read_container(path, "load", FORMAT)
    if header.get("kind") == "checkpoint":
        raise FileError(f"load: {path} must be a model, got a checkpoint of a run; go on with it by `--resume`")
    needed = {"rule"} if "rule" in header and "network" not in header else {"network", "likelihood", "about"}
    if not needed <= set(header):
        raise FileError(f"load: {path} must have a whole slabnet header, got one without {min(needed - set(header))}")
    return header, tensors
