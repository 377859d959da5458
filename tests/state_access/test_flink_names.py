"""Flink's names for reading: the reader functions see what the job's functions saw, and change nothing."""

import pytest
from backend_support import make_backend, state_of, take_snapshot
from read_support import checkpoint_of, write

from pyflinkstate import (
    AggregateFunction,
    AggregatingStateDescriptor,
    BroadcastProcessFunction,
    CheckpointedFunction,
    Duration,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.errors import (
    ConfigurationError,
    IncompatibleCheckpointError,
    NoCurrentKeyError,
    PickledStateError,
    StateAccessError,
    StateMigrationError,
    StateRegistrationError,
    UnknownOperatorError,
    UnknownStateError,
    UserFunctionError,
)
from pyflinkstate.state_access.flink_names import (
    KeyedStateReaderFunction,
    OperatorIdentifier,
    SavepointReader,
)
from pyflinkstate.testing import BroadcastOperatorHarness, KeyedOneInputOperatorHarness

UID = "op"
LONG, STRING = Types.LONG(), Types.STRING()


class Mean(AggregateFunction):
    def create_accumulator(self):
        return 0, 0

    def add(self, value, accumulator):
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator):
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a, acc_b):
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


def ask_for_all(function, context):
    """Ask for five states, as the job and the reader do."""
    function.last = context.get_state(ValueStateDescriptor("last", LONG))
    function.all = context.get_list_state(ListStateDescriptor("all", LONG))
    function.named = context.get_map_state(MapStateDescriptor("named", STRING, LONG))
    function.most = context.get_reducing_state(ReducingStateDescriptor("most", max, LONG))
    mean = AggregatingStateDescriptor("mean", Mean(), Types.TUPLE([LONG, LONG]))
    function.mean = context.get_aggregating_state(mean)


def told(function):
    """Return what five states say."""
    return (
        function.last.value(),
        list(function.all.get()),
        dict(function.named.items()),
        function.most.get(),
        function.mean.get(),
    )


class Job(KeyedProcessFunction, CheckpointedFunction):
    def __init__(self):
        self.keys = []

    def open(self, runtime_context):
        ask_for_all(self, runtime_context)

    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.listed = store.get_list_state(ListStateDescriptor("listed", STRING))
        self.union = store.get_union_list_state(ListStateDescriptor("union", STRING))

    def snapshot_state(self, context):
        self.listed.update(self.keys)
        self.union.update(self.keys)

    def process_element(self, value, ctx):
        key, number = value
        self.last.update(number)
        self.all.add(number)
        self.named.put(f"n{number}", number)
        self.most.add(number)
        self.mean.add(number)
        if number % 2:
            ctx.timer_service().register_event_time_timer(number)
            ctx.timer_service().register_processing_time_timer(number + 1)
        self.keys.append(key)
        yield key, *told(self)


class Reader(KeyedStateReaderFunction):
    """Gives out all that there is of each key."""

    is_open = 0

    def open(self, runtime_context):
        ask_for_all(self, runtime_context)
        self.is_open += 1

    def close(self):
        self.is_open -= 1

    def read_key(self, key, ctx, out):
        assert self.is_open == 1
        out.collect((key, *told(self)))
        for name in ("event", "processing"):
            for time in sorted(getattr(ctx, f"registered_{name}_time_timers")()):
                out.collect((key, name, time))


RECORDS = [(f"k{n % 7}", n) for n in range(40)]


@pytest.fixture(scope="module")
def job():
    """Return the state of two subtasks, and the last result of each key."""
    states, last = [], {}
    for subtask in range(2):
        harness = KeyedOneInputOperatorHarness(
            Job(), lambda value: value[0], STRING, parallelism=2, subtask=subtask
        )
        for record in RECORDS:
            try:
                harness.process_element(record, 0)
            except ValueError:  # another subtask's
                continue
        last |= {result[0]: result for result in harness.extract_output_values()}
        states.append(harness.snapshot().state)
    return states, last


@pytest.fixture
def reader(job):
    return SavepointReader(checkpoint_of(*job[0]))


class TestKeyedState:
    def test_a_reader_function_sees_what_the_job_saw(self, reader, job):
        function = Reader()
        results = list(reader.read_keyed_state(UID, function))
        assert {result[0]: result for result in results if len(result) == 6} == job[1]
        odd = [(key, n) for key, n in RECORDS if n % 2]
        assert {result[::2] for result in results if result[1] == "event"} == set(odd)
        assert {result[::2] for result in results if result[1] == "processing"} == {
            (key, n + 1) for key, n in odd
        }
        assert function.is_open == 0

    def test_the_operator_has_an_identifier_too(self, reader, job):
        found = reader.read_keyed_state(OperatorIdentifier.for_uid(UID), Reader())
        assert sum(len(result) == 6 for result in found) == len(job[1])

    def test_from_a_path(self, tmp_path):
        class Counts(KeyedStateReaderFunction):
            def open(self, runtime_context):
                assert runtime_context.get_task_name() == UID
                self.count = runtime_context.get_state(ValueStateDescriptor("count", LONG))

            def read_key(self, key, ctx, out):
                out.collect((key, self.count.value()))

        folder = write(tmp_path, {"a": 1, "b": 2})
        found = SavepointReader.read(folder).read_keyed_state(UID, Counts())
        assert sorted(found) == [("a", 1), ("b", 2)]

    @pytest.mark.parametrize(
        "change",
        [
            lambda function: function.last.update(1),
            lambda function: function.last.clear(),
            lambda function: function.all.add(1),
            lambda function: function.all.add_all([1]),
            lambda function: function.all.update([1]),
            lambda function: function.named.put("a", 1),
            lambda function: function.named.put_all({"a": 1}),
            lambda function: function.named.remove("a"),
            lambda function: function.named.__setitem__("a", 1),
            lambda function: function.named.__delitem__("a"),
            lambda function: function.most.add(1),
            lambda function: function.mean.clear(),
        ],
    )
    def test_nothing_can_be_changed(self, reader, change):
        class Changes(Reader):
            def read_key(self, key, ctx, out):
                change(self)

        with pytest.raises(StateAccessError, match=r"is read from a checkpoint, so .* cannot change it"):
            list(reader.read_keyed_state(UID, Changes()))

    def test_the_ways_to_look_into_a_map(self, reader):
        class Looks(Reader):
            def read_key(self, key, ctx, out):
                named = dict(self.named.items())
                first = next(iter(self.named))
                assert self.named.contains(first)
                assert first in self.named
                assert self.named[first] == self.named.get(first) == named[first]
                assert dict(zip(self.named.keys(), self.named.values(), strict=True)) == named
                out.collect(self.named.is_empty())

        assert set(reader.read_keyed_state(UID, Looks())) == {False}

    def test_a_wider_type_is_read_as_in_a_restored_job(self):
        backend = make_backend(STRING)
        state_of(backend, ValueStateDescriptor("count", Types.INT()), "a").update(7)
        found = SavepointReader(checkpoint_of(take_snapshot(backend)))
        assert list(found.read_keyed_state(UID, reads_one(ValueStateDescriptor("count", LONG)))) == [7]
        with pytest.raises(StateMigrationError):
            list(found.read_keyed_state(UID, reads_one(ValueStateDescriptor("count", STRING))))

    def test_what_has_expired_is_none(self):
        now = [1_000]
        backend = make_backend(STRING, clock=lambda: now[0])
        descriptor = ValueStateDescriptor("count", LONG)
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_millis(100)).build())
        state_of(backend, descriptor, "a").update(1)
        handle = take_snapshot(backend)
        for at_ms, value in ((1_099, 1), (1_100, None)):
            found = SavepointReader(checkpoint_of(handle, clock=lambda at_ms=at_ms: at_ms))
            assert list(found.read_keyed_state(UID, reads_one(descriptor))) == [value]


def reads_one(descriptor):
    """Return a function that reads a value."""

    class One(KeyedStateReaderFunction):
        def open(self, runtime_context):
            self.state = runtime_context.get_state(descriptor)

        def read_key(self, key, ctx, out):
            out.collect(self.state.value())

    return One()


class TestBadInput:
    def test_an_environment_in_the_place_of_the_path(self):
        with pytest.raises(ConfigurationError, match="takes the path of a savepoint first, not object"):
            SavepointReader.read(object(), "savepoint")

    def test_an_unknown_operator_or_state(self, reader):
        with pytest.raises(UnknownOperatorError, match="it has 'op'"):
            reader.read_keyed_state("other", Reader())
        with pytest.raises(UnknownStateError, match="it has 'last', "):
            list(reader.read_keyed_state(UID, reads_one(ValueStateDescriptor("lats", LONG))))

    def test_what_is_no_function(self, reader):
        with pytest.raises(StateRegistrationError, match="KeyedStateReaderFunction is needed"):
            reader.read_keyed_state(UID, print)

    def test_a_state_that_is_asked_for_too_late_or_too_soon(self, reader):
        class Late(Reader):
            def read_key(self, key, ctx, out):
                self.get_runtime_context().get_state(ValueStateDescriptor("late", LONG))

        class Soon(Reader):
            def open(self, runtime_context):
                super().open(runtime_context)
                self.last.value()

        with pytest.raises(StateRegistrationError, match=r"'late': ask for all states in open\(\)"):
            list(reader.read_keyed_state(UID, Late()))
        with pytest.raises(NoCurrentKeyError, match=r"'last' has no key yet: read it in read_key\(\)"):
            list(reader.read_keyed_state(UID, Soon()))

    def test_what_a_function_raises_names_operator_and_key(self, reader):
        class Failing(Reader):
            def read_key(self, key, ctx, out):
                raise ZeroDivisionError("no")

        found = reader.read_keyed_state(UID, Failing())
        with pytest.raises(UserFunctionError, match=r"operator 'op', key .*: read_key\(\) raised Zero"):
            list(found)

    def test_what_close_raises_does_not_hide_what_the_function_raised(self, reader):
        class Failing(Reader):
            def read_key(self, key, ctx, out):
                raise ZeroDivisionError("no")

            def close(self):
                super().close()
                raise TimeoutError("too long")

        function = Failing()
        with pytest.raises(UserFunctionError, match="ZeroDivisionError"):
            list(reader.read_keyed_state(UID, function))
        assert function.is_open == 0

    def test_a_function_that_cannot_be_opened_is_closed(self, reader):
        class Failing(Reader):
            def open(self, runtime_context):
                self.is_open += 1
                raise ZeroDivisionError("no")

        function = Failing()
        with pytest.raises(ZeroDivisionError):
            list(reader.read_keyed_state(UID, function))
        assert function.is_open == 0

    def test_a_name_in_use(self, reader):
        class Twice(Reader):
            def open(self, runtime_context):
                super().open(runtime_context)
                runtime_context.get_list_state(ListStateDescriptor("last", LONG))

        with pytest.raises(StateRegistrationError, match="in use as VALUE, and is asked for as LIST"):
            list(reader.read_keyed_state(UID, Twice()))

    def test_pickles_are_loaded_on_request_only(self):
        descriptor = ValueStateDescriptor("anything")
        backend = make_backend(STRING)
        state_of(backend, descriptor, "a").update({1})
        found = SavepointReader(checkpoint_of(take_snapshot(backend)))
        with pytest.raises(PickledStateError, match="state 'anything' of operator 'op'"):
            list(found.read_keyed_state(UID, reads_one(descriptor)))
        assert list(found.read_keyed_state(UID, reads_one(descriptor), allow_pickle=True)) == [{1}]
        backend = make_backend()
        state_of(backend, ValueStateDescriptor("count", LONG), "a").update(1)
        found = SavepointReader(checkpoint_of(take_snapshot(backend)))
        with pytest.raises(PickledStateError, match="the keys of operator 'op'"):
            found.read_keyed_state(UID, reads_one(ValueStateDescriptor("count", LONG)))


class Rules(BroadcastProcessFunction):
    RULES = MapStateDescriptor("rules", STRING, LONG)

    def process_element(self, value, ctx):
        return ()

    def process_broadcast_element(self, value, ctx):
        ctx.get_broadcast_state(self.RULES).put(*value)
        return ()


class TestOperatorState:
    def test_lists(self, reader):
        keys = sorted(key for key, _ in RECORDS)
        assert sorted(reader.read_list_state(UID, "listed", STRING)) == keys
        assert sorted(reader.read_union_state(UID, "union")) == keys

    def test_broadcast_state(self):
        harness = BroadcastOperatorHarness(Rules(), [Rules.RULES])
        harness.process_broadcast_element(("a", 1), 0)
        reader = SavepointReader(checkpoint_of(harness.snapshot().state))
        assert list(reader.read_broadcast_state(UID, "rules", STRING, LONG)) == [("a", 1)]

    def test_another_kind_or_type(self, reader):
        with pytest.raises(UnknownStateError, match=r"is a union list, not a list: read it with read_union"):
            reader.read_list_state(UID, "union")
        with pytest.raises(UnknownStateError, match="no operator state 'list'; it has 'listed', 'union'"):
            reader.read_list_state(UID, "list")
        with pytest.raises(IncompatibleCheckpointError, match=r"of STRING in the checkpoint, .* as LONG"):
            reader.read_list_state(UID, "listed", LONG)
