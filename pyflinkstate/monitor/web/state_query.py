"""Answers a question to the live state of a job, which comes as the body of a request.

The answer is JSON, bounded in rows and bytes, or a stream in Arrow's format, which goes out as it
comes from the slots. A job that cannot answer soon is not waited for: the message says what it waits for.
"""

from __future__ import annotations

import io
import json
from collections.abc import Hashable, Iterator

import attrs
import pyarrow as pa
from starlette.responses import Response

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
from pyflinkstate.monitor.web.answers import JsonAnswer, StreamAnswer
from pyflinkstate.runtime.master import Job
from pyflinkstate.state_access.command_line.printing import readable_row
from pyflinkstate.state_access.live import LiveTable, query

ARROW_STREAM = "application/vnd.apache.arrow.stream"
#: How long a request waits for the end of an epoch.
WAIT_S = 15.0
DEFAULT_ROWS = 1_000
MOST_ROWS = 10_000
#: The rows of a JSON answer end after this many bytes.
MOST_JSON_BYTES = 4 << 20

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
    """A parsed question."""

    operator: str
    state: str
    keys: tuple[Hashable, ...] | None
    namespace: Hashable | None
    limit: int
    is_arrow: bool


def answer(job: Job, body: bytes) -> Response:
    """Return the answer to the question in a body: JSON, or a stream of record batches."""
    try:
        asked = _asked(body)
        found = query(job.queries, asked.operator, asked.state, asked.keys, asked.namespace, WAIT_S)
        if asked.is_arrow:
            return StreamAnswer(_stream(found), found, ARROW_STREAM)
        with found:
            return JsonAnswer(_rows(found, asked.limit))
    except PyFlinkStateError as error:
        status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
        return JsonAnswer({"message": error.message}, status)


def _asked(body: bytes) -> _Asked:
    """Return the question.

    Raises:
        ConfigurationError: the body is not a valid question.
    """
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise ConfigurationError("the body of a question must be JSON") from None
    if not isinstance(content, dict):
        raise ConfigurationError("the body of a question must be a JSON object")
    keys, form = content.get("keys"), content.get("format", "json")
    if form not in ("json", "arrow"):
        raise ConfigurationError('"format" must be "json" or "arrow"')
    if not isinstance(keys, (list, type(None))):
        raise ConfigurationError('"keys" must be a list of keys')
    return _Asked(
        _text(content, "operator"),
        _text(content, "state"),
        None if keys is None else tuple(map(_key, keys)),
        _namespace(content.get("namespace")),
        _limit(content.get("limit", DEFAULT_ROWS)),
        form == "arrow",
    )


def _text(content: JsonObject, name: str) -> str:
    value = content.get(name)
    if not isinstance(value, str):
        raise ConfigurationError(f'a question must have "{name}", a string')
    return value


def _limit(value: Json) -> int:
    if type(value) is not int or not 0 < value <= MOST_ROWS:
        raise ConfigurationError(f'"limit" must be a whole number from 1 to {MOST_ROWS}')
    return value


def _key(value: Json) -> Hashable:
    """Return a key or namespace; lists are tuples."""
    if isinstance(value, dict):
        raise ConfigurationError("a key cannot be a JSON object")
    return tuple(map(_key, value)) if isinstance(value, list) else value


def _namespace(value: Json) -> Hashable | None:
    """Return a namespace; a window is an object with its start and its end."""
    if not isinstance(value, dict):
        return _key(value)
    start, end = value.get("start"), value.get("end")
    if type(start) is not int or type(end) is not int or len(value) != 2:
        raise ConfigurationError('a window must have "start" and "end", in milliseconds, and nothing else')
    return TimeWindow(start, end)


def _rows(found: LiveTable, limit: int) -> JsonObject:
    """Return rows up to a number and a size; ``is_complete`` says whether these are all."""
    rows: list[Json] = []
    left = MOST_JSON_BYTES
    is_complete = True
    for row in found.table.rows():
        readable = readable_row(found.table, row)
        left -= len(json.dumps(readable))
        if len(rows) == limit or left < 0:
            is_complete = False
            break
        rows.append(readable)
    columns = [{"name": field.name, "type": str(field.type)} for field in found.schema]
    return {"epoch": found.epoch, "columns": columns, "rows": rows, "is_complete": is_complete}


def _stream(found: LiveTable) -> Iterator[bytes]:
    """Yield a stream in Arrow's format; one that breaks off has no end marker."""
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, found.schema) as stream:
        for batch in found.to_batches():
            stream.write_batch(batch)
            yield _taken(sink)
    yield _taken(sink)


def _taken(sink: io.BytesIO) -> bytes:
    data = sink.getvalue()
    sink.seek(0)
    sink.truncate()
    return data
