"""The errors of sinks: of a file sink, of a record that cannot be written, and of a user's sink."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from pyflinkstate.api.safe_repr import safe_repr
from pyflinkstate.api.values import Record
from pyflinkstate.errors import BadRecordError, PyFlinkStateError, SinkError, SinkStorageError
from pyflinkstate.runtime.storage import reason_of

#: The errors that encoding a record may raise.
ENCODING_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)


@contextmanager
def sink_errors(what: str, culprit: Callable[[], Record] | None = None) -> Iterator[None]:
    """Turn an error into the sink's error or, while records are encoded, into an error of the record."""
    try:
        yield
    except PyFlinkStateError:
        raise
    except OSError as error:
        raise SinkStorageError(f"file sink: cannot {what}: {reason_of(error)}", what=what) from error
    except ENCODING_ERRORS as error:
        if culprit is None:
            raise SinkError(f"file sink: cannot {what}: {error}", what=what) from error
        record = safe_repr(culprit())
        raise BadRecordError(f"file sink: cannot {what}: {error}; record {record}", record=record) from error


@contextmanager
def errors_of_sink(name: str, method: str) -> Iterator[None]:
    """Convert an error of a sink's method to a ``SinkStorageError``, after which a job may restart.

    Args:
        name: the name of the sink in the plan.
        method: the method that is called.
    """
    try:
        yield
    except PyFlinkStateError:
        raise
    except Exception as error:
        raise SinkStorageError(
            f"sink {name!r}: {method} raised {type(error).__name__}: {error}", sink=name
        ) from error
