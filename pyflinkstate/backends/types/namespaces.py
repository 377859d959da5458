"""Namespaces: the void namespace, and how windows are written.

Each window keeps its state under a namespace of its own. All other state is in the void namespace, which
costs nothing, as the key alone identifies the entry.
"""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pyarrow as pa

from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import Namespace
from pyflinkstate.api.windows import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
    WindowSerializer,
)
from pyflinkstate.backends.types.codec import Codec, Convert


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
            raise ValueError(f"{safe_repr(value)} is not the void namespace")
        return VOID_NAMESPACE

    @property
    def name(self) -> str:
        return "VOID_NAMESPACE"


VOID_NAMESPACE_TYPE = VoidNamespaceTypeInfo()


def _window(
    make: type[WindowSerializer],
    arrow: pa.DataType,
    to_arrow: Convert,
    window: Callable[..., Namespace],
) -> Codec:
    """Return the codec of windows that become a column of integers, or of structs of integers."""

    def windows(array: pa.Array) -> list[Namespace]:
        columns = array.flatten() if isinstance(array, pa.StructArray) else [array]
        return list(map(window, *(column.to_pylist() for column in columns)))

    return Codec(
        name=make().name,
        arrow=lambda _, parts: arrow,
        to_arrow=lambda _, parts: to_arrow,
        from_arrow=lambda _, parts: windows,
        copier=lambda parts: None,
        make=make,
    )


def _struct(*names: str) -> pa.DataType:
    return pa.struct([pa.field(name, pa.int64(), nullable=False) for name in names])


WINDOWS: dict[type[TypeInformation], Codec] = {
    TimeWindowSerializer: _window(
        TimeWindowSerializer,
        _struct("start", "end"),
        lambda window: (window.start, window.end),
        TimeWindow,
    ),
    CountWindowSerializer: _window(CountWindowSerializer, pa.int64(), lambda window: window.id, CountWindow),
    # Flink also writes a zero for it.
    GlobalWindowSerializer: _window(
        GlobalWindowSerializer, pa.int8(), lambda _: 0, lambda _: GlobalWindow.get()
    ),
}
