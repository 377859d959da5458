"""The server under strange and bad requests: it goes on, within its bounds, and ends with its owner."""

from __future__ import annotations

import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from support_runtime import PATIENCE_S, raising
from support_web import JOB_ID, Browser, browser_of, exchange, monitor_with, parse, story

from pyflinkstate.errors import ConfigurationError
from pyflinkstate.monitor.hub import Monitor
from pyflinkstate.monitor.web import server
from pyflinkstate.monitor.web.http import Request, Response
from pyflinkstate.monitor.web.server import PageServer
from pyflinkstate.runtime.master.reports.monitoring import WebPageSettings

SEED = 20_240_601
REQUESTS = 2_000


@pytest.fixture
def monitor() -> Iterator[Monitor]:
    made = monitor_with(story())
    yield made
    made.close()


@pytest.fixture
def browser(monitor: Monitor) -> Browser:
    return browser_of(monitor).enter()


def malformed(dice: random.Random, good: bytes) -> bytes:
    """Return a request that was changed at some places, or that never was one."""
    kind = dice.randrange(8)
    if kind == 0:
        return dice.randbytes(dice.randrange(300))
    if kind == 1:
        return good[: dice.randrange(len(good))]
    if kind == 2:
        return b"GET /" + b"A" * dice.randrange(20_000) + b" HTTP/1.1\r\n\r\n"
    if kind == 3:
        return good[:-2] + b"X-%d: y\r\n" % dice.randrange(9) * dice.randrange(2_000) + b"\r\n"
    if kind == 4:
        length = dice.choice([b"-1", b"9" * 30, b"0x10", b"1, 1", b"\xb2", b"5000"])
        return b"POST /api/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + length + b"\r\n\r\nabc"
    if kind == 5:
        return b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n"
    changed = bytearray(good)
    for _ in range(dice.randrange(1, 9)):
        changed[dice.randrange(len(changed))] = dice.randrange(256)
    return bytes(changed)


def test_2000_malformed_requests_change_nothing(monitor: Monitor, browser: Browser) -> None:
    dice = random.Random(SEED)
    paths = ["/", "/metrics", "/api/jobs", f"/api/jobs/{JOB_ID}", "/../../etc/passwd"]
    statuses = set()
    for _ in range(REQUESTS):
        head = f"GET {dice.choice(paths)} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: x"
        good = f"{head}\r\n\r\n".encode()
        received = exchange(browser.port, malformed(dice, good))
        if received:
            answer = parse(received)
            statuses.add(answer.status)
            assert answer.body == b""
    assert statuses <= {400, 401, 413, 421, 431, 501}
    assert browser.ask("/api/jobs").json()["jobs"][0]["id"] == JOB_ID


def test_a_request_must_come_as_a_whole_in_time() -> None:
    """A byte now and then does not keep a connection."""
    made = PageServer("127.0.0.1", [0], lambda _: Response(200), request_s=0.2)
    with socket.create_connection(("127.0.0.1", made.port), timeout=PATIENCE_S) as connection:
        connection.sendall(b"GET / HT")
        assert parse(connection.recv(65536)).status == 408
    made.close()


def test_there_are_as_many_connections_as_the_bound_allows() -> None:
    entered = threading.Semaphore(0)
    leave = threading.Event()

    def wait(_: Request) -> Response:
        entered.release()
        leave.wait(PATIENCE_S)
        return Response(200)

    made = PageServer("127.0.0.1", [0], wait)
    asked = b"GET / HTTP/1.1\r\n\r\n"
    held = []
    for _ in range(server.MOST_CONNECTIONS):
        connection = socket.create_connection(("127.0.0.1", made.port), timeout=PATIENCE_S)
        connection.sendall(asked)
        held.append(connection)
        assert entered.acquire(timeout=PATIENCE_S)
    assert parse(exchange(made.port, b"")).status == 503
    leave.set()
    for connection in held:
        assert parse(connection.recv(65536)).status == 200
        connection.close()
    made.close()


def test_a_system_without_threads_refuses_and_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    made = PageServer("127.0.0.1", [0], lambda _: Response(200))
    for is_there, status in ((False, 503), (True, 200)) * (server.MOST_CONNECTIONS + 1):
        with monkeypatch.context() as patch:
            if not is_there:
                patch.setattr(server.threading, "Thread", raising(RuntimeError("can't start new thread")))
            assert parse(exchange(made.port, b"GET / HTTP/1.1\r\n\r\n")).status == status
    made.close()


class Endless(socket.socket):
    """A connection whose peer never stops sending, and takes a byte of its answer at a time."""

    received = 0

    def shutdown(self, _: int) -> None:
        """There is nobody at the other end."""

    def recv(self, size: int, flags: int = 0) -> bytes:
        self.received += size
        assert self.received < 100 * server.MOST_LEFTOVER_BYTES, "it is read for ever"
        return b"x" * size

    def send(self, data: Any, flags: int = 0) -> int:
        return 1


def test_a_peer_that_never_stops_sending_is_not_read_for_ever() -> None:
    connection = Endless()
    server._end(connection)
    assert connection.fileno() == -1
    assert server.MOST_LEFTOVER_BYTES <= connection.received <= 2 * server.MOST_LEFTOVER_BYTES


def test_a_connection_counts_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    made = PageServer("127.0.0.1", [0], lambda _: Response(200))
    made._free.acquire()
    free_at_end: list[int] = []
    monkeypatch.setattr(server, "_end", lambda _: free_at_end.append(made._free._value))
    with Endless() as connection:
        made._serve(connection)
    assert free_at_end == [server.MOST_CONNECTIONS - 1]
    made.close()


def test_an_answer_must_be_taken_in_time() -> None:
    with Endless() as connection, pytest.raises(TimeoutError, match="too slowly"):
        server._send(connection, b"answer", time.monotonic() - 1)


def test_a_viewer_without_a_thread_is_refused_and_the_next_one_is_told(
    monkeypatch: pytest.MonkeyPatch, monitor: Monitor, browser: Browser
) -> None:
    page = monitor._server
    assert page is not None
    with socket.create_connection(("127.0.0.1", page.port)) as first, monkeypatch.context() as patch:
        patch.setattr(server.threading, "Thread", raising(RuntimeError("can't start new thread")))
        assert not page._viewers.add(first, Response(200, is_stream=True))
    with stream(browser) as connection:
        receive_until(connection, b"version")
        monitor._changed()
        receive_until(connection, b"version")


def test_an_error_of_the_server_is_no_error_of_the_program(caplog: pytest.LogCaptureFixture) -> None:
    made = PageServer("127.0.0.1", [0], lambda _: 1 // 0)  # type: ignore[arg-type,return-value]
    assert parse(exchange(made.port, b"GET /secret HTTP/1.1\r\n\r\n")).status == 500
    assert "/secret" in caplog.text
    made.close()


def stream(browser: Browser) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", browser.port), timeout=PATIENCE_S)
    head = f"GET /api/events HTTP/1.1\r\nHost: localhost\r\nCookie: {browser.cookie}\r\n\r\n"
    connection.sendall(head.encode())
    return connection


def receive_until(connection: socket.socket, wanted: bytes) -> bytes:
    received = b""
    while wanted not in received:
        more = connection.recv(4096)
        assert more, "the stream has ended"
        received += more
    return received


def test_viewers_hear_of_changes(monitor: Monitor, browser: Browser) -> None:
    with stream(browser) as connection:
        first = receive_until(connection, b'data: {"version": ')
        assert b"text/event-stream" in first
        monitor._changed()
        receive_until(connection, b'data: {"version": ')


def test_a_viewer_that_reads_nothing_is_let_go_and_nobody_waits(
    monkeypatch: pytest.MonkeyPatch, monitor: Monitor, browser: Browser
) -> None:
    monkeypatch.setattr(server, "TELL_EVERY_S", 0.0)
    dead, alive = stream(browser), stream(browser)
    for connection in (dead, alive):
        receive_until(connection, b"version")
    page = monitor._server
    assert page is not None
    for _ in range(400):  # far more than the buffers of a connection hold
        page.changed(b"x" * 60_000)
        receive_until(alive, b"x\n\n")
        if len(page._viewers._connections) == 1:
            break
    assert len(page._viewers._connections) == 1
    for connection in (dead, alive):
        connection.close()


def test_there_are_as_many_viewers_as_the_bound_allows(
    monkeypatch: pytest.MonkeyPatch, browser: Browser
) -> None:
    monkeypatch.setattr(server, "MOST_VIEWERS", 2)
    held = [stream(browser), stream(browser)]
    for connection in held:
        receive_until(connection, b"version")
    with stream(browser) as third:
        assert parse(third.recv(65536)).status == 503
    for connection in held:
        connection.close()


def test_a_closed_page_lets_go_of_viewers_and_of_its_port(monitor: Monitor, browser: Browser) -> None:
    with stream(browser) as connection:
        receive_until(connection, b"version")
        monitor.close()
        while connection.recv(4096):
            pass
    Monitor(WebPageSettings((browser.port,)), False).close()


def test_a_port_that_is_taken_is_said_and_the_next_one_is_tried() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match="cannot listen on"):
            Monitor(WebPageSettings((port,)), False)
        Monitor(WebPageSettings((port, 0)), False).close()


@pytest.mark.parametrize(
    "ports", [(), (-1,), (65_536,), ("8081",), (1, 65_536, 2), range(0), range(1, 65_538)]
)
def test_a_port_is_checked(ports: Any) -> None:
    with pytest.raises(ConfigurationError, match="needs a port"):
        WebPageSettings(ports)


def test_the_page_ends_with_its_program() -> None:
    program = (
        "from pyflinkstate.monitor import Monitor\n"
        "from pyflinkstate.runtime.master import WebPageSettings\n"
        "print(Monitor(WebPageSettings(), False).address)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    port = int(done.stdout.split(":")[2].partition("/")[0])
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port), timeout=1)


def test_a_page_that_moves_shows_what_it_showed() -> None:
    monitor = monitor_with(story())
    before = browser_of(monitor)
    monitor.serve(WebPageSettings(host="localhost"))
    assert len(browser_of(monitor).enter().ask("/api/jobs").json()["jobs"]) == 1
    with pytest.raises(OSError, match="refused"):
        before.ask("/")
    monitor.serve(None)
    assert monitor.address is None
    monitor.close()
