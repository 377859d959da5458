"""Savepoints that Flink wrote: what is in them, and what is in those that are written from them."""

from __future__ import annotations

import pytest
from flink_savepoints import (
    EVERY,
    FOLDERS,
    REFUSED,
    Content,
    content_of,
    keyed_files,
    load,
    reader_of,
    rewritten,
)

from pyflinkstate.backends.flink_format import (
    READER_STATE,
    kafka_offsets,
    operator_id,
    read_metadata,
    read_operator_state,
)
from pyflinkstate.errors import CorruptCheckpointError, IncompatibleCheckpointError

pytestmark = pytest.mark.skipif(not FOLDERS, reason="there are no golden savepoints")

#: Python has no years before 1.
UNREADABLE = {"local_date"}
#: A native file with values of Kryo, whose end only Kryo knows, cannot be read.
CLOSED = {operator_id("values")}
JAVA = [name for name in FOLDERS if "java" in name]


def closed_of(name: str) -> set[bytes]:
    return CLOSED if "java-native" in name else set()


def golden(name: str) -> Content:
    return content_of(load(FOLDERS[name]), UNREADABLE, closed_of(name))


@pytest.mark.parametrize("name", FOLDERS)
def test_what_is_written_again_is_the_same(name: str) -> None:
    files = load(FOLDERS[name])
    again = rewritten(files, UNREADABLE, closed_of(name))
    assert again["_metadata"][:8].hex() == "4960672d00000003"
    assert content_of(again) == golden(name)
    assert len(golden(name)) > (1 if "kafka" in name else 10)


def test_the_splits_of_a_kafka_source_are_there() -> None:
    files = load(FOLDERS["2.3.0-kafka"])
    found = {}
    for operator in read_metadata(files["_metadata"], "_metadata").operators:
        for subtask in operator.subtasks.values() if operator.has_coordinator else ():
            handle = subtask.operator_state
            assert handle is not None
            for state in read_operator_state(handle, reader_of(handle.stream, files), "splits"):
                assert state.name == READER_STATE
                found |= kafka_offsets([bytes(item) for item in state.columns[0]])
    assert found == {("clicks", 0): 5, ("clicks", 1): 2, ("clicks", 2): -2, ("orders", 0): 1}


@pytest.mark.parametrize("name", JAVA)
def test_the_values_of_java_are_there(name: str) -> None:
    found = {
        state: (meta, rows)
        for (operator, state, meta), rows in golden(name).items()
        if operator == operator_id("kinds").hex()
    }
    assert found["value"][1] == ["(1, None, 4000)", "(2, None, 2000)", "(3, None, 3000)"]
    assert found["list"][1][0] == "(1, None, ['at 1000', 'at 4000'])"
    assert found["aggregating_ttl"][1][0] == "(1, None, (1700000000000, (5000, 2)))"
    assert found["map"][1][0] == "(1, None, {'at': '4000', 'none': None})"
    assert [row for row in found["_timer_state/event_user-timers"][1] if row.startswith("(1,")] == [
        "(1, None, 1010)",
        "(1, None, 4010)",
    ]


@pytest.mark.parametrize("name", [name for name in JAVA if "native" not in name])
def test_a_value_that_python_has_not_is_an_error_for_its_state_only(name: str) -> None:
    files = load(FOLDERS[name])
    for operator, file in keyed_files(files, read_metadata(files["_metadata"], name)):
        if operator.id in CLOSED:
            with pytest.raises(
                CorruptCheckpointError, match=r"state 'local_date'.*is no value that Python has"
            ) as caught:
                list(file.key_groups(file.handle.key_groups, UNREADABLE))
            assert caught.value.context["state"] == "local_date"
            assert len(list(file.key_groups(file.handle.key_groups, {"local_date_time"}))) == 3


@pytest.mark.parametrize("name", [name for name in JAVA if "native" in name])
def test_a_native_file_with_an_unknown_serializer_is_refused(name: str) -> None:
    files = load(FOLDERS[name])
    with pytest.raises(IncompatibleCheckpointError, match=r"KryoSerializer of .* --type canonical") as caught:
        list(keyed_files(files, read_metadata(files["_metadata"], name)))
    assert operator_id("values").hex() in str(caught.value)


@pytest.mark.parametrize("name", [name for name in EVERY if name not in FOLDERS])
def test_what_only_flink_reads_is_refused_by_name(name: str) -> None:
    (what,) = [what for end, what in REFUSED.items() if name.endswith(end)]
    with pytest.raises(
        IncompatibleCheckpointError, match=rf"^{name}: operator .* its state is {what}"
    ) as caught:
        read_metadata(load(EVERY[name])["_metadata"], name)
    assert "flink savepoint --type canonical" in str(caught.value)
    assert len(caught.value.context["operator"]) == 32


@pytest.mark.skipif("2.3.0-java" not in FOLDERS, reason="there is no golden savepoint of Flink 2.3")
@pytest.mark.parametrize("name", JAVA)
def test_all_releases_and_both_formats_hold_the_same(name: str) -> None:
    """Except for the position of the source, and the list of a POJO, which 1.20 writes with Kryo."""
    found, expected = golden(name), golden("2.3.0-java")
    same = {place for place in found if found[place] == expected.get(place)}
    assert {state for _, state, _ in {*found} - same} <= {"pojo", "SourceReaderState", "split", "union"}
    assert len(same) > 15
