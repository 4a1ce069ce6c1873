"""Where the processes of one fit find each other.

Those that `--workers` started meet in a file that its environment names.

`torchrun` keeps one store for all restarts, so that a process which was started again may read there the address of one
that died. The first process therefore thinks of a name that was never used, and tells it only to processes that are
alive: each of them asks under a word of its own, and answers when it was told. Under that name all start with an empty
store.
"""

from __future__ import annotations

import datetime
import os
import secrets
import time

from torch.distributed import FileStore, PrefixStore, Store, TCPStore  # type: ignore[attr-defined]

STORE = "SLABNET_WORKERS_STORE"  # the file in which the workers of one machine meet
NAP = 0.01  # seconds between two looks at who has come


def meeting_place(rank: int, world: int, seconds: float) -> Store | None:
    """A store that these processes have to themselves; None where neither `--workers` nor `torchrun` keeps one."""
    if STORE in os.environ:
        return FileStore(os.environ[STORE], world)
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return None
    limit = datetime.timedelta(seconds=seconds)
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(host, port, world, is_master=False, timeout=limit)
    return PrefixStore(agree_on_name(store, rank, world, seconds), store)


def agree_on_name(store: Store, rank: int, world: int, seconds: float) -> str:
    """The same new name in every process that is alive; RuntimeError if they are not all here in time.

    >>> from torch.distributed import HashStore
    >>> len(agree_on_name(HashStore(), 0, 1, 1.0))
    24
    """
    mine = secrets.token_hex(8)
    if rank == 0:
        _tell(store, name := f"slabnet-{mine}", world, time.monotonic() + seconds)
        return name
    store.set(f"slabnet-asks-{rank}", mine)
    store.wait([f"slabnet-told-{mine}"], datetime.timedelta(seconds=seconds))
    name = store.get(f"slabnet-told-{mine}").decode()
    store.set(f"{name}-heard-{rank}", "")
    return name


def _tell(store: Store, name: str, world: int, until: float) -> None:
    """Tell the name to whoever asks, until all have heard it: who asked first may be dead, and ask no more."""
    missing, told = set(range(1, world)), set[str]()
    while missing:
        for rank in sorted(missing):
            if store.check([f"{name}-heard-{rank}"]):
                missing.discard(rank)
            elif store.check([f"slabnet-asks-{rank}"]):
                word = store.get(f"slabnet-asks-{rank}").decode()
                if word not in told:
                    store.set(f"slabnet-told-{word}", name)
                    told.add(word)
        if missing and time.monotonic() > until:
            raise RuntimeError(f"processes {sorted(missing)} of {world} did not come")
        if missing:
            time.sleep(NAP)
