"""Jobs on Spark that begin with state: from ``initial_state=``, or from a seeded or changed savepoint.

They go on as one that has seen all rows itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from operators import running_sums
from slot_functions import ODD, SeededSums
from test_streaming import AVAILABLE_NOW, PATIENCE_S, JsonFolder

from pyflinkstate import (
    KeyedProcessFunction,
    KeyedStep,
    KeyState,
    ListStateDescriptor,
    MapStateDescriptor,
    RestartStrategies,
    StreamExecutionEnvironment,
    Time,
    TumblingProcessingTimeWindows,
    Types,
    ValueStateDescriptor,
    errors,
    keyed_map,
    keyed_process,
    keyed_process_queries,
)
from pyflinkstate.errors import SparkJobError
from pyflinkstate.runtime.program.dataframes import options as dataframe_options
from pyflinkstate.state_access import StateBootstrapFunction, dry_run, edit, new_savepoint, open_checkpoint

pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("no_slot_left", "no_query_left", "jobs_end"),
    pytest.mark.timeout(180),
]

COLUMNS = "key string, n long"
SUMS = "key string, total long"
#: ``only-before`` does not occur in any input.
BEFORE = [("key-0", 100), ("key-1", 200), ("key-0", 1), ("only-before", 7), ("key-2", 300)]
ROWS = [(f"key-{n * 7 % 4}", n) for n in range(40)]


@pytest.fixture
def before(spark: Any) -> Any:
    return spark.createDataFrame(BEFORE, COLUMNS)


@pytest.fixture
def rows(spark: Any) -> Any:
    return spark.createDataFrame(ROWS, COLUMNS).coalesce(1)


def found(frame: Any) -> Counter[Any]:
    return Counter(map(tuple, frame.collect()))


def expected(records: list[tuple[str, int]]) -> Counter[Any]:
    """What is emitted for records after the rows of ``BEFORE``."""
    return Counter(running_sums(BEFORE + records)[len(BEFORE) :])


def of_two(row: Any) -> str:
    return f"{row.key}"


class TestBatch:
    @pytest.mark.parametrize(
        "key",
        [pytest.param("key", id="column"), pytest.param(of_two, id="function")],
    )
    def test_rows_go_on_from_it(self, rows: Any, before: Any, key: Any) -> None:
        sums = keyed_process(
            rows, key=key, function=SeededSums(), schema=SUMS, initial_state=before, parallelism=2
        )
        assert found(sums) == expected(ROWS)

    def test_it_is_for_the_first_step_and_side_outputs_stay(self, rows: Any, before: Any) -> None:
        second = KeyedStep(key="key", function=SeededSums(), schema=SUMS)
        sums, odd = keyed_process(
            rows,
            key="key",
            function=SeededSums(),
            schema=SUMS,
            initial_state=before,
            then=[second],
            side_outputs={ODD: COLUMNS},
            parallelism=1,
        )
        first = running_sums(BEFORE + ROWS)[len(BEFORE) :]
        assert found(sums) == Counter(running_sums(first))
        assert found(odd) == Counter(row for row in [*ROWS, *first] if row[1] % 2)

    def test_it_may_have_no_rows(self, spark: Any, rows: Any) -> None:
        nothing = spark.sql("select 'a' as key, 1L as n where false")
        assert nothing.rdd.getNumPartitions() == 0
        sums = keyed_process(
            rows, key="key", function=SeededSums(), schema=SUMS, initial_state=nothing, parallelism=2
        )
        assert found(sums) == Counter(running_sums(ROWS))

    def test_so_may_the_input(self, spark: Any, before: Any) -> None:
        nothing = spark.createDataFrame([], COLUMNS)
        sums = keyed_process(nothing, key="key", function=SeededSums(), schema=SUMS, initial_state=before)
        assert sums.collect() == []

    def test_a_bad_row_of_it_is_named(self, spark: Any, rows: Any) -> None:
        bad = spark.createDataFrame([(None, 1)], COLUMNS)
        with pytest.raises(errors.InvalidKeyError, match="None"):
            keyed_process(rows, key="key", function=SeededSums(), schema=SUMS, initial_state=bad)

    def test_a_plain_function_begins_with_the_value_of_its_column(self, spark: Any, rows: Any) -> None:
        had = spark.createDataFrame([("key-0", 1000), ("only-before", 7)], COLUMNS)
        sums = keyed_map(
            rows, "key", total_of, SUMS, state_type=Types.LONG(), initial_state=had, parallelism=2
        )
        totals: Counter[str] = Counter({"key-0": 1000})
        for key, n in ROWS:
            totals[key] += n
        assert found(sums) == Counter(totals.items())

    def test_a_plain_function_has_one_row_for_each_key(self, rows: Any, before: Any) -> None:
        with pytest.raises(errors.BadRecordError, match=r"(?s)key-0.*several rows|several rows.*key-0"):
            keyed_map(rows, "key", total_of, SUMS, state_type=Types.LONG(), initial_state=before)


def total_of(key: str, rows: Iterator[Any], state: KeyState) -> Iterator[tuple[str, int]]:
    total = state.get(0) + sum(row.n for row in rows)
    state.update(total)
    yield key, total


class NotSeeded(KeyedProcessFunction):
    def process_element(self, value: Any, ctx: Any) -> None:
        """Nothing."""


WINDOW = TumblingProcessingTimeWindows.of(Time.minutes(5))


class TestWhatDoesNotGoTogether:
    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"initial_state": "a table"}, "takes a Spark DataFrame, not a str"),
            ({"initial_state": "select 'a' as user, 1L as n"}, r"initial_state=: there is no column 'key'"),
            (
                {"initial_state": "select 1 as key, 1L as n"},
                r"'key' is int, and that of the input is string.*cast one",
            ),
            ({"function": NotSeeded()}, r"define handle_initial_state\(self, value, ctx\) in NotSeeded"),
            ({"window": WINDOW}, "initial_state= and window= do not go together"),
        ],
    )
    def test_it_is_said_before_anything_runs(
        self, spark: Any, rows: Any, before: Any, options: dict[str, Any], message: str
    ) -> None:
        table = options.get("initial_state", "")
        made = {"initial_state": spark.sql(table)} if table.startswith("select") else {}
        all_options = {"function": SeededSums(), "initial_state": before, **options, **made}
        with pytest.raises(errors.ConfigurationError, match=message):
            keyed_process(rows, key="key", schema=SUMS, **all_options)

    def test_whole_numbers_of_any_size_are_the_same_keys(self, spark: Any) -> None:
        frame, had = spark.sql("select 1L as key, 5L as n"), spark.sql("select 1 as key, 2L as n")
        schema = "key long, total long"
        sums = keyed_process(frame, key="key", function=SeededSums(), schema=schema, initial_state=had)
        assert found(sums) == Counter([(1, 7)])

    @pytest.mark.parametrize(
        ("key", "table"),
        [
            ("key", "select 'a' as key"),
            ("key", "select 'a' as key, 1 as n, 2 as m"),
            (of_two, "select 'a' as key, 1 as n"),
        ],
    )
    def test_a_plain_function_needs_one_column_beside_the_key(
        self, spark: Any, rows: Any, key: Any, table: str
    ) -> None:
        with pytest.raises(errors.ConfigurationError, match=r"initial_state= of keyed_map\(\).*one more"):
            keyed_map(rows, key, total_of, SUMS, initial_state=spark.sql(table))

    def test_a_stream_takes_a_table_and_no_savepoint_beside_it(
        self, spark: Any, before: Any, tmp_path: Path
    ) -> None:
        stream = JsonFolder(tmp_path / "input").stream(spark)
        options = {"key": "key", "function": SeededSums(), "schema": SUMS}
        options["checkpoint_directory"] = str(tmp_path / "state")
        with pytest.raises(errors.ConfigurationError, match="takes a batch DataFrame"):
            keyed_process(stream, initial_state=stream, **options)
        with pytest.raises(errors.ConfigurationError, match="initial_state or restore_from, not both"):
            keyed_process(stream, initial_state=before, restore_from="/x", **options)

    def test_what_keyed_map_refuses_names_keyed_map(self, spark: Any, rows: Any, tmp_path: Path) -> None:
        stream = JsonFolder(tmp_path / "input").stream(spark)
        refused: list[tuple[Any, dict[str, Any]]] = [
            (stream, {}),
            (stream, {"checkpoint_directory": "s3://bucket/state"}),
            (rows, {"checkpoint_directory": str(tmp_path / "state")}),
            (rows, {"trigger": {"once": True}}),
        ]
        for frame, options in refused:
            with pytest.raises(errors.ConfigurationError, match=r"^keyed_map\(\)"):
                keyed_map(frame, "key", total_of, SUMS, **options)


class Program:
    """A program that is run again and again over the files of a folder, one file a batch."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.input = JsonFolder(folder / "input")

    def run(self, initial_state: Any, function: Any = None) -> None:
        """Process the files that are there now."""
        keyed_process(
            self.input.stream(self.spark),
            key="key",
            function=function or SeededSums(),
            schema=SUMS,
            initial_state=initial_state,
            key_type=Types.STRING(),
            parallelism=2,
            checkpoint_directory=str(self.folder / "state"),
            on_failure=RestartStrategies.fixed_delay_restart(2, 0),
            trigger=AVAILABLE_NOW,
            job_name="sums",
        )
        assert keyed_process_queries()[-1].await_termination(PATIENCE_S)

    def results(self) -> Counter[Any]:
        reader = self.spark.read.schema(SUMS).option("recursiveFileLookup", "true")
        return found(reader.parquet(keyed_process_queries()[-1].output))

    def state_folders(self) -> list[Path]:
        """Return the folders of complete checkpoints."""
        checkpoints = (self.folder / "state" / "sums-checkpoints").glob("*/chk-*/_metadata")
        return [metadata.parent for metadata in checkpoints]

    def state(self) -> dict[str, int]:
        """Return the sums in the newest checkpoint."""
        newest = max(self.state_folders(), key=lambda folder: int(folder.name.removeprefix("chk-")))
        return {row["key"]: row["sum"] for row in open_checkpoint(str(newest)).keyed("sums").rows()}


@pytest.fixture
def program(spark: Any, tmp_path: Path) -> Program:
    return Program(spark, tmp_path)


class TestStreaming:
    def test_it_is_read_once_for_a_checkpoint_directory(
        self, spark: Any, program: Program, before: Any
    ) -> None:
        program.run(before)  # there is no input yet
        assert program.state() == {"key-0": 101, "key-1": 200, "key-2": 300, "only-before": 7}
        program.input.add(2)
        program.run(spark.createDataFrame([("key-0", 5000)], COLUMNS))
        assert program.results() == expected(program.input.records)
        program.input.add(1)
        program.run(None)
        assert program.results() == expected(program.input.records)
        assert program.state()["only-before"] == 7

    def test_that_it_cannot_be_read_is_told(self, spark: Any, program: Program, tmp_path: Path) -> None:
        folder = tmp_path / "table"
        spark.createDataFrame(BEFORE, COLUMNS).write.json(str(folder))
        gone = spark.read.schema(COLUMNS).json(str(folder))
        for file in folder.glob("*"):
            file.unlink()
        with pytest.raises(errors.JobFailedError) as caught:
            program.run(gone)
        assert "FAILED_READ_FILE" in str(caught.value.__cause__)
        assert program.state_folders() == [], "nothing was kept of it"

    def test_its_directory_is_checked_once(
        self, program: Program, before: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        checked: list[str] = []
        monkeypatch.setattr(
            dataframe_options, "check_spark_reaches", lambda base, what, remedy: checked.append(base)
        )
        program.run(before)
        assert checked == [str(program.folder / "state")]


# --- jobs of streams -------------------------------------------------------------------------------

TOTAL = ValueStateDescriptor("total", Types.LONG())
WIDE = ValueStateDescriptor("sum", Types.DOUBLE())
WORDS = MapStateDescriptor("words", Types.STRING(), Types.LONG())
LAST = ListStateDescriptor("last", Types.LONG())
JOB = "seeded"


class Totals(KeyedProcessFunction):
    """Sums, counts words and lists the last amounts; ``total`` is the descriptor of the sum."""

    def __init__(self, total: ValueStateDescriptor = TOTAL) -> None:
        self._descriptor = total

    def open(self, runtime_context):
        self.total = runtime_context.get_state(self._descriptor)
        self.words = runtime_context.get_map_state(WORDS)
        self.last = runtime_context.get_list_state(LAST)

    def process_element(self, value, ctx):
        self.total.update((self.total.value() or 0) + value["amount"])
        self.words.put(value["word"], (self.words.get(value["word"]) or 0) + 1)
        self.last.update([*self.last.get(), value["amount"]][-3:])
        yield (
            value["who"],
            value["amount"],
            int(self.total.value()),
            tuple(sorted(self.words.items())),
            tuple(self.last.get()),
        )


def rows_of(begin: int, end: int) -> list[tuple[str, int, str]]:
    return [(f"k{n % 37}", n, f"w{n % 5}") for n in range(begin, end)]


def frame(spark: Any, begin: int, end: int, partitions: int = 3) -> Any:
    made = spark.createDataFrame(rows_of(begin, end), "who string, amount long, word string")
    return made.coalesce(1) if partitions == 1 else made.repartitionByRange(partitions, "amount")


def totals_program(
    spark: Any, folder: Path, data: Any, *, uid: str = "totals", total: ValueStateDescriptor = TOTAL
):
    env = StreamExecutionEnvironment(spark).set_parallelism(2)
    env.enable_checkpointing(0, str(folder))
    records = env.from_dataframe(data)
    totals = records.key_by(lambda row: row["who"], key_type=Types.STRING()).process(Totals(total))
    return env, totals.uid(uid).name("totals")


def emitted(stream: Any) -> Counter[tuple[Any, ...]]:
    with stream.execute_and_collect(JOB) as results:
        return Counter(results)


def test_a_seeded_job_goes_on_as_one_that_has_seen_the_rows(spark: Any, tmp_path: Path) -> None:
    _, whole = totals_program(spark, tmp_path / "whole", frame(spark, 0, 600, partitions=1))
    expected = Counter(dict.fromkeys((row for row in emitted(whole) if row[1] >= 400), 1))

    savepoint = new_savepoint(JOB).bootstrap(
        "totals",
        frame(spark, 0, 400),
        key="who",
        key_type=Types.STRING(),
        function=Totals(),
        parallelism=3,
    )
    written = savepoint.write(str(tmp_path / "savepoint"))
    assert len(written.operator("totals").subtasks) == 3
    env, rest = totals_program(spark, tmp_path / "rest", frame(spark, 400, 600, partitions=1))
    env.restore_from(written.uri)
    assert emitted(rest) == expected

    changed = edit(written).set_max_parallelism("totals", 60).rename_uid("totals", "sums")
    changed.migrate("sums", "total", WIDE, float)
    again = changed.write(str(tmp_path / "changed"))
    env, rest = totals_program(
        spark, tmp_path / "changed-rest", frame(spark, 400, 600, partitions=1), uid="sums", total=WIDE
    )
    env.set_parallelism(3).restore_from(again.uri)
    assert emitted(rest) == expected


def test_a_dry_run_names_each_operator_and_state_that_would_not_be_restored(
    spark: Any, tmp_path: Path
) -> None:
    data = frame(spark, 0, 50)
    savepoint = new_savepoint(JOB).bootstrap(
        "totals", data, key="who", key_type=Types.STRING(), function=Totals()
    )

    def tried(checkpoint: Any, job_name: str = JOB, **options: Any) -> Any:
        env, stream = totals_program(spark, tmp_path / "never", data, **options)
        stream.print()
        return dry_run(checkpoint, env, job_name)

    assert tried(savepoint).is_restorable
    written = savepoint.write(str(tmp_path / "savepoint"))
    found = tried(written.uri)
    assert (found.mismatches, found.restored, found.new_operators) == ((), ("totals",), ())
    assert tried(written, total=WIDE).is_restorable  # another state begins empty

    (other,) = tried(written, total=ValueStateDescriptor("total", Types.STRING())).mismatches
    assert (other.uid, other.state) == ("totals", "total")
    assert "LONG" in other.message
    (renamed,) = tried(written, uid="sums").mismatches
    assert renamed.uid == "totals"
    assert "does not have" in renamed.message
    (job,) = tried(written, "another").mismatches
    assert (job.uid, job.state) == (None, None)
    assert not (tmp_path / "never").exists()
    mended = edit(written).rename_uid("totals", "sums")
    env, stream = totals_program(spark, tmp_path / "never", data, uid="sums")
    stream.print()
    assert mended.dry_run(env, JOB).is_restorable

    names = new_savepoint(JOB).bootstrap("names", [1, 2], key=None, function=Names())
    (unknown,) = tried(names).mismatches
    assert "operator 'names', which the program does not have" in unknown.message
    assert tried(edit(names.write(str(tmp_path / "names"))).drop_state("names", "names")).is_restorable


class Names(StateBootstrapFunction):
    def initialize_state(self, context):
        store = context.get_operator_state_store()
        self.names = store.get_list_state(ListStateDescriptor("names", Types.LONG()))

    def process_element(self, value, ctx):
        self.names.add(value)


def test_dataframes_without_rows_and_with_bad_ones(spark: Any, tmp_path: Path) -> None:
    nothing = spark.sql("select 'a' as who, 1L as amount where false")
    assert nothing.rdd.getNumPartitions() == 0
    options = {"key": "who", "key_type": Types.STRING(), "function": {TOTAL: "amount"}}
    written = new_savepoint(JOB).bootstrap("totals", nothing, **options).write(str(tmp_path / "nothing"))
    assert list(written.keyed("totals").rows()) == []

    bad = spark.sql("select cast(null as string) as who, 1L as amount")
    with pytest.raises(SparkJobError, match=r"operator 'totals' cannot be seeded: .*InvalidKeyError"):
        new_savepoint(JOB).bootstrap("totals", bad, **options).write(str(tmp_path / "bad"))
    assert not (tmp_path / "bad").exists()
