"""The types that only a backend knows: of pickles, namespaces, and values with a timestamp.

*Pickles.* A file says with which type a state was written. If that alone decided how values are loaded, a
forged file could make a state be unpickled for which the program declares a type. So pickled values of a file
are restored as bytes, under a type of their own, and loaded only when the program asks for the state as
pickled, or when it declares a type and the descriptor of this one state says ``allow_pickled_restore()``.

*Namespaces.* Each window keeps its state under a namespace of its own. All other state is in the void
namespace, which costs nothing, as the key alone identifies the entry.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Sequence
from typing import Any

import attrs
import pyarrow as pa

from pyflinkstate.api import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    Namespace,
    PickledBytesTypeInfo,
    Reduced,
    StateValue,
    TimeWindow,
    TimeWindowSerializer,
    TypedValue,
    TypeInformation,
    Types,
    WindowSerializer,
    safe_repr,
)
from pyflinkstate.backends.types.codec import Codec, Convert, column_values, walk
from pyflinkstate.backends.types.hashes import java_hash
from pyflinkstate.errors import StateMigrationError, StateValueError

#: Fixed, so that a checkpoint taken by one Python version is readable by an older one.
PICKLE_PROTOCOL = 5


@attrs.frozen(repr=False)
class SealedPickles(PickledBytesTypeInfo):
    """The type of pickles that are not loaded: a value is the bytes of a pickle."""


def sealed(type_info: TypeInformation) -> TypeInformation:
    """Return the type under which values are restored that a file calls ``type_info``."""
    return walk(
        type_info,
        lambda of, parts: SealedPickles() if isinstance(of, PickledBytesTypeInfo) else of.with_parts(parts),
    )


def unsealed(type_info: TypeInformation) -> TypeInformation:
    """Return the type of restored values once their pickles are loaded."""
    return walk(
        type_info,
        lambda of, parts: (
            Types.PICKLED_BYTE_ARRAY() if isinstance(of, SealedPickles) else of.with_parts(parts)
        ),
    )


def has_pickles(type_info: TypeInformation) -> bool:
    """Return whether values of a type contain pickles that are not sealed."""
    return sealed(type_info) != type_info


def dump_pickle(value: TypedValue) -> bytes:
    try:
        return pickle.dumps(value, protocol=PICKLE_PROTOCOL)
    except Exception as error:
        raise StateValueError(
            f"a value of {type(value).__module__}.{type(value).__qualname__} cannot be stored: {error}; "
            f"declare a type, or define the class in a module that can be imported, so that a "
            f"restored program finds it"
        ) from error


def load_pickle(data: bytes | None) -> Any:
    """Load a pickle of state without a declared type, from the user's own checkpoint.

    Raises:
        StateMigrationError: the program no longer has the class, or the class refuses what was written.
    """
    try:
        return None if data is None else pickle.loads(data)  # noqa: S301
    except Exception as error:
        raise StateMigrationError(
            f"a pickled value cannot be loaded: {type(error).__name__}: {error}; keep its class in the "
            f"module that it had when the checkpoint was written, and able to load what was written then"
        ) from error


@attrs.frozen
class Enclosed:
    """Stands for the content of a pickle inside a larger pickle, which is made without loading the first."""

    data: bytes

    def __reduce__(self) -> Reduced:
        return pickle.loads, (self.data,)


PICKLED = Codec(
    name="PICKLED",
    arrow=lambda _, parts: pa.large_binary(),
    to_arrow=lambda _, parts: dump_pickle,
    from_arrow=lambda _, parts: lambda array: [load_pickle(value) for value in column_values(array)],
    makes_new=False,
    java_hash=lambda _, parts: java_hash,
    make=Types.PICKLED_BYTE_ARRAY,
    may_be_nan=True,
)

#: The bytes are written as they are, and loaded only when they become what the program asks for.
SEALED = Codec(name="PICKLED", arrow=lambda _, parts: pa.large_binary(), copier=lambda parts: None)


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


WINDOWS: dict[type[TypeInformation], Codec] = {
    TimeWindowSerializer: _window(
        TimeWindowSerializer,
        pa.struct([pa.field(name, pa.int64(), nullable=False) for name in ("start", "end")]),
        lambda window: (window.start, window.end),
        TimeWindow,
    ),
    CountWindowSerializer: _window(CountWindowSerializer, pa.int64(), lambda window: window.id, CountWindow),
    # Flink also writes a zero for it.
    GlobalWindowSerializer: _window(
        GlobalWindowSerializer, pa.int8(), lambda _: 0, lambda _: GlobalWindow.get()
    ),
}


#: ``(timestamp in ms, user value)``, a plain tuple because it costs little.
TtlValue = tuple[int, StateValue]


@attrs.frozen
class TtlTypeInfo(TypeInformation):
    """A :data:`TtlValue` of user values of ``value_type``; None is a legal user value."""

    value_type: TypeInformation

    def check(self, value: Any) -> StateValue:
        timestamp_ms, user_value = value
        return timestamp_ms, None if user_value is None else self.value_type.check(user_value)

    def parts(self) -> tuple[TypeInformation, ...]:
        return (self.value_type,)

    def with_parts(self, parts: Sequence[TypeInformation]) -> TypeInformation:
        return TtlTypeInfo(*parts)

    @property
    def name(self) -> str:
        return f"TTL({self.value_type})"
