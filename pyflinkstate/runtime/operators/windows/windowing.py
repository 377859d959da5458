"""The window operator puts elements into windows and calls a function for each (Flink: ``WindowOperator``).

An element is added to each of its windows that is not late; the contents are state with the window as
namespace. Then the trigger decides what to do. A clean-up timer drops everything that belongs to the window:
contents, the trigger's state, the user's per-window state (by ``clear``), its place among merging windows.
The timer is set to the window's end, plus the allowed lateness in event time. Until then the contents are
kept, and each late element may make the window fire again. A window that lasts until the end of time has no
clean-up timer.

If windows merge, contents are kept under the state window; see ``MergingWindowSet``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any

from pyflinkstate.api import (
    MAX_LONG_VALUE,
    AllWindowFunction,
    AnyState,
    Counter,
    Function,
    Key,
    ListState,
    ListStateDescriptor,
    MergingWindowAssigner,
    OutputTag,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    Record,
    TimeWindow,
    Trigger,
    TriggerResult,
    TypeInformation,
    Types,
    UserFunction,
    Window,
    WindowAssigner,
    WindowFunction,
    alignment_of,
    at_least,
    check_kind,
    purges_at_end,
    session_gap_of,
)
from pyflinkstate.backends.heap import InternalTimerService, Timer
from pyflinkstate.backends.values import isolated
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.operators.operators import (
    OperatorSetup,
    Output,
    StatefulOperator,
    close_functions,
    open_function,
)
from pyflinkstate.runtime.operators.windows.fast_windows import (
    LATEST_MS,
    AlignedWindows,
    FastWindows,
    SessionWindows,
)
from pyflinkstate.runtime.operators.windows.window_state import (
    AssignerContext,
    MergingWindowSet,
    NamespacedStates,
    OperatorTriggerContext,
    WindowContents,
    WindowContext,
)

#: Flink's names.
WINDOW_TIMERS = "window-timers"
MERGING_WINDOW_SET = "merging-window-set"
LATE_RECORDS_DROPPED = "numLateRecordsDropped"

#: A function that is called with key, context and elements.
_Evaluate = Callable[[Key, WindowContext, list[Record]], Iterable[Record] | None]


def _evaluation(function: Function) -> _Evaluate:
    """Return the callable that calls ``function``, a window function of any kind."""
    if isinstance(function, WindowFunction):
        return lambda key, context, elements: function.apply(key, context.window(), elements)
    if isinstance(function, AllWindowFunction):
        return lambda key, context, elements: function.apply(context.window(), elements)
    if isinstance(function, ProcessAllWindowFunction):
        return lambda key, context, elements: function.process(context, elements)
    assert isinstance(function, ProcessWindowFunction)
    return function.process


class _Running:
    """The parts of an operator while it is open."""

    def __init__(self, operator: WindowOperator, setup: OperatorSetup) -> None:
        assigner = operator.assigner
        self.merging = assigner if isinstance(assigner, MergingWindowAssigner) else None
        self.backend = setup.backend
        self.key_context = setup.backend.key_context
        window_type = assigner.get_window_serializer()
        states = NamespacedStates(self.backend, window_type)
        self.timers = InternalTimerService(WINDOW_TIMERS, self.backend, setup.time, window_type)
        self.cleanup_timers = self.timers.event if assigner.is_event_time() else self.timers.processing
        metrics = setup.context.get_metrics_group()
        self.late_records_dropped: Counter = metrics.counter(LATE_RECORDS_DROPPED)
        self.assigner_context = AssignerContext(self.timers, setup.context)
        self.trigger = OperatorTriggerContext(operator.trigger, self.timers, states, metrics)
        self.context = WindowContext(self.timers, states, setup.context, self.merging is not None)
        self.contents: AnyState = states.get(operator.contents.descriptor)
        self.merging_state: ListState | None = None
        if self.merging is not None:
            self.merging_state = self.backend.get_partitioned_state(
                ListStateDescriptor(MERGING_WINDOW_SET, Types.TUPLE([window_type, window_type]))
            )
        name = operator.contents.descriptor.name if self.merging is None else MERGING_WINDOW_SET
        #: The table whose entries tell which windows there are.
        self.table = self.backend.registered_kv_states[name]

    def merging_windows(self) -> MergingWindowSet | None:
        """Return the windows in flight of the current key, or None if windows do not merge."""
        if self.merging is None or self.merging_state is None:
            return None
        return MergingWindowSet(self.merging, self.merging_state)


class WindowOperator(StatefulOperator):
    """Runs windows; see the module. :func:`window_operator` makes one.

    It holds no state until it is opened, so that it can be pickled by value.
    """

    running: _Running

    def __init__(
        self,
        assigner: WindowAssigner,
        trigger: Trigger,
        allowed_lateness_ms: int,
        late_tag: OutputTag | None,
        contents: WindowContents,
        function: Function | None,
    ) -> None:
        self.assigner = assigner
        self.trigger = trigger
        self.allowed_lateness_ms = allowed_lateness_ms
        self.late_tag = late_tag
        self.contents = contents
        self.function = function
        self._is_event_time = assigner.is_event_time()

    def open(self, setup: OperatorSetup) -> None:
        self.running = _Running(self, setup)
        self.timers = self.running.timers
        self.evaluate = None if self.function is None else _evaluation(self.function)
        self.given_by = getattr(self.function, "apply", None) or getattr(self.function, "process", None)
        open_function(self.contents.function, setup.context)
        open_function(self.function, setup.context)
        self.fast_way = self._find_fast_way()

    def _find_fast_way(self) -> FastWindows | None:
        """Return the fast way, or None if there is only the general one.

        There is one if assigner and trigger are built-in ones about which it is known what they do. All
        others, and subclasses of these, take the general way, and so does whatever takes no frames with
        timestamps.
        """
        purges, table = purges_at_end(self.trigger), self.running.table
        if purges is None or self.allowed_lateness_ms > LATEST_MS:
            return None
        alignment, gap = alignment_of(self.assigner), session_gap_of(self.assigner)
        if alignment is not None and alignment[0] <= LATEST_MS:
            restored = {namespace for _, namespace in table.keys_and_namespaces()}
            return AlignedWindows(self, TimeWindow, purges, alignment, restored)
        in_flight: AnyState = self.running.merging_state
        if gap is not None and in_flight is not None and (callable(gap) or gap <= LATEST_MS):
            return SessionWindows(self, TimeWindow, purges, gap, in_flight, len(table) > 0)
        return None

    def close(self) -> None:
        close_functions(self.function, self.contents.function)

    # --- elements ----------------------------------------------------------------------------------

    def process_element(self, value: Record, timestamp: int | None, output: Output) -> None:
        running = self.running
        running.assigner_context.next_element()
        windows = self.assigner.assign_windows(
            value,
            timestamp,  # type: ignore[arg-type]
            running.assigner_context,
        )
        self.process_assigned(windows, value, timestamp, output)

    def process_assigned(
        self, windows: Collection[Any], value: Record, timestamp: int | None, output: Output
    ) -> None:
        """Process an element whose windows are known."""
        merging_windows = self.running.merging_windows()
        is_skipped = True
        for assigned in windows:
            window = state_window = assigned
            if merging_windows is not None:
                window = merging_windows.add_window(assigned, self._merge)
                state_window = merging_windows.get_state_window(window)
            if not self._is_window_late(window):
                is_skipped = False
                self._add(window, state_window, value, timestamp, output)
            elif merging_windows is not None:
                merging_windows.retire_window(window)
        if merging_windows is not None:
            merging_windows.persist()
        if is_skipped and self._is_element_late(timestamp):
            self.refuse_late(value, timestamp, output)

    def refuse_late(self, value: Record, timestamp: int | None, output: Output) -> None:
        """Send an element that is late to its side output, or count it."""
        if self.late_tag is None:
            self.running.late_records_dropped.inc()
        else:
            output.collect_side(self.late_tag, isolated(value), timestamp)

    def _add(
        self, window: Window, state_window: Window, value: Record, timestamp: int | None, output: Output
    ) -> None:
        running = self.running
        running.contents.set_current_namespace(state_window)
        running.contents.add(value)
        running.trigger.window = window
        self._act(running.trigger.on_element(value, timestamp), window, output)
        self._register_cleanup_timer(window)

    def _act(self, result: TriggerResult, window: Window, output: Output, is_last: bool = False) -> None:
        """Carry out the trigger's result for the contents that the state is bound to."""
        if result.is_fire():
            self._emit(window, output, stays=not (is_last or result.is_purge()))
        if result.is_purge():
            self.running.contents.clear()

    def _emit(self, window: Window, output: Output, stays: bool) -> None:
        running = self.running
        elements = self.contents.elements(running.contents.get(), stays and self.evaluate is not None)
        if not elements:
            return
        if self.evaluate is None:
            output.collect(elements, window.max_timestamp())
            return
        running.context.bind(window)
        output.collect(
            self.evaluate(running.key_context.key, running.context, elements),
            window.max_timestamp(),
            self.given_by,
        )

    # --- merging -----------------------------------------------------------------------------------

    def _merge(
        self,
        merged: Window,
        windows: list[Window],
        state_window: Window,
        other_state_windows: list[Window],
    ) -> None:
        """Merge the state of several windows in flight, or of one that has grown, into ``merged``."""
        running = self.running
        self._check_merged(merged)
        running.trigger.window = merged
        running.trigger.on_merge(windows)
        for window in windows:
            if window != merged:
                running.trigger.window = window
                running.trigger.clear()
                running.cleanup_timers.delete(window, self._cleanup_time(window))
        self.contents.merge(running.contents, state_window, other_state_windows)

    def _check_merged(self, merged: Window) -> None:
        running = self.running
        if self._is_event_time:
            time, name = running.timers.current_watermark(), "watermark"
            is_over = self._cleanup_time(merged) <= time
        else:
            time, name = running.assigner_context.get_current_processing_time(), "processing time"
            is_over = merged.max_timestamp() < time
        if is_over:
            raise ConfigurationError(
                f"{self.assigner!r} merged windows into {merged!r}, which ends before the current {name}, "
                f"{time}: a merged window must not end before the windows that it replaces"
            )

    # --- timers ------------------------------------------------------------------------------------

    def on_event_time(self, timer: Timer, output: Output) -> None:
        self._on_timer(timer, self.running.trigger.on_event_time, self._is_event_time, output)

    def on_processing_time(self, timer: Timer, output: Output) -> None:
        self._on_timer(timer, self.running.trigger.on_processing_time, not self._is_event_time, output)

    def _on_timer(
        self, timer: Timer, ask: Callable[[int], TriggerResult], may_end: bool, output: Output
    ) -> None:
        running = self.running
        window: Any = timer.namespace
        state_window = window
        merging_windows = running.merging_windows()
        if merging_windows is not None:
            state_window = merging_windows.get_state_window(window)
            if state_window is None:
                return  # a trigger left the timer of a window that was merged
        running.contents.set_current_namespace(state_window)
        running.trigger.window = window
        is_last = may_end and timer.timestamp_ms == self._cleanup_time(window)
        self._act(ask(timer.timestamp_ms), window, output, is_last)
        if is_last:
            self._clear_all(window, merging_windows)

    def _clear_all(self, window: Window, merging_windows: MergingWindowSet | None) -> None:
        running = self.running
        running.contents.clear()
        running.trigger.clear()
        self.clear_function(window)
        if merging_windows is not None:
            merging_windows.retire_window(window)
            merging_windows.persist()

    def clear_function(self, window: Window) -> None:
        """Let the window function clear its state for ``window``."""
        if isinstance(self.function, (ProcessWindowFunction, ProcessAllWindowFunction)):
            self.running.context.bind(window)
            self.function.clear(self.running.context)

    # --- the end of a window -----------------------------------------------------------------------

    def _cleanup_time(self, window: Window) -> int:
        """Return when everything that belongs to ``window`` is dropped."""
        end: int = window.max_timestamp()
        return min(end + self.allowed_lateness_ms, MAX_LONG_VALUE) if self._is_event_time else end

    def _is_window_late(self, window: Window) -> bool:
        return self._is_event_time and self._cleanup_time(window) <= self.running.timers.current_watermark()

    def _is_element_late(self, timestamp: int | None) -> bool:
        if not self._is_event_time or timestamp is None:
            return False
        return timestamp + self.allowed_lateness_ms <= self.running.timers.current_watermark()

    def _register_cleanup_timer(self, window: Window) -> None:
        time = self._cleanup_time(window)
        if time != MAX_LONG_VALUE:
            self.running.cleanup_timers.register(window, time)


def window_operator(
    assigner: WindowAssigner,
    trigger: Trigger | None = None,
    allowed_lateness_ms: int = 0,
    late_tag: OutputTag | None = None,
    contents: UserFunction = list,
    function: Function | None = None,
    contents_type: TypeInformation | None = None,
) -> WindowOperator:
    """Return a window operator for a keyed stream.

    Args:
        assigner: assigns elements to windows.
        trigger: decides when windows fire. Default: the assigner's own.
        allowed_lateness_ms: how long after its end an event-time window accepts late elements.
        late_tag: the side output for elements that are too late for all their windows. Default: they are
            dropped and counted as ``numLateRecordsDropped``.
        contents: ``list`` for all elements, a reduce function or an aggregate function.
        function: a window function of any kind; with None the reduced or aggregated value is the result.
        contents_type: the type of elements, or of accumulators.

    Raises:
        ConfigurationError: an argument has the wrong kind, the lateness is negative, the windows merge and
            the trigger cannot, or there is neither a window function nor a reduce or aggregate function.
    """
    check_kind("windows: a window assigner is needed", assigner, WindowAssigner)
    check_kind(
        f"windows: a type of the windows of {assigner!r} is needed",
        assigner.get_window_serializer(),
        TypeInformation,
    )
    if trigger is None:
        trigger = assigner.get_default_trigger(None)
    check_kind("windows: a trigger is needed", trigger, Trigger)
    if isinstance(assigner, MergingWindowAssigner) and not trigger.can_merge():
        raise ConfigurationError(
            f"the windows of {assigner!r} merge, and {type(trigger).__name__} does not support that: "
            f"its can_merge() is False"
        )
    allowed_lateness_ms = at_least("the allowed lateness in milliseconds", allowed_lateness_ms, 0)
    if late_tag is not None:
        check_kind("windows: an OutputTag for late elements is needed", late_tag, OutputTag)
    if function is not None:
        check_kind(
            "windows: a WindowFunction or ProcessWindowFunction is needed", function, _WINDOW_FUNCTIONS
        )
    elif contents is list:
        raise ConfigurationError("a window needs a window function, or a reduce or aggregate function")
    return WindowOperator(
        assigner, trigger, allowed_lateness_ms, late_tag, WindowContents(contents, contents_type), function
    )


_WINDOW_FUNCTIONS = (WindowFunction, AllWindowFunction, ProcessWindowFunction, ProcessAllWindowFunction)
