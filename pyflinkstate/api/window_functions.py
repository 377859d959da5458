"""Functions that are called with the contents of a window (``pyflink.datastream.functions``)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Generic

from pyflinkstate.api.context import KeyedStateStore
from pyflinkstate.api.functions import Function
from pyflinkstate.api.type_variables import IN, KEY, OUT, W_co, W_contra


class WindowFunction(Function, Generic[IN, OUT, KEY, W_contra]):
    """Any number of results for the contents of a window of a key."""

    @abstractmethod
    def apply(self, key: KEY, window: W_contra, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """Return or yield the results; None means no results.

        ``inputs`` is a list of all elements, or of the one value to which they were reduced or aggregated.
        """


class AllWindowFunction(Function, Generic[IN, OUT, W_contra]):
    """Any number of results for the contents of a window of a stream that is not keyed."""

    @abstractmethod
    def apply(self, window: W_contra, inputs: Iterable[IN]) -> Iterable[OUT] | None:
        """Return or yield the results; see :meth:`WindowFunction.apply`."""


class _WindowContext(ABC, Generic[W_co]):
    """The base of the contexts of both process functions."""

    @abstractmethod
    def window(self) -> W_co:
        """Return the window."""

    @abstractmethod
    def window_state(self) -> KeyedStateStore:
        """Return the store of state for this key and window.

        ``clear`` must clear that state. Merging windows have none: asking for it raises
        ``ConfigurationError``.
        """

    @abstractmethod
    def global_state(self) -> KeyedStateStore:
        """Return the store of state for this key, which all its windows share."""


class ProcessWindowFunction(Function, Generic[IN, OUT, KEY, W_contra]):
    """Like :class:`WindowFunction`, with access to time and state."""

    class Context(_WindowContext[W_co]):
        """The context of ``process``: the window, the current times, and state."""

        @abstractmethod
        def current_processing_time(self) -> int:
            """Return the processing time in ms since 1970."""

        @abstractmethod
        def current_watermark(self) -> int:
            """Return the watermark, or the least possible one before the first."""

    @abstractmethod
    def process(
        self, key: KEY, context: ProcessWindowFunction.Context[W_contra], elements: Iterable[IN]
    ) -> Iterable[OUT] | None:
        """Return or yield the results; None means no results.

        ``elements`` is a list of all elements, or of the one value to which they were reduced or aggregated.
        """

    def clear(self, context: ProcessWindowFunction.Context[W_contra]) -> None:
        """The window is gone: clear the per-window state."""


class ProcessAllWindowFunction(Function, Generic[IN, OUT, W_contra]):
    """Like :class:`AllWindowFunction`, with access to state."""

    class Context(_WindowContext[W_co]):
        """The context of ``process``: the window, the current times, and state."""

    @abstractmethod
    def process(
        self, context: ProcessAllWindowFunction.Context[W_contra], elements: Iterable[IN]
    ) -> Iterable[OUT] | None:
        """Return or yield the results; see :meth:`ProcessWindowFunction.process`."""

    def clear(self, context: ProcessAllWindowFunction.Context[W_contra]) -> None:
        """The window is gone: clear the per-window state."""
