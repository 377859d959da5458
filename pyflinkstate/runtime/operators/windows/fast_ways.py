"""Chooses the fast way of a window operator, once, when the operator is opened.

There is one if assigner and trigger are built-in ones about which it is known what they do. All others, and
subclasses of these, take the general way, and so does whatever takes no frames with timestamps. Both ways
keep the same state.
"""

from __future__ import annotations

from typing import Protocol

from pyflinkstate.api.triggers import Trigger, purges_at_end
from pyflinkstate.api.values import AnyState, AnyWindow
from pyflinkstate.api.window_assigners import WindowAssigner, alignment_of, session_gap_of
from pyflinkstate.api.windows import TimeWindow
from pyflinkstate.backends.bound_state import KeyContext
from pyflinkstate.backends.heap import StateTable
from pyflinkstate.runtime.operators.operators import FrameLoop, Output
from pyflinkstate.runtime.operators.timers import InternalTimerService
from pyflinkstate.runtime.operators.windows.aligned_windows import LATEST_MS, AlignedWindows
from pyflinkstate.runtime.operators.windows.session_windows import SessionWindows
from pyflinkstate.runtime.operators.windows.window_results import WindowResults


class FastWay(FrameLoop, Protocol):
    """Takes frames of elements, and event-time timers."""

    def fire(self, timestamp_ms: int, window: AnyWindow, output: Output) -> None:
        """Handle an event-time timer of the current key."""


class Windowing(Protocol):
    """The facts about a window operator. Rare cases call the operator's own methods."""

    assigner: WindowAssigner
    trigger: Trigger
    allowed_lateness_ms: int


def fast_way(
    operator: Windowing,
    results: WindowResults,
    key_context: KeyContext,
    timers: InternalTimerService,
    table: StateTable,
    in_flight: AnyState,
) -> FastWay | None:
    """Return the fast way of ``operator``, or None if there is only the general one.

    Args:
        operator: the window operator.
        results: the contents of windows, and their results.
        key_context: the current key.
        timers: the timer service.
        table: the table of the windows in flight if windows merge, else that of the contents.
        in_flight: the windows in flight, if windows merge.
    """
    purges, lateness_ms = purges_at_end(operator.trigger), operator.allowed_lateness_ms
    if purges is None or lateness_ms > LATEST_MS:
        return None
    alignment, gap = alignment_of(operator.assigner), session_gap_of(operator.assigner)
    if alignment is not None and alignment[0] <= LATEST_MS:
        restored = {namespace for _, namespace in table.keys_and_namespaces()}
        return AlignedWindows(
            results=results,
            key_context=key_context,
            operator=operator,
            timers=timers,
            make_window=TimeWindow,
            alignment=alignment,
            lateness_ms=lateness_ms,
            purges=purges,
            restored=restored,
        )
    if gap is not None and in_flight is not None and (callable(gap) or gap <= LATEST_MS):
        return SessionWindows(
            results=results,
            in_flight=in_flight,
            key_context=key_context,
            operator=operator,
            timers=timers,
            make_window=TimeWindow,
            gap_ms=gap,
            lateness_ms=lateness_ms,
            purges=purges,
            is_restored=len(table) > 0,
        )
    return None
