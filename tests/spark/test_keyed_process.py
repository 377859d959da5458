"""``keyed_process``: DataFrame in, DataFrame out, at rest and streaming."""

from __future__ import annotations

import logging
import queue
import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from operators import running_sums
from py4j.protocol import Py4JError
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from test_streaming import PATIENCE_S, JsonFolder

from pyflinkstate import (
    JobStatus,
    KeyedProcessFunction,
    KeyedProcessQuery,
    OutputTag,
    RuntimeContext,
    Types,
    ValueStateDescriptor,
    errors,
    keyed_map,
    keyed_process,
    keyed_process_queries,
)
from pyflinkstate.connectors import SqlSink
from pyflinkstate.runtime.spark import streaming_queries

pytestmark = [
    pytest.mark.spark,
    pytest.mark.usefixtures("no_query_left", "no_slot_left", "jobs_end"),
]

ROWS = [(f"key-{n * 7 % 5}", n % 3, n) for n in range(60)]
SUMS = "key string, total long"


class SumOfRows(KeyedProcessFunction):
    """Emits ``(key, sum so far)`` for Spark rows with a column ``n``; a key of several columns as text."""

    def open(self, runtime_context: RuntimeContext) -> None:
        self.sum = runtime_context.get_state(ValueStateDescriptor("sum", Types.LONG()))

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Iterator[tuple[str, int]]:
        total = (self.sum.value() or 0) + value.n
        self.sum.update(total)
        key = ctx.get_current_key()
        yield key if isinstance(key, str) else "/".join(map(str, key)), total


@pytest.fixture
def errors_logged() -> Iterator[queue.SimpleQueue[str]]:
    """What the package logs as errors, from any thread."""
    messages: queue.SimpleQueue[str] = queue.SimpleQueue()
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: messages.put(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("pyflinkstate").addHandler(handler)
    yield messages
    logging.getLogger("pyflinkstate").removeHandler(handler)


def first_rows(key: str, rows: list[Any], state: Any) -> Iterator[tuple[str, int]]:
    yield key, rows[0].n


class TestBatch:
    @pytest.mark.parametrize(
        ("key", "key_of"),
        [
            ("key", lambda key, part: key),
            (["key", "part"], lambda key, part: f"{key}/{part}"),
            (lambda row: f"{row.key}/{row.part}", lambda key, part: f"{key}/{part}"),
        ],
        ids=["column", "columns", "function"],
    )
    def test_keys(self, spark: Any, key: Any, key_of: Callable[[str, int], str]) -> None:
        frame = spark.createDataFrame(ROWS, "key string, part int, n long").coalesce(1)
        sums = keyed_process(frame, key=key, function=SumOfRows(), schema=SUMS, parallelism=2)
        assert sums.schema.simpleString() == "struct<key:string,total:bigint>"
        expected = running_sums([(key_of(name, part), n) for name, part, n in ROWS])
        assert Counter(map(tuple, sums.collect())) == Counter(expected)
        assert sums.count() == len(ROWS), "it is kept: a second action does not run the job again"

    def test_a_declared_key_type_is_checked(self, spark: Any) -> None:
        frame = spark.createDataFrame(ROWS, "key string, part int, n long")
        with pytest.raises(errors.InvalidKeyError):
            keyed_process(frame, key="key", function=SumOfRows(), schema=SUMS, key_type=Types.LONG())

    def test_a_checkpoint_directory_is_refused_before_anything_runs(self, spark: Any, tmp_path: Path) -> None:
        frame = spark.createDataFrame(ROWS, "key string, part int, n long")
        with pytest.raises(errors.ConfigurationError, match=r"takes no checkpoint_directory.*readStream"):
            keyed_process(
                frame,
                key="key",
                function=SumOfRows(),
                schema=SUMS,
                checkpoint_directory=str(tmp_path / "state"),
            )
        assert list(tmp_path.iterdir()) == []


class Downstream:
    """A program that reads what ``keyed_process`` gives with a query of its own, run again and again."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.input = JsonFolder(folder / "input")
        self.directory = str(folder / "state")
        self.job_name = "sums"
        self.batches: dict[int, list[Any]] = {}

    def start(self, key: Any = "key", **options: Any) -> Any:
        return keyed_process(
            self.input.stream(self.spark),
            key=key,
            function=SumOfRows(),
            schema=SUMS,
            parallelism=2,
            checkpoint_directory=self.directory,
            job_name=self.job_name,
            **options,
        )

    def read(self, sums: Any) -> Counter[Any]:
        """Return all rows, those of earlier runs too, once there are as many as there should be."""
        whole = threading.Event()

        def take(batch: Any, batch_id: int) -> None:
            self.batches[batch_id] = [tuple(row) for row in batch.collect()]
            if sum(map(len, self.batches.values())) >= len(self.input.records):
                whole.set()

        writer = sums.writeStream.foreachBatch(take).trigger(processingTime="50 milliseconds")
        query = writer.option("checkpointLocation", str(self.folder / "downstream")).start()
        assert whole.wait(PATIENCE_S)
        query.processAllAvailable()
        query.stop()
        return Counter(row for rows in self.batches.values() for row in rows)

    def expected(self) -> Counter[Any]:
        return Counter(running_sums(self.input.records))


@pytest.fixture
def downstream(spark: Any, tmp_path: Path) -> Downstream:
    return Downstream(spark, tmp_path)


class TestStreaming:
    def test_a_query_downstream_reads_exactly_what_was_committed(self, downstream: Downstream) -> None:
        downstream.input.add(2)
        sums = downstream.start(compact="100 milliseconds")
        assert sums.isStreaming
        assert sums.schema.simpleString() == "struct<key:string,total:bigint>"
        assert downstream.read(sums) == downstream.expected()
        (job,) = keyed_process_queries()
        assert job.job_name == "sums"
        assert job.client.get_job_status().result() is JobStatus.RUNNING, "it goes on with what comes"
        downstream.input.add(1)
        assert downstream.read(sums) == downstream.expected()
        # Another run of the program goes on where this one was.
        job.client.cancel().result(PATIENCE_S)
        downstream.input.add(1)
        assert downstream.read(downstream.start()) == downstream.expected()

    def test_results_go_into_a_sink(self, downstream: Downstream) -> None:
        database = downstream.folder / "sums.sqlite"
        with closing(sqlite3.connect(database)) as opened:
            opened.execute("CREATE TABLE sums (key TEXT, total BIGINT)")
        for _ in range(2):
            downstream.input.add(2)
            sink = SqlSink(f"sqlite:///{database}", "sums", ["key", "total"])
            query = downstream.start(sink=sink, trigger={"availableNow": True})
            assert (query.output, query.await_termination(PATIENCE_S)) == ("", True)
            with closing(sqlite3.connect(database)) as opened:
                assert Counter(opened.execute("SELECT * FROM sums")) == downstream.expected()
        with pytest.raises(errors.ConfigurationError, match="neither side_outputs nor retention"):
            downstream.start(sink=sink, retention="1 day")

    def test_a_uri_with_escapes_and_a_name_with_a_blank(self, downstream: Downstream) -> None:
        downstream.directory = f"file:{downstream.folder}/50%2520off%20%C3%A9"
        downstream.job_name = "all sums"
        downstream.input.add(1)
        assert downstream.read(downstream.start()) == downstream.expected()
        (job,) = keyed_process_queries()
        job.client.cancel().result(PATIENCE_S)
        downstream.input.add(1)
        assert downstream.read(downstream.start()) == downstream.expected()
        assert {path.name for path in downstream.folder.iterdir()} == {"input", "downstream", "50%20off é"}
        folder = downstream.folder / "50%20off é"
        assert {path.name for path in folder.iterdir()} == {"all sums-checkpoints", "all sums-output"}
        assert (folder / "all sums-checkpoints" / "spark-all%20sums" / "commits").is_dir()
        assert keyed_process_queries()[-1].output == f"file://{folder}/all sums-output"

    def test_a_checkpoint_directory_is_needed(self, downstream: Downstream) -> None:
        before = keyed_process_queries()
        for directory, match in [
            (None, "needs checkpoint_directory"),
            ("s3://bucket/state", "cannot reach"),
        ]:
            with pytest.raises(errors.ConfigurationError, match=match):
                keyed_process(
                    downstream.input.stream(downstream.spark),
                    key="key",
                    function=SumOfRows(),
                    schema=SUMS,
                    checkpoint_directory=directory,
                )
        assert keyed_process_queries() == before

    def test_what_spark_takes_for_a_pattern_is_refused_before_anything_starts(
        self, downstream: Downstream
    ) -> None:
        before, folder = keyed_process_queries(), downstream.folder
        stream = downstream.input.stream(downstream.spark)
        told = r"on a streaming DataFrame keeps results in .*: Spark takes a path with .* choose a"
        for options in (
            {"checkpoint_directory": str(folder / "a[1]")},
            {"checkpoint_directory": f"file:{folder}/a%3F"},
            {"checkpoint_directory": downstream.directory, "job_name": "a*"},
            {"checkpoint_directory": downstream.directory, "side_outputs": {OutputTag("{a,b}"): SUMS}},
        ):
            with pytest.raises(errors.ConfigurationError, match=rf"keyed_process\(\) {told}"):
                keyed_process(stream, key="key", function=SumOfRows(), schema=SUMS, **options)
        with pytest.raises(errors.ConfigurationError, match=rf"keyed_map\(\) {told}"):
            keyed_map(stream, "key", first_rows, SUMS, checkpoint_directory=str(folder / "a\\b"))
        assert {path.name for path in folder.iterdir()} == {"input"}
        assert keyed_process_queries() == before

    def test_a_job_that_fails_says_so_in_the_log(self, downstream: Downstream, errors_logged: Any) -> None:
        downstream.input.add(1)
        downstream.start(key=lambda row: None)
        (job,) = keyed_process_queries()
        error = job.client.get_job_execution_result().exception(PATIENCE_S)
        assert isinstance(error, errors.InvalidKeyError)
        logged = errors_logged.get(timeout=PATIENCE_S)
        assert logged.endswith(f"is FAILED after epoch 0: InvalidKeyError: {error}")


def no_key_in_the_second_file(row: Any) -> str | None:
    return None if row.key == "only-in-1" else row.key


def reads(sums: Any, folder: Path, **trigger: Any) -> tuple[Any, list[Any]]:
    """Start a query of a user's; returns it and the list of the rows that it reads."""
    rows: list[Any] = []
    writer = sums.writeStream.foreachBatch(lambda batch, _: rows.extend(map(tuple, batch.collect())))
    writer = writer.option("checkpointLocation", str(folder / "downstream"))
    return (writer.trigger(**trigger) if trigger else writer).start(), rows


def failed(query: Any) -> str:
    """Wait until a query ends; returns what it ended with."""
    with pytest.raises(StreamingQueryException) as caught:
        query.awaitTermination(PATIENCE_S)
    assert not query.isActive
    assert query.exception() is not None
    return str(caught.value)


class TestJobsThatFail:
    def test_the_query_ends_with_the_jobs_own_error(self, downstream: Downstream) -> None:
        downstream.directory = f"file:{downstream.folder}/my%20state"
        query, rows = reads(downstream.start(key=no_key_in_the_second_file), downstream.folder)
        downstream.input.add(1)
        good = Counter(running_sums(downstream.input.records))
        downstream.input.add(1)
        message = failed(query)
        assert "job 'sums', whose results this query reads, has failed: InvalidKeyError: " in message
        assert "key None" in message or "None" in message
        assert "operator" in message
        assert "Traceback" not in message
        assert Counter(rows) == good, "what was committed before is read"
        (job,) = keyed_process_queries()
        assert not job.is_active
        assert isinstance(job.exception(), errors.InvalidKeyError)
        with pytest.raises(errors.InvalidKeyError):
            job.await_termination()

    @pytest.mark.parametrize("trigger", [{}, {"availableNow": True}], ids=["default", "availableNow"])
    def test_so_does_one_that_is_started_later(self, downstream: Downstream, trigger: dict[str, Any]) -> None:
        sums = downstream.start(key=no_key_in_the_second_file)
        (job,) = keyed_process_queries()
        downstream.input.add(1)
        good = Counter(running_sums(downstream.input.records))
        downstream.input.add(1)
        assert isinstance(job.client.get_job_execution_result().exception(PATIENCE_S), errors.InvalidKeyError)
        query, rows = reads(sums, downstream.folder, **trigger)
        assert "InvalidKeyError" in failed(query)
        assert Counter(rows) == good

    def test_a_run_that_mends_it_goes_on_with_the_same_query(self, downstream: Downstream) -> None:
        downstream.input.add(2)
        query, rows = reads(downstream.start(key=no_key_in_the_second_file), downstream.folder)
        failed(query)
        query, more = reads(downstream.start(), downstream.folder)
        (job,) = keyed_process_queries()
        downstream.input.add(1)
        while len(rows) + len(more) < len(downstream.input.records):
            assert query.isActive
            assert job.is_active
            query.processAllAvailable()
        query.stop()
        assert Counter(rows + more) == downstream.expected()

    def test_users_code_that_raises_is_shown_with_its_line(self, downstream: Downstream) -> None:
        def divide(row: Any) -> str:
            return str(1 / (row.n - 1))

        downstream.input.add(1)
        query, _ = reads(downstream.start(key=divide), downstream.folder)
        message = failed(query)
        assert "ZeroDivisionError: " in message
        assert "in divide" in message
        assert "pyflinkstate/runtime" not in message

    def test_a_spark_that_takes_no_cause_has_the_query_stopped(
        self, downstream: Downstream, errors_logged: Any, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def no_constructor(*_: Any) -> Any:
            raise Py4JError("Constructor does not exist")

        monkeypatch.setattr(streaming_queries, "_query_exception", no_constructor)
        downstream.input.add(1)
        query, _ = reads(downstream.start(key=lambda row: None), downstream.folder)
        assert query.awaitTermination(PATIENCE_S)
        assert (query.isActive, query.exception()) == (False, None)
        assert "InvalidKeyError" in errors_logged.get(timeout=PATIENCE_S), "of the job"
        assert f"query {query.id} is stopped" in errors_logged.get(timeout=PATIENCE_S)

    def test_where_a_newer_run_has_taken_over_queries_go_on(self, downstream: Downstream) -> None:
        downstream.input.add(1)
        query, rows = reads(downstream.start(), downstream.folder)
        (older,) = keyed_process_queries()
        while len(rows) < len(downstream.input.records):
            query.processAllAvailable()
        downstream.start()
        with suppress(errors.PyFlinkStateError):
            older.await_termination(PATIENCE_S)
        assert not older.is_active
        downstream.input.add(1)
        while len(rows) < len(downstream.input.records):
            query.processAllAvailable()
        assert query.isActive
        query.stop()
        assert Counter(rows) == downstream.expected()


def cancel(job: KeyedProcessQuery, folder: Path) -> None:
    job.client.cancel().result(PATIENCE_S)


def stop(job: KeyedProcessQuery, folder: Path) -> None:
    job.stop()


def stop_with_savepoint(job: KeyedProcessQuery, folder: Path) -> None:
    savepoints = str(folder / "savepoints")
    job.client.stop_with_savepoint(savepoint_directory=savepoints).result(PATIENCE_S)


def stop_the_query_of_its_input(job: KeyedProcessQuery, folder: Path) -> None:
    spark = SparkSession.getActiveSession()
    assert spark is not None
    for query in spark.streams.active:
        if query.lastProgress is not None and "/input]" in str(query.lastProgress["sources"]):
            query.stop()


class TestQueriesThatReadWhatThereIs:
    """With ``availableNow``, and started before the job has committed anything."""

    @pytest.mark.parametrize(
        "options",
        [{}, {"compact": "1 second"}, {"trigger": {"availableNow": True}}],
        ids=["endless", "joined", "availableNow"],
    )
    def test_they_wait_for_results(self, downstream: Downstream, options: dict[str, Any]) -> None:
        waits = threading.Event()
        note = logging.Handler()
        note.emit = lambda record: waits.set() if " waits until " in record.getMessage() else None  # type: ignore[method-assign]
        logging.getLogger("pyflinkstate.job").addHandler(note)
        if "trigger" in options:
            downstream.input.add(2)
        try:
            with ThreadPoolExecutor(1) as pool:
                sums = downstream.start(**options)
                started = pool.submit(reads, sums, downstream.folder, availableNow=True)
                assert waits.wait(PATIENCE_S)
                if "trigger" not in options:
                    downstream.input.add(1)
                query, rows = started.result(PATIENCE_S)
                assert query.awaitTermination(PATIENCE_S)
        finally:
            logging.getLogger("pyflinkstate.job").removeHandler(note)
        assert Counter(rows) == downstream.expected()

    def test_one_that_is_started_again_does_not_wait(self, downstream: Downstream) -> None:
        downstream.input.add(1)
        downstream.start(trigger={"availableNow": True})
        (job,) = keyed_process_queries()
        assert job.await_termination(PATIENCE_S)
        sums = downstream.start()
        query, rows = reads(sums, downstream.folder, availableNow=True)
        assert query.awaitTermination(PATIENCE_S)
        assert Counter(rows) == downstream.expected()


class TestJobsThatSomebodyEnds:
    @pytest.mark.parametrize("end", [cancel, stop, stop_with_savepoint, stop_the_query_of_its_input])
    def test_queries_read_what_was_committed_and_wait(
        self, downstream: Downstream, end: Callable[[KeyedProcessQuery, Path], None]
    ) -> None:
        downstream.input.add(1)
        sums = downstream.start()
        (job,) = keyed_process_queries()
        first, rows = reads(sums, downstream.folder)
        while len(rows) < len(downstream.input.records):
            first.processAllAvailable()
        end(job, downstream.folder)
        assert job.await_termination(PATIENCE_S)
        assert (job.is_active, job.exception()) == (False, None)
        first.processAllAvailable()
        assert first.isActive
        assert Counter(rows) == downstream.expected()
        first.stop()
        assert first.exception() is None

    def test_who_waits_with_a_timeout_hears_that_it_still_runs(self, downstream: Downstream) -> None:
        downstream.start()
        (job,) = keyed_process_queries()
        assert not job.await_termination(0.01)
        assert (job.is_active, job.exception()) == (True, None)
        job.stop()
        assert job.await_termination(0)
