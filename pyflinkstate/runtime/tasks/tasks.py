"""The functions that run inside Spark tasks: values that Spark ships with its closures.

Nothing here imports PySpark.

Each is called with a partition index and an iterator and returns an iterator, as
``mapPartitionsWithIndex`` requires. Every error is reported to the driver as it is, before Spark turns it
into text.

A :class:`StageTask` runs a stage without state, whose results are frames that other stages read. Where
streams part and meet again, a :class:`RegionTask` runs all stages over a partition together: a union has
records of several stages, and the partition that they come from is one. It takes the frames of the partition
one by one, and sends each through all stages in order. The results of a stage for one frame wait, as bytes,
for the stages that read them. The watermark of a union is the least of its inputs after each frame, so none
of its records is late because of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import chain, count as counter
from operator import itemgetter
from typing import Any, cast

import attrs

from pyflinkstate.api import Record, Reported, T, safe_repr
from pyflinkstate.backends.values import RecordCounter
from pyflinkstate.errors import PyFlinkStateError, SourceError
from pyflinkstate.runtime.plan import ASYNC, WATERMARKS, ChainedOperator
from pyflinkstate.runtime.sinks import SinkCount, SinkWriter
from pyflinkstate.runtime.slots import Results
from pyflinkstate.runtime.sources import ReadBatches, ReadLive, ReadTime, Reject, RejectedRecord
from pyflinkstate.runtime.tasks.chain import Chain, SideResult, TaskInfo
from pyflinkstate.runtime.tasks.records import (
    BatchedRecords,
    FollowedRecords,
    FramedRecords,
    PartedRecords,
    TimedRecords,
    has_untold,
)
from pyflinkstate.runtime.tasks.router import EventTimeSettings, Router, opened_selector
from pyflinkstate.runtime.tasks.slot_client import DriverLink, run_epoch
from pyflinkstate.runtime.wire import (
    MAX_WATERMARK,
    NO_WATERMARK,
    Address,
    BeginEpoch,
    ChannelEvent,
    CheckpointTrigger,
    ColumnBatch,
    EpochDone,
    FrameCutter,
    FrameKey,
    FrameTime,
    InputFrame,
    ShippedFunction,
    SlotId,
    SlotReport,
    SystemClock,
    TaskReport,
    ValuesFrame,
    WatermarkMerger,
    frames,
    frames_of,
    side_output_count,
    unshipped,
)


@attrs.frozen
class StageTask:
    """A chain whose results have several readers: frames, which include side outputs."""

    chain: ChainTask
    stage_id: str
    #: The id of the stream of its results.
    stream: str = ""

    def __call__(self, partition: int, stream: Iterable[Record]) -> Iterator[bytes]:
        task, content = f"{self.stage_id}[{partition}]", self.chain.content()
        with self.chain.link.reporting(task, content) as counts:
            running = self.chain.start(partition, stream, counts)
            running.chain.marks_side_results = _has_side_outputs(self.chain)
            yield from self.chain.link.looked_at(self._frames(running), of_frame, self.stream, content)

    def _frames(self, running: RunningChain) -> Iterator[bytes]:
        cutter = FrameCutter(frames.RECORDS_PER_FRAME)
        if self.chain.event_time is None:
            parts = (_untimed(part, running.chain, self.stage_id, cutter) for part in running.run())
            return chain.from_iterable(parts)
        return _timed(running.run_timed(), running, self.stage_id, cutter)


def _has_side_outputs(task: ChainTask) -> bool:
    return any(operator.has_side_outputs for operator in task.operators)


def _untimed(records: Iterator[Record], made: Chain, place: str, cutter: FrameCutter) -> Iterator[bytes]:
    while values := cutter.take(records):
        yield from cutter.encode(
            ValuesFrame(_main_only(values, values) if made.side else values, side=made.take_side()), place
        )


def _main_only(values: Sequence[Record], column: Sequence[Any]) -> list[Any]:
    """Return the entries of a column of results without those of side outputs."""
    return [entry for value, entry in zip(values, column, strict=True) if type(value) is not SideResult]


def _take(records: TimedRecords, made: Chain, cutter: FrameCutter) -> ValuesFrame:
    """Return the results of the next frame, without a watermark."""
    values, timestamps = records.take(cutter)
    if made.side:
        values, timestamps = _main_only(values, values), _main_only(values, timestamps)
    return ValuesFrame(values, timestamps, side=made.take_side())


def _timed(records: TimedRecords, running: RunningChain, place: str, cutter: FrameCutter) -> Iterator[bytes]:
    idleness = _Idleness(running)
    time = running.chain.time
    opening: int | None = time.watermark
    told = time.watermark
    while True:
        frame = _take(records, running.chain, cutter)
        is_idle = idleness.after(frame)
        is_over = not frame and not has_untold(time, told, running.is_final or not records.is_over)
        if is_over and not records.is_over:
            continue
        told = running.end() if is_over else time.watermark
        frame = attrs.evolve(frame, watermark=told, is_idle=is_idle, opening=opening)
        yield from cutter.encode(frame, place)
        if is_over:
            return
        opening = None


class _Idleness:
    """Whether a chain holds back no other: its stream may have been idle when the epoch began."""

    def __init__(self, running: RunningChain) -> None:
        settings = running.task.event_time
        self._time = running.chain.time
        self._began = self._time.watermark
        self._is_silent = settings is not None and settings.is_idle

    def after(self, frame: ValuesFrame) -> bool:
        """Return whether it is idle after these results."""
        self._is_silent = self._is_silent and not frame.values and (self._time.watermark == self._began)
        return self._is_silent or self._time.is_idle


@attrs.frozen
class RegionInput:
    """A branch to a stage of a region.

    Attributes:
        chain: what runs on the way, with the stage's own operators.
        stage: the number of the stage that it reads; None for the root of the region.
    """

    chain: ChainTask
    stage: int | None = None


@attrs.frozen
class RegionStage:
    """One stage of a region.

    Attributes:
        stage_id: its id among all stages.
        stream: the id of the stream of its results.
        inputs: its branches.
        is_read: whether its results are read outside of the region.
    """

    stage_id: str
    stream: str
    inputs: tuple[RegionInput, ...]
    is_read: bool = True


@attrs.frozen
class RegionTask:
    """Stages that run over the same partitions, each after those that it reads.

    The results are pairs of the number of a stage and one of its frames.
    """

    link: TaskLink
    stages: tuple[RegionStage, ...]
    #: Whether the partition has frames of values, not single records.
    decodes: bool = True
    #: Whether it has batches of records, as a source reads them.
    has_batches: bool = False
    #: Whether it has the parts of a source that is read live.
    is_live: bool = False

    def __call__(self, partition: int, stream: Iterable[Record]) -> Iterator[tuple[int, bytes]]:
        running = [_RunningStage(stage, partition) for stage in self.stages]
        with self.link.reporting(f"{self.stages[0].stage_id}[{partition}]"):
            with ExitStack() as opened:
                for stage in running:
                    stage.open(opened)
                for data in self._frames(stream):
                    yield from _through(running, (data,))
                yield from _through(running, (), is_last=True)
            for stage in running:
                self.link.report_end(f"{stage.stage.stage_id}[{partition}]", stage.counts, stage.content)

    def _frames(self, stream: Iterable[Any]) -> Iterable[bytes]:
        if self.decodes:
            return stream
        records = chain.from_iterable(stream) if self.has_batches else stream
        parts = map(iter, stream) if self.is_live else (iter(records),)
        return chain.from_iterable(frames_of(part, self.stages[0].stage_id) for part in parts)


def _through(
    running: list[_RunningStage], data: Sequence[bytes], is_last: bool = False
) -> Iterator[tuple[int, bytes]]:
    """Send frames of the root through all stages; yield the frames that others read."""
    results: dict[int | None, Sequence[bytes]] = {None: data}
    for number, stage in enumerate(running):
        results[number] = [*stage.frames(results, is_last)]
        if stage.stage.is_read:
            yield from ((number, made) for made in results[number])


class _RunningStage:
    """A stage of a region over one partition."""

    def __init__(self, stage: RegionStage, partition: int) -> None:
        self.stage = stage
        self.counts: Counter[str] = Counter()
        self.content: dict[str, Reported] = {}
        self._inputs = [one.chain.start(partition, (), self.counts) for one in stage.inputs]
        self._cutter = FrameCutter(frames.RECORDS_PER_FRAME)
        self._merger = WatermarkMerger()
        #: Not before the first frame, which may tell where the inputs begin.
        self._idleness: list[_Idleness] = []
        for one, running in zip(stage.inputs, self._inputs, strict=True):
            running.chain.marks_side_results = _has_side_outputs(one.chain)
            self.content.update(one.chain.content())

    def open(self, opened: ExitStack) -> None:
        """Open the functions; they are closed with the stack."""
        for running in self._inputs:
            opened.enter_context(running.chain.opened())

    def frames(self, read: Mapping[int | None, Sequence[bytes]], is_last: bool) -> Iterable[bytes]:
        """Yield the results for further frames.

        Args:
            read: the frames, by the number of the stage that they come from.
            is_last: whether no more frames come.
        """
        link = self.stage.inputs[0].chain.link
        records = [
            running.through(read[one.stage])
            for one, running in zip(self.stage.inputs, self._inputs, strict=True)
        ]
        is_timed = self.stage.inputs[0].chain.event_time is not None
        made = self._timed(records, is_last) if is_timed else self._untimed(records)
        return link.looked_at(made, of_frame, self.stage.stream, self.content)

    def _untimed(self, records: list[Iterator[Record]]) -> Iterator[bytes]:
        for running, own in zip(self._inputs, records, strict=True):
            yield from _untimed(own, running.chain, self.stage.stage_id, self._cutter)

    def _timed(self, records: list[Iterator[Record]], is_last: bool) -> Iterator[bytes]:
        """Yield the results, and at the end the watermark of all inputs: before that, it has to stay."""
        opening = self._open_inputs()
        pending = ValuesFrame((), ())
        for number, own in enumerate(records):
            for frame in self._results(number, own):
                if pending:
                    yield from self._encoded(pending, opening)
                    opening = None
                pending = frame
        yield from self._encoded(pending, opening)
        if is_last:
            for number, running in enumerate(self._inputs):
                self._advance(number, running.end(), pending)
            yield from self._encoded(ValuesFrame((), ()), None)

    def _open_inputs(self) -> int | None:
        """Return the watermark with which the stage begins, when it begins."""
        if self._idleness:
            return None
        self._idleness = [_Idleness(running) for running in self._inputs]
        for number, running in enumerate(self._inputs):
            self._advance(number, running.chain.time.watermark, ValuesFrame(()), ChannelEvent.OPEN)
        self._merger.open()
        return self._merger.watermark

    def _results(self, number: int, records: Iterator[Record]) -> Iterator[ValuesFrame]:
        """Yield the results of an input; the merger knows how far the input is before they go on."""
        made = self._inputs[number].chain
        followed = FollowedRecords([records], made.time)
        while frame := _take(followed, made, self._cutter):
            self._idleness[number].after(frame)
            yield frame
        self._advance(number, made.time.watermark, frame)

    def _advance(
        self,
        number: int,
        watermark: int,
        frame: ValuesFrame,
        event: ChannelEvent = ChannelEvent.RECORDS,
    ) -> None:
        self._merger.advance(FrameTime(number, 0, watermark, event, self._idleness[number].after(frame)))

    def _encoded(self, frame: ValuesFrame, opening: int | None) -> Iterator[bytes]:
        return self._cutter.encode(
            attrs.evolve(
                frame, watermark=self._merger.watermark, is_idle=self._merger.is_idle, opening=opening
            ),
            self.stage.stage_id,
        )


@attrs.frozen
class SelectTask:
    """Selects the frames of one stage from the results of a :class:`RegionTask`."""

    stage: int

    def __call__(self, partition: int, stream: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
        return (data for number, data in stream if number == self.stage)


#: Maximum number of records that a task samples of each stream in an epoch, for somebody who looks at them.
MOST_RECORDS = 20
#: Length at which the text of a sample is cut, in characters.
_MOST_CHARS = 300
#: Records of an item's outputs, by the id of their tag; None for the main output.
Outputs = Iterable[tuple[str | None, Sequence[Record]]]


@attrs.frozen
class TaskLink:
    """The job and the epoch of a task."""

    driver: DriverLink
    epoch: int
    #: The ids of the streams of which somebody wants to see a few records.
    sampled: frozenset[str] = frozenset()

    def looked_at(
        self, items: Iterable[T], outputs: Callable[[T], Outputs], stream: str, content: dict[str, Any]
    ) -> Iterable[T]:
        """Return the same records, batches or frames; if somebody looks at their stream, note a few records.

        Args:
            items: the records, batches or frames.
            outputs: returns the records of one of them, such as :func:`of_frame`.
            stream: the id of their stream.
            content: the content of the task's report, which gets the texts of records, by the ids of streams.
        """
        return (
            items
            if stream not in self.sampled
            else sampled(items, outputs, stream, content.setdefault("samples", {}))
        )

    @contextmanager
    def reporting(self, task: str, content: dict[str, object] | None = None) -> Iterator[Counter[str]]:
        """Report the counts of the block and ``content`` if it succeeds, otherwise its error."""
        counts: Counter[str] = Counter()
        try:
            yield counts
        except PyFlinkStateError as error:
            self.report(task, error=error)
            raise
        self.report_end(task, counts, content or {})

    def report_end(self, task: str, counts: Counter[str], content: Mapping[str, object]) -> None:
        """Report the counts and the content of a task that has succeeded, if there are any."""
        if counts or content:
            self.report(task, counts=dict(counts), **content)

    def report(self, task: str, **content: Any) -> None:
        """Send a report to the driver."""
        self.driver.report(TaskReport(self.driver.attempt, self.epoch, task, **content))


def sampled(
    items: Iterable[T], outputs: Callable[[T], Outputs], stream: str, samples: dict[str, list[str]]
) -> Iterator[T]:
    """Yield all items, and note the first records; those of side outputs apart."""
    passing = iter(items)
    main = samples.setdefault(stream, [])
    for item in passing:
        for tag_id, values in outputs(item):
            noted = main if tag_id is None else samples.setdefault(side_output_count(stream, tag_id), [])
            noted.extend(safe_repr(value, _MOST_CHARS) for value in values[: MOST_RECORDS - len(noted)])
        yield item
        if len(main) >= MOST_RECORDS:
            break
    yield from passing


def of_record(record: Record) -> Outputs:
    """Return a record itself."""
    return [(None, (record,))]


def of_part(part: Sequence[Record]) -> Outputs:
    """Return the records of a part."""
    return [(None, part)]


def of_batch(batch: ColumnBatch) -> Outputs:
    """Return the first records of a batch."""
    return [(None, batch.part(0, MOST_RECORDS).rows())]


def of_frame(data: Results) -> Outputs:
    """Return the records of a frame of values."""
    frame = ValuesFrame.decode(data)
    return [(None, frame.values), *((tag_id, values) for tag_id, (values, _) in frame.side.items())]


@attrs.frozen
class SourceTask:
    """Reads a partition's records and counts them.

    ``read`` turns a split into records; without it the partition's items are the records. Records are
    isolated unless they are fresh, because a pickle of many keeps what they share, and a source may reuse one
    object.
    """

    link: TaskLink
    name: str
    read: Callable[[object, Reject], Iterable[Record]] | None = None
    is_fresh: bool = False
    #: The id of the stream of its records.
    stream: str = ""
    #: Turns an item into batches, which are passed on as they are.
    read_batches: ReadBatches | None = None

    def __call__(self, partition: int, items: Iterable[Record]) -> Iterator[Record]:
        task = f"{self.name}[{partition}]"
        rejected: list[RejectedRecord] = []
        counter = RecordCounter()
        content: dict[str, Any] = {}
        with self.link.reporting(task, content) as counts:

            def reject(record: RejectedRecord) -> None:
                counts[f"{self.name}.records_malformed"] += 1
                if record.keep:
                    rejected.append(record)

            counts[f"{self.name}.records_malformed"] = 0
            try:
                yield from self._read(partition, items, reject, counter, content)
            except (OSError, EOFError) as error:
                if isinstance(error, PyFlinkStateError):
                    raise
                raise SourceError(f"source {self.name!r} cannot be read: {error}") from error
            counts[f"{self.name}.records_out"] += counter.number
            if rejected:
                self.link.report(task, rejected=tuple(rejected))

    def _read(
        self,
        partition: int,
        items: Iterable[Record],
        reject: Reject,
        counter: RecordCounter,
        content: dict[str, object],
    ) -> Iterable[Record]:
        if self.read_batches is not None:
            batches = chain.from_iterable(map(self.read_batches, items))
            return _counted(self.link.looked_at(batches, of_batch, self.stream, content), counter)
        read = self.read
        own = items if read is None else chain.from_iterable(read(split, reject) for split in items)
        return self.link.looked_at(self._taken(own, counter), of_record, self.stream, content)

    def _taken(self, records: Iterable[Record], counter: RecordCounter) -> Iterator[Record]:
        return map(counter.as_it_is if self.is_fresh else counter.isolated, records)


@attrs.frozen
class LiveLimits:
    """For how long splits are read live, and their records wait for more at most."""

    lasts_ms: int = 0
    buffer_timeout_ms: int = 0


@attrs.frozen(kw_only=True)
class LiveTask(SourceTask):
    """Reads a split for as long as the epoch lasts. Its results are parts: lists of records.

    Attributes:
        source: the name of the source in positions.
        limits: how long that is.
    """

    source: str
    limits: LiveLimits

    def _read(
        self,
        partition: int,
        items: Iterable[Record],
        reject: Reject,
        counter: RecordCounter,
        content: dict[str, object],
    ) -> Iterable[Record]:
        parts = self._parts(partition, items, reject, content)
        own = ([*self._taken(part, counter)] for part in parts)
        return self.link.looked_at(own, of_part, self.stream, content)

    def _parts(
        self, partition: int, items: Iterable[Record], reject: Reject, content: dict[str, object]
    ) -> Iterator[list[Record]]:
        read_live = cast("ReadLive", self.read)
        clock, (split,) = SystemClock(), items
        until_ms = clock.monotonic_ms() + self.limits.lasts_ms
        read = read_live(split, reject, ReadTime(clock, until_ms, self.limits.buffer_timeout_ms))
        content["reached"] = {self.source: {partition: (yield from read)}}


def _counted(batches: Iterable[ColumnBatch], counter: RecordCounter) -> Iterator[ColumnBatch]:
    for batch in batches:
        counter.number += len(batch)
        yield batch


@attrs.frozen
class ChainTask:
    """Runs stateless operators over a stage's output."""

    link: TaskLink
    stage: str
    operators: tuple[ChainedOperator, ...]
    parallelism: int
    #: Whether the stage's output consists of frames of values, not of single records.
    decodes: bool
    #: The side output of the stage to read; None for the main output.
    tag_id: str | None = None
    #: None if the job does not use event time.
    event_time: EventTimeSettings | None = None
    #: Whether the stage's output consists of batches of records, as a source reads them.
    has_batches: bool = False
    #: Whether it consists of parts, as a source is read live.
    is_live: bool = False
    #: The name of the chain among all chains of the job.
    place: str = ""

    def content(self) -> dict[str, Reported]:
        """Return the final report about the chain of a task with several readers.

        A second run of an async function may give other results, or the same in another order. If Spark runs
        the task again, because shuffle files were lost, some readers have read the first results and others
        read the second. The driver restarts the job then.
        """
        return {"is_only_run": True} if any(operator.kind == ASYNC for operator in self.operators) else {}

    def records(self, partition: int, stream: Iterable[Any], counts: Counter[str]) -> Iterator[Record]:
        """Return the results of the chain."""
        if self.operators:
            return chain.from_iterable(self.start(partition, stream, counts).run())
        return chain.from_iterable(map(self._values_of, stream)) if self.decodes else self._single(stream)

    def taken(self, partition: int, stream: Iterable[Any], counts: Counter[str]) -> TimedRecords:
        """Return the results of the chain as a router takes them that knows no time."""
        if self.has_batches and not self.operators:
            return BatchedRecords(stream)
        if self.is_live:
            return FollowedRecords(self.start(partition, stream, counts).run(), None, is_live=True)
        return FollowedRecords([self.records(partition, stream, counts)], None)

    def _single(self, stream: Iterable[Any]) -> Iterator[Record]:
        return chain.from_iterable(stream) if self.has_batches or self.is_live else iter(stream)

    def _values_of(self, data: bytes) -> Sequence[Record]:
        return ValuesFrame.decode(data).output(self.tag_id)[0]

    def start(self, partition: int, stream: Iterable[Any], counts: Counter[str]) -> RunningChain:
        """Return the chain, ready to run over a partition; its time is that of the beginning of the epoch."""
        watermarks = {} if self.event_time is None else self.event_time.watermarks
        made = Chain(self.operators, self.info(partition), counts, watermarks, self._kept_as(partition))
        return RunningChain(self, made, self.framed(stream, made) if self.decodes else self._read(stream))

    def framed(self, frames: Iterable[bytes], made: Chain) -> FramedRecords:
        """Return the records of frames; the time of a chain follows them."""
        return FramedRecords(frames, self.tag_id, made.source_time, made.begin_at)

    def info(self, partition: int) -> TaskInfo:
        """Return the context in which a partition's functions run."""
        driver = self.link.driver
        return TaskInfo(
            partition,
            self.parallelism,
            driver.attempt,
            report=self._report(partition),
            job_parameters=driver.job_parameters,
        )

    def _kept_as(self, partition: int) -> object:
        driver = self.link.driver
        if not driver.keeps_functions:
            return None
        functions = [operator.function for operator in self.operators]
        digests = [function.digest for function in functions if isinstance(function, ShippedFunction)]
        return driver.attempt, self.place, partition, *digests

    def _report(self, partition: int) -> Callable[..., None]:
        """Return what reports metrics and watermarks; metrics of functions that stay open go on."""
        if self.link.driver.keeps_functions:
            return partial(self.link.report, f"{self.place}[{partition}]", are_totals=True)
        return partial(self.link.report, f"{self.stage}[{partition}]")

    def _read(self, stream: Iterable[Any]) -> Iterator[Record] | BatchedRecords | PartedRecords:
        """Return the records of a source; an assigner of timestamps takes them in batches."""
        if self.is_live:
            return PartedRecords(stream)
        if self.has_batches and [operator.kind for operator in self.operators] == [WATERMARKS]:
            return BatchedRecords(stream)
        return self._single(stream)


@attrs.frozen
class RunningChain:
    """A chain over one partition."""

    task: ChainTask
    chain: Chain
    records: Iterator[Record] | BatchedRecords | PartedRecords | FramedRecords

    def run(self) -> Iterator[Iterator[Record]]:
        """Return the results of the chain, those of a source that is read live in parts.

        The watermarks of its assigners are reported at the end.
        """
        records = self.records
        if isinstance(records, PartedRecords):
            return self.chain.run_parts(records)
        single = chain.from_iterable(records.batches) if isinstance(records, BatchedRecords) else records
        return iter([self.chain.run(single)])

    def run_timed(self) -> TimedRecords:
        """Return the results of the chain with their timestamps; the report at the end is the same."""
        return self.chain.run_timed(self.records, self.task.decodes)

    def through(self, frames: Iterable[bytes]) -> Iterator[Record]:
        """Return the results for further frames of the partition."""
        return self.chain.through(self.task.framed(frames, self.chain))

    @property
    def is_final(self) -> bool:
        """Whether the end of time follows the last record."""
        settings = self.task.event_time
        return settings is not None and settings.is_final

    def end(self) -> int:
        """Return the watermark after the last record."""
        return MAX_WATERMARK if self.is_final else self.chain.time.watermark


@attrs.frozen
class RouteTask:
    """The map side before a stateful operator: chain, key, frames."""

    chain: ChainTask
    operator_id: str
    router: Router

    def __call__(self, partition: int, stream: Iterable[Record]) -> Iterator[tuple[FrameKey, bytes]]:
        branch = f".{self.router.branch}" if self.router.branch else ""
        task = f"{self.chain.stage} to {self.operator_id}{branch}[{partition}]"
        with (
            self.chain.link.reporting(task, self.chain.content()) as counts,
            self._opened_router(partition) as router,
        ):
            if self.chain.event_time is None:
                yield from router.route(partition, self.chain.taken(partition, stream, counts))
            else:
                running = self.chain.start(partition, stream, counts)
                yield from router.route(partition, running.run_timed(), running.chain.time)

    @contextmanager
    def _opened_router(self, partition: int) -> Iterator[Router]:
        """Lend the router, whose key selector is open meanwhile."""
        router, select_key = self.router, unshipped(self.router.select_key)
        with opened_selector(select_key, router.operator, partial(self.chain.info, partition)) as selected:
            yield attrs.evolve(router, select_key=selected)


@attrs.frozen
class MergeTask:
    """The reduce side before a stateless operator: frames of values, with merged watermarks."""

    link: TaskLink
    operator_id: str
    #: The watermarks of assigners and operators at the beginning of the epoch; None without event time.
    watermarks: dict[str, int] | None = None

    def __call__(self, subtask: int, frames: Iterable[tuple[FrameKey, bytes]]) -> Iterator[bytes]:
        decoded = (InputFrame.decode(payload) for _, payload in frames)
        if self.watermarks is None:
            yield from (ValuesFrame(frame.values).encode() for frame in decoded if frame.values)
            return
        merger = WatermarkMerger(self.watermarks.get(self.operator_id, NO_WATERMARK))
        content: dict[str, Reported] = {}
        with self.link.reporting(f"{self.operator_id}[{subtask}]", content):
            yield from (frame.encode() for frame in _merged(decoded, merger))
            content["watermarks"] = {self.operator_id: merger.watermark}


def _merged(frames: Iterator[InputFrame], merger: WatermarkMerger) -> Iterator[ValuesFrame]:
    """Yield frames with the watermark of all channels; the first frame stands for the openings."""
    is_open = False
    for frame in frames:
        is_opening = frame.time is not None and frame.time.event is ChannelEvent.OPEN
        if not is_opening and not is_open:
            is_open = True
            merger.open()
            yield ValuesFrame((), None, merger.watermark, merger.is_idle, {}, merger.watermark)
        if frame.time is not None:
            merger.advance(frame.time)
        if not is_opening:
            yield ValuesFrame(frame.values, frame.timestamps, merger.watermark, merger.is_idle)


@attrs.frozen
class StartSlotsTask:
    """Starts slots that do not run yet, and waits until they have restored their state."""

    link: TaskLink

    def __call__(self, partition: int, slots: Iterable[SlotId]) -> Iterator[Record]:
        for slot in slots:
            with self.link.reporting(str(slot)):
                self.link.driver.acquire_slot(slot)
        yield from ()


@attrs.frozen
class SlotTask:
    """The reduce side: feeds the subtask's frames to its slot and passes on the results."""

    link: TaskLink
    operator_id: str
    name: str
    barrier: CheckpointTrigger | None
    addresses: dict[SlotId, Address]
    #: Whether records have timestamps, and watermarks follow them.
    is_timed: bool = False
    #: Whether this is the last epoch.
    is_final: bool = False

    def __call__(self, subtask: int, frames: Iterable[tuple[FrameKey, bytes]]) -> Iterator[Results]:
        yield from self.passed_on(subtask, self._fed(SlotId(self.operator_id, subtask), frames))

    def begin(self) -> BeginEpoch:
        """Return what the slot is told at the beginning of the epoch."""
        attempt, epoch = self.link.driver.attempt, self.link.epoch
        return BeginEpoch(attempt, epoch, self.barrier, self.is_timed, self.is_final)

    def _fed(self, slot: SlotId, frames: Iterable[tuple[FrameKey, bytes]]) -> Iterator[Results | EpochDone]:
        driver = self.link.driver
        address = self.addresses.get(slot) or driver.acquire_slot(slot)
        payloads = (payload for _, payload in frames)
        yield from run_epoch(address, driver.secret, slot, self.begin(), payloads)

    def passed_on(self, subtask: int, items: Iterator[Results | EpochDone]) -> Iterator[Results]:
        """Pass on the results of a slot, and report the end of its epoch, or the error that they raise."""
        content: dict[str, Reported] = {}
        with self.link.reporting(str(SlotId(self.operator_id, subtask)), content) as counts:
            ended: list[EpochDone] = []
            yield from self.link.looked_at(_results(items, ended), of_frame, self.operator_id, content)
            self._note_end(ended[0], counts, content)

    def _note_end(self, done: EpochDone, counts: Counter[str], content: dict[str, Reported]) -> None:
        counts[f"{self.name}.records_in"] += done.records_in
        counts[f"{self.name}.records_out"] += done.records_out
        for tag_id, count in done.side_out.items():
            counts[side_output_count(self.name, tag_id)] += count
        content.update(
            metrics={f"{self.name}.{name}": value for name, value in done.metrics.items()},
            are_totals=True,
            watermarks={self.operator_id: done.watermark},
            slot=SlotReport(done.status, done.next_timer_ms),
        )


def _results(items: Iterator[Results | EpochDone], ended: list[EpochDone]) -> Iterator[Results]:
    """Yield the frames of results, and put the end of the epoch aside."""
    for item in items:
        if isinstance(item, EpochDone):
            ended.append(item)
        else:
            yield item


@attrs.frozen
class SinkTask:
    """The end of a branch: a chain, then the sink's writer."""

    chain: ChainTask
    #: Unlike the name, it is unique among the sinks of the job.
    sink_id: str
    writer: SinkWriter
    #: Number of partitions of the sink before those of this branch.
    first: int = 0
    #: The id of the stream of its input.
    stream: str = ""
    #: Whether the number of records is among the results.
    is_counted: bool = False

    def __call__(self, partition: int, stream: Iterable[Record]) -> Iterator[Record]:
        content: dict[str, Any] = {}
        with self.chain.link.reporting(f"{self.sink_id}[{partition}]", content) as counts:
            looked_at = iter(
                self.chain.link.looked_at(
                    self.chain.records(partition, stream, counts), of_record, self.stream, content
                )
            )
            numbers = counter()  # counts without a call of Python for each record
            counted = map(itemgetter(0), zip(looked_at, numbers))  # noqa: B905
            yield from self.writer.write(self.first + partition, counted)
        if self.is_counted:
            yield SinkCount(next(numbers))
