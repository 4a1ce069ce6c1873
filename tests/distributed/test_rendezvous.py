"""Processes that were started again must not take the word of the dead for that of the living."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from torch.distributed import HashStore

from slabnet.distributed.rendezvous import agree_on_name, meeting_place


def meet(store: Any, world: int, seconds: float = 20.0) -> list[str]:
    with ThreadPoolExecutor(world) as pool:
        waiting = [pool.submit(agree_on_name, store, rank, world, seconds) for rank in reversed(range(world))]
        return [each.result() for each in waiting]


@pytest.mark.parametrize("world", [1, 2, 5])
def test_all_have_the_same_name_and_every_start_has_another(world: int) -> None:
    store, names = HashStore(), set[str]()
    for _ in range(4):  # restarts with the same store
        found = set(meet(store, world))
        assert len(found) == 1
        names |= found
    assert len(names) == 4


def test_who_died_after_asking_is_not_waited_for() -> None:
    store = HashStore()
    store.set("slabnet-asks-1", "of-a-process-that-died")
    assert len(set(meet(store, 3))) == 1


def test_who_does_not_come_is_named() -> None:
    with pytest.raises(RuntimeError, match=r"processes \[1\] of 2 did not come"):
        agree_on_name(HashStore(), 0, 2, 0.2)


def test_without_torchrun_there_is_nothing_to_agree_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    assert meeting_place(0, 2, 1.0) is None
