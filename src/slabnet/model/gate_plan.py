"""What a network has gates of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from slabnet.config.settings import Beta
from slabnet.core.errors import check_choice, check_number, check_whole, refuse

MOST_GATED = 2**18  # inputs that have gates
KINDS = {"mlp": ("inputs", "units"), "convnet": ("channels", "units")}


@dataclass(frozen=True)
class GatePlan:
    """Which gates a network gets: of inputs (`names`, and the gate of each input), of hidden units, of channels."""

    kinds: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    group: tuple[int, ...] = ()
    psi: float | Beta = 0.5

    @classmethod
    def of(
        cls,
        where: str,
        inputs: int,
        gates: str | Sequence[str] | None,
        column_groups: Mapping[str, Sequence[int]] | None,
        psi_gate: float | Beta | None,
    ) -> GatePlan:
        """The plan of these arguments, checked."""
        kinds = () if gates is None else (gates,) if isinstance(gates, str) else _as_kinds(where, gates)
        for kind in kinds:
            check_choice(where, "gates", kind, KINDS[where])
        for name, value in (("column_groups", column_groups), ("psi_gate", psi_gate)):
            if value is not None and ("inputs" not in kinds if name == "column_groups" else not kinds):
                refuse(where, name, 'left out without gates="inputs"', value)
        if psi_gate is not None and not isinstance(psi_gate, Beta):
            check_number(where, "psi_gate", psi_gate, above=0, below=1)
        if "inputs" in kinds and inputs > MOST_GATED:
            refuse(where, "gates", f"left out for more than {MOST_GATED} inputs", f"gates of {inputs}")
        names, group = _grouped(inputs, column_groups or {}) if "inputs" in kinds else ((), ())
        return cls(kinds, names, group, Beta() if psi_gate is None else psi_gate)

    def spec(self, column_groups: Mapping[str, Sequence[int]] | None) -> dict[str, Any]:
        """The same as plain text and numbers, for the file of a network; nothing where there is no gate."""
        if not self.kinds:
            return {}
        psi = self.psi.model_dump() if isinstance(self.psi, Beta) else self.psi
        groups = {name: [int(i) for i in at] for name, at in column_groups.items()} if column_groups else {}
        return {"gates": list(self.kinds), "psi_gate": psi} | ({"column_groups": groups} if groups else {})


def _as_kinds(where: str, gates: object) -> tuple[str, ...]:
    if not isinstance(gates, (list, tuple)) or not gates or len(set(map(str, gates))) < len(gates):
        refuse(where, "gates", f"different ones of {', '.join(KINDS[where])}, or None", gates)
    return tuple(gates)


def _grouped(inputs: int, column_groups: Mapping[str, Sequence[int]]) -> tuple[tuple[str, ...], tuple[int, ...]]:
    """Names of the gates in the order of their first column, and the gate of each input; the others stand alone."""
    owner: dict[int, str] = {}
    if not isinstance(column_groups, Mapping):
        refuse("mlp", "column_groups", 'positions of inputs by name, as in {"city": (0, 1)}', column_groups)
    for name, positions in column_groups.items():
        if isinstance(positions, str) or not isinstance(positions, Sequence):
            refuse("mlp", f"column_groups[{name}]", "a list of positions of inputs", positions)
        if len(positions) == 0:
            refuse("mlp", f"column_groups[{name}]", "positions of at least one input", "none")
        for position in positions:
            if check_whole("mlp", f"column_groups[{name}]", position, at_least=0) >= inputs:
                refuse("mlp", f"column_groups[{name}]", f"positions of inputs, 0 to {inputs - 1}", position)
            if position in owner:
                refuse("mlp", f"column_groups[{name}]", f"inputs of no other group ({owner[position]})", position)
            owner[int(position)] = str(name)
    alone = [f"x{i}" for i in range(inputs) if i not in owner]
    if clash := set(alone) & set(owner.values()):
        refuse("mlp", "column_groups", "names other than those of single inputs", min(clash))
    named = [owner.get(i, f"x{i}") for i in range(inputs)]
    places = {name: place for place, name in enumerate(dict.fromkeys(named))}
    return tuple(places), tuple(places[name] for name in named)
