"""Data sets are found, checked and fetched: real files from a real server that can be cut off, corrupted or slow."""

from __future__ import annotations

import gzip
import hashlib
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from slabnet.data import available, fetch
from slabnet.data.fetch import NoData, cache_folder, find, located
from slabnet.data.sources import PARTS, SOURCES, Source

FILE = PARTS[0]
IMAGES = np.random.default_rng(0).integers(0, 256, (30, 5, 4), dtype=np.uint8)
PLAIN = bytes([0, 0, 8, 3]) + np.array(IMAGES.shape, ">u4").tobytes() + IMAGES.tobytes()
PACKED = gzip.compress(PLAIN)


class _Server(ThreadingHTTPServer):
    """Serves one file; the first folder of the address says in which way."""

    daemon_threads = True
    asked: list[str]


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, _Server)
        server.asked.append(self.path)
        way = self.path.split("/")[1]
        body = PACKED
        if way == "corrupted":
            body = gzip.compress(PLAIN[:-1] + bytes([PLAIN[-1] ^ 1]))
        elif way == "long":
            body = PACKED + bytes(4096)
        elif way == "short":
            body = PACKED[: len(PACKED) // 2]
        elif way == "other-wrapper":
            body = gzip.compress(PLAIN, 1, mtime=7)
        elif way == "missing":
            self.send_error(404)
            return
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if way == "cut-off":
            body = body[: len(body) // 2]
        elif way == "slow":
            self.wfile.write(body[:10])
            self.wfile.flush()
            time.sleep(2.0)
            return
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Keep quiet."""


@pytest.fixture
def server() -> Iterator[_Server]:
    made = _Server(("127.0.0.1", 0), _Handler)
    made.asked = []
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield made
    made.shutdown()
    made.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SLABNET_DATA", raising=False)
    monkeypatch.delenv("SLABNET_MIRROR", raising=False)
    monkeypatch.delenv("SLABNET_OFFLINE", raising=False)
    return tmp_path / "cache" / "slabnet" / "tiny"


def source(server: _Server, *ways: str) -> Source:
    address = f"http://127.0.0.1:{server.server_address[1]}"
    mirrors = tuple(f"{address}/{way}/" for way in ways)
    return Source("tiny", mirrors, {FILE: hashlib.sha256(PLAIN).hexdigest()}, {FILE: len(IMAGES)})


def test_a_download_is_kept_and_not_made_twice(server: _Server, cache: Path) -> None:
    tiny = source(server, "good")
    assert located(tiny) == (None, [])
    assert np.array_equal(find(tiny, FILE), IMAGES)
    assert np.array_equal(find(tiny, FILE), IMAGES)
    assert len(server.asked) == 1
    assert located(tiny) == ([cache], [])
    assert cache == cache_folder(tiny)


def test_the_wrapper_may_differ_between_mirrors(server: _Server) -> None:
    assert np.array_equal(find(source(server, "other-wrapper"), FILE), IMAGES)


@pytest.mark.parametrize("way", ["corrupted", "short", "cut-off", "missing"])
def test_a_bad_mirror_is_passed_over(server: _Server, cache: Path, way: str) -> None:
    assert np.array_equal(find(source(server, way, "good"), FILE), IMAGES)
    assert [path.split("/")[1] for path in server.asked] == [way, "good"]
    assert (cache / f"{FILE}.gz").read_bytes() == PACKED
    assert not list(cache.glob("tmp*"))


def test_a_download_that_does_not_end_is_ended(server: _Server, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch, "MOST_BYTES", len(PACKED) + 1000)
    with pytest.raises(NoData, match="TooLarge"):
        find(source(server, "long"), FILE)
    assert not cache.exists() or list(cache.iterdir()) == []
    assert (find(source(server, "long", "good"), FILE) == IMAGES).all()


def test_encrypted_mirrors_come_first() -> None:
    for known in SOURCES.values():
        encrypted = [mirror.startswith("https://") for mirror in known.mirrors]
        assert encrypted == sorted(encrypted, reverse=True)
        assert encrypted[0]


def test_a_mirror_that_stalls_is_left(server: _Server) -> None:
    assert np.array_equal(find(source(server, "slow", "good"), FILE, timeout=0.3), IMAGES)
    assert [path.split("/")[1] for path in server.asked] == ["slow", "good"]


@pytest.mark.parametrize("damage", ["cut", "flip"])
def test_a_damaged_file_in_the_cache_is_set_aside_and_fetched_again(
    server: _Server, cache: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    tiny = source(server, "good")
    find(tiny, FILE)
    path = cache / f"{FILE}.gz"
    bad = PACKED[:-20] if damage == "cut" else gzip.compress(PLAIN[:-1] + b"\0" if PLAIN[-1] else PLAIN[:-1] + b"\1")
    path.write_bytes(bad)
    assert np.array_equal(find(tiny, FILE), IMAGES)
    assert path.read_bytes() == PACKED
    assert path.with_name(f"{FILE}.gz.bad").read_bytes() == bad
    assert str(path) in caplog.text
    assert "fetching it again" in caplog.text


def test_places_are_tried_in_order_and_files_of_others_left_alone(
    server: _Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    packaged = tmp_path / "share"
    packaged.mkdir()
    (packaged / FILE).write_bytes(PLAIN)  # not gzipped is fine too
    tiny = replace(source(server), folders=(packaged,))
    given = tmp_path / "given"
    (given / "tiny").mkdir(parents=True)
    wrong = given / "tiny" / f"{FILE}.gz"
    wrong.write_bytes(gzip.compress(PLAIN[:-1] + bytes([PLAIN[-1] ^ 8])))
    monkeypatch.setenv("SLABNET_DATA", str(given))
    assert np.array_equal(find(tiny, FILE), IMAGES)
    assert wrong.is_file()
    assert "looking elsewhere" in caplog.text
    own = bytes([0, 0, 8, 3]) + np.array((2, 5, 4), ">u4").tobytes() + IMAGES[:2].tobytes()
    wrong.write_bytes(gzip.compress(own))  # somebody's own data of another size
    assert np.array_equal(find(tiny, FILE), IMAGES[:2])


def test_with_nothing_found_one_line_says_where_it_looked(server: _Server, tmp_path: Path) -> None:
    with pytest.raises(NoData) as error:
        find(source(server, "missing", "corrupted"), FILE)
    said = str(error.value)
    assert "\n" not in said
    for part in ("tiny", FILE, "missing", "SHA-256", "SLABNET_DATA", str(tmp_path / "cache")):
        assert part in said


def test_what_is_listed_is_what_would_be_taken(
    server: _Server, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged file where one looks first does not hide a whole one further on."""
    tiny, own = source(server, "good"), tmp_path / "own" / "tiny"
    own.mkdir(parents=True)
    bad = own / f"{FILE}.gz"
    bad.write_bytes(gzip.compress(PLAIN[:-1] + bytes([PLAIN[-1] ^ 1])))
    monkeypatch.setenv("SLABNET_DATA", str(own.parent))
    assert located(tiny) == (None, [bad])
    find(tiny, FILE)
    assert located(tiny) == ([cache], [bad])
    bad.write_bytes(PACKED)
    assert located(tiny) == ([own], [])


def test_offline_nothing_is_asked(server: _Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLABNET_OFFLINE", "1")
    with pytest.raises(NoData, match="SLABNET_OFFLINE is set"):
        find(source(server, "good"), FILE)
    assert server.asked == []


def test_a_mirror_of_ones_own_comes_first(server: _Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLABNET_MIRROR", f"http://127.0.0.1:{server.server_address[1]}/good")
    assert np.array_equal(find(source(server, "missing"), FILE), IMAGES)
    assert server.asked == [f"/good/tiny/{FILE}.gz"]


def test_every_source_has_two_mirrors_and_four_files() -> None:
    for known in SOURCES.values():
        assert len(known.mirrors) == 2
        assert set(known.sha256) == set(known.rows) == set(PARTS)
    assert [part["name"] for part in available()] == ["digits", *SOURCES]
    assert fetch.TIMEOUT > 1
