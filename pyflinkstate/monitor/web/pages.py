"""What is at which address, and for whom: the page, the JSON behind it, metrics, events and actions.

The order of the checks matters: a request for another host, or without the token, learns nothing, not even
which jobs or pages there are.
"""

from __future__ import annotations

import json
import logging
import threading
from importlib.resources import files

from pyflinkstate.api.values import JsonObject
from pyflinkstate.monitor import api, queries
from pyflinkstate.monitor.jobs import ACTIONS, Jobs, Shown
from pyflinkstate.monitor.largest_keys import LargestKeys
from pyflinkstate.monitor.metrics import prometheus
from pyflinkstate.monitor.metrics.registry import MetricRegistry
from pyflinkstate.monitor.web.access import Access
from pyflinkstate.monitor.web.http import Request, Response
from pyflinkstate.runtime.wire import Clock

_JSON = "application/json"
#: A question to the live state of a job; anybody who could act may ask, even if the page has no actions.
_QUERY = "query"
_LEVELS = {
    name: int(getattr(logging, name)) for name in ("NOTSET", "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")
}
#: The files of the page, which lie in ``page/`` beside this file.
_FILES = {
    "/": ("index.html", "text/html; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
}
#: A browser sends a strict cookie only if a page of the same site leads there, so this one does.
_ENTRY = b"<!doctype html><meta http-equiv=refresh content='0;url=./'><title>pyflinkstate</title>"


class Pages:
    """Answers the requests for one page.

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
        self._registry = MetricRegistry(jobs, clock)
        self._largest = LargestKeys()
        self._lock = threading.Lock()
        #: By path: the version and the bytes of the last answer, so that many viewers cost little. Older
        #: versions are forgotten.
        self._cache: dict[str, tuple[int, bytes]] = {}
        self._files = {path: _file(name) for path, (name, _) in _FILES.items()}

    def answer(self, request: Request) -> Response:
        """Answer a request."""
        if not self._access.knows_host(request):
            return Response(421)
        if request.path == "/" and self._access.has_token(request) and request.method != "POST":
            return Response(200, _ENTRY, "text/html; charset=utf-8", cookies=self._access.cookies(request))
        if not self._access.lets_in(request):
            return Response(401)
        return self._act(request) if request.method == "POST" else self._get(request)

    # --- to look at --------------------------------------------------------------------------------

    def _get(self, request: Request) -> Response:
        path = request.path
        if path in _FILES:
            return Response(200, self._files[path], _FILES[path][1])
        if path == "/metrics":
            return self._metrics()
        if path == "/api/events":
            first = b"retry: 2000\n\ndata: " + self._jobs.news() + b"\n\n"
            return Response(200, first, "text/event-stream", is_stream=True)
        if path == "/api/session":
            token = self._access.action_token if self._has_actions else None
            return _json(200, {"has_actions": self._has_actions, "action_token": token})
        if path.endswith("/largest-keys"):
            return self._largest_keys(request)
        if path.endswith("/logs"):
            return self._logs(request)
        return self._view(path)

    def _largest_keys(self, request: Request) -> Response:
        with self._jobs.locked(_job_id(request.path)) as shown:
            path = None if shown is None else shown.checkpoint_path()
            last = None if shown is None else shown.story.last_checkpoint()
        operator = request.query.get("operator")
        if path is None or operator is None:
            return Response(404)
        checkpoint_id = None if last is None else last["checkpoint_id"]
        return _json(200, {"checkpoint_id": checkpoint_id, **self._largest.of(path, operator, checkpoint_id)})

    def _logs(self, request: Request) -> Response:
        """Return the lines of slots that a filter lets through."""
        asked = request.query
        level = _LEVELS.get(asked.get("level", "NOTSET").upper())
        with self._jobs.locked(_job_id(request.path)) as shown:
            if shown is None or level is None:
                return Response(404 if shown is None else 400)
            found = shown.story.logs.found(asked.get("contains", ""), asked.get("slot", ""), level)
        return _json(200, found)

    def _metrics(self) -> Response:
        body = prometheus.text(self._registry.metrics())
        return Response(200, body.encode("utf-8", "replace"), prometheus.CONTENT_TYPE)

    def _view(self, path: str) -> Response:
        version = self._jobs.version
        with self._lock:
            known = self._cache.get(path)
        if known is not None and known[0] == version:
            return Response(200, known[1], _JSON)
        made = self._made(path)
        if made is None:
            return Response(404)
        with self._lock:
            current = {key: kept for key, kept in self._cache.items() if kept[0] == version}
            self._cache = {**current, path: (version, made)}
        return Response(200, made, _JSON)

    def _made(self, path: str) -> bytes | None:
        """Return the JSON at a path, or None if there is none."""
        if path == "/api/jobs":
            return _encoded({"jobs": [_summary(shown) for shown in self._jobs.begun()]})
        parts = path.removeprefix("/api/jobs/").split("/")
        view = api.VIEWS.get(parts[1] if len(parts) > 1 else "")
        if not path.startswith("/api/jobs/") or view is None or len(parts) > 2:
            return None
        with self._jobs.locked(parts[0]) as shown:
            return None if shown is None else _encoded(view(shown.story, shown.is_live))

    # --- to change ---------------------------------------------------------------------------------

    def _act(self, request: Request) -> Response:
        parts = request.path.removeprefix("/api/jobs/").split("/")
        known = {_QUERY, *ACTIONS}
        if not request.path.startswith("/api/jobs/") or len(parts) != 2 or parts[1] not in known:
            return Response(405 if request.path in _FILES else 404)
        if not self._access.lets_act(request):
            return Response(403)
        if parts[1] == _QUERY:
            return self._query(parts[0], request.body)
        if not self._has_actions:
            return Response(403)
        done, text = self._jobs.act(parts[0], parts[1], request.query.get("stream", ""))
        return _json(202 if done else 409, {"message": text})

    def _query(self, job_id: str, body: bytes) -> Response:
        """Answer a question to live state, which changes nothing but makes the job's slots work."""
        job = self._jobs.running(job_id)
        if job is None:
            return _json(409, {"message": "The job does not run here, or does not run any more."})
        found = queries.answer(job, body)
        return found if isinstance(found, Response) else _json(*found)


def _job_id(path: str) -> str:
    return path.removeprefix("/api/jobs/").partition("/")[0]


def _summary(shown: Shown) -> JsonObject:
    with shown.lock:
        return api.summary(shown.story, shown.is_live)


def _json(status: int, value: JsonObject) -> Response:
    return Response(status, _encoded(value), _JSON)


def _encoded(value: JsonObject) -> bytes:
    """Return a value as JSON that may stand anywhere, even where somebody takes it for HTML."""
    text = json.dumps(value, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").encode("ascii")


def _file(name: str) -> bytes:
    return (files("pyflinkstate.monitor.web") / "page" / name).read_bytes()
