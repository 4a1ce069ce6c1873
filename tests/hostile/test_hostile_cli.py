"""The command line with files of unknown origin and with signals: an exit code and one line, in little memory."""

from __future__ import annotations

import json
import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import slabnet as sn
from slabnet.cli.fit_command import _stoppable
from slabnet.config.settings import Recipe
from slabnet.core.containers import read_container, write_container
from slabnet.core.errors import SlabnetError, Stopped
from slabnet.core.signals import Halt, halting
from slabnet.experiments.files import read_pictures, read_record, write_pictures
from slabnet.store import FORMAT

MEMORY = 6 << 30  # addresses, most of which torch only reserves
# every file in one process: starting one takes longer than reading all of them
SCRIPT = """
import contextlib, io, json, sys
from slabnet.cli import app as cli
found = []
for words in json.load(sys.stdin):
    sys.argv = ["slabnet", *words]
    said, out = io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stderr(said), contextlib.redirect_stdout(out):
            cli.run()
    except SystemExit as left:
        found.append([left.code, said.getvalue(), out.getvalue()])
print(json.dumps(found))
"""


def commands(batch: list[list[str]]) -> list[tuple[int, str, str]]:
    run = subprocess.run(
        [sys.executable, "-c", SCRIPT],
        input=json.dumps(batch),
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY)),
    )
    return [(code, err, out) for code, err, out in json.loads(run.stdout)]


def test_exit_codes_and_one_line(tmp_path: Path) -> None:
    sn.save(sn.mlp((3, 4, 2), seed=0), tmp_path / "good.slab")
    header, tensors = read_container(tmp_path / "good.slab", "test", FORMAT)
    nan = {name: torch.full_like(value, float("nan")) for name, value in tensors.items()}
    huge = header | {"network": header["network"] | {"sizes": [2**40, 2**40]}}
    write_container(tmp_path / "nan.slab", header, nan)
    write_container(tmp_path / "huge.slab", huge, tensors)
    write_container(tmp_path / "name.slab", header, tensors | {"\x1b[31m": torch.zeros(1)})
    (tmp_path / "cut.slab").write_bytes((tmp_path / "good.slab").read_bytes()[:200])
    places, texts = pa.array([0] * 20_000, pa.int32()), pa.array(["x" * 1_000_000])
    pq.write_table(pa.table({"a": pa.DictionaryArray.from_arrays(places, texts)}), tmp_path / "t.parquet")
    (tmp_path / "c.toml").write_text("[train\n")
    (tmp_path / "t.csv").write_text("a,b\n1,2\n3,4\n")
    at = {path.name: str(path) for path in tmp_path.iterdir()}
    out = str(tmp_path / "out.slab")
    batch = [(1, ["inspect", at[name]]) for name in ("nan.slab", "huge.slab", "name.slab", "cut.slab")]
    batch += [(1, ["fit", at["t.parquet"], "--target", "a", "--out", out])]
    batch += [(2, ["fit", at["t.csv"], "--target", "a", "--config", at["c.toml"], "--out", out])]
    batch += [(2, ["inspect", str(tmp_path / "none.slab")]), (0, ["inspect", at["good.slab"], "--json"])]
    for (wanted, words), (code, said, _) in zip(batch, commands([words for _, words in batch]), strict=True):
        assert code == wanted, (words, said)
        assert said.count("\n") == (1 if wanted else 0), (words, said)
        assert said.strip().isprintable()
        assert "unexpected" not in said
    assert not Path(out).exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_before_and_after_training(number: signal.Signals, code: int, tmp_path: Path) -> None:
    handlers = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
    out = tmp_path / "m.slab"
    for kept, said in ((False, "nothing to resume"), (True, "--resume")):
        if kept:
            (tmp_path / "m.slab.checkpoints").mkdir()
            (tmp_path / "m.slab.checkpoints" / "checkpoint-0000000001.slab").touch()
        with _stoppable(out):
            pass
        assert handlers == [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]
        try:
            with pytest.raises(Stopped, match=said) as caught, _stoppable(out):
                os.kill(os.getpid(), number)
            assert caught.value.exit_code == code
            for second in (signal.SIGINT, signal.SIGTERM):  # the process is ending: the first one's word and code stay
                assert signal.getsignal(second) is signal.SIG_IGN
        finally:
            for n, handler in zip((signal.SIGINT, signal.SIGTERM), handlers, strict=True):
                signal.signal(n, handler)
    with pytest.raises(Halt), halting():
        os.kill(os.getpid(), number)
    assert handlers == [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGTERM)]


def test_pictures_carry_a_checksum_and_those_without_one_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.pictures.json"
    pictures: dict[str, Any] = {"dataset": "digits", "draws": 3, "image_shape": [8, 8], "network": {}}
    write_pictures(path, pictures)
    assert read_pictures(tmp_path) == [pictures | {"key": "a"}]
    path.write_text(path.read_text().replace("3", "4", 1))
    with pytest.raises(sn.FileError, match="damaged"):
        read_pictures(tmp_path)
    path.write_text(json.dumps(pictures))
    assert read_pictures(tmp_path) == [pictures | {"key": "a"}]


PLAIN = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9)
)
VALUES = st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner,
                      max_size=3), max_leaves=6)  # fmt: skip
BUDGET = settings(
    max_examples=200, derandomize=True, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def outcome(read: Callable[[Path], Any], path: Path) -> tuple[str, Any]:
    """What was said, or what was read; any other error is a failure."""
    try:
        return "", read(path)
    except SlabnetError as error:
        return str(error), None


@BUDGET
@given(st.data())
def test_any_value_anywhere_in_a_header(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "m.slab"
    sn.save(sn.mlp((3, 2), seed=0), path)
    header, tensors = read_container(path, "test", FORMAT)
    place = data.draw(st.sampled_from([header, header["network"], header["network"]["prior"]]))
    place[data.draw(st.sampled_from(sorted(place)))] = data.draw(VALUES)
    write_container(path, header, tensors)
    said, net = outcome(sn.load, path)
    assert said.isprintable()
    assert net is None or all(bool(torch.isfinite(value).all()) for value in net.state_dict().values())


@BUDGET
@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_as_settings_and_as_a_record(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "c.toml").write_bytes(content)
    (tmp_path / "r.json").write_bytes(content)
    for read, name in ((Recipe.from_toml, "c.toml"), (sn.TrainConfig.from_toml, "c.toml"), (read_record, "r.json")):
        assert outcome(read, tmp_path / name)[0].isprintable()
