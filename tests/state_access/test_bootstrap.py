"""Savepoints that are seeded with rows have the state that a job would have after these rows."""

import pyarrow as pa
import pytest
from backend_support import state_of
from read_support import restored
from slot_functions import Mean

from pyflinkstate.api import (
    AggregatingStateDescriptor,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
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
