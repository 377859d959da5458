"""The journal: what was written is read, what was torn is absent, and there is never too much of it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from moto.server import ThreadedMotoServer
from support_web import read_journal

from pyflinkstate.monitor.journal import Journal, JournalReader, decode, decode_all, encode

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


def event(number: int) -> dict[str, Any]:
    return {"event": "epoch", "at": number, "text": "<script>\n\u2028\ud800" * (number % 3)}


@settings(max_examples=30)
@given(st.dictionaries(st.text(), JSON))
def test_a_line_is_read_as_it_was_written(content: dict[str, Any]) -> None:
    made = {**content, "event": "epoch"}
    line = encode(made)
    assert line.count(b"\n") == 1
    assert decode(line.rstrip(b"\n")) == made


@given(st.binary())
def test_any_bytes_can_be_read(data: bytes) -> None:
    assert list(decode_all(data)) == []


def test_what_was_torn_is_absent_and_the_rest_is_there() -> None:
    first, second = encode(event(1)), encode(event(2))
    for length in range(len(second)):
        assert list(decode_all(first + second[:length])) in ([event(1)], [event(1), event(2)])
    for place in range(len(first) - 1):
        damaged = first[:place] + bytes([first[place] ^ 1]) + first[place + 1 :]
        assert list(decode_all(damaged + second)) == [event(2)]


def test_what_is_no_event_is_absent() -> None:
    for other in ([], {}, {"event": 1}, "event"):
        assert decode(encode(other).rstrip(b"\n")) is None  # type: ignore[arg-type]


def test_a_journal_is_read_in_order_over_files_and_runs(tmp_path: Path) -> None:
    for start, now_ms in ((0, 9), (50, 10)):
        journal = Journal(str(tmp_path), now_ms, segment_bytes=500, most_segments=100)
        for number in range(start, start + 50):
            journal.write([encode(event(number))])
    assert len(list((tmp_path / "journal").iterdir())) > 4
    assert read_journal(str(tmp_path)) == [event(number) for number in range(100)]


def test_there_is_never_more_than_the_bound(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), 1, segment_bytes=500, most_segments=3)
    for number in range(200):
        journal.write([encode(event(number))])
        sizes = [path.stat().st_size for path in (tmp_path / "journal").iterdir()]
        assert len(sizes) <= 3
        assert max(sizes) <= 500
    found = read_journal(str(tmp_path))
    assert found == [event(number) for number in range(200 - len(found), 200)]


def test_two_drivers_of_a_job_do_not_write_to_the_same_file(tmp_path: Path) -> None:
    journals = [Journal(str(tmp_path), 1), Journal(str(tmp_path), 1)]
    for journal in journals:
        journal.write([encode(event(1))])
    assert read_journal(str(tmp_path)) == [event(1)] * 2


def test_a_failed_write_spoils_no_later_one(tmp_path: Path) -> None:
    """A part of a line at the end of a file does not swallow the line after it."""
    journal = Journal(str(tmp_path), 1)
    journal.write([encode(event(1))])
    (file,) = (tmp_path / "journal").iterdir()
    with file.open("ab") as stream:
        stream.write(encode(event(2))[:-5])
    file.chmod(0o600)
    os.rename(tmp_path / "journal", tmp_path / "away")
    (tmp_path / "journal").write_text("in the way")
    with pytest.raises(OSError, match="journal"):
        journal.write([encode(event(2))])
    os.remove(tmp_path / "journal")
    os.rename(tmp_path / "away", tmp_path / "journal")
    journal.write([encode(event(3))])
    assert read_journal(str(tmp_path)) == [event(1), event(3)]


class Full:
    """A file system on which nothing more can be written, but everything else goes on."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open_append_stream(self, path: str) -> Any:
        self._inner.open_append_stream(path).close()
        raise OSError(errno.ENOSPC, "no space left on device")


def test_a_full_disk_costs_nothing_that_was_told_before(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), 1, segment_bytes=500, most_segments=3)
    for number in range(200):
        journal.write([encode(event(number))])
    before = read_journal(str(tmp_path))
    good, journal._fs = journal._fs, Full(journal._fs)
    for number in range(200, 250):
        with pytest.raises(OSError, match="no space"):
            journal.write([encode(event(number))])
    kept = read_journal(str(tmp_path))
    assert kept == before[-len(kept) :]
    assert len(kept) >= len(before) / 2
    journal._fs = good
    journal.write([encode(event(250))])
    assert read_journal(str(tmp_path)) == [*kept, event(250)]


def test_many_lines_at_once_become_as_many_files_as_they_need(tmp_path: Path) -> None:
    """A file is never longer than a reader reads."""
    journal = Journal(str(tmp_path), 1, segment_bytes=500, most_segments=100)
    journal.write([encode(event(number)) for number in range(100)])
    assert max(path.stat().st_size for path in (tmp_path / "journal").iterdir()) <= 500
    assert read_journal(str(tmp_path)) == [event(number) for number in range(100)]


HEAD: dict[str, Any] = {"event": "job", "at": 0, "name": "orders" * 100}


def test_each_further_file_begins_with_the_head_which_takes_no_room(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), 1, segment_bytes=500, most_segments=3)
    journal.head = encode(HEAD)
    for number in range(60):
        journal.write([encode(event(number))])
    files = [list(decode_all(path.read_bytes())) for path in sorted((tmp_path / "journal").iterdir())]
    assert [(file[0], file.count(HEAD)) for file in files] == [(HEAD, 1)] * 3
    told = [one for file in files for one in file[1:]]
    assert told == [event(number) for number in range(60 - len(told), 60)]
    assert len(told) > 6


def test_after_a_failed_write_the_head_comes_again(tmp_path: Path) -> None:
    """What was lost may have been the line that says which job it is."""
    journal = Journal(str(tmp_path), 1)
    journal.head = encode(HEAD)
    (tmp_path / "journal").write_text("in the way")
    with pytest.raises(OSError, match="journal"):
        journal.write([encode(event(1))])
    os.remove(tmp_path / "journal")
    journal.write([encode(event(2))])
    journal.write([encode(event(3))])
    assert read_journal(str(tmp_path)) == [HEAD, event(2), event(3)]


def test_if_one_file_cannot_be_read_all_of_them_are_read_later(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path), 1, segment_bytes=1)
    reader = JournalReader(str(tmp_path))
    for number in range(3):
        journal.write([encode(event(number))])
    last = sorted((tmp_path / "journal").iterdir())[-1]
    good, reader._fs = reader._fs, Unreadable(reader._fs, last.name)
    with pytest.raises(OSError, match="input/output error"):
        reader.read_new()
    reader._fs = good
    assert reader.read_new() == [event(number) for number in range(3)]
    assert reader.read_new() == []


class Unreadable:
    """A file system of which one file cannot be read."""

    def __init__(self, inner: Any, name: str) -> None:
        self._inner = inner
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def open_input_file(self, path: str) -> Any:
        if path.endswith(self._name):
            raise OSError(errno.EIO, "input/output error")
        return self._inner.open_input_file(path)


def test_no_journal_is_an_empty_one(tmp_path: Path) -> None:
    assert read_journal(str(tmp_path / "none")) == []


def test_what_was_written_survives_a_kill(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from pyflinkstate.monitor.journal import Journal, encode\n"
        "journal = Journal(sys.argv[1], 1)\n"
        "for n in range(20): journal.write([encode({'event': 'epoch', 'at': n})])\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)
    assert [found["at"] for found in read_journal(str(tmp_path))] == list(range(20))


def test_an_object_store_has_the_journal_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        host, port = server.get_host_and_port()
        options = f"endpoint_override={host}:{port}&scheme=http&region=us-east-1&allow_bucket_creation=true"
        uri = f"s3://jobs/one?{options}"
        journal = Journal(uri, 1, segment_bytes=500, most_segments=3)
        journal.head = encode(HEAD)
        for number in range(30):
            journal.write([encode(event(number))])
        found = read_journal(uri)
        assert found[0] == HEAD
        told = [one for one in found if one != HEAD]
        assert told == [event(number) for number in range(30)][-len(told) :]
        assert len(told) > 10
    finally:
        server.stop()
