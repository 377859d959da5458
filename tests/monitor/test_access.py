"""Who may see the page: nobody learns anything without the token, and a cookie alone does not act."""

from __future__ import annotations

import pytest
from support_web import JOB_ID, Answer, Browser, browser_of, exchange, monitor_with, story

from pyflinkstate.monitor.hub import Monitor

PATHS = [
    "/",
    "/page.js",
    "/api/jobs",
    f"/api/jobs/{JOB_ID}",
    "/api/events",
    "/api/session",
    "/metrics",
    "/no",
]


@pytest.fixture
def stranger(monitor: Monitor) -> Browser:
    return browser_of(monitor)


def is_bare(answer: Answer, status: int) -> bool:
    return (answer.status, answer.body, answer.headers.get("set-cookie")) == (status, b"", None)


@pytest.mark.parametrize("path", PATHS)
def test_without_the_token_there_is_no_byte_of_data(stranger: Browser, path: str) -> None:
    assert is_bare(stranger.ask(path), 401)
    assert is_bare(stranger.ask(path, "POST"), 401)
    assert is_bare(stranger.ask(path, authorization="Bearer wrong"), 401)
    assert is_bare(stranger.ask(path, authorization="Bearer \xff"), 401)
    assert is_bare(stranger.ask(path, cookie="pyflinkstate=wrong; a"), 401)


def test_a_wrong_token_in_the_address_gives_no_cookie(stranger: Browser) -> None:
    assert is_bare(stranger.ask("/?token=wrong"), 401)
    assert is_bare(stranger.ask("/?token=" + stranger.token[:-1]), 401)
    assert is_bare(stranger.ask("/api/jobs?token=" + stranger.token), 401)


def test_the_cookie_is_out_of_reach_of_scripts_and_other_sites(stranger: Browser) -> None:
    answer = stranger.ask(f"/?token={stranger.token}")
    cookie = answer.headers["set-cookie"]
    assert cookie.lower().endswith("; httponly; samesite=strict")
    assert stranger.token not in cookie
    assert stranger.token.encode() not in answer.body


def test_a_page_at_the_same_port_takes_over_the_cookie_of_the_one_before(stranger: Browser) -> None:
    """However often a program starts, a browser has one cookie of it."""
    stranger.enter()
    assert stranger.cookie is not None
    assert stranger.cookie.partition("=")[0] == f"pyflinkstate-{stranger.port}"


def test_cookies_of_programs_that_have_ended_are_taken_away(monitor: Monitor, stranger: Browser) -> None:
    sent = "; ".join(["theirs=1", *(f"pyflinkstate-{port}=x" for port in range(100, 120))])
    data = exchange(
        stranger.port,
        f"GET /?token={stranger.token} HTTP/1.1\r\nHost: localhost\r\nCookie: {sent}\r\n\r\n".encode(),
    )
    lines = data.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    given = [line.partition(": ")[2] for line in lines if line.startswith("set-cookie")]
    assert given[0].startswith(f"pyflinkstate-{stranger.port}=")
    assert [one.partition(";")[0] for one in given[1:]] == [
        f'pyflinkstate-{port}=""' for port in range(100, 105)
    ]
    assert all("; Max-Age=0;" in one for one in given[1:])


@pytest.mark.parametrize(
    ("headers", "is_secure"),
    [
        ({}, False),
        ({"x_forwarded_proto": "http"}, False),
        ({"x_forwarded_proto": "https"}, True),
        ({"x_forwarded_proto": "https, http"}, True),
        ({"forwarded": 'for=192.0.2.60; proto="HTTPS"; by=203.0.113.43'}, True),
        ({"forwarded": "proto=http, proto=https"}, False),
    ],
)
def test_the_cookie_of_a_page_behind_https_is_sent_through_https_only(
    stranger: Browser, headers: dict[str, str], is_secure: bool
) -> None:
    answer = stranger.ask(f"/?token={stranger.token}", **headers)
    assert ("Secure" in answer.headers["set-cookie"].split("; ")) == is_secure


def test_with_the_cookie_everything_is_there(stranger: Browser) -> None:
    stranger.enter()
    for path in PATHS[:-1]:
        if path != "/api/events":
            assert stranger.ask(path).status == 200, path
    assert stranger.ask("/no").status == 404


def test_a_scraper_comes_with_the_token_in_a_header(stranger: Browser) -> None:
    assert stranger.ask("/metrics", authorization=f"Bearer {stranger.token}").status == 200


def test_metrics_alone_may_be_for_everybody() -> None:
    monitor = monitor_with(story(), metrics_without_token=True)
    stranger = browser_of(monitor)
    assert stranger.ask("/metrics").status == 200
    for path in PATHS:
        if path != "/metrics":
            assert is_bare(stranger.ask(path), 401)
    assert is_bare(stranger.ask("/metrics", host="evil.example"), 421)
    monitor.close()


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "", "127.0.0.1.evil.example", "a:b:c", "::"]
)
def test_another_host_learns_nothing_even_with_the_cookie(stranger: Browser, host: str) -> None:
    stranger.enter()
    for path in PATHS:
        assert is_bare(stranger.ask(path, host=host), 421)


@pytest.mark.parametrize(
    "host", ["localhost:99", "LOCALHOST", "127.0.0.1", "[::1]:8081", "[::1]", "192.0.2.1:5"]
)
def test_numbers_and_localhost_cannot_be_pointed_elsewhere(stranger: Browser, host: str) -> None:
    assert stranger.enter().ask("/api/jobs", host=host).status == 200


def test_a_name_is_known_if_it_was_given() -> None:
    monitor = monitor_with(address="jobs.example")
    assert monitor.address is not None
    assert monitor.address.startswith("http://jobs.example:")
    assert browser_of(monitor).enter().ask("/api/jobs", host="Jobs.Example:8081").status == 200
    monitor.close()


def test_no_other_site_may_read_an_answer(stranger: Browser) -> None:
    answer = stranger.enter().ask("/api/jobs", origin="https://evil.example")
    assert not [name for name in answer.headers if name.startswith("access-control")]
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"


def test_a_cookie_alone_does_not_act(stranger: Browser) -> None:
    stranger.enter()
    path = f"/api/jobs/{JOB_ID}/cancel"
    assert stranger.ask(path).status == 404
    assert is_bare(stranger.ask(path, "POST"), 403)
    assert is_bare(stranger.ask(path, "POST", x_action_token="wrong"), 403)
    right = {"x_action_token": stranger.action_token or ""}
    assert is_bare(stranger.ask(path, "POST", origin="https://evil.example", **right), 403)
    assert is_bare(stranger.ask(path, "POST", origin="null", **right), 403)
    own = f"http://127.0.0.1:{stranger.port}"
    assert stranger.ask(path, "POST", origin=own, **right).status == 409
    assert stranger.ask(f"/api/jobs/{JOB_ID}/format-the-disk", "POST", **right).status == 404


def test_a_page_may_be_without_actions() -> None:
    monitor = monitor_with(story(), has_actions=False)
    browser = browser_of(monitor).enter()
    assert browser.ask("/api/session").json() == {"has_actions": False, "action_token": None}
    bearer = f"Bearer {browser.token}"
    assert is_bare(browser.ask(f"/api/jobs/{JOB_ID}/cancel", "POST", authorization=bearer), 403)
    monitor.close()
