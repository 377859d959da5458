"""Answers a question to the live state of a job, which comes as the body of a request.

The answer is JSON, with so many rows and bytes at most, or a stream in Arrow's format, which goes out as it
comes from the slots. A job that cannot answer soon is not waited for: the message says what it waits for.
"""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Hashable, Iterator

import attrs
import pyarrow as pa

from pyflinkstate.api.values import Json, JsonObject
from pyflinkstate.api.windows import TimeWindow
from pyflinkstate.errors import (
    BadRecordError,
    ConfigurationError,
    PyFlinkStateError,
    StateQueryError,
    StateQueryTimeoutError,
    UnknownOperatorError,
    UnknownStateError,
)
from pyflinkstate.monitor.web.http import BadRequestError, Response
from pyflinkstate.runtime.job import Job
from pyflinkstate.state_access.command_line.printing import readable_row
from pyflinkstate.state_access.live import LiveTable, query

ARROW_STREAM = "application/vnd.apache.arrow.stream"
#: How long a request waits for the end of an epoch.
WAIT_S = 15.0
DEFAULT_ROWS = 1_000
MOST_ROWS = 10_000
#: The rows of a JSON answer end after so many bytes.
MOST_JSON_BYTES = 4 << 20

_log = logging.getLogger("pyflinkstate.monitor")

#: The status of each error; the first that fits counts.
_STATUSES: tuple[tuple[type[PyFlinkStateError], int], ...] = (
    (UnknownOperatorError, 404),
    (UnknownStateError, 404),
    (ConfigurationError, 400),
    (BadRecordError, 400),
    (StateQueryTimeoutError, 503),
    (StateQueryError, 409),
)


@attrs.frozen
class _Asked:
    """A question as it is in a body."""

    operator: str
    state: str
    keys: tuple[Hashable, ...] | None
    namespace: Hashable | None
    limit: int
    is_arrow: bool


def answer(job: Job, body: bytes) -> tuple[int, JsonObject] | Response:
    """Return the status and JSON that answer the question in a body, or a stream of record batches.

    Raises:
        BadRequestError: the body is no question.
    """
    asked = _asked(body)
    try:
        found = query(job.queries, asked.operator, asked.state, asked.keys, asked.namespace, WAIT_S)
        if asked.is_arrow:
            return Response(200, content_type=ARROW_STREAM, parts=_stream(found))
        with found:
            return 200, _rows(found, asked.limit)
    except PyFlinkStateError as error:
        status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
        return status, {"message": error.message}


def _asked(body: bytes) -> _Asked:
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise BadRequestError(400) from None
    if not isinstance(content, dict):
        raise BadRequestError(400)
    keys, form = content.get("keys"), content.get("format", "json")
    if form not in ("json", "arrow") or not isinstance(keys, (list, type(None))):
        raise BadRequestError(400)
    return _Asked(
        _text(content.get("operator")),
        _text(content.get("state")),
        None if keys is None else tuple(map(_key, keys)),
        _namespace(content.get("namespace")),
        _limit(content.get("limit", DEFAULT_ROWS)),
        form == "arrow",
    )


def _text(value: Json) -> str:
    if not isinstance(value, str):
        raise BadRequestError(400)
    return value


def _limit(value: Json) -> int:
    if type(value) is not int or not 0 < value <= MOST_ROWS:
        raise BadRequestError(400)
    return value


def _key(value: Json) -> Hashable:
    """Return a key or namespace; lists are tuples."""
    if isinstance(value, dict):
        raise BadRequestError(400)
    return tuple(map(_key, value)) if isinstance(value, list) else value


def _namespace(value: Json) -> Hashable | None:
    """Return a namespace; a window is an object with its start and its end."""
    if not isinstance(value, dict):
        return _key(value)
    start, end = value.get("start"), value.get("end")
    if type(start) is not int or type(end) is not int or len(value) != 2:
        raise BadRequestError(400)
    return TimeWindow(start, end)


def _rows(found: LiveTable, limit: int) -> JsonObject:
    """Return rows up to a number and a size; ``is_complete`` tells whether these are all."""
    rows: list[Json] = []
    left = MOST_JSON_BYTES
    is_complete = True
    for row in found.table.rows():
        readable = _of_json(readable_row(found.table, row))
        left -= len(json.dumps(readable))
        if len(rows) == limit or left < 0:
            is_complete = False
            break
        rows.append(readable)
    columns = [{"name": field.name, "type": str(field.type)} for field in found.schema]
    return {"epoch": found.epoch, "columns": columns, "rows": rows, "is_complete": is_complete}


def _of_json(value: Json) -> Json:
    """Return a value in which numbers that JSON does not have are texts."""
    if isinstance(value, dict):
        return {name: _of_json(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_of_json(one) for one in value]
    return value if not isinstance(value, float) or abs(value) < float("inf") else str(value)


def _stream(found: LiveTable) -> Iterator[bytes]:
    """Yield a stream in Arrow's format; one that breaks off has no end marker."""
    sink = io.BytesIO()
    try:
        with found, pa.ipc.new_stream(sink, found.schema) as stream:
            for batch in found.to_batches():
                stream.write_batch(batch)
                yield _taken(sink)
    except PyFlinkStateError as error:
        _log.warning("an answer from live state broke off: %s", error)
        raise ConnectionError("the answer broke off") from error
    yield _taken(sink)


def _taken(sink: io.BytesIO) -> bytes:
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data
