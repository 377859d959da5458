"""Tasks of stages without state, whose results are frames that other stages read.

A :class:`StageTask` runs one stage. Where streams part and meet again, a :class:`RegionTask` runs all stages
over a partition together: a union has records of several stages, and the partition that they come from is
one. It takes the frames of the partition one by one, and sends each through all stages in order. The results
of a stage for one frame wait, as bytes, for the stages that read them. The watermark of a union is the least
of its inputs after each frame, so none of its records is late because of the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from typing import Any

import attrs

from pyflinkstate.api import Record, Reported
from pyflinkstate.runtime.tasks.chain import Aside, Chain
from pyflinkstate.runtime.tasks.records import FollowedRecords, TimedRecords, has_untold
from pyflinkstate.runtime.tasks.tasks import ChainTask, RunningChain, TaskLink, of_frame
from pyflinkstate.runtime.wire import (
    ChannelEvent,
    FrameCutter,
    FrameTime,
    ValuesFrame,
    WatermarkMerger,
    frames,
    frames_of,
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
            running.chain.has_asides = _has_side_outputs(self.chain)
            yield from self.chain.link.looked_at(self._frames(running), of_frame, self.stream, content)

    def _frames(self, running: RunningChain) -> Iterator[bytes]:
        cutter = FrameCutter(frames.RECORDS_PER_FRAME)
        if self.chain.event_time is None:
            return _untimed(running.run(), running.chain, self.stage_id, cutter)
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
    return [entry for value, entry in zip(values, column, strict=True) if type(value) is not Aside]


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
        return frames_of(iter(records), self.stages[0].stage_id)


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
            running.chain.has_asides = _has_side_outputs(one.chain)
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
