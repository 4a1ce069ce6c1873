"""Model files `.slab`: safetensors with one JSON header. Loading runs no code from the file.

The header says how to build the network (for `mlp` and `convnet`); modules of your own class are rebuilt
by you and filled with `load(path, into=module)`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from slabnet.compact.codec import Misfit, pack, unpack
from slabnet.compact.network import Compact
from slabnet.config.fit_card import FitCard
from slabnet.core.containers import as_text, read_container, write_container
from slabnet.core.errors import FileError, SlabnetError, one_line, refuse
from slabnet.core.files import check_writable, is_there
from slabnet.core.records import Selection
from slabnet.core.version import __version__
from slabnet.model.attach import attach_likelihood, likelihood_of
from slabnet.model.declared import weigh
from slabnet.model.drawing import Mask
from slabnet.model.layers import SlabLayer
from slabnet.model.likelihoods import LIKELIHOODS, Likelihood, likelihood_from
from slabnet.model.mixture import members_in
from slabnet.model.networks import Network, build_network
from slabnet.selection.rules import describe, slab_layers

FORMAT = 1
DTYPES = (torch.float32, torch.float64)
_LIKELIHOOD = "likelihood."
_SELECTION = "selection:"
_NEEDED = {"network": (dict, type(None)), "likelihood": (dict,), "about": (dict,), "version": (str,)}


def save(net: nn.Module, path: str | Path, *, selection: Selection | None = None, **about: Any) -> None:
    """Write `net` and its likelihood to a `.slab` file; `about` (numbers, text, lists) is kept beside them.

    selection: the model that was chosen and post-trained, to be predicted with (`load_selection` reads it back).

    >>> import tempfile
    >>> from slabnet.model.networks import mlp
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(mlp((2, 2)), f"{folder}/m.slab", note="untrained")
    ...     read_header(f"{folder}/m.slab")["about"]
    {'note': 'untrained'}
    """
    path = check_writable("save", path)
    card = FitCard(**about)
    likelihood = likelihood_of(net)
    if any(isinstance(member, Compact) for member in members_in(net)):
        refuse("save", "net", "the whole mixture, with selection=", "a mixture of compact networks")
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
        "about": card.to_header(),
    }
    if isinstance(net, Network) and not isinstance(net, Compact):
        too_small = weigh(net.spec, len(tensors), _parameters(tensors))
        if too_small is not None:
            refuse("save", "net", "a network that load takes", f"one whose file would be {too_small}")
    tensors |= {} if selection is None else _as_tensors(selection)
    try:
        as_text(header)
    except (TypeError, ValueError) as error:
        refuse("save", "about", "numbers, text and lists of them", str(error))
    write_container(path, header, tensors)


def load(path: str | Path, into: nn.Module | None = None) -> nn.Module:
    """Read a `.slab` file. `into`: a module of your own class, converted as the saved one was, to be filled."""
    return load_with_header(path, into)[0]


def load_with_header(path: str | Path, into: nn.Module | None = None) -> tuple[nn.Module, dict[str, Any]]:
    """The same with the JSON header, for who needs both: a file is read and checked once."""
    header, tensors = _read(Path(path))
    return _load(path, header, tensors, into), header


def _load(path: str | Path, header: dict[str, Any], tensors: dict[str, Tensor], into: nn.Module | None) -> nn.Module:
    if "network" not in header:
        raise FileError(f"load: {path} must be a model, got a selection; read it with load_selection(path, net)")
    _check_numbers(tensors, path)
    if into is None:
        if header["network"] is None:
            refuse("load", "into", f"given: {path} holds a module of the class {one_line(header.get('class'))}", None)
        try:
            return _built(header["network"], tensors, path).eval()
        except Misfit as error:
            raise FileError(f"load: {path} must hold the tensors of this network, got one {error}") from None
        except FileError:
            raise
        except Exception as error:  # whatever a specification that was made up may lead to
            reason = one_line(f"{error}" if isinstance(error, SlabnetError) else f"{type(error).__name__}: {error}")
            raise FileError(f"load: {path} describes no network slabnet knows: {reason}") from None
    try:
        outputs = header["likelihood"].get("outputs", 0)
        if outputs > sum(value.numel() for value in tensors.values()):
            raise ValueError(f"{one_line(outputs)} outputs in a file of fewer numbers")
        likelihood = likelihood_from(header["likelihood"])
    except (SlabnetError, TypeError, ValueError, AttributeError) as error:
        raise FileError(f"load: {path} must have a likelihood slabnet knows, got: {one_line(str(error))}") from None
    _check_tensors(into, tensors, path, likelihood)
    wanted, came = _priors(into), header.get("priors", {})
    if wanted != came:
        came = came if isinstance(came, dict) else {}
        name = next((n for n in [*wanted, *came] if wanted.get(n) != came.get(n)), "all")
        reason = f"{one_line(came.get(name))} for {one_line(name)}, not {wanted.get(name)}"
        raise FileError(f"load: {path} must hold a module converted with the same priors, got {reason}")
    _fill(into, tensors, likelihood)
    attach_likelihood(into, likelihood)
    return into.eval()


def _built(spec: dict[str, Any], tensors: dict[str, Tensor], path: str | Path) -> Network:
    """The network that a file describes, which is built only if the file holds as much as that takes."""
    held = {name: value for name, value in tensors.items() if not name.startswith(_SELECTION)}
    if spec.get("kind") == "compact":  # its tensors hold only what is left
        return unpack(spec, tensors)
    too_small = weigh(spec, len(held), _parameters(held))
    if too_small is not None:
        raise Misfit(too_small)
    net = build_network(spec)
    _check_tensors(net, tensors, path, likelihood_of(net))
    _fill(net, tensors, likelihood_of(net))
    return net


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
        parts = tuple(tensors.get(f"{_SELECTION}{name}:{i}", torch.zeros(0)) for i in range(len(layer.blocks())))
        wanted = [tuple(block.mu.shape) for block in layer.blocks()]
        came = [tuple(part.shape) for part in parts]
        if came != wanted or any(part.dtype != torch.bool for part in parts):
            refuse("load_selection", "net", f"the network {path} was chosen from", f"shapes {wanted} for {came}")
        masks[name] = tuple(part.to(block.mu.device) for part, block in zip(parts, layer.blocks(), strict=True))
    threshold = header.get("threshold")
    if not isinstance(header["rule"], str) or not (threshold is None or isinstance(threshold, (int, float))):
        raise FileError(f"load_selection: {path} must say its rule and threshold, got {one_line(threshold)}")
    return describe(net, masks, header["rule"], threshold)


def _as_tensors(chosen: Selection) -> dict[str, Tensor]:
    return {
        f"{_SELECTION}{name}:{i}": part.cpu().contiguous()
        for name, mask in chosen.masks.items()
        for i, part in enumerate(mask)
    }


def _priors(net: nn.Module) -> dict[str, Any]:
    """The priors of a converted module's layers, which its tensors do not tell."""
    return {name: part.prior.spec() for name, part in net.named_modules() if isinstance(part, SlabLayer)}


def read_selection(path: str | Path) -> dict[str, Any]:
    """What a selection's own file says without the network it was chosen from: rule, threshold, weights by layer."""
    header, tensors = _read(Path(path))
    masks = {name.removeprefix(_SELECTION): value for name, value in tensors.items()}
    layers = {
        name.removesuffix(":0"): {"weights": value.numel(), "kept": int(value.count_nonzero())}
        for name, value in sorted(masks.items())
        if name.endswith(":0")
    }
    return {"rule": header["rule"], "threshold": header.get("threshold"), "layers": layers}


def read_card(path: str | Path) -> FitCard:
    """What a model file says of its fit."""
    header = read_header(path)
    if "network" not in header:
        raise FileError(f"load: {path} must be a model, got a selection; read it with load_selection(path, net)")
    return FitCard.of(header, path)


def read_header(path: str | Path) -> dict[str, Any]:
    """The JSON header of a model file, checked against its tensors."""
    return _read(Path(path))[0]


def _tensors(net: nn.Module, likelihood: Likelihood) -> dict[str, Tensor]:
    """Parameters and buffers by name; those of an attached likelihood under a prefix."""
    tensors = pack(net) if isinstance(net, Compact) else dict(net.state_dict())
    if not isinstance(net, Network):
        tensors |= {_LIKELIHOOD + name: value for name, value in likelihood.state_dict().items()}
    seen: dict[int, str] = {}
    return {name: value.clone() if _shared(seen, name, value) else value for name, value in tensors.items()}


def _shared(seen: dict[int, str], name: str, value: Tensor) -> bool:
    """safetensors refuses two names for one memory: the second one is written as a copy."""
    return seen.setdefault(value.untyped_storage().data_ptr(), name) != name


def _parameters(tensors: dict[str, Tensor]) -> int:
    """How many numbers of the types that parameters have."""
    return sum(value.numel() for value in tensors.values() if value.dtype in DTYPES)


def _check_numbers(tensors: dict[str, Tensor], path: str | Path) -> None:
    """Refuse numbers that are none: `save` writes no such file."""
    for name, value in tensors.items():
        plain = value if value.dtype in DTYPES or value.is_complex() else value.float()
        if value.is_complex() or (value.is_floating_point() and not bool(torch.isfinite(plain).all())):
            raise FileError(f"load: {path}: {one_line(name)} must hold finite numbers, got NaN, infinity or others")


def _check_tensors(net: nn.Module, tensors: dict[str, Tensor], path: str | Path, likelihood: Likelihood) -> None:
    """Refuse a file whose names, shapes or types are not those of `net`."""
    tensors = {name: value for name, value in tensors.items() if not name.startswith(_SELECTION)}
    wanted = _tensors(net, likelihood)
    missing, extra = sorted(set(wanted) - set(tensors)), sorted(set(tensors) - set(wanted))
    if missing or extra:
        named = [f"without {name}" for name in missing[:1]] + [f"with the unknown {one_line(n)}" for n in extra[:1]]
        raise FileError(f"load: {path} must hold the tensors of this network, got one {' and '.join(named)}")
    one = next((value.dtype for value in tensors.values() if value.is_floating_point()), torch.float32)
    for name, value in wanted.items():
        came = tensors[name]
        if value.shape != came.shape:
            raise FileError(f"load: {path}: {name} must have the shape {tuple(value.shape)}, got {tuple(came.shape)}")
        kinds = {value.dtype} if not value.is_floating_point() else {one} if one in DTYPES else set(DTYPES)
        if came.dtype not in kinds and (
            isinstance(net, Network) or came.is_floating_point() != value.is_floating_point()
        ):
            allowed = " or ".join(sorted(str(kind) for kind in kinds))
            raise FileError(f"load: {path}: {name} must be of the type {allowed}, got {came.dtype}")


def _fill(net: nn.Module, tensors: dict[str, Tensor], likelihood: Likelihood) -> None:
    """Fill `net`, and the likelihood that goes with it."""
    tensors = {name: value for name, value in tensors.items() if not name.startswith(_SELECTION)}
    dtype = next((value.dtype for value in tensors.values() if value.is_floating_point()), torch.float32)
    net.to(dtype)
    names = set(net.state_dict())
    net.load_state_dict({name: value for name, value in tensors.items() if name in names})
    if not isinstance(net, Network):
        rest = {name.removeprefix(_LIKELIHOOD): value for name, value in tensors.items() if name not in names}
        likelihood.to(dtype).load_state_dict(rest)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if not is_there(path):
        refuse("load", "path", "a file that exists", str(path))
    header, tensors = read_container(path, "load", FORMAT)
    if header.get("kind") == "checkpoint":
        raise FileError(f"load: {path} must be a model, got a checkpoint of a run; go on with it by `--resume`")
    needed = {"rule": (str,)} if "rule" in header and "network" not in header else _NEEDED
    for name, kinds in needed.items():
        if not isinstance(header.get(name), kinds):
            raise FileError(f"load: {path} must have a whole slabnet header, got one without {name}")
    return header, tensors
