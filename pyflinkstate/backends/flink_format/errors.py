"""One way to say where in a savepoint something is wrong."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

import pyarrow as pa

from pyflinkstate.backends.types import MISFITS
from pyflinkstate.errors import (
    CheckpointError,
    ConfigurationError,
    CorruptCheckpointError,
    PyFlinkStateError,
    StateValueError,
)

#: What reading raises if the bytes make no sense.
_NONSENSE = (pa.ArrowException, ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError)


@contextmanager
def located(where: str, **context: object) -> Iterator[None]:
    """Put the place before the message of an error: an operator, a state or a file.

    Raises:
        CheckpointError: the same error, or ``CorruptCheckpointError`` if the content makes no sense.
    """
    try:
        yield
    except CheckpointError as error:
        raise type(error)(f"{where}: {error.message}", **{**context, **error.context}) from error
    except _NONSENSE as error:
        if isinstance(error, PyFlinkStateError) and not isinstance(error, ConfigurationError):
            raise
        told = f"{type(error).__name__}: {str(error)[:200]}"
        raise CorruptCheckpointError(f"{where}: its content makes no sense ({told})", **context) from error


@contextmanager
def fitting(state: str, serializer: object) -> Iterator[None]:
    """Name the state and the serializer if a value cannot be written.

    Raises:
        StateValueError: a key or a value does not fit.
    """
    try:
        yield
    except (*MISFITS, struct.error) as error:
        raise StateValueError(
            f"state {state!r}: a key or value does not fit Flink's {serializer}: {error}", state=state
        ) from error
