"""A program that checkers find nothing wrong with: every class has its parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import TypeGuard

from pyspark.sql import DataFrame
from typing_extensions import TypeIs, assert_type

from pyflinkstate import (
    MAX_WATERMARK,
    AggregateFunction,
    AggregatingState,
    AggregatingStateDescriptor,
    Available,
    DataStream,
    Epoch,
    EventTimeSessionWindows,
    FilterFunction,
    FlatMapFunction,
    KeyedProcessQuery,
    KeyedStream,
    ListState,
    ListStateDescriptor,
    MapFunction,
    MapState,
    MapStateDescriptor,
    Offset,
    ProcessFunction,
    ReduceFunction,
    ReducingState,
    ReducingStateDescriptor,
    Reject,
    RejectedRecord,
    Row,
    RuntimeContext,
    Sink,
    SinkWriter,
    Source,
    SplitEpoch,
    StreamExecutionEnvironment,
    TypeInformation,
    Types,
    ValueState,
    ValueStateDescriptor,
    WatermarkStrategy,
    check_position,
    keyed_map,
    keyed_process,
)
from pyflinkstate.common import Time
from pyflinkstate.datastream import (
    CheckpointingMode,
    CoMapFunction,
    KeyedBroadcastProcessFunction,
    KeyedProcessFunction,
    KeySelector,
    OutputTag,
)
from pyflinkstate.datastream.functions import ProcessWindowFunction, WindowFunction
from pyflinkstate.datastream.window import (
    ContinuousEventTimeTrigger,
    ContinuousProcessingTimeTrigger,
    CountTrigger,
    EventTimeTrigger,
    GlobalWindows,
    NeverTrigger,
    PurgingTrigger,
    TimeWindow,
    Trigger,
    TriggerResult,
    TumblingEventTimeWindows,
    Window,
)
from pyflinkstate.state_access import Checkpoint, dry_run, edit

Order = tuple[str, int]
LATE: OutputTag[str] = OutputTag("late", Types.STRING())


class Mean(AggregateFunction[int, tuple[int, int], float]):
    def create_accumulator(self) -> tuple[int, int]:
        return 0, 0

    def add(self, value: int, accumulator: tuple[int, int]) -> tuple[int, int]:
        return accumulator[0] + value, accumulator[1] + 1

    def get_result(self, accumulator: tuple[int, int]) -> float:
        return accumulator[0] / accumulator[1]

    def merge(self, acc_a: tuple[int, int], acc_b: tuple[int, int]) -> tuple[int, int]:
        return acc_a[0] + acc_b[0], acc_a[1] + acc_b[1]


class Greatest(ReduceFunction[int]):
    def reduce(self, value1: int, value2: int) -> int:
        return max(value1, value2)


class Spend(KeyedProcessFunction[str, Order, str]):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.total: ValueState[int] = runtime_context.get_state(ValueStateDescriptor("total", Types.LONG()))
        self.amounts: ListState[int] = runtime_context.get_list_state(
            ListStateDescriptor("amounts", Types.LONG())
        )
        self.days: MapState[str, int] = runtime_context.get_map_state(
            MapStateDescriptor("days", Types.STRING(), Types.LONG())
        )
        self.most: ReducingState[int] = runtime_context.get_reducing_state(
            ReducingStateDescriptor("most", Greatest(), Types.LONG())
        )
        self.mean: AggregatingState[int, float] = runtime_context.get_aggregating_state(
            AggregatingStateDescriptor("mean", Mean())
        )
        least = ReducingStateDescriptor("least", min_of_two, Types.LONG())
        assert_type(runtime_context.get_reducing_state(least), ReducingState[int])

    def process_element(
        self, value: Order, ctx: KeyedProcessFunction.Context[str]
    ) -> Iterable[str | tuple[OutputTag[str], str]]:
        assert_type(self.total.value(), int | None)
        self.total.update((self.total.value() or 0) + value[1])
        self.amounts.add(value[1])
        self.days.put("monday", value[1])
        ctx.timer_service().register_event_time_timer(MAX_WATERMARK)
        self.most.add(value[1])
        self.mean.add(value[1])
        assert_type(self.mean.get(), float | None)
        assert_type(ctx.get_current_key(), str)
        yield value[0].upper()
        yield LATE, "late"

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext[str]) -> Iterable[str]:
        yield ctx.get_current_key()


class Plain(KeyedProcessFunction):
    """Without parameters, as in PyFlink: anything goes."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.count = runtime_context.get_state(ValueStateDescriptor("count"))

    def process_element(self, value, ctx):  # type: ignore[no-untyped-def]
        self.count.update(value)
        yield value


class Length(MapFunction[str, int]):
    def map(self, value: str) -> int:
        return len(value)


class NotEmpty(FilterFunction[str]):
    def filter(self, value: str) -> bool:
        return bool(value)


class Words(FlatMapFunction[str, str]):
    def flat_map(self, value: str) -> Iterable[str]:
        yield from value.split()


class Anything(MapFunction[object, str]):
    def map(self, value: object) -> str:
        return str(value)


class Sizes(ProcessFunction[str, int]):
    def process_element(self, value: str, ctx: ProcessFunction.Context) -> Iterable[int]:
        yield len(value)


class ByName(KeySelector[Order, str]):
    def get_key(self, value: Order) -> str:
        return value[0]


class Join(CoMapFunction[str, int, str]):
    def map1(self, value: str) -> str:
        return value

    def map2(self, value: int) -> str:
        return str(value)


class Evens(Source):
    def initial_offset(self) -> Offset:
        return {"next": 0}

    def latest_offset(self, start: Offset, whole: bool) -> Available:
        check_position(start, {"step": 2}, "the even numbers")
        return Available({"next": start["next"] + 10, "step": 2})

    def plan(self, start: Offset, end: Offset) -> Epoch:
        return SplitEpoch([(start["next"], end["next"])], even_numbers, is_fresh=True)


def even_numbers(split: tuple[int, int], reject: Reject) -> Iterable[int]:
    if split[0] < 0:
        reject(RejectedRecord("evens", 1, str(split), "it is below 0"))
    return range(*split, 2)


class Sum(Sink):
    def __init__(self) -> None:
        self.total = 0

    def open(self, job_id: str, restored_epoch: int | None) -> None: ...

    def writer(self, epoch: int) -> SinkWriter:
        return SumWriter()

    def prepare(self, epoch: int, results: list[object]) -> None:
        self.total += len(results)

    def commit(self, epoch: int) -> None: ...
    def rewind(self, epoch: int) -> None: ...


class SumWriter:
    def write(self, partition: int, records: Iterator[int]) -> Iterator[object]:
        yield sum(records)


class Count(ProcessWindowFunction[Order, int, str, TimeWindow]):
    def process(
        self, key: str, context: ProcessWindowFunction.Context[TimeWindow], elements: Iterable[Order]
    ) -> Iterable[int]:
        assert_type(context.window(), TimeWindow)
        yield sum(amount for _, amount in elements)


class Ends(WindowFunction[object, int, object, Window]):
    """For any window, of whatever elements."""

    def apply(self, key: object, window: Window, inputs: Iterable[object]) -> Iterable[int]:
        yield window.max_timestamp()


class Eager(Trigger[object, Window]):
    """For any window, of whatever elements."""

    def on_element(
        self, element: object, timestamp: int, window: Window, ctx: Trigger.TriggerContext
    ) -> TriggerResult:
        return TriggerResult.FIRE

    def on_processing_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_event_time(self, time: int, window: Window, ctx: Trigger.TriggerContext) -> TriggerResult:
        return TriggerResult.CONTINUE

    def on_merge(self, window: Window, ctx: Trigger.OnMergeContext) -> None: ...
    def clear(self, window: Window, ctx: Trigger.TriggerContext) -> None: ...


TOTAL = ValueStateDescriptor("total", Types.LONG())
RATES = MapStateDescriptor("rates", Types.STRING(), Types.DOUBLE())


class Convert(KeyedBroadcastProcessFunction[str, Order, tuple[str, float], float]):
    def process_element(
        self, value: Order, ctx: KeyedBroadcastProcessFunction.ReadOnlyContext[str]
    ) -> Iterable[float]:
        yield value[1] * (ctx.get_broadcast_state(RATES).get(value[0]) or 1.0)

    def process_broadcast_element(
        self, value: tuple[str, float], ctx: KeyedBroadcastProcessFunction.Context
    ) -> None:
        ctx.get_broadcast_state(RATES).put(*value)
        ctx.apply_to_keyed_state(TOTAL, add_one)


def add_one(key: str, state: ValueState[int]) -> None:
    state.update((state.value() or 0) + len(key))


def min_of_two(one: int, other: int) -> int:
    return min(one, other)


def is_number(value: int | str) -> TypeIs[int]:
    return isinstance(value, int)


def is_text(value: int | str) -> TypeGuard[str]:
    return isinstance(value, str)


def later(_: Order, other: Order) -> Order:
    return other


def windows_of_a_second() -> TumblingEventTimeWindows:
    return TumblingEventTimeWindows.of(Time.seconds(1))


def run(env: StreamExecutionEnvironment) -> None:
    orders = env.from_collection([("ann", 1), ("bob", 2)])
    assert_type(orders, DataStream[Order])
    keyed = orders.key_by(ByName(), key_type=Types.STRING())
    assert_type(keyed, KeyedStream[str, Order])
    spent = keyed.process(Spend(), output_type=Types.STRING())
    assert_type(spent, DataStream[str])
    assert_type(spent.get_side_output(LATE), DataStream[str])
    assert_type(spent.flat_map(Words()).map(Length()), DataStream[int])
    assert_type(spent.process(Sizes()).map(Anything()), DataStream[str])
    assert_type(spent.map(lambda text: len(text)), DataStream[int])
    assert_type(keyed.reduce(lambda one, other: (one[0], one[1] + other[1])), DataStream[Order])
    assert_type(keyed.sum(1), DataStream[Order])
    assert_type(spent.filter(lambda text: text != ""), DataStream[str])
    assert_type(spent.filter(NotEmpty()), DataStream[str])
    mixed: DataStream[int | str] = env.from_collection([1, "a"])
    assert_type(mixed.filter(is_number), DataStream[int])
    assert_type(mixed.filter(is_text), DataStream[str])
    assert_type(mixed.filter(is_text).map(Length()), DataStream[int])
    assert_type(mixed.key_by(str).filter(is_number), DataStream[int])
    assert_type(spent.connect(spent.map(Length())).map(Join()), DataStream[str])
    windows = keyed.window(windows_of_a_second())
    assert_type(windows.process(Count()), DataStream[int])
    assert_type(windows.reduce(later), DataStream[Order])
    assert_type(windows.reduce(later, Count()), DataStream[int])
    assert_type(spent.map(Length()).window_all(windows_of_a_second()).aggregate(Mean()), DataStream[float])
    rates = env.from_collection([("ann", 1.5)]).broadcast(RATES)
    assert_type(keyed.connect(rates).process(Convert()), DataStream[float])
    rows = env.from_collection([("ann", 1)], Types.ROW([Types.STRING(), Types.LONG()]))
    assert_type(rows, DataStream[Row])
    for text in spent.execute_and_collect():
        assert_type(text, str)
    keyed.process(Plain()).map(str).print()
    env.from_source(Evens()).sink_to(Sum())
    fields = [Types.STRING(), Types.LONG()]
    Types.TUPLE(fields)
    nested: TypeInformation[dict[str, list[int]]] = Types.MAP(Types.STRING(), Types.LIST(Types.LONG()))
    print(nested)


def triggers(keyed: KeyedStream[str, Order]) -> None:
    windows = keyed.window(windows_of_a_second())
    windows.trigger(CountTrigger.of(3)).process(Count())
    windows.trigger(NeverTrigger()).trigger(EventTimeTrigger.create()).trigger(Eager())
    windows.trigger(ContinuousEventTimeTrigger.of(timedelta(seconds=1)))
    windows.trigger(PurgingTrigger.of(CountTrigger.of(3)))
    windows.trigger(PurgingTrigger.of(EventTimeTrigger.create()))
    assert_type(windows.trigger(ContinuousProcessingTimeTrigger.of(1000)).apply(Ends()), DataStream[int])
    keyed.window(EventTimeSessionWindows.with_gap(Time.seconds(1))).trigger(CountTrigger.of(3))
    keyed.count_window(5).trigger(CountTrigger.of(3)).trigger(PurgingTrigger.of(CountTrigger.of(3)))
    everything = keyed.window(GlobalWindows.create()).trigger(CountTrigger.of(3)).trigger(NeverTrigger())
    everything.trigger(PurgingTrigger.of(CountTrigger(3))).reduce(later)
    keyed.window_all(windows_of_a_second()).trigger(CountTrigger.of(3)).trigger(Eager())


def paths(env: StreamExecutionEnvironment, folder: Path, checkpoint: Checkpoint) -> None:
    env.enable_checkpointing(1000, folder).enable_checkpointing(
        1000, CheckpointingMode.EXACTLY_ONCE, storage=folder
    )
    config = env.get_checkpoint_config().set_checkpoint_storage(folder)
    config.set_checkpoint_storage_dir(folder).set_checkpoint_storage(str(folder))
    env.add_python_file(folder / "module.py")
    env.add_python_archive(folder / "data.zip")
    env.set_python_requirements(folder / "requirements.txt", folder)
    dry_run(folder, env)
    dry_run(edit(folder), env)
    assert_type(edit(checkpoint).write(folder), Checkpoint)


def frames(df: DataFrame, folder: Path, query: KeyedProcessQuery) -> None:
    second = timedelta(seconds=1)
    keyed_process(
        df,
        key=("user", "day"),
        function=Spend(),
        schema="total long",
        timestamp="at",
        watermark=second,
        window=windows_of_a_second(),
        allowed_lateness=second,
        checkpoint_directory=folder,
        restore_from=folder,
        retention=second,
    )
    late: OutputTag[Row] = OutputTag("late")
    pair = keyed_process(
        df, key="user", function=Spend(), schema="n long", side_outputs={late: "user string"}
    )
    assert_type(pair, tuple[DataFrame, ...])
    assert_type(keyed_process(df, key="user", function=Spend(), schema="n long", job_name="n"), DataFrame)
    keyed_map(df, ["user", "day"], lambda key, rows, state: [], "total long", restore_from=folder)
    query.stop(folder)


def declared(words: DataStream[str]) -> None:
    words.map(lambda word: Row(word, 1), [Types.STRING(), Types.LONG()])
    pair = [Types.STRING(), Types.LONG()]
    words.flat_map(lambda word: [Row(word, 1)], output_type=pair)
    keyed = words.key_by(lambda word: word)
    keyed.window(windows_of_a_second()).apply(Ends(), [Types.LONG()])
    bad: OutputTag[Row] = OutputTag("bad", pair)
    words.get_side_output(bad)
    seconds = timedelta(seconds=1)
    words.assign_timestamps_and_watermarks(
        WatermarkStrategy.for_bounded_out_of_orderness(seconds).with_idleness(Time.seconds(1))
    )
