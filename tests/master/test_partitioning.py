"""The shapes of whole jobs: partitioners, diamonds, and functions without keys."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator
from typing import Any, ClassVar

import attrs
import pytest
import support_job
from event_time_functions import Contents, Third, key_of
from slot_functions import ODD, OddsAside, OfItsSubtask, Place, Places, Twice, Where, same
from support_job import JobRun, LocalGraph, LocalRunner, collecting, numbers
from support_programs import Program
from support_runtime import PICKLED
from test_event_time import ONE, TWO, WINDOWS, crashing, expected_of_union, result_of

from pyflinkstate import (
    MAX_WATERMARK,
    DataStream,
    KeyedProcessFunction,
    KeySelector,
    NumberSequenceSource,
    OutputTag,
    ProcessFunction,
    TumblingEventTimeWindows,
    Types,
    WatermarkStrategy,
)
from pyflinkstate.errors import BadRecordError, ConfigurationError, ParallelismError
from pyflinkstate.runtime.plan import (
    ChainNode,
    Node,
    Partitioning,
    SinkNode,
    SourceNode,
    UnionNode,
    make_plan,
)
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks import DriverSink
from pyflinkstate.runtime.sources import CollectionSource
from pyflinkstate.runtime.storage import CheckpointFolders
from pyflinkstate.runtime.tasks import EventTimeSettings, MergeTask, Router, TaskLink
from pyflinkstate.runtime.wire import NO_WATERMARK, TaskTime, ValuesFrame, frames as frames_module

pytestmark = pytest.mark.timeout(120)

#: Records by the subtask that they are in, and how many subtasks there are.
Placement = dict[tuple[int, int], list[Any]]
ALL = list(range(12))
EVEN, ODDS = ALL[::2], ALL[1::2]


@pytest.fixture(autouse=True)
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "RECORDS_PER_FRAME", 3)


class Environment(Program):
    """What streams ask of theirs."""

    def get_parallelism(self) -> int:
        return 2


def source(records: list[Any] = ALL, records_per_epoch: int = 100) -> DataStream:
    env: Any = Environment()
    return DataStream(env, SourceNode(CollectionSource(records, records_per_epoch), "numbers"))


def placed(parallelism: int) -> DataStream:
    """The number x in subtask x % parallelism."""
    numbers = source().partition_custom(lambda key, count: key % count, same)
    return numbers.map(same).set_parallelism(parallelism)


def two_readers() -> DataStream:
    both = source().broadcast()
    return both.map(Place()).set_parallelism(3).union(both.map(Place()).set_parallelism(2))


def union_of_two() -> DataStream:
    first = source().partition_custom(lambda key, count: 0, same)
    second = source().map(lambda x: x + 100)
    return first.union(second.broadcast()).map(Place()).set_parallelism(2)


def placement(stream: DataStream, storage: CheckpointFolders | None = None, **options: Any) -> Placement:
    run = JobRun(stream._node, storage=storage, parallelism=2, **options)
    found: Placement = defaultdict(list)
    for value, subtask, parallelism in run.results():
        found[subtask, parallelism].append(value)
    return {where: sorted(values) for where, values in found.items()}


def custom(partitioner: Any, selector: Any = same, parallelism: int | None = None) -> DataStream:
    stream = source().partition_custom(partitioner, selector).map(Place())
    return stream if parallelism is None else stream.set_parallelism(parallelism)


HUNDREDS = [100 + number for number in ALL]
PYFLINK: dict[str, tuple[Callable[[], DataStream], Placement]] = {
    "custom": (
        lambda: custom(lambda key, count: key % count, lambda x: x // 4),
        {(0, 2): [0, 1, 2, 3, 8, 9, 10, 11], (1, 2): [4, 5, 6, 7]},
    ),
    "custom 3": (
        lambda: custom(lambda key, count: key % count, parallelism=3),
        {(0, 3): [0, 3, 6, 9], (1, 3): [1, 4, 7, 10], (2, 3): [2, 5, 8, 11]},
    ),
    "custom n": (lambda: custom(lambda key, count: count - 1, parallelism=3), {(2, 3): ALL}),
    "custom bool": (lambda: custom(lambda key, count: True), {(1, 2): ALL}),
    "custom rich": (lambda: custom(OfItsSubtask()), {(1, 2): ALL}),
    "placed": (lambda: placed(2).map(Place()), {(0, 2): EVEN, (1, 2): ODDS}),
    "broadcast": (lambda: source().broadcast().map(Place()), {(0, 2): ALL, (1, 2): ALL}),
    "broadcast 3": (
        lambda: source().broadcast().map(Place()).set_parallelism(3),
        {(0, 3): ALL, (1, 3): ALL, (2, 3): ALL},
    ),
    "forward 1 to 1": (lambda: source().forward().map(Place()).set_parallelism(1), {(0, 1): ALL}),
    "forward 2 to 2": (
        lambda: placed(2).forward().map(Place()).set_parallelism(2),
        {(0, 2): EVEN, (1, 2): ODDS},
    ),
    "rescale 1 to 3": (
        lambda: source().rescale().map(Place()).set_parallelism(3),
        {(0, 3): [0, 3, 6, 9], (1, 3): [1, 4, 7, 10], (2, 3): [2, 5, 8, 11]},
    ),
    "rescale 2 to 4": (
        lambda: placed(2).rescale().map(Place()).set_parallelism(4),
        {(0, 4): [0, 4, 8], (1, 4): [2, 6, 10], (2, 4): [1, 5, 9], (3, 4): [3, 7, 11]},
    ),
    "rescale 4 to 2": (
        lambda: placed(4).rescale().map(Place()).set_parallelism(2),
        {(0, 2): [0, 1, 4, 5, 8, 9], (1, 2): [2, 3, 6, 7, 10, 11]},
    ),
    "rescale 2 to 3": (
        lambda: placed(2).rescale().map(Place()).set_parallelism(3),
        {(0, 3): [0, 4, 8], (1, 3): [2, 6, 10], (2, 3): ODDS},
    ),
    "rescale 3 to 2": (
        lambda: placed(3).rescale().map(Place()).set_parallelism(2),
        {(0, 2): [0, 3, 6, 9], (1, 2): [1, 2, 4, 5, 7, 8, 10, 11]},
    ),
    "union of custom and broadcast": (union_of_two, {(0, 2): [*ALL, *HUNDREDS], (1, 2): HUNDREDS}),
    "two readers": (two_readers, {(0, 2): ALL, (0, 3): ALL, (1, 2): ALL, (1, 3): ALL, (2, 3): ALL}),
    "not parallel": (lambda: source().map(Place()).force_non_parallel(), {(0, 1): ALL}),
}

#: PyFlink begins each round with a subtask of its choice, so just the numbers of records count.
PYFLINK_SIZES: dict[str, tuple[Callable[[], DataStream], Placement, dict[tuple[int, int], int]]] = {
    "rebalance": (lambda: source().rebalance().map(Place()), {}, {(0, 2): 6, (1, 2): 6}),
    "rebalance 3": (
        lambda: source().rebalance().map(Place()).set_parallelism(3),
        {},
        {(0, 3): 4, (1, 3): 4, (2, 3): 4},
    ),
    "set_parallelism 3": (
        lambda: source().map(Place()).set_parallelism(3),
        {},
        {(0, 3): 4, (1, 3): 4, (2, 3): 4},
    ),
    "broadcast, then rebalance": (
        lambda: placed(3).broadcast().rebalance().map(Place()).set_parallelism(2),
        {},
        {(0, 2): 6, (1, 2): 6},
    ),
}


@pytest.mark.parametrize("name", PYFLINK)
def test_records_go_where_pyflink_sends_them(name: str) -> None:
    build, expected = PYFLINK[name]
    assert placement(build()) == expected


@pytest.mark.parametrize("name", PYFLINK_SIZES)
def test_as_many_records_go_to_a_subtask_as_in_pyflink(name: str) -> None:
    build, _, expected = PYFLINK_SIZES[name]
    found = placement(build())
    assert {where: len(values) for where, values in found.items()} == expected
    assert sorted(value for values in found.values() for value in values) == ALL


@pytest.mark.parametrize("name", PYFLINK)
def test_a_job_of_many_epochs_that_crashes_gives_the_same(name: str, storage: CheckpointFolders) -> None:
    """But for rescale, whose rounds begin one further in each epoch."""
    build, expected = PYFLINK[name]
    stream = build()
    for node in _sources(stream._node):
        node.source = CollectionSource(ALL, 5)
    runner = crashing(2, after=True)
    found = placement(stream, storage, runner=runner, restart=FixedDelayRestart(1, 0))
    if "rescale" in name:
        assert set(found) == set(expected)
        assert sorted(value for values in found.values() for value in values) == ALL
    else:
        assert found == expected


def _sources(node: Any) -> list[SourceNode]:
    if isinstance(node, SourceNode):
        return [node]
    return [one for parent in getattr(node, "parents", None) or (node.parent,) for one in _sources(parent)]


class OfOneSubtask(KeyedProcessFunction):
    """Gives each record with the index of the subtask that it is in."""

    def process_element(self, value: Any, ctx: KeyedProcessFunction.Context) -> Any:
        yield self.get_runtime_context().get_index_of_this_subtask(), value


def test_records_from_one_subtask_to_another_stay_in_order_whatever_their_keys() -> None:
    """As those of one of Flink's channels. The key groups of "hello" and "user-42" are 35 and 20."""
    records = ["hello", "user-42", "a", "user-42", "b", "hello", "c"]
    stream = source(records).key_by(same, Types.STRING()).process(OfOneSubtask())
    out = JobRun(stream._node, parallelism=2).results()
    found = [[value for place, value in out if place == subtask] for subtask in range(2)]
    assert {"hello", "user-42"} <= set(found[0])
    assert sum(map(len, found)) == len(records)
    for values in found:
        assert values == [record for record in records if record in values]


def test_global_sends_all_to_the_first_subtask() -> None:
    assert placement(placed(3).global_().map(Place()).set_parallelism(2)) == {(0, 2): ALL}


class TestReplay:
    """An epoch that is run again sends each record where it went before."""

    @pytest.mark.parametrize("how", ["shuffle", "rebalance", "rescale"])
    def test_it_has_the_same_records_in_the_same_subtasks(self, how: str, storage: CheckpointFolders) -> None:
        def build() -> DataStream:
            stream = source(list(range(60)), 7)
            return getattr(stream, how)().map(Place()).set_parallelism(4)

        expected = placement(build(), storage, name="first")
        runner = crashing(3, after=True)
        found = placement(build(), storage, name="other", runner=runner, restart=FixedDelayRestart(1, 0))
        assert found == expected
        assert len(found) == 4

    def test_shuffle_is_no_round(self) -> None:
        found = placement(source(list(range(4000)), 4000).shuffle().map(Place()).set_parallelism(4))
        sizes = [len(values) for values in found.values()]
        assert len(set(sizes)) > 1
        assert all(850 < size < 1150 for size in sizes)

    def test_records_of_short_epochs_are_spread_evenly(self, storage: CheckpointFolders) -> None:
        stream = source(list(range(40)), 1).rebalance().map(Place()).set_parallelism(4)
        assert {where: len(values) for where, values in placement(stream, storage).items()} == {
            (subtask, 4): 10 for subtask in range(4)
        }


class TestBadPartitioners:
    @pytest.mark.parametrize(
        ("result", "text"), [(2, "2"), (-1, "-1"), (None, "None"), ("a", "'a'"), (1.0, "1.0")]
    )
    def test_a_number_of_no_subtask_fails_the_job_and_says_why(self, result: Any, text: str) -> None:
        """PyFlink: ``ArrayIndexOutOfBoundsException``, ``NullPointerException``, ``TypeError``; 1.0 is 1."""
        with pytest.raises(BadRecordError) as caught:
            placement(custom(lambda key, count: result))
        assert f"returned {text} for key 0; it must return the number of a subtask, from 0 to 1" in str(
            caught.value
        )
        assert "operator 'partition_custom', record 0" in str(caught.value)

    @pytest.mark.parametrize(
        ("functions", "problem"),
        [
            ((1, same), "takes a callable or a Partitioner, not 1"),
            ((lambda key, count: 0, None), "takes a callable or a KeySelector, not None"),
            ((same, same), "is called with 2 arguments"),
        ],
    )
    def test_what_cannot_be_called_is_refused(self, functions: tuple[Any, Any], problem: str) -> None:
        with pytest.raises(ConfigurationError, match=rf"^partition_custom\(\).* {problem}"):
            source().partition_custom(*functions)


class TestForward:
    @pytest.mark.parametrize(
        "build",
        [
            lambda: source().forward().map(Place()).set_parallelism(2),
            lambda: placed(3).forward().map(Place()).set_parallelism(2),
            lambda: placed(3).rebalance().forward().map(Place()).set_parallelism(2),
        ],
    )
    def test_it_allows_no_change_of_parallelism(self, build: Callable[[], DataStream]) -> None:
        """PyFlink: "Forward partitioning does not allow change of parallelism."."""
        with pytest.raises(ParallelismError, match=r"forward\(\) does not allow a change of parallelism"):
            placement(build())

    def test_a_source_of_many_partitions_has_none_that_could_be_kept(self) -> None:
        stream = Environment().stream(ONE, "one").forward().map(Place()).set_parallelism(2)
        with pytest.raises(ParallelismError, match="as many subtasks as its source has partitions"):
            placement(stream)


class TestParallelism:
    def test_of_an_operator_that_is_not_parallel(self) -> None:
        """PyFlink: "The parallelism of non parallel operator must be 1."."""
        for stream in (source().map(Place()).force_non_parallel(), source()):
            stream.set_parallelism(1)
            with pytest.raises(ParallelismError, match="is not parallel: its parallelism must be 1, not 2"):
                stream.set_parallelism(2)

    def test_above_the_max_parallelism(self) -> None:
        """PyFlink: "parallelism (3) is higher than the max parallelism (2)"."""
        with pytest.raises(ParallelismError):
            placement(source().map(Place()).set_parallelism(3).set_max_parallelism(2))

    def test_what_follows_without_its_own_runs_where_the_records_are(self) -> None:
        stream = placed(3).filter(lambda x: x > 5).map(Place())
        assert placement(stream) == {(0, 3): [6, 9], (1, 3): [7, 10], (2, 3): [8, 11]}

    def test_of_a_stateful_operator_and_one_behind_it(self) -> None:
        keyed = source().key_by(same).map(same).set_parallelism(2)
        runner = LocalRunner()
        found = placement(keyed.map(Place()).set_parallelism(2), runner=runner)
        assert sorted(value for values in found.values() for value in values) == ALL
        assert runner.requests[0].plan.exchanges == (), "as many subtasks: records stay where they are"

    def test_of_a_sink(self) -> None:
        stream = placed(3).map(Place())
        env: Any = stream.get_execution_environment()
        nodes: list[Any] = []
        env._jobs.add_sink_node = nodes.append
        stream.sink_to(DriverSink(lambda *_: None)).set_parallelism(5)
        stream.broadcast().print().set_parallelism(3)
        assert (nodes[0].parallelism, nodes[1].parent.parallelism) == (5, 3)


def test_a_sink_right_behind_a_partitioner() -> None:
    out: list[Any] = []
    sink = DriverSink(lambda subtask, values: out.extend((value, subtask) for value in values))
    JobRun(source().broadcast()._node, sink, parallelism=3).run()
    assert sorted(out) == [(value, subtask) for value in ALL for subtask in range(3)]


def test_two_inputs_without_keys_go_where_they_are_told() -> None:
    stream = source().global_().connect(source(HUNDREDS).broadcast()).map(Places())
    assert placement(stream) == {(0, 2): [*ALL, *HUNDREDS], (1, 2): HUNDREDS}


def test_a_key_goes_before_a_partitioner() -> None:
    """PyFlink: each record once, in the subtask of its key."""
    found = placement(source().broadcast().key_by(lambda x: x % 2).map(Place()))
    assert sorted(value for values in found.values() for value in values) == ALL


class Parity(KeySelector):
    """0 or 1, once it is open; notes its life."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def open(self, runtime_context: Any) -> None:
        self.divisor = 2
        self.events.append(f"open {runtime_context.get_task_name_with_subtasks()}")

    def get_key(self, value: Any) -> Any:
        return value % self.divisor

    def close(self) -> None:
        del self.divisor
        self.events.append("close")


def test_a_key_selector_is_opened_and_closed_by_each_task_that_selects_keys(
    storage: CheckpointFolders,
) -> None:
    selector = Parity()  # one object for all tasks, as they run in this process: so one at a time
    stream = source(records_per_epoch=6).key_by(selector).map(Place())
    found = placement(stream, storage, epochs_ahead=0)
    assert sorted(value for values in found.values() for value in values) == ALL
    epochs = len(selector.events) // 2
    assert epochs >= 2
    assert selector.events == ["open key_by before Place (1/1)", "close"] * epochs


def test_side_outputs_of_what_is_behind_a_partitioner() -> None:
    aside = source().rebalance().process(OddsAside()).set_parallelism(3)
    both = aside.map(Place()).union(aside.get_side_output(ODD).map(Place()))
    found = placement(both)
    assert sorted(value for values in found.values() for value in values) == ALL
    assert set(found) == {(0, 3), (1, 3), (2, 3)}


def test_a_side_output_is_spread_too() -> None:
    odd = source().process(OddsAside()).get_side_output(ODD)
    assert placement(odd.rescale().map(Place())) == {(0, 2): ODDS[::2], (1, 2): ODDS[1::2]}


def test_an_operator_that_a_union_and_two_partitioners_read_runs_once() -> None:
    Twice.calls.clear()
    shared = source().flat_map(Twice())
    spread = shared.rebalance()
    both = spread.map(Place()).union(spread.map(Place()), shared.union(source([])).map(Place()))
    found = placement(both)
    assert Counter(value for values in found.values() for value in values) == Counter(ALL * 6)
    assert Twice.calls == ALL


def spread_union() -> DataStream:
    """As ``union`` of the event-time jobs, with records sent here and there on their way."""
    program = Program()
    one = program.stream(ONE, "one", 12).rebalance().map(same).set_parallelism(3)
    two = program.stream(TWO, "two", 12).shuffle()
    both = one.union(two).map(same).set_parallelism(2)
    return both.key_by(key_of).window(WINDOWS).process(Contents())


def merged(
    channels: list[EventTimeSettings], records: list[list[Any]], ended_at: int = 7
) -> list[ValuesFrame]:
    """What subtask 0 of 2 makes of channels that are rebalanced and open with 7."""
    frames = []
    for branch, (settings, given) in enumerate(zip(channels, records, strict=True)):
        router = Router("map", same, PICKLED, 2, 2, Partitioning.REBALANCE, 0, branch, settings)
        time = TaskTime(None, 7)
        frames += [frame for frame in router.route(0, given, time) if frame[0][0] == 0]
    task = MergeTask(TaskLink(Unheard(), 1), "rebalance-1", {"rebalance-1": ended_at})  # type: ignore[arg-type]
    return [ValuesFrame.decode(data) for data in task(0, sorted(frames))]


class Unheard:
    """A driver that is told what it need not know."""

    attempt = 1

    def report(self, _: Any) -> None:
        return


class TestMerging:
    @pytest.mark.parametrize(("ended_at", "begins_at"), [(9, 9), (7, 7), (NO_WATERMARK, 7)])
    def test_it_begins_where_the_epoch_before_ended_or_where_its_input_opens(
        self, ended_at: int, begins_at: int
    ) -> None:
        """It does not know where the epoch before ended if that was the end of the input."""
        settings = [EventTimeSettings(), EventTimeSettings()]
        first, *others = merged(settings, [[1, 2, 3], [4]], ended_at)
        assert (first.opening, first.watermark, list(first.values)) == (begins_at, begins_at, [])
        assert [frame.watermark for frame in others] == [begins_at] * len(others)
        assert sorted(value for frame in others for value in frame.values) == [1, 3]

    def test_a_stream_is_idle_if_all_that_it_is_made_of_are(self) -> None:
        idle, busy = EventTimeSettings(is_idle=True), EventTimeSettings()
        assert {frame.is_idle for frame in merged([idle, idle], [[], []])} == {True}
        assert not any(frame.is_idle for frame in merged([idle, busy], [[], []]))

    def test_the_end_of_all_channels_is_the_end(self) -> None:
        final = EventTimeSettings(is_final=True)
        assert merged([final, final], [[1], []])[-1].watermark == MAX_WATERMARK


class TestEventTime:
    @pytest.mark.parametrize("crash", [None, 2, 3])
    def test_watermarks_pass(self, crash: int | None, storage: CheckpointFolders) -> None:
        options = {} if crash is None else {"runner": crashing(crash, after=True)}
        assert result_of(spread_union(), storage, 2, **options) == Counter(expected_of_union())

    def test_without_checkpoints_too(self) -> None:
        assert result_of(spread_union(), None, 2) == Counter(expected_of_union())

    def test_they_are_as_far_as_without_an_exchange(self, storage: CheckpointFolders) -> None:
        """Epoch by epoch, also behind the exchange."""

        def watermarks(spread: bool) -> list[int | None]:
            stream = Program().stream(ONE, "one", 12)
            stream = stream.rebalance().map(same).set_parallelism(3) if spread else stream
            windows = stream.key_by(key_of).window(WINDOWS).process(Contents())
            run = JobRun(windows._node, storage=storage, name=str(spread), parallelism=2)
            run.run()
            return [request.event_time.watermarks.get("Contents-1") for request in run.runner.requests]

        assert watermarks(True) == watermarks(False) == [None, 1, 12, 28, 47]


RARE = OutputTag("rare")


class CountingGraph(LocalGraph):
    """Notes how many partitions each task has had."""

    sizes: ClassVar[Counter[str]] = Counter()

    def transform(self, data: Any, task: Any, name: str) -> Any:
        self.sizes[type(task).__name__] += len(data)
        return super().transform(data, task, name)


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    CountingGraph.sizes = Counter()
    monkeypatch.setattr(support_job, "LocalGraph", CountingGraph)
    return CountingGraph.sizes


def output_of(end: Node, **options: Any) -> list[Any]:
    return JobRun(end, **options).results()


def diamonds(node: Node, times: int) -> Node:
    """Return a stream to which the few records that a filter lets through are added again and again."""
    for number in range(times):
        part = ChainNode(node, "map", lambda n: n, f"map {number}")
        few = ChainNode(part, "filter", lambda n, number=number: n == number, f"filter {number}")
        node = UnionNode((part, few))
    return node


def test_many_diamonds_have_as_many_partitions_as_their_source(sizes: Counter[str]) -> None:
    out = output_of(diamonds(numbers(100, 100), 20))
    assert Counter(out) == {n: 2 if n < 20 else 1 for n in range(100)}
    assert max(sizes.values()) <= 2, "the sink has two ways to write"


class Parts(ProcessFunction):
    """Sends numbers that five divides to a side output too."""

    def process_element(self, value: int, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield value
        if value % 5 == 0:
            yield RARE, -value


def meshed(first: DataStream) -> DataStream:
    """Return streams that part in all ways, some of them with readers of their own."""
    shared = first.process(Parts())
    rare = shared.get_side_output(RARE)
    small = shared.filter(lambda n: n < 6)
    again = small.union(rare, shared, shared).map(lambda n: n)
    both = again.union(small.map(lambda n: n + 100), rare).flat_map(lambda n: [n, n])
    return both.union(again, small)


def expected_of_meshed(values: Iterable[int]) -> Counter[int]:
    shared = [*values]
    rare = [-n for n in shared if n % 5 == 0]
    small = [n for n in shared if n < 6]
    again = small + rare + shared + shared
    both = again + [n + 100 for n in small] + rare
    return Counter(both * 2 + again + small)


@pytest.mark.parametrize("records_per_frame", [2, 4096])
def test_streams_part_and_meet_in_all_ways(monkeypatch: pytest.MonkeyPatch, records_per_frame: int) -> None:
    monkeypatch.setattr(frames_module, "RECORDS_PER_FRAME", records_per_frame)
    program = Program()
    for first in (
        DataStream(program, numbers(20, 20)),  # type: ignore[arg-type]
        DataStream(program, numbers(20, 20)).rebalance().map(lambda n: n).set_parallelism(3),  # type: ignore[arg-type]
        DataStream(program, numbers(10, 20)).union(  # type: ignore[arg-type]
            DataStream(program, numbers(20, 20)).filter(lambda n: n >= 10)  # type: ignore[arg-type]
        ),
    ):
        assert Counter(output_of(meshed(first)._node)) == expected_of_meshed(range(20))


def test_records_of_a_partition_keep_their_order_on_each_way_through_a_diamond() -> None:
    out = output_of(diamonds(numbers(9000, 9000), 3))
    assert [n for n in out if n > 3] == [*range(4, 9000)]


def test_an_epoch_that_runs_again_has_the_same_records_in_the_same_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(frames_module, "RECORDS_PER_FRAME", 3)
    first, second = (output_of(meshed(DataStream(Program(), numbers(50, 50)))._node) for _ in range(2))  # type: ignore[arg-type]
    assert first == second


class Changes(ProcessFunction):
    def process_element(self, value: list[int], ctx: ProcessFunction.Context) -> Iterator[Any]:
        value.append(len(value))
        yield value


def test_what_changes_a_record_on_one_way_does_not_change_it_on_another() -> None:
    first = DataStream(Program(), numbers(3, 3)).map(lambda n: [n])  # type: ignore[arg-type]
    met = first.process(Changes()).union(first, first.process(Changes())).map(lambda record: record)
    twice = met.union(met.filter(lambda record: False)).map(tuple)
    out = Counter(output_of(twice._node))
    assert out == Counter({(n,): 1 for n in range(3)}) + Counter({(n, 1): 2 for n in range(3)})


def timed(records: list[Any], out_of_orderness: int = 0) -> DataStream:
    return Program().stream(records, "records", out_of_orderness, splits=2)


WAYS = {
    "a filter": lambda stream: stream.filter(lambda record: record[1] % 7 == 0),
    "an assigner of its own": lambda stream: stream.assign_timestamps_and_watermarks(
        WatermarkStrategy(40).with_timestamp_assigner(Third())
    ),
    "a way without records": lambda stream: stream.filter(lambda record: False),
}


@pytest.mark.parametrize("way", WAYS)
def test_no_record_of_a_union_is_late_because_of_the_others(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watermark of a union is the least of its inputs, after each frame."""
    monkeypatch.setattr(frames_module, "RECORDS_PER_FRAME", 4)
    records = [("a", n, n) for n in range(100)]
    stream = timed(records).map(lambda record: record)
    for _ in range(3):
        stream = stream.union(WAYS[way](stream)).map(lambda record: record)
    stream = stream.union(stream.filter(lambda record: False)).map(lambda record: record)
    windows = stream.key_by(key_of).window(TumblingEventTimeWindows.of(10))
    out = output_of(windows.process(Contents())._node, parallelism=2)
    times = {"a filter": lambda n: 8 if n % 7 == 0 else 1, "an assigner of its own": lambda n: 8}
    expected: Counter[int] = Counter({n: times.get(way, lambda n: 1)(n) for _, n, _ in records})
    assert Counter(n for _, _, found in out for n in found) == expected


@attrs.define
class Noted(ProcessFunction):
    """Gives the watermark that a record meets."""

    def process_element(self, value: Any, ctx: ProcessFunction.Context) -> Iterator[Any]:
        yield ctx.timer_service().current_watermark()


def test_the_watermark_of_a_union_moves_within_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frames_module, "RECORDS_PER_FRAME", 4)
    stream = Program().stream([("a", n, n) for n in range(16)], "records", splits=1)
    mapped = stream.map(lambda record: record)
    met = mapped.union(mapped.filter(lambda record: record[1] == 9)).map(lambda record: record)
    out = output_of(met.union(met.filter(lambda record: False)).process(Noted())._node)
    regular = sorted({watermark for watermark in out if watermark > 0})
    assert regular[:3] == [2, 6, 10]


def test_two_sinks_read_the_same_results_of_a_region() -> None:
    out: list[Any] = []
    shared = DataStream(Program(), numbers(10, 10)).map(lambda n: n)  # type: ignore[arg-type]
    met = shared.union(shared.filter(lambda n: n < 2)).map(lambda n: n)
    sinks = [SinkNode(stream._node, collecting(out), "other") for stream in (met, shared)]
    own = output_of(met.filter(lambda n: n < 2)._node, others=sinks)
    assert sorted(own) == [0, 0, 1, 1]
    assert Counter(out) == Counter([*range(10)] * 2 + [0, 1])


def ways(made: DataStream, parallelism: int) -> list[Partitioning]:
    plan = make_plan([SinkNode(made._node, DriverSink(print), "sink")], parallelism, None)
    (operator,) = plan.operators
    branches = plan.branches(operator.node)
    return [branch.input.partitioning for branch in branches if branch.input is not None]


@pytest.mark.timeout(60)
def test_records_stay_where_they_are_if_there_are_as_many_subtasks() -> None:
    env: Any = None
    one = DataStream(env, numbers())
    many = DataStream(env, SourceNode(NumberSequenceSource(1, 9), "numbers"))
    assert ways(one.map(Where()), 1) == [Partitioning.FORWARD]
    assert ways(one.map(Where()), 2) == [Partitioning.REBALANCE]
    assert ways(one.map(str).set_parallelism(2).map(Where()), 2) == [Partitioning.FORWARD]
    assert ways(one.map(str).set_parallelism(3).map(Where()), 2) == [Partitioning.REBALANCE]
    assert ways(many.map(Where()), 2) == [Partitioning.FORWARD], "as many subtasks as there are splits"
    assert ways(one.global_().map(Where()), 2) == [Partitioning.GLOBAL]
    assert ways(one.union(one.shuffle()).map(Where()), 1) == [Partitioning.FORWARD, Partitioning.SHUFFLE]
