"""The torch module of each row of the table of activations, and a row from outside (`config/activations.py`)."""

from __future__ import annotations

import torch
from torch import nn

from slabnet.config.activations import ACTIVATIONS, Activation
from slabnet.core.errors import check_choice, refuse
from slabnet.kernels.sparse import Elementwise

_MODULES: dict[str, type[nn.Module]] = {row.name: getattr(nn, row.module) for row in ACTIVATIONS.values()}


def register_activation(row: Activation, module: type[nn.Module]) -> None:
    """Add an activation: from here on it has a name in `mlp`, in files and on the command line.

    row: what is known of it. module: its torch module, of the name `row.module`; each number of its output must
        depend on that number of its input alone, and it has no parameters.

    Files name activations and hold none: one that names this row is read wherever the row was registered.

    >>> row = Activation(name="softsign", module="Softsign", at_zero=0.0, piecewise_linear=False)
    >>> register_activation(row, nn.Softsign)
    >>> make_activation("softsign")
    Softsign()
    >>> del ACTIVATIONS["softsign"]
    """
    where = "register_activation"
    if row.name in ACTIVATIONS:
        refuse(where, "name", "a new one", repr(row.name))
    if row.module != module.__name__:
        refuse(where, "row.module", f"the name of the module, {module.__name__}", repr(row.module))
    if any(other.module == row.module and other.words == row.words for other in ACTIVATIONS.values()):
        refuse(where, "module", "one that is in no other row", row.module)
    if row.c is not None:
        refuse(where, "c", "None: the chain in C has no case for it", row.c)
    made = module(**dict(row.options), **dict(row.words)).eval()
    if next(made.parameters(), None) is not None:
        refuse(where, "module", "one without parameters", row.module)
    with torch.no_grad():
        x = torch.linspace(-3.0, 3.0, 12, dtype=torch.float64)
        together, alone = made(x.reshape(3, 4)), torch.stack([made(one.reshape(1)) for one in x])
        at_zero = float(made(torch.zeros(1, dtype=torch.float64)))
    if together.shape != (3, 4) or not torch.allclose(together.flatten(), alone.flatten()):
        refuse(where, "module", "one that acts on each number for itself", row.module)
    if abs(at_zero - row.at_zero) > 1e-9:
        refuse(where, "at_zero", f"its value at 0, {at_zero:.6g}", row.at_zero)
    ACTIVATIONS[row.name] = row
    _MODULES[row.name] = module


def make_activation(name: str) -> nn.Module:
    """The module of a row, told what the row says.

    >>> make_activation("leaky_relu")
    LeakyReLU(negative_slope=0.01)
    """
    row = ACTIVATIONS[check_choice("network", "activation", name, ACTIVATIONS)]
    return _MODULES[name](**dict(row.options), **dict(row.words))


def module_of(row: Activation) -> type[nn.Module]:
    """The torch module of a row."""
    return _MODULES[row.name]


def activation_of(part: nn.Module) -> Activation | None:
    """The row of a module, whatever numbers it was told; None if it is no activation of the table.

    >>> activation_of(nn.GELU("tanh")).name
    'gelu_tanh'
    """
    for row in ACTIVATIONS.values():
        if type(part) is _MODULES[row.name] and all(getattr(part, name) == word for name, word in row.words):
            return row
    return None


def numbers_of(row: Activation, part: nn.Module) -> dict[str, float]:
    """What a module of this row was told: its options by name."""
    return {name: float(getattr(part, name)) for name, _ in row.options}


def in_c(part: nn.Module) -> Elementwise | None:
    """An activation as the chain in C takes it; None where C has no case for it."""
    row = activation_of(part)
    if row is None or row.c is None:
        return None
    return Elementwise(part, row.c, tuple(numbers_of(row, part).values()))
