"""Savepoints that Flink wrote become savepoints of this project, and savepoints of Flink again."""

from __future__ import annotations

import gc
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import attrs
import flink_golden_values as golden
import pytest
from flink_savepoints import FOLDERS, GOLDEN
from local_environment import local_environment

from pyflinkstate import StreamExecutionEnvironment, Types, ValueStateDescriptor
from pyflinkstate.backends.flink_format import operator_id
from pyflinkstate.backends.flink_format.metadata import Subtask
from pyflinkstate.backends.format import KeyGroupEntries
from pyflinkstate.datastream import DataStream
from pyflinkstate.errors import (
    CheckpointError,
    CheckpointStorageError,
    ConfigurationError,
    IncompatibleCheckpointError,
)
from pyflinkstate.state_access import (
    convert_savepoint,
    diff,
    edit_flink_savepoint,
    new_savepoint,
    open_checkpoint,
)
from pyflinkstate.state_access.command_line import main
from pyflinkstate.state_access.flink import FlinkSavepoint, leaving

PROGRAMS = GOLDEN.parent / "programs"
REFUSED = ["2.3.0-java-changelog", "2.3.0-java-rocksdb-native", "2.3.0-java-unaligned"]
#: In their native format, an object of Kryo hides what is behind it.
JAVA = sorted(
    name for name in FOLDERS if "java" in name and name not in REFUSED and not name.endswith("-java-native")
)
Content = dict[tuple[str, ...], set[str]]
#: The uids of the operators of Java, which Flink 1.20 does not write into a savepoint.
UIDS = {
    uid: uid
    for uid in (
        *golden.SMALL,
        *golden.LATEST,
        "values",
        "tumbling-process",
        "sessions-reduce",
        "count-process",
        "ended",
    )
}
#: In thread mode they are pickles of a class of PyFlink.
ROWS = {"row", "row_named"}
VALUES = operator_id("values").hex()
#: States of which Python has no value, or only the bytes.
UNREADABLE = ("local_date", "kryo", "pojo")


def content(folder: str | Path, without: Collection[str] = UNREADABLE) -> Content:
    """Return what a savepoint of Flink has, by operator, state, key group, key and namespace, as text."""
    savepoint = FlinkSavepoint.open(folder)
    found: Content = {}
    for operator in savepoint.content.operators:
        for file in savepoint.keyed_files(operator):
            names = {state.name for state in file.head.states}.difference(without)
            for state, entries in file.key_groups(file.handle.key_groups, names):
                _add_entries(found, (operator.id.hex(), state.name), entries)
        for states in [] if operator.has_coordinator else savepoint.operator_states(operator):
            for one in states:
                of_state = found.setdefault((operator.id.hex(), one.name), set())
                of_state.update(map(_text, zip(*one.columns, strict=True)))
    return found


def _add_entries(found: Content, where: tuple[str, str], entries: KeyGroupEntries) -> None:
    spaces = entries.namespaces or [None] * len(entries)
    for key, space, value in zip(entries.keys, spaces, entries.values, strict=True):
        values = found.setdefault((*where, str(entries.key_group), _text(key), _text(space)), set())
        values.add(_text(value))


def _text(value: object) -> str:
    """Return a value as text, in which a POJO is a row, and an element of process mode may hold several."""
    if isinstance(value, list) and value and all(isinstance(one, bytes) for one in value):
        return str(b"".join(value))
    return str(value)


def python_program(mode: str, monkeypatch: pytest.MonkeyPatch) -> StreamExecutionEnvironment:
    """Return the program of PyFlink that wrote its savepoints, built here."""
    source = (PROGRAMS / "golden_pyflink.py").read_text().replace("from pyflink.java_gateway", "#")
    names: dict[str, Any] = {"__name__": "golden_pyflink"}
    exec(compile(source.replace("pyflink.", "pyflinkstate."), "golden_pyflink.py", "exec"), names)
    named = DataStream.uid

    def printed(stream: DataStream, uid: str) -> DataStream:
        made = named(stream, uid)
        made.print()
        return made

    env = local_environment(monkeypatch)
    with monkeypatch.context() as patched:
        patched.setattr(DataStream, "uid", printed)
        names["NOT_IN_THREAD_MODE"] |= ROWS
        names["build"](env.from_collection(["1000,1"]), mode, nulls=False)
    return env


@pytest.mark.parametrize("name", JAVA)
def test_state_of_java_there_and_back(name: str, tmp_path: Path) -> None:
    edit = edit_flink_savepoint(FOLDERS[name], uids=UIDS)
    has_values = any(one["id"] == VALUES for one in FlinkSavepoint.open(FOLDERS[name]).operators())
    if has_values:
        for state in UNREADABLE:
            edit.drop_state("values", state)
    here = edit.write(tmp_path / "here")
    back = convert_savepoint(here.uri, tmp_path / "back", "flink")
    assert content(back) == content(FOLDERS[name])


@pytest.mark.parametrize(
    "name", ["2.3.0-process", "2.3.0-process-native", "2.3.0-thread", "2.3.0-thread-native"]
)
def test_state_of_pyflink_there_and_back(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mode = name.split("-")[1]
    program = python_program(mode, monkeypatch)
    here = convert_savepoint(FOLDERS[name], tmp_path / "here", program=program, drop_unknown=mode == "thread")
    checkpoint = open_checkpoint(here, lambda: golden.CLOCK_MS)
    for state in ("value", "reducing", "aggregating_ttl", "list", "pickled_value"):
        entries = checkpoint.entries("kinds", state, allow_pickle=True)
        found: dict[int, list[object]] = {}
        for row in entries.to_arrow().to_pylist():
            value = row["value"]
            found.setdefault(row["key"], []).append(
                tuple(value.values()) if isinstance(value, dict) else value
            )
        expected = golden.PYTHON_KINDS[state]
        assert found == {key: value if state == "list" else [value] for key, value in expected.items()}, state
    back = convert_savepoint(here, tmp_path / "back", f"flink-{mode}", program=program)
    without = {*ROWS} if mode == "thread" else ()
    assert _alike(content(back, without)) == _alike(content(FOLDERS[name], without))


def _alike(found: Content) -> Content:
    """Return the content with pickles of either protocol as one."""
    return {
        where: {value.replace(r"\x80\x05", r"\x80\x04") for value in values}
        for where, values in found.items()
    }


def test_pickled_keys_are_where_pyflink_looks_for_them(tmp_path: Path) -> None:
    counts = ValueStateDescriptor("count", Types.LONG())
    seeded = new_savepoint("job").bootstrap(
        "ops", [{"k": 1, "n": 5}, {"k": "a", "n": 6}], key=lambda row: row["k"], function={counts: "n"}
    )
    here = seeded.write(tmp_path / "here").uri
    for mode, expected in (("process", {"38", "33"}), ("thread", {"102", "108"})):
        back = convert_savepoint(here, tmp_path / mode, f"flink-{mode}")
        assert {where[2] for where in content(back)} == expected, "as Flink 2.3 has placed them"


def _truncated(folder: Path) -> None:
    file = folder / "_metadata"
    file.write_bytes(file.read_bytes()[:-2000])


@pytest.mark.parametrize(
    ("name", "change", "given", "error", "message"),
    [
        (
            "2.3.0-process",
            None,
            {},
            ConfigurationError,
            "only the program knows its type",
        ),
        (
            "1.20.5-java",
            None,
            {},
            ConfigurationError,
            r"the uid of operator id [0-9a-f]{32} \('window-contents', REDUCING of StringSerializer,",
        ),
        *[
            (name, None, {}, IncompatibleCheckpointError, "flink savepoint --type canonical")
            for name in REFUSED
        ],
        ("2.3.0-java-checkpoint", shutil.rmtree, {}, CheckpointError, "has no _metadata"),
        (
            "2.3.0-process-native",
            _truncated,
            {"drop_unknown": True},
            CheckpointError,
            "is needed|are needed|left",
        ),
    ],
)
def test_what_cannot_be_converted(
    name: str,
    change: Callable[[Path], object] | None,
    given: dict[str, bool],
    error: type[Exception],
    message: str,
    tmp_path: Path,
) -> None:
    folder = tmp_path / "savepoint"
    shutil.copytree(GOLDEN / name, folder)
    if change is not None:
        change(folder)
    with pytest.raises(error, match=message):
        convert_savepoint(folder, tmp_path / "here", **given)
    assert not (tmp_path / "here").exists()


def test_what_java_cannot_read_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    states = {ValueStateDescriptor("any", Types.PICKLED_BYTE_ARRAY()): "n"}
    rows = [{"k": 1, "n": 5}]
    seeded = new_savepoint("job").bootstrap(
        "ops", rows, key=lambda row: row["k"], key_type=Types.LONG(), function=states
    )
    here = seeded.write(tmp_path / "here").uri
    with pytest.raises(ConfigurationError, match="operator 'ops': 'any' has pickles"):
        convert_savepoint(here, tmp_path / "back", "flink")
    assert not (tmp_path / "back").exists()


def test_nothing_is_left_if_the_last_file_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is ``_metadata``: a driver that dies before it leaves files that are no savepoint."""
    seeded, back, there = new_savepoint("job"), tmp_path / "back", set[str]()
    for uid in ("first", "second"):
        states = {ValueStateDescriptor("n", Types.LONG()): "n"}
        rows = [{"k": number, "n": number} for number in range(2000)]
        seeded.bootstrap(uid, rows, key=lambda row: row["k"], key_type=Types.LONG(), function=states)
    here = seeded.write(tmp_path / "here").uri

    def fails(*_: Any) -> None:
        there.update(path.name for path in back.iterdir())
        raise OSError("no space")

    monkeypatch.setattr(leaving, "write_whole", fails)
    with pytest.raises(CheckpointStorageError, match="no space"):
        convert_savepoint(here, back, "flink")
    assert len(there) == 2
    assert "_metadata" not in there
    assert not back.exists()


#: Converts a savepoint, and is killed where it would write the last file.
KILLED = """
import os, signal, sys
from pyflinkstate.state_access import convert_savepoint
from pyflinkstate.state_access.flink import leaving

leaving.write_whole = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
convert_savepoint(*sys.argv[1:], "flink")
"""


def test_what_a_killed_writer_leaves_is_no_savepoint_and_is_not_written_over(tmp_path: Path) -> None:
    back, states = tmp_path / "back", {ValueStateDescriptor("n", Types.LONG()): "n"}
    rows = [{"k": number, "n": number} for number in range(2000)]
    seeded = new_savepoint("job").bootstrap(
        "ops", rows, key=lambda row: row["k"], key_type=Types.LONG(), function=states
    )
    here = seeded.write(tmp_path / "here").uri
    killed = subprocess.run([sys.executable, "-c", KILLED, here, str(back)], check=False)
    assert (killed.returncode, len(list(back.iterdir()))) == (-signal.SIGKILL, 1)
    with pytest.raises(CheckpointError, match=f"{back}.*_metadata"):
        open_checkpoint(back)
    with pytest.raises(ConfigurationError, match="exists already"):
        convert_savepoint(here, back, "flink")
    shutil.rmtree(back)
    convert_savepoint(here, back, "flink")
    assert sum(map(len, content(back).values())) == 2000


@pytest.mark.parametrize("name", ["raw_keyed_state", "raw_operator_state"])
def test_raw_state_is_refused(name: str) -> None:
    savepoint = FlinkSavepoint.open(FOLDERS["2.3.0-java-files"])
    [operator] = [one for one in savepoint.content.operators if one.uid == "kinds"]
    handles: Any = {name: object()}
    raw = attrs.evolve(operator, subtasks={0: Subtask(**handles)})
    with pytest.raises(IncompatibleCheckpointError, match="has raw state, which only its function reads"):
        savepoint.keyed_files(raw)


def test_a_savepoint_of_flink_is_opened_like_another(tmp_path: Path) -> None:
    checkpoint = open_checkpoint(FOLDERS["2.3.0-java-files"])
    folder = Path(checkpoint.uri)
    table = checkpoint.entries("kinds", "value")
    del checkpoint
    assert sorted(table.to_arrow().column("value").to_pylist()) == [2000, 3000, 4000]
    assert folder.exists()
    del table
    gc.collect()
    assert not folder.exists()
    with pytest.raises(ConfigurationError, match="only the program knows its type"):
        open_checkpoint(FOLDERS["2.3.0-process"])
    compared = diff(FOLDERS["2.3.0-java-rocksdb"], FOLDERS["2.3.0-java-compressed"], "kinds")
    assert len(compared) > 10
    assert [one.state for one in compared if any(one.counts().values())] == []


def test_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(FOLDERS["2.3.0-java-files"])
    assert main(["show", folder]) == main(["show", folder, "kinds"]) == 0
    shown = capsys.readouterr().out
    assert "3681dd3b43c36f87b626db636033d1db" in shown
    assert "MapSerializer<StringSerializer, StringSerializer>" in shown
    assert main(["show", folder, "kinds", "--state", "value"]) == 0
    assert "4000" in capsys.readouterr().out
    here, back = str(tmp_path / "here"), str(tmp_path / "back")
    assert main(["convert", folder, here, "--to", "pyflinkstate", "--uid", "kinds=renamed"]) == 0
    assert main(["convert", here, back, "--to", "flink"]) == 0
    assert main(["convert", here, back, "--to", "flink"]) == 3
    assert operator_id("renamed").hex() in {one["id"] for one in FlinkSavepoint.open(back).operators()}
