"""The slabs: one file for each distribution that a weight in the network can have."""

from __future__ import annotations

from slabnet.config.slabs import SLABS, SlabSettings
from slabnet.core.errors import refuse
from slabnet.model.slabs.base import Slab
from slabnet.model.slabs.gaussian import Gaussian
from slabnet.model.slabs.laplace import Laplace
from slabnet.model.slabs.scale_mixture import ScaleMixture
from slabnet.model.slabs.student import Student

__all__ = ["Slab", "register_slab", "slab_of"]

_KINDS: dict[str, type[Slab]] = {
    "gaussian": Gaussian,
    "laplace": Laplace,
    "student": Student,
    "scale-mixture": ScaleMixture,
}


def register_slab(settings: type[SlabSettings], slab: type[Slab]) -> None:
    """Add a slab: from here on `Prior(slab=...)` takes its settings, and its name in TOML and in files.

    settings: a `SlabSettings` with a new name. slab: its densities, made with an instance of `settings`.

    Files name slabs and hold none: one that names this slab is read wherever it was registered.
    """
    name = settings.__dict__.get("name")
    if not isinstance(name, str) or name in SLABS:
        refuse("register_slab", "name", "a new one, given as name: ClassVar[str]", repr(name))
    SLABS[name] = settings
    _KINDS[name] = slab


def slab_of(settings: SlabSettings) -> Slab:
    """The densities of a slab with these settings."""
    return _KINDS[settings.name](settings)
