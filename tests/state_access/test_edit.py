"""Changed checkpoints: what is put, deleted, renamed and migrated is what a backend restores."""

import operator
import os
import random
import threading
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from backend_support import (
    PICKLED,
    Snapshot,
    chained,
    fill,
    make_backend,
    one_of_each_kind,
    restore,
    state_of,
    take_snapshot,
)
from operator_support import NUMBERS, RULES, prepare
from read_support import (
    COUNT,
    JOB_ID,
    UID,
    checkpoint_of,
    checkpoint_with,
    content,
    filled,
    metadata_of,
    operator_of,
    restored,
    state_file,
    write,
)
from support_runtime import tree
from tiers import cases

from pyflinkstate.api import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.format import OperatorSubtaskState
from pyflinkstate.backends.heap import snapshot_runner
from pyflinkstate.backends.heap.timer_queue import Timer
from pyflinkstate.backends.keys import KeyGroupRange, key_group_range
from pyflinkstate.backends.operator_state import DefaultOperatorStateBackend
from pyflinkstate.backends.snapshots import ChangeHistory, RawKeyedStateBuffer, RawOperatorStateBuffer
from pyflinkstate.backends.types import VOID_NAMESPACE
from pyflinkstate.errors import (
    CheckpointStorageError,
    ConfigurationError,
    CorruptCheckpointError,
    InvalidKeyError,
    ParallelismError,
    PickledStateError,
    StateMigrationError,
    StateTableError,
    UnknownOperatorError,
    UnknownStateError,
    UserFunctionError,
)
from pyflinkstate.runtime.storage import CheckpointFolders, FileSystemCheckpointStorage, streams
from pyflinkstate.state_access import open_checkpoint, verify
from pyflinkstate.state_access.writing import CheckpointEdit, edit

EMPTY = (None, [], {}, None, None)


def values(checkpoint, name="value"):
    return {row["key"]: row[name] for row in checkpoint.keyed(UID, states=[name]).rows()}


@pytest.mark.parametrize("parallelism", [1, 3])
def test_what_is_not_changed_is_restored_as_it_was(tmp_path, parallelism):
    checkpoint = filled(range(40))
    before = content(restored_in_memory(checkpoint), "k7")
    written = edit(checkpoint).write(tmp_path / "savepoint")
    after = restored(written, parallelism=parallelism)
    assert content(after, "k7") == before
    assert written.metadata.source_position == {"offset": 7}
    assert written.metadata.epoch == checkpoint.metadata.epoch


def restored_in_memory(checkpoint):
    handles = [sub.managed_keyed for sub in checkpoint.operator(UID).subtasks]
    return [restore(handles, Types.STRING())]


#: By what it shows: a change of three keys, the state to look at, and what it is then.
CHANGES = {
    "values are put, and those of other keys stay": (
        lambda changed: changed.put(UID, "value", pa.table({"key": ["k1", "new"], "value": [-3, 33]})),
        "value",
        {"k0": 0, "k1": -3, "k2": 2, "new": 33},
    ),
    "entries are put into the map that is there": (
        lambda changed: changed.delete(UID, ["k0", "k2"]).put(
            UID, "map", {"key": ["k1", "k1", "new"], "map_key": ["n", "m", "z"], "value": [70, 71, None]}
        ),
        "map",
        {"k1": {"n": 70, "nothing": None, "": -1, "m": 71}, "new": {"z": None}},
    ),
    "a function makes another kind of values with another name, and removes some": (
        lambda changed: changed.migrate(
            UID,
            "value",
            ListStateDescriptor("history", Types.STRING()),
            lambda value: None if value == 1 else [str(value)] * 2,
        ),
        "history",
        {"k0": ["0", "0"], "k2": ["2", "2"]},
    ),
    "of two rows for a key the last counts": (
        lambda changed: changed.put(UID, "value", {"key": ["k1", "k1"], "value": [5, 6]}),
        "value",
        {"k0": 0, "k1": 6, "k2": 2},
    ),
    "elements become the list of their key, in the order of positions": (
        lambda changed: changed.delete(UID, ["k0"]).put(
            UID, "list", {"key": ["k1", "k2", "k1"], "position": [1, 0, 0], "value": ["b", "c", "a"]}
        ),
        "list",
        {"k1": ["a", "b"], "k2": ["c"]},
    ),
    "whole lists are put, and an empty one is gone": (
        lambda changed: changed.put(
            UID, "list", {"key": ["k0", "k1", "k2", "new"], "value": [["x", "y"], [], ["z"], []]}
        ),
        "list",
        {"k0": ["x", "y"], "k2": ["z"]},
    ),
    "whole maps are put, and an empty one is gone": (
        lambda changed: changed.put(
            UID, "map", {"key": ["k0", "k1", "k2", "new"], "value": [{"a": 1}, {}, {"b": None}, {}]}
        ),
        "map",
        {"k0": {"a": 1}, "k2": {"b": None}},
    ),
    "maps of Arrow are put": (
        lambda changed: changed.delete(UID, ["k0", "k2"]).put(
            UID,
            "map",
            pa.table({"key": ["k1"], "value": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))}),
        ),
        "map",
        {"k1": {"a": 1}},
    ),
    "an expression picks values": (
        lambda changed: changed.delete_where(UID, "value", pc.field("value") < 1),
        "value",
        {"k1": 1, "k2": 2},
    ),
    "a function picks values": (
        lambda changed: changed.delete_where(UID, "value", lambda row: row["value"] < 1),
        "value",
        {"k1": 1, "k2": 2},
    ),
    "a list without elements is gone": (
        lambda changed: changed.delete_where(UID, "list", pc.field("position") >= 0),
        "list",
        {},
    ),
    "a value that became an empty list is gone": (
        lambda changed: changed.migrate(
            UID, "value", ListStateDescriptor("numbers", Types.LONG()), lambda value: [value] * value
        ),
        "numbers",
        {"k1": [1], "k2": [2, 2]},
    ),
    "a value that became an empty map is gone": (
        lambda changed: changed.migrate(
            UID,
            "value",
            MapStateDescriptor("counts", Types.STRING(), Types.LONG()),
            lambda value: {str(n): n for n in range(value)},
        ),
        "counts",
        {"k1": {"0": 0}, "k2": {"0": 0, "1": 1}},
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_a_change_makes_of_a_state(tmp_path, what):
    change, name, expected = CHANGES[what]
    assert values(change(edit(filled(range(3)))).write(tmp_path / "s"), name) == expected


def test_keys_are_deleted_with_all_that_they_have(tmp_path):
    written = edit(filled(range(10))).delete(UID, ["k3", "k4", "not there"]).write(tmp_path / "s")
    backends = restored(written, parallelism=2)
    assert content(backends, "k3") == content(backends, "k4") == EMPTY
    assert content(backends, "k5")[0] == 5


def test_timers_of_deleted_keys_go_with_them(tmp_path):
    backend = make_backend(Types.STRING())
    queue = backend.create_timer_queue("event_user-timers")
    for key in ("a", "b"):
        state_of(backend, COUNT, key).update(1)
        queue.add(Timer(5, key, VOID_NAMESPACE), backend.key_group_of(key))
    written = edit(checkpoint_with(backend)).delete(UID, ["a"]).write(tmp_path / "s")
    assert [row["key"] for row in written.timers(UID).rows()] == ["b"]


def test_elements_and_map_entries_are_deleted_one_by_one(tmp_path):
    changed = edit(filled(range(3)))
    changed.delete_where(UID, "list", pc.field("value") == "")
    changed.delete_where(UID, "map", lambda row: row["map_key"] != "n" or row["key"] == "k2")
    backends = restored(changed.write(tmp_path / "s"))
    assert content(backends, "k1")[1:3] == (["é1", "\U0001f600"], {"n": 1})
    assert content(backends, "k2")[2] == {}


class Touch:
    """What a forged pickle names: loading it makes a file."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)

    def __eq__(self, other):
        return isinstance(other, Touch)

    def __hash__(self):
        return 7


@pytest.mark.parametrize("pickled", [PICKLED, Types.TUPLE([PICKLED, Types.LONG()])], ids=["whole", "in part"])
def test_a_predicate_loads_pickled_namespaces_only_if_they_may_be_loaded(tmp_path, pickled):
    backend, mark, seen = make_backend(Types.STRING()), tmp_path / "mark", []
    backend.set_current_key("a")
    namespace = Touch(mark) if pickled is PICKLED else (Touch(mark), 1)
    backend.get_partitioned_state(COUNT, namespace, pickled).update(1)
    checkpoint = checkpoint_with(backend)
    changed = edit(checkpoint).delete_where(UID, "count", lambda row: seen.append(row["namespace"]))
    changed.write(tmp_path / "s")
    (found,) = seen
    assert isinstance(found if pickled is PICKLED else found[0], bytes)
    assert not mark.exists()
    changed = edit(checkpoint, allow_pickle=True).delete_where(UID, "count", operator.itemgetter("namespace"))
    changed.write(tmp_path / "t")
    assert mark.exists()


def test_a_renamed_operator_keeps_state_and_watermark_also_in_the_place_of_a_dropped_one(tmp_path):
    checkpoint = filled(range(3))
    checkpoint.metadata.watermarks.update({UID: 77, "other": 99})
    written = edit(checkpoint).rename_uid(UID, "other").write(tmp_path / "s")
    assert [operator.uid for operator in written.operators()] == ["other"]
    assert written.metadata.watermarks == {"a": 5, "other": 77}
    assert content(restored(written, "other"), "k2")[0] == 2


def test_operators_and_states_are_dropped(tmp_path):
    written = edit(filled(range(3))).drop_state(UID, "map").write(tmp_path / "s")
    assert "map" not in [state.name for state in written.states(UID)]
    assert content(restored(written), "k1")[2] == {}
    assert edit(written).drop(UID).write(tmp_path / "t").operators() == []


@pytest.mark.parametrize("most", cases([1, 7, 4096], quick=[7]))
def test_keys_are_spread_over_other_key_groups(tmp_path, most):
    checkpoint = filled(range(50))
    written = edit(checkpoint).set_max_parallelism(UID, most).write(tmp_path / "s")
    assert written.operators()[0].max_parallelism == most
    backends = restored(written, parallelism=min(3, most))
    for number in range(50):
        assert content(backends, f"k{number}") == content(restored_in_memory(checkpoint), f"k{number}")


def test_a_type_is_widened_without_a_function(tmp_path):
    backend = make_backend(Types.STRING())
    narrow = ValueStateDescriptor("n", Types.INT())
    state_of(backend, narrow, "a").update(7)
    wide = ValueStateDescriptor("n", Types.LONG())
    written = edit(checkpoint_with(backend)).migrate(UID, "n", wide).write(tmp_path / "s")
    assert written.states(UID)[0].value_type == "LONG"
    with pytest.raises(StateMigrationError, match="cannot become STRING"):
        edit(written).migrate(UID, "n", ValueStateDescriptor("n", Types.STRING()))


def test_pickled_values_are_migrated_only_if_they_may_be_loaded(tmp_path):
    backend = make_backend(Types.STRING())
    state_of(backend, ValueStateDescriptor("n", Types.PICKLED_BYTE_ARRAY()), "a").update({"n": 7})
    to = ValueStateDescriptor("n", Types.LONG())
    with pytest.raises(PickledStateError, match="allow_pickle"):
        edit(checkpoint_with(backend)).migrate(UID, "n", to, lambda value: value["n"])
    changed = edit(checkpoint_with(backend), allow_pickle=True).migrate(
        UID, "n", to, lambda value: value["n"]
    )
    assert values(changed.write(tmp_path / "s"), "n") == {"a": 7}


def ttl(descriptor, seconds=100):
    descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.seconds(seconds)).build())
    return descriptor


def test_a_migrated_value_keeps_its_timestamp(tmp_path):
    backend = make_backend(Types.STRING(), clock=lambda: 500)
    state_of(backend, ttl(ValueStateDescriptor("n", Types.LONG())), "a").update(7)
    checkpoint = checkpoint_with(backend, lambda: 900)
    to = ttl(MapStateDescriptor("m", Types.STRING(), Types.LONG()), 50)
    written = edit(checkpoint, clock=lambda: 900).migrate(UID, "n", to, lambda value: {"seven": value})
    written = written.write(tmp_path / "s")
    (row,) = written.entries(UID, "m").to_arrow().to_pylist()
    assert row == {"key": "a", "map_key": "seven", "value": 7, "timestamp_ms": 500, "expires_at_ms": 50_500}


def test_values_that_are_put_get_the_present_or_their_own_timestamp(tmp_path):
    backend = make_backend(Types.STRING(), clock=lambda: 500)
    state_of(backend, ttl(ValueStateDescriptor("n", Types.LONG())), "a").update(7)
    changed = edit(checkpoint_with(backend), clock=lambda: 900)
    changed.put(UID, "n", {"key": ["b"], "value": [1]})
    changed.put(UID, "n", {"key": ["c"], "value": [2], "timestamp_ms": [600]})
    rows = changed.write(tmp_path / "s").entries(UID, "n").rows()
    assert {row["key"]: row["timestamp_ms"] for row in rows} == {"a": 500, "b": 900, "c": 600}


def test_increments_are_put_together(tmp_path):
    backend, parts = make_backend(Types.STRING()), []
    history = ChangeHistory(backend)
    for checkpoint_id in (1, 2, 3):
        for number in range(checkpoint_id, 40, checkpoint_id):
            state_of(backend, COUNT, f"k{number}").update(number * checkpoint_id)
        state_of(backend, COUNT, f"k{checkpoint_id}").clear()
        changes = history.cut(checkpoint_id, checkpoint_id - 1 or None)
        parts.append(Snapshot.of(backend, changes).write())
    expected = dict(backend.registered_kv_states["count"].items())
    written = edit(checkpoint_of(chained(*parts))).write(tmp_path / "s")
    handles = [sub.managed_keyed for sub in written.operator(UID).subtasks]
    assert all(handle.increments == () for handle in handles)
    (again,) = restored(written)
    assert dict(again.registered_kv_states["count"].items()) == expected


def test_undeclared_values_are_pickled_and_bytes_must_be_pickles(tmp_path):
    backend = make_backend(Types.STRING())
    pickled = ValueStateDescriptor("n", Types.PICKLED_BYTE_ARRAY())
    state_of(backend, pickled, "a").update({"n": 7})
    checkpoint = checkpoint_with(backend)
    changed = edit(checkpoint).put(UID, "n", {"key": ["b"], "value": [5]})
    changed.put(UID, "n", checkpoint.entries(UID, "n"))
    written = changed.write(tmp_path / "s")
    found = written.keyed(UID, allow_pickle=True).rows()
    assert {row["key"]: row["n"] for row in found} == {"a": {"n": 7}, "b": 5}
    with pytest.raises(StateTableError, match=r"pickle\.dumps"):
        edit(checkpoint).put(UID, "n", {"key": ["b"], "value": [b"raw"]})


def test_pickled_keys_are_found_and_put(tmp_path):
    backend = make_backend()
    state_of(backend, COUNT, ("a", 1)).update(7)
    state_of(backend, COUNT, "b").update(8)
    changed = edit(checkpoint_with(backend)).delete(UID, [("a", 1)])
    changed.put(UID, "count", {"key": ["c"], "value": [9]})
    written = changed.write(tmp_path / "s")
    (again,) = restored(written, key_type=Types.PICKLED_BYTE_ARRAY())
    assert dict(again.registered_kv_states["count"].items()) == {"b": 8, "c": 9}


@pytest.mark.parametrize("seed", range(25))
def test_random_changes_give_what_a_model_says(tmp_path, seed):
    chance = random.Random(seed)
    numbers = {f"k{n}": n for n in range(chance.randrange(60))}
    changed = edit(filled(range(len(numbers))))
    for _ in range(chance.randrange(1, 8)):
        picked = [f"k{chance.randrange(80)}" for _ in range(chance.randrange(1, 20))]
        match chance.randrange(4):
            case 0:
                new = {key: chance.randrange(100) for key in picked}
                changed.put(UID, "value", {"key": list(new), "value": list(new.values())})
                numbers |= new
            case 1:
                changed.delete(UID, picked)
                numbers = {key: value for key, value in numbers.items() if key not in picked}
            case 2:
                bound = chance.randrange(100)
                changed.delete_where(UID, "value", pc.field("value") < bound)
                numbers = {key: value for key, value in numbers.items() if value >= bound}
            case 3:
                changed.set_max_parallelism(UID, chance.choice([2, 64, 128, 1000]))
    backends = restored(changed.write(tmp_path / "s"), parallelism=2)
    found = {key: value for backend in backends for key, value in backend_values(backend)}
    assert found == numbers


def backend_values(backend):
    table = backend.registered_kv_states.get("value")
    return [] if table is None else table.items()


def test_pickles_that_a_migration_makes_are_pickled_once(tmp_path):
    pickled = ValueStateDescriptor("value", Types.PICKLED_BYTE_ARRAY())
    for function in (None, lambda value: value):
        changed = edit(filled(range(3)), allow_pickle=True).migrate(UID, "value", pickled, function)
        changed.put(UID, "value", {"key": ["k1"], "value": [5]})
        written = changed.write(tmp_path / f"s{function is None}")
        found = written.keyed(UID, states=["value"], allow_pickle=True).rows()
        assert {row["key"]: row["value"] for row in found} == {"k0": 0, "k1": 5, "k2": 2}


def test_a_pickled_state_is_renamed_without_being_loaded(tmp_path):
    backend = make_backend(Types.STRING())
    pickled = ValueStateDescriptor("n", Types.PICKLED_BYTE_ARRAY())
    state_of(backend, pickled, "a").update(Loaded())
    to = ValueStateDescriptor("m", Types.PICKLED_BYTE_ARRAY())
    changed = edit(checkpoint_with(backend)).migrate(UID, "n", to)
    seen = []
    changed.delete_where(UID, "m", lambda row: seen.append(row["value"]))
    Loaded.count = 0
    written = changed.write(tmp_path / "s")
    assert Loaded.count == 0
    assert [type(value) for value in seen] == [bytes]
    assert [row["key"] for row in written.entries(UID, "m").rows()] == ["a"]
    assert [state.name for state in written.states(UID)] == ["m"]


class Loaded:
    """Counts how often its pickles are loaded."""

    count = 0

    def __setstate__(self, state):
        Loaded.count += 1

    def __getstate__(self):
        return {"some": "state"}


def test_entries_are_deleted_by_when_they_expire(tmp_path):
    backend, now = make_backend(Types.STRING(), clock=lambda: now[0]), [500]
    state = ttl(MapStateDescriptor("m", Types.STRING(), Types.LONG()))
    for now[0] in (500, 900):
        state_of(backend, state, "a").put(f"at {now[0]}", 7)
    changed = edit(checkpoint_with(backend, lambda: 900), clock=lambda: 900)
    changed.delete_where(UID, "m", pc.field("expires_at_ms") < 100_900)
    rows = changed.write(tmp_path / "s").entries(UID, "m").rows()
    assert [(row["map_key"], row["timestamp_ms"]) for row in rows] == [("at 900", 900)]


def test_fewer_key_groups_than_subtasks(tmp_path):
    owns = [key_group_range(128, 4, subtask) for subtask in range(4)]
    backends = [make_backend(Types.STRING(), own) for own in owns]
    for number in range(40):
        key = f"k{number}"
        (owner,) = [one for one in backends if key_group(key) in one.key_group_range]
        state_of(owner, COUNT, key).update(number)
    changed = edit(checkpoint_of(*map(take_snapshot, backends))).set_max_parallelism(UID, 2)
    written = changed.write(tmp_path / "s")
    assert [(one.parallelism, one.max_parallelism) for one in written.operators()] == [(2, 2)]
    assert values(written, "count") == {f"k{number}": number for number in range(40)}


def key_group(key):
    return make_backend(Types.STRING()).key_group_of(key)


# --- bad input -----------------------------------------------------------------------------------------


def test_nothing_is_written_over_anything(tmp_path):
    folder = write(tmp_path, {"a": 1})
    before = {path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()}
    with pytest.raises(ConfigurationError, match="is inside of"):
        edit(folder).write(f"{folder}/inner")
    savepoint = edit(folder).write(tmp_path / "savepoint").uri
    with pytest.raises(ConfigurationError, match="exists already"):
        edit(folder).put(UID, "count", {"key": ["a"], "value": [2]}).write(savepoint)
    assert values(open_checkpoint(savepoint), "count") == {"a": 1}
    edit(folder).delete(UID, ["a"]).write(tmp_path / "s")
    assert {path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()} == before


def test_a_damaged_file_leaves_nothing_that_a_restore_would_take(tmp_path):
    folder = write(tmp_path, {f"k{n}": n for n in range(100)})
    file = state_file(folder)
    file.write_bytes(file.read_bytes()[:-200])
    with pytest.raises(CorruptCheckpointError):
        edit(folder).delete(UID, ["k1"]).write(tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_full_disk_is_one_error_and_leaves_nothing(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    folder = write(tmp_path, {f"k{n}": n for n in range(5000)})
    monkeypatch.setattr(streams, "flush_file", full)
    with pytest.raises(CheckpointStorageError, match="No space left"):
        edit(folder).delete(UID, ["k1"]).write(tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_a_key_that_must_not_be_loaded_hides_no_other_error(tmp_path):
    backend = make_backend()
    state_of(backend, COUNT, Decimal(1)).update(1)
    to = ValueStateDescriptor("count", Types.STRING())
    with pytest.raises(
        UserFunctionError, match="key that is pickled: the migration function raised KeyError"
    ):
        edit(checkpoint_with(backend)).migrate(UID, "count", to, {}.__getitem__).write(tmp_path / "s")


@pytest.mark.parametrize(
    ("error", "message", "change"),
    [
        (UnknownOperatorError, "no operator 'opp'; it has 'op'", lambda one: one.put("opp", "value", {})),
        (UnknownStateError, "'vale'; it has 'value'", lambda one: one.put(UID, "vale", {})),
        (UnknownStateError, "no state 'x'", lambda one: one.drop_state(UID, "x")),
        (
            ConfigurationError,
            "operator 'op' already",
            lambda one: one.bootstrap(UID, [], key="k", function={}),
        ),
        (ConfigurationError, "a uid must be a non-empty string", lambda one: one.rename_uid(UID, "")),
        (
            ConfigurationError,
            "has a state 'list' already",
            lambda one: one.migrate(UID, "value", LISTED, str),
        ),
        (ConfigurationError, "descriptor is needed", lambda one: one.migrate(UID, "value", "text")),
        (ConfigurationError, "a predicate is", lambda one: one.delete_where(UID, "value", 7)),
        (InvalidKeyError, "operator 'op' has keys of STRING", lambda one: one.delete(UID, [7])),
        (ConfigurationError, "keys is a list, not 'k1'", lambda one: one.delete(UID, "k1")),
        (ConfigurationError, "keys is a list, not 7", lambda one: one.delete(UID, 7)),
        (InvalidKeyError, "op", lambda one: one.put(UID, "value", {"key": [7], "value": [1]})),
        (ParallelismError, "operator 'op': ", lambda one: one.set_max_parallelism(UID, 0)),
        (ConfigurationError, "a path or URI, not to", lambda one: one.write(None)),
        (ConfigurationError, "a path or URI, not to", lambda one: one.write("")),
        (ConfigurationError, "a path or URI, not to", lambda one: one.write(7)),
        *(
            (StateTableError, message, lambda one, table=table: one.put(UID, "value", table))
            for table, message in [
                ({"key": ["a"]}, "no column 'value'"),
                ({"key": ["a"], "value": [1], "more": [1]}, "a column 'more'"),
                ({"key": ["a"], "value": ["text"]}, r"'text' in column 'value' does not fit LONG"),
                ({"key": ["a"], "value": [2**63]}, "LONG|Arrow table"),
                (17, "cannot be made an Arrow table"),
            ]
        ),
    ],
)
def test_a_change_that_cannot_be_made_is_refused_at_once(error, message, change):
    with pytest.raises(error, match=message):
        change(edit(filled([1])))


LISTED = ListStateDescriptor("list", Types.LONG())
TEXT = ValueStateDescriptor("value", Types.STRING())


def refuse(value):
    if value == 1:
        raise ValueError("no number")
    return str(value)


@pytest.mark.parametrize(
    ("error", "message", "change"),
    [
        (
            UserFunctionError,
            "the predicate raised KeyError",
            lambda one: one.delete_where(UID, "value", lambda row: row["none"]),
        ),
        (
            StateTableError,
            r"operator 'op', state 'value'.* does not fit its entries",
            lambda one: one.delete_where(UID, "value", pc.field("no") > 1),
        ),
        (
            StateTableError,
            r"state 'value', key 'k1': 'text' .*does not fit",
            lambda one: one.migrate(
                UID,
                "value",
                ttl(ListStateDescriptor("value", Types.STRING())),
                lambda value: "text" if value == 1 else [],
            ),
        ),
        (
            StateTableError,
            r"operator 'op', state 'value', key 'k1'.*STRING",
            lambda one: one.migrate(UID, "value", TEXT, lambda value: value if value == 1 else str(value)),
        ),
        (
            UserFunctionError,
            r"operator 'op', state 'value', key 'k1': the migration function raised ValueError: no number",
            lambda one: one.migrate(UID, "value", TEXT, refuse),
        ),
        (
            StateTableError,
            r"operator 'op', state 'value', key 'k1': .* cannot be stored",
            lambda one: one.migrate(
                UID,
                "value",
                ValueStateDescriptor("value", PICKLED),
                lambda value: (lambda: 1) if value == 1 else value,
            ),
        ),
    ],
)
def test_what_fails_while_it_is_written_is_told_and_leaves_nothing(tmp_path, error, message, change):
    changed = change(edit(filled(range(20))))
    (tmp_path / "s").mkdir()
    with pytest.raises(error, match=message) as raised:
        changed.write(tmp_path / "s")
    assert list((tmp_path / "s").iterdir()) == []
    assert "no number" not in message or isinstance(raised.value.__cause__, ValueError)
    edit(filled([1])).write(tmp_path / "s")  # an empty folder is taken


@pytest.mark.parametrize("name", ["", "chk-9", "superseded-1-chk-9", "shared/x", "savepoints/one"])
@pytest.mark.parametrize("by", ["path", "link", "uri"])
def test_a_savepoint_is_not_written_into_the_folder_of_a_job(tmp_path, name, by):
    checkpoint = write(tmp_path, {"a": 1}, 1)
    (tmp_path / "link").symlink_to(tmp_path / JOB_ID)
    folder = {"path": str(tmp_path / JOB_ID), "link": str(tmp_path / "link")}.get(by)
    target = f"{folder or (tmp_path / JOB_ID).as_uri()}/{name}"
    before = tree(tmp_path)
    with pytest.raises(ConfigurationError, match=f"is inside of the folder of job {JOB_ID}"):
        edit(checkpoint).write(target)
    assert tree(tmp_path) == before


def test_a_savepoint_that_cannot_be_opened_again_leaves_nothing(tmp_path, monkeypatch):
    checkpoint = write(tmp_path, {"a": 1}, 1)

    def refused(*_):
        raise CorruptCheckpointError("a flaw of the storage")

    monkeypatch.setitem(CheckpointEdit.write.__globals__, "open_checkpoint", refused)
    with pytest.raises(CorruptCheckpointError, match="a flaw"):
        edit(checkpoint).write(tmp_path / "savepoint")
    assert not (tmp_path / "savepoint").exists()


# --- what a function that migrates state sees of values with time to live, and which timestamps stay ---


#: Values live for 100 s; what was written at 0 s has expired when the checkpoint is changed, at 150 s.
WRITTEN_MS = (0, 100_000, 120_000)
NOW_MS = 150_000
STRING, LONG = Types.STRING(), Types.LONG()


def lasting(descriptor):
    config = StateTtlConfig.new_builder(Time.seconds(100)).disable_cleanup_in_background().build()
    descriptor.enable_time_to_live(config)
    return descriptor


@pytest.fixture
def checkpoint():
    """One key with a value of each of three moments in a list and in a map; the value is of the first."""
    backend, now = make_backend(STRING, clock=lambda: now[0]), [0]
    for number, now[0] in enumerate(WRITTEN_MS):
        state_of(backend, lasting(ListStateDescriptor("many", LONG)), "a").add(number)
        state_of(backend, lasting(MapStateDescriptor("named", STRING, LONG)), "a").put(f"n{number}", number)
        if number == 0:
            state_of(backend, lasting(ValueStateDescriptor("one", LONG)), "a").update(number)
            state_of(backend, lasting(ListStateDescriptor("old", LONG)), "a").add(number)
    return checkpoint_with(backend, lambda: NOW_MS)


def migrated(checkpoint, tmp_path, name, to, function):
    changed = edit(checkpoint, clock=lambda: NOW_MS).migrate(UID, name, to, function)
    return changed.write(tmp_path / "s")


def entries(savepoint, name, *columns):
    rows = savepoint.entries(UID, name, with_expired=True).rows()
    return [tuple(map(row.get, columns)) for row in rows]


@pytest.mark.parametrize("name", ["one", "old", "many", "named"])
def test_it_sees_what_the_program_sees(checkpoint, tmp_path, name):
    seen = []
    to = ListStateDescriptor("new", LONG)
    written = migrated(checkpoint, tmp_path, name, to, lambda value: seen.append(value) or [7])
    expected = {"one": [], "old": [], "many": [[1, 2]], "named": [{"n1": 1, "n2": 2}]}[name]
    assert seen == expected
    (again,) = restored(written)
    assert list(state_of(again, to, "a").get()) == [7] * len(expected)


def test_the_entries_of_a_map_keep_their_timestamps_by_their_keys(checkpoint, tmp_path):
    to = lasting(MapStateDescriptor("named", STRING, STRING))
    written = migrated(
        checkpoint, tmp_path, "named", to, lambda value: {"new": "x", "n2": "y", "n1": "z", "n0": "old"}
    )
    assert sorted(entries(written, "named", "map_key", "value", "timestamp_ms")) == [
        ("n0", "old", 120_000),
        ("n1", "z", 100_000),
        ("n2", "y", 120_000),
        ("new", "x", 120_000),
    ]


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (lambda value: [str(number) for number in value], [("1", 100_000), ("2", 120_000)]),
        (lambda value: ["first"], [("first", 120_000)]),
        (lambda value: ["a", "b", "c"], [("a", 120_000), ("b", 120_000), ("c", 120_000)]),
        (lambda value: [], []),
    ],
    ids=["as many", "fewer", "more", "none"],
)
def test_the_elements_of_a_list_keep_their_timestamps_if_they_are_as_many(
    checkpoint, tmp_path, function, expected
):
    to = lasting(ListStateDescriptor("many", STRING))
    written = migrated(checkpoint, tmp_path, "many", to, function)
    assert entries(written, "many", "value", "timestamp_ms") == expected


@pytest.mark.parametrize("name", ["many", "named"])
def test_another_kind_gets_the_latest_timestamp(checkpoint, tmp_path, name):
    to = lasting(ValueStateDescriptor("one", LONG))
    changed = edit(checkpoint, clock=lambda: NOW_MS).drop_state(UID, "one")
    written = changed.migrate(UID, name, to, len).write(tmp_path / "s")
    assert entries(written, "one", "value", "timestamp_ms") == [(2, 120_000)]


def test_what_no_file_says_to_expire_is_seen(tmp_path):
    backend = make_backend(STRING)
    state_of(backend, ListStateDescriptor("many", LONG), "a").add(5)
    to = lasting(ListStateDescriptor("many", LONG))
    written = migrated(checkpoint_with(backend), tmp_path, "many", to, lambda value: [*value, 6])
    assert entries(written, "many", "value", "timestamp_ms") == [(5, NOW_MS), (6, NOW_MS)]


@pytest.mark.parametrize("is_lasting", [False, True])
def test_keys_of_maps_are_stored_as_a_backend_stores_them(checkpoint, tmp_path, is_lasting):
    to = MapStateDescriptor("named", Types.FLOAT(), LONG)
    if is_lasting:
        lasting(to)
    written = migrated(checkpoint, tmp_path, "named", to, lambda value: {0.1: 1, 0.2: 2})
    state = state_of(*restored(written, clock=lambda: NOW_MS), to, "a")
    assert (state.get(0.1), state.get(0.2), state.contains(0.3)) == (1, 2, False)
    with pytest.raises(StateTableError, match="key 'a': NaN does not equal itself"):
        edit(checkpoint, clock=lambda: NOW_MS).migrate(
            UID, "named", to, lambda value: {float("nan"): 1}
        ).write(tmp_path / "t")


# --- files that a savepoint takes over from a checkpoint are copied whole, and checked on the way ---


FILES = ["managed_keyed", "raw_keyed", "managed_operator", "raw_operator"]


@pytest.fixture
def folder(tmp_path):
    """A checkpoint of one subtask with a file of each kind."""
    storage = CheckpointFolders(FileSystemCheckpointStorage(str(tmp_path), file_state_size_threshold=0))
    path, never = storage.begin(JOB_ID, 1), threading.Event()
    streams = storage.streams(path)
    backend, lists = make_backend(Types.STRING()), DefaultOperatorStateBackend()
    for number in range(30):
        fill(backend, one_of_each_kind(lambda declared: declared), f"k{number}", number)
    lists.get_list_state(NUMBERS).add_all([*range(1000)])
    lists.get_broadcast_state(RULES).put("rule", 1)
    tasks = [snapshot_runner(backend).snapshot(streams), prepare(lists, streams=streams)]
    for task in tasks:
        task.run()
    keyed, partitioned = RawKeyedStateBuffer(KeyGroupRange(0, 127)), RawOperatorStateBuffer()
    for key_group, data in {3: b"raw " * 50, 5: b"", 9: b"keyed"}.items():
        keyed.start_new_key_group(key_group)
        keyed.write(data)
    for data in (b"raw " * 50, b"", b"operator"):
        partitioned.start_new_partition()
        partitioned.write(data)
    state = OperatorSubtaskState(
        tasks[0].result(),
        keyed.snapshot().write(streams, never),
        tasks[1].result(),
        partitioned.snapshot().write(streams, never),
    )
    storage.complete(metadata_of([operator_of([state])]))
    return path


def sections_of(folder, name):
    """Return the sections of a file, by its attribute in a subtask's state."""
    (state,) = open_checkpoint(folder).operator(UID).subtasks
    handle = getattr(state, name)
    if name == "raw_operator":
        return handle.partitions
    if name == "managed_operator":
        return [entry.section for entry in handle.states.values()]
    return [section for sections in handle.sections.values() for section in sections.values()]


def bytes_of_file(checkpoint, name):
    (state,) = checkpoint.metadata.operators[0].subtasks
    stream = getattr(state, name).stream
    return checkpoint.reader.read(stream, 0, stream.size_bytes)


def alter(folder, name, place):
    (state,) = open_checkpoint(folder).operator(UID).subtasks
    file = Path(folder) / getattr(state, name).stream.path
    data = bytearray(file.read_bytes())
    data[place] ^= 1
    file.write_bytes(data)
    return file.name


def test_files_are_copied_as_they_are(tmp_path, folder):
    written = edit(folder).rename_uid(UID, "other").write(tmp_path / "s")
    for name in FILES:
        assert bytes_of_file(written, name) == bytes_of_file(open_checkpoint(folder), name)
    assert verify(written.uri).is_sound


@pytest.mark.parametrize("which", [0, -1])
@pytest.mark.parametrize("name", FILES)
def test_a_section_that_was_altered_is_not_copied(tmp_path, folder, name, which):
    section = sections_of(folder, name)[which]
    changed = edit(folder)
    file = alter(folder, name, section.offset + section.length // 2)
    with pytest.raises(CorruptCheckpointError, match=f"{file}.* is damaged: its bytes were altered"):
        changed.write(tmp_path / "s")
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize("name", ["managed_keyed", "managed_operator"])
def test_a_head_that_was_altered_is_not_copied(tmp_path, folder, name):
    changed = edit(folder)
    file = alter(folder, name, 30)
    with pytest.raises(CorruptCheckpointError, match=f"{file} is damaged: its head was altered"):
        changed.write(tmp_path / "s")
    assert not (tmp_path / "s").exists()


def test_what_is_dropped_needs_no_check(tmp_path, folder):
    names = list(open_checkpoint(folder).operator(UID).subtasks[0].managed_operator.states)
    first = sections_of(folder, "managed_operator")[0]
    changed = edit(folder).drop_state(UID, names[0])
    alter(folder, "managed_operator", first.offset + first.length // 2)
    written = changed.write(tmp_path / "s")
    assert list(written.operator(UID).subtasks[0].managed_operator.states) == names[1:]


@pytest.mark.parametrize("change", ["altered", "cut", "gone", "a link", "a pipe"])
def test_a_file_that_changes_after_it_was_verified_is_found_out_when_it_is_read(tmp_path, change):
    folder = write(tmp_path, {"a": 1, "b": 2})
    checkpoint = open_checkpoint(folder)
    assert verify(folder).is_sound
    file = state_file(folder)
    data = file.read_bytes()
    file.unlink()
    if change == "altered":
        file.write_bytes(data[:-30] + bytes([data[-30] ^ 1]) + data[-29:])
    elif change == "cut":
        file.write_bytes(data[:-30])
    elif change == "a link":
        (tmp_path / "elsewhere").write_bytes(data)
        file.symlink_to(tmp_path / "elsewhere")
    elif change == "a pipe":
        os.mkfifo(file)
    with pytest.raises(CorruptCheckpointError):
        checkpoint.keyed(UID).to_arrow()
