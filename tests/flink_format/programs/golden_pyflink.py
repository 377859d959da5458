"""Writes a savepoint of PyFlink: ``golden_pyflink.py MODE LINES FOLDER FORMAT key=value...``.

MODE is ``process`` or ``thread``. What the savepoint then has is in ``tests/flink_format/golden_content.py``.
"""

import datetime
import os
import sys
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any

from pyflink.common import Configuration, Instant, Row, Time, Types
from pyflink.datastream import DataStream, RuntimeContext, StreamExecutionEnvironment
from pyflink.datastream.functions import (
    AggregateFunction,
    BroadcastProcessFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
)
from pyflink.datastream.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateTtlConfig,
    ValueStateDescriptor,
)
from pyflink.datastream.window import EventTimeSessionWindows, TumblingEventTimeWindows
from pyflink.java_gateway import get_gateway

Line = tuple[int, int]
LINE = Types.TUPLE([Types.LONG(), Types.LONG()])

#: The name of each ValueState, its type, and its value for key 1 and for all others.
VALUES: list[tuple[str, Any, Any, Any]] = [
    ("boolean", Types.BOOLEAN(), True, False),
    ("byte", Types.BYTE(), 127, -128),
    ("short", Types.SHORT(), 32767, -32768),
    ("int", Types.INT(), 2**31 - 1, -(2**31)),
    ("long", Types.LONG(), 2**63 - 1, -(2**63)),
    ("float", Types.FLOAT(), 1.5, -0.25),
    ("double", Types.DOUBLE(), 1e300, -0.1),
    ("string", Types.STRING(), "na\u00efve \u20ac \U0001f600", ""),
    ("char", Types.CHAR(), "\u20ac", "a"),
    ("big_int", Types.BIG_INT(), 2**62, -1),
    ("big_dec", Types.BIG_DEC(), Decimal("12345.678900000000000000"), Decimal("-0.000000000000000001")),
    ("date", Types.SQL_DATE(), datetime.date(2024, 2, 29), datetime.date(1969, 12, 31)),
    ("time", Types.SQL_TIME(), datetime.time(23, 59, 59, 999000), datetime.time(0, 0)),
    (
        "timestamp",
        Types.SQL_TIMESTAMP(),
        datetime.datetime(2024, 2, 29, 12, 30, 0, 123000),
        datetime.datetime(1970, 1, 1),
    ),
    ("instant", Types.INSTANT(), Instant(1700000000, 5), Instant(-1, 999999999)),
    ("bytes", Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x00\xff", b""),
    ("longs", Types.PRIMITIVE_ARRAY(Types.LONG()), [1, -1], []),
    ("strings", Types.BASIC_ARRAY(Types.STRING()), ["a", "", "\u20ac"], []),
    ("list", Types.LIST(Types.LONG()), [1, 2], []),
    ("map", Types.MAP(Types.STRING(), Types.LONG()), {"a": 1}, {}),
    ("tuple", Types.TUPLE([Types.LONG(), Types.STRING()]), (1, "a"), (-1, "")),
    ("row", Types.ROW([Types.LONG(), Types.STRING()]), Row(1, None), Row(None, "a")),
    (
        "row_named",
        Types.ROW_NAMED(["id", "name"], [Types.LONG(), Types.STRING()]),
        Row(id=1, name=None),
        Row(id=None, name="a"),
    ),
    ("pickled", Types.PICKLED_BYTE_ARRAY(), {"a": [1, None, 2.5]}, (1, "b")),
]

#: In thread mode, Flink 2.3 fails when it writes these.
NOT_IN_THREAD_MODE = {"big_int", "date", "time", "timestamp", "instant", "bytes", "longs", "strings", "list"}


class Values(KeyedProcessFunction):
    """A ValueState of each type."""

    def __init__(self, without: set[str]) -> None:
        self.without = without

    def open(self, context: RuntimeContext) -> None:
        self.values = [value for value in VALUES if value[0] not in self.without]
        self.states = [
            context.get_state(ValueStateDescriptor(name, kind)) for name, kind, _, _ in self.values
        ]

    def process_element(self, line: Line, context: KeyedProcessFunction.Context) -> Iterable[int]:
        for state, (_, _, first, other) in zip(self.states, self.values, strict=True):
            state.update(first if line[1] == 1 else other)
        yield line[1]


class Sum(ReduceFunction):
    def reduce(self, left: Any, right: Any) -> Any:
        return left + right


class Mean(AggregateFunction):
    """The accumulator is (sum, count)."""

    def create_accumulator(self) -> Any:
        return (0, 0)

    def add(self, value: Any, accumulator: Any) -> Any:
        return (accumulator[0] + value, accumulator[1] + 1)

    def get_result(self, accumulator: Any) -> float:
        return float(accumulator[0] / accumulator[1])

    def merge(self, left: Any, right: Any) -> Any:
        return (left[0] + right[0], left[1] + right[1])


class Kinds(KeyedProcessFunction):
    """The five kinds of state, with declared and with pickled types, with time to live and without; timers.

    Flink's heap backend writes a map's None in the native format only, and only without time to live.
    """

    def __init__(self, nulls: bool) -> None:
        self.nulls = nulls

    def open(self, context: RuntimeContext) -> None:
        pair = Types.TUPLE([Types.LONG(), Types.LONG()])
        pickled = Types.PICKLED_BYTE_ARRAY()
        self.kinds = []
        for suffix, ttl in (("", False), ("_ttl", True)):
            for prefix, value, text, both in (
                ("", Types.LONG(), Types.STRING(), pair),
                ("pickled_", pickled, pickled, pickled),
            ):
                made = [
                    ValueStateDescriptor(f"{prefix}value{suffix}", value),
                    ListStateDescriptor(f"{prefix}list{suffix}", value),
                    MapStateDescriptor(f"{prefix}map{suffix}", text, value),
                    ReducingStateDescriptor(f"{prefix}reducing{suffix}", Sum(), value),
                    AggregatingStateDescriptor(f"{prefix}aggregating{suffix}", Mean(), both),
                ]
                if ttl:
                    for descriptor in made:
                        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.days(1)).build())
                self.kinds.append(
                    (
                        self.nulls and not ttl,
                        context.get_state(made[0]),
                        context.get_list_state(made[1]),
                        context.get_map_state(made[2]),
                        context.get_reducing_state(made[3]),
                        context.get_aggregating_state(made[4]),
                    )
                )

    def process_element(self, line: Line, context: KeyedProcessFunction.Context) -> Iterable[int]:
        time, key = line
        for nulls, value, several, mapped, reducing, aggregating in self.kinds:
            value.update(time)
            several.add(time)
            mapped.put("a", time)
            if nulls:
                mapped.put("none", None)
            reducing.add(time)
            aggregating.add(time)
        context.timer_service().register_event_time_timer(time + 10)
        context.timer_service().register_processing_time_timer(4102444800000 + time)
        yield key

    def on_timer(self, timestamp: int, context: KeyedProcessFunction.OnTimerContext) -> Iterable[int]:
        yield timestamp


class Latest(KeyedProcessFunction):
    """One value, for keys of another type."""

    def open(self, context: RuntimeContext) -> None:
        self.latest = context.get_state(ValueStateDescriptor("latest", Types.LONG()))

    def process_element(self, line: Line, context: KeyedProcessFunction.Context) -> Iterable[int]:
        self.latest.update(line[0])
        yield line[1]


class Size(ProcessWindowFunction):
    def process(self, key: Any, context: Any, lines: Iterable[Line]) -> Iterable[int]:
        yield len(list(lines))


class Rules(KeyedBroadcastProcessFunction):
    """Keeps each rule for all."""

    def __init__(self, state: MapStateDescriptor) -> None:
        self.state = state

    def process_element(self, line: Line, context: Any) -> Iterable[int]:
        yield line[1]

    def process_broadcast_element(self, line: Line, context: Any) -> Iterable[int]:
        context.get_broadcast_state(self.state).put(str(line[1]), line[0])
        yield line[1]


class RulesWithoutKey(BroadcastProcessFunction):
    """Keeps each rule for all, beside a stream without keys."""

    def __init__(self, state: MapStateDescriptor) -> None:
        self.state = state

    def process_element(self, line: Line, context: Any) -> Iterable[int]:
        yield line[1]

    def process_broadcast_element(self, line: Line, context: Any) -> Iterable[int]:
        context.get_broadcast_state(self.state).put(str(line[1]), line[0])
        yield line[1]


def parsed(line: str) -> Line:
    """Return a line's timestamp and key."""
    time, key = line.split(",")
    return int(time), int(key)


def build(lines: DataStream, mode: str, nulls: bool) -> None:
    """Add all operators that have state."""
    stream = lines.map(parsed, LINE).set_parallelism(1)
    by_long = stream.key_by(lambda line: line[1], Types.LONG())
    by_long.process(Values(NOT_IN_THREAD_MODE if mode == "thread" else set()), Types.LONG()).uid("values")
    by_long.process(Kinds(nulls), Types.LONG()).uid("kinds")
    keys: dict[str, tuple[Callable[[Line], Any], Any]] = {
        "string": (lambda line: f"key {line[1]}", Types.STRING()),
        "tuple": (lambda line: (line[1], "a"), Types.TUPLE([Types.LONG(), Types.STRING()])),
        "row": (lambda line: Row(line[1], "a"), Types.ROW([Types.LONG(), Types.STRING()])),
        "pickled": (lambda line: line[1], Types.PICKLED_BYTE_ARRAY()),
    }
    for name, (selector, kind) in keys.items():
        stream.key_by(selector, kind).process(Latest(), Types.LONG()).uid(f"by-{name}")
    assigners = {"tumbling": TumblingEventTimeWindows.of(Time.seconds(10))}
    if mode == "process":
        # In thread mode, Flink 2.3 cannot snapshot session windows: VoidNamespace is no TimeWindow.
        assigners["sessions"] = EventTimeSessionWindows.with_gap(Time.seconds(5))
    for name, assigner in assigners.items():
        by_long.window(assigner).process(Size(), Types.LONG()).uid(f"{name}-process")
        by_long.window(assigner).reduce(
            lambda left, right: (left[0] + right[0], left[1]),
            output_type=Types.TUPLE([Types.LONG(), Types.LONG()]),
        ).uid(f"{name}-reduce")
    if mode == "process":
        rules = MapStateDescriptor("rules", Types.STRING(), Types.LONG())
        by_long.connect(stream.broadcast(rules)).process(Rules(rules), Types.LONG()).uid("broadcast")
        stream.connect(stream.broadcast(rules)).process(RulesWithoutKey(rules), Types.LONG()).uid(
            "broadcast-without-key"
        )


def main(mode: str, lines: str, folder: str, written: str, *settings: str) -> None:
    """Run the job and stop it with a savepoint."""
    # The interpreter in the JVM of thread mode looks for its packages there.
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, sys.path))
    configuration = Configuration()
    configuration.set_string("python.execution-mode", mode)
    configuration.set_string("python.executable", sys.executable)
    configuration.set_string("python.client.executable", sys.executable)
    configuration.set_string("python.fn-execution.bundle.time", "60000")
    configuration.set_string("pipeline.jars", os.environ["FLINK_JARS"])
    for setting in settings:
        configuration.set_string(*setting.split("=", 1))
    env = StreamExecutionEnvironment.get_execution_environment(configuration)
    jvm = get_gateway().jvm
    nulls = mode == "process" and (written == "NATIVE" or "state.backend.type=rocksdb" in settings)
    build(DataStream(jvm.interop.Lines.of(env._j_stream_execution_environment, lines)), mode, nulls)
    job = env.execute_async()
    print(jvm.interop.Run.stop(job._j_job_client, lines, folder, written))


if __name__ == "__main__":
    main(*sys.argv[1:])
