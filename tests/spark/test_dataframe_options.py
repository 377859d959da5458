"""What ``keyed_process`` takes besides a key and a function, and ``keyed_map``; at rest and streaming."""

from __future__ import annotations

import datetime
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from pass_through import Count
from pyspark.sql import functions
from test_keyed_process import SUMS, Downstream, SumOfRows, reads

from pyflinkstate import (
    KeyedProcessFunction,
    KeyedStep,
    KeyState,
    OutputTag,
    ProcessWindowFunction,
    RuntimeContext,
    Time,
    TumblingEventTimeWindows,
    Types,
    ValueStateDescriptor,
    errors,
    keyed_map,
    keyed_process,
    keyed_process_queries,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("no_slot_left", "jobs_end"),
    pytest.mark.timeout(180),
]

NOON = datetime.datetime(2024, 5, 1, 12)
#: (user, minute after noon, n)
CLICKS = [("ann", 0, 1), ("bob", 0, 2), ("ann", 1, 3), ("ann", 0, 4), ("bob", 7, 5), ("ann", 7, 6)]


def clicks(spark: Any) -> Any:
    rows = [(user, NOON + datetime.timedelta(minutes=minute), n) for user, minute, n in CLICKS]
    return spark.createDataFrame(rows, "user string, at timestamp, n long").coalesce(1)


def found(frame: Any) -> Counter[Any]:
    return Counter(map(tuple, frame.collect()))


class Sum(Count):
    def add(self, value: Any, accumulator: int) -> int:
        return accumulator + int(value.n)


class WithWindow(ProcessWindowFunction):
    def process(
        self, key: str, context: ProcessWindowFunction.Context, elements: Iterable[Any]
    ) -> Iterator[tuple[str, int, int]]:
        minute = (context.window().start // 60_000) % 60
        yield from ((key, minute, element if isinstance(element, int) else element.n) for element in elements)


FIVE = TumblingEventTimeWindows.of(Time.minutes(5))
MOST = "key string, most long"
WINDOWS = "user string, minute int, total long"


class TestEventTime:
    @pytest.mark.parametrize(
        "timestamp",
        ["at", lambda row: row.at, lambda row: int(row.at.timestamp()) * 1000],
        ids=["column", "function", "milliseconds"],
    )
    def test_windows_of_a_batch_wait_for_all_rows(self, spark: Any, timestamp: Any) -> None:
        totals = keyed_process(
            clicks(spark),
            key="user",
            timestamp=timestamp,
            window=FIVE,
            function=(Sum(), WithWindow()),
            schema=WINDOWS,
            parallelism=2,
        )
        assert found(totals) == Counter([("ann", 0, 8), ("bob", 0, 2), ("bob", 5, 5), ("ann", 5, 6)])

    @pytest.mark.parametrize(
        ("function", "expected"),
        [(WithWindow(), len(CLICKS)), (Sum(), 4)],
        ids=["process", "aggregate"],
    )
    def test_functions_for_windows(self, spark: Any, function: Any, expected: int) -> None:
        schema = WINDOWS if isinstance(function, WithWindow) else "long"
        options = {"timestamp": "at", "window": FIVE, "function": function, "parallelism": 1}
        assert keyed_process(clicks(spark), key="user", schema=schema, **options).count() == expected

    def test_late_rows_go_where_they_are_wanted(self, spark: Any) -> None:
        late = OutputTag("late")
        rows = [("ann", minute * 60_000, minute) for minute in [*range(40), 0]]
        frame = spark.createDataFrame(rows, "user string, at long, n long").coalesce(1)
        totals, too_late = keyed_process(
            # A frame is as small as an Arrow batch; the watermark follows each frame.
            frame.repartitionByRange(1, "n").sortWithinPartitions("n"),
            key="user",
            timestamp="at",
            watermark="1 minute",
            window=FIVE,
            function=(Sum(), WithWindow()),
            late_rows=late,
            side_outputs={late: "user string, at long, n long"},
            schema=WINDOWS,
            parallelism=1,
        )
        assert sum(row.total for row in totals.collect()) + sum(row.n for row in too_late.collect()) == sum(
            n for _, _, n in rows
        )

    def test_a_column_of_milliseconds_and_timers(self, spark: Any) -> None:
        rows = [("ann", 1_000, 1), ("bob", 2_000, 2), ("ann", 1_500, 3)]
        frame = spark.createDataFrame(rows, "user string, at long, n long").coalesce(1)
        seen = keyed_process(
            frame, key="user", timestamp="at", function=Timers(), schema="user string, at long", parallelism=1
        )
        assert found(seen) == Counter([("ann", 1_010), ("ann", 1_510), ("bob", 2_010)])

    def test_a_moment_that_is_null_is_an_error_that_says_so(self, spark: Any) -> None:
        frame = spark.createDataFrame([("ann", None, 1)], "user string, at timestamp, n long")
        with pytest.raises(errors.BadRecordError, match="timestamp"):
            keyed_process(frame, key="user", timestamp="at", function=Timers(), schema="user string, at long")


class Timers(KeyedProcessFunction):
    """Emits the time of a timer 10 ms after each row."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> None:
        timestamp = ctx.timestamp()
        assert timestamp is not None
        ctx.timer_service().register_event_time_timer(timestamp + 10)

    def on_timer(self, timestamp: int, ctx: KeyedProcessFunction.OnTimerContext) -> Iterator[tuple[str, int]]:
        yield ctx.get_current_key(), timestamp


ODD = OutputTag("odd")


class WithOdd(SumOfRows):
    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[Any]:
        yield from super().process_element(value, ctx)
        if value.n % 2:
            yield ODD, (value.key, value.n)


ROWS = [(f"key-{n % 3}", n % 2, n) for n in range(30)]


def rows_of(spark: Any) -> Any:
    return spark.createDataFrame(ROWS, "key string, part int, n long").coalesce(1)


class TestSeveralResults:
    def test_side_outputs_are_further_dataframes(self, spark: Any) -> None:
        sums, odd = keyed_process(
            rows_of(spark),
            key="key",
            function=WithOdd(),
            schema=SUMS,
            side_outputs={ODD: "key string, n long"},
            parallelism=2,
        )
        alone = keyed_process(rows_of(spark), key="key", function=SumOfRows(), schema=SUMS, parallelism=2)
        assert found(sums) == found(alone)
        assert found(odd) == Counter((key, n) for key, _, n in ROWS if n % 2)

    def test_a_further_step_gets_rows_with_the_names_of_the_one_before(self, spark: Any) -> None:
        maxima = keyed_process(
            rows_of(spark),
            key=["key", "part"],
            function=SumOfRows(),
            schema=SUMS,
            then=[
                KeyedStep(key=lambda row: row.key[:5], function=Greatest(), schema="key string, most long")
            ],
            parallelism=2,
        )
        totals = keyed_process(
            rows_of(spark), key=["key", "part"], function=SumOfRows(), schema=SUMS, parallelism=2
        )
        best = {}
        for key, total in map(tuple, totals.collect()):
            best[key[:5]] = max(best.get(key[:5], 0), total)
        rows = maxima.collect()
        assert len(rows) == len(ROWS)
        assert {key: max(row.most for row in rows if row.key == key) for key in best} == best

    def test_a_column_that_the_step_before_does_not_make(self, spark: Any) -> None:
        step = KeyedStep(key="n", function=Greatest(), schema=MOST)
        with pytest.raises(errors.ConfigurationError, match=r"no column 'n'; the columns are key, total"):
            keyed_process(rows_of(spark), key="key", function=SumOfRows(), schema=SUMS, then=[step])


class Greatest(KeyedProcessFunction):
    def open(self, runtime_context: RuntimeContext) -> None:
        self.most = runtime_context.get_state(ValueStateDescriptor("most", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[str, int]]:
        self.most.update(max(self.most.value() or 0, value.total))
        yield ctx.get_current_key(), self.most.value()


class TestWhatDoesNotGoTogether:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"watermark": "1 second"}, "needs timestamp="),
            ({"timestamp": "when"}, "no column 'when'"),
            ({"timestamp": "n", "watermark": "soon"}, "takes a length of time"),
            ({"timestamp": "n", "watermark": -1}, "takes a length of time"),
            ({"restore_from": "/x"}, "takes no restore_from"),
            ({"trigger": {"once": True}}, "takes no trigger"),
            ({"output_mode": "complete"}, "'append' or 'update'"),
            ({"allowed_lateness": "1 second"}, "need window="),
            ({"window": FIVE, "timestamp": "n"}, "needs a function for windows"),
        ],
    )
    def test_it_is_said_before_anything_runs(self, spark: Any, options: dict[str, Any], message: str) -> None:
        with pytest.raises(errors.ConfigurationError, match=message):
            keyed_process(rows_of(spark), key="key", function=SumOfRows(), schema=SUMS, **options)

    def test_columns_and_groups_are_refused_by_name(self, spark: Any) -> None:
        rows = rows_of(spark)
        for df, key, message in [
            (rows, rows.key, "key= is the name of a column, not a Column: 'key'"),
            (rows, [functions.col("key")], "key= is the name of a column, not a Column: 'key'"),
            (rows.groupBy("key"), "key", "GroupedData; give the columns that it is grouped by as key="),
        ]:
            with pytest.raises(errors.ConfigurationError, match=re.escape(message)):
                keyed_process(df, key=key, function=SumOfRows(), schema=SUMS)


def totals_of_batch(key: str, rows: list[Any], state: KeyState) -> Iterator[tuple[str, int]]:
    total = state.get(0) + sum(row.n for row in rows)
    state.update(total)
    yield key, total


class TestKeyedMap:
    def test_a_batch_is_one_call_for_each_key(self, spark: Any) -> None:
        sums = keyed_map(rows_of(spark), "key", totals_of_batch, SUMS, state_type=Types.LONG(), parallelism=2)
        expected: Counter[str] = Counter()
        for key, _, n in ROWS:
            expected[key] += n
        assert found(sums) == Counter(expected.items())

    def test_rows_are_in_order_and_state_is_that_of_the_key(self, spark: Any) -> None:
        def look(key: Any, rows: list[Any], state: KeyState) -> list[tuple[str, bool, str]]:
            before = state.exists()
            state.update([row.n for row in rows])
            seen = ",".join(map(str, state.get()))
            state.clear()
            return [("/".join(map(str, key)), before or state.exists(), seen)]

        made = keyed_map(rows_of(spark), ["key", "part"], look, "key string, had boolean, seen string")
        expected: dict[str, list[str]] = {}
        for key, part, n in ROWS:
            expected.setdefault(f"{key}/{part}", []).append(str(n))
        assert found(made) == Counter((key, False, ",".join(seen)) for key, seen in expected.items())

    @pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
    def test_tables_of_other_libraries_are_taken_and_rows_sorted(self, spark: Any, library: str) -> None:
        columns = {"key": [key for key, _, _ in ROWS], "n": [n for _, _, n in ROWS]}
        lib: Any = pytest.importorskip(library)
        table = lib.table(columns) if library == "pyarrow" else lib.DataFrame(columns)

        def look(key: str, rows: list[Any], state: KeyState) -> list[tuple[str, bool, int]]:
            numbers = [row.n for row in rows]
            return [(key, numbers == sorted(numbers, reverse=True), state.get() + len(rows))]

        initial = lib.table({"key": sorted(set(columns["key"]))}) if library == "pyarrow" else None
        if initial is not None:
            initial = initial.append_column("before", [[100] * len(initial)])
        else:
            keys = sorted(set(columns["key"]))
            initial = lib.DataFrame({"key": keys, "before": [100] * len(keys)})
        made = keyed_map(
            table,
            "key",
            look,
            "key string, is_sorted boolean, n long",
            sort_by=lambda row: -row.n,
            state_type=Types.LONG(),
            initial_state=initial,
        )
        expected = Counter(columns["key"])
        assert found(made) == Counter((key, True, 100 + number) for key, number in expected.items())

    def test_a_column_to_sort_by_must_be_there(self, spark: Any) -> None:
        with pytest.raises(errors.ConfigurationError, match="sort_by=: there is no column 'day'"):
            keyed_map(rows_of(spark), "key", totals_of_batch, SUMS, sort_by=["n", "day"])

    def test_an_error_names_the_key(self, spark: Any) -> None:
        def broken(key: str, rows: list[Any], state: KeyState) -> Any:
            raise KeyError("no")

        with pytest.raises(errors.UserFunctionError, match="key-"):
            keyed_map(rows_of(spark), "key", broken, SUMS)

    def test_the_function_takes_three_arguments(self, spark: Any) -> None:
        with pytest.raises(errors.ConfigurationError, match="keyed_map"):
            keyed_map(rows_of(spark), "key", lambda key, rows: [], SUMS)  # type: ignore[arg-type, misc]

    def test_a_stream_is_one_call_for_each_key_and_batch(self, spark: Any, tmp_path: Path) -> None:
        downstream = Downstream(spark, tmp_path)
        downstream.input.add(2)
        options: dict[str, Any] = {"checkpoint_directory": str(tmp_path / "state"), "parallelism": 2}
        sums = keyed_map(downstream.input.stream(spark), "key", totals_of_batch, SUMS, **options)
        query, rows = reads(sums, tmp_path)
        expected: Counter[str] = Counter()
        for key, n in downstream.input.records:
            expected[key] += n
        while dict_of(rows) != dict(expected):
            assert query.isActive
            query.processAllAvailable()
        query.stop()


def dict_of(rows: list[tuple[str, int]]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for key, total in rows:
        totals[key] = max(total, totals.get(key, 0))
    return totals


class TestStreaming:
    def test_a_timestamp_needs_a_watermark(self, spark: Any, tmp_path: Path) -> None:
        stream = Downstream(spark, tmp_path).input.stream(spark)
        with pytest.raises(errors.ConfigurationError, match="needs watermark="):
            keyed_process(
                stream,
                key="key",
                timestamp="n",
                function=SumOfRows(),
                schema=SUMS,
                checkpoint_directory=str(tmp_path / "state"),
            )

    def test_stopped_with_a_savepoint_it_goes_on_from_there(self, spark: Any, tmp_path: Path) -> None:
        downstream = Downstream(spark, tmp_path)
        downstream.input.add(1)
        sums = downstream.start()
        assert downstream.read(sums) == downstream.expected()
        (query,) = keyed_process_queries()
        savepoint = query.stop(savepoint=str(tmp_path / "savepoints"))
        assert savepoint is not None
        assert "savepoint" in savepoint
        assert (query.is_active, query.exception()) == (False, None)
        downstream.input.add(1)
        again = keyed_process(
            downstream.input.stream(spark),
            key="key",
            function=SumOfRows(),
            schema=SUMS,
            parallelism=2,
            checkpoint_directory=str(tmp_path / "state"),
            restore_from=savepoint,
            job_name="sums",
        )
        assert downstream.read(again) == downstream.expected()
