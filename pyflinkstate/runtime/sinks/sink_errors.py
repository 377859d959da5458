"""What goes wrong in a file sink: its own error, or that of the record that cannot be written."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pyarrow as pa

from pyflinkstate.api.values import Record
from pyflinkstate.errors import BadRecordError, PyFlinkStateError, SinkError, SinkStorageError
from pyflinkstate.runtime.wire import shorten

#: What encoding a record may raise.
ENCODING_ERRORS = (pa.ArrowException, TypeError, ValueError, OverflowError)


@contextmanager
def sink_errors(what: str, culprit: Callable[[], Record] | None = None) -> Iterator[None]:
    """Turn what goes wrong into the sink's error, or, where records are encoded, into the record's."""
    try:
        yield
    except PyFlinkStateError:
        raise
    except OSError as error:
        raise SinkStorageError(f"file sink: cannot {what}: {error}", what=what) from error
    except ENCODING_ERRORS as error:
        if culprit is None:
            raise SinkError(f"file sink: cannot {what}: {error}", what=what) from error
        record = shorten(culprit())
        raise BadRecordError(f"file sink: cannot {what}: {error}; record {record}", record=record) from error
