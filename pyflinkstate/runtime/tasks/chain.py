"""Chains of operators without state: they run inside a Spark task, record by record, as generators.

A result is isolated when it is emitted: the function may go on to change the object that it gave. Filters
give the records that they get, and must not change them, as in Flink.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, cast

import attrs

from pyflinkstate.api import (
    NO_TIMESTAMP,
    OutputTag,
    ProcessFunction,
    Record,
    TimerService,
    UserFunction,
    WatermarkStrategy,
    is_side_output,
)
from pyflinkstate.backends.values import check_results, isolated
from pyflinkstate.runtime.operators import (
    KeylessTimerService,
    OperatorContext,
    called,
    close_all,
    close_functions,
    closed_at_end,
    open_function,
)
from pyflinkstate.runtime.plan import ASYNC, CHECK, WATERMARKS, ChainedOperator, KeptTimestamp
from pyflinkstate.runtime.tasks.records import (
    AssignedRecords,
    BatchedRecords,
    FollowedRecords,
    FramedRecords,
    PartedRecords,
    TimedRecords,
    check_timestamp,
)
from pyflinkstate.runtime.wire import (
    KEPT,
    MAX_WATERMARK,
    NO_WATERMARK,
    TASK_ENDS,
    ColumnBatch,
    OperatorMetrics,
    SystemClock,
    TaskTime,
    failures_of,
    side_output_count,
    unshipped,
    user_failure,
)

if TYPE_CHECKING:
    from pyflinkstate.runtime.operators import async_operator

Records = Iterable[Record]
#: The greatest number of operators that call each other. Python's limit is about a thousand calls, and some
#: operators take several.
MAX_NESTED = 100
#: Values and timestamps, by the ids of tags.
SideOutputs = dict[str, tuple[list[Record], list[int | None]]]


@attrs.frozen
class TaskInfo:
    """Identifies the subtask a chain runs as: Spark's partition number."""

    subtask: int
    parallelism: int
    attempt: int
    metrics: OperatorMetrics = attrs.field(eq=False, factory=lambda: OperatorMetrics(SystemClock().now_ms))
    #: Reports the content that it is given by name: metrics, watermarks.
    report: Callable[..., None] = lambda **content: None
    #: Creates the event loop of async functions; None for asyncio's own.
    new_event_loop: async_operator.NewEventLoop | None = None
    job_parameters: dict[str, str] = attrs.field(eq=False, factory=dict)

    def report_metrics(self, report: Callable[..., None]) -> None:
        """Report the values of the metrics, if there are any. Raises the error to report."""
        with failures_of("metrics", "in a gauge", TASK_ENDS):
            values = self.metrics.values()
        if values:
            report(metrics=values)


@attrs.define
class SideResult:
    """Takes the place of a result that has gone to a side output, among those of the main output."""

    value: Record


@attrs.define(eq=False)
class OpenFunctions:
    """The functions of a chain that are open, and the thread of those that are async.

    Args:
        info: the subtask that they run as.
    """

    info: TaskInfo
    operators: list[ChainedOperator] = attrs.field(init=False, factory=list)
    _loop_thread: async_operator.LoopThread | None = attrs.field(init=False, default=None)

    def open(self, operators: Iterable[ChainedOperator]) -> None:
        """Open functions in order. Raises the error to report; call :meth:`close` in any case."""
        for shipped in operators:
            operator = attrs.evolve(shipped, function=unshipped(shipped.function))
            _open(operator, self.info)
            self.operators.append(operator)

    def close(self) -> None:
        """Close them, in order. An error that it raises is ready to be reported."""
        loop_end = () if self._loop_thread is None else (self._loop_thread.close,)
        close_all(*loop_end, *(partial(_close, operator) for operator in self.operators))

    def loop_thread(self) -> async_operator.LoopThread:
        """Return the thread that runs async functions; it is started on first use."""
        if self._loop_thread is None:
            # Only async functions pay for the import of asyncio.
            from pyflinkstate.runtime.operators import async_operator

            self._loop_thread = async_operator.LoopThread(self.info.new_event_loop)
        return self._loop_thread


class Chain:
    """Operators in a row, for one run over a partition.

    Args:
        operators: from the first to the last.
        info: the subtask that they run as; gets the watermarks at the end if assigners had records.
        counts: gains ``"<name>.records_dropped"`` for each filter.
        watermarks: where the watermarks of the assigners stood when the epoch began, by their ids.
        kept_as: the key by which the functions stay open for the next run; None closes them.
    """

    def __init__(
        self,
        operators: Iterable[ChainedOperator],
        info: TaskInfo,
        counts: Counter[str],
        watermarks: dict[str, int] | None = None,
        kept_as: object = None,
    ) -> None:
        self._operators = list(operators)
        self._info = info
        self._kept_as = kept_as
        self._functions = OpenFunctions(info)
        self._are_kept = False
        self.counts = counts
        #: Results for side outputs, by the ids of their tags: values and timestamps.
        self.side: SideOutputs = {}
        #: Whether a :class:`SideResult` takes the place of each among the results: its reader bounds both.
        self.marks_side_results = False
        #: The time that the source, or the stage before, gives the record that was taken last.
        self.source_time = TaskTime()
        #: The same at the end of the chain.
        self.time = self.source_time
        #: The watermarks of assigners that had records, by their ids.
        self.watermarks: dict[str, int] = {}
        #: Returns processing time.
        self.now_ms = info.metrics.now_ms
        self._links: list[_Link] = []
        #: The time of the source, and the times behind async operators that follow it directly.
        self._times_of_source = [self.source_time]
        for operator in self._operators:
            link = _Link(self.time, self)
            if operator.kind == WATERMARKS:
                self.time = link.time_after = TaskTime(
                    None, (watermarks or {}).get(operator.assigner_id, NO_WATERMARK)
                )
            elif operator.kind == ASYNC:
                link.time_after = TaskTime(None, self.time.watermark)
                if self.time is self._times_of_source[-1]:
                    self._times_of_source.append(link.time_after)
                self.time = link.time_after
            self._links.append(link)

    def take_side(self) -> SideOutputs:
        """Return the results for side outputs since the last call, and count them."""
        taken, self.side = self.side, {}
        if taken:
            name = [operator.name for operator in self._operators if operator.has_side_outputs][-1]
            for tag_id, (values, _) in taken.items():
                self.counts[side_output_count(name, tag_id)] += len(values)
        return taken

    def begin_at(self, watermark: int, is_idle: bool) -> None:
        """Set the watermark and idleness of the source before its first record."""
        for time in self._times_of_source:
            time.watermark, time.is_idle = watermark, is_idle

    @contextmanager
    def opened(self, reports_watermarks: bool = True) -> Iterator[None]:
        """Open the functions for a block, and close them after it."""
        with closed_at_end(self.close):
            self.open()
            yield
            self._functions.info.report_metrics(self._info.report)
            if self._kept_as is not None:
                KEPT.keep(self._kept_as, self._functions, self._functions.close)
                self._are_kept = True
        if reports_watermarks:
            self._report_watermarks()

    def _report_watermarks(self) -> None:
        if self.watermarks:
            self._info.report(watermarks=dict(self.watermarks))

    def run(self, records: Records, number: int | None = None) -> Iterator[Record]:
        """Yield what comes out of the last operator when ``records`` go into the first.

        Args:
            records: go into the first operator.
            number: how many of the operators process records, if not all; all are opened and closed.
        """
        with self.opened(number is None):
            yield from self.through(records, number)

    def run_parts(
        self, records: Records | PartedRecords | FramedRecords, number: int | None = None
    ) -> Iterator[Iterator[Record]]:
        """Yield the results of :meth:`run` for each part of the records in turn; most have only one."""
        parts = records.parts() if isinstance(records, (FramedRecords, PartedRecords)) else (records,)
        with self.opened(number is None):
            yield from (self.through(part, number) for part in parts)

    def run_timed(
        self, records: Records | BatchedRecords | PartedRecords | FramedRecords, have_timestamps: bool
    ) -> TimedRecords:
        """Return the results of the last operator, with timestamps.

        Args:
            records: what goes into the first operator; batches if that is an assigner and the last one too.
            have_timestamps: whether the source's time tells timestamps.
        """
        last, is_live = len(self._operators) - 1, isinstance(records, PartedRecords)
        if isinstance(records, BatchedRecords):
            batches = cast("Iterator[ColumnBatch]", self.run(records.batches, last))
            return self._assigned(last, BatchedRecords(batches))
        if last < 0 or self._operators[last].kind != WATERMARKS:
            return FollowedRecords(self.run_parts(records), self.time, is_live)
        time = self._links[last].time
        before = None if time is self.source_time and not have_timestamps else time
        return self._assigned(last, FollowedRecords(self.run_parts(records, last), before, is_live))

    def _assigned(self, last: int, records: TimedRecords) -> TimedRecords:
        """Return the results of the last operator, an assigner, for ``records``."""
        operator, link = self._operators[last], self._links[last]

        def close(watermark: int | None) -> None:
            if watermark is not None:
                self.watermarks[operator.assigner_id] = watermark
            self._report_watermarks()

        return AssignedRecords(
            operator.name,
            records,
            lambda: self._functions.operators[last].function,
            (link.time, link.time_after),
            close,
        )

    def open(self) -> None:
        """Open the functions in order. Raises the error to report; call :meth:`close` in any case."""
        kept = None if self._kept_as is None else KEPT.take(self._kept_as)
        if isinstance(kept, OpenFunctions):
            self._functions = kept
        else:
            self._functions.open(self._operators)

    def through(self, records: Records, number: int | None = None) -> Iterator[Record]:
        """Return the results for ``records``; the functions are open. May be called several times.

        With ``number``, only the first ``number`` operators process records.
        """
        steps = [*zip(self._functions.operators[:number], self._links[:number], strict=True)]
        if len(steps) <= MAX_NESTED:
            return _nested(steps, records)
        return _in_blocks([steps[n : n + MAX_NESTED] for n in range(0, len(steps), MAX_NESTED)], records)

    def close(self) -> None:
        """Close the functions, unless they are kept. An error that it raises is ready to be reported."""
        if not self._are_kept:
            self._functions.close()

    def loop_thread(self) -> async_operator.LoopThread:
        """Return the thread that runs the chain's async functions."""
        return self._functions.loop_thread()


def _nested(steps: Iterable[_Step], records: Records) -> Iterator[Record]:
    """Return the results of operators, each of which is a generator over those of the one before."""
    for operator, link in steps:
        records = _RUNNERS[operator.kind](operator, records, link)
    return iter(records)


def _in_blocks(blocks: Sequence[Iterable[_Step]], records: Records) -> Iterator[Record]:
    """Yield the results of blocks of operators. Each result goes through all blocks before the next one.

    So the time of the chain is that of the record, as with nested generators.
    """
    running = [_nested(blocks[0], records)]
    while running:
        for record in running[-1]:
            if len(running) < len(blocks):
                running.append(_nested(blocks[len(running)], (record,)))
                break
            yield record
        else:
            running.pop()


@attrs.define
class _Link:
    """An operator's view of its chain: the time before it, and behind it if that is another one."""

    time: TaskTime
    chain: Chain
    time_after: TaskTime = attrs.Factory(TaskTime)


_Step = tuple[ChainedOperator, _Link]


def _open(operator: ChainedOperator, info: TaskInfo) -> None:
    own = OperatorMetrics(info.metrics.now_ms, f"{operator.name}.", info.metrics.metrics)
    context = OperatorContext(
        operator.name,
        info.subtask,
        info.parallelism,
        info.parallelism,
        info.attempt,
        metrics=own,
        job_parameters=info.job_parameters,
    )
    with failures_of(operator.name, "in open()", TASK_ENDS):
        open_function(operator.function, context)


def _close(operator: ChainedOperator) -> None:
    with failures_of(operator.name, "in close()"):
        close_functions(operator.function)


def _run_map(operator: ChainedOperator, records: Records, link: _Link) -> Iterator[Record]:
    results = _run_function(operator, called("map", operator.function), records)
    return map(isolated, results) if operator.isolates else results


def _run_check(operator: ChainedOperator, records: Records, link: _Link) -> Iterator[Record]:
    check = operator.function
    if link.chain.marks_side_results:
        return _run_function(
            operator, lambda value: value if type(value) is SideResult else check(value), records
        )
    return _run_function(operator, check, records)


def _run_function(
    operator: ChainedOperator, func: Callable[[Record], Record], records: Records
) -> Iterator[Record]:
    for record in records:
        try:
            result = func(record)
        except TASK_ENDS:
            raise
        except BaseException as error:
            raise user_failure(error, operator.name, record) from error
        yield result


def _run_filter(operator: ChainedOperator, records: Records, link: _Link) -> Iterator[Record]:
    func = called("filter", operator.function)
    dropped = 0
    for record in records:
        try:
            keep = func(record)
        except TASK_ENDS:
            raise
        except BaseException as error:
            raise user_failure(error, operator.name, record) from error
        if keep:
            yield record
        else:
            dropped += 1
    link.chain.counts[f"{operator.name}.records_dropped"] += dropped


def _run_flat_map(operator: ChainedOperator, records: Records, link: _Link) -> Iterator[Record]:
    return _expand(operator, called("flat_map", operator.function), records, link)


class _ProcessContext(ProcessFunction.Context):
    def __init__(self, time: TaskTime, now_ms: Callable[[], int]) -> None:
        self._time = time
        self._timers = KeylessTimerService(time, now_ms)

    def timestamp(self) -> int | None:
        return self._time.timestamp

    def timer_service(self) -> TimerService:
        return self._timers


def _run_process(operator: ChainedOperator, records: Records, link: _Link) -> Iterator[Record]:
    context = _ProcessContext(link.time, link.chain.now_ms)
    process_element = called("process", operator.function)
    process = wraps(process_element)(lambda record: process_element(record, context))
    return _expand(operator, process, records, link)


def _expand(
    operator: ChainedOperator,
    func: Callable[[Record], Iterable[Record] | None],
    records: Records,
    link: _Link,
) -> Iterator[Record]:
    checked: type | None = None
    for record in records:
        try:
            results = func(record)
            if results is not None:
                if type(results) is not checked:
                    check_results(results, func)
                    checked = type(results)
                yield from _emitted(operator, func, results, link)
        except TASK_ENDS:
            raise
        except BaseException as error:
            raise user_failure(error, operator.name, record) from error


def _emitted(
    operator: ChainedOperator, func: UserFunction, results: Iterable[Record], link: _Link
) -> Iterable[Record]:
    """Return the main output of one call, one by one: the function goes on when the next one is wanted."""
    if OutputTag.exists:
        check_results(results, func)
        return _without_side_outputs(operator, map(isolated, results), link)
    return map(isolated, results) if operator.isolates else results


def _without_side_outputs(
    operator: ChainedOperator, results: Iterable[Record], link: _Link
) -> Iterator[Record]:
    for result in results:
        if not is_side_output(result):
            yield result
        elif operator.has_side_outputs:
            values, timestamps = link.chain.side.setdefault(result[0].tag_id, ([], []))
            values.append(result[1])
            timestamps.append(link.time.timestamp)
            if link.chain.marks_side_results:
                yield SideResult(result[1])


def _run_watermarks(operator: ChainedOperator, records: Records, link: _Link) -> Iterator[Record]:
    strategy: WatermarkStrategy = operator.function
    delay = strategy.max_out_of_orderness_ms
    assigner = strategy.timestamp_assigner
    extract = None if assigner is None else assigner.extract_timestamp
    extracted = _kept if isinstance(assigner, KeptTimestamp) else _extracted
    before, after = link.time, link.time_after
    started_at = greatest = after.watermark
    has_records = False
    for record in records:
        timestamp = before.timestamp
        if extract is not None:
            timestamp = extracted(operator.name, extract, record, timestamp)
        after.timestamp = timestamp
        has_records = True
        if timestamp is not None and delay is not None and timestamp - delay - 1 > greatest:
            greatest = timestamp - delay - 1
        yield record
        after.watermark = greatest
    if before.watermark == MAX_WATERMARK:
        after.watermark = MAX_WATERMARK
    if has_records:
        link.chain.watermarks[operator.assigner_id] = max(greatest, started_at)


def _run_async(operator: ChainedOperator, records: Records, link: _Link) -> Iterator[Record]:
    # See loop_thread().
    from pyflinkstate.runtime.tasks.async_wait import AsyncWait

    return AsyncWait(operator, link.time, link.time_after, link.chain.loop_thread).run(records)


def _extracted(
    name: str, extract: Callable[[Record, int], int], record: Record, timestamp: int | None
) -> int:
    try:
        extracted = extract(record, NO_TIMESTAMP if timestamp is None else timestamp)
    except TASK_ENDS:
        raise
    except BaseException as error:
        raise user_failure(error, name, record) from error
    check_timestamp(name, record, extracted)
    return extracted


def _kept(
    name: str, extract: Callable[[Record, int], int], record: Record, timestamp: int | None
) -> int | None:
    """Return the timestamp that a record had before; None if it had none, which no other assigner may say."""
    return extract(record, NO_TIMESTAMP)


_RUNNERS: dict[str, Callable[[ChainedOperator, Records, _Link], Iterator[Record]]] = {
    "map": _run_map,
    "filter": _run_filter,
    "flat_map": _run_flat_map,
    "process": _run_process,
    WATERMARKS: _run_watermarks,
    ASYNC: _run_async,
    CHECK: _run_check,
}
