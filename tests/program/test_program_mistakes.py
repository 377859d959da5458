"""Mistakes that users make, found while a program is built, or by a harness: each message helps."""

from __future__ import annotations

import datetime
import functools
import math
from collections.abc import Callable, Iterable, Iterator
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from mistakes import Mistake, check, of_each
from pass_through import CoMap, Count, KeyedProcess, Map, Process

from pyflinkstate.api import (
    AggregatingStateDescriptor,
    EventTimeSessionWindows,
    FlatMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedCoProcessFunction,
    KeyedProcessFunction,
    ListStateDescriptor,
    MapFunction,
    MapStateDescriptor,
    OutputTag,
    ProcessFunction,
    ProcessWindowFunction,
    ReduceFunction,
    ReducingStateDescriptor,
    Row,
    SlidingEventTimeWindows,
    StateTtlConfig,
    Time,
    TimestampAssigner,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    WatermarkStrategy,
)
from pyflinkstate.errors import (
    BadRecordError,
    ConfigurationError,
    DescriptorTypeError,
    FunctionResultError,
    InvalidKeyError,
    NoCurrentKeyError,
    NotKeyedStreamError,
    ParallelismError,
    StateAccessError,
    StateRegistrationError,
    StateValueError,
    UserFunctionError,
)
from pyflinkstate.runtime.program.dataframes.options import JobOptions
from pyflinkstate.runtime.wire import pickled
from pyflinkstate.state_access.writing.savepoints import new_savepoint
from pyflinkstate.testing import (
    MAX_WATERMARK,
    BroadcastOperatorHarness,
    KeyedOneInputOperatorHarness,
    KeyedTwoInputOperatorHarness,
    OneInputOperatorHarness,
    harness_of,
)

first = itemgetter(0)
LATE = OutputTag("late")


def built(*calls: Callable[..., Any]) -> Callable[[], Any]:
    """Build a program out of calls, each on the stream that the one before returned."""

    def build(stream: Any) -> Any:
        for call in calls:
            stream = call(stream)
        return stream

    return lambda: harness_of(build)


def keyed(*calls: Callable[..., Any]) -> Callable[[], Any]:
    return built(lambda stream: stream.key_by(first), *calls)


# --- while a program is built ------------------------------------------------------------------------


class WithoutContext(KeyedProcessFunction):
    def process_element(self, value: Any) -> Iterable[Any]:  # type: ignore[override]
        yield value


class TimerWithoutContext(KeyedProcess):
    def on_timer(self, timestamp: int) -> Iterable[Any]:  # type: ignore[override]
        yield timestamp


class WithKeys(KeyedCoProcessFunction):
    def process_element1(self, value: Any, ctx: Any) -> Any:
        return ()

    def process_element2(self, value: Any, ctx: Any) -> Any:
        return ()


class Sum(Count):
    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + int(value[1])


def yields(value: Any) -> Iterator[Any]:
    yield value


OBJECT = r"takes an object, and {0} is a class: write {0}\(\)"

BUILDING = [
    Mistake(
        "map with a class",
        built(lambda stream: stream.map(Map)),
        ConfigurationError,
        (r"^map\(\)", OBJECT.format("Map")),
    ),
    Mistake(
        "process with a class",
        built(lambda stream: stream.process(Process)),
        ConfigurationError,
        (r"^process\(\) on a stream without keys", OBJECT.format("Process")),
    ),
    Mistake(
        "keyed process with a class",
        keyed(lambda stream: stream.process(KeyedProcess)),
        ConfigurationError,
        (r"^process\(\) on a keyed stream", OBJECT.format("KeyedProcess")),
    ),
    Mistake(
        "reduce with a class",
        keyed(lambda stream: stream.reduce(ReduceFunction)),
        ConfigurationError,
        (r"^reduce\(\)", OBJECT.format("ReduceFunction")),
    ),
    Mistake(
        "aggregate with a class",
        keyed(lambda stream: stream.window(TumblingEventTimeWindows.of(10)).aggregate(Sum)),
        ConfigurationError,
        (r"^aggregate\(\)", OBJECT.format("Sum")),
    ),
    Mistake(
        "key_by forgotten",
        built(lambda stream: stream.process(KeyedProcess())),
        ConfigurationError,
        (r"process\(\) on a stream without keys", r"a KeyedProcessFunction needs key_by\(\) first"),
    ),
    Mistake(
        "a plain function in the place of a class",
        keyed(lambda stream: stream.process(lambda value, ctx: [value])),
        ConfigurationError,
        (r"process\(\) on a keyed stream takes a KeyedProcessFunction, not <function",),
    ),
    Mistake(
        "key_by with the name of a column",
        built(lambda stream: stream.key_by("name")),
        ConfigurationError,
        (r"key_by\(\) takes a callable or a KeySelector, not 'name'",),
    ),
    Mistake(
        "a key selector of two arguments",
        built(lambda stream: stream.key_by(lambda key, value: key)),
        ConfigurationError,
        (
            r"key_by\(\): the lambda \(test_program_mistakes.py, line \d+\)",
            r"1 argument, and takes \(key, value\)",
        ),
    ),
    Mistake(
        "a lambda of two arguments",
        built(lambda stream: stream.map(lambda key, value: key)),
        ConfigurationError,
        (r"map\(\): the lambda", r"1 argument, and takes \(key, value\)", "missing .*'value'"),
    ),
    Mistake(
        "process_element without ctx",
        keyed(lambda stream: stream.process(WithoutContext())),
        ConfigurationError,
        (
            r"WithoutContext.process_element\(\) \(test_program_mistakes.py, line \d+\)",
            r"2 arguments, and takes \(value",
        ),
    ),
    Mistake(
        "on_timer without ctx",
        keyed(lambda stream: stream.process(TimerWithoutContext())),
        ConfigurationError,
        (r"TimerWithoutContext.on_timer\(\)", r"2 arguments, and takes \(timestamp"),
    ),
    Mistake(
        "reduce with one argument",
        keyed(lambda stream: stream.reduce(lambda pair: pair)),
        ConfigurationError,
        (r"reduce\(\): the lambda", r"2 arguments, and takes \(pair\)"),
    ),
    Mistake(
        "map with a function that yields",
        built(lambda stream: stream.map(yields)),
        ConfigurationError,
        (r"map\(\) calls yields\(\) \(test_program_mistakes.py, line \d+\), which yields", r"flat_map\(\)"),
    ),
    Mistake(
        "filter with a function that yields",
        keyed(lambda stream: stream.filter(yields)),
        ConfigurationError,
        (r"filter\(\) calls yields\(\)", "what one call returns"),
    ),
    Mistake(
        "filter with a value",
        built(lambda stream: stream.filter(5)),
        ConfigurationError,
        (r"filter\(\) takes a callable or a FilterFunction, not 5",),
    ),
    Mistake(
        "an output type of Python's",
        built(lambda stream: stream.map(str, output_type=int)),
        ConfigurationError,
        (r"output_type must be made by Types, such as Types.LONG\(\), not <class 'int'>",),
    ),
    Mistake(
        "a key type of Python's",
        built(lambda stream: stream.key_by(first, key_type=str)),
        ConfigurationError,
        ("key_type must be made by Types",),
    ),
    Mistake(
        "a window of less than nothing",
        keyed(lambda stream: stream.window(TumblingEventTimeWindows.of(Time.seconds(-1)))),
        ConfigurationError,
        ("TumblingEventTimeWindows", "size -1000 ms"),
    ),
    Mistake(
        "a slide of nothing",
        keyed(lambda stream: stream.window(SlidingEventTimeWindows.of(10, 0))),
        ConfigurationError,
        ("SlidingEventTimeWindows", "slide 0 ms"),
    ),
    Mistake(
        "a session without gap",
        keyed(lambda stream: stream.window(EventTimeSessionWindows.with_gap(Time.seconds(0)))),
        ConfigurationError,
        ("gap", "0"),
    ),
    Mistake(
        "a window of a class",
        keyed(lambda stream: stream.window(TumblingEventTimeWindows)),
        ConfigurationError,
        (r"window\(\) takes a WindowAssigner, not <class",),
    ),
    Mistake(
        "a size in words",
        keyed(lambda stream: stream.window(TumblingEventTimeWindows.of("5 s"))),  # type: ignore[arg-type]
        ConfigurationError,
        ("a Time, Duration or timedelta is needed, not '5 s'",),
    ),
    Mistake(
        "a window function that is plain",
        keyed(lambda stream: stream.window(TumblingEventTimeWindows.of(10)).process(lambda *_: [])),
        ConfigurationError,
        ("a window takes .*ProcessWindowFunction.*, not <function",),
    ),
    Mistake(
        "a union with a list",
        built(lambda stream: stream.union([1, 2])),
        ConfigurationError,
        (r"union\(\) takes DataStreams, not \[1, 2\]",),
    ),
    Mistake(
        "a connection with a list",
        built(lambda stream: stream.connect([1, 2])),
        ConfigurationError,
        (r"connect\(\) takes a DataStream or a BroadcastStream, not \[1, 2\]",),
    ),
    Mistake(
        "keys on one side of a connection",
        lambda: harness_of(lambda a, b: a.key_by(first).connect(b).map(CoMap())),
        ConfigurationError,
        ("must both have keys, or neither", r"call key_by\(\) on both"),
    ),
    Mistake(
        "a function for keys on connected streams without keys",
        lambda: harness_of(lambda a, b: a.connect(b).process(WithKeys())),
        ConfigurationError,
        (r"process\(\) on these streams takes a CoProcessFunction, not <.*WithKeys",),
    ),
    Mistake(
        "keys of two types on connected streams",
        lambda: harness_of(lambda a, b: a.key_by(first, Types.LONG()).connect(b.key_by(first)).map(CoMap())),
        ConfigurationError,
        ("inputs have keys of different types, LONG and PICKLED_BYTE_ARRAY", "pass the same key_type"),
    ),
    Mistake(
        "keys of two declared types on connected streams",
        lambda: harness_of(
            lambda a, b: a.key_by(first, Types.LONG()).connect(b.key_by(first, Types.INT())).map(CoMap())
        ),
        ConfigurationError,
        ("'CoMap': its inputs have keys of different types, LONG and INT",),
    ),
    Mistake(
        "a plain function on connected streams",
        lambda: harness_of(lambda a, b: a.connect(b).map(str)),
        ConfigurationError,
        (r"map\(\) on these streams takes a CoMapFunction, not <class 'str'>",),
    ),
    Mistake(
        "a side output by its name",
        built(lambda stream: stream.process(Process()).get_side_output("late")),
        ConfigurationError,
        (r"get_side_output\(\) takes an OutputTag, not 'late'",),
    ),
    Mistake(
        "a side output of what has none",
        built(lambda stream: stream.map(str).get_side_output(LATE)),
        ConfigurationError,
        ("'str' has no side outputs", r"process\(\), windows and"),
    ),
    Mistake(
        "a tag without a name",
        lambda: OutputTag(""),
        ConfigurationError,
        ("the id of an OutputTag must be a non-empty string, not",),
    ),
    Mistake(
        "a plain function as watermark strategy",
        built(lambda stream: stream.assign_timestamps_and_watermarks(first)),
        ConfigurationError,
        ("a WatermarkStrategy is needed, not",),
    ),
    Mistake(
        "a function of one argument as timestamp assigner",
        lambda: WatermarkStrategy().with_timestamp_assigner(lambda value: 1),  # type: ignore[arg-type, misc]
        ConfigurationError,
        ("a TimestampAssigner is needed, not", "or a function of a record and the timestamp", "too many"),
    ),
    Mistake(
        "a uid behind key_by",
        built(lambda stream: stream.key_by(first).uid("counts")),
        ConfigurationError,
        (r"key_by\(\) adds none", r"call uid\(\) on the operator before key_by\(\), or on the one after"),
    ),
    Mistake(
        "a number as uid",
        keyed(lambda stream: stream.process(KeyedProcess()).uid(7)),
        ConfigurationError,
        ("^a uid must be a non-empty string, not 7$",),
    ),
    Mistake(
        "nothing as uid",
        keyed(lambda stream: stream.process(KeyedProcess()).uid("")),
        ConfigurationError,
        ("^a uid must be a non-empty string, not ''$",),
    ),
    Mistake(
        "0 as the hash of a uid",
        keyed(lambda stream: stream.process(KeyedProcess()).set_uid_hash(0)),
        ConfigurationError,
        ("^a uid must be a non-empty string, not 0$",),
    ),
    Mistake(
        "a number as the name of an operator",
        built(lambda stream: stream.map(str).name(7)),
        ConfigurationError,
        ("^the name of an operator must be a string, not 7$",),
    ),
    Mistake(
        "a number as the name of a job with state",
        lambda: new_savepoint(3),  # type: ignore[arg-type]
        ConfigurationError,
        ("^the name of a job must be a non-empty string, not 3$",),
    ),
    Mistake(
        "a number as uid of an operator with state",
        lambda: new_savepoint("job").bootstrap(7, [], key="k", function={}),  # type: ignore[arg-type]
        ConfigurationError,
        ("^a uid must be a non-empty string, not 7$",),
    ),
    Mistake(
        "a number as the name of a DataFrame's job",
        lambda: JobOptions("keyed_process()", {"job_name": 20240501}).check(None),  # type: ignore[arg-type, typeddict-item]
        ConfigurationError,
        ("^job_name must be a non-empty string, not 20240501$",),
    ),
    Mistake(
        "a tuple of types of Python's",
        lambda: Types.TUPLE([int, str]),  # type: ignore[arg-type]
        ConfigurationError,
        (r"^Types.TUPLE\(\): field_types must be made by Types, such as Types.LONG\(\), not <class 'int'>$",),
    ),
    Mistake(
        "a tuple of one type without a list",
        lambda: Types.TUPLE(Types.LONG()),  # type: ignore[arg-type]
        ConfigurationError,
        (r"^Types.TUPLE\(\) takes a list of types, such as \[Types.LONG\(\)\], not Long",),
    ),
    Mistake(
        "a list of a type that is not called",
        lambda: Types.LIST(Types.LONG),  # type: ignore[arg-type]
        ConfigurationError,
        (r"^Types.LIST\(\): element_type must be made by Types, .* not <function",),
    ),
    Mistake(
        "a map to a type that is not called",
        lambda: Types.MAP(Types.STRING(), Types.LONG),  # type: ignore[arg-type]
        ConfigurationError,
        (r"^Types.MAP\(\): value_type_info must be made by Types, .* not <function",),
    ),
    Mistake(
        "a map from a type of Python's",
        lambda: Types.MAP(str, Types.LONG()),  # type: ignore[arg-type]
        ConfigurationError,
        (r"^Types.MAP\(\): key_type_info must be made by Types, .* not <class 'str'>$",),
    ),
    Mistake(
        "an array of a type of Python's",
        lambda: Types.PRIMITIVE_ARRAY(int),  # type: ignore[arg-type]
        ConfigurationError,
        (r"^Types.PRIMITIVE_ARRAY\(\): element_type must be made by Types, .* not <class 'int'>$",),
    ),
    Mistake(
        "a row of a type of Python's",
        lambda: Types.ROW([Types.LONG(), "STRING"]),  # type: ignore[arg-type]
        ConfigurationError,
        (r"^Types.ROW\(\): field_types must be made by Types, .* not 'STRING'$",),
    ),
    Mistake(
        "a row of one type without a list",
        lambda: Types.ROW(Types.LONG()),  # type: ignore[arg-type]
        ConfigurationError,
        (r"^Types.ROW\(\) takes a list of types, .* not Long",),
    ),
    Mistake(
        "a row whose one name is no list",
        lambda: Types.ROW_NAMED("ab", [Types.LONG(), Types.LONG()]),  # type: ignore[arg-type]
        ConfigurationError,
        (r"names of a row's fields are a list, not 'ab': give \['ab'\]$",),
    ),
    Mistake(
        "a key type of Python's for a harness",
        lambda: KeyedOneInputOperatorHarness(KeyedProcess(), first, int),  # type: ignore[arg-type]
        ConfigurationError,
        (r"key_type must be made by Types, such as .*, not <class 'int'>",),
    ),
    Mistake(
        "a key type of Python's for a harness of two inputs",
        lambda: KeyedTwoInputOperatorHarness(WithKeys(), first, first, int),  # type: ignore[arg-type]
        ConfigurationError,
        (r"key_type must be made by Types, such as .*, not <class 'int'>",),
    ),
    Mistake(
        "a key type of Python's for a harness with broadcast state",
        lambda: BroadcastOperatorHarness(WritesRules(), [RULES], first, int),  # type: ignore[arg-type]
        ConfigurationError,
        (r"key_type must be made by Types, such as .*, not <class 'int'>",),
    ),
    Mistake(
        "a key type of Python's for a savepoint",
        lambda: new_savepoint("job").bootstrap("op", [], key="k", function=KeyedProcess(), key_type=int),  # type: ignore[arg-type]
        ConfigurationError,
        (r"key_type must be made by Types, such as .*, not <class 'int'>",),
    ),
    Mistake(
        "a sink by its directory",
        built(lambda stream: stream.map(str).sink_to("/tmp/out")),
        ConfigurationError,
        (r"sink_to\(\) takes a sink, such as FileSink\(directory\), not '/tmp/out'",),
    ),
    Mistake(
        "a parallelism in words",
        built(lambda stream: stream.map(str).set_parallelism("4")),
        ParallelismError,
        ("parallelism must be a whole number, not '4'",),
    ),
    Mistake(
        "time to live as a number",
        lambda: ValueStateDescriptor("n").enable_time_to_live(10),  # type: ignore[arg-type]
        DescriptorTypeError,
        ("ValueStateDescriptor 'n': a StateTtlConfig is needed, not 10",),
    ),
    Mistake(
        "time to live of less than nothing",
        lambda: StateTtlConfig.new_builder(Time.seconds(-1)).build(),
        ConfigurationError,
        ("-1000",),
    ),
    Mistake(
        "a state of a type of Python's",
        lambda: ValueStateDescriptor("n", int),  # type: ignore[arg-type]
        DescriptorTypeError,
        (r"ValueStateDescriptor 'n'", r"must be made by Types, such as Types.LONG\(\), not <class 'int'>"),
    ),
    Mistake(
        "a reducing state without function",
        lambda: ReducingStateDescriptor("n", Types.LONG()),  # type: ignore[arg-type]
        DescriptorTypeError,
        ("ReducingStateDescriptor 'n'", "must be a ReduceFunction or a callable, not"),
    ),
    Mistake(
        "an aggregating state with a class",
        lambda: AggregatingStateDescriptor("n", Sum),  # type: ignore[arg-type]
        DescriptorTypeError,
        ("AggregatingStateDescriptor 'n'", "must be an AggregateFunction, not <class"),
    ),
    Mistake(
        "a function that holds a generator",
        lambda: pickled("counts", lambda record, source=(n for n in range(3)): record),
        ConfigurationError,
        ("operator 'counts': its function cannot be pickled", r"Create what it needs .* in open\(\)"),
    ),
]


@of_each(BUILDING)
def test_found_while_the_program_is_built(mistake: Mistake) -> None:
    check(mistake)


# --- in a function -----------------------------------------------------------------------------------


class Does(KeyedProcessFunction):
    """Does something in ``open``, with each record, with each timer."""

    def __init__(
        self,
        in_open: Callable[[Any], Any] = lambda context: None,
        with_record: Callable[[Any, Any], Any] = lambda state, ctx: None,
        on_timer: Callable[[], Any] = lambda: None,
    ) -> None:
        self.in_open = in_open
        self.with_record = with_record
        self.with_timer = on_timer

    def open(self, runtime_context: Any) -> None:
        self.state = self.in_open(runtime_context)

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        return self.with_record(self.state, ctx)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Any:
        return self.with_timer()


def doing(**what: Any) -> Callable[[], Any]:
    """Process one record with a function that does so, and then all timers."""

    def run() -> None:
        harness = KeyedOneInputOperatorHarness(Does(**what), first)
        harness.process_element(("a", 1))
        harness.process_watermark(MAX_WATERMARK)

    return run


def with_state(descriptor: Any, use: Callable[[Any], Any]) -> Callable[[], Any]:
    ask = {ListStateDescriptor: "get_list_state", MapStateDescriptor: "get_map_state"}
    method = ask.get(type(descriptor), "get_state")
    return doing(
        in_open=lambda context: getattr(context, method)(descriptor), with_record=lambda state, _: use(state)
    )


def with_key(key: Any) -> Callable[[], Any]:
    return lambda: KeyedOneInputOperatorHarness(KeyedProcess(), lambda record: key).process_element(("a", 1))


class Fails(KeyedProcessFunction):
    """Fails, or is wrong, with each record."""

    def __init__(self) -> None:
        self.state = self.get_runtime_context().get_state(ValueStateDescriptor("n"))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
        yield value


class AsksForState(MapFunction):
    def open(self, runtime_context: Any) -> None:
        runtime_context.get_state(ValueStateDescriptor("n"))

    def map(self, value: Any) -> Any:
        return value


class SetsTimer(ProcessFunction):
    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterable[Any]:
        ctx.timer_service().register_event_time_timer(1)
        return ()


class Seconds(TimestampAssigner):
    def extract_timestamp(self, value: Any, record_timestamp: int) -> int:
        return value / 1000  # type: ignore[no-any-return]


class Shouts(FlatMapFunction):
    def flat_map(self, value: Any) -> Any:
        return str(value)


class WholeWindow(ProcessWindowFunction):
    def process(self, key: Any, context: Any, elements: Iterable[Any]) -> Any:
        return {"key": key, "n": len(list(elements))}


class NoMerge(Sum):
    def merge(self, acc_a: int, acc_b: int) -> int:
        raise NotImplementedError("never needed")


class WritesRules(KeyedBroadcastProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        ctx.get_broadcast_state(RULES).put("a", 1)
        return ()

    def process_broadcast_element(self, value: Any, ctx: Any) -> Iterable[Any]:
        return ()


RULES = MapStateDescriptor("rules", Types.STRING(), Types.LONG())


def twice(harness: Any, *records: Any) -> None:
    for record in records:
        harness.process_element(record)


def reduced_with(func: Callable[[Any, Any], Any]) -> Callable[[], None]:
    return lambda: twice(harness_of(lambda s: s.key_by(first).reduce(func)), ("a", 1), ("a", 2), ("a", 3))


def in_windows(build: Callable[[Any], Any], assigner: Any, *timestamps: int) -> Callable[[], None]:
    def run() -> None:
        harness = harness_of(lambda stream: build(stream.key_by(first).window(assigner)))
        for timestamp in timestamps:
            harness.process_element(("a", 1), timestamp)
        harness.process_watermark(MAX_WATERMARK)

    return run


def raises() -> None:
    raise ZeroDivisionError("cannot divide")


OPERATOR = r"in operator 'Does', key 'a', record \('a', 1\)"
OWN_LINE = r'test_program_mistakes.py", line \d+'

RUNNING = [
    Mistake(
        "a text returned",
        doing(with_record=lambda state, ctx: "hello"),
        FunctionResultError,
        (
            r"Does.process_element\(\) \(test_program_mistakes.py, line \d+\) returned a str, 'hello'",
            "each of its letters would be a result",
            "yield results, or return a list of them",
            OPERATOR,
        ),
    ),
    Mistake(
        "a number returned",
        doing(with_record=lambda state, ctx: 42),
        FunctionResultError,
        ("returned an int, 42", "yield results, or return a list of them", OPERATOR),
    ),
    Mistake(
        "a dict returned",
        doing(with_record=lambda state, ctx: {"n": 1}),
        FunctionResultError,
        ("returned a dict, {'n': 1}", "each of its keys", OPERATOR),
    ),
    Mistake(
        "a row returned",
        doing(with_record=lambda state, ctx: Row(n=1)),
        FunctionResultError,
        (r"returned a Row, Row\(n=1\)", "each of its fields", OPERATOR),
    ),
    Mistake(
        "a table of pandas returned",
        doing(with_record=lambda state, ctx: pd.DataFrame({"n": [1]})),
        FunctionResultError,
        ("returned a DataFrame", "each of its columns would be a result", OPERATOR),
    ),
    Mistake(
        "a series of pandas returned",
        doing(with_record=lambda state, ctx: pd.Series([1])),
        FunctionResultError,
        ("returned a Series", "each of its values would be a result", OPERATOR),
    ),
    Mistake(
        "a table of Arrow returned",
        doing(with_record=lambda state, ctx: pa.table({"n": [1]})),
        FunctionResultError,
        ("returned a Table", "each of its columns would be a result: .* table.to_pylist()", OPERATOR),
    ),
    Mistake(
        "a batch of Arrow returned",
        doing(with_record=lambda state, ctx: pa.record_batch({"n": [1]})),
        FunctionResultError,
        ("returned a RecordBatch", "each of its columns would be a result: .* table.to_pylist()", OPERATOR),
    ),
    Mistake(
        "a number of numpy returned",
        doing(with_record=lambda state, ctx: np.float64(1.5)),
        FunctionResultError,
        ("returned a float64, .*1.5", "no iterable of results: yield results, or return a list", OPERATOR),
    ),
    Mistake(
        "a side output returned",
        doing(with_record=lambda state, ctx: (LATE, 1)),
        FunctionResultError,
        ("returned a tuple", r"return \[\(tag, value\)\]", OPERATOR),
    ),
    Mistake(
        "a text returned by on_timer",
        doing(
            with_record=lambda state, ctx: ctx.timer_service().register_event_time_timer(1),
            on_timer=lambda: "hello",
        ),
        FunctionResultError,
        (r"Does.on_timer\(\).*returned a str", r"in on_timer\(\) at 1", "operator 'Does', key 'a'"),
    ),
    Mistake(
        "a text returned by flat_map",
        lambda: OneInputOperatorHarness(Shouts()).process_element(7),
        FunctionResultError,
        (r"Shouts.flat_map\(\).*returned a str, '7'", "in operator 'Shouts', record 7"),
    ),
    Mistake(
        "a text returned by flat_map after key_by",
        lambda: harness_of(lambda s: s.key_by(first).flat_map(Shouts())).process_element("ab"),
        FunctionResultError,
        (r"Shouts.flat_map\(\).*returned a str, 'ab'", "in operator 'Shouts', key 'a', record 'ab'"),
    ),
    Mistake(
        "a number returned by a lambda",
        lambda: harness_of(lambda s: s.flat_map(lambda n: n + 1)).process_element(6),
        FunctionResultError,
        (
            r"the lambda \(test_program_mistakes.py, line \d+\) returned an int, 7",
            "in operator 'flat_map', record 6",
        ),
    ),
    Mistake(
        "a dict returned by a window",
        in_windows(lambda windows: windows.process(WholeWindow()), TumblingEventTimeWindows.of(10), 3),
        FunctionResultError,
        (r"WholeWindow.process\(\).*returned a dict", "each of its keys", "operator 'WholeWindow', key 'a'"),
    ),
    Mistake(
        "reduce that returns nothing",
        reduced_with(lambda a, b: None),
        FunctionResultError,
        ("the lambda .* returned None: return what its two arguments make", "operator 'reduce', key 'a'"),
    ),
    Mistake(
        "reduce to another type",
        reduced_with(lambda a, b: a[1] + b[1]),
        UserFunctionError,
        ("TypeError: 'int' object is not subscriptable", "operator 'reduce', key 'a'", OWN_LINE),
    ),
    Mistake(
        "a function that raises",
        doing(with_record=lambda state, ctx: raises()),
        UserFunctionError,
        ("ZeroDivisionError: cannot divide", OPERATOR, OWN_LINE),
    ),
    Mistake(
        "open that raises",
        doing(in_open=lambda context: raises()),
        UserFunctionError,
        ("ZeroDivisionError: cannot divide", r"operator 'Does'.*in open\(\)", OWN_LINE),
    ),
    Mistake(
        "state asked for in the constructor",
        Fails,
        StateAccessError,
        ("Fails has no runtime context", r"from open\(\) on"),
    ),
    Mistake(
        "state read in open",
        doing(in_open=lambda context: context.get_state(ValueStateDescriptor("n")).value()),
        NoCurrentKeyError,
        ("state 'n'", r"in open\(\)", OWN_LINE),
    ),
    Mistake(
        "one name for two types",
        doing(
            in_open=lambda context: (
                context.get_state(ValueStateDescriptor("n", Types.LONG())),
                context.get_state(ValueStateDescriptor("n", Types.STRING())),
            )
        ),
        StateRegistrationError,
        ("state 'n' is in use as VALUE of LONG", "choose another name, or the same kind and type", OWN_LINE),
    ),
    Mistake(
        "the descriptor of another kind",
        doing(in_open=lambda context: context.get_state(ListStateDescriptor("n"))),
        StateRegistrationError,
        ("a ValueStateDescriptor is needed here, not ListStateDescriptor", "operator 'Does'", OWN_LINE),
    ),
    Mistake(
        "a text in a state of numbers",
        with_state(ValueStateDescriptor("n", Types.LONG()), lambda state: state.update("x")),
        StateValueError,
        ("state 'n', key 'a'", "'x'", "LONG", OPERATOR, OWN_LINE, r"state\.update\(\"x\"\)"),
    ),
    Mistake(
        "None in a list",
        with_state(ListStateDescriptor("n"), lambda state: state.add(None)),
        StateValueError,
        ("state 'n'", "None", OPERATOR, OWN_LINE),
    ),
    Mistake(
        "a list as a key of a map",
        with_state(MapStateDescriptor("n"), lambda state: state.put([1], 1)),
        StateValueError,
        ("state 'n'", "hash", OPERATOR, OWN_LINE),
    ),
    Mistake(
        "a state used as a list",
        with_state(ListStateDescriptor("n"), lambda state: state.append(1)),
        UserFunctionError,
        ("AttributeError: .*'append'", OPERATOR, OWN_LINE),
    ),
    Mistake(
        "a key that is None",
        with_key(None),
        InvalidKeyError,
        ("None", r"operator 'KeyedProcess', record \('a', 1\)"),
    ),
    Mistake(
        "a key that is no number",
        with_key(math.nan),
        InvalidKeyError,
        ("(?i)nan", r"operator 'KeyedProcess', record \('a', 1\)"),
    ),
    Mistake(
        "a key that can change",
        with_key(["a"]),
        InvalidKeyError,
        (r"\['a'\]", "tuple", r"operator 'KeyedProcess', record \('a', 1\)"),
    ),
    Mistake(
        "a key of a class without a stable hash",
        with_key(object()),
        InvalidKeyError,
        ("object", r"operator 'KeyedProcess', record \('a', 1\)"),
    ),
    Mistake(
        "a key selector that raises",
        lambda: KeyedOneInputOperatorHarness(KeyedProcess(), itemgetter("user")).process_element(
            {"name": "a"}
        ),
        UserFunctionError,
        ("KeyError: 'user'", "operator 'KeyedProcess', record {'name': 'a'}"),
    ),
    Mistake(
        "keyed state without keys",
        lambda: OneInputOperatorHarness(AsksForState()).process_element(1),
        NotKeyedStreamError,
        (r"operator 'AsksForState': keyed state 'n' \(VALUE\)", r"after key_by\(\)", OWN_LINE),
    ),
    Mistake(
        "timers without keys",
        lambda: OneInputOperatorHarness(SetsTimer()).process_element(1),
        NotKeyedStreamError,
        ("timers belong to keys", r"after key_by\(\)", "operator 'SetsTimer', record 1", OWN_LINE),
    ),
    Mistake(
        "a timer at a time that is none",
        doing(
            with_record=lambda state, ctx: ctx.timer_service().register_event_time_timer(
                datetime.datetime(2024, 1, 1)
            )
        ),
        StateValueError,
        ("whole number of milliseconds", "datetime", OPERATOR, OWN_LINE),
    ),
    *(
        Mistake(
            f"a timer at {timestamp!r}",
            doing(
                with_record=lambda state, ctx, timestamp=timestamp: (
                    ctx.timer_service().register_event_time_timer(timestamp)
                )
            ),
            StateValueError,
            ("whole number of milliseconds", type(timestamp).__name__, OPERATOR),
        )
        for timestamp in (True, 5.0, np.float64(5), np.uint64(2**63), 2**63)
    ),
    Mistake(
        "windows by event time without watermarks",
        lambda: harness_of(
            lambda s: s.key_by(first).window(TumblingEventTimeWindows.of(10)).reduce(lambda a, b: a)
        ).process_element(("a", 1)),
        BadRecordError,
        (
            "needs timestamps",
            r"assign_timestamps_and_watermarks\(\) before key_by\(\)",
            "operator 'window reduce'",
        ),
    ),
    Mistake(
        "timestamps that are no whole numbers",
        lambda: OneInputOperatorHarness(
            WatermarkStrategy.for_monotonous_timestamps().with_timestamp_assigner(Seconds())
        ).process_element(5),
        BadRecordError,
        (r"whole number of milliseconds.*extract_timestamp\(\) returned 0.005", "record 5"),
    ),
    Mistake(
        "sessions of an aggregate that cannot merge",
        in_windows(
            lambda windows: windows.aggregate(NoMerge()), EventTimeSessionWindows.with_gap(10), 1, 15, 8
        ),
        ConfigurationError,
        (r"NoMerge.merge\(\) failed", "sessions, need an AggregateFunction whose merge"),
    ),
    Mistake(
        "broadcast state written on the other side",
        lambda: BroadcastOperatorHarness(WritesRules(), [RULES], first).process_element(("a", 1)),
        StateAccessError,
        (r"broadcast state 'rules' may only be changed in process_broadcast_element\(\)", OWN_LINE),
    ),
    Mistake(
        "a result that is of another type than said",
        lambda: harness_of(lambda s: s.map(str, output_type=Types.LONG())).process_element(1),
        BadRecordError,
        ("operator 'str': result does not fit output_type", "LONG", "'1'"),
    ),
]


@of_each(RUNNING)
def test_found_by_a_record(mistake: Mistake) -> None:
    check(mistake)


def test_there_are_enough_of_them() -> None:
    assert len(BUILDING) + len(RUNNING) >= 40


# --- and what is none --------------------------------------------------------------------------------


class Numbered:
    """Can be iterated over in the old way."""

    def __getitem__(self, index: int) -> int:
        if index == 2:
            raise IndexError
        return index


#: What PyFlink 2.3 makes of what ``process_element`` of a keyed stream returns: this program printed it.
#: ``RETURNED = {"text": "ab", "bytes": b"ab", "dict": {"a": 1}, "row": Row(1, 2), "tuple": (1, 2), "set":
#: {1}, "none": None, "empty": ()}; env.from_collection(list(RETURNED)).key_by(lambda v: v).process(Returns())
#: .map(repr).print()``, where ``Returns`` returns ``RETURNED[value]``.
ON_PYFLINK = [
    ("ab", ["a", "b"]),
    (b"ab", [97, 98]),
    ({"a": 1}, ["a"]),
    (Row(1, 2), [1, 2]),
    ((1, 2), [1, 2]),
    ({1}, [1]),
    (None, []),
    ((), []),
]
#: Where this differs: they are single records by mistake.
REFUSED = (str, bytes, dict, Row)


@pytest.mark.parametrize(("returned", "results"), ON_PYFLINK, ids=lambda value: type(value).__name__)
def test_what_pyflink_makes_of_it(returned: Any, results: list[Any]) -> None:
    harness = KeyedOneInputOperatorHarness(Does(with_record=lambda state, ctx: returned), lambda value: "k")
    if isinstance(returned, REFUSED):
        with pytest.raises(FunctionResultError):
            harness.process_element(0)
    else:
        assert harness.process_element(0) == results


#: What one call returns, and the results.
RETURNED = [
    (None, []),
    ((), []),
    ((1, 2), [1, 2]),
    ([1, 2], [1, 2]),
    ([("a", 1)], [("a", 1)]),
    ({1}, [1]),
    (range(2), [0, 1]),
    (map(str, [1]), ["1"]),
    ((n for n in [1]), [1]),
    ({"a": 1}.items(), [("a", 1)]),
    (Numbered(), [0, 1]),
]


@pytest.mark.parametrize(("returned", "results"), RETURNED, ids=lambda value: type(value).__name__)
def test_what_can_be_results(returned: Any, results: list[Any]) -> None:
    if isinstance(returned, Iterator):
        returned = list(returned)
    keyed_one = KeyedOneInputOperatorHarness(Does(with_record=lambda state, ctx: returned), lambda value: "k")
    assert keyed_one.process_element(0) == results
    assert harness_of(lambda s: s.flat_map(lambda value: returned)).process_element(0) == results


def test_builtins_and_classes_are_functions_too() -> None:
    for func in (str, "{}".format, itemgetter(0), len, functools.partial(max, 3), Row("a")):
        built(lambda stream, func=func: stream.map(func))()


def test_numpys_whole_numbers_are_times_of_timers() -> None:
    fired: list[Any] = []

    class Timers(KeyedProcess):
        def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterable[Any]:
            ctx.timer_service().register_event_time_timer(np.int64(5))
            ctx.timer_service().register_event_time_timer(5)
            ctx.timer_service().register_event_time_timer(np.int32(6))
            ctx.timer_service().delete_event_time_timer(np.int64(6))
            return ()

        def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterable[Any]:
            fired.append((timestamp, type(timestamp)))
            return ()

    harness = KeyedOneInputOperatorHarness(Timers(), first)
    harness.process_element(("a", 1))
    harness.process_watermark(MAX_WATERMARK)
    assert fired == [(5, int)]
