"""HTTP as values: what is taken, and that everything else is refused and nothing else happens."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyflinkstate.monitor.web.http import (
    MOST_BODY_BYTES,
    MOST_HEAD_BYTES,
    BadRequestError,
    Request,
    Response,
    end_of_head,
    parse_head,
)


def status_of(data: bytes) -> int:
    try:
        end = end_of_head(data)
        return 0 if end is None else parse_head(data[:end]).body_length and 0
    except BadRequestError as error:
        return error.status


def test_a_request_is_taken() -> None:
    request = parse_head(b"GET /api/jobs?token=a%20b&x= HTTP/1.1\r\nHost: h:1\r\nCookie: a=1; b=2\r\n\r\n")
    assert request == Request("GET", "/api/jobs", {"token": "a b"}, {"host": "h:1", "cookie": "a=1; b=2"})
    assert request.cookie("b") == "2"
    assert request.cookie("c") is None


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"", 400),
        (b"GET / HTTP/2.0", 400),
        (b"PUT / HTTP/1.1", 400),
        (b"GET http://other/ HTTP/1.1", 400),
        (b"GET  / HTTP/1.1", 400),
        (b"GET /\x00 HTTP/1.1", 400),
        (b"GET /" + b"a" * 2048 + b" HTTP/1.1", 400),
        (b"GET / HTTP/1.1\r\nHost : a", 400),
        (b"GET / HTTP/1.1\r\n folded: a", 400),
        (b"GET / HTTP/1.1\r\nHost: a\nCookie: b", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b", 400),
        (b"GET / HTTP/1.1\r\nCookie: a\r\nCookie: b", 400),
        (b"GET / HTTP/1.1\r\nX: \xff", 400),
        (b"GET / HTTP/1.1\r\n" + b"A: b\r\n" * 65 + b"Z: z", 431),
        (b"GET /?" + b"a=1&" * 11 + b"b=2 HTTP/1.1", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: -1", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: 1e3", 400),
        (b"POST / HTTP/1.1\r\nContent-Length: %d" % (MOST_BODY_BYTES + 1), 413),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999", 400),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked", 501),
    ],
)
def test_what_is_refused(head: bytes, status: int) -> None:
    assert status_of(head + b"\r\n\r\n") == status


def test_a_head_that_never_ends_is_refused() -> None:
    assert end_of_head(b"a" * (MOST_HEAD_BYTES - 1)) is None
    assert status_of(b"a" * MOST_HEAD_BYTES) == 431


@pytest.mark.timeout(20)
def test_a_header_is_refused_in_linear_time() -> None:
    """If the spaces before a value could be matched in two ways, each of these would take about a second."""
    head = b"GET / HTTP/1.1\r\nA:" + b" " * 16_000 + b"\x00\r\n\r\n"
    assert {status_of(head) for _ in range(100)} == {400}


@given(st.binary(max_size=400))
def test_any_bytes_are_taken_or_refused(data: bytes) -> None:
    assert status_of(data + b"\r\n\r\n") in (0, 400, 413, 431, 501)


def test_a_response_says_what_every_response_has_to_say() -> None:
    text = Response(200, b"abc").encode().decode()
    assert text.startswith("HTTP/1.1 200 OK\r\n")
    assert text.endswith("\r\n\r\nabc")
    for said in ("Content-Length: 3", "nosniff", "default-src 'none'", "no-store", "frame-ancestors 'none'"):
        assert said in text
    assert "Access-Control" not in text
    assert Response(200, b"abc").encode(has_body=False).endswith(b"\r\n\r\n")
