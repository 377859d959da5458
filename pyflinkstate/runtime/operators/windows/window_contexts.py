"""The contexts that the window operator passes to assigners, triggers and window functions."""

from __future__ import annotations

import attrs

from pyflinkstate.api.context import KeyedStateStore, RuntimeContext
from pyflinkstate.api.functions import ProcessAllWindowFunction, ProcessWindowFunction
from pyflinkstate.api.metrics import MetricGroup
from pyflinkstate.api.state import StateDescriptor, StateKind
from pyflinkstate.api.triggers import Trigger, TriggerResult
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import AnyState, Record
from pyflinkstate.api.window_assigners import WindowAssigner
from pyflinkstate.api.windows import Window
from pyflinkstate.backends.heap import HeapKeyedStateBackend, InternalTimerService
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.operators.context import CheckedStateStore

_MERGEABLE = frozenset({StateKind.LIST, StateKind.REDUCING, StateKind.AGGREGATING})


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
        self._timers.register_processing_time_timer(self.window, time)

    def register_event_time_timer(self, time: int) -> None:
        self._timers.register_event_time_timer(self.window, time)

    def delete_processing_time_timer(self, time: int) -> None:
        self._timers.delete_processing_time_timer(self.window, time)

    def delete_event_time_timer(self, time: int) -> None:
        self._timers.delete_event_time_timer(self.window, time)

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

    def _state_of(self, descriptor: StateDescriptor) -> object:
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
