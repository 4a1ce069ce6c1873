"""`convert`: give every Linear and Conv layer of any module an indicator on each weight."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from slabnet.config.settings import Prior, Start
from slabnet.core.errors import refuse
from slabnet.core.noise import Seed, keyed_generator, seed_number
from slabnet.model.drawing import Drawable
from slabnet.model.layers import Conv1d, Conv2d, Conv3d, Linear, SlabLayer
from slabnet.model.posteriors import Posterior, SpikeSlab
from slabnet.model.priors import layer_prior

logger = logging.getLogger("slabnet")

_CONVOLUTIONS: dict[type, Callable[..., SlabLayer]] = {nn.Conv1d: Conv1d, nn.Conv2d: Conv2d, nn.Conv3d: Conv3d}
_NO_POSTERIOR = "its parameters stay single numbers, trained without a prior"


@dataclass(frozen=True)
class Conversion:
    """What `convert` did: names of the converted layers, and (name, class, reason) of what was left."""

    converted: tuple[str, ...]
    left: tuple[tuple[str, str, str], ...]

    def __str__(self) -> str:
        text = f"converted {len(self.converted)} layers"
        if self.left:
            text += "; left as they are: " + "; ".join(f"{name} ({kind}): {why}" for name, kind, why in self.left)
        return text


def convert(
    module: nn.Module,
    *,
    prior: Prior | None = None,
    posterior: type[Posterior] = SpikeSlab,
    start: Start | None = None,
    keep_weights: bool = True,
    seed: Seed = 0,
) -> nn.Module:
    """A copy of `module` in which every Linear and Conv layer is a spike-and-slab one.

    keep_weights: the trained weights become the starting means; otherwise means start afresh.
    What was not converted, and why, is logged and can be read from `conversion(net)`. Call `fit` with a
    likelihood other than Categorical where the response needs one.

    >>> net = convert(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)))
    >>> conversion(net).converted
    ('0', '2')
    """
    if not isinstance(module, nn.Module):
        refuse("convert", "module", "an nn.Module", type(module).__name__)
    if any(isinstance(part, Drawable) for part in module.modules()):
        refuse("convert", "module", "one without spike-and-slab layers", "one that was converted before")
    net = copy.deepcopy(module)
    reasons = _reasons(net)
    names = {id(part): name for name, part in net.named_modules() if type(part) in _KINDS and name not in reasons}
    if not names:
        refuse("convert", "module", "one with at least one Linear or Conv layer to convert", _why_none(reasons))
    if prior is not None and prior.dilution is not None:
        refuse("convert", "prior", "one without dilution: there are no gates", "one with it")
    prior, number = prior or Prior(), seed_number(seed, "convert")
    made: dict[int, SlabLayer] = {}
    for index, (key, name) in enumerate(names.items()):
        layer = net.get_submodule(name)
        generator = keyed_generator(number, "layer", index)
        made[key] = _slab_layer(layer, prior, index, len(names), posterior, start or Start(), generator)
        if keep_weights:
            made[key].set_means(layer.get_parameter("weight"), getattr(layer, "bias", None))
    if id(net) in made:  # the module was itself a single layer
        net = made[id(net)]
    for parent in list(net.modules()):
        for child_name, child in list(parent._modules.items()):
            if child is not None and id(child) in made:  # a layer used in two places stays one layer
                parent._modules[child_name] = made[id(child)]
    _stop_fast_paths(net)
    report = Conversion(tuple(name or "(itself)" for name in names.values()), _left(net, reasons))
    net.__dict__["_slabnet_conversion"] = report
    logger.log(logging.WARNING if report.left else logging.INFO, "convert: %s", report)
    return net


def conversion(net: nn.Module) -> Conversion:
    """What `convert` did to make `net`."""
    report = net.__dict__.get("_slabnet_conversion")
    if not isinstance(report, Conversion):
        refuse("conversion", "net", "a module that convert returned", type(net).__name__)
    return report


_KINDS = (nn.Linear, *_CONVOLUTIONS)


def _slab_layer(
    layer: nn.Module,
    prior: Prior,
    index: int,
    layers: int,
    posterior: type[Posterior],
    start: Start,
    seed: torch.Generator,
) -> SlabLayer:
    weight = layer.get_parameter("weight")
    shape, groups = tuple(weight.shape), getattr(layer, "groups", 1)
    options: dict[str, Any] = {"posterior": posterior, "start": start, "seed": seed, "bias": layer.bias is not None}
    options["prior"] = layer_prior(prior, index, layers, shape, groups)
    made: SlabLayer
    if isinstance(layer, nn.Linear):
        made = Linear(layer.in_features, layer.out_features, **options)
    else:
        assert isinstance(layer, (nn.Conv1d, nn.Conv2d, nn.Conv3d))
        made = _CONVOLUTIONS[type(layer)](
            layer.in_channels,
            layer.out_channels,
            layer.kernel_size,
            layer.stride,
            layer.padding,
            layer.dilation,
            groups,
            padding_mode=layer.padding_mode,
            **options,
        )
    made.train(layer.training)
    made.requires_grad_(weight.requires_grad)  # a frozen layer stays frozen
    return made.to(weight.device, weight.dtype)


def _reasons(net: nn.Module) -> dict[str, str]:
    """Why a Linear or Conv of `net` must be left alone, by name."""
    owners: dict[int, list[str]] = {}
    for name, part in net.named_modules():
        for parameter in part._parameters.values():
            if parameter is not None:
                owners.setdefault(id(parameter), []).append(name)
    reasons: dict[str, str] = {}
    for name, part in net.named_modules():
        if isinstance(part, nn.MultiheadAttention):
            reasons[f"{name}.out_proj" if name else "out_proj"] = "attention reads its weight directly"
        if not isinstance(part, (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)):
            continue
        shared = [other for p in part._parameters.values() if p is not None for other in owners[id(p)] if other != name]
        if shared:
            reasons[name] = f"shares its weight with {shared[0]}"
        elif part._forward_hooks or part._forward_pre_hooks or part._backward_hooks:
            reasons[name] = "has hooks that would be lost"
        elif type(part) not in _KINDS and name not in reasons:
            reasons[name] = "a subclass with a forward of its own"
    return reasons


def _left(net: nn.Module, reasons: dict[str, str]) -> tuple[tuple[str, str, str], ...]:
    inside = {id(part) for layer in net.modules() if isinstance(layer, Drawable) for part in layer.modules()}
    return tuple(
        (name or "(itself)", type(part).__name__, reasons.get(name, _NO_POSTERIOR))
        for name, part in net.named_modules()
        if id(part) not in inside and any(p is not None for p in part._parameters.values())
    )


def _why_none(reasons: dict[str, str]) -> str:
    return "; ".join(f"{name}: {why}" for name, why in reasons.items()) or "none"


def _stop_fast_paths(net: nn.Module) -> None:
    """torch's fused transformer code reads `linear1.weight` past the layer's forward: switch it off."""
    for part in net.modules():
        if isinstance(part, nn.TransformerEncoderLayer):
            part.activation_relu_or_gelu = 0
        if isinstance(part, nn.TransformerEncoder):
            part.use_nested_tensor = False
