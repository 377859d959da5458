"""A server of HTTP with a bound on everything: connections, bytes and times.

uvicorn reads requests and writes answers, on an event loop in a thread of its own. What it does not bound is
bounded here: how many connections there are, how long a request takes to come, and how long a peer may take
to accept a part of its answer. So neither a slow viewer nor a dead one costs the job anything. Each
connection serves one request, so whatever a peer sends behind it is not read as another one.

The thread ends with the process, or with :meth:`PageServer.close`.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Iterable

import anyio
import h11
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from pyflinkstate.errors import ConfigurationError

#: How many connections are served at a time, including those of viewers.
MOST_CONNECTIONS = 192
MOST_HEAD_BYTES = 16_384
#: How long a request may take to arrive as a whole.
REQUEST_S = 10.0
#: How long a peer may take to accept a part of its answer.
ANSWER_S = 20.0
#: How long closing a server waits for its thread, which a request that is being answered can hold up.
END_TIMEOUT_S = 5.0

#: How many turns of its loop asyncio takes from accepting a connection until that is known here.
_STEPS_OF_ACCEPT = 3

#: What every answer says: it is not to be kept, guessed, framed, or read by other sites, and loads nothing.
_ALWAYS = [
    ("Cache-Control", "no-store"),
    ("Connection", "close"),
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
]
_BUSY = b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nContent-Length: 0\r\n\r\n"
#: Takes what uvicorn would log: anybody who reaches the port could fill the user's log with it.
_SILENT = logging.Logger("uvicorn", logging.CRITICAL + 1)

#: An ASGI application; its arguments are dicts and functions of the protocol.
App = Callable[[object, object, object], Awaitable[None]]


class PageServer:
    """Answers requests on one port.

    Args:
        host: the address to listen on.
        ports: the ports to try, in order; 0 is any free one.
        app: answers the requests.

    Raises:
        ConfigurationError: none of the ports is free, or the host is not one of this machine.
    """

    def __init__(self, host: str, ports: Iterable[int], app: App) -> None:
        self._listener = _listen(host, ports)
        self.port: int = self._listener.getsockname()[1]
        self._config = Config(
            app,
            http=H11Protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            interface="asgi3",
            proxy_headers=False,
            server_header=False,
            date_header=False,
            headers=_ALWAYS,
            h11_max_incomplete_event_size=MOST_HEAD_BYTES,
        )
        self._config.load()
        self._has_begun, self._ended = threading.Event(), asyncio.Event()
        self._thread = threading.Thread(
            target=anyio.run, args=(self._serve,), name="pyflinkstate page", daemon=True
        )
        self._thread.start()
        atexit.register(self.close)

    def close(self) -> None:
        """Stop listening, and close all connections."""
        atexit.unregister(self.close)
        if self._has_begun.wait(END_TIMEOUT_S) and self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join(END_TIMEOUT_S)

    async def _serve(self) -> None:
        """Serve until the end. uvicorn's own ``Server`` would look for the end ten times a second."""
        state = ServerState()
        state.default_headers = self._config.encoded_headers
        self._loop = asyncio.get_running_loop()
        server = await self._loop.create_server(
            lambda: _Connection(self._config, state, {}), sock=self._listener, backlog=MOST_CONNECTIONS
        )
        self._has_begun.set()
        await self._ended.wait()
        self._loop.remove_reader(self._listener)
        self._listener.shutdown(socket.SHUT_RDWR)  # a forked process may have it too
        for _ in range(_STEPS_OF_ACCEPT):
            await asyncio.sleep(0)
        for connection in [*state.connections]:
            connection.transport.abort()
        server.close()


class _Connection(H11Protocol):
    """A connection that is closed if its peer takes too long."""

    def __init__(self, config: Config, server_state: ServerState, app_state: dict[str, object]) -> None:
        super().__init__(config, server_state, app_state)
        self.logger, self.access_log = _SILENT, False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # from now on, writing pauses if the peer does not take all
        self._until_request = self.loop.call_later(REQUEST_S, transport.abort)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.write(_BUSY)
            transport.close()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):  # the request is there
            self._until_request.cancel()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._until_taken = self.loop.call_later(ANSWER_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._until_taken.cancel()


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
