from __future__ import annotations

import os
from pathlib import Path

import pytest

import slabnet as sn
from slabnet.core.devices import pick_device
from slabnet.core.files import LONGEST_NAME, check_writable, is_there, safe_text, write_atomically


def test_a_name_holds_the_old_content_or_all_of_the_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a file"
    write_atomically(path, b"old")

    def broken(*_: object) -> None:
        raise OSError(28, "disk full")

    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(sn.FileError, match="disk full"):
        write_atomically(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a file"]  # the temporary one is gone


def test_places_that_cannot_be_written(tmp_path: Path) -> None:
    with pytest.raises(sn.ArgumentError, match="in a folder that can be written"):
        write_atomically(tmp_path / "none" / "x", b"")
    with pytest.raises(sn.ArgumentError, match="in a folder that exists"):
        check_writable("t", tmp_path / "none" / "x")
    assert check_writable("t", tmp_path / "x") == tmp_path / "x"


def test_devices() -> None:
    assert pick_device("cpu").type == "cpu"
    assert pick_device("auto").type in ("cpu", "cuda", "mps")
    with pytest.raises(sn.ArgumentError, match="a device this machine has"):
        pick_device("cuda:99")


def test_a_new_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    write_atomically(tmp_path / "ours", b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "plain").stat().st_mode


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("b\r=1+1", "b =1+1"),
        ("\r\n=1+1", "'  =1+1"),
        ("\t@x", "' @x"),
        ("a\x1b[31m\x00", "a [31m "),
        ("-", "-"),
        ("+1e3", "+1e3"),
        ("\u00e9", "\u00e9"),
    ],
)
def test_text_for_spreadsheets(text: str, wanted: str) -> None:
    assert safe_text(text) == wanted


def test_a_device_or_a_pipe_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for write in (lambda path: write_atomically(path, b""), lambda path: check_writable("t", path)):
        with pytest.raises(sn.ArgumentError, match="got pipe, a device or a pipe"):
            write(tmp_path / "pipe")
    assert (tmp_path / "pipe").is_fifo()


def test_names_that_are_too_long(tmp_path: Path) -> None:
    longest = tmp_path / ("a" * LONGEST_NAME)
    write_atomically(check_writable("t", longest), b"x")
    assert is_there(longest)
    with pytest.raises(sn.ArgumentError, match=f"a name of at most {LONGEST_NAME} bytes"):
        check_writable("t", tmp_path / ("a" * (LONGEST_NAME + 1)))
    assert not is_there(tmp_path / ("a" * 300))
    assert not is_there("a\0b")
