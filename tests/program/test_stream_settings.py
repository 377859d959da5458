"""Names, uids, parallelism and partitioning belong to operators: streams that are behind none refuse them.

``PYFLINK_REFUSES`` is what PyFlink 2.3 said to this program, with every stream and every call::

    env = StreamExecutionEnvironment.get_execution_environment()
    a = env.from_collection([(1, "a")], Types.TUPLE([Types.INT(), Types.STRING()])).map(lambda x: x)
    streams = {
        "map": a,
        "key_by": a.key_by(lambda x: x[0]),
        "union": a.union(b),
        "union, key_by": a.union(b).key_by(lambda x: x[0]),
        "side output": a.process(P()).get_side_output(tag),
        "rebalance": a.rebalance(),  # and so on
    }
    for name, arguments in calls:
        getattr(stream, name)(*arguments)

It refuses what a keyed stream must not do itself ("Set name for KeyedStream is not supported.", "Cannot
override partitioning for KeyedStream."), and the rest as Java has no such method there ("Method
name([class java.lang.String]) does not exist").
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from pass_through import KeyedProcess, Process, same

from pyflinkstate.api import (
    CountTumblingWindowAssigner,
    OutputTag,
    Types,
    WatermarkStrategy,
)
from pyflinkstate.errors import ConfigurationError, ParallelismError
from pyflinkstate.runtime.plan import ChainNode, SinkNode, SourceNode, StatefulNode, make_plan, upstream_of
from pyflinkstate.runtime.program import CloseableIterator, DataStream, StreamExecutionEnvironment
from pyflinkstate.runtime.sinks import DriverSink
from pyflinkstate.runtime.sources import CollectionSource

TAG = OutputTag("late")
STRATEGY = WatermarkStrategy.for_monotonous_timestamps()

SETTINGS: dict[str, tuple[Any, ...]] = {
    "name": ("x",),
    "get_name": (),
    "uid": ("u",),
    "set_uid_hash": ("a" * 32,),
    "set_parallelism": (2,),
    "set_max_parallelism": (4,),
    "force_non_parallel": (),
    "set_buffer_timeout": (1,),
    "start_new_chain": (),
    "disable_chaining": (),
    "slot_sharing_group": ("g",),
    "set_description": ("d",),
}
PARTITIONERS: dict[str, tuple[Any, ...]] = {
    "shuffle": (),
    "rescale": (),
    "rebalance": (),
    "forward": (),
    "broadcast": (),
    "partition_custom": (lambda key, count: 0, lambda record: record),
}
CALLS = {**SETTINGS, **PARTITIONERS, "get_side_output": (TAG,)}

PYFLINK_REFUSES: dict[str, set[str]] = {
    "map": set(),
    "key_by": set(CALLS),
    "union": {*SETTINGS, "get_side_output"},
    "union, key_by": set(CALLS),
    "side output": set(),
    **{name: {*SETTINGS, "get_side_output"} for name in PARTITIONERS if name != "partition_custom"},
    # There it is two operators of PyFlink's same, which would get the name.
    "partition_custom": set(),
}
#: There a side output is read by an operator of PyFlink's same; here it is where the operator before runs.
REFUSED_HERE = {("partition_custom", call) for call in (*SETTINGS, "get_side_output")} | {
    ("side output", call) for call in ("set_parallelism", "force_non_parallel", "get_side_output")
}


class Environment:
    """What streams ask of theirs."""

    @property
    def _jobs(self) -> Environment:
        return self

    def get_parallelism(self) -> int:
        return 2

    def next_assigner_number(self) -> int:
        return 1


def source() -> DataStream:
    env: Any = Environment()
    return DataStream(env, SourceNode(CollectionSource([1, 2]), "numbers"))


def stream(kind: str) -> DataStream:
    a, b = source().process(Process()), source().map(same)
    streams = {
        "map": lambda: a.map(same).process(Process()),
        "key_by": lambda: a.key_by(same),
        "union": lambda: a.union(b),
        "union, key_by": lambda: a.union(b).key_by(same),
        "side output": lambda: a.get_side_output(TAG),
        **{name: lambda name=name: getattr(a, name)(*PARTITIONERS[name]) for name in PARTITIONERS},
    }
    return streams[kind]()


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", PYFLINK_REFUSES)
def test_what_pyflink_refuses_is_refused_and_nothing_else(kind: str, call: str) -> None:
    method = getattr(stream(kind), call)
    if call in PYFLINK_REFUSES[kind] or (kind, call) in REFUSED_HERE:
        with pytest.raises(ConfigurationError):
            method(*CALLS[call])
    else:
        method(*CALLS[call])


def settings_of(stream: DataStream) -> tuple[Any, ...]:
    node = stream._node
    assert isinstance(node, StatefulNode)
    return node.name, node.uid, node.parallelism, node.max_parallelism


@pytest.mark.parametrize("method", ["uid", "set_uid_hash"])
def test_a_source_has_a_uid_also_with_watermarks_of_its_own(method: str) -> None:
    plain, timed = source(), source()
    timed = timed.assign_timestamps_and_watermarks(STRATEGY)
    assert isinstance(timed._node, ChainNode)
    timed._node.is_of_source = True
    nodes = [getattr(stream, method)("orders")._operator_node("uid") for stream in (plain, timed)]
    assert [(type(node), node.uid) for node in nodes] == [(SourceNode, "orders")] * 2


@pytest.mark.parametrize(
    "next_stream", [lambda a: a.key_by(same), lambda a: a.union(source())], ids=["keyed", "union"]
)
def test_the_operator_before_keeps_its_name_its_uid_and_its_parallelism(
    next_stream: Callable[[DataStream], DataStream],
) -> None:
    a = source().key_by(same).process(KeyedProcess()).name("a").uid("a")
    a.set_parallelism(2).set_max_parallelism(8)
    after = next_stream(a)
    for call, arguments in SETTINGS.items():
        with pytest.raises(ConfigurationError):
            getattr(after, call)(*arguments)
    b = after.key_by(same).process(KeyedProcess()).uid("b").set_parallelism(1)
    other = a.key_by(same).process(KeyedProcess()).uid("other").set_parallelism(3)
    assert [settings_of(one) for one in (a, b, other)] == [
        ("a", "a", 2, 8),
        ("KeyedProcess", "b", 1, None),
        ("KeyedProcess", "other", 3, None),
    ]
    plan = make_plan([SinkNode(b._node, DriverSink(print), "sink")], 4, None)
    assert [operator.operator_id for operator in plan.operators] == ["a", "b"]


def test_the_message_says_where_to_put_it() -> None:
    with pytest.raises(ConfigurationError) as caught:
        source().map(same).key_by(same).uid("b")
    assert str(caught.value) == (
        "uid() needs an operator, and key_by() adds none: call uid() on the operator before key_by(), or on "
        "the one after it, such as a map() or process() that follows"
    )
    with pytest.raises(ConfigurationError, match=r"call name\(\) on the operator before union\(\)"):
        source().union(source()).name("both")


def test_windows_and_connected_streams_have_no_settings_as_in_pyflink() -> None:
    keyed = source().key_by(same)
    for kind in (keyed.window(CountTumblingWindowAssigner(2)), keyed.connect(keyed)):
        assert not [call for call in {**SETTINGS, **PARTITIONERS} if hasattr(kind, call)]


def test_what_is_set_on_a_source_with_watermarks_is_the_sources() -> None:
    """In PyFlink the strategy is part of the source: ``from_source(source, strategy, name)``."""
    env: Any = Environment()
    made = StreamExecutionEnvironment.from_source(env, CollectionSource([1]), STRATEGY, "orders")
    assert made.get_name() == "orders"
    assert made.name("renamed").get_name() == "renamed"
    (root,) = [node for node in upstream_of(made._node) if isinstance(node, SourceNode)]
    assert root.name == "renamed"
    with pytest.raises(ParallelismError, match="'renamed' is not parallel"):
        made.set_parallelism(2)
    assigned = source().assign_timestamps_and_watermarks(STRATEGY).set_parallelism(2)
    assert assigned.get_name() == "timestamps and watermarks"


def test_the_type_is_that_of_what_was_sent_on() -> None:
    typed = source().map(same, Types.LONG())
    assert typed.rebalance().get_type() == typed.broadcast().forward().get_type() == Types.LONG()


class RunningJob:
    """A job of two epochs, with a record each, that knows whether it ran to its end."""

    def __init__(self, records: deque[int]) -> None:
        self.records = records
        self.has_ended_early = False

    def run(self) -> Iterator[int]:
        self.has_ended_early = True
        for epoch in (1, 2):
            self.records.append(epoch * 10)
            yield epoch
        self.has_ended_early = False


class RunningEnvironment(Environment):
    """Collects the records of a job that is not on Spark."""

    def collect(self, node: Any, job_name: str | None) -> CloseableIterator[int]:
        records: deque[int] = deque()
        job: Any = RunningJob(records)
        self.job: RunningJob = job
        return CloseableIterator(job, records)


@pytest.mark.parametrize(
    ("limit", "found", "has_ended_early"), [(1, [10], True), (2, [10, 20], True), (3, [10, 20], False)]
)
def test_with_a_limit_the_records_are_a_list_as_in_pyflink(
    limit: int, found: list[int], has_ended_early: bool
) -> None:
    env: Any = RunningEnvironment()
    numbers = DataStream(env, SourceNode(CollectionSource([]), "numbers"))
    assert numbers.execute_and_collect(limit=limit) == found
    assert env.job.has_ended_early == has_ended_early
    assert list(numbers.execute_and_collect()) == [10, 20]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        pytest.param(
            lambda: stream("key_by").global_(),
            ConfigurationError,
            r"global_\(\) cannot follow key_by\(\)",
            id="global_cannot_follow_key_by_either",
        ),
        pytest.param(
            lambda: source().process(Process()).key_by(same).get_side_output(TAG),
            ConfigurationError,
            r"get_side_output\(\) cannot follow key_by\(\)",
            id="the_side_outputs_of_the_operator_before_are_not_those_of_a_keyed_stream",
        ),
        pytest.param(
            lambda: source().execute_and_collect(limit=0),
            ConfigurationError,
            r"limit of execute_and_collect.*not 0",
            id="a_limit_is_at_least_one",
        ),
    ],
)
def test_a_mistake_is_refused(call: Callable[[], object], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
