"""What a job tells: its description, its counts, its log, its timeline, and a line of progress."""

from __future__ import annotations

import io
import logging
import queue
import re
import sys
from collections.abc import Callable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from slot_functions import Count, Echo
from support_job import JobRun, numbers, once
from support_runtime import PICKLED, ManualClock, raising
from support_slots import SLOTS, ActingRunner, acknowledge

import pyflinkstate
from pyflinkstate import (
    CheckpointStats,
    EpochStats,
    FileSystemCheckpointStorage,
    JobClient,
    JobDescription,
    JobExecutionResult,
    JobObserver,
    JobStatus,
)
from pyflinkstate.errors import (
    CheckpointError,
    CheckpointStorageError,
    JobCancelledError,
    JobFailedError,
    SlotLostError,
    SparkJobError,
    UserFunctionError,
)
from pyflinkstate.runtime.master import CheckpointPart, ProgressLine
from pyflinkstate.runtime.master.epochs import Epoch
from pyflinkstate.runtime.master.job_reporter import Accumulators, CheckpointLog, EpochTimeline, JobLog
from pyflinkstate.runtime.master.observe import MOST_NAMES, describe, log_output, outline
from pyflinkstate.runtime.plan import (
    ChainNode,
    JobPlan,
    Node,
    SideOutputNode,
    SinkNode,
    StatefulNode,
    UnionNode,
    make_plan,
)
from pyflinkstate.runtime.settings import CheckpointSettings
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks import DriverSink
from pyflinkstate.runtime.storage import CheckpointFolders
from pyflinkstate.runtime.wire import MetricValue, SlotId, SlotOutput, SlotReport, TaskReport


def report(epoch: int, task: str, rejected: tuple[Any, ...] = (), **counts: int) -> TaskReport:
    return TaskReport(0, epoch, task, counts, rejected)


@pytest.fixture
def accumulators() -> Accumulators:
    """Counts of three epochs, in a job that began at nothing."""
    made = Accumulators()
    made.reset(0, {})
    for epoch in (1, 2, 3):
        made.add(report(epoch, "map[0]", records=epoch))
        made.add(report(epoch, "map[1]", records=10 * epoch, dropped=1))
    return made


def test_totals_are_sums_over_tasks_and_epochs_up_to_one(accumulators: Accumulators) -> None:
    assert accumulators.total(0) == {}
    assert accumulators.total(1) == {"records": 11, "dropped": 1}
    assert accumulators.total(3) == {"records": 66, "dropped": 3}
    assert accumulators.total(99) == accumulators.total(3)


def test_the_counts_of_one_epoch(accumulators: Accumulators) -> None:
    assert accumulators.of_epoch(2, "records") == 22
    assert accumulators.of_epoch(2, "unknown") == 0
    assert accumulators.of_epoch(9, "records") == 0


def test_a_retried_task_replaces_its_own_counts_and_no_others(accumulators: Accumulators) -> None:
    accumulators.add(report(3, "map[1]", records=5))
    assert accumulators.total(3) == {"records": 11 + 22 + 3 + 5, "dropped": 2}


def test_a_replayed_epoch_replaces_its_first_run(accumulators: Accumulators) -> None:
    accumulators.reset(1, {"records": 11, "dropped": 1})
    assert accumulators.total(1) == {"records": 11, "dropped": 1}
    assert accumulators.total(3) == {"records": 11, "dropped": 1}
    accumulators.add(report(2, "map[0]", records=100))
    assert accumulators.total(2) == {"records": 111, "dropped": 1}


def test_folding_keeps_the_sums_and_forgets_the_tasks(accumulators: Accumulators) -> None:
    before = [accumulators.total(epoch) for epoch in (2, 3)]
    accumulators.fold(2)
    assert [accumulators.total(epoch) for epoch in (2, 3)] == before
    assert accumulators.of_epoch(2, "records") == 0
    assert accumulators.of_epoch(3, "records") == 33
    accumulators.fold(2)
    accumulators.fold(3)
    assert accumulators.total(3) == before[1]


def test_a_report_of_a_folded_epoch_is_not_counted_again(accumulators: Accumulators) -> None:
    accumulators.fold(2)
    before = accumulators.total(3)
    accumulators.add(report(2, "map[0]", records=1_000))
    assert accumulators.total(3) == before
    accumulators.fold(3)
    assert accumulators.total(3) == before


def test_totals_are_copies(accumulators: Accumulators) -> None:
    counters = {"records": 1}
    accumulators.reset(0, counters)
    accumulators.add(report(1, "map[0]", records=1))
    accumulators.fold(1)
    accumulators.total(1)["records"] = 99
    assert (counters, accumulators.total(1)) == ({"records": 1}, {"records": 2})


def test_rejected_rows_are_kept_in_the_order_of_epochs_and_tasks() -> None:
    made = Accumulators()
    made.add(report(2, "files[0]", ("c",)))
    made.add(report(1, "files[10]", ("b",)))
    made.add(report(1, "files[2]", ("a", "a2")))
    made.add(report(2, "files[1]", records=1))
    assert made.rejected(9) == ("a", "a2", "b", "c")
    assert made.rejected(1) == ("a", "a2", "b"), "epoch 2 is read ahead, and has not run"


def test_rejected_rows_of_a_retry_or_replay_are_not_told_twice() -> None:
    made = Accumulators()
    for _ in range(2):
        made.add(report(1, "files[0]", ("a",)))
        made.add(report(2, "files[0]", ("b",)))
    assert made.rejected(9) == ("a", "b")
    made.fold(1)
    made.reset(1, {})
    assert made.rejected(9) == ("a",)
    made.add(report(2, "files[0]", ("b",)))
    assert made.rejected(9) == ("a", "b")


def test_a_report_of_metrics_leaves_the_tasks_counts_alone(accumulators: Accumulators) -> None:
    before = accumulators.total(3)
    counted = {"map.seen": MetricValue("counter", 5)}
    accumulators.add(TaskReport(0, 3, "map[0]", metrics=counted))
    assert accumulators.total(3) == before
    assert accumulators.metrics() == counted


def test_a_result_answers_as_in_pyflink() -> None:
    result = JobExecutionResult("a" * 32, {"map.records_in": 5}, (), (), 3, 1)
    assert (result.get_job_id(), result.get_net_runtime()) == ("a" * 32, 0)
    assert result.get_accumulator_result("map.records_in") == 5
    assert result.get_accumulator_result("nothing") == 0
    result.get_all_accumulator_results()["map.records_in"] = 0
    assert result.get_all_accumulator_results() == {"map.records_in": 5}


def test_states_have_the_numbers_of_pyflink_and_end_a_job_or_not() -> None:
    assert {status.name: status.value for status in JobStatus} == {
        "CREATED": 0,
        "RUNNING": 1,
        "FAILING": 2,
        "FAILED": 3,
        "CANCELLING": 4,
        "CANCELED": 5,
        "FINISHED": 6,
        "RESTARTING": 7,
        "SUSPENDED": 8,
        "RECONCILING": 9,
    }
    ended = {JobStatus.FAILED, JobStatus.CANCELED, JobStatus.FINISHED}
    assert {status for status in JobStatus if status.is_globally_terminal_state()} == ended
    assert {status for status in JobStatus if status.is_terminal_state()} == ended | {JobStatus.SUSPENDED}


def test_what_a_slot_prints_is_logged_with_its_level_and_the_slots_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    lines = ((logging.INFO, "100% of %s"), (logging.ERROR, ""), (logging.DEBUG, "detail"))
    with caplog.at_level(logging.DEBUG, "pyflinkstate.slots"):
        log_output(SlotOutput(SlotId("count-1", 2), lines))
    assert caplog.record_tuples == [
        ("pyflinkstate.slots", logging.INFO, "count-1[2]: 100% of %s"),
        ("pyflinkstate.slots", logging.ERROR, "count-1[2]: "),
        ("pyflinkstate.slots", logging.DEBUG, "count-1[2]: detail"),
    ]


def test_an_observer_hears_what_each_slot_did_for_a_checkpoint(storage: CheckpointFolders) -> None:
    heard: list[tuple[Any, ...]] = []

    class Listening(JobObserver):
        def on_checkpoint_written(self, checkpoint_id: int, parts: tuple[CheckpointPart, ...]) -> None:
            heard.extend((checkpoint_id, part.slot, part.sync_ms, part.async_ms) for part in parts)

    node = StatefulNode(numbers(), lambda n: n % 4, PICKLED, Count(), "process")
    run = JobRun(node, storage=storage, parallelism=2, runner=ActingRunner(acknowledge))
    run.listeners = (Listening(),)
    run.run()
    assert {told for told in heard if told[0] == 1} == {(1, slot, 0.5, 1.5) for slot in SLOTS}


def described(*ends: Node, parallelism: int = 2) -> JobDescription:
    sinks = [SinkNode(end, DriverSink(lambda _, values: None), "sink") for end in ends]
    return describe(make_plan(sinks, parallelism, None), "a" * 32, "orders", "/chk-1")


def edges_by_name(job: JobDescription) -> set[tuple[str, str, tuple[str, ...], str | None]]:
    names = {vertex.id: vertex.name for vertex in job.vertices}
    assert len(names) == len(job.vertices), "ids are unique"
    return {(names[edge.source], names[edge.target], edge.chain, edge.side_output) for edge in job.edges}


def same(value: Any) -> Any:
    return value


def test_several_sources_go_to_one_operator() -> None:
    both = UnionNode((ChainNode(numbers(), "map", same, "left"), numbers()))
    job = described(StatefulNode(both, same, PICKLED, Echo(), "echo"))
    assert [vertex.kind for vertex in job.vertices].count("source") == 2
    assert edges_by_name(job) == {
        ("numbers", "echo", ("left",), None),
        ("numbers", "echo", (), None),
        ("echo", "sink", (), None),
    }
    assert job.restored_from == "/chk-1"


def test_an_operator_with_several_readers_is_a_vertex_of_its_own() -> None:
    shared = ChainNode(numbers(), "map", same, "shared")
    job = described(shared, ChainNode(shared, "map", same, "more"))
    assert ("shared", "chain") in {(vertex.name, vertex.kind) for vertex in job.vertices}
    assert edges_by_name(job) == {
        ("numbers", "shared", ("shared",), None),
        ("shared", "sink", (), None),
        ("shared", "sink", ("more",), None),
    }


def test_a_side_output_is_named() -> None:
    split = ChainNode(numbers(), "process", same, "split")
    job = described(split, SideOutputNode(split, "late", "late"))
    assert ("split", "sink", (), "late") in edges_by_name(job)


def test_an_operator_of_its_own_parallelism_has_an_exchange_before_it() -> None:
    wide = ChainNode(numbers(), "map", same, "wide", parallelism=3)
    job = described(wide)
    (exchange,) = [vertex for vertex in job.vertices if vertex.kind == "exchange"]
    assert exchange.parallelism == 3
    assert {(edge.source, edge.target) for edge in job.edges} >= {(exchange.id, job.vertices[-1].id)}


def test_an_outline_is_one_line_however_many_operators_there_are() -> None:
    def plan(count: int) -> JobPlan:
        sinks = [SinkNode(source, DriverSink(lambda _, values: None), f"sink {n}") for n in range(count)]
        return make_plan(sinks, 1, None)

    source = numbers()
    line = outline(plan(20), "http://127.0.0.1:8081/")
    assert line.startswith("numbers → sink 0 → sink 1")
    assert line.endswith(f" and {21 - MOST_NAMES} more; http://127.0.0.1:8081/")
    assert outline(plan(1), None) == "numbers → sink 0"


def test_what_the_next_epoch_reads_is_no_time_of_this_one() -> None:
    clock = ManualClock()
    timeline = EpochTimeline(clock.monotonic_ms, ["files"])
    timeline.begin()
    timeline.started(0, 1)
    for epoch, task in ((1, "files[0]"), (2, "files[0]")):
        clock.time_ms += 10
        timeline.reported(TaskReport(0, epoch, task))
    timeline.reported(TaskReport(0, 1, "count[0]", slot=SlotReport()))
    timeline.ran()
    phases = timeline.prepared()
    assert (phases["reading"], phases["slots"]) == (10, 10)


#: What rich writes to hide and show the cursor, and to go back to the first column and clear the line.
CONTROLS = re.compile(r"\r?\x1b\[[?\d]*[Klh]")
KIB = 1024
EPOCH_7 = "epoch 7 | 5,000 records/s"


class Terminal(io.StringIO):
    """Keeps what is written; ``flushed`` is how much of it was to be seen at the last flush."""

    flushed = 0

    def isatty(self) -> bool:
        return True

    def flush(self) -> None:
        self.flushed = len(self.getvalue())

    @property
    def lines(self) -> list[str]:
        """What stood on the line, one after the other; drawing the same again does not count."""
        return [line for line, _ in groupby(filter(None, CONTROLS.split(self.getvalue())))]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "120")
    return Terminal()


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def line(terminal: Terminal, clock: ManualClock) -> Iterator[ProgressLine]:
    line = ProgressLine(terminal, clock)
    yield line
    line.on_end(JobStatus.FINISHED)


def epoch(number: int = 7, records: int = 10_000, duration_ms: int = 2_000) -> EpochStats:
    return EpochStats(number, records, duration_ms, 0)


def checkpoint(size_bytes: int = 0, checkpointed_bytes: int = 0, duration_ms: int = 0) -> CheckpointStats:
    return CheckpointStats(
        4, 7, size_bytes=size_bytes, checkpointed_bytes=checkpointed_bytes, duration_ms=duration_ms
    )


def tell(line: ProgressLine, *events: EpochStats | CheckpointStats | JobStatus | int) -> None:
    """Tell a line of events; a number is that of a restart."""
    for event in events:
        match event:
            case EpochStats():
                line.on_epoch(event)
            case CheckpointStats(failure=None):
                line.on_checkpoint(event)
            case CheckpointStats():
                line.on_checkpoint_failed(event)
            case JobStatus():
                line.on_end(event)
            case _:
                line.on_restart(event, SlotLostError("gone"))


NEWER, FAILED = CheckpointStats(5, 9, size_bytes=2), CheckpointStats(5, 9, failure="disk full")
OF_NOTHING = "checkpoint 4: 0 B of 0 B in 0.0 s, 0 s ago"


@pytest.mark.parametrize(
    ("events", "lines"),
    [
        ([], []),
        ([epoch(7, 10_000, 2_000)], ["epoch 7 | 5,000 records/s"]),
        ([epoch(1, 0, 1_000)], ["epoch 1 | 0 records/s"]),
        ([epoch(1, 1, 3_000)], ["epoch 1 | 0 records/s"]),
        ([epoch(1, 1_234_567, 1_000)], ["epoch 1 | 1,234,567 records/s"]),
        ([epoch(1, 5, 1)], ["epoch 1 | 5,000 records/s"]),
        ([epoch(1, 3, 0)], ["epoch 1 | 3,000 records/s"]),
        (
            [checkpoint(3 * KIB**2, 512 * KIB, 1_250)],
            ["checkpoint 4: 512.0 KiB of 3.0 MiB in 1.2 s, 0 s ago"],
        ),
        ([checkpoint(), NEWER], [OF_NOTHING, "checkpoint 5: 0 B of 2 B in 0.0 s, 0 s ago"]),
        ([checkpoint(), FAILED, 1], [OF_NOTHING, f"{OF_NOTHING} | restarts 1"]),
        ([1], ["restarts 1"]),
        ([JobStatus.FAILED], ["FAILED", "FAILED\n"]),
        *(
            ([epoch(7), end], [EPOCH_7, f"{EPOCH_7} | {end.name}", f"{EPOCH_7} | {end.name}\n"])
            for end in (JobStatus.FINISHED, JobStatus.FAILED, JobStatus.CANCELED)
        ),
        (
            [epoch(7), 1, epoch(8), 2],
            [
                EPOCH_7,
                f"{EPOCH_7} | restarts 1",
                "epoch 8 | 5,000 records/s | restarts 1",
                "epoch 8 | 5,000 records/s | restarts 2",
            ],
        ),
        (
            [epoch(7), checkpoint(KIB, 10, 100), epoch(8)],
            [
                EPOCH_7,
                f"{EPOCH_7} | checkpoint 4: 10 B of 1.0 KiB in 0.1 s, 0 s ago",
                "epoch 8 | 5,000 records/s | checkpoint 4: 10 B of 1.0 KiB in 0.1 s, 0 s ago",
            ],
        ),
    ],
    ids=str,
)
def test_what_is_on_the_line(
    line: ProgressLine, terminal: Terminal, events: list[Any], lines: list[str]
) -> None:
    tell(line, *events)
    assert terminal.lines == lines
    assert terminal.flushed == len(terminal.getvalue()), "it is to be seen at once"
    assert terminal.getvalue().count("\n") == "".join(lines).count("\n"), "it is written over"


@pytest.mark.parametrize(
    ("size", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (KIB**2, "1.0 MiB"),
        (5 * KIB**3, "5.0 GiB"),
        (2 * KIB**4, "2.0 TiB"),
        (3 * KIB**5, "3072.0 TiB"),
    ],
)
def test_sizes_have_units(line: ProgressLine, terminal: Terminal, size: int, shown: str) -> None:
    tell(line, checkpoint(size))
    assert terminal.lines[-1].startswith(f"checkpoint 4: 0 B of {shown} in ")


class TestLine:
    def test_how_long_ago_a_checkpoint_is_goes_by_the_clock(
        self, line: ProgressLine, terminal: Terminal, clock: ManualClock
    ) -> None:
        tell(line, checkpoint())
        clock.time_ms += 42_000
        tell(line, epoch(8))
        assert terminal.lines[-1].endswith("checkpoint 4: 0 B of 0 B in 0.0 s, 42 s ago")

    @pytest.mark.parametrize(
        "error", [BrokenPipeError("no reader"), ValueError("I/O operation on closed file")], ids=repr
    )
    @pytest.mark.parametrize("method", ["write", "flush"])
    def test_a_stream_that_is_broken_is_nobodys_failure(
        self, line: ProgressLine, terminal: Terminal, error: Exception, method: str
    ) -> None:
        setattr(terminal, method, raising(error))
        tell(line, epoch(), checkpoint(), 1, JobStatus.FAILED)

    def test_what_is_printed_and_logged_appears_above(
        self, line: ProgressLine, terminal: Terminal, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in ("stdout", "stderr"):
            monkeypatch.setattr(sys, name, terminal)
        handler = logging.StreamHandler()
        logging.getLogger("pyflinkstate").addHandler(handler)
        try:
            line.on_epoch(epoch(7))
            print("printed")
            logging.getLogger("pyflinkstate.job").warning("logged")
            line.on_end(JobStatus.FINISHED)
        finally:
            logging.getLogger("pyflinkstate").removeHandler(handler)
        end = f"{EPOCH_7} | FINISHED"
        assert terminal.lines == [EPOCH_7, f"printed\n{EPOCH_7}", f"logged\n{EPOCH_7}", end, f"{end}\n"]
        assert (sys.stdout, sys.stderr, handler.stream) == (terminal, terminal, terminal)

    def test_a_stream_that_is_not_a_terminal_gets_the_last_line(self, clock: ManualClock) -> None:
        plain = io.StringIO()
        tell(ProgressLine(plain, clock), epoch(7), JobStatus.FINISHED)
        assert plain.getvalue() == "epoch 7 | 5,000 records/s | FINISHED\n"


ROOT = Path(__file__).parents[2]
PACKAGE = Path(pyflinkstate.__file__).parent
PATIENCE_S = 60

Logged = Callable[[str], list[tuple[str, str]]]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Logged]:
    """What one logger was told so far: levels and messages."""
    with caplog.at_level(logging.DEBUG, "pyflinkstate"):
        yield lambda name: [
            (record.levelname, record.getMessage())
            for record in caplog.records
            if record.name == f"pyflinkstate.{name}"
        ]


@pytest.fixture
def run() -> JobRun:
    return JobRun(numbers())


class TestLife:
    def test_start_and_end(self, run: JobRun, logged: Logged) -> None:
        job = run.run()
        (started, ended) = logged("job")
        assert started[0] == "INFO"
        assert re.fullmatch(
            rf"job 'orders' \({job.job_id}\) starts from the beginning; "
            r"its driver listens at 127\.0\.0\.1:\d+",
            started[1],
        )
        assert ended == ("INFO", f"job 'orders' ({job.job_id}) is FINISHED after epoch 1")

    def test_each_restart_with_its_cause(self, run: JobRun, logged: Logged) -> None:
        run.restart = FixedDelayRestart(2, 0)
        run.runner.before = once(SparkJobError("the executor is gone"), epoch=1, times=2)
        job = run.run()
        assert logged("job")[1:-1] == [
            (
                "WARNING",
                f"job 'orders' ({job.job_id}) restarts from the beginning, restart {number}, because of "
                f"SparkJobError: the executor is gone",
            )
            for number in (1, 2)
        ]

    def test_where_a_restart_goes_back_to(self, run: JobRun, logged: Logged, tmp_path: Path) -> None:
        run.storage = CheckpointFolders(FileSystemCheckpointStorage(str(tmp_path)))
        run.restart = FixedDelayRestart(1, 0)
        fail = once(SparkJobError("the executor is gone"), epoch=3)

        def after_two_checkpoints(request: Any) -> None:
            while request.link.epoch == 3 and len(run.heard.checkpoints) < 2:
                run.heard.await_checkpoint()
            fail(request)

        run.runner.before = after_two_checkpoints
        run.run()
        (restarted,) = [message for level, message in logged("job") if level == "WARNING"]
        assert re.search(r"restarts from \S+/chk-2, restart 1, because of SparkJobError", restarted)

    def test_a_job_beside_the_program_says_all_though_nobody_asks(self, run: JobRun, logged: Logged) -> None:
        run.restart = FixedDelayRestart(1, 0)
        run.runner.before = once(SparkJobError("the executor is gone\n  as was said"), epoch=1, times=2)
        client = JobClient(run.job(), None)
        assert isinstance(client.get_job_execution_result().exception(PATIENCE_S), JobFailedError)
        level, message = logged("job")[-1]
        assert level == "ERROR"
        assert message.endswith(
            "is FAILED after epoch 0: JobFailedError: job 'orders' failed in epoch 1 after 1 restarts: "
            "the executor is gone\n  as was said"
        )

    def test_a_job_beside_the_program_whose_end_is_awaited_leaves_it_to_the_error(
        self, run: JobRun, logged: Logged
    ) -> None:
        clients: queue.SimpleQueue[JobClient] = queue.SimpleQueue()

        def fail_when_awaited(request: Any) -> None:
            client: Any = clients.get(timeout=PATIENCE_S)
            while not client.get_job_execution_result().is_awaited:
                pass
            raise SparkJobError("the executor is gone")

        run.runner.before = fail_when_awaited
        client = JobClient(run.job(), None)
        clients.put(client)
        with pytest.raises(SparkJobError, match="the executor is gone"):
            client.get_job_execution_result().result()
        assert logged("job")[-1][0] == "INFO"

    @pytest.mark.parametrize(
        ("error", "level", "end"),
        [
            (
                UserFunctionError("KeyError: 'x'\n  in operator 'sum'"),
                "INFO",
                "FAILED after epoch 1: UserFunctionError: KeyError: 'x'",
            ),
            (KeyboardInterrupt(), "WARNING", "CANCELED after epoch 1, by KeyboardInterrupt"),
            (SystemExit(), "WARNING", "CANCELED after epoch 1, by SystemExit"),
            ("", "INFO", "CANCELED after epoch 1"),
            ("SIGTERM", "WARNING", "CANCELED after epoch 1, by SIGTERM"),
        ],
        ids=repr,
    )
    def test_its_end(
        self, run: JobRun, logged: Logged, error: BaseException | str, level: str, end: str
    ) -> None:
        """Whoever waits hears the error itself; what ends the program, or cancels, does not fail the job."""
        is_cancel = isinstance(error, str)
        act = (lambda *_: run.job().cancel(error)) if is_cancel else raising(error)
        run.sink = DriverSink(act)
        run.fails(JobCancelledError if is_cancel else type(error), match=str(error) or None)
        assert run.heard.ended == [JobStatus[end.split()[0]]]
        assert logged("job")[-1] == (level, f"job 'orders' ({run.job_id}) is {end}")


def dropped(count: int, operator: str = "hours", subtask: int = 0) -> TaskReport:
    metrics = {f"{operator}.numLateRecordsDropped": MetricValue("counter", count)}
    return TaskReport(0, 1, f"{operator}[{subtask}]", metrics=metrics, are_totals=True)


class TestLateRecords:
    def test_once_for_each_operator_and_all_at_the_end(self, logged: Logged) -> None:
        log = JobLog("orders", "1a2b")
        log.counted(dropped(0))
        log.epoch_ended(1)
        assert logged("job") == []
        for count in (3, 5):
            log.counted(dropped(count))
            log.counted(dropped(1, subtask=1))
            log.epoch_ended(count)
        log.counted(dropped(2, "days"))
        log.epoch_ended(6)
        log.ended(JobStatus.FINISHED, 6, None, True)
        first, second, last = logged("job")
        assert first[0] == "WARNING"
        assert first[1].startswith(
            "job 'orders' (1a2b): operator 'hours' has dropped 4 late records up to epoch 3"
        )
        assert first[1].endswith("the metric hours.numLateRecordsDropped counts them")
        assert "operator 'days' has dropped 2 late" in second[1]
        assert last == ("INFO", "job 'orders' (1a2b) is FINISHED after epoch 6, 8 late records dropped")


def stats(
    number: int, duration_ms: int, failure: str | None = None, is_savepoint: bool = False
) -> CheckpointStats:
    return CheckpointStats(
        number, number, duration_ms=duration_ms, failure=failure, is_savepoint=is_savepoint, size_bytes=7
    )


class TestCheckpoints:
    @pytest.mark.parametrize(
        ("settings", "duration_ms", "is_savepoint", "why"),
        [
            (CheckpointSettings(interval_ms=5000), 5000, False, ""),
            (CheckpointSettings(interval_ms=5000), 5001, False, "more than the interval of 5000 ms"),
            (CheckpointSettings(interval_ms=5000), 5001, True, ""),
            (CheckpointSettings(interval_ms=10), 1000, False, ""),
            (CheckpointSettings(interval_ms=0), 100_000, False, ""),
            (CheckpointSettings(interval_ms=0, timeout_ms=8000), 4000, False, ""),
            (
                CheckpointSettings(interval_ms=0, timeout_ms=8000),
                4001,
                True,
                "more than half of its timeout of 8000 ms",
            ),
        ],
    )
    def test_what_is_slow(
        self, logged: Logged, settings: CheckpointSettings, duration_ms: int, is_savepoint: bool, why: str
    ) -> None:
        CheckpointLog("orders", settings).completed(
            stats(4, duration_ms + 60_000, is_savepoint=is_savepoint), duration_ms
        )
        ((level, message),) = logged("checkpoints")
        assert level == ("WARNING" if why else "INFO")
        slow = f", {duration_ms} ms of it after its epoch, which is {why}" if why else " ("
        assert f"is complete after {duration_ms + 60_000} ms{slow}" in message

    def test_slow_ones_in_a_row_are_one_warning(self, logged: Logged) -> None:
        log = CheckpointLog("orders", CheckpointSettings(interval_ms=2000))
        for number, duration_ms in enumerate((10, 3000, 3000, 10, 3000), 1):
            log.completed(stats(number, duration_ms), duration_ms)
        levels = [level for level, _ in logged("checkpoints")]
        assert levels == ["INFO", "WARNING", "INFO", "INFO", "WARNING"]

    def test_those_of_a_job(self, run: JobRun, logged: Logged, tmp_path: Path) -> None:
        storage = FailsOnce(FileSystemCheckpointStorage(str(tmp_path)))
        run.storage, run.checkpoints = storage, CheckpointSettings(interval_ms=0, tolerable_failures=1)
        run.run()
        levels = {message.split(" of epoch")[0]: level for level, message in logged("checkpoints")}
        assert levels["job 'orders': checkpoint 1"] == "WARNING"
        assert levels["job 'orders': checkpoint 2"] == "INFO"
        failed = next(message for level, message in logged("checkpoints") if level == "WARNING")
        assert failed == "job 'orders': checkpoint 1 of epoch 1 has failed: the disk is full"

    def test_what_ends_with_the_job_did_not_fail(self, run: JobRun, logged: Logged, tmp_path: Path) -> None:
        run.storage = CheckpointFolders(FileSystemCheckpointStorage(str(tmp_path)))
        checkpoints = run.job()._actions.checkpoints
        checkpoints.trigger(Epoch(1), 0)
        checkpoints.abort_pending(CheckpointError("the job ended"))
        assert logged("checkpoints")[-1] == (
            "INFO",
            "job 'orders': checkpoint 1 of epoch 1 was given up: the job ended",
        )


class FailsOnce(CheckpointFolders):
    """A storage on which no folder can be made at first."""

    has_failed = False

    def begin(self, *args: Any, **settings: Any) -> str:
        if not self.has_failed:
            self.has_failed = True
            raise CheckpointStorageError("the disk is full")
        return super().begin(*args, **settings)


class TestDocumentation:
    def test_its_table_names_every_logger_and_no_other(self) -> None:
        text = "".join(path.read_text(encoding="utf-8") for path in PACKAGE.rglob("*.py"))
        used = set(re.findall(r'getLogger\(\s*"(pyflinkstate[\w.]*)"', text))
        table = (ROOT / "docs" / "logging.md").read_text(encoding="utf-8")
        named = set(re.findall(r"^\| `(pyflinkstate[\w.]*)` \|", table, re.MULTILINE))
        assert named == used
        assert "pyflinkstate" not in used, "each belongs to a room, so that it can be turned down alone"

    def test_no_handler_and_no_level_is_set(self) -> None:
        root = logging.getLogger("pyflinkstate")
        assert root.handlers == []
        assert root.propagate
