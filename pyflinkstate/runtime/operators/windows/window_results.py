"""Emits the result of a window that fires: with a window function, or the reduced or aggregated value itself.

The window operator's fast ways share it, so it is compiled.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pyflinkstate.api.output_tag import OutputTag
from pyflinkstate.api.values import AnyWindow
from pyflinkstate.backends.bound_state import KeyContext
from pyflinkstate.backends.heap.heap_state import HeapState
from pyflinkstate.backends.values.isolation import isolated


class WindowResults:
    """Emits results.

    Args:
        contents: the contents of windows.
        key_context: knows the current key.
        is_list: whether the contents are all elements.
        evaluate: calls the window function with key, context and elements; None if there is no function.
        context: the context for it, which is bound to each window.
        given_by: the method of the function that gives the results, for messages.
    """

    __slots__ = ("_context", "_evaluate", "_given_by", "_is_list", "_key_context", "contents")

    def __init__(
        self,
        contents: HeapState,
        key_context: KeyContext,
        is_list: bool,
        evaluate: Callable[[Any, Any, list[Any]], Any] | None,
        context: Any,
        given_by: Any,
    ) -> None:
        self.contents = contents
        self._key_context = key_context
        self._is_list = is_list
        self._evaluate = evaluate
        self._context = context
        self._given_by = given_by

    def emit(self, window: AnyWindow, state_window: AnyWindow, end_ms: int, output: Any, stays: bool) -> None:
        """Emit the result of ``window`` for the current key, if it has contents.

        Args:
            window: the window that fires.
            state_window: the window under which its contents are.
            end_ms: the last timestamp of the window.
            output: takes the results.
            stays: whether the contents stay in state.
        """
        stored = self.contents.result_in(state_window)
        if stored is None:
            return
        evaluate = self._evaluate
        if evaluate is None:
            self._pass_on(stored, end_ms, output)
            return
        self._context.bind(window)
        results = evaluate(self._key_context.key, self._context, self._elements(stored, stays))
        output.collect(results, end_ms, self._given_by)

    def _elements(self, stored: Any, stays: bool) -> list[Any]:
        if self._is_list:
            return list(stored)
        return [isolated(stored) if stays else stored]

    def _pass_on(self, value: Any, end_ms: int, output: Any) -> None:
        if OutputTag.exists:
            output.collect([value], end_ms)
        else:
            output.values.append(isolated(value))
            output.timestamps.append(end_ms)
