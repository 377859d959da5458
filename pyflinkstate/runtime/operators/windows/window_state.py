"""The state of windows, and the contexts that the window operator passes to its functions.

State is the contents of windows, which windows are in flight if windows merge, and what triggers and window
functions keep for a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import attrs

from pyflinkstate.api import (
    AggregateFunction,
    AggregatingStateDescriptor,
    AnyState,
    Function,
    KeyedStateStore,
    ListState,
    ListStateDescriptor,
    MergeCallback,
    MergingWindowAssigner,
    MetricGroup,
    ProcessAllWindowFunction,
    ProcessWindowFunction,
    Record,
    ReduceFunction,
    ReducingStateDescriptor,
    RuntimeContext,
    StateDescriptor,
    StateKind,
    TimeWindow,
    Trigger,
    TriggerResult,
    TypeInformation,
    Types,
    UserFunction,
    Window,
    WindowAssigner,
)
from pyflinkstate.backends.heap import HeapKeyedStateBackend, InternalTimerService
from pyflinkstate.backends.values import isolated
from pyflinkstate.errors import ConfigurationError, StateValueError
from pyflinkstate.runtime.operators.operators import CheckedStateStore

#: The kinds of state that can be merged.
_MERGEABLE = frozenset({StateKind.LIST, StateKind.REDUCING, StateKind.AGGREGATING})
#: Flink's name of the state.
WINDOW_CONTENTS = "window-contents"
#: A function that is called with the merged window, the windows that were merged into it, its state window,
#: and the other state windows.
MergeFunction = Callable[[Window, list[Window], Window, list[Window]], None]


class WindowContents:
    """Keeps the contents of windows in state.

    Args:
        contents: ``list`` for all elements, a reduce function (a :class:`ReduceFunction` or a callable of
            two values) or an :class:`AggregateFunction`.
        contents_type: the type of elements, or of the accumulator of an aggregate function. Default: anything
            that can be pickled.

    Raises:
        ConfigurationError: ``contents`` is none of these.
    """

    def __init__(self, contents: UserFunction, contents_type: TypeInformation | None = None) -> None:
        self.is_list = contents is list
        contents_type = contents_type or Types.PICKLED_BYTE_ARRAY()
        #: The reduce or aggregate function.
        self.function: Function | None = None
        self.descriptor: StateDescriptor
        if self.is_list:
            self.descriptor = ListStateDescriptor(WINDOW_CONTENTS, contents_type)
        elif isinstance(contents, AggregateFunction):
            self.descriptor = AggregatingStateDescriptor(WINDOW_CONTENTS, contents, contents_type)
            self.function = contents
        elif (callable(contents) and not isinstance(contents, type)) or isinstance(contents, ReduceFunction):
            self.descriptor = reducing = ReducingStateDescriptor(WINDOW_CONTENTS, contents, contents_type)
            self.function = reducing.reduce_function
        else:
            raise ConfigurationError(
                f"the contents of a window must be a list, a ReduceFunction or an AggregateFunction, "
                f"not {contents!r}"
            )

    def elements(self, stored: Any, may_change: bool) -> list[Record]:
        """Return the elements for the window function, or an empty list if there are no contents.

        The list is a new one, so that a function that changes or keeps it does not change state.

        Args:
            stored: the contents in state.
            may_change: whether the contents stay in state while a function may change its argument; if so, a
                reduced or aggregated value is copied.
        """
        if self.is_list:
            return list(stored)
        if stored is None:
            return []
        return [isolated(stored) if may_change else stored]

    def merge(self, state: AnyState, target: Window, sources: list[Window]) -> None:
        """Merge the contents under ``sources`` into those under ``target``.

        Raises:
            ConfigurationError: the aggregate function cannot merge.
        """
        try:
            state.merge_namespaces(target, sources)
        except (NotImplementedError, StateValueError) as error:
            if not isinstance(self.function, AggregateFunction):
                raise
            raise ConfigurationError(
                f"{type(self.function).__name__}.merge() failed ({type(error).__name__}: {error}): windows "
                f"that merge, such as sessions, need an AggregateFunction whose merge() merges two "
                f"accumulators into one"
            ) from error


@attrs.frozen
class _Merges(MergeCallback[Window]):
    """Records which windows an assigner wants to merge."""

    results: list[tuple[Window, list[Window]]] = attrs.Factory(list)

    def merge(self, to_be_merged: Iterable[Window], merge_result: Window) -> None:
        self.results.append((merge_result, list(dict.fromkeys(to_be_merged))))


def _start_of(pair: tuple[Window, Window]) -> int:
    return pair[0].start if isinstance(pair[0], TimeWindow) else 0


class MergingWindowSet:
    """The windows in flight of the current key, and where their contents are (Flink: ``MergingWindowSet``).

    Windows merge again and again while a session grows, and moving the contents each time would cost time in
    proportion to the length of the session. So the contents stay where they are: under the *state window*,
    the first of the windows that were merged. A mapping from each window in flight to its state window is
    state of the key. This object is created again for each record.

    Flink picks any of the merged windows; here it is the first in the order of the assigner's merge, which
    for sessions is that of time. Merged contents therefore have the same order in each run.

    Args:
        assigner: decides which windows to merge.
        state: pairs of window and state window for the current key.
    """

    def __init__(self, assigner: MergingWindowAssigner, state: ListState) -> None:
        self._assigner = assigner
        self._state = state
        self._mapping: dict[Window, Window] = dict(state.get())
        self._stored = dict(self._mapping)

    def persist(self) -> None:
        """Write the windows to state if they have changed, those of time in its order."""
        if self._mapping != self._stored:
            self._state.update(sorted(self._mapping.items(), key=_start_of))
            self._stored = dict(self._mapping)

    def get_state_window(self, window: Window) -> Window | None:
        """Return the state window of ``window``, or None if it is not in flight."""
        return self._mapping.get(window)

    def retire_window(self, window: Window) -> None:
        """Forget ``window``, which must be in flight."""
        del self._mapping[window]

    def add_window(self, new_window: Window, merge_function: MergeFunction) -> Window:
        """Add ``new_window`` and return the window that it is now a part of.

        ``merge_function`` is called for each group of windows in flight that has become another window.

        Raises:
            ConfigurationError: the assigner merges windows that do not exist.
        """
        merges = _Merges()
        others = [window for window in self._mapping if window != new_window]
        self._assigner.merge_windows([*others, new_window], merges)
        result = new_window
        for merged, windows in merges.results:
            if new_window in windows:
                result = merged
            self._merge(merged, windows, new_window, merge_function)
        # An existing window keeps its state window; Flink would lose the contents under it.
        self._mapping.setdefault(result, result)
        return result

    def _merge(
        self, merged: Window, windows: list[Window], new_window: Window, merge_function: MergeFunction
    ) -> None:
        in_flight = [window for window in windows if window in self._mapping]
        known = all(window == new_window or window in self._mapping for window in windows)
        if not in_flight or not known or (merged in self._mapping and merged not in windows):
            raise ConfigurationError(
                f"{self._assigner!r} merges {windows!r} into {merged!r}, but in flight are "
                f"{list(self._mapping)!r} and {new_window!r}: merge_windows() may merge only those"
            )
        state_windows = [self._mapping.pop(window) for window in in_flight]
        self._mapping[merged] = state_windows[0]
        # The new window has no state yet, so a window that it does not extend stays as it is.
        if in_flight != [merged]:
            merge_function(merged, in_flight, state_windows[0], state_windows[1:])


@attrs.define(eq=False)
class NamespacedStates:
    """Provides state by window; a descriptor that was seen before costs one lookup."""

    _backend: HeapKeyedStateBackend
    _window_type: TypeInformation
    _known: dict[str, tuple[StateDescriptor, AnyState]] = attrs.field(init=False, factory=dict)

    def get(self, descriptor: StateDescriptor) -> AnyState:
        """Return the state of ``descriptor``; its window stays as it was."""
        known = self._known.get(getattr(descriptor, "name", ""))
        if known is not None and known[0] is descriptor:
            return known[1]
        state = self._backend.get_or_create_keyed_state(descriptor, self._window_type)
        self._known[descriptor.name] = (descriptor, state)
        return state

    def get_in(self, descriptor: StateDescriptor, window: Window) -> AnyState:
        """Return the state of ``descriptor``, bound to ``window``."""
        state = self.get(descriptor)
        state.set_current_namespace(window)
        return state


@attrs.define(eq=False)
class AssignerContext(WindowAssigner.WindowAssignerContext):
    """See :class:`~pyflinkstate.api.window_assigners.WindowAssigner.WindowAssignerContext`."""

    _timers: InternalTimerService
    _runtime_context: RuntimeContext
    _now_ms: int | None = attrs.field(init=False, default=None)

    def next_element(self) -> None:
        """Read the clock again when the time is next asked for."""
        self._now_ms = None

    def get_current_processing_time(self) -> int:
        if self._now_ms is None:
            self._now_ms = self._timers.current_processing_time()
        return self._now_ms

    def get_runtime_context(self) -> RuntimeContext:
        return self._runtime_context


@attrs.define(eq=False)
class OperatorTriggerContext(Trigger.OnMergeContext):
    """The context of a trigger; one object, whose ``window`` is set before each call."""

    _trigger: Trigger
    _timers: InternalTimerService
    _states: NamespacedStates
    _metrics: MetricGroup
    _merged_windows: list[Window] = attrs.field(init=False, factory=list)
    window: Window = attrs.field(init=False, default=None)

    def get_current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    def get_metric_group(self) -> MetricGroup:
        return self._metrics

    def get_current_watermark(self) -> int:
        return self._timers.current_watermark()

    def register_processing_time_timer(self, time: int) -> None:
        self._timers.processing.register(self.window, time)

    def register_event_time_timer(self, time: int) -> None:
        self._timers.event.register(self.window, time)

    def delete_processing_time_timer(self, time: int) -> None:
        self._timers.processing.delete(self.window, time)

    def delete_event_time_timer(self, time: int) -> None:
        self._timers.event.delete(self.window, time)

    def get_partitioned_state(self, state_descriptor: StateDescriptor) -> AnyState:
        return self._states.get_in(state_descriptor, self.window)

    def merge_partitioned_state(self, state_descriptor: StateDescriptor) -> None:
        if not isinstance(state_descriptor, StateDescriptor) or state_descriptor.kind not in _MERGEABLE:
            raise ConfigurationError(
                f"{type(self._trigger).__name__}: {state_descriptor!r} describes state that cannot be "
                f"merged; keep what must be merged in list, reducing or aggregating state"
            )
        if self._merged_windows:
            self._states.get(state_descriptor).merge_namespaces(self.window, self._merged_windows)

    def on_element(self, value: Record, timestamp: int | None) -> TriggerResult:
        """Call the trigger for an element of the window."""
        return self._checked(self._trigger.on_element(value, timestamp, self.window, self))  # type: ignore[arg-type]

    def on_processing_time(self, time: int) -> TriggerResult:
        """Call the trigger for a processing-time timer."""
        return self._checked(self._trigger.on_processing_time(time, self.window, self))

    def on_event_time(self, time: int) -> TriggerResult:
        """Call the trigger for an event-time timer."""
        return self._checked(self._trigger.on_event_time(time, self.window, self))

    def on_merge(self, merged_windows: list[Window]) -> None:
        """Tell the trigger that ``merged_windows`` have become the window."""
        self._merged_windows = merged_windows
        self._trigger.on_merge(self.window, self)
        self._merged_windows = []

    def clear(self) -> None:
        """Tell the trigger that the window is gone."""
        self._trigger.clear(self.window, self)

    def _checked(self, result: object) -> TriggerResult:
        if not isinstance(result, TriggerResult):
            raise ConfigurationError(
                f"{type(self._trigger).__name__} returned {result!r}: a trigger must return a TriggerResult, "
                f"such as TriggerResult.CONTINUE"
            )
        return result


@attrs.define(eq=False)
class _WindowStateStore(CheckedStateStore):
    """State of one window."""

    _states: NamespacedStates
    _may_merge: bool
    window: Window = attrs.field(init=False, default=None)

    def _place(self) -> str:
        return "window_state()"

    def _state_of(self, descriptor: StateDescriptor) -> AnyState:
        if self._may_merge:
            raise ConfigurationError(
                f"state {descriptor.name!r}: windows that merge have no per-window state; use "
                f"global_state(), or windows that do not merge",
                state=descriptor.name,
            )
        return self._states.get_in(descriptor, self.window)


class WindowContext(ProcessWindowFunction.Context, ProcessAllWindowFunction.Context):
    """The context of both process functions; one object, bound to a window before each call."""

    def __init__(
        self,
        timers: InternalTimerService,
        states: NamespacedStates,
        runtime_context: RuntimeContext,
        may_merge: bool,
    ) -> None:
        self._timers = timers
        self._runtime_context = runtime_context
        self._store = _WindowStateStore(states, may_merge)

    def bind(self, window: Window) -> None:
        """Become the context of ``window``."""
        self._store.window = window

    def window(self) -> Window:
        return self._store.window

    def current_processing_time(self) -> int:
        return self._timers.current_processing_time()

    def current_watermark(self) -> int:
        return self._timers.current_watermark()

    def window_state(self) -> KeyedStateStore:
        return self._store

    def global_state(self) -> KeyedStateStore:
        return self._runtime_context
