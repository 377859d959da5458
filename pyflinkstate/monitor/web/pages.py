"""What is at which address, and for whom: the page, the JSON behind it, metrics, events and actions.

The order of the checks matters: a request for another host, or without the token, learns nothing, not even
which jobs or pages there are.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from importlib.resources import files
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router

from pyflinkstate.api.values import JsonObject
from pyflinkstate.monitor import api
from pyflinkstate.monitor.jobs import ACTIONS, Jobs, Shown
from pyflinkstate.monitor.largest_keys import LargestKeys
from pyflinkstate.monitor.metrics import prometheus
from pyflinkstate.monitor.metrics.job_metrics import all_metrics
from pyflinkstate.monitor.web import state_query
from pyflinkstate.monitor.web.access import Access
from pyflinkstate.monitor.web.answers import JsonAnswer, StreamAnswer
from pyflinkstate.runtime.wire import Clock

MOST_VIEWERS = 128
#: The least time between two messages to a viewer (Flink: the default of ``web.refresh-interval``).
TELL_EVERY_S = 3.0
#: How soon a viewer is told if there was nothing new before. Meanwhile each look sends a comment, so that a
#: viewer that has left is noticed, and proxies keep the connection open.
LOOK_EVERY_S = 1.0
#: The page counts as watched for this long after a request.
WATCHED_S = 10.0

_LEVELS = {
    name: int(getattr(logging, name)) for name in ("NOTSET", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
}
#: The files of the page, which lie in ``page/`` beside this file.
_FILES = {
    "/": ("index.html", "text/html"),
    "/page.js": ("page.js", "text/javascript"),
    "/page.css": ("page.css", "text/css"),
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
    """

    def __init__(self, jobs: Jobs, access: Access, has_actions: bool, clock: Clock) -> None:
        self._jobs = jobs
        self._access = access
        self._has_actions = has_actions
        self._clock = clock
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
        text = prometheus.text(all_metrics(self._jobs, self._clock))
        return Response(text.encode("utf-8", "replace"), media_type=prometheus.CONTENT_TYPE)

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

    def _act(self, request: Request) -> Response:
        job_id, action = request.path_params["job_id"], request.path_params["action"]
        if action not in ACTIONS:
            return Response(status_code=404)
        if not (self._has_actions and self._access.lets_act(request)):
            return Response(status_code=403)
        done, text = self._jobs.act(job_id, action, request.query_params.get("stream", ""))
        return JsonAnswer({"message": text}, 202 if done else 409)

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
        return state_query.answer(job, body)


def _summary(shown: Shown) -> JsonObject:
    with shown.lock:
        return api.summary(shown.story, shown.is_live)


def _file(name: str, kind: str) -> Response:
    return Response((files("pyflinkstate.monitor.web") / "page" / name).read_bytes(), media_type=kind)
