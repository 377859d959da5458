"""HTTP/1.1 as values: bytes in, a request or a refusal out; a response in, bytes out. No sockets.

It takes what browsers and scrapers send, and refuses everything else, which is less than a general server
takes: ``GET``, ``HEAD`` and ``POST``; no bodies in chunks, no folded headers, one request for each
connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import parse_qs

import attrs

#: How long the request line and all headers may be together.
MOST_HEAD_BYTES = 16_384
MOST_HEADERS = 64
MOST_BODY_BYTES = 4_096

_REQUEST_LINE = re.compile(rb"(GET|HEAD|POST) (/[!-~]{0,2047}) HTTP/1\.[01]")
#: The spaces around a value are cut off later: two repeats that both take spaces could take quadratic time.
_HEADER = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]{1,64}):([ -~\t]*)")
#: If one of these comes twice, two readers could see two requests.
_ONLY_ONCE = frozenset({"authorization", "content-length", "cookie", "host", "origin"})
_END_OF_HEAD = b"\r\n\r\n"

_REASONS = {
    200: "OK",
    202: "Accepted",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    409: "Conflict",
    413: "Content Too Large",
    421: "Misdirected Request",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
}

#: What every answer says: it is not to be kept, guessed, framed, or read by other sites, and loads nothing.
_ALWAYS = {
    "Cache-Control": "no-store",
    "Connection": "close",
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class BadRequestError(Exception):
    """A request is refused with this status; it never leaves the server."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


@attrs.frozen
class Request:
    """A request; the names of headers are in lower case.

    Attributes:
        path: as it was sent, without the query.
        query: the first value of each parameter.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""

    @property
    def body_length(self) -> int:
        """The length that the body must have.

        Raises:
            BadRequestError: it is no number, or too large, or the body comes in another way.
        """
        if "transfer-encoding" in self.headers:
            raise BadRequestError(501)
        text = self.headers.get("content-length", "0")
        if not (text.isascii() and text.isdecimal() and len(text) < 10):
            raise BadRequestError(400)
        if int(text) > MOST_BODY_BYTES:
            raise BadRequestError(413)
        return int(text)

    def cookie(self, name: str) -> str | None:
        """Return the value of a cookie."""
        return next((value for key, value in self.cookies() if key == name), None)

    def cookies(self) -> Iterator[tuple[str, str]]:
        """Yield the names and values of all cookies, as they were sent."""
        for part in self.headers.get("cookie", "").split(";"):
            key, equals, value = part.strip().partition("=")
            if equals:
                yield key, value

    @property
    def is_secure(self) -> bool:
        """Whether a proxy says that the browser speaks HTTPS to it."""
        chain = self.headers.get("x-forwarded-proto", "").split(",")
        forwarded = self.headers.get("forwarded", "").partition(",")[0]
        stated = {part.strip().lower().replace('"', "") for part in forwarded.split(";")}
        return chain[0].strip().lower() == "https" or "proto=https" in stated


@attrs.frozen
class Response:
    """An answer; an ``is_stream`` has no end, and more is sent after its body.

    If there are ``parts``, they follow the body as they come, and the end of the connection ends them.
    """

    status: int
    body: bytes = b""
    content_type: str = "text/plain; charset=utf-8"
    headers: Mapping[str, str] = attrs.Factory(dict)
    is_stream: bool = False
    parts: Iterable[bytes] = ()
    #: Each is a ``Set-Cookie`` of its own.
    cookies: tuple[str, ...] = ()

    def encode(self, has_body: bool = True) -> bytes:
        """Return its bytes, with or without those of the body."""
        is_whole = not (self.is_stream or self.parts)
        length = {"Content-Length": str(len(self.body))} if is_whole else {}
        fields = {**_ALWAYS, "Content-Type": self.content_type, **length, **self.headers}
        lines = [*fields.items(), *(("Set-Cookie", cookie) for cookie in self.cookies)]
        head = "".join(f"{name}: {value}\r\n" for name, value in lines)
        line = f"HTTP/1.1 {self.status} {_REASONS[self.status]}\r\n"
        return f"{line}{head}\r\n".encode("latin-1") + (self.body if has_body else b"")


def end_of_head(data: bytes) -> int | None:
    """Return where the body begins, or None if the head is not there yet.

    Raises:
        BadRequestError: it is too long already.
    """
    end = data.find(_END_OF_HEAD, 0, MOST_HEAD_BYTES + len(_END_OF_HEAD))
    if end >= 0:
        return end + len(_END_OF_HEAD)
    if len(data) >= MOST_HEAD_BYTES:
        raise BadRequestError(431)
    return None


def parse_head(head: bytes) -> Request:
    """Return the request whose head this is.

    Raises:
        BadRequestError: it is not one that this server takes.
    """
    first, *lines = head.removesuffix(_END_OF_HEAD).split(b"\r\n")
    found = _REQUEST_LINE.fullmatch(first)
    if found is None:
        raise BadRequestError(400)
    if len(lines) > MOST_HEADERS:
        raise BadRequestError(431)
    path, _, query = found[2].decode("ascii").partition("?")
    return Request(found[1].decode("ascii"), path, _parameters(query), _headers(lines))


def _headers(lines: list[bytes]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        found = _HEADER.fullmatch(line)
        if found is None:
            raise BadRequestError(400)
        name = found[1].decode("ascii").lower()
        if name in headers and name in _ONLY_ONCE:
            raise BadRequestError(400)
        headers[name] = found[2].decode("ascii").strip()
    return headers


def _parameters(query: str) -> dict[str, str]:
    try:
        found = parse_qs(query, max_num_fields=10)
    except ValueError:
        raise BadRequestError(400) from None
    return {name: values[0] for name, values in found.items()}
