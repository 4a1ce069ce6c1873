"""Parts of a compact network that hold no weights, as a file names them: activations, pooling, flattening, dropout."""

from __future__ import annotations

from typing import Any

from torch import nn

from slabnet.config.activations import ACTIVATIONS
from slabnet.core.errors import check_choice, refuse
from slabnet.model.activations import activation_of, module_of
from slabnet.model.elementwise import Mixed
from slabnet.model.skips import Fork, Join

LARGEST = 2**12  # kernel, stride, padding: some bytes can declare any number
MOST_KINDS = 100  # of activations in one layer
WIDEST = 2**24  # numbers that one row may become on its way
OURS: dict[str, Any] = {"Fork": Fork, "Join": Join}  # the other modules are torch's
# what a part is built with again; activations are in their own table
OPTIONS: dict[str, tuple[str, ...]] = {
    "Dropout": ("p",),
    "Flatten": ("start_dim", "end_dim"),
    "Fork": ("features",),
    "Join": (),
    **{f"MaxPool{d}d": ("kernel_size", "stride", "padding", "dilation", "ceil_mode") for d in (1, 2, 3)},
    **{f"AvgPool{d}d": ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad") for d in (1, 2, 3)},
}


def is_plain(part: nn.Module) -> bool:
    """Whether `plain_part` can make this part again."""
    return isinstance(part, Mixed) or activation_of(part) is not None or type(part).__name__ in OPTIONS


def plain_spec(part: nn.Module) -> dict[str, Any]:
    """A part by the name of its module, with what it was told."""
    row = activation_of(part)
    if row is not None:
        told = {name: getattr(part, name) for name, _ in row.options} | dict(row.words)
        return {"part": row.module} | told
    if isinstance(part, Mixed):
        return {"part": "Mixed", "kinds": list(part.kinds), "counts": list(part.counts)}
    name = type(part).__name__
    return {"part": name} | {option: as_list(getattr(part, option)) for option in OPTIONS[name]}


def plain_part(spec: dict[str, Any]) -> nn.Module:
    """The part again; its settings are small numbers, whoever wrote them."""
    if spec["part"] == "Mixed":
        return _mixed(spec.get("kinds"), spec.get("counts"))
    rows = [row for row in ACTIVATIONS.values() if row.module == spec["part"]]
    if rows:
        told = {name: spec.get(name) for name, _ in rows[0].words}
        row = next((row for row in rows if dict(row.words) == told), None)
        if row is None:
            allowed = " or ".join(str(dict(row.words)) for row in rows)
            refuse("compact", rows[0].module, f"told {allowed}", told)
        numbers = {name: _setting(row.module, name, spec) for name, _ in row.options}
        return module_of(row)(**numbers, **dict(row.words))
    name = check_choice("compact", "part", spec["part"], [*OPTIONS, *(row.module for row in ACTIVATIONS.values())])
    given = {option: _setting(name, option, spec) for option in OPTIONS[name]}
    kind = OURS[name] if name in OURS else getattr(nn, name)
    made: nn.Module = kind(**{key: tuple(v) if isinstance(v, list) else v for key, v in given.items()})
    return made


def _mixed(kinds: Any, counts: Any) -> Mixed:
    if not isinstance(kinds, list) or not 1 <= len(kinds) <= MOST_KINDS:
        refuse("compact", "Mixed.kinds", f"1 to {MOST_KINDS} names of activations", kinds)
    if not isinstance(counts, list) or any(type(count) is not int or not 0 <= count <= WIDEST for count in counts):
        refuse("compact", "Mixed.counts", f"whole numbers below {WIDEST}", counts)
    return Mixed(kinds, counts)


def _setting(name: str, option: str, spec: dict[str, Any]) -> Any:
    value = spec.get(option)
    most = WIDEST if name == "Fork" else LARGEST
    if option not in spec or not _is_setting(value, most):
        refuse("compact", f"{name}.{option}", f"small numbers below {most}", value)
    return value


def is_sizes(value: Any, length: int | None, least: int, most: int = LARGEST) -> bool:
    """Whether this is a short list of whole numbers in these bounds, of this length where one is given."""
    if not isinstance(value, list) or len(value) > 8 or (length is not None and len(value) != length):
        return False
    return all(type(size) is int and least <= size <= most for size in value)


def _is_setting(value: Any, most: int) -> bool:
    if isinstance(value, list):
        return is_sizes(value, None, 0)
    return value is None or (isinstance(value, (int, float)) and -most <= value <= most)


def as_list(value: Any) -> Any:
    """Tuples as lists, as they are in a file."""
    return list(value) if isinstance(value, tuple) else value
