"""Values without a declared type: pickles, and sealed pickles, which the program has not asked for yet.

A file says with which type a state was written. If that alone decided how values are loaded, a forged file
could make a state be unpickled for which the program declares a type. So pickled values of a file are
restored as bytes, under a type of their own, and loaded only when the program asks for the state as pickled,
or when it declares a type and the descriptor of this one state says ``allow_pickled_restore()``.
"""

from __future__ import annotations

import pickle

import attrs
import pyarrow as pa

from pyflinkstate.api.types import PickledBytesTypeInfo, TypeInformation, Types
from pyflinkstate.api.values import Reduced, TypedValue
from pyflinkstate.backends.types.codec import Codec, column_values, walk
from pyflinkstate.backends.types.hashes import java_hash
from pyflinkstate.errors import StateMigrationError, StateValueError

#: Fixed, so that a checkpoint taken by one Python version is readable by an older one.
PICKLE_PROTOCOL = 5


@attrs.frozen(repr=False)
class SealedPickles(PickledBytesTypeInfo):
    """The type of pickles that are not loaded: a value is the bytes of a pickle."""


def sealed(type_info: TypeInformation) -> TypeInformation:
    """Return the type under which values are restored that a file calls ``type_info``."""
    return walk(type_info, _sealed)


def _sealed(type_info: TypeInformation, parts: list[TypeInformation]) -> TypeInformation:
    return SealedPickles() if isinstance(type_info, PickledBytesTypeInfo) else type_info.with_parts(parts)


def unsealed(type_info: TypeInformation) -> TypeInformation:
    """Return the type of restored values once their pickles are loaded."""
    return walk(type_info, _unsealed)


def _unsealed(type_info: TypeInformation, parts: list[TypeInformation]) -> TypeInformation:
    return Types.PICKLED_BYTE_ARRAY() if isinstance(type_info, SealedPickles) else type_info.with_parts(parts)


def dump_pickle(value: TypedValue) -> bytes:
    try:
        return pickle.dumps(value, protocol=PICKLE_PROTOCOL)
    except Exception as error:
        raise StateValueError(
            f"a value of {type(value).__module__}.{type(value).__qualname__} cannot be stored: {error}; "
            f"declare a type, or define the class in a module that can be imported, so that a "
            f"restored program finds it"
        ) from error


def load_pickle(data: bytes | None) -> TypedValue:
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
