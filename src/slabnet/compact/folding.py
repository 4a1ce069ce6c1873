"""Keep only the weights on a path, and account for what cut-off neurons still send.

A neuron that no input reaches still sends act(its intercept), which is not zero for every activation and
intercept. That constant is folded into the intercepts of the next layer: exact at the means, for linear layers
and for convolutions without padding. Behind a padded convolution a constant map differs at its border, so
there the constant channel is kept. With draws the amount would be random and shared by all outputs: fold means only.
"""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

from slabnet.core.errors import refuse
from slabnet.core.records import Selection
from slabnet.model.drawing import Mask
from slabnet.model.elementwise import is_elementwise
from slabnet.model.layers import SlabLayer
from slabnet.model.layers.conv import ConvNd
from slabnet.model.networks import Network
from slabnet.model.paths import chain_of, flat_parts, per_weight, unit_edges, wanted_of
from slabnet.model.skips import Fork, Join
from slabnet.selection.rules import describe


@torch.no_grad()
def path_model(net: nn.Module, chosen: Selection) -> tuple[nn.Module, Selection]:
    """A copy of `net` and a selection of it with only the weights on paths, that predicts the same at the means.

    The copy differs from `net` in the means of some intercepts. Units that are on no path end up without
    weights; an output that no input reaches keeps its constant in its intercept.
    """
    chain = chain_of(net)
    if chain is None:
        refuse("path_model", "net", "a chain of layers, whose paths are known", type(net).__name__)
    folded = copy.deepcopy(net)
    names = {id(link.layer): link.name for link in chain}
    body = net.body if isinstance(net, Network) else net
    masks: dict[str, Mask] = {}
    constants: Tensor | None = None  # what each unit that never varies sends; NaN for the others
    again = torch.zeros(0)  # the same of the inputs that later layers read again
    for part in flat_parts(body) or [body]:
        if isinstance(part, Fork):
            if constants is None:
                constants = torch.full((part.features,), float("nan")).to(chain[0].layer.weight.mu)
            again = constants = constants.repeat_interleave(part.features // len(constants))
        elif isinstance(part, Join):
            assert constants is not None
            constants = torch.cat([constants, again])
        if not isinstance(part, SlabLayer):
            if constants is not None and is_elementwise(part):
                constants = torch.where(constants.isnan(), constants, _quietly(part, constants))
            continue
        name = names[id(part)]
        mask, edges = chosen.masks[name], unit_edges(part, chosen.masks[name][0])
        if constants is None:  # the inputs of the network all vary
            constants = torch.full((edges.shape[1],), float("nan")).to(part.weight.mu)
        sent = constants.repeat_interleave(edges.shape[1] // len(constants))
        varies, sent = sent.isnan(), sent.nan_to_num(0.0)
        weight = part.weight.mu * mask[0]
        carries = edges & varies
        if isinstance(part, ConvNd) and any(part.edges):  # a constant map is not constant at the border
            carries = carries | (edges & (sent != 0))
            sent = torch.zeros_like(sent)
        intercepts = weight.new_zeros(len(weight)) if part.bias is None else part.bias.mu * mask[1]
        whole = intercepts + _constant_part(part, weight, sent)
        masks[name] = _finish(folded.get_submodule(name) if name else folded, part, mask, carries, whole, name)
        constants = whole.masked_fill(carries.any(1), float("nan"))
    return folded, _trim(folded, describe(folded, masks, f"{chosen.rule}, paths", chosen.threshold))


def _finish(copy_: nn.Module, layer: SlabLayer, mask: Mask, carries: Tensor, whole: Tensor, name: str) -> Mask:
    weight = mask[0] & per_weight(layer, carries, mask[0])
    bias = copy_.get_submodule("bias") if layer.bias is not None else None
    if bias is None:
        if bool((whole != 0).any()):
            refuse("path_model", name, "a layer with intercepts, to take up what cut-off neurons send", "one without")
        return (weight,)
    bias.get_parameter("mu").copy_(torch.where(whole != 0, whole, bias.get_parameter("mu")))
    return (weight, whole != 0)


def _trim(net: nn.Module, chosen: Selection) -> Selection:
    """Drop what leads nowhere: weights and intercepts of units from which no output can be reached."""
    chain = chain_of(net)
    assert chain is not None
    masks, read = dict(chosen.masks), dict[str, Tensor]()
    for at, (name, layer, *_) in reversed(list(enumerate(chain))):
        mask = masks[name]
        if at < len(chain) - 1:
            wanted = wanted_of(chain, at, read)
            shape = (-1, *(1 for _ in mask[0].shape[1:]))
            mask = tuple(m & (wanted.reshape(shape) if i == 0 else wanted) for i, m in enumerate(mask))
        masks[name] = mask
        read[name] = unit_edges(layer, mask[0]).any(0)
    return describe(net, masks, chosen.rule, chosen.threshold)


def _constant_part(layer: SlabLayer, weight: Tensor, sent: Tensor) -> Tensor:
    """What constant inputs add to each pre-activation."""
    groups = layer.groups
    summed = weight.flatten(2).sum(2) if weight.ndim > 2 else weight
    by_group = sent.reshape(groups, 1, summed.shape[1]).expand(groups, len(summed) // groups, -1)
    return (summed * by_group.reshape(len(summed), -1)).sum(1)


def _quietly(part: nn.Module, constants: Tensor) -> Tensor:
    """An activation of the constants, as in prediction: no dropout."""
    if isinstance(part, nn.Dropout):
        return constants
    out: Tensor = part(constants.nan_to_num(0.0))
    return out
