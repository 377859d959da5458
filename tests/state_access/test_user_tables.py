"""Tables and rows of users become state: of every kind and type, in edits and in seeded savepoints."""

import datetime
import decimal
import pickle

import pyarrow as pa
import pytest
from backend_support import make_backend, state_of
from read_support import COUNT, UID, checkpoint_with, filled, restored
from slot_functions import Mean
from type_samples import MANY_BITS

from pyflinkstate.api import (
    AggregatingStateDescriptor,
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    Instant,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    Row,
    RowKind,
    StateTtlConfig,
    Time,
    TimeWindow,
    TimeWindowSerializer,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.operator_state import (
    DefaultOperatorStateBackend,
    OperatorStateRestoreOperation,
    assign_state,
)
from pyflinkstate.errors import (
    ConfigurationError,
    InvalidKeyError,
    PickledStateError,
    PyFlinkStateError,
    StateTableError,
    UnknownStateError,
    UnsupportedSessionError,
    UserFunctionError,
)
from pyflinkstate.runtime.storage import open_folder
from pyflinkstate.state_access import open_checkpoint
from pyflinkstate.state_access.writing import (
    KeyedStateBootstrapFunction,
    StateBootstrapFunction,
    edit,
    new_savepoint,
)
from pyflinkstate.state_access.writing.fitted_tables import key_check

PAIR = Types.TUPLE([Types.INT(), Types.BIG_DEC()])
NAMED = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.TUPLE([Types.STRING(), PAIR])])
TYPES = {
    "BIG_DEC": (Types.BIG_DEC(), decimal.Decimal("1.50")),
    "BIG_INT": (Types.BIG_INT(), 2**80),
    "long BIG_INT": (Types.BIG_INT(), -(2**MANY_BITS)),
    "SQL_DATE": (Types.SQL_DATE(), datetime.date(2020, 1, 2)),
    "SQL_TIME": (Types.SQL_TIME(), datetime.time(1, 2, 3)),
    "SQL_TIMESTAMP": (Types.SQL_TIMESTAMP(), datetime.datetime(2020, 1, 2, 3, 4, 5, 678000)),
    "INSTANT": (Types.INSTANT(), Instant(5, 6)),
    "bytes": (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x80ab."),
    "TUPLE": (Types.TUPLE([Types.STRING(), PAIR]), ("a", (1, decimal.Decimal("2.0")))),
    "ROW": (NAMED, Row.of_kind(RowKind.DELETE, a=1, b=("x", (1, decimal.Decimal(2))))),
    "nested pickle": (Types.TUPLE([Types.STRING(), Types.PICKLED_BYTE_ARRAY()]), ("a", {1: (2, 3)})),
}
VALUES = TYPES | {
    "LIST": (Types.LIST(PAIR), [(1, decimal.Decimal(2))]),
    "MAP": (Types.MAP(Types.STRING(), PAIR), {"a": (1, decimal.Decimal(2))}),
    "array": (Types.OBJECT_ARRAY(Types.STRING()), ["a", None]),
    "PICKLED": (Types.PICKLED_BYTE_ARRAY(), {"n": (1, 2)}),
}
FORMS = {
    "table": lambda table: table,
    "arrow": lambda table: table.to_arrow(),
    "pandas": lambda table: table.to_pandas(),
    "dicts": lambda table: table.to_arrow().to_pylist(),
    "columns": lambda table: table.to_arrow().to_pydict(),
    "rows": lambda table: list(table.rows()),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", VALUES)
def test_what_entries_returns_can_be_put_back_in_every_form(tmp_path, name, form):
    declared, value = VALUES[name]
    one = ValueStateDescriptor("one", declared)
    many = ListStateDescriptor("many", declared)
    named = MapStateDescriptor("named", Types.STRING(), declared)
    backend = make_backend(Types.STRING())
    state_of(backend, one, "k").update(value)
    state_of(backend, many, "k").add_all([value, value])
    state_of(backend, named, "k").put("x", value)
    checkpoint = checkpoint_with(backend)
    changed = edit(checkpoint).delete(UID, ["k"])
    for state in ("one", "many", "named"):
        changed.put(UID, state, FORMS[form](checkpoint.entries(UID, state)))
    (again,) = restored(changed.write(tmp_path / "s"))
    assert state_of(again, one, "k").value() == value
    assert list(state_of(again, many, "k").get()) == [value, value]
    assert dict(state_of(again, named, "k").items()) == {"x": value}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", [*TYPES, "PICKLED"])
def test_keys_in_every_form_are_the_keys_that_are_there(tmp_path, name, form):
    key_type, key = TYPES.get(name, (Types.PICKLED_BYTE_ARRAY(), ("a", 1)))
    if name == "nested pickle":
        key = ("a", (2, 3))
    backend = make_backend(key_type)
    state_of(backend, COUNT, key).update(1)
    checkpoint = checkpoint_with(backend)
    changed = edit(checkpoint, allow_pickle=True)
    table = FORMS[form](checkpoint.entries(UID, "count"))
    written = changed.put(UID, "count", table).set_max_parallelism(UID, 77).write(tmp_path / "s")
    (again,) = restored(written, key_type=key_type)
    assert dict(again.registered_kv_states["count"].items()) == {key: 1}


WINDOWS = {
    "time": (TimeWindowSerializer(), TimeWindow(0, 10)),
    "count": (CountWindowSerializer(), CountWindow(1)),
    "global": (GlobalWindowSerializer(), GlobalWindow.get()),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_in_every_form_are_the_windows_that_are_there(tmp_path, name, form):
    namespace_type, window = WINDOWS[name]
    backend = make_backend(Types.STRING())
    backend.set_current_key("k")
    backend.get_partitioned_state(COUNT, window, namespace_type).update(1)
    checkpoint = checkpoint_with(backend)
    changed = edit(checkpoint).put(UID, "count", FORMS[form](checkpoint.entries(UID, "count")))
    changed.put(UID, "count", {"key": ["new"], "window": [window], "value": [2]})
    found = changed.write(tmp_path / "s").entries(UID, "count").rows()
    assert {(row["key"], row["window"], row["value"]) for row in found} == {
        ("k", window, 1),
        ("new", window, 2),
    }
    with pytest.raises(StateTableError, match="'window' must not be null"):
        changed.put(UID, "count", {"key": ["new"], "window": [None], "value": [2]})


def test_python_values_without_a_declared_type_stay_as_they_are(tmp_path):
    backend = make_backend(Types.STRING())
    pickled = ValueStateDescriptor("n", Types.PICKLED_BYTE_ARRAY())
    state_of(backend, pickled, "a").update(0)
    given = [{"n": 1}, {"m": (2,)}, 3, 4.5, decimal.Decimal("1.50"), {7}]
    table = {"key": [f"k{place}" for place in range(len(given))], "value": given}
    (again,) = restored(edit(checkpoint_with(backend)).put(UID, "n", table).write(tmp_path / "s"))
    assert [state_of(again, pickled, key).value() for key in table["key"]] == given


@pytest.mark.parametrize(
    ("state", "table", "message"),
    [
        ("value", {"key": ["a"], "value": [None]}, "state 'value', key 'a': column 'value' is null"),
        ("list", {"key": ["a"], "value": pa.array([None], pa.list_(pa.string()))}, "'value' is null"),
        ("list", {"key": ["a"], "value": ["text"]}, r"'text' in column 'value' does not fit LIST\(STRING\)"),
        ("list", {"key": ["a"], "position": [0], "value": [None]}, "key 'a': column 'value' is null"),
        ("list", {"key": ["a"], "position": ["0"], "value": ["a"]}, "'position' must be whole numbers"),
        ("list", {"key": ["a"], "position": [None], "value": ["a"]}, "'position' must be whole numbers"),
        ("value", [{"key": "a", "value": 1}, {"key": "b", "valeu": 2}], "a column 'valeu'"),
        ("value", [{"key": "a", "value": 1}, {"key": "b"}], "key 'b': column 'value' is null"),
        ("value", [1, 2], "a list of dicts"),
        ("value", {"key": "ab", "value": [1, 2]}, "a column is a list of values, not 'ab'"),
        ("value", {"key": ["a", "b"], "value": [1]}, "different lengths"),
    ],
)
def test_cells_that_stand_for_nothing_are_refused(state, table, message):
    with pytest.raises(StateTableError, match=message):
        edit(filled([1])).put(UID, state, table)


PLACED = Types.TUPLE([Types.STRING(), Types.LONG()])


def with_tuple():
    backend = make_backend(Types.STRING())
    state_of(backend, ValueStateDescriptor("pair", PLACED), "a").update(("x", 1))
    return checkpoint_with(backend)


@pytest.mark.parametrize("form", ["dict", "struct"])
def test_the_fields_of_a_tuple_are_taken_by_their_names(tmp_path, form):
    given = [{"f1": 2, "f0": "y"}]
    if form == "struct":
        given = pa.array(given, pa.struct([("f1", pa.int64()), ("f0", pa.string())]))
    written = edit(with_tuple()).put(UID, "pair", {"key": ["a"], "value": given}).write(tmp_path / "s")
    assert [row["pair"] for row in written.keyed(UID).rows()] == [("y", 2)]


@pytest.mark.parametrize("form", ["dict", "struct"])
@pytest.mark.parametrize(
    "given", [{"name": "y", "count": 2}, {"f0": "y", "f2": 2}, {"f0": "y"}, {"f0": "y", "f1": 2, "f2": 3}]
)
def test_a_struct_with_other_names_is_no_tuple(form, given):
    cells = [given] if form == "dict" else pa.array([given])
    with pytest.raises(StateTableError, match=r"does not fit TUPLE\(STRING, LONG\)"):
        edit(with_tuple()).put(UID, "pair", {"key": ["a"], "value": cells})


def test_bytes_are_no_keys_where_keys_are_pickled():
    backend = make_backend()
    state_of(backend, COUNT, b"raw").update(1)
    changed = edit(checkpoint_with(backend))
    with pytest.raises(StateTableError, match=r"column 'key': .*pickle\.dumps"):
        changed.put(UID, "count", {"key": [b"raw"], "value": [1]})
    with pytest.raises(PickledStateError, match=f"operator '{UID}'.*allow_pickle"):
        changed.put(UID, "count", {"key": [b"\x80\x04cos\nsystem\n."], "value": [1]})


def test_keys_that_must_not_be_loaded_cannot_be_spread(tmp_path):
    backend = make_backend()
    state_of(backend, COUNT, datetime.date(2020, 1, 2)).update(1)
    changed = edit(checkpoint_with(backend)).set_max_parallelism(UID, 5)
    with pytest.raises(PickledStateError, match=f"operator '{UID}': a pickled value is of datetime.date"):
        changed.write(tmp_path / "s")
    assert not (tmp_path / "s").exists()


# --- keys of maps and namespaces that are put into a checkpoint are found by the program ----------


FLOAT, DOUBLE, LONG, PICKLED = Types.FLOAT(), Types.DOUBLE(), Types.LONG(), Types.PICKLED_BYTE_ARRAY()
NAN = float("nan")
is_lasting = pytest.mark.parametrize("is_lasting", [False, True], ids=["for ever", "for a time"])
ENTRIES = {
    "entries of Python": lambda key: {"map_key": [key], "value": [5]},
    "entries of Arrow": lambda key: {"map_key": pa.array([key]), "value": pa.array([5])},
    "a dict": lambda key: {"value": [{key: 5}]},
    "pairs": lambda key: {"value": [[(key, 5)]]},
}
forms = pytest.mark.parametrize("form", ENTRIES)


def mapped(key_type, key, is_lasting=False):
    """Return a checkpoint in which a map has one entry, and the state's descriptor."""
    descriptor = MapStateDescriptor("map", key_type, LONG)
    if is_lasting:
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    backend = make_backend(Types.STRING())
    state_of(backend, descriptor, "a").put(key, 1)
    return checkpoint_with(backend), descriptor


@forms
@is_lasting
@pytest.mark.parametrize(
    ("key_type", "key"),
    [(FLOAT, 0.1), (DOUBLE, 0.1), (Types.TUPLE([FLOAT, LONG]), (0.1, 1)), (PICKLED, 0.1), (PICKLED, "x")],
    ids=str,
)
def test_the_key_of_a_map_is_found(tmp_path, form, is_lasting, key_type, key):
    if form == "entries of Arrow" and isinstance(key, tuple):
        pytest.skip("Arrow has no tuples")
    checkpoint, descriptor = mapped(key_type, key, is_lasting)
    changed = edit(checkpoint, clock=lambda: 0).put(UID, "map", {"key": ["a"], **ENTRIES[form](key)})
    state = state_of(*restored(changed.write(tmp_path / "s")), descriptor, "a")
    assert state.get(key) == 5
    assert len(list(state.keys())) == 1


@forms
@is_lasting
@pytest.mark.parametrize(
    ("key_type", "good", "bad"),
    [
        (FLOAT, 1.0, NAN),
        (DOUBLE, 1.0, NAN),
        (Types.BIG_DEC(), decimal.Decimal(1), decimal.Decimal("NaN")),
        (Types.TUPLE([DOUBLE, LONG]), (1.0, 1), (NAN, 1)),
        (PICKLED, 1.0, NAN),
        (PICKLED, 1.0, (1, NAN)),
    ],
    ids=str,
)
def test_nan_is_no_key_of_a_map(form, is_lasting, key_type, good, bad):
    if form == "entries of Arrow" and not isinstance(bad, float):
        pytest.skip("Arrow has no such values")
    checkpoint, _ = mapped(key_type, good, is_lasting)
    with pytest.raises(
        StateTableError,
        match="NaN does not equal itself, so what is kept under it would never be found again",
    ):
        edit(checkpoint).put(UID, "map", {"key": ["a"], **ENTRIES[form](bad)})


def test_a_pickle_is_looked_into_if_that_runs_no_code():
    checkpoint, _ = mapped(PICKLED, 1.0)
    for bad, message in ((NAN, "NaN does not equal itself"), ([1], "unhashable")):
        with pytest.raises(StateTableError, match=message):
            edit(checkpoint).put(UID, "map", {"key": ["a"], "map_key": [pickle.dumps(bad)], "value": [5]})


def test_namespaces_are_found(tmp_path):
    backend = make_backend(Types.STRING())
    backend.set_current_key("a")
    backend.get_partitioned_state(COUNT, 0.1, FLOAT).update(1)
    checkpoint = checkpoint_with(backend)
    for number, namespaces in enumerate(([0.1], pa.array([0.1]))):
        table = {"key": ["a"], "namespace": namespaces, "value": [5]}
        (again,) = restored(edit(checkpoint).put(UID, "count", table).write(tmp_path / f"s{number}"))
        again.set_current_key("a")
        assert again.get_partitioned_state(COUNT, 0.1, FLOAT).value() == 5
        assert again.num_key_value_state_entries() == 1
    for namespaces in ([NAN], pa.array([NAN])):
        table = {"key": ["a"], "namespace": namespaces, "value": [5]}
        with pytest.raises(StateTableError, match=r"'namespace'.*NaN does not equal itself"):
            edit(checkpoint).put(UID, "count", table)


def test_keys_of_plain_types_need_no_look_at_each():
    plain = [Types.STRING(), LONG, Types.INT(), Types.BOOLEAN(), Types.BYTE()]
    assert [key_check(type_info) for type_info in plain] == [None] * len(plain)


# --- savepoints that are seeded with rows ------------------------------------------------------------------


TABLE = pa.table(
    {
        "who": ["a", "b", "a", "c"],
        "amount": [1, 2, 3, 4],
        "word": ["x", None, "y", "z"],
        "at": [10, 20, 30, 40],
    }
)
TOTAL = ValueStateDescriptor("total", Types.LONG())


class Totals(KeyedStateBootstrapFunction):
    def open(self, runtime_context):
        self.total = runtime_context.get_state(TOTAL)

    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + value["amount"])
        if ctx.timestamp() is not None:
            ctx.timer_service().register_event_time_timer(ctx.timestamp() + 100)


class Counting(KeyedProcessFunction):
    """An operator of a program, which emits as well."""

    def open(self, runtime_context):
        self.total = runtime_context.get_state(TOTAL)

    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + 1)
        yield value

    def on_timer(self, timestamp, ctx):
        raise AssertionError("timers do not fire")


class Names(StateBootstrapFunction):
    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.names = store.get_list_state(ListStateDescriptor("names", Types.STRING()))

    def process_element(self, value, ctx):
        self.names.add(value["who"])


def seeded(path, data=TABLE, **options):
    options = {"key": "who", "key_type": Types.STRING(), "function": Totals()} | options
    return new_savepoint("job").bootstrap("totals", data, **options).write(path)


def totals(checkpoint):
    return {row["key"]: row["total"] for row in checkpoint.keyed("totals", states=["total"]).rows()}


def test_a_function_makes_state_of_the_rows_of_a_table(tmp_path):
    written = seeded(tmp_path / "s")
    assert totals(written) == {"a": 4, "b": 2, "c": 4}
    assert (written.metadata.job_name, written.metadata.epoch) == ("job", 0)
    assert written.metadata.source_position is None
    backends = restored(written, "totals", parallelism=3)
    assert sum(len(backend.registered_kv_states["total"]) for backend in backends) == 3


@pytest.mark.parametrize(
    "data",
    [TABLE.to_batches()[0], TABLE.to_reader(), TABLE.to_pandas(), TABLE.to_pydict()],
    ids=["batch", "reader", "pandas", "dict"],
)
def test_tables_of_other_kinds(tmp_path, data):
    assert totals(seeded(tmp_path / "s", data)) == {"a": 4, "b": 2, "c": 4}


def test_records_are_passed_as_they_are(tmp_path):
    written = seeded(
        tmp_path / "s", (("a", n) for n in range(5)), key=lambda record: record[0], function=Counting()
    )
    assert totals(written) == {"a": 5}


def test_rows_have_event_time_and_register_timers_that_do_not_fire(tmp_path):
    written = seeded(tmp_path / "s", timestamp="at")
    found = sorted((row["key"], row["timestamp_ms"]) for row in written.timers("totals").rows())
    assert found == [("a", 110), ("a", 130), ("b", 120), ("c", 140)]


def test_columns_become_states_of_every_kind(tmp_path):
    states = {
        "amount": "amount",
        ListStateDescriptor("words", Types.STRING()): "word",
        MapStateDescriptor("when", Types.STRING(), Types.LONG()): ("word", "at"),
        ReducingStateDescriptor("sum", lambda old, new: old + new, Types.LONG()): "amount",
        AggregatingStateDescriptor("mean", Mean(), Types.LIST(Types.LONG())): "amount",
    }
    written = seeded(tmp_path / "s", function=states)
    found = {row["key"]: row for row in written.keyed("totals").rows()}
    assert found["a"] == {
        "key": "a",
        "amount": 3,
        "words": ["x", "y"],
        "when": {"x": 10, "y": 30},
        "sum": 4,
        "mean": [4, 2],
    }
    assert found["b"]["words"] is None


def test_operator_state_is_seeded_without_keys(tmp_path):
    written = new_savepoint("job").bootstrap("names", TABLE, key=None, function=Names()).write(tmp_path / "s")
    assert [row["value"] for row in written.operator_state("names").rows()] == ["a", "b", "a", "c"]
    subtasks = written.operator("names").subtasks
    backend = DefaultOperatorStateBackend()
    assigned = assign_state(subtasks, 2, 128)[1].managed_operator
    OperatorStateRestoreOperation(backend, open_folder(written.uri)).restore(assigned)
    assert len(list(backend.get_list_state(ListStateDescriptor("names", Types.STRING())).get())) == 2


def test_an_operator_is_added_to_a_checkpoint_that_is_there(tmp_path):
    first = seeded(tmp_path / "s")
    changed = edit(first).bootstrap("more", TABLE, key="who", key_type=Types.STRING(), function=Totals())
    with pytest.raises(UnknownStateError, match="being seeded"):
        changed.delete("more", ["a"])
    written = changed.rename_uid("more", "others").delete("totals", ["a"]).write(tmp_path / "t")
    assert totals(written) == {"b": 2, "c": 4}
    assert {row["key"] for row in written.keyed("others").rows()} == {"a", "b", "c"}
    assert written.metadata.job_id == first.metadata.job_id


def test_a_seeded_savepoint_is_found_by_its_path_alone(tmp_path):
    seeded(tmp_path / "s", max_parallelism=16)
    (operator,) = open_checkpoint(tmp_path / "s").operators()
    assert (operator.uid, operator.parallelism, operator.max_parallelism) == ("totals", 1, 16)


def test_rows_are_read_for_each_savepoint(tmp_path):
    for name, data in (("table", TABLE), ("list", TABLE.to_pylist())):
        changed = new_savepoint("job").bootstrap(
            "totals",
            data,
            key="who",
            key_type=Types.STRING(),
            function=Totals(),
        )
        for number in range(2):
            assert totals(changed.write(tmp_path / f"{name}-{number}")) == {"a": 4, "b": 2, "c": 4}


class Failing(KeyedStateBootstrapFunction):
    def process_element(self, value, ctx):
        raise ZeroDivisionError


# --- bad input -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"key": "whom"}, "key: there is no column 'whom'; the columns are 'who'"),
        ({"timestamp": "now"}, "timestamp: there is no column 'now'"),
        ({"function": len}, "must be a KeyedStateBootstrapFunction"),
        ({"function": Names()}, "must be a KeyedStateBootstrapFunction"),
        ({"function": {}}, "no state is named"),
        ({"function": {"n": "none"}}, "type is not known"),
        ({"function": {TOTAL: "none"}}, "there is no column 'none'"),
        ({"function": {TOTAL: ("who", "amount")}}, "needs the name of a column"),
        ({"key": None}, "must be a StateBootstrapFunction"),
        ({"parallelism": 2}, "the parallelism is 1, not 2"),
    ],
)
def test_what_cannot_be_seeded_is_refused_at_once(options, message, tmp_path):
    with pytest.raises(ConfigurationError, match=message):
        seeded(tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


@pytest.mark.parametrize(
    ("error", "message", "options"),
    [
        (InvalidKeyError, "totals", {"key": lambda row: row.amount}),
        (
            UserFunctionError,
            "ZeroDivisionError",
            {"data": [1], "key": lambda row: "k", "function": Failing()},
        ),
        (StateTableError, "timestamp of a row is 'a'", {"timestamp": "who"}),
        (UserFunctionError, r"ZeroDivisionError(.|\n)*operator 'totals'", {"timestamp": lambda row: 1 // 0}),
    ],
)
def test_errors_in_rows_leave_nothing(tmp_path, error, message, options):
    with pytest.raises(error, match=message):
        seeded(tmp_path / "s", **options)
    assert not (tmp_path / "s").exists()


def test_an_iterator_does_not_seed_a_second_savepoint_with_nothing(tmp_path):
    changed = new_savepoint("job").bootstrap(
        "totals", iter(TABLE.to_pylist()), key="who", key_type=Types.STRING(), function=Totals()
    )
    changed.write(tmp_path / "s")
    with pytest.raises(ConfigurationError, match="operator 'totals': its rows came from an iterator"):
        changed.write(tmp_path / "t")
    assert not (tmp_path / "t").exists()


class Closing(KeyedStateBootstrapFunction):
    """Raises where it is told to, and also when it is closed; it has a file in which it says so."""

    def __init__(self, log, fails):
        self.log, self.fails = log, fails

    def open(self, runtime_context):
        self.total = runtime_context.get_state(ValueStateDescriptor("total"))
        if self.fails == "open":
            raise ZeroDivisionError

    def process_element(self, value, ctx):
        if self.fails == "row":
            raise ZeroDivisionError
        self.total.update((lambda: 1) if self.fails == "snapshot" else 1)

    def close(self):
        self.log.write_text("closed")
        raise OSError("in close()")


@pytest.mark.parametrize(
    ("fails", "message"),
    [
        ("open", "ZeroDivisionError"),
        ("row", "ZeroDivisionError"),
        ("snapshot", "cannot be stored"),
        ("nothing", r"in close\(\)"),
    ],
)
def test_a_function_is_closed_whatever_fails_and_the_first_error_counts(tmp_path, fails, message):
    log = tmp_path / "log"
    with pytest.raises(PyFlinkStateError, match=message) as raised:
        seeded(tmp_path / "s", [1], key=lambda row: "k", function=Closing(log, fails))
    assert ("in close()" in raised.value.message) == (fails == "nothing")
    assert log.read_text() == "closed"
    assert not (tmp_path / "s").exists()


def test_a_data_frame_of_spark_connect_is_refused(tmp_path):
    def rdd(frame):
        raise NotImplementedError

    frame = type("DataFrame", (), {"__module__": "pyspark.sql.connect.dataframe", "rdd": property(rdd)})()
    with pytest.raises(UnsupportedSessionError, match=r"operator 'totals': .*Spark Connect.*toPandas"):
        seeded(tmp_path / "s", frame)


def test_keys_without_a_declared_type_are_as_key_by_has_them(tmp_path):
    written = seeded(tmp_path / "s", key_type=None, key=lambda row: (row.who, 1))
    (backend,) = restored(written, "totals", key_type=Types.PICKLED_BYTE_ARRAY())
    assert state_of(backend, TOTAL, ("a", 1)).value() == 4
