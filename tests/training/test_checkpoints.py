"""A run that stops and goes on ends as one that never stopped; what is damaged, foreign or finished is told apart."""

from __future__ import annotations

import logging
import os
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import slabnet as sn
from slabnet.core.containers import read_container
from slabnet.core.files import write_atomically
from slabnet.core.records import Epoch
from slabnet.selection.rules import threshold_model
from slabnet.training import checkpoints, dead_units
from slabnet.training.checkpoints import FORMAT, Checkpoints, Interrupted, checkpoints_in, forget

Data = tuple[Tensor, Tensor]


class Stop(Exception):
    """Stands for the end of the process."""


def state(net: nn.Module) -> list[Tensor]:
    return [value.clone() for value in net.state_dict().values()]


def equal(a: list[Tensor], b: list[Tensor]) -> bool:
    return all(bool((x == y).all()) for x, y in zip(a, b, strict=True))


def without_times(history: sn.History) -> Any:
    kept = history.to_dict()
    for epoch in kept["epochs"]:
        epoch.pop("seconds")
    return kept


CONFIGS: dict[str, dict[str, Any]] = {
    "local": {},
    "relaxed": {"draw": "relaxed", "kl": "sampled"},
    "score": {"draw": "score", "samples": 1},
    "schedule": {"schedule": "cosine", "clip": 1.0, "samples": 2},
    "early": {"validation_fraction": 0.2, "patience": 2, "ramp_epochs": 1},
    "cut": {"cut_every": 1, "omega_lr": 0.5, "lr": 0.05, "ramp_epochs": 1},
}


def network(name: str) -> sn.Network:
    return sn.mlp((4, 12, 3), seed=3, method="mc-dropout" if name == "dropout" else "lbbnn")


def stopped_after(net: nn.Module, data: Data, config: sn.TrainConfig, steps: int, folder: Path) -> None:
    """Kill the run (by an error nobody catches) right after a checkpoint at `steps`."""
    from slabnet.training import checkpoints

    keep = checkpoints.Keeper.write

    def write(self: Any, at: int, *rest: Any) -> Path:
        path = keep(self, at, *rest)
        if at >= steps:
            raise Stop
        return path

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints.Keeper, "write", write)
        with pytest.raises(Stop):
            sn.fit(net, data, config, checkpoint=Checkpoints(folder, every_steps=1))


@pytest.mark.parametrize("name", [*CONFIGS, "dropout"])
@pytest.mark.parametrize("steps", [1, 5, 6, 11])
def test_a_resumed_run_ends_as_one_that_never_stopped(
    name: str, steps: int, blobs: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for constant, value in (("FEWEST", 0), ("EPSILON", 5.0), ("SPOKEN_AGAINST", 10.0)):  # cut early
        monkeypatch.setattr(dead_units, constant, value)
    config = sn.TrainConfig(**{"epochs": 5, "batch_size": 25, **CONFIGS.get(name, {})})
    whole = network(name)
    history = sn.fit(whole, blobs, config)
    before = torch.get_rng_state()
    first = network(name)
    stopped_after(first, blobs, config, steps, tmp_path)
    again = network(name)
    resumed = sn.fit(again, blobs, config, checkpoint=Checkpoints(tmp_path, every_steps=1), resume=True)
    assert equal(state(whole), state(again))
    assert without_times(history) == without_times(resumed)
    assert bool((torch.get_rng_state() == before).all())
    if name == "cut":
        assert resumed.cuts


@pytest.mark.parametrize("last", range(1, 12))
def test_a_run_that_removes_units_again_and_again_goes_on_with_its_step_sizes(
    last: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for constant, value in (("FEWEST", 0), ("SPOKEN_AGAINST", 10.0)):
        monkeypatch.setattr(dead_units, constant, value)
    x = torch.randn(150, 4, generator=torch.Generator().manual_seed(0))
    data = (x, (x[:, 0] + x[:, 1] > 0).long())
    options = {"batch_size": 50, "lr": 0.01, "omega_lr": 0.5, "ramp_epochs": 1, "cut_every": 1, "schedule": "linear"}
    config = sn.TrainConfig(epochs=12, **options)
    whole, first, again = (sn.mlp((4, 40, 3), seed=3) for _ in range(3))
    history = sn.fit(whole, data, config)
    assert len(history.cuts) > 3
    steps = [1 - (3 * epoch - 1) / 36 for epoch in range(1, 13)]  # of the last batch of each epoch
    assert history.column("lr") == pytest.approx([0.01 * share for share in steps])
    stopped_after(first, data, config, 3 * last, tmp_path)
    resumed = sn.fit(again, data, config, checkpoint=tmp_path, resume=True)
    assert equal(state(whole), state(again))
    assert without_times(history) == without_times(resumed)


def test_a_stream_of_batches_goes_on_too(blobs: Data, tmp_path: Path) -> None:
    batches = list(zip(blobs[0].split(30), blobs[1].split(30), strict=True))  # type: ignore[no-untyped-call]
    config = sn.TrainConfig(epochs=4)
    whole, first, again = (sn.mlp((4, 5, 3), seed=1) for _ in range(3))
    sn.fit(whole, batches, config, n=150)

    def stop(epoch: Epoch) -> None:
        if epoch.epoch == 3:
            raise Stop

    with pytest.raises(Stop):
        sn.fit(first, batches, config, n=150, checkpoint=Checkpoints(tmp_path, every_steps=3), on_epoch=stop)
    sn.fit(again, batches, config, n=150, checkpoint=tmp_path, resume=True)
    assert equal(state(whole), state(again))


def test_a_finished_run_is_not_trained_again(blobs: Data, tmp_path: Path) -> None:
    config = sn.TrainConfig(epochs=2, batch_size=50)
    net = sn.mlp((4, 3), seed=0)
    history = sn.fit(net, blobs, config, checkpoint=tmp_path)
    again = sn.mlp((4, 3), seed=0)
    seen: list[Epoch] = []
    assert sn.fit(again, blobs, config, checkpoint=tmp_path, resume=True, on_epoch=seen.append) == history
    assert not seen
    assert equal(state(net), state(again))


def test_nothing_to_resume_starts_afresh_and_a_fresh_start_forgets(blobs: Data, tmp_path: Path) -> None:
    config = sn.TrainConfig(epochs=2, batch_size=50)
    net = sn.mlp((4, 3), seed=0)
    assert len(sn.fit(net, blobs, config, checkpoint=tmp_path / "new", resume=True)) == 2
    other = sn.TrainConfig(epochs=1, batch_size=50)
    assert len(sn.fit(sn.mlp((4, 3)), blobs, other, checkpoint=tmp_path / "new")) == 1
    with pytest.raises(sn.ArgumentError, match="resume must be used with a checkpoint folder"):
        sn.fit(net, blobs, config, resume=True)


def test_two_are_kept(blobs: Data, tmp_path: Path) -> None:
    config = sn.TrainConfig(epochs=3, batch_size=50)
    sn.fit(sn.mlp((4, 3)), blobs, config, checkpoint=Checkpoints(tmp_path, every_steps=1))
    assert len(list(tmp_path.iterdir())) == 2
    assert checkpoints_in(tmp_path)[-1].name.endswith("-end.slab")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"lr": 0.5}, "config.lr"),
        ({"epochs": 9}, "config.epochs"),
        ({"seed": 4}, "config.seed"),
        ({"x": True}, "data.contents"),
        ({"hidden": 7}, "network.sizes"),
        ({"psi": 0.3}, "network.prior"),
    ],
)
def test_another_run_s_checkpoint_is_refused_by_name(
    change: dict[str, Any], named: str, blobs: Data, tmp_path: Path
) -> None:
    x, y = blobs
    base: dict[str, Any] = {"epochs": 2, "batch_size": 50, "lr": 0.01, "seed": 0}
    sn.fit(sn.mlp((4, 5, 3), seed=0), blobs, sn.TrainConfig(**base), checkpoint=tmp_path)
    prior = sn.Prior(psi=change.get("psi", 0.1))
    prior = prior if "psi" in change else sn.Prior()
    net = sn.mlp((4, change.get("hidden", 5), 3), prior=prior, seed=0)
    settings = base | {key: value for key, value in change.items() if key in base}
    before = state(net)
    with pytest.raises(sn.ArgumentError, match=named):
        sn.fit(net, (x + 1 if "x" in change else x, y), sn.TrainConfig(**settings), checkpoint=tmp_path, resume=True)
    assert equal(before, state(net))


def test_a_damaged_one_falls_back_to_the_one_before(
    blobs: Data, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = sn.TrainConfig(epochs=4, batch_size=25)
    whole = sn.mlp((4, 6, 3), seed=2)
    sn.fit(whole, blobs, config)
    stopped_after(sn.mlp((4, 6, 3), seed=2), blobs, config, 9, tmp_path)
    newest = checkpoints_in(tmp_path)[-1]
    content = bytearray(newest.read_bytes())
    for damage in (content[: len(content) // 2], content[:-40] + bytes(40), b"", b"PK\x03\x04 no checkpoint"):
        newest.write_bytes(bytes(damage))
        again = sn.mlp((4, 6, 3), seed=2)
        with caplog.at_level(logging.WARNING):
            kept = Checkpoints(tmp_path / "copy", every_steps=1)
            (tmp_path / "copy").mkdir(exist_ok=True)
            for path in checkpoints_in(tmp_path):
                (tmp_path / "copy" / path.name).write_bytes(path.read_bytes())
            sn.fit(again, blobs, config, checkpoint=kept, resume=True)
        assert "going back to the checkpoint before it" in caplog.text
        assert equal(state(whole), state(again))
        for path in (tmp_path / "copy").iterdir():
            path.unlink()


def test_all_damaged_starts_from_the_beginning(blobs: Data, tmp_path: Path) -> None:
    config = sn.TrainConfig(epochs=2, batch_size=50)
    sn.fit(sn.mlp((4, 3)), blobs, config, checkpoint=tmp_path)
    for path in checkpoints_in(tmp_path):
        path.write_bytes(b"gone")
    assert len(sn.fit(sn.mlp((4, 3)), blobs, config, checkpoint=tmp_path, resume=True)) == 2


def test_a_full_disk_is_a_clear_error_and_the_one_before_is_whole(
    blobs: Data, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = sn.TrainConfig(epochs=4, batch_size=25)
    written = 0

    def full(path: Path, content: bytes) -> None:
        nonlocal written
        written += 1
        if written == 4:
            raise OSError(28, "No space left on device")
        write_atomically(path, content)

    monkeypatch.setattr("slabnet.core.containers.write_atomically", full)
    with pytest.raises(sn.FileError, match="No space left on device"):
        sn.fit(sn.mlp((4, 3), seed=0), blobs, config, checkpoint=Checkpoints(tmp_path, every_steps=1))
    monkeypatch.undo()
    whole, again = sn.mlp((4, 3), seed=0), sn.mlp((4, 3), seed=0)
    sn.fit(whole, blobs, config)
    sn.fit(again, blobs, config, checkpoint=tmp_path, resume=True)
    assert equal(state(whole), state(again))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_finishes_the_step_and_keeps_everything(number: signal.Signals, blobs: Data, tmp_path: Path) -> None:
    config = sn.TrainConfig(epochs=6, batch_size=25)
    whole, first, again = (sn.mlp((4, 6, 3), seed=2) for _ in range(3))
    sn.fit(whole, blobs, config)
    before = signal.getsignal(number)

    def interrupt(epoch: Epoch) -> None:
        if epoch.epoch == 2:
            os.kill(os.getpid(), number)

    with pytest.raises(Interrupted, match=number.name) as stopped:
        sn.fit(first, blobs, config, checkpoint=tmp_path, on_epoch=interrupt)
    assert stopped.value.number == number
    assert checkpoints_in(stopped.value.folder)
    assert signal.getsignal(number) is before
    sn.fit(again, blobs, config, checkpoint=tmp_path, resume=True)
    assert equal(state(whole), state(again))


def test_post_training_goes_on_too(blobs: Data, tmp_path: Path) -> None:
    config = sn.TrainConfig(epochs=4, batch_size=50)
    net = sn.mlp((4, 6, 3), seed=2)
    sn.fit(net, blobs, config)
    chosen = threshold_model(net)
    start = state(net)
    sn.fit(net, blobs, config, fixed=chosen)
    wanted = state(net)
    for part, value in zip(net.state_dict().values(), start, strict=True):
        part.copy_(value)

    def stop(epoch: Epoch) -> None:
        if epoch.epoch == 3:
            raise Stop

    with pytest.raises(Stop):
        sn.fit(net, blobs, config, fixed=chosen, checkpoint=Checkpoints(tmp_path, every_steps=1), on_epoch=stop)
    for part, value in zip(net.state_dict().values(), start, strict=True):
        part.copy_(value)
    sn.fit(net, blobs, config, fixed=chosen, checkpoint=tmp_path, resume=True)
    assert equal(wanted, state(net))


def test_a_checkpoint_is_no_model(blobs: Data, tmp_path: Path) -> None:
    sn.fit(sn.mlp((4, 3)), blobs, sn.TrainConfig(epochs=1, batch_size=50), checkpoint=tmp_path)
    with pytest.raises(sn.FileError, match="got a checkpoint of a run"):
        sn.load(checkpoints_in(tmp_path)[-1])


def test_settings_of_checkpoints_are_checked(tmp_path: Path) -> None:
    with pytest.raises(sn.ArgumentError, match="every_minutes"):
        Checkpoints(tmp_path, every_minutes=0)
    with pytest.raises(sn.ArgumentError, match="every_steps"):
        Checkpoints(tmp_path, every_steps=0)
    (tmp_path / "file").write_text("x")
    with pytest.raises(sn.ArgumentError, match="a folder"):
        Checkpoints(tmp_path / "file")


def test_the_best_checkpoint_is_kept_beside_the_last_two(blobs: Data, tmp_path: Path) -> None:
    x, y = blobs
    y = y[torch.randperm(len(y), generator=torch.Generator().manual_seed(0))]  # nothing to learn: validation gets worse
    net = sn.mlp((4, 30, 3), seed=2)
    config = sn.TrainConfig(
        epochs=40, batch_size=10, lr=0.02, ramp_epochs=2, validation_fraction=0.3, patience=8, kl_weight=0.01
    )
    history = sn.fit(net, (x, y), config, checkpoint=Checkpoints(tmp_path, every_steps=1000), progress="off")
    assert history.best_epoch is not None
    assert history.best_epoch < len(history) - 2
    header, tensors = read_container(tmp_path / "best.slab", "test", FORMAT)
    assert header["state"]["best_epoch"] == history.best_epoch
    for i, value in enumerate(net.parameters()):  # the fit ends with the best state
        assert torch.equal(tensors[f"net:{i}"], value)
    assert len(checkpoints_in(tmp_path)) == 2
    sn.fit(sn.mlp((4, 3)), blobs, sn.TrainConfig(epochs=1), checkpoint=tmp_path, progress="off")  # starts afresh
    assert not (tmp_path / "best.slab").exists()


def test_a_damaged_one_that_was_passed_over_does_not_take_the_place_of_a_whole_one(blobs: Data, tmp_path: Path) -> None:
    config = sn.TrainConfig(epochs=3, batch_size=50)
    stopped_after(sn.mlp((4, 3)), blobs, config, 5, tmp_path)
    newest = checkpoints_in(tmp_path)[-1]
    newest.write_bytes(b"junk")
    from slabnet.training import checkpoints

    keep = checkpoints.Keeper.write
    with pytest.MonkeyPatch.context() as patch:

        def write(self: Any, at: int, *rest: Any) -> Path:
            keep(self, at, *rest)
            raise Stop

        patch.setattr(checkpoints.Keeper, "write", write)
        with pytest.raises(Stop):
            sn.fit(sn.mlp((4, 3)), blobs, config, checkpoint=Checkpoints(tmp_path, every_steps=1), resume=True)
    assert len(checkpoints_in(tmp_path)) == 2
    for path in checkpoints_in(tmp_path):
        read_container(path, "test", FORMAT)


def test_an_unfinished_run_is_set_aside_and_said(blobs: Data, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    config = sn.TrainConfig(epochs=3, batch_size=50)
    stopped_after(sn.mlp((4, 3)), blobs, config, 5, tmp_path)
    names = [path.name for path in checkpoints_in(tmp_path)]
    (tmp_path / ".checkpoint-0000000009.slab.x.tmp").touch()  # of a process that was killed
    with caplog.at_level(logging.WARNING):
        sn.fit(sn.mlp((4, 3)), blobs, config, checkpoint=tmp_path)
    assert "not finished" in caplog.text
    assert "--resume" in caplog.text
    assert sorted(path.name for path in (tmp_path / "earlier").iterdir()) == names
    assert not list(tmp_path.glob(".*.tmp"))
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        sn.fit(sn.mlp((4, 3)), blobs, config, checkpoint=tmp_path)  # the one before it was finished
    assert not caplog.text
    stopped_after(sn.mlp((4, 3)), blobs, config, 5, tmp_path)
    sn.fit(sn.mlp((4, 3)), blobs, config, checkpoint=tmp_path)
    forget(tmp_path)  # the model of the last one is written
    assert sorted(path.name for path in tmp_path.iterdir()) == ["earlier", "earlier-2"]
    assert [len(list((tmp_path / name).iterdir())) for name in ("earlier", "earlier-2")] == [len(names)] * 2


def test_nothing_is_left_of_a_finished_run(blobs: Data, tmp_path: Path) -> None:
    sn.fit(sn.mlp((4, 3)), blobs, sn.TrainConfig(epochs=1), checkpoint=tmp_path / "kept")
    forget(tmp_path / "kept")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_is_named_too(number: signal.Signals, tmp_path: Path) -> None:
    keeper = checkpoints.Keeper(Checkpoints(tmp_path), {})
    with pytest.raises(KeyboardInterrupt, match=f"stopped by {number.name}, at once") as caught, keeper.listening():
        os.kill(os.getpid(), number)
        os.kill(os.getpid(), number)
    assert caught.value.number == number  # type: ignore[attr-defined]
