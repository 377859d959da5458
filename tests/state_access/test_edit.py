"""Changed checkpoints: what is put, deleted, renamed and migrated is what a backend restores."""

import operator
import random
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from backend_support import PICKLED, Snapshot, chained, make_backend, restore, state_of, take_snapshot
from read_support import (
    COUNT,
    JOB_ID,
    UID,
    checkpoint_of,
    checkpoint_with,
    content,
    filled,
    restored,
    state_file,
    write,
)
from support_runtime import tree
from tiers import cases

from pyflinkstate import (
    ListStateDescriptor,
    MapStateDescriptor,
    StateTtlConfig,
    Time,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.heap.timer_queue import Timer
from pyflinkstate.backends.keys import key_group_range
from pyflinkstate.backends.snapshots import ChangeHistory
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
from pyflinkstate.runtime.storage import streams
from pyflinkstate.state_access import open_checkpoint
from pyflinkstate.state_access.writing import CheckpointEdit, dry_run, edit

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


def test_values_are_put(tmp_path):
    checkpoint = filled(range(20))
    table = pa.table({"key": ["k3", "new"], "value": [-3, 33]})
    written = edit(checkpoint).put(UID, "value", table).write(tmp_path / "s")
    (backend,) = restored(written)
    assert content([backend], "k3")[0] == -3
    assert content([backend], "new") == (33, [], {}, None, None)
    assert content([backend], "k4") == content(restored_in_memory(checkpoint), "k4")


def test_of_two_rows_for_a_key_the_last_counts(tmp_path):
    table = {"key": ["k1", "k1"], "value": [5, 6]}
    written = edit(filled([1])).put(UID, "value", table).write(tmp_path / "s")
    assert values(written) == {"k1": 6}


def test_elements_become_the_list_of_their_key_in_the_order_of_positions(tmp_path):
    table = {"key": ["k1", "k2", "k1"], "position": [1, 0, 0], "value": ["b", "c", "a"]}
    written = edit(filled(range(3))).put(UID, "list", table).write(tmp_path / "s")
    assert values(written, "list")["k1"] == ["a", "b"]
    assert values(written, "list")["k2"] == ["c"]
    assert values(written, "list")["k0"][0] == "é0"


def test_whole_lists_are_put(tmp_path):
    table = {"key": ["k1"], "value": [["x", "y"]]}
    written = edit(filled(range(3))).put(UID, "list", table).write(tmp_path / "s")
    assert content(restored(written), "k1")[1] == ["x", "y"]


def test_map_entries_are_put_into_the_map_that_is_there(tmp_path):
    table = {"key": ["k1", "k1", "other"], "map_key": ["n", "m", "z"], "value": [70, 71, None]}
    written = edit(filled(range(3))).put(UID, "map", table).write(tmp_path / "s")
    backends = restored(written)
    assert content(backends, "k1")[2] == {"n": 70, "nothing": None, "": -1, "m": 71}
    assert content(backends, "other")[2] == {"z": None}


def test_whole_maps_are_put(tmp_path):
    table = pa.table({"key": ["k1"], "value": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64()))})
    written = edit(filled(range(3))).put(UID, "map", table).write(tmp_path / "s")
    assert content(restored(written), "k1")[2] == {"a": 1}


def test_a_pandas_frame_and_a_state_table_are_tables(tmp_path):
    checkpoint = filled(range(5))
    frame = checkpoint.entries(UID, "value").to_pandas()
    frame["value"] += 100
    written = edit(checkpoint).put(UID, "value", frame).put(UID, "list", checkpoint.entries(UID, "list"))
    assert values(written.write(tmp_path / "s")) == {f"k{n}": 100 + n for n in range(5)}


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


@pytest.mark.parametrize(
    "predicate", [pc.field("value") < 5, lambda row: row["value"] < 5], ids=["expression", "function"]
)
def test_values_are_deleted_where_a_predicate_holds(tmp_path, predicate):
    written = edit(filled(range(10))).delete_where(UID, "value", predicate).write(tmp_path / "s")
    assert sorted(values(written).values()) == [5, 6, 7, 8, 9]


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


def test_a_list_without_elements_is_gone(tmp_path):
    changed = edit(filled(range(3))).delete_where(UID, "list", pc.field("position") >= 0)
    assert values(changed.write(tmp_path / "s"), "list") == {}


def test_a_renamed_operator_keeps_state_and_watermark(tmp_path):
    checkpoint = filled(range(3))
    checkpoint.metadata.watermarks[UID] = 77
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


def test_a_value_is_migrated_by_a_function_to_another_kind_and_name(tmp_path):
    history = ListStateDescriptor("history", Types.STRING())
    written = edit(filled(range(5))).migrate(
        UID, "value", history, lambda value: None if value == 3 else [str(value)] * value
    )
    written = written.write(tmp_path / "s")
    (backend,) = restored(written)
    assert list(state_of(backend, history, "k2").get()) == ["2", "2"]
    assert list(state_of(backend, history, "k3").get()) == []
    assert "value" not in backend.registered_kv_states


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


def test_an_empty_list_is_a_list_that_is_gone(tmp_path):
    changed = edit(filled(range(3))).put(UID, "list", {"key": ["k1", "new"], "value": [[], []]})
    changed.migrate(UID, "value", ListStateDescriptor("numbers", Types.LONG()), lambda value: [value] * value)
    written = changed.write(tmp_path / "s")
    assert sorted(values(written, "list")) == ["k0", "k2"]
    assert values(written, "numbers") == {"k1": [1], "k2": [2, 2]}


def test_an_empty_map_is_a_map_that_is_gone(tmp_path):
    counts = MapStateDescriptor("counts", Types.STRING(), Types.LONG())
    changed = edit(filled(range(3))).put(UID, "map", {"key": ["k1", "new"], "value": [{}, {}]})
    changed.migrate(UID, "value", counts, lambda value: {str(n): n for n in range(value)})
    written = changed.write(tmp_path / "s")
    assert sorted(values(written, "map")) == ["k0", "k2"]
    assert values(written, "counts") == {"k1": {"0": 0}, "k2": {"0": 0, "1": 1}}


def test_a_renamed_operator_takes_the_place_of_a_dropped_one(tmp_path):
    checkpoint = filled(range(3))
    checkpoint.metadata.watermarks.update({UID: 77, "dropped": 99})
    written = edit(checkpoint).rename_uid(UID, "dropped").write(tmp_path / "s")
    assert written.metadata.watermarks == {"a": 5, "dropped": 77}


# --- bad input -----------------------------------------------------------------------------------------


def test_nothing_is_written_over_anything(tmp_path):
    folder = write(tmp_path, {"a": 1})
    before = sorted(path.name for path in (tmp_path / folder).iterdir())
    with pytest.raises(ConfigurationError, match="is inside of"):
        edit(folder).write(f"{folder}/inner")
    savepoint = edit(folder).write(tmp_path / "savepoint").uri
    with pytest.raises(ConfigurationError, match="exists already"):
        edit(folder).put(UID, "count", {"key": ["a"], "value": [2]}).write(savepoint)
    assert values(open_checkpoint(savepoint), "count") == {"a": 1}
    assert sorted(path.name for path in (tmp_path / folder).iterdir()) == before
    assert values(open_checkpoint(folder), "count") == {"a": 1}


def test_an_empty_folder_is_taken_and_left_if_writing_fails(tmp_path):
    (tmp_path / "s").mkdir()
    with pytest.raises(UserFunctionError, match="key 'k1'"):
        edit(filled([1])).migrate(UID, "value", COUNT, lambda value: 1 / 0).write(tmp_path / "s")
    assert list((tmp_path / "s").iterdir()) == []
    edit(filled([1])).write(tmp_path / "s")


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


def test_a_list_with_time_to_live_is_not_made_of_a_text(tmp_path):
    to = ttl(ListStateDescriptor("value", Types.STRING()))
    with pytest.raises(StateTableError, match=r"state 'value', key 'k1': 'text' .*does not fit"):
        edit(filled([1])).migrate(UID, "value", to, lambda value: "text").write(tmp_path / "s")


@pytest.mark.parametrize("path", [None, 3, b"checkpoint"])
def test_a_checkpoint_is_edited_by_its_path(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / str(path)).mkdir()
    for begin in (edit, lambda path: dry_run(path, None)):
        with pytest.raises(ConfigurationError, match=r"a path must be a string or a pathlib.Path, not "):
            begin(path)


def test_a_savepoint_needs_a_path():
    for path in (None, "", 7):
        with pytest.raises(ConfigurationError, match="a path or URI, not to"):
            edit(filled([1])).write(path)


def test_a_migration_whose_value_does_not_fit_names_the_key(tmp_path):
    to = ValueStateDescriptor("value", Types.STRING())
    with pytest.raises(StateTableError, match=r"operator 'op', state 'value', key 'k1'.*STRING"):
        edit(filled([1])).migrate(UID, "value", to, lambda value: value).write(tmp_path / "s")


def test_what_a_migration_function_raises_is_its_own_error(tmp_path):
    message = r"operator 'op', state 'value', key 'k1': the migration function raised ValueError: no number"
    to = ValueStateDescriptor("value", Types.STRING())

    def refuse(value):
        raise ValueError("no number")

    with pytest.raises(UserFunctionError, match=message) as raised:
        edit(filled([1])).migrate(UID, "value", to, refuse).write(tmp_path / "s")
    assert isinstance(raised.value.__cause__, ValueError)


def test_a_migrated_value_that_cannot_be_stored_names_its_key(tmp_path):
    to = ValueStateDescriptor("value", PICKLED)
    with pytest.raises(StateTableError, match=r"operator 'op', state 'value', key 'k7': .* cannot be stored"):
        edit(filled(range(20))).migrate(
            UID, "value", to, lambda value: (lambda: 1) if value == 7 else value
        ).write(tmp_path / "s")


def test_a_key_that_must_not_be_loaded_hides_no_other_error(tmp_path):
    backend = make_backend()
    state_of(backend, COUNT, Decimal(1)).update(1)
    to = ValueStateDescriptor("count", Types.STRING())
    with pytest.raises(
        UserFunctionError, match="key that is pickled: the migration function raised KeyError"
    ):
        edit(checkpoint_with(backend)).migrate(UID, "count", to, {}.__getitem__).write(tmp_path / "s")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"key": ["a"]}, "no column 'value'"),
        ({"key": ["a"], "value": [1], "more": [1]}, "a column 'more'"),
        ({"key": ["a"], "value": ["text"]}, r"'text' in column 'value' does not fit LONG"),
        ({"key": ["a"], "value": [2**63]}, "LONG|Arrow table"),
        (17, "cannot be made an Arrow table"),
    ],
)
def test_a_table_that_does_not_fit_is_refused(table, message):
    with pytest.raises(StateTableError, match=message):
        edit(filled([1])).put(UID, "value", table)


def test_names_that_are_not_there(tmp_path):
    changed = edit(filled([1]))
    with pytest.raises(UnknownOperatorError, match="no operator 'opp'; it has 'op'"):
        changed.put("opp", "value", {})
    with pytest.raises(UnknownStateError, match="'vale'; it has 'value'"):
        changed.put(UID, "vale", {})
    with pytest.raises(UnknownStateError, match="no state 'x'"):
        changed.drop_state(UID, "x")
    with pytest.raises(ConfigurationError, match="operator 'op' already"):
        changed.bootstrap(UID, [], key="k", function={})
    with pytest.raises(ConfigurationError, match="a uid must be a non-empty string"):
        changed.rename_uid(UID, "")
    with pytest.raises(ConfigurationError, match="has a state 'list' already"):
        changed.migrate(UID, "value", ListStateDescriptor("list", Types.LONG()), lambda value: [value])
    with pytest.raises(ConfigurationError, match="descriptor is needed"):
        changed.migrate(UID, "value", "text")
    with pytest.raises(ConfigurationError, match="a predicate is"):
        changed.delete_where(UID, "value", 7)
    with pytest.raises(InvalidKeyError, match="operator 'op' has keys of STRING"):
        changed.delete(UID, [7])
    with pytest.raises(ConfigurationError, match="a list of keys, not 'k1'"):
        changed.delete(UID, "k1")
    with pytest.raises(ConfigurationError, match="a list of keys, not 7"):
        changed.delete(UID, 7)
    with pytest.raises(InvalidKeyError):
        changed.put(UID, "value", {"key": [7], "value": [1]})
    with pytest.raises(ParallelismError, match="operator 'op': "):
        changed.set_max_parallelism(UID, 0)
    with pytest.raises(UserFunctionError, match="the predicate raised KeyError"):
        changed.delete_where(UID, "value", lambda row: row["none"]).write(tmp_path / "s")
    with pytest.raises(StateTableError, match=r"operator 'op', state 'value'.* does not fit its entries"):
        edit(filled([1])).delete_where(UID, "value", pc.field("no") > 1).write(tmp_path / "t")


def test_the_checkpoint_that_is_changed_stays_as_it_was(tmp_path):
    folder = write(tmp_path, {"a": 1, "b": 2})
    before = {path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()}
    edit(folder).delete(UID, ["a"]).write(tmp_path / "s")
    assert {path.name: path.read_bytes() for path in (tmp_path / folder).iterdir()} == before


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
