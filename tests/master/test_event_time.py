"""Event time in the driver: the tracker of watermarks, and whole jobs."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from event_time_functions import (
    FACTORS,
    LATE,
    BroadcastTellWatermark,
    Contents,
    CoTellWatermark,
    Pair,
    PassAside,
    Passes,
    Scale,
    SumEachTen,
    TellWatermark,
    Third,
    key_of,
)
from support_job import JobRun, LocalRunner, at, latest, once
from support_programs import Program, Splits
from tiers import cases

from pyflinkstate import MAX_WATERMARK, DataStream, JobClient, TumblingEventTimeWindows, WatermarkStrategy
from pyflinkstate.api import NO_WATERMARK, WatermarkAlignment
from pyflinkstate.errors import CheckpointError, RuntimeFailure, SparkJobError
from pyflinkstate.runtime.master import RestorePoint, SavepointRequest
from pyflinkstate.runtime.master.planner import EventTimeTracker
from pyflinkstate.runtime.plan import AlignedSource, SinkNode, SourceNode, make_plan
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks import DriverSink
from pyflinkstate.runtime.storage import CheckpointFolders
from pyflinkstate.runtime.wire import TaskReport, frames as frames_module

#: Sources ``A``, ``B`` (one group, a drift of 10) and ``C`` (another one), by their assigners.
ALIGNED = {
    "a": AlignedSource("A", WatermarkAlignment("orders", 10)),
    "b": AlignedSource("B", WatermarkAlignment("orders", 10)),
    "c": AlignedSource("C", WatermarkAlignment("others", 10)),
}
#: By what they show: the idle timeouts, the watermarks at the beginning, and what happens. ``report``: a task
#: of an epoch ends; ``ended``: the watermarks at the end of an epoch; ``at``: the time; ``idle`` and ``now``:
#: what the tasks of the next epoch are told; ``held``: the sources that wait for others, if some have ended.
STORIES: dict[str, tuple[dict[str, int], dict[str, int], list[tuple[Any, ...]]]] = {
    "the least of all tasks counts": (
        {},
        {},
        [
            ("report", 1, {"a": 10}),
            ("report", 1, {"a": 7, "sum": 3}),
            ("report", 1, {"sum": 4}),
            ("ended", 1, {"a": 7, "sum": 3}),
            ("now", {"a": 7, "sum": 3}),
        ],
    ),
    "who reports nothing stays where it was": (
        {},
        {"a": 10, "b": 5},
        [("report", 2, {"b": 6}), ("ended", 2, {"a": 10, "b": 6})],
    ),
    "watermarks never go back": ({}, {"a": 10}, [("report", 1, {"a": 7}), ("ended", 1, {"a": 10})]),
    "an attempt goes back to where its checkpoint stood": (
        {},
        {"a": 5},
        [("report", 2, {"a": 99}), ("begin", {"a": 3}), ("now", {"a": 3}), ("ended", 2, {"a": 3})],
    ),
    "a report counts for its own epoch": (
        {},
        {},
        [("report", 2, {"a": 11}), ("report", 1, {"a": 9}), ("ended", 1, {"a": 9}), ("ended", 2, {"a": 11})],
    ),
    "checkpoints hold neither the end of time nor nothing": (
        {},
        {},
        [
            ("report", 1, {"ended": MAX_WATERMARK, "none": NO_WATERMARK, "a": 1}),
            ("ended", 1, {"a": 1}),
            ("now", {"ended": MAX_WATERMARK, "none": NO_WATERMARK, "a": 1}),
        ],
    ),
    "silence for the timeout is idleness": (
        {"a": 100, "b": 300},
        {},
        [("idle", ""), ("at", 99), ("idle", ""), ("at", 100), ("idle", "a"), ("at", 300), ("idle", "ab")],
    ),
    "an epoch with records ends it": (
        {"a": 100},
        {},
        [
            ("at", 150),
            ("report", 1, {"a": 1, "other": 2}),
            ("ended", 1, {"a": 1, "other": 2}),
            ("idle", ""),
            ("at", 250),
            ("report", 2, {"other": 3}),
            ("ended", 2, {"a": 1, "other": 3}),
            ("idle", "a"),
        ],
    ),
    "an attempt begins without idleness": ({"a": 100}, {}, [("at", 500), ("begin", {}), ("idle", "")]),
    "who is further ahead than the drift waits": (
        {},
        {"a": 20, "b": 10, "c": 500},
        [
            ("held", "", ""),
            ("report", 1, {"a": 21}),
            ("ended", 1, {"a": 21, "b": 10, "c": 500}),
            ("held", "", "A"),
            ("report", 2, {"b": 11}),
            ("ended", 2, {"a": 21, "b": 11, "c": 500}),
            ("held", "", ""),
        ],
    ),
    "nobody is ahead before the first record": ({}, {}, [("held", "", "")]),
    "one without a record yet is waited for": ({}, {"a": 0}, [("held", "", "A")]),
    "nobody waits for one that has ended": ({}, {"a": 100, "b": 10}, [("held", "B", "")]),
    "nobody waits for one that is idle": (
        {"b": 50},
        {"a": 100, "b": 10},
        [("held", "", "A"), ("at", 50), ("held", "", "")],
    ),
    "waiting is not idleness: the timeout begins when it waits no longer": (
        {"a": 50},
        {"a": 100, "b": 10},
        [
            ("held", "", "A"),
            ("at", 60),
            ("held", "", "A"),
            ("idle", ""),
            ("report", 1, {"b": 100}),
            ("ended", 1, {"a": 100, "b": 100}),
            ("held", "", ""),
            ("at", 109),
            ("idle", ""),
            ("at", 110),
            ("idle", "a"),
        ],
    ),
}


@pytest.mark.parametrize("name", STORIES)
def test_what_the_tracker_knows(name: str) -> None:
    idle_timeouts_ms, watermarks, steps = STORIES[name]
    now_ms = 0
    made = EventTimeTracker(idle_timeouts_ms, lambda: now_ms, ALIGNED)
    made.begin(watermarks)
    for step in steps:
        match step:
            case "report", epoch, reported:
                made.report(TaskReport(0, epoch, "task", watermarks=reported))
            case "ended", epoch, expected:
                assert made.ended(epoch) == expected
            case "begin", begun:
                made.begin(begun)
            case "at", at_ms:
                now_ms = at_ms
            case "now" | "idle" as what, expected:
                told = made.progress()
                assert {"now": told.watermarks, "idle": "".join(sorted(told.idle))}[what] == expected
            case "held", ended, sources:
                assert made.hold_back(frozenset(ended)) == {*sources}


def test_an_epoch_does_not_change_what_those_before_it_have() -> None:
    made = EventTimeTracker({}, lambda: 0)
    seen = []
    for epoch in (1, 2):
        made.report(TaskReport(0, epoch, "task", watermarks={"a": epoch}))
        seen += [made.ended(epoch), made.progress().watermarks]
    assert seen == [{"a": 1}, {"a": 1}, {"a": 2}, {"a": 2}]


#: The last watermark is 9. A timer is due at 5.
RECORDS = [("a", 1, 0), ("a", 2, 10)]


def keyed(stream: DataStream) -> DataStream:
    return stream.key_by(key_of).process(Passes())


def told(stream: DataStream) -> DataStream:
    return stream.key_by(key_of).process(TellWatermark())


def met_again(stream: DataStream) -> DataStream:
    shared = keyed(stream).map(lambda record: record)
    return shared.union(shared.filter(lambda record: False)).map(lambda record: record)


def assigned_again(stream: DataStream) -> DataStream:
    strategy = WatermarkStrategy(0).with_timestamp_assigner(Third())
    return keyed(stream).assign_timestamps_and_watermarks(strategy)


#: Programs over two streams.
ENDS: dict[str, Callable[[DataStream, DataStream], DataStream]] = {
    "one operator": lambda one, other: told(one),
    "two operators": lambda one, other: told(keyed(one)),
    "four operators": lambda one, other: told(keyed(keyed(keyed(one)))),
    "an exchange": lambda one, other: told(keyed(one).rebalance().map(lambda record: record)),
    "a filter that lets nothing through": lambda one, other: told(
        keyed(one).filter(lambda record: record[2] < 5)
    ),
    "a union": lambda one, other: told(keyed(one).union(other)),
    "a union of operators": lambda one, other: told(keyed(one).union(keyed(other))),
    "streams that meet again": lambda one, other: told(met_again(one)),
    "an assigner behind an operator": lambda one, other: told(assigned_again(one)),
    "an assigner and a filter": lambda one, other: told(assigned_again(one).filter(lambda record: True)),
    "two inputs": lambda one, other: (
        keyed(one).connect(other).key_by(key_of, key_of).process(CoTellWatermark())
    ),
    "a broadcast stream": lambda one, other: (
        keyed(one).key_by(key_of).connect(other.broadcast(FACTORS)).process(BroadcastTellWatermark())
    ),
    "a side output": lambda one, other: told(one.key_by(key_of).process(PassAside()).get_side_output(LATE)),
}


def watermarks(way: str, parallelism: int) -> list[int]:
    program = Program()
    one, other = (program.stream(RECORDS, name, splits=1) for name in ("one", "other"))
    return JobRun(ENDS[way](one, other)._node, parallelism=parallelism).results()


@pytest.mark.parametrize("way", ENDS)
@pytest.mark.parametrize("parallelism", cases([1, 2], quick=[2]))
def test_a_timer_fires_at_the_last_watermark(way: str, parallelism: int) -> None:
    assert watermarks(way, parallelism) == [9]


@pytest.mark.parametrize("way", cases([*ENDS], quick=["one operator", "streams that meet again"]))
def test_it_does_so_if_the_records_fill_a_frame(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "RECORDS_PER_FRAME", 2)
    assert watermarks(way, 2) == [9]


pytestmark = pytest.mark.timeout(120)

Record = tuple[str, int, int]
KEYS = ("a", "b", "cc", "dd", "eee")


@pytest.fixture(autouse=True)
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "RECORDS_PER_FRAME", 3)


def records(seed: int, count: int, disorder: int) -> list[Record]:
    """Records whose times go up by two on average, each up to ``disorder`` too early or too late."""
    random_ = random.Random(seed)
    return [
        (random_.choice(KEYS), n, max(0, 2 * n + random_.randint(-disorder, disorder))) for n in range(count)
    ]


ONE, TWO = records(1, 40, 6), records(2, 25, 6)
WINDOWS = TumblingEventTimeWindows.of(10)


def union() -> DataStream:
    """Two streams that are each as much out of order as they say, in windows."""
    program = Program()
    both = program.stream(ONE, "one", 12).union(program.stream(TWO, "two", 12))
    return both.key_by(key_of).window(WINDOWS).process(Contents())


def expected_of_union() -> list[Any]:
    found: dict[tuple[str, int], list[int]] = defaultdict(list)
    for key, number, time in ONE + TWO:
        found[key, time // 10 * 10].append(number)
    return [(key, start, tuple(sorted(numbers))) for (key, start), numbers in found.items()]


def connected() -> DataStream:
    """Two streams by key, paired at the end of time."""
    program = Program()
    one, two = program.stream(ONE, "one"), program.stream(TWO, "two", None)
    return one.connect(two).key_by(key_of, key_of).process(Pair())


def expected_of_connected() -> list[Any]:
    sides = [{key: tuple(sorted(n for k, n, _ in side if k == key)) for key in KEYS} for side in (ONE, TWO)]
    return [(key, sides[0][key], sides[1][key]) for key in KEYS]


def two_stages() -> DataStream:
    """Sums by timers, then windows over what they gave, by another key."""
    program = Program()
    sums = program.stream(ONE, "one", 12).key_by(key_of).process(SumEachTen())
    return sums.key_by(key_of).window(WINDOWS).reduce(lambda a, b: (a[0], a[1] + b[1], a[2]))


def expected_of_two_stages() -> list[Any]:
    sums: Counter[tuple[int, int]] = Counter()
    for key, number, time in ONE:
        sums[len(key), time // 10 * 10 + 9] += number
    return [(length, total, end) for (length, end), total in sums.items()]


def broadcast() -> DataStream:
    """Numbers times a broadcast factor."""
    program = Program()
    factors = program.stream([(length, 10**length, 0) for length in (1, 2, 3)], "factors")
    return program.stream(ONE, "one").key_by(key_of).connect(factors.broadcast(FACTORS)).process(Scale())


def expected_of_broadcast() -> list[Any]:
    sums: Counter[str] = Counter()
    for key, number, _ in ONE:
        sums[key] += number
    return [(key, total * 10 ** len(key)) for key, total in sums.items()]


PROGRAMS: dict[str, tuple[Callable[[], DataStream], list[Any]]] = {
    "union": (union, expected_of_union()),
    "connected": (connected, expected_of_connected()),
    "two stages": (two_stages, expected_of_two_stages()),
    "broadcast": (broadcast, expected_of_broadcast()),
}


def crashing(epoch: int = 3, after: bool = False) -> LocalRunner:
    """A runner whose executor is lost once."""
    runner = LocalRunner()
    setattr(runner, "after" if after else "before", once(SparkJobError("executor lost"), epoch))
    return runner


def result_of(
    stream: DataStream, storage: CheckpointFolders | None, parallelism: int = 1, **options: Any
) -> Counter[Any]:
    restart = FixedDelayRestart(1, 0)
    run = JobRun(stream._node, storage=storage, parallelism=parallelism, restart=restart, **options)
    found = Counter(run.results())
    assert len(run.heard.restarts) == ("runner" in options), "the crash has happened"
    return found


@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize(
    "how",
    cases(["1", "2", "3", "crash", "no checkpoints"], quick=["3", "crash"]),
)
def test_results_are_the_same_whatever_happens(name: str, how: str, storage: CheckpointFolders) -> None:
    build, expected = PROGRAMS[name]
    options: dict[str, Any] = {"runner": crashing(after=True)} if how == "crash" else {}
    kept = None if how == "no checkpoints" else storage
    assert result_of(build(), kept, int(how) if how.isdigit() else 2, **options) == Counter(expected)


# --- sources that wait for each other --------------------------------------------------------------------

#: As many records of each, but event time passes ten times as fast in the first.
FAST, SLOW = [("a", n, 10 * n) for n in range(80)], [("b", n, n) for n in range(80)]


def aligned(max_drift_ms: int | None) -> DataStream:
    program = Program()
    alignment = None if max_drift_ms is None else WatermarkAlignment("both", max_drift_ms)
    fast, slow = (
        program.stream(given, name, alignment=alignment) for given, name in ((FAST, "fast"), (SLOW, "slow"))
    )
    return fast.union(slow).key_by(key_of).window(WINDOWS).process(Contents())


class TestAlignmentOfJobs:
    def read_together(self, runner: LocalRunner) -> list[tuple[bool, bool]]:
        """Of each epoch: whether it read of the fast source, and of the slow one."""
        epochs = [request.epoch.epochs for request in runner.requests if request.epoch is not None]  # type: ignore[union-attr]
        return [(epoch["fast-0"] is not None, epoch["slow-1"] is not None) for epoch in epochs]

    def test_the_fast_one_waits_until_the_slow_one_has_ended(self, storage: CheckpointFolders) -> None:
        runner = LocalRunner()
        JobRun(aligned(50)._node, storage=storage, runner=runner).run()
        both, slow, fast = (True, True), (False, True), (True, False)
        # 59 to 5, 59 to 13, 139 to 21: from then on only the end of the slow one lets the fast one go on.
        assert self.read_together(runner) == [both, slow, both, *[slow] * 7, *[fast] * 8]

    def test_without_an_alignment_nobody_waits(self, storage: CheckpointFolders) -> None:
        runner = LocalRunner()
        JobRun(aligned(None)._node, storage=storage, runner=runner).run()
        assert set(self.read_together(runner)) == {(True, True)}

    @pytest.mark.parametrize("crashes", cases([False, True], quick=[True]))
    def test_results_are_the_same(self, storage: CheckpointFolders, crashes: bool) -> None:
        options = {"runner": crashing(5)} if crashes else {}
        found: dict[tuple[str, int], list[int]] = defaultdict(list)
        for key, number, time in FAST + SLOW:
            found[key, time // 10 * 10].append(number)
        expected = Counter((key, start, tuple(numbers)) for (key, start), numbers in found.items())
        assert result_of(aligned(50), storage, 2, **options) == expected


# --- late data -------------------------------------------------------------------------------------------

DISORDERED = records(3, 60, 25)


def late() -> DataStream:
    """Records that are more out of order than they say; late ones are results as well."""
    program = Program()
    windowed = (
        program.stream(DISORDERED, "one", 2)
        .key_by(key_of)
        .window(WINDOWS)
        .side_output_late_data(LATE)
        .process(Contents())
    )
    return windowed.union(windowed.get_side_output(LATE).map(lambda record: ("late", record)))


class TestLateData:
    def test_a_record_is_in_its_window_or_late(self, storage: CheckpointFolders) -> None:
        found = result_of(late(), storage, 2)
        dropped = [result[1][1] for result in found.elements() if result[0] == "late"]
        kept = [number for result in found.elements() if result[0] != "late" for number in result[2]]
        assert dropped
        assert kept
        assert sorted(dropped + kept) == list(range(60))

    def test_the_same_records_are_late_at_any_parallelism_and_after_a_crash(self, tmp_path: Path) -> None:
        runs = [(1, None), (3, None), (1, 3), (2, 5)]
        found = [
            result_of(
                late(),
                CheckpointFolders(str(tmp_path / str(number))),
                parallelism,
                **({} if epoch is None else {"runner": crashing(epoch, after=number % 2 == 0)}),
            )
            for number, (parallelism, epoch) in enumerate(runs)
        ]
        assert all(other == found[0] for other in found)


@pytest.mark.parametrize("order", ["ab", "ba", "cba"])
def test_a_watermark_follows_its_source_to_another_place(
    storage: CheckpointFolders, out: list[Any], order: str
) -> None:
    """Records would be late otherwise."""
    of = {
        "a": [("a", 1, 100), ("a", 2, 500), ("a", 3, 600), ("a", 4, 900)],
        "b": [("b", 1, 5), ("b", 2, 11), ("b", 3, 12), ("b", 4, 25), ("b", 5, 31)],
        "c": [("c", 1, 1000)],
    }

    def run(order: str, restore: RestorePoint | None = None) -> JobRun:
        program, streams = Program(), []
        for uid in order:
            source = DataStream(program, SourceNode(Splits(of[uid], 1, 2), "source", uid=uid))  # type: ignore[arg-type]
            strategy = WatermarkStrategy(0).with_timestamp_assigner(Third())
            streams.append(source.assign_timestamps_and_watermarks(strategy))
        stream = streams[0].union(*streams[1:]).key_by(key_of).window(WINDOWS).process(Contents())
        return JobRun(stream._node, out=out, storage=storage, restore=restore, epochs_ahead=0)

    def stop(request: Any) -> None:
        if request.link.epoch == 2:
            first.heard.await_checkpoint()
            raise SparkJobError("the job stops here")

    first = run("ab")
    first.runner.after = stop
    first.fails(SparkJobError)
    restored = latest(storage)
    assert restored.metadata.watermarks == {
        "watermarks-1 of a": 499,
        "watermarks-1 of b": 10,
        "Contents-1": 10,
    }
    run(order, restored).run()
    windows_of_b = [("b", 0, (1,)), ("b", 10, (2, 3)), ("b", 20, (4,)), ("b", 30, (5,))]
    assert [window for window in sorted(out) if window[0] == "b"] == windows_of_b


#: By name: the uids of the sources before and after.
UIDS: dict[str, tuple[tuple[str | None, ...], tuple[str | None, ...]]] = {
    "an only source gets one": ((None,), ("a",)),
    "an only source gets another": (("a",), ("b",)),
    "an only source gives it up": (("a",), (None,)),
    "each of two gets one": ((None, None), ("a", "b")),
}


@pytest.mark.parametrize("name", UIDS)
def test_watermarks_do_not_depend_on_a_uid_where_positions_do_not(
    name: str, storage: CheckpointFolders, out: list[Any]
) -> None:
    """What was late would be on time otherwise."""

    def run(
        uids: tuple[str | None, ...], records: list[Record], restore: RestorePoint | None = None
    ) -> JobRun:
        program, streams = Program(), []
        for uid in uids:
            source = DataStream(program, SourceNode(Splits(records, 1, 1), "source", uid=uid))  # type: ignore[arg-type]
            strategy = WatermarkStrategy(0).with_timestamp_assigner(Third())
            streams.append(source.assign_timestamps_and_watermarks(strategy))
        windows = streams[0].union(*streams[1:]).key_by(key_of).window(WINDOWS).side_output_late_data(LATE)
        late = windows.process(Contents()).get_side_output(LATE)
        return JobRun(late._node, out=out, storage=storage, restore=restore, epochs_ahead=0)

    before, after = UIDS[name]
    first: list[Record] = [("a", 1, 100), ("a", 2, 500)]
    run(before, first).run()
    run(after, [*first, ("a", 3, 50)], latest(storage)).run()
    assert out == [("a", 3, 50)] * len(after)


def test_a_new_source_does_not_take_over_the_watermark_of_one_that_was_at_its_place() -> None:
    program = Program()

    def stream(name: str, uid: str) -> DataStream:
        source = DataStream(program, SourceNode(Splits([("a", 1, 5)]), name, uid=uid))  # type: ignore[arg-type]
        return source.assign_timestamps_and_watermarks(WatermarkStrategy(0).with_timestamp_assigner(Third()))

    old, new = stream("old", "a"), stream("new", "c")
    plan = make_plan([SinkNode(old.union(new)._node, DriverSink(lambda *_: None), "sink")], 1, None)
    position = {"old-0": 7, "gone-1": 7}
    assert plan.watermarks_of({"watermarks-1": 10, "watermarks-2": 20, "op": 3}, position) == {
        "watermarks-1 of a": 10,
        "watermarks-2": 20,
        "op": 3,
    }


# --- the end of time -------------------------------------------------------------------------------------


class TestStopWithSavepoint:
    """The job has records left; what has come so far is in windows that have not fired."""

    def stopped(self, storage: CheckpointFolders, directory: Path, drains: bool) -> JobRun:
        stream = Program().stream(ONE, "one", 10**6).key_by(key_of).window(WINDOWS).process(Contents())
        run = JobRun(stream._node, storage=storage, parallelism=2)
        futures: list[Any] = []
        run.runner.before = at(2, lambda: futures.append(client.stop_with_savepoint(drains, str(directory))))
        client = JobClient(run.job(), None)
        client.get_job_execution_result().result(timeout=60)
        assert Path(futures[0].result(timeout=0)).parent == directory
        return run

    @pytest.mark.parametrize("drains", [False, True])
    def test_windows_fire_if_event_time_is_advanced_to_its_end(
        self, storage: CheckpointFolders, tmp_path: Path, drains: bool
    ) -> None:
        run = self.stopped(storage, tmp_path / "savepoints", drains)
        assert [request.is_final for request in run.runner.requests] == [False, False, drains]
        numbers = sorted(number for _, _, found in run.out for number in found)
        assert numbers == (list(range(24)) if drains else [])

    def test_a_savepoint_that_fails_after_event_time_has_ended_is_undone(
        self, storage: CheckpointFolders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The records after it must not be late."""
        run = JobRun(union()._node, storage=storage, restart=FixedDelayRestart(1, 0))
        savepoint = SavepointRequest(str(tmp_path / "savepoints"), True, drains=True)

        def spoil(request: Any) -> None:
            if request.is_final and not run.heard.restarts:
                (folder,) = (tmp_path / "savepoints").iterdir()
                (folder / "_metadata").mkdir()

        run.runner.before = at(2, lambda: run.job().request_savepoint(savepoint))
        run.runner.after = spoil
        run.run()
        assert isinstance(savepoint.done.exception(timeout=0), CheckpointError)
        assert [type(error) for _, error in run.heard.restarts] == [RuntimeFailure]
        assert Counter(run.out) == Counter(PROGRAMS["union"][1])


# --- after the end of time -------------------------------------------------------------------------------

#: Before the end, the watermark was 6999: the second record is 2 s ahead of it.
ENDED = [("a", 1, 1000), ("a", 2, 9000)]
LATER = ("a", 3, 2000)

#: What lies between the assigner of watermarks and the windows.
WAYS: dict[str, Callable[[DataStream], DataStream]] = {
    "nothing": lambda stream: stream,
    "an exchange": lambda stream: stream.rebalance().map(lambda record: record),
    "another operator": lambda stream: stream.key_by(key_of).process(Passes()),
    "another stream": lambda stream: stream.union(stream.filter(lambda record: False)),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_job_restored_from_the_end_of_its_input_has_the_watermark_from_before_the_end(
    way: str, storage: CheckpointFolders
) -> None:
    """Or what is late would fire a window twice, if it comes in the first frame."""

    def run(records: list[Record], restore: RestorePoint | None = None) -> list[Any]:
        keyed = WAYS[way](Program().stream(records, "one", 2000, splits=1)).key_by(key_of)
        windows = keyed.window(TumblingEventTimeWindows.of(5000)).side_output_late_data(LATE)
        made = windows.process(Contents())
        late = made.get_side_output(LATE).map(lambda record: ("late", record))
        run = JobRun(made.union(late)._node, storage=storage, restore=restore, parallelism=2)
        return sorted(run.results())

    assert run(ENDED) == [("a", 0, (1,)), ("a", 5000, (2,))]
    assert run([*ENDED, LATER], latest(storage)) == [("late", LATER)]
