"""A small HTTP server with a bound on everything: connections, viewers, bytes and times.

Each connection has a thread for one request, which must be there within ``REQUEST_S`` as a whole and not byte
by byte, and be answered within ``ANSWER_S``; an answer in parts has so long for each. If too many connections
are open, a further one is told so and closed. A viewer of the events needs no thread: one thread tells all of
them, now and then, that something has changed, and lets go of those that do not take it at once. So neither a
slow viewer nor a dead one costs the job anything.

The threads end with the process, or with :meth:`PageServer.close`.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
import time
from collections.abc import Callable, Iterable

from pyflinkstate.errors import ConfigurationError
from pyflinkstate.monitor.web.http import BadRequestError, Request, Response, end_of_head, parse_head

MOST_CONNECTIONS = 64
MOST_VIEWERS = 128
REQUEST_S = 10.0
ANSWER_S = 20.0
#: Up to this many unread bytes are drained before the connection is closed.
MOST_LEFTOVER_BYTES = 1 << 20
#: The least time between two messages to viewers (Flink: the default of ``web.refresh-interval``).
TELL_EVERY_S = 3.0
#: Interval of the keep-alive comments sent to viewers, so that proxies keep the connection open.
SIGN_OF_LIFE_S = 15.0

#: Somebody who asks for something looks for so long.
WATCHED_S = 10.0

_log = logging.getLogger("pyflinkstate.monitor")

Handle = Callable[[Request], Response]


class PageServer:
    """Answers requests on one port.

    Args:
        host: the address to listen on.
        ports: the ports to try, in order; 0 is any free one.
        handle: answers a request; called on several threads at a time.
        request_s: how long a request may take to come.

    Raises:
        ConfigurationError: none of the ports is free, or the host is not one of this machine.
    """

    def __init__(self, host: str, ports: Iterable[int], handle: Handle, request_s: float = REQUEST_S) -> None:
        self._handle = handle
        self._request_s = request_s
        self._listener = _listen(host, ports)
        self.port: int = self._listener.getsockname()[1]
        self._free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self._viewers = _Viewers()
        self._is_closed = False
        self._asked_s = -WATCHED_S
        threading.Thread(target=self._accept, name="pyflinkstate page", daemon=True).start()

    def changed(self, message: bytes) -> None:
        """Tell the viewers soon; only the last of several messages is sent. This never waits."""
        self._viewers.changed(message)

    def is_watched(self) -> bool:
        """Return whether there is a viewer, or somebody has asked for something in the last moments."""
        return self._viewers.are_there() or time.monotonic() - self._asked_s < WATCHED_S

    def close(self) -> None:
        """Stop listening, and let go of all viewers."""
        self._is_closed = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)  # wakes up the thread that accepts
        self._listener.close()
        self._viewers.close()

    def _accept(self) -> None:
        while not self._is_closed:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                if not self._is_closed:
                    time.sleep(0.1)  # out of file descriptors, which others will give back
                continue
            if not self._free.acquire(blocking=False):
                _refuse(connection)
            elif not self._begin(connection):
                self._free.release()
                _refuse(connection)

    def _begin(self, connection: socket.socket) -> bool:
        """Serve a connection on a thread of its own; return False if the system has none left."""
        try:
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()
        except RuntimeError:
            return False
        return True

    def _serve(self, connection: socket.socket) -> None:
        try:
            if not self._is_kept(connection):
                _end(connection)
        finally:
            self._free.release()

    def _is_kept(self, connection: socket.socket) -> bool:
        try:
            return self._answer(connection)
        except (OSError, ValueError):  # the peer has left, or is too slow
            return False

    def _answer(self, connection: socket.socket) -> bool:
        """Answer one request; return whether the connection goes on as a viewer's."""
        has_body = True
        try:
            request = _receive(connection, time.monotonic() + self._request_s)
            has_body = request.method != "HEAD"
            response = self._respond(request)
        except BadRequestError as error:
            response = Response(error.status)
        if response.is_stream and has_body:
            return self._viewers.add(connection, response)
        _send(connection, response.encode(has_body), time.monotonic() + ANSWER_S)
        for part in response.parts:
            _send(connection, part, time.monotonic() + ANSWER_S)
        return False

    def _respond(self, request: Request) -> Response:
        self._asked_s = time.monotonic()
        try:
            return self._handle(request)
        except BadRequestError:
            raise
        except Exception:  # noqa: BLE001 - whatever it is, the server goes on, and the log has it
            _log.exception("the page could not answer %s", request.path)
            return Response(500)


def _listen(host: str, ports: Iterable[int]) -> socket.socket:
    error: OSError | None = None
    for port in ports:
        try:
            family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
            return socket.create_server((host, port), family=family, backlog=MOST_CONNECTIONS)
        except OSError as failed:
            error = failed
    raise ConfigurationError(
        f"the web page cannot listen on {host}: {error}; choose another host or port, or port 0 for any"
    )


def _receive(connection: socket.socket, until_s: float) -> Request:
    """Return the request that comes, all of it before a moment."""
    data = b""
    while (end := end_of_head(data)) is None:
        data += _some(connection, until_s)
    request = parse_head(data[:end])
    length = request.body_length
    body = data[end:]
    while len(body) < length:
        body += _some(connection, until_s)
    return Request(request.method, request.path, request.query, request.headers, body[:length])


def _some(connection: socket.socket, until_s: float) -> bytes:
    left_s = until_s - time.monotonic()
    if left_s <= 0:
        raise BadRequestError(408)
    connection.settimeout(left_s)
    try:
        data = connection.recv(8192)
    except TimeoutError:
        raise BadRequestError(408) from None
    if not data:
        raise ConnectionError("the peer has left")
    return data


def _send(connection: socket.socket, data: bytes, until_s: float) -> None:
    view = memoryview(data)
    while view:
        left_s = until_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the peer takes its answer too slowly")
        connection.settimeout(left_s)
        view = view[connection.send(view) :]


def _refuse(connection: socket.socket) -> None:
    connection.setblocking(False)
    with contextlib.suppress(OSError):
        connection.send(Response(503).encode())
    _end(connection)


def _end(connection: socket.socket) -> None:
    """Close a connection so that the peer still reads the answer, even if it has sent more than was read.

    A peer that does not stop sending is not read for ever.
    """
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_WR)
        connection.setblocking(False)
        left = MOST_LEFTOVER_BYTES
        while left > 0 and (data := connection.recv(65536)):
            left -= len(data)
    connection.close()


class _Viewers:
    """The connections that wait for news, and the thread that tells them."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._connections: list[socket.socket] = []
        self._message: bytes | None = None
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def add(self, connection: socket.socket, response: Response) -> bool:
        """Send a viewer the head of the stream, and keep it; return False if there are too many."""
        with self._condition:
            connection.setblocking(False)
            if self._is_closed or len(self._connections) >= MOST_VIEWERS or not self._has_thread():
                connection.send(Response(503).encode())
                return False
            connection.send(response.encode())
            self._connections.append(connection)
        return True

    def _has_thread(self) -> bool:
        """Start the thread with the first viewer; return False if the system has none left."""
        if self._thread is None:
            try:
                thread = threading.Thread(target=self._run, name="pyflinkstate viewers", daemon=True)
                thread.start()
            except RuntimeError:
                return False
            self._thread = thread
        return True

    def are_there(self) -> bool:
        return bool(self._connections)

    def changed(self, message: bytes) -> None:
        with self._condition:
            self._message = message
            self._condition.notify()

    def close(self) -> None:
        with self._condition:
            self._is_closed = True
            self._condition.notify()
            connections, self._connections = self._connections, []
        for connection in connections:
            _end(connection)

    def _run(self) -> None:
        while not self._is_closed:
            with self._condition:
                self._condition.wait_for(self._has_news, timeout=SIGN_OF_LIFE_S)
                message, self._message = self._message, None
                told = list(self._connections)
            data = b":\n\n" if message is None else b"data: " + message + b"\n\n"
            gone = [connection for connection in told if not _is_told(connection, data)]
            self._forget(gone)
            time.sleep(TELL_EVERY_S)

    def _has_news(self) -> bool:
        return self._is_closed or self._message is not None

    def _forget(self, gone: list[socket.socket]) -> None:
        with self._condition:
            self._connections = [one for one in self._connections if one not in gone]
        for connection in gone:
            connection.close()


def _is_told(connection: socket.socket, data: bytes) -> bool:
    """Return whether a viewer is there and took all of a message at once."""
    try:
        if _has_left(connection):
            return False
        return connection.send(data) == len(data)
    except OSError:
        return False


def _has_left(connection: socket.socket) -> bool:
    """Read away what a viewer sends; return whether it has closed its end."""
    try:
        return connection.recv(4096) == b""
    except BlockingIOError:
        return False
