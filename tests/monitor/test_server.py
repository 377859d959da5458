"""The server under strange and bad requests: it goes on, within its bounds, and ends with its owner."""

from __future__ import annotations

import gc
import random
import socket
import subprocess
import sys
import threading
import warnings
from typing import Any

import pytest
from support_runtime import PATIENCE_S, raising
from support_web import JOB_ID, Browser, browser_of, exchange, monitor_with, parse, story

from pyflinkstate.errors import ConfigurationError
from pyflinkstate.monitor.hub import Monitor
from pyflinkstate.monitor.jobs import Jobs
from pyflinkstate.monitor.web import access, pages, server
from pyflinkstate.runtime.master.monitoring import WebPageSettings

SEED = 20_240_601
REQUESTS = 2_000


@pytest.fixture
def browser(monitor: Monitor) -> Browser:
    return browser_of(monitor).enter()


def connected(browser: Browser) -> socket.socket:
    return socket.create_connection(("127.0.0.1", browser.port), timeout=PATIENCE_S)


def is_ended(connection: socket.socket) -> bool:
    """Return whether the server closes a connection without an answer."""
    try:
        return connection.recv(65536) == b""
    except ConnectionResetError:
        return True


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


def test_2000_malformed_requests_change_nothing(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor do they tell anything, or write into the log of the program."""
    monkeypatch.setattr(server, "REQUEST_S", 0.05)  # some end in the middle of what they promise
    caplog.clear()
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
            assert answer.body in (b"", b"Invalid HTTP request received.")
    assert statuses <= {400, 401, 413, 421, 501}
    assert caplog.records == []
    monkeypatch.undo()
    assert browser.ask("/api/jobs").json()["jobs"][0]["id"] == JOB_ID


@pytest.mark.parametrize(
    ("head", "statuses"),
    [
        (b"", {400}),
        (b"GET / HTTP/x", {400}),
        (b"PUT /api/jobs HTTP/1.1", {405}),
        (b"POST /api/jobs HTTP/1.1", {405}),
        (b"GET http://other/ HTTP/1.1", {404}),
        (b"GET  / HTTP/1.1", {400}),
        (b"GET /\x00 HTTP/1.1", {400}),
        (b"GET /api/jobs HTTP/1.1\r\nA : a", {400}),
        (b"GET /api/jobs HTTP/1.1\r\nA: a\nB: b\x00", {400}),
        (b"GET /api/jobs HTTP/1.1\r\nHost: a", {400}),
        (b"GET /api/jobs HTTP/1.1\r\nAuthorization: a", {400}),
        (b"GET /api/jobs HTTP/1.1\r\nOrigin: a\r\nOrigin: b", {400}),
        (b"GET /" + b"a" * server.MOST_HEAD_BYTES + b" HTTP/1.1", {400, 404}),
        (b"POST /api/jobs HTTP/1.1\r\nContent-Length: -1", {400}),
        (b"POST /api/jobs HTTP/1.1\r\nContent-Length: 1e3", {400}),
        (b"POST /api/jobs HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2", {400}),
        (b"POST /api/jobs HTTP/1.1\r\nContent-Length: %d" % (access.MOST_BODY_BYTES + 1), {413}),
        (b"POST /api/jobs HTTP/1.1\r\nContent-Length: " + b"9" * 20, {413}),
        (b"POST /api/jobs HTTP/1.1\r\nContent-Length: " + b"9" * 5_000, {400}),
        (b"POST /api/jobs HTTP/1.1\r\nTransfer-Encoding: chunked", {501}),
        (b"POST /api/jobs HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 3", {400, 501}),
    ],
)
def test_what_is_refused_even_with_the_token(browser: Browser, head: bytes, statuses: set[int]) -> None:
    """No answer has data in it."""
    known = f"\r\nHost: localhost\r\nAuthorization: Bearer {browser.token}\r\n\r\n".encode()
    answer = parse(exchange(browser.port, head + known))
    assert answer.status in statuses
    assert JOB_ID.encode() not in answer.body


def test_a_head_that_never_ends_is_refused(browser: Browser) -> None:
    with connected(browser) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nA: " + b"a" * 20 * server.MOST_HEAD_BYTES)
        assert parse(connection.recv(65536)).status == 400


@pytest.mark.parametrize(
    "length", [b"Content-Length: 0", b"Content-Length: 5", b"Transfer-Encoding: chunked"]
)
def test_a_request_behind_another_one_is_not_read(browser: Browser, length: bytes) -> None:
    """So nobody can put a request into the connection of somebody else (smuggling)."""
    known = f"Host: localhost\r\nAuthorization: Bearer {browser.token}\r\n".encode()
    second = b"GET /api/jobs HTTP/1.1\r\n" + known + b"\r\n"
    received = exchange(
        browser.port, b"POST /no HTTP/1.1\r\n" + known + length + b"\r\n\r\n0\r\n\r\n" + 3 * second
    )
    assert received.count(b"HTTP/1.1 ") == 1
    assert JOB_ID.encode() not in received


def test_every_answer_says_what_it_has_to_say(browser: Browser) -> None:
    for path in ("/", "/page.js", "/api/jobs", "/no"):
        headers = browser.ask(path).headers
        assert headers["connection"] == "close"
        assert headers["cache-control"] == "no-store"
        assert headers["x-content-type-options"] == "nosniff"
        assert "default-src 'none'" in headers["content-security-policy"]
        assert "frame-ancestors 'none'" in headers["content-security-policy"]
        assert not [name for name in headers if name.startswith("access-control") or name == "server"]
    assert browser.ask("/api/jobs", "HEAD").body == b""


@pytest.mark.parametrize(
    "begun",
    [b"", b"GET / HT", b"POST /api/jobs/a/query HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n%b\r\n{"],
)
def test_a_request_must_come_as_a_whole_in_time(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, begun: bytes
) -> None:
    """A byte now and then does not keep a connection."""
    monkeypatch.setattr(server, "REQUEST_S", 0.2)
    known = f"Authorization: Bearer {browser.token}\r\n".encode()
    with connected(browser) as connection:
        connection.sendall(begun.replace(b"%b", known))
        assert is_ended(connection)


def test_there_are_as_many_connections_as_the_bound_allows(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_CONNECTIONS", 3)
    viewer = stream(browser)
    receive_until(viewer, b"version")
    idle = [connected(browser) for _ in range(2)]
    with connected(browser) as further:
        assert parse(further.recv(65536)).status == 503
    for connection in [viewer, *idle]:
        connection.close()


def test_300_connections_that_say_nothing_leave_the_page_as_it_was(browser: Browser) -> None:
    held = [connected(browser) for _ in range(300)]
    for connection in held[server.MOST_CONNECTIONS :]:
        assert parse(connection.recv(65536)).status == 503
    for connection in held:
        connection.close()
    while browser.ask("/api/jobs").status == 503:
        pass
    assert browser.ask("/api/jobs").status == 200


def test_a_system_without_threads_refuses_and_goes_on(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(3):
        with monkeypatch.context() as patch:
            patch.setattr(threading.Thread, "start", raising(RuntimeError("can't start new thread")))
            assert browser.ask("/api/jobs").status == 500
            assert browser.ask("/page.js").status == 200
    assert "can't start new thread" in caplog.text
    assert browser.ask("/api/jobs").status == 200


def test_an_error_of_the_server_is_no_error_of_the_program(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Jobs, "begun", raising(ZeroDivisionError("secret")))
    answer = browser.ask("/api/jobs")
    assert answer.status == 500
    assert b"secret" not in answer.body
    (record,) = caplog.records
    assert record.name == "pyflinkstate.monitor"
    assert "could not answer /api/jobs" in caplog.text


def stream(browser: Browser) -> socket.socket:
    connection = socket.socket()
    connection.setsockopt(
        socket.SOL_SOCKET, socket.SO_RCVBUF, 4096
    )  # a viewer that reads nothing is soon full
    connection.settimeout(PATIENCE_S)
    connection.connect(("127.0.0.1", browser.port))
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


def test_viewers_hear_of_changes(monitor: Monitor, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "TELL_EVERY_S", 0.0)
    monkeypatch.setattr(pages, "LOOK_EVERY_S", 0.0)
    with stream(browser) as connection:
        first = receive_until(connection, b'data: {"version": 1}')
        assert b"text/event-stream" in first
        receive_until(connection, b":\n\n")
        monitor._jobs.changed()
        receive_until(connection, b'data: {"version": 2}')


def test_a_viewer_stays_for_longer_than_a_request_may_take(
    browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "REQUEST_S", 0.5)
    monkeypatch.setattr(pages, "TELL_EVERY_S", 0.01)
    monkeypatch.setattr(pages, "LOOK_EVERY_S", 0.01)
    with stream(browser) as connection:
        for _ in range(60):
            receive_until(connection, b":\n\n")


def test_a_viewer_that_reads_nothing_is_let_go_and_nobody_waits(
    monitor: Monitor, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "TELL_EVERY_S", 0.0)
    monkeypatch.setattr(server, "ANSWER_S", 0.2)
    # A message is larger than the buffers of a connection.
    monkeypatch.setattr(monitor._jobs, "version", "x" * 20_000_000)
    with stream(browser) as dead:
        assert b"HTTP/1.1 200" in dead.recv(100)
        assert monitor._pages is not None
        while monitor._pages._viewers:
            assert browser.ask("/api/session").status == 200


def test_there_are_as_many_viewers_as_the_bound_allows(
    monkeypatch: pytest.MonkeyPatch, browser: Browser
) -> None:
    monkeypatch.setattr(pages, "MOST_VIEWERS", 2)
    held = [stream(browser), stream(browser)]
    for connection in held:
        receive_until(connection, b"version")
    with stream(browser) as third:
        assert parse(third.recv(65536)).status == 503
    for connection in held:
        connection.close()


def test_a_closed_page_lets_go_of_all_connections_and_of_its_port(monitor: Monitor, browser: Browser) -> None:
    with stream(browser) as viewer, connected(browser) as idle:
        receive_until(viewer, b"version")
        monitor.close()
        assert is_ended(idle)
        while not is_ended(viewer):
            pass
    Monitor(WebPageSettings((browser.port,))).close()
    assert [thread for thread in threading.enumerate() if thread.name == "pyflinkstate page"] == []


def test_a_connection_that_comes_in_the_last_moment_is_closed(monitor: Monitor, browser: Browser) -> None:
    page, goes_on = monitor._server, threading.Event()
    assert page is not None
    page._loop.call_soon_threadsafe(goes_on.wait, PATIENCE_S)
    with connected(browser) as late, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        page._loop.call_soon_threadsafe(page._ended.set)
        goes_on.set()
        page._thread.join(PATIENCE_S)
        gc.collect()
        assert told == []
        assert is_ended(late)


def test_a_port_that_is_taken_is_said_and_the_next_one_is_tried() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match="cannot listen on"):
            Monitor(WebPageSettings((port,)))
        Monitor(WebPageSettings((port, 0))).close()


@pytest.mark.parametrize(
    "ports", [(), (-1,), (65_536,), ("8081",), (1, 65_536, 2), range(0), range(1, 65_538)]
)
def test_a_port_is_checked(ports: Any) -> None:
    with pytest.raises(ConfigurationError, match="needs a port"):
        WebPageSettings(ports)


def test_without_its_extra_the_page_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """What jobs tell is recorded all the same."""
    for name in ("access", "pages", "server"):
        monkeypatch.delitem(sys.modules, f"pyflinkstate.monitor.web.{name}")
    monkeypatch.setitem(sys.modules, "starlette.requests", None)
    monitor = Monitor()
    monitor.observe(None)
    with pytest.raises(ConfigurationError, match=r"pip install 'pyflinkstate\[web\]'"):
        monitor.serve(WebPageSettings())
    assert monitor.address is None
    monitor.close()


def test_a_monitor_without_a_page_loads_no_server() -> None:
    script = (
        "import sys; from pyflinkstate.monitor import Monitor; Monitor().close(); "
        "sys.exit(bool({'starlette', 'uvicorn', 'anyio'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_the_page_ends_with_its_program() -> None:
    """Also while somebody looks; and all that it has said is where the page is."""
    program = (
        "import socket\n"
        "from pyflinkstate.monitor import Monitor\n"
        "from pyflinkstate.runtime.master import WebPageSettings\n"
        "address = Monitor(WebPageSettings()).address\n"
        "host, _, token = address.partition('//')[2].partition('/?token=')\n"
        "viewer = socket.create_connection(host.split(':'))\n"
        "known = f'Host: {host}\\r\\nAuthorization: Bearer {token}'\n"
        "viewer.sendall(f'GET /api/events HTTP/1.1\\r\\n{known}\\r\\n\\r\\n'.encode())\n"
        "assert viewer.recv(12) == b'HTTP/1.1 200'\n"
        "print(address)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=PATIENCE_S, check=True
    )
    assert done.stderr == f"the web page is at {done.stdout}"
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
