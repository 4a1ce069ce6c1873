"""Which device and float type to work on."""

from __future__ import annotations

import torch

from slabnet.core.errors import one_line, refuse


def pick_device(name: str) -> torch.device:
    """The device called `name`; "auto" takes CUDA, then Apple's MPS, then the CPU."""
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        refuse("device", "name", '"auto" or a device this machine has', f"{name} ({one_line(str(error))})")
    return device


def pick_dtype(name: str) -> torch.dtype:
    """The float type called `name`."""
    return {"float32": torch.float32, "float64": torch.float64}[name]


def device_of(net: torch.nn.Module) -> tuple[torch.device, torch.dtype]:
    """Where a network's parameters are, and their type."""
    for parameter in net.parameters():
        return parameter.device, parameter.dtype
    return torch.device("cpu"), torch.float32
