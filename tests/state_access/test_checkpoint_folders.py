"""Checkpoints in folders: which one a path means, damage, differences, the history of a key, and checks."""

import pickle
from decimal import Decimal
from pathlib import Path

import pytest
from backend_support import make_backend, state_of, take_snapshot
from operator_support import snapshot
from read_support import (
    COUNT,
    JOB_ID,
    UID,
    checkpoint_of,
    in_memory,
    metadata_of,
    operator_of,
    state_file,
    write,
    write_checkpoint,
)

from pyflinkstate.api import (
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    Row,
    Time,
    TimeWindow,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.format import OperatorSubtaskState
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.operator_state import DefaultOperatorStateBackend
from pyflinkstate.backends.types import encode_column
from pyflinkstate.errors import (
    CheckpointNotFoundError,
    ConfigurationError,
    CorruptCheckpointError,
    InvalidKeyError,
    StateTableError,
    UnknownOperatorError,
    UnknownStateError,
)
from pyflinkstate.runtime.storage import CheckpointFolders, RunHistory, TakenOver
from pyflinkstate.state_access import diff, history, open_checkpoint, verify
from pyflinkstate.state_access.tables import equal_rows
from pyflinkstate.state_access.writing import dry_run, edit
from pyflinkstate.testing import KeyedOneInputOperatorHarness, harness_of

OTHER_JOB = "f" * 32


def counts(path):
    return {row["key"]: row["count"] for row in open_checkpoint(path).keyed(UID).rows()}


class Mount:
    """A path whose text is not its ``str``."""

    def __init__(self, path):
        self.path = path

    def __fspath__(self):
        return str(self.path)


class TestPaths:
    def test_any_object_that_says_its_path_will_do(self, tmp_path):
        write(tmp_path, {"a": 1})
        for path in (tmp_path, Mount(tmp_path)):
            assert counts(path) == {"a": 1}
            assert verify(path).is_sound
            assert len(history(path, UID, "a")) == 1

    @pytest.mark.parametrize("path", [5, None, b"/checkpoints"])
    @pytest.mark.parametrize(
        "read",
        [
            open_checkpoint,
            verify,
            edit,
            lambda path: history(path, UID, "a"),
            lambda path: diff(path, path),
            lambda path: dry_run(path, None),
        ],
    )
    def test_what_is_no_path_is_refused(self, read, path):
        with pytest.raises(ConfigurationError, match=r"a path must be a string or a pathlib.Path, not "):
            read(path)


class TestWhichCheckpoint:
    def test_its_own_folder_and_its_metadata(self, tmp_path):
        folder = write(tmp_path, {"a": 1})
        assert counts(folder) == counts(f"{folder}/_metadata") == counts(f"file://{folder}") == {"a": 1}

    def test_the_newest_of_a_job(self, tmp_path):
        write(tmp_path, {"a": 1})
        write(tmp_path, {"a": 2}, 2)
        (tmp_path / JOB_ID / "chk-3").mkdir()  # not complete
        assert counts(str(tmp_path / JOB_ID)) == counts(str(tmp_path)) == {"a": 2}

    def test_one_that_an_older_run_published_late_is_passed_over(self, tmp_path):
        first, second = ("000001-aaaaaaaa", 0), ("000002-bbbbbbbb", 1)
        write(tmp_path, {"a": 1}, 1, runs=(first,))
        CheckpointFolders(str(tmp_path)).write_run(
            JOB_ID, second[0], TakenOver(RunHistory((first, second)), 1)
        )
        write(tmp_path, {"a": 9}, 2, runs=(first,), epoch=2)
        assert counts(str(tmp_path / JOB_ID)) == {"a": 1}

    def test_a_folder_of_several_jobs_is_refused(self, tmp_path):
        write(tmp_path, {"a": 1})
        write(tmp_path, {"a": 1}, job_id=OTHER_JOB)
        with pytest.raises(CheckpointNotFoundError, match=f"2 jobs: .* {JOB_ID}, {OTHER_JOB}"):
            open_checkpoint(str(tmp_path))

    @pytest.mark.parametrize("name", ["", "missing", f"{JOB_ID}"])
    def test_a_folder_without_one(self, tmp_path, name):
        with pytest.raises(CheckpointNotFoundError, match="no completed checkpoint or savepoint"):
            open_checkpoint(str(tmp_path / name))

    def test_facts(self, tmp_path):
        checkpoint = open_checkpoint(write(tmp_path, {"a": 1}, 4))
        offsets = checkpoint.offsets()
        assert (offsets.checkpoint_id, offsets.epoch, offsets.timestamp_ms) == (4, 4, 4_000)
        assert (offsets.source_position, offsets.watermarks) == ({"offset": 7}, {"a": 5})
        (operator,) = checkpoint.operators()
        assert (operator.uid, operator.parallelism, operator.max_parallelism) == (UID, 1, 128)
        assert operator.size_bytes == offsets.size_bytes == state_file(checkpoint.uri).stat().st_size
        (state,) = checkpoint.states(UID)
        assert (state.name, state.kind, state.key_type, state.value_type) == (
            "count",
            "VALUE",
            "STRING",
            "LONG",
        )
        assert checkpoint.schema(UID).names == ["key", "count"]
        assert checkpoint.schema(UID, "count").names == ["key", "value"]


class TestDamage:
    def test_an_altered_section(self, tmp_path):
        folder = write(tmp_path, {"a": 1, "b": 2})
        file = state_file(folder)
        data = bytearray(file.read_bytes())
        data[-40] ^= 1
        file.write_bytes(data)
        with pytest.raises(CorruptCheckpointError, match=f"{file.name}, state 'count' is damaged"):
            open_checkpoint(folder).keyed(UID).to_arrow()
        problems = verify(folder).problems
        assert [f"{file.name}, state 'count', key group" in problem for problem in problems] == [True]

    @pytest.mark.parametrize(("kept", "message"), [(None, "is missing"), (60, "truncated")])
    def test_a_missing_or_truncated_file(self, tmp_path, kept, message):
        folder = write(tmp_path, {"a": 1})
        file = state_file(folder)
        data = file.read_bytes()
        file.unlink()
        if kept is not None:
            file.write_bytes(data[:kept])
        problem, *_ = verify(folder).problems
        assert problem.startswith(str(file))
        assert message in problem
        with pytest.raises(CorruptCheckpointError, match=f"{file.name} .*{message}"):
            open_checkpoint(folder).keyed(UID)

    def test_a_savepoint_whose_metadata_is_damaged(self, tmp_path):
        folder = Path(write(tmp_path, {"a": 1})).rename(tmp_path / "savepoint")
        metadata = folder / "_metadata"
        metadata.write_bytes(metadata.read_bytes()[:-1])
        (problem,) = verify(folder).problems
        assert "_metadata" in problem
        assert "damaged" in problem or "truncated" in problem


class TestDiff:
    def changes(self, a, b, **options):
        (one,) = diff(a, b, **options)
        found = {row["key"]: (row["change"], row["old"], row["new"]) for row in one.table.rows()}
        return found, one.counts()

    def test_added_removed_and_changed(self, tmp_path):
        a = write(tmp_path, {"same": 1, "gone": 2, "more": 3}, 1)
        b = write(tmp_path, {"same": 1, "more": 4, "new": 5}, 2)
        found, counted = self.changes(a, b)
        assert found == {"gone": ("removed", 2, None), "more": ("changed", 3, 4), "new": ("added", None, 5)}
        assert counted == {"added": 1, "removed": 1, "changed": 1}
        assert self.changes(b, b) == ({}, {"added": 0, "removed": 0, "changed": 0})

    def test_it_comes_by_key_group(self, tmp_path):
        a = write(tmp_path, {f"k{n}": n for n in range(50)}, 1)
        b = write(tmp_path, {f"k{n}": -1 for n in range(50)}, 2)
        (one,) = diff(a, b)
        groups = one.table.to_arrow().column("key_group").to_pylist()
        assert groups == sorted(groups)
        assert len(groups) == 50

    def test_at_another_max_parallelism(self, tmp_path):
        a = write(tmp_path, {f"k{n}": n for n in range(50)}, 1)
        b = write(tmp_path, {f"k{n}": n or 7 for n in range(50)}, 2, max_parallelism=256)
        assert self.changes(a, b)[0] == {"k0": ("changed", 0, 7)}

    def test_an_operator_that_only_one_has(self, tmp_path):
        a, b = write(tmp_path, {"a": 1}, 1), write(tmp_path, {"b": 1}, 2, uid="other")
        assert [(one.uid, one.counts()["removed"], one.counts()["added"]) for one in diff(a, b)] == [
            (UID, 1, 0),
            ("other", 0, 1),
        ]
        with pytest.raises(UnknownOperatorError, match="'missing'"):
            diff(a, b, "missing")

    def test_a_value_that_does_not_fit_the_new_type_is_the_only_one_that_differs(self):
        def kept(type_info, odd):
            backend = make_backend(Types.STRING(), max_parallelism=1, own=KeyGroupRange(0, 0))
            for number in range(9):
                value = ValueStateDescriptor("value", type_info)
                state_of(backend, value, f"k{number}").update(odd if number == 5 else number)
            return checkpoint_of(take_snapshot(backend), max_parallelism=1)

        found, _ = self.changes(kept(Types.LONG(), 2**40), kept(Types.INT(), 7))
        assert found == {"k5": ("changed", 2**40, 7)}

    def test_keys_of_other_types_are_refused(self, tmp_path):
        a, b = write(tmp_path, {"a": 1}, 1), write(tmp_path, {1: 1}, 2, key_type=Types.LONG())
        with pytest.raises(StateTableError, match="keys of STRING and LONG"):
            diff(a, b)


class TestHistory:
    def test_the_values_of_a_key(self, tmp_path):
        for number in (1, 2, 3):
            write(tmp_path, {"a": number, "b": 0} if number != 2 else {"b": 0}, number)
        found = history(str(tmp_path / JOB_ID), UID, "a")
        assert [(moment.checkpoint_id, moment.timestamp_ms) for moment in found] == [
            (1, 1000),
            (2, 2000),
            (3, 3000),
        ]
        assert found.to_arrow().to_pylist() == [
            {"checkpoint_id": n, "epoch": n, "timestamp_ms": 1000 * n, "key": "a", "count": n} for n in (1, 3)
        ]

    def test_what_is_not_there(self, tmp_path):
        write(tmp_path, {"a": 1})
        with pytest.raises(UnknownOperatorError, match=r"no checkpoint in .* has an operator 'other'"):
            history(str(tmp_path), "other", "a")
        with pytest.raises(CheckpointNotFoundError, match="not the folder of a job"):
            history(str(tmp_path / "nothing"), UID, "a")

    @pytest.fixture
    def growing(self, tmp_path):
        """A job whose operator has no state, then one, then two, then the second alone."""
        other = ValueStateDescriptor("other", Types.LONG())
        for number, descriptors in enumerate(([], [COUNT], [COUNT, other], [other]), start=1):
            backend = make_backend(Types.STRING())
            for descriptor in descriptors:
                state_of(backend, descriptor, "a").update(number)
            state = OperatorSubtaskState(take_snapshot(backend))
            write_checkpoint(tmp_path, [operator_of([state])], number)
        return str(tmp_path / JOB_ID)

    def test_a_state_that_an_older_checkpoint_does_not_have(self, growing):
        found = history(growing, UID, "a", states=["other"])
        assert [moment.table is None for moment in found] == [True, True, False, False]
        assert [(row["epoch"], row["other"]) for row in found.to_arrow().to_pylist()] == [(3, 3), (4, 4)]
        both = history(growing, UID, "a", states=["count", "other"]).to_arrow().to_pylist()
        assert [(row["count"], row["other"]) for row in both] == [(2, None), (3, 3), (None, 4)]

    def test_without_states_each_checkpoint_shows_what_it_has(self, growing):
        found = history(growing, UID, "a").to_arrow().to_pylist()
        assert [(row["count"], row["other"]) for row in found] == [(2, None), (3, 3), (None, 4)]

    def test_a_key_that_an_older_checkpoint_could_not_have(self, tmp_path):
        write(tmp_path, {3: 1}, 1, key_type=Types.BYTE())
        write(tmp_path, {3: 2, 300: 5}, 2, key_type=Types.SHORT())
        for key, expected in ((300, [(2, 5)]), (3, [(1, 1), (2, 2)])):
            found = history(tmp_path, UID, key).to_arrow().to_pylist()
            assert [(row["epoch"], row["count"]) for row in found] == expected
        with pytest.raises(InvalidKeyError, match=f"operator '{UID}' has keys of SHORT"):
            history(tmp_path, UID, 70_000)

    def test_states_come_in_a_list(self, growing):
        with pytest.raises(ConfigurationError, match=r"states is a list, not 'count': give \['count'\]"):
            history(growing, UID, "a", states="count")

    def test_a_state_that_no_checkpoint_has(self, growing, tmp_path):
        with pytest.raises(UnknownStateError, match=r"'cuont' in any .*; it has 'count', 'other'"):
            history(growing, UID, "a", states=["other", "cuont"])
        write_checkpoint(tmp_path / "none", [operator_of([OperatorSubtaskState()])])
        with pytest.raises(UnknownStateError, match=f"operator '{UID}' has no keyed state in any checkpoint"):
            history(str(tmp_path / "none"), UID, "a")


class TestVerify:
    def test_a_sound_job(self, tmp_path):
        write(tmp_path, {"a": 1})
        folder = write(tmp_path, {"a": 2}, 2)
        found = verify(str(tmp_path / JOB_ID))
        assert (found.is_sound, len(found.checkpoints), found.files, found.unneeded) == (True, 2, 2, [])
        assert found.bytes_read > state_file(folder).stat().st_size

    def test_what_nobody_needs(self, tmp_path):
        folder = write(tmp_path, {"a": 1})
        shared = tmp_path / JOB_ID / "shared"
        shared.mkdir()
        stray = shared / f"1-{32 * '0'}"
        stray.touch()
        (Path(folder) / "stray").touch()
        (tmp_path / JOB_ID / "chk-9").mkdir()
        found = verify(str(tmp_path / JOB_ID))
        assert found.unneeded == [f"{folder}/stray", str(stray), str(tmp_path / JOB_ID / "chk-9")]

    def test_what_nobody_needs_of_a_job_beside_a_damaged_one(self, tmp_path):
        folder = write(tmp_path, {"a": 1})
        write(tmp_path, {"a": 1}, job_id=OTHER_JOB)
        state_file(folder).unlink()
        shared = tmp_path / OTHER_JOB / "shared"
        shared.mkdir()
        stray = shared / f"1-{32 * '0'}"
        stray.touch()
        found = verify(tmp_path)
        assert (len(found.problems), found.unneeded) == (1, [str(stray)])

    def test_no_checkpoint(self, tmp_path):
        with pytest.raises(CheckpointNotFoundError):
            verify(str(tmp_path))


def test_a_small_checkpoint_is_inside_its_metadata(tmp_path):
    backend = make_backend(Types.STRING())
    state_of(backend, COUNT, "a").update(1)
    folder = write_checkpoint(tmp_path, [operator_of([OperatorSubtaskState(take_snapshot(backend))])])
    assert counts(folder) == {"a": 1}
    assert verify(folder).is_sound


# --- what differs of timers and operator state between two checkpoints ----------------------------


STRING, LONG = Types.STRING(), Types.LONG()


class Reminders(KeyedProcessFunction):
    """Registers a timer of each kind."""

    def process_element(self, value, ctx):
        ctx.timer_service().register_event_time_timer(value[1])
        ctx.timer_service().register_processing_time_timer(value[1])


def reminded(*records, max_parallelism=128):
    harness = KeyedOneInputOperatorHarness(
        Reminders(), lambda value: value[0], STRING, max_parallelism=max_parallelism
    )
    for record in records:
        harness.process_element(record, 0)
    return checkpoint_of(harness.snapshot().state, max_parallelism=max_parallelism)


def told(found):
    """Return the rows of what differs, without key groups, in order."""
    rows = [tuple(value for name, value in row.items() if name != "key_group") for row in found.table.rows()]
    return sorted(rows, key=repr)


class TestTimers:
    @pytest.mark.parametrize("max_parallelism", [128, 16])
    def test_those_that_only_one_has(self, max_parallelism):
        old = reminded(("a", 10), ("b", 20))
        new = reminded(("a", 10), ("b", 30), ("c", 10), max_parallelism=max_parallelism)
        event, processing = diff(old, new)
        assert [(one.state, one.kind) for one in (event, processing)] == [
            ("user-timers, event_time", "timers"),
            ("user-timers, processing_time", "timers"),
        ]
        for one in (event, processing):
            assert told(one) == [("b", 20, "removed"), ("b", 30, "added"), ("c", 10, "added")]
            assert one.counts() == {"added": 2, "removed": 1, "changed": 0}

    def test_an_operator_without_timers_before(self):
        backend = make_backend(STRING)
        state_of(backend, ValueStateDescriptor("count", LONG), "a").update(1)
        found = {one.state: one for one in diff(checkpoint_of(take_snapshot(backend)), reminded(("a", 10)))}
        assert told(found["user-timers, event_time"]) == [("a", 10, "added")]
        assert told(found["count"]) == [("a", "removed", 1, None)]

    def test_those_of_windows(self):
        def counted(*times):
            harness = harness_of(
                lambda stream: (
                    stream.key_by(lambda value: value[0], key_type=STRING)
                    .window(TumblingEventTimeWindows.of(Time.milliseconds(10)))
                    .reduce(lambda one, other: other)
                )
            )
            for time in times:
                harness.process_element(("a", time), time)
            return checkpoint_of(harness.snapshot().state)

        found = diff(counted(1), counted(1, 11))
        (timers,) = (one for one in found if one.kind == "timers" and told(one))
        assert told(timers) == [("a", TimeWindow(10, 20), 19, "added")]


def kept(**states):
    """Return a checkpoint with operator state of one subtask for each element."""
    backend = DefaultOperatorStateBackend()
    for name, content in states.items():
        if isinstance(content, dict):
            backend.get_broadcast_state(MapStateDescriptor(name, STRING, LONG)).put_all(content)
        else:
            backend.get_list_state(ListStateDescriptor(name, STRING)).add_all(content)
    return checkpoint_of(OperatorSubtaskState(managed_operator=snapshot(backend)))


class TestOperatorState:
    def test_elements_of_lists_without_regard_to_order(self):
        (found,) = diff(kept(listed=["a", "b", "b", "c"]), kept(listed=["c", "b", "a", "d", "d"]))
        assert (found.state, found.kind) == ("listed", "operator_state")
        assert told(found) == [("added", "d"), ("added", "d"), ("removed", "b")]

    def test_entries_of_broadcast_state(self):
        (found,) = diff(kept(rules={"a": 1, "b": 2, "c": 3}), kept(rules={"a": 1, "b": 7, "d": 4}))
        assert told(found) == [
            ("b", "changed", 2, 7),
            ("c", "removed", 3, None),
            ("d", "added", None, 4),
        ]

    def test_a_state_or_an_operator_that_only_one_has(self):
        nothing = in_memory(metadata_of([operator_of([OperatorSubtaskState()], "other")]))
        for old, new, change in (
            (nothing, kept(listed=["a"]), "added"),
            (kept(listed=["a"]), nothing, "removed"),
        ):
            (found,) = diff(old, new)
            assert told(found) == [(change, "a")]

    def test_nothing_differs(self):
        both = kept(listed=["a"], rules={"a": 1})
        assert [one.counts() for one in diff(both, both)] == [{"added": 0, "removed": 0, "changed": 0}] * 2

    def test_other_types_are_refused(self):
        with pytest.raises(StateTableError, match="'one' is of STRING and of STRING to LONG"):
            diff(kept(one=["a"]), kept(one={"a": 1}))

    def test_pickles_are_told_apart_without_running_code(self):
        def pickled(*values):
            backend = DefaultOperatorStateBackend()
            backend.get_list_state(ListStateDescriptor("any")).add_all(values)
            return checkpoint_of(OperatorSubtaskState(managed_operator=snapshot(backend)))

        (found,) = diff(pickled(1, [2], {3}), pickled(1.0, [2], {4}), allow_pickle=True)
        assert told(found) == [("added", {4}), ("removed", {3})]


# --- which values count as equal when two checkpoints are compared --------------------------------


NAN = float("nan")
NESTED = Types.MAP(Types.STRING(), Types.LIST(Types.DOUBLE()))
ROW = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])


def twice(text):
    """Return a list that has one text twice, as one object, which pickles otherwise than two equal ones."""
    return [text, text]


CASES = [
    (Types.LONG(), [1, 2, None, None], [1, 3, None, 4], [True, False, True, False]),
    (Types.DOUBLE(), [NAN, NAN, 0.0], [NAN, 1.0, -0.0], [True, False, True]),
    (Types.STRING(), ["a", "", None], ["a", "b", ""], [True, False, False]),
    (Types.LIST(Types.LONG()), [[1, 2], [1], [], None], [[1, 2], [1, 2], [], []], [True, False, True, False]),
    (Types.LIST(Types.LONG()), [[1, 2], [3], [4, 5]], [[1, 9], [3], [4, 5]], [False, True, True]),
    (NESTED, [{"x": [1.0], "y": []}, {"x": [1.0]}], [{"y": [], "x": [1.0]}, {"x": [2.0]}], [True, False]),
    (ROW, [Row(a=1, b="x"), Row(a=1, b=None)], [Row(a=1, b="x"), Row(a=1, b="y")], [True, False]),
    (Types.TUPLE([Types.BIG_DEC()]), [(Decimal(1),)], [(Decimal(2),)], [False]),
]


@pytest.mark.parametrize(("type_info", "old", "new", "expected"), CASES)
def test_rows(type_info, old, new, expected):
    columns = (encode_column(type_info, values) for values in (old, new))
    assert equal_rows(type_info, *columns).tolist() == expected


def test_pickles_of_plain_values_are_compared_by_value():
    one, other = twice("ab"), ["ab", "".join("ab")]
    assert pickle.dumps(one) != pickle.dumps(other)
    pickled = Types.PICKLED_BYTE_ARRAY()
    columns = (encode_column(pickled, values) for values in ([one, 1, Decimal(1)], [other, 2, Decimal(1)]))
    assert equal_rows(pickled, *columns).tolist() == [True, False, True]
