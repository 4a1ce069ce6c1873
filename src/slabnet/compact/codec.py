"""A compact network as few bytes: what is left of each layer by rows, positions in the smallest whole numbers."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from slabnet.compact.layers import Decided, Kept, Take
from slabnet.compact.network import GEOMETRY, Compact, decided_layer, kept_layer
from slabnet.compact.parts import WIDEST, is_sizes, plain_part
from slabnet.config.methods import METHODS
from slabnet.config.settings import Beta, Prior
from slabnet.core.errors import SlabnetError, check_choice, one_line
from slabnet.model.declared import MOST_LAYERS
from slabnet.model.elementwise import Mixed
from slabnet.model.likelihoods import likelihood_from
from slabnet.model.priors import LayerPrior
from slabnet.model.skips import Fork, Join

MOST = 2**25  # entries all layers of a file of 16 MB may have, what is left and what is not; more in a larger file
MOST_PARTS = 4 * MOST_LAYERS
MOST_AXES = 5  # of a weight: units, inputs, and three of a kernel


class Misfit(SlabnetError):
    """Tensors that are not those of the network a header describes."""


def pack(net: Compact) -> dict[str, Tensor]:
    """The tensors of a file; `unpack` makes the same network of them."""
    tensors: dict[str, Tensor] = {"inputs": _small(net.inputs)}
    for index, part in enumerate(net.body):
        if isinstance(part, Take):
            tensors[f"{index}.index"] = _small(part.index)
    places = [index for index, part in enumerate(net.body) if part in net.layers]
    for index, layer, units in zip(places, net.layers, net.neurons.values(), strict=True):
        of_layer = {"units": _small(units), "counts": _small(layer.starts.diff()), "columns": _small(layer.columns)}
        if isinstance(layer, Decided):
            of_layer |= {"inputs": _small(layer.reads), "mu": layer.weight.mu, "rho": layer.weight.rho}
            if layer.bias is not None:
                of_layer |= {"own": _small(layer.with_bias), "bias_mu": layer.bias.mu, "bias_rho": layer.bias.rho}
            if layer.prior.log_sigma_beta is not None:
                of_layer["log_sigma_beta"] = layer.prior.log_sigma_beta
        else:
            of_layer |= {"mu": layer.values} | ({} if layer.bias is None else {"bias_mu": layer.bias})
        tensors |= {f"{index}.{name}": value for name, value in of_layer.items()}
    tensors |= {f"likelihood.{name}": value for name, value in net.likelihood.state_dict().items()}
    return tensors


def unpack(spec: dict[str, Any], tensors: dict[str, Tensor]) -> Compact:
    """The network that `spec` describes, filled; `Misfit` where the tensors are not its own."""
    keep = check_choice("compact", "keep", spec["keep"], ("means", "distribution"))
    check_choice("compact", "method", spec["method"], METHODS)
    rest = dict(tensors)
    _weigh(spec, tensors)
    likelihood = likelihood_from(spec["likelihood"])
    state = {name: _pop(rest, f"likelihood.{name}") for name in likelihood.state_dict()}
    inputs = _positions(rest, "inputs")
    if spec["row_shape"] is not None:
        if not is_sizes(spec["row_shape"], None, 1, WIDEST):
            raise Misfit(f"with rows of the shape {one_line(spec['row_shape'])}")
        _check_subset("inputs", inputs, int(math.prod(spec["row_shape"])))
    parts: list[nn.Module] = []
    neurons: dict[str, Tensor] = {}
    for index, part in enumerate(spec["parts"]):
        if part["part"] == "Take":
            parts.append(Take(_positions(rest, f"{index}.index"), part["dim"]))
        elif part["part"] == "layer":
            made, units = _unpack_layer(f"{index}.", part, rest, keep)
            parts.append(made)
            neurons[str(part["name"])] = units
        else:
            parts.append(plain_part(part))
    if rest or not neurons:
        raise Misfit(f"with the unknown {min(rest)}" if rest else "without layers")
    if len(inputs) != _reads(spec["parts"]):
        raise Misfit("in which inputs does not fit")
    _check_widths(parts, spec)
    made_net = Compact(parts, likelihood, spec, inputs, neurons)
    made_net.to(next(p.dtype for p in made_net.body.parameters()))
    likelihood.load_state_dict(state)
    return made_net.eval()


def _weigh(spec: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    """Refuse what declares more than its file may, before anything is made: parts, entries, outputs."""
    parts, size = spec["parts"], sum(value.nbytes for value in tensors.values())
    if not isinstance(parts, list) or len(parts) > MOST_PARTS:
        raise Misfit(f"with {len(parts)} parts, of which there are at most {MOST_PARTS}")
    entries = 0
    for index, part in enumerate(parts):
        if part["part"] == "layer":
            shape = part["of"]
            sizes = [part["inputs"], part["groups"], *shape[:MOST_AXES]]
            if not 2 <= len(shape) <= MOST_AXES or not all(type(n) is int and 0 <= n < 2**31 for n in sizes):
                raise Misfit(f"in which {index}.mu is part of {one_line(shape)}")
            entries += len(_pop(dict(tensors), f"{index}.units")) * math.prod([part["inputs"], *shape[2:]])
    if entries > max(MOST, 2 * size):
        raise Misfit(f"with {entries} entries in its layers, of which there are at most {max(MOST, 2 * size)}")
    outputs = spec["likelihood"].get("outputs", 0)
    if outputs > sum(value.numel() for value in tensors.values()):
        raise Misfit(f"of fewer numbers than {one_line(outputs)} outputs")


def _reads(parts: list[dict[str, Any]]) -> int:
    """How many inputs of the full network are read: by the first layer, or by all that read the inputs again."""
    first = next(part for part in parts if part["part"] == "layer" or part["part"] == "Fork")
    return int(first["features"] if first["part"] == "Fork" else first["inputs"])


def _check_widths(parts: list[nn.Module], spec: dict[str, Any]) -> None:
    """Refuse parts that do not take what the one before gives, found with shapes alone: compiled passes do not look."""
    if spec["row_shape"] is None:
        _check_features(parts)
        return
    x = again = torch.empty(1, *spec["row_shape"], device="meta")
    for index, part in enumerate(parts):
        if isinstance(part, Take):
            if len(part.index) and int(part.index.max()) >= x.shape[part.dim]:
                raise Misfit(f"in which {index}.index is out of range")
            x = x.index_select(part.dim, part.index.to("meta"))
        elif isinstance(part, (Kept, Decided)):
            x = part.product(x, torch.empty(part.shape, device="meta"), None)
        elif isinstance(part, Join):
            x = part(x, again)
        elif isinstance(part, Fork):
            if x.ndim != 2 or part.features != x.shape[1]:
                raise Misfit(f"in which part {index} forks {part.features} of {one_line(tuple(x.shape))}")
            again = x
        else:
            _check_kinds(index, part, x.shape[1])
            x = part(x)
        if x.numel() > WIDEST:
            raise Misfit(f"in which part {index} makes {x.numel()} numbers of one row")
    if x.shape[1] != spec["outputs"]:
        raise Misfit(f"with {x.shape[1]} outputs for {spec['outputs']}")


def _check_features(parts: list[nn.Module]) -> None:
    """The same for rows of unknown shape: features or channels, as far as one part gives the next their number."""
    width: int | None = None
    again = 0
    for index, part in enumerate(parts):
        if isinstance(part, Take):
            if width is not None and part.needs > width:
                raise Misfit(f"in which {index}.index is out of range")
            width = len(part.index)
        elif isinstance(part, (Kept, Decided)):
            if width is not None and part.shape[1] != width:
                raise Misfit(f"in which layer {index} reads {part.shape[1]} of {width}")
            width = part.shape[0]
        elif isinstance(part, Fork):
            if width is not None and part.features != width:
                raise Misfit(f"in which part {index} forks {part.features} of {width}")
            width = again = part.features
        elif isinstance(part, Join):
            if not again:
                raise Misfit(f"in which part {index} joins what never forked")
            width = None if width is None else width + again
        elif isinstance(part, nn.Flatten):
            width = None  # so many for each channel
        elif width is not None:
            _check_kinds(index, part, width)


def _check_kinds(index: int, part: nn.Module, units: int) -> None:
    if isinstance(part, Mixed) and sum(part.counts) != units:
        raise Misfit(f"in which part {index} has activations of {sum(part.counts)} units for {units}")


def _unpack_layer(at: str, part: dict[str, Any], rest: dict[str, Tensor], keep: str) -> tuple[nn.Module, Tensor]:
    """One layer and the units of the full layer it has; takes its tensors out of `rest`."""
    shape, groups = part["of"], part["groups"]  # small whole numbers: see `_weigh`
    units, columns = (_positions(rest, at + name) for name in ("units", "columns"))
    counts, values = _positions(rest, at + "counts"), _pop(rest, at + "mu")
    size = (len(units), part["inputs"], *shape[2:])
    if min(*shape, groups) < 1 or math.prod(shape) >= 2**62:
        raise Misfit(f"in which {at}mu is part of {one_line(shape)}")
    fits = len(counts) == len(units) and sum(counts.tolist()) == len(columns) == len(values) and values.ndim == 1
    if not fits or (len(columns) and int(columns.max()) >= math.prod(size[1:])):
        raise Misfit(f"in which {at}columns does not fit")
    rows = torch.arange(len(units)).repeat_interleave(counts)
    mask = torch.zeros(len(units), math.prod(size[1:]), dtype=torch.bool)
    mask[rows, columns] = True
    mask = mask.reshape(size)
    if int(mask.sum()) != len(values):
        raise Misfit(f"in which {at}columns does not fit")
    _check_subset(at + "units", units, shape[0])
    bias = _pop(rest, at + "bias_mu") if part["bias"] else None
    geometry = _geometry(at, part, len(shape) - 2)
    if keep == "means":
        if bias is not None and bias.shape != (len(units),):
            raise Misfit(f"in which {at}bias_mu does not fit")
        return kept_layer(values, mask, bias, geometry), units  # in the order of the rows, as `columns` are
    prior, reads = _prior(part["prior"]), _positions(rest, at + "inputs")
    _check_subset(at + "inputs", reads, shape[1] * groups)
    if len(reads) != size[1]:
        raise Misfit(f"in which {at}inputs does not fit")
    intercept = None
    if bias is not None:
        which, positions = torch.zeros(len(units), dtype=torch.bool), _positions(rest, at + "own")
        _check_subset(at + "own", positions, len(units))
        which[positions] = True
        spread = _like(_pop(rest, at + "bias_rho"), positions, at + "bias_rho")
        intercept = which, _like(bias, positions, at + "bias_mu"), spread
    if prior.log_sigma_beta is not None:
        learned = prior.log_sigma_beta
        learned.data.copy_(_like(_pop(rest, at + "log_sigma_beta"), learned, at + "log_sigma_beta"))
    weight = (mask, values, _like(_pop(rest, at + "rho"), values, at + "rho"))
    return decided_layer(weight, intercept, units, reads, shape, prior, geometry), units


def _geometry(at: str, part: dict[str, Any], dimensions: int) -> dict[str, Any]:
    """How a convolution moves over its input; nothing for a linear layer."""
    if dimensions == 0:
        return {}
    lengths = {"stride": (dimensions, 1), "dilation": (dimensions, 1), "edges": (2 * dimensions, 0)}
    for name, (length, least) in lengths.items():
        if not is_sizes(part[name], length, least):
            raise Misfit(f"in which {at}{name} is {one_line(part[name])}")
    modes = ("zeros", "reflect", "replicate", "circular")
    check_choice("compact", "padding_mode", part["padding_mode"], modes)
    return {name: part[name] for name in GEOMETRY}


def _prior(described: dict[str, Any]) -> LayerPrior:
    """The prior of one layer, checked as one that a person gives."""
    psi, sigma_beta = Prior(psi=described["psi"]).psi, Prior(sigma_beta=described["sigma_beta"]).sigma_beta
    if not isinstance(psi, (float, Beta)) or isinstance(sigma_beta, tuple):
        raise Misfit(f"in which a layer has the prior {one_line(described)}")
    intercept = Prior(intercept_psi=described.get("intercept_psi")).intercept_psi
    if isinstance(intercept, tuple):
        raise Misfit(f"in which a layer has the prior {one_line(described)}")
    return LayerPrior(psi, sigma_beta, Prior(slab=described["slab"]).slab, None, None, intercept)


def _small(positions: Tensor) -> Tensor:
    """Whole numbers from 0 on in the smallest type that holds them."""
    top = int(positions.max()) if len(positions) else 0
    return positions.to(torch.uint8 if top < 2**8 else torch.int16 if top < 2**15 else torch.int32)


def _positions(rest: dict[str, Tensor], name: str) -> Tensor:
    values = _pop(rest, name)
    if values.is_floating_point() or values.ndim != 1 or (len(values) and int(values.min()) < 0):
        raise Misfit(f"in which {name} is no list of positions")
    return values.long()


def _check_subset(name: str, positions: Tensor, size: int) -> None:
    """Positions of some of `size` things, in their order, each once."""
    if len(positions) and (int(positions[-1]) >= size or not bool((positions.diff() > 0).all())):
        raise Misfit(f"in which {name} are no positions below {size}")


def _like(values: Tensor, wanted: Tensor, name: str) -> Tensor:
    if values.shape != wanted.shape:
        raise Misfit(f"in which {name} has the shape {tuple(values.shape)}")
    return values


def _pop(rest: dict[str, Tensor], name: str) -> Tensor:
    if name not in rest:
        raise Misfit(f"without {name}")
    return rest.pop(name)
