"""What is at which address, and for whom: the page, the JSON behind it, metrics, events and actions.

The order of the checks matters: a request for another host, or without the token, learns nothing, not even
which jobs or pages there are.
"""

from __future__ import annotations

import asyncio
import io
import json
import logging
import time
from collections.abc import AsyncIterator, Hashable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, contextmanager
from importlib.resources import files
from typing import Any

import pyarrow as pa
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route, Router

from pyflinkstate.api import Json, JsonObject, TimeWindow
from pyflinkstate.errors import (
    BadRecordError,
    ConfigurationError,
    PyFlinkStateError,
    StateQueryError,
    StateQueryTimeoutError,
    UnknownOperatorError,
    UnknownStateError,
)
from pyflinkstate.monitor import api
from pyflinkstate.monitor.api import PROMETHEUS_TYPE, all_metrics, prometheus_text
from pyflinkstate.monitor.jobs import ACTIONS, Jobs, MonitoredJob
from pyflinkstate.monitor.largest_keys import LargestKeys
from pyflinkstate.monitor.web.access import Access
from pyflinkstate.runtime.master import Job
from pyflinkstate.runtime.settings import JobStatus
from pyflinkstate.runtime.wire import Clock
from pyflinkstate.state_access.command_line.output import readable_row
from pyflinkstate.state_access.live import LiveTable, query

MOST_VIEWERS = 128
#: The least time between two messages to a viewer (Flink: the default of ``web.refresh-interval``).
TELL_EVERY_S = 3.0
#: How soon a viewer is told if there was nothing new before. Meanwhile each look sends a comment, so that a
#: viewer that has left is noticed, and proxies keep the connection open.
LOOK_EVERY_S = 1.0
#: How long a request may wait for a savepoint.
SAVEPOINT_S = 600.0
#: The page counts as watched for this long after a request.
WATCHED_S = 10.0

_LEVELS = {
    name: int(getattr(logging, name)) for name in ("NOTSET", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
}
_PAGE = files("pyflinkstate.monitor.web") / "page"
#: The files of the page, by address: name and type.
_FILES = {
    "/": ("index.html", "text/html"),
    "/page.css": ("page.css", "text/css"),
    **{
        f"/{file.name}": (file.name, "text/javascript")
        for file in _PAGE.iterdir()
        if file.name.endswith(".js")
    },
}
_JOB = "/api/jobs/{job_id}"

_log = logging.getLogger("pyflinkstate.monitor")


class Pages:
    """Answers the requests for one page, as an ASGI application.

    Args:
        jobs: what it shows.
        access: decides who may see them.
        has_actions: whether jobs can be steered from the page.
        clock: the time.
        health_timeout_ms: how long a job may make no progress and count as well.
    """

    def __init__(
        self, jobs: Jobs, access: Access, has_actions: bool, clock: Clock, health_timeout_ms: int
    ) -> None:
        self._jobs = jobs
        self._access = access
        self._has_actions = has_actions
        self._clock = clock
        self._health_timeout_ms = health_timeout_ms
        self._largest = LargestKeys()
        self._viewers = 0
        self._asked_s = -WATCHED_S
        #: A version and its answers by path, so that many viewers cost little. Older versions are forgotten.
        self._cache: tuple[int, dict[str, Response]] = (-1, {})
        token = access.action_token if has_actions else None
        session = JsonAnswer({"has_actions": has_actions, "action_token": token})
        self._router = Router(
            [
                *(Route(path, _file(*named), methods=["GET"]) for path, named in _FILES.items()),
                Route("/health", self._health),
                Route("/ready", self._ready),
                Route("/metrics", self._metrics),
                Route("/api/events", self._events),
                Route("/api/session", session, methods=["GET"]),
                Route("/api/jobs", self._view),
                Route(_JOB, self._view),
                Route(f"{_JOB}/largest-keys", self._largest_keys),
                Route(f"{_JOB}/logs", self._logs),
                Route(f"{_JOB}/{{view}}", self._view),
                Route(f"{_JOB}/query", self._query, methods=["POST"]),
                Route(f"{_JOB}/{{action}}", self._act, methods=["POST"]),
            ],
            redirect_slashes=False,
        )

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer a request."""
        self._asked_s = time.monotonic()
        answer = self._access.answer(Request(scope)) or self._router
        try:
            await answer(scope, receive, send)
        except Exception:
            _log.exception("the page could not answer %s", scope["path"])
            raise

    def is_watched(self) -> bool:
        """Return whether there is a viewer, or somebody has asked for something in the last moments."""
        return self._viewers > 0 or time.monotonic() - self._asked_s < WATCHED_S

    # --- to look at --------------------------------------------------------------------------------

    async def _events(self, _: Request) -> Response:
        if self._viewers >= MOST_VIEWERS:
            return Response(status_code=503)
        return StreamAnswer(self._news(), self._viewer(), "text/event-stream")

    @contextmanager
    def _viewer(self) -> Iterator[None]:
        self._viewers += 1
        try:
            yield
        finally:
            self._viewers -= 1

    async def _news(self) -> AsyncIterator[bytes]:
        """Yield an event whenever something has changed."""
        yield b"retry: 2000\n\n"
        told = -1
        while True:
            version = self._jobs.version
            yield b":\n\n" if version == told else f'data: {{"version": {version}}}\n\n'.encode()
            await asyncio.sleep(LOOK_EVERY_S if version == told else TELL_EVERY_S)
            told = version

    def _health(self, _: Request) -> Response:
        """Say whether each job that runs makes progress; the process is alive, as it answers."""
        missing_ms = max((job.missing_progress_ms() for job in self._jobs.live()), default=0)
        is_well = missing_ms <= self._health_timeout_ms
        return JsonAnswer({"makes_progress": is_well}, 200 if is_well else 503)

    def _ready(self, _: Request) -> Response:
        """Say whether there are jobs, and each has restored its state and is running."""
        jobs = self._jobs.live()
        is_ready = bool(jobs) and all(job.status is JobStatus.RUNNING for job in jobs)
        return JsonAnswer({"is_ready": is_ready}, 200 if is_ready else 503)

    def _largest_keys(self, request: Request) -> Response:
        with self._jobs.locked(request.path_params["job_id"]) as shown:
            path = None if shown is None else shown.checkpoint_path()
            last = None if shown is None else shown.story.checkpoints.last()
        operator = request.query_params.get("operator")
        if path is None or operator is None:
            return Response(status_code=404)
        checkpoint_id = None if last is None else last["checkpoint_id"]
        found = self._largest.of(path, operator, checkpoint_id)
        return JsonAnswer({"checkpoint_id": checkpoint_id, **found})

    def _logs(self, request: Request) -> Response:
        """Return the lines of slots that a filter lets through."""
        asked = request.query_params
        level = _LEVELS.get(asked.get("level", "NOTSET").upper())
        with self._jobs.locked(request.path_params["job_id"]) as shown:
            if shown is None or level is None:
                return Response(status_code=404 if shown is None else 400)
            return JsonAnswer(shown.story.logs.found(asked.get("contains", ""), asked.get("slot", ""), level))

    def _metrics(self, _: Request) -> Response:
        text = prometheus_text(all_metrics(self._jobs, self._clock))
        return Response(text.encode("utf-8", "replace"), media_type=PROMETHEUS_TYPE)

    async def _view(self, request: Request) -> Response:
        path, version = request.scope["path"], self._jobs.version
        known = self._cache[1] if self._cache[0] == version else {}
        answer = known.get(path)
        if answer is None:
            answer = await run_in_threadpool(self._made, **request.path_params)
        if answer.status_code == 200:
            self._cache = (version, {**known, path: answer})
        return answer

    def _made(self, job_id: str | None = None, view: str = "") -> Response:
        if job_id is None:
            return JsonAnswer({"jobs": [_summary(shown) for shown in self._jobs.begun()]})
        make = api.VIEWS.get(view)
        with self._jobs.locked(job_id) as shown:
            if shown is None or make is None:
                return Response(status_code=404)
            return JsonAnswer(make(shown.story, shown.is_live))

    # --- to change ---------------------------------------------------------------------------------

    async def _act(self, request: Request) -> Response:
        job_id, action = request.path_params["job_id"], request.path_params["action"]
        if action not in ACTIONS:
            return Response(status_code=404)
        if not (self._has_actions and self._access.lets_act(request)):
            return Response(status_code=403)
        asked = request.query_params
        about = asked.get("stream", ""), asked.get("subtask", "")
        acted = await run_in_threadpool(self._jobs.act, job_id, action, *about)
        if acted.savepoint is not None and "wait" in asked:
            return await _answer_with(acted.savepoint)
        return JsonAnswer({"message": acted.message}, 202 if acted.is_accepted else 409)

    async def _query(self, request: Request) -> Response:
        """Answer a question to live state, which changes nothing but makes the job's slots work.

        Anybody who could act may ask, even if the page has no actions.
        """
        if not self._access.lets_act(request):
            return Response(status_code=403)
        body = await request.body()
        return await run_in_threadpool(self._asked, request.path_params["job_id"], body)

    def _asked(self, job_id: str, body: bytes) -> Response:
        job = self._jobs.running(job_id)
        if job is None:
            return JsonAnswer({"message": "The job does not run here, or does not run any more."}, 409)
        return answer(job, body)


async def _answer_with(savepoint: Future[str]) -> Response:
    """Answer when a savepoint is complete or has failed, or after a while."""
    try:
        uri = await asyncio.wait_for(asyncio.shield(asyncio.wrap_future(savepoint)), SAVEPOINT_S)
    except asyncio.TimeoutError:
        return JsonAnswer({"message": f"The savepoint is not complete after {SAVEPOINT_S:g} seconds."}, 202)
    except PyFlinkStateError as error:
        return JsonAnswer({"message": error.message}, 409)
    return JsonAnswer({"message": "The savepoint is complete.", "savepoint": uri})


def _summary(shown: MonitoredJob) -> JsonObject:
    with shown.lock:
        return api.summary(shown.story, shown.is_live)


def _file(name: str, kind: str) -> Response:
    return Response((_PAGE / name).read_bytes(), media_type=kind)


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


def answer(job: Job, body: bytes) -> Response:
    """Return the answer to the question in a body: JSON, or a stream of record batches."""
    try:
        asked = _content(body)
        names = _text(asked, "operator"), _text(asked, "state")
        keys, namespace = _keys(asked.get("keys")), _namespace(asked.get("namespace"))
        limit, is_arrow = _limit(asked.get("limit", DEFAULT_ROWS)), _is_arrow(asked.get("format", "json"))
        found = query(job.queries, *names, keys, namespace, WAIT_S)
        if is_arrow:
            return StreamAnswer(_stream(found), found, ARROW_STREAM)
        with found:
            return JsonAnswer(_rows(found, limit))
    except PyFlinkStateError as error:
        status = next((status for kind, status in _STATUSES if isinstance(error, kind)), 500)
        return JsonAnswer({"message": error.message}, status)


def _content(body: bytes) -> JsonObject:
    """Return the object that is the body of a question.

    Raises:
        ConfigurationError: the body is not a JSON object.
    """
    try:
        content = json.loads(body)
    except (ValueError, RecursionError):
        raise ConfigurationError("the body of a question must be JSON") from None
    if not isinstance(content, dict):
        raise ConfigurationError("the body of a question must be a JSON object")
    return content


def _is_arrow(form: Json) -> bool:
    if form not in ("json", "arrow"):
        raise ConfigurationError('"format" must be "json" or "arrow"')
    return bool(form == "arrow")


def _keys(keys: Json) -> list[Hashable] | None:
    if not isinstance(keys, (list, type(None))):
        raise ConfigurationError('"keys" must be a list of keys')
    return None if keys is None else list(map(_key, keys))


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


class JsonAnswer(Response):
    """JSON that may stand anywhere, even where somebody takes it for HTML."""

    media_type = "application/json"

    def render(self, content: JsonObject) -> bytes:
        """Return the bytes of a value."""
        text = json.dumps(content, separators=(",", ":"))
        return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").encode("ascii")


class StreamAnswer(StreamingResponse):
    """Parts as they come.

    Args:
        parts: what is sent.
        held: is entered before the first part, and left after the last one or when the peer has left.
        media_type: what the parts are together.
    """

    def __init__(
        self,
        parts: Iterator[bytes] | AsyncIterator[bytes],
        held: AbstractContextManager[object],
        media_type: str,
    ) -> None:
        super().__init__(parts, media_type=media_type)
        self._held = held

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Send the parts."""
        with self._held:
            await super().__call__(scope, receive, send)
