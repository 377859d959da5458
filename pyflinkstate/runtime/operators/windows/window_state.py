"""The state of windows: their contents, and which windows are in flight if windows merge."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from pyflinkstate.api.functions import AggregateFunction, Function, ReduceFunction
from pyflinkstate.api.state import (
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from pyflinkstate.api.types import TypeInformation, Types
from pyflinkstate.api.values import AnyState, Record, UserFunction
from pyflinkstate.api.window_assigners import MergingWindowAssigner
from pyflinkstate.api.windows import MergeCallback, Window
from pyflinkstate.backends.values import isolated
from pyflinkstate.errors import ConfigurationError, StateValueError

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


class _Merges(MergeCallback[Window]):
    """Records which windows an assigner wants to merge."""

    def __init__(self) -> None:
        self.results: list[tuple[Window, list[Window]]] = []

    def merge(self, to_be_merged: Iterable[Window], merge_result: Window) -> None:
        self.results.append((merge_result, list(dict.fromkeys(to_be_merged))))


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
        """Write the windows to state if they have changed."""
        if self._mapping != self._stored:
            self._state.update(list(self._mapping.items()))
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
