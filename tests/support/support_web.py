"""What tests of the page share: raw requests, and a page with jobs that it can show."""

from __future__ import annotations

import http.client
import io
import json
import re
import socket
import threading
from typing import Any

import attrs
from support_runtime import PATIENCE_S, ManualClock

from pyflinkstate.api import JsonObject
from pyflinkstate.monitor.hub import Monitor, jobs_at
from pyflinkstate.monitor.jobs import MonitoredJob, Recorder
from pyflinkstate.monitor.journal import JournalReader
from pyflinkstate.monitor.story import JobStory
from pyflinkstate.runtime.master import WebPageSettings

JOB_ID = "a" * 32
EVIL = '<script>document.title="owned"</script>'


@attrs.frozen
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class _Received:
    """What was received, as a connection of which ``http.client`` reads."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def makefile(self, _: str) -> io.BytesIO:
        return io.BytesIO(self._data)


def parse(data: bytes) -> Answer:
    """Return the first answer in what was received; its body may have been cut off."""
    response = http.client.HTTPResponse(_Received(data))  # type: ignore[arg-type]
    response.begin()
    headers = {name.lower(): value for name, value in response.getheaders()}
    try:
        return Answer(response.status, headers, response.read())
    except http.client.IncompleteRead as cut_off:
        return Answer(response.status, headers, cut_off.partial)


def exchange(port: int, data: bytes) -> bytes:
    """Send bytes and return all that comes until the server closes.

    If the request is not whole, the server is told that no more of it comes.
    """
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_S) as connection:
        try:
            connection.sendall(data)
            if b"\r\n\r\n" not in data:
                connection.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # the server may have refused before everything was sent
        received = b""
        try:
            while more := connection.recv(65536):
                received += more
        except ConnectionResetError:
            pass
        return received


@attrs.define
class Browser:
    """Asks a page, as a browser with its cookie would."""

    port: int
    token: str
    cookie: str | None = None
    action_token: str | None = None

    def ask(self, path: str, method: str = "GET", **headers: str) -> Answer:
        fields = {"host": f"127.0.0.1:{self.port}", **{k.replace("_", "-"): v for k, v in headers.items()}}
        if self.cookie is not None:
            fields.setdefault("cookie", self.cookie)
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        return parse(exchange(self.port, f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1")))

    def enter(self) -> Browser:
        """Open the address that was logged."""
        answer = self.ask(f"/?token={self.token}")
        assert answer.status == 200
        self.cookie = answer.headers["set-cookie"].partition(";")[0]
        self.action_token = self.ask("/api/session").json()["action_token"]
        return self


def browser_of(monitor: Monitor) -> Browser:
    assert monitor.address is not None
    found = re.fullmatch(r"http://[^/]*:(\d+)/\?token=(.*)", monitor.address)
    assert found is not None
    return Browser(int(found[1]), found[2])


def monitor_with(
    *stories: JobStory, folder: str | None = None, is_live: bool = False, **settings: Any
) -> Monitor:
    """Return a monitor whose page shows jobs that do not run here, or seem to."""
    made = Monitor(WebPageSettings(**settings), ManualClock())
    for story in stories:
        show(made, story, folder, is_live)
    return made


def show(monitor: Monitor, story: JobStory, folder: str | None = None, is_live: bool = False) -> None:
    recorder = Recorder(ManualClock()) if is_live else None
    monitor._jobs.add(MonitoredJob(story, threading.Lock(), recorder, folder=folder))


def story(job_id: str = JOB_ID, name: str = EVIL) -> JobStory:
    """Return a job in which everything that a user may name is markup."""
    made = JobStory()
    for event in events(job_id, name):
        made.take(event)
    return made


def events(job_id: str = JOB_ID, name: str = EVIL) -> list[dict[str, Any]]:
    vertices = [
        {"id": "in-0", "name": "in", "kind": "source", "parallelism": None, "max_parallelism": None},
        {"id": EVIL, "name": EVIL, "kind": "keyed", "parallelism": 2, "max_parallelism": 128},
    ]
    edges = [{"source": "in-0", "target": EVIL, "chain": [EVIL], "side_output": None}]
    stats = {
        "checkpoint_id": 1,
        "epoch": 1,
        "sync_ms": 1.5,
        "async_ms": 20.0,
        "size_bytes": 3000,
        "checkpointed_bytes": 2000,
        "triggered_ms": 1_700_000_001_000,
        "duration_ms": 25,
        "is_incremental": True,
        "is_savepoint": False,
        "uri": f"/checkpoints/{job_id}/chk-1",
        "failure": None,
    }
    failure = {"type": "ValueError", "message": EVIL, "operator": EVIL, "key": EVIL, "record": EVIL}
    job = {"job_id": job_id, "name": name, "vertices": vertices, "edges": edges, "restored_from": None}
    at = 1_700_000_000_000
    return [
        {"event": "started", "at": at, "job": job, "directory": "/checkpoints"},
        {
            "event": "epoch",
            "at": at + 1000,
            "epoch": 1,
            "records": 10,
            "duration_ms": 500,
            "attempt": 0,
            "phases_ms": {"planning": 10, "reading": 200, "slots": 200, "finishing": 50, "preparing": 40},
            "counts": {"in.records_out": 10, f"{EVIL}.records_in": 10, f"{EVIL}.records_out": 5},
            "subtasks": {EVIL: [8, 2]},
            "totals": {
                "in.records_out": 10,
                f"{EVIL}.records_in": 10,
                f"{EVIL}.records_out": 5,
                f"{EVIL}.side_output.{EVIL}": 2,
            },
            "watermarks": {EVIL: at - 60_000},
            "metrics": [
                {"task": f"{EVIL}[1]", "name": f"{EVIL}.cache.hits-total", "kind": "counter", "count": 7},
                {"task": f"{EVIL}[1]", "name": f"{EVIL}.load", "kind": "meter", "rate": 1.5, "count": 3},
                {
                    "task": f"{EVIL}[1]",
                    "name": f"{EVIL}.numLateRecordsDropped",
                    "kind": "counter",
                    "count": 4,
                },
            ],
            "slots": {
                EVIL: {
                    "busy_ms": [90.0, 450.0],
                    "idle_ms": [405.0, 25.0],
                    "back_pressured_ms": [5.0, 25.0],
                    "memory_bytes": [80 << 20, 90 << 20],
                    "memory_limit_bytes": 100 << 20,
                    "timers": [3, 0],
                    "disk": [
                        {
                            "properties": {"total-sst-files-size": 7 << 20},
                            "memory_bytes": {EVIL: 3 << 20},
                            "hit_rates": {EVIL: 0.75, "sums": None},
                        },
                        None,
                    ],
                },
                "in-0": {
                    "busy_ms": [100.0],
                    "idle_ms": [0.0],
                    "back_pressured_ms": [300.0],
                    "memory_bytes": [70 << 20],
                    "memory_limit_bytes": None,
                    "timers": [0],
                },
            },
            "latencies_ms": {EVIL: {"in-0": [*range(1, 101)]}},
            "in_flight": 2,
        },
        {
            "event": "checkpoint",
            "at": at + 1100,
            "stats": stats,
            "subtasks": [[EVIL, 0, 1.5, 20.0, 1000, 500], [EVIL, 1, 1.0, 10.0, 2000, 1500]],
            "states": {EVIL: {"bytes": {EVIL: 2500}, "key_groups": [100, 2400]}},
        },
        {
            "event": "checkpoint",
            "at": at + 1200,
            "stats": {**stats, "checkpoint_id": 2, "failure": EVIL, "uri": None},
            "subtasks": [],
            "states": {},
        },
        {"event": "sample", "at": at + 1250, "epoch": 1, "records": {EVIL: [EVIL]}},
        {
            "event": "output",
            "at": at + 1260,
            "slot": f"{EVIL}[1]",
            "lines": [[30, EVIL], [20, "all is well"]],
        },
        {"event": "committed", "at": at + 1300, "epoch": 1, "duration_ms": 12},
        {"event": "restarted", "at": at + 1400, "attempt": 1, "failure": failure},
    ]


def stories_at(path: str) -> list[JobStory]:
    """Return what the jobs at a path tell, the one heard of last at the end."""
    return [job.story for job in jobs_at(path)]


def read_journal(job_folder: str) -> list[JsonObject]:
    """Return all that a job told and that is still there, in order."""
    return JournalReader(job_folder).read_new()
