"""Namespaces: the one of state that has none, and how windows are written.

A window keeps its state under a namespace of its own; all other state lives in the void namespace, which
costs nothing: the key alone finds the entry.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pyarrow as pa

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import AnyWindow, Namespace
from pyflinkstate.api.windows import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
    WindowSerializer,
)


class VoidNamespace:
    """The type of :data:`VOID_NAMESPACE` (Flink: ``VoidNamespace``)."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "VOID_NAMESPACE"

    def __reduce__(self) -> str:
        return "VOID_NAMESPACE"


VOID_NAMESPACE = VoidNamespace()


@attrs.frozen
class VoidNamespaceTypeInfo(TypeInformation):
    """The type of namespaces of state that is not split by namespace (``VoidNamespaceSerializer``)."""

    def check(self, value: object) -> VoidNamespace:
        if value is not VOID_NAMESPACE:
            raise ValueError(f"{value!r} is not the void namespace")
        return VOID_NAMESPACE

    @property
    def name(self) -> str:
        return "VOID_NAMESPACE"


VOID_NAMESPACE_TYPE = VoidNamespaceTypeInfo()


@attrs.frozen
class WindowColumn:
    """How windows of one type become an Arrow column: one of integers, or of structs of integers."""

    type_info: WindowSerializer
    arrow_type: pa.DataType
    to_arrow: Callable[[AnyWindow], object]
    from_arrow: Callable[..., Namespace]

    def decode(self, array: pa.Array) -> list[Namespace]:
        """Return the windows of a column; what stands for a null is not to be looked at."""
        columns = array.flatten() if isinstance(array, pa.StructArray) else [array]
        return list(map(self.from_arrow, *(column.to_pylist() for column in columns)))


def _struct(*names: str) -> pa.DataType:
    return pa.struct([pa.field(name, pa.int64(), nullable=False) for name in names])


#: By the type's name, which is also what a checkpoint calls it.
WINDOW_COLUMNS: dict[str, WindowColumn] = {
    column.type_info.name: column
    for column in (
        WindowColumn(
            TimeWindowSerializer(),
            _struct("start", "end"),
            lambda window: (window.start, window.end),
            TimeWindow,
        ),
        WindowColumn(CountWindowSerializer(), pa.int64(), lambda window: window.id, CountWindow),
        # Flink writes a zero for it, too.
        WindowColumn(GlobalWindowSerializer(), pa.int8(), lambda _: 0, lambda _: GlobalWindow.get()),
    )
}
