"""The contents of a window: all its elements, or the value to which they are reduced or aggregated."""

from __future__ import annotations

from pyflinkstate.api.functions import AggregateFunction, Function, ReduceFunction
from pyflinkstate.api.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    ReducingStateDescriptor,
    StateDescriptor,
)
from pyflinkstate.api.types import TypeInformation, Types
from pyflinkstate.api.values import AnyState, Record, Stored, UserFunction
from pyflinkstate.api.windows import Window
from pyflinkstate.backends.values import isolated
from pyflinkstate.errors import ConfigurationError, StateValueError

#: Flink's name of the state.
WINDOW_CONTENTS = "window-contents"


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
            reducing = ReducingStateDescriptor(WINDOW_CONTENTS, contents, contents_type)
            self.descriptor = reducing
            self.function = reducing.reduce_function
        else:
            raise ConfigurationError(
                f"the contents of a window must be a list, a ReduceFunction or an AggregateFunction, "
                f"not {contents!r}"
            )

    def elements(self, stored: Stored, may_change: bool) -> list[Record]:
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
            if isinstance(self.function, AggregateFunction):
                raise self._cannot_merge(error) from error
            raise

    def _cannot_merge(self, error: Exception) -> ConfigurationError:
        name = type(self.function).__name__
        return ConfigurationError(
            f"{name}.merge() failed ({type(error).__name__}: {error}): windows that merge, "
            f"such as sessions, need an AggregateFunction whose merge() merges two accumulators into one"
        )
