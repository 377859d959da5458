"""Who may see the page: a token in the address that is logged, then a cookie; and which hosts it answers for.

The token comes with the first request, ``/?token=...``, or with each as ``Authorization: Bearer ...``. A
browser gets a cookie for it, which scripts cannot read and other sites cannot send. Actions need more: a
second token in a header, which the page asks for and no other site can send without being asked first (CORS
is never granted), and an ``Origin``, if there is one, that is this host.

A name in ``Host`` has to be one that this server was given. Otherwise a site could let its own name point to
this address, and its scripts would pass for the page's own (DNS rebinding). Addresses as numbers cannot be
misused in this way.

Requests that a proxy and this server could read differently are refused before anything else is looked at.
"""

from __future__ import annotations

import hmac
import ipaddress
import os
import re
import secrets
from collections.abc import Collection
from contextlib import suppress
from functools import partial
from pathlib import Path

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from pyflinkstate.errors import ConfigurationError

#: The header that carries the token for actions.
ACTION_HEADER = "x-action-token"
#: The names of the cookies of pages end with the port.
COOKIE = "pyflinkstate-"
#: How many cookies of pages of this host are left in a browser, including the cookie of this page.
MOST_COOKIES = 16
MOST_BODY_BYTES = 4_096
#: What a supervisor asks without a token; the answers say nothing but yes or no.
FOR_EVERYBODY = ("/health", "/ready")

_COOKIE_OF_A_PAGE = re.compile(rf"{COOKIE}[0-9]{{1,5}}")
#: If one of these comes twice, two readers could see two requests.
_ONLY_ONCE = ("authorization", "content-length", "cookie", "host", "origin")
#: A browser sends a strict cookie only if a page of the same site leads there, so this one does.
_ENTRY = "<!doctype html><meta http-equiv=refresh content='0;url=./'><title>pyflinkstate</title>"


class Access:
    """Decides about requests to one server.

    Args:
        names: the names under which the server is reached, beside ``localhost`` and numbers.
        metrics_without_token: whether ``/metrics`` is for everybody.
        token: that of the page; None for a new one.
    """

    def __init__(
        self, names: Collection[str] = (), metrics_without_token: bool = False, token: str | None = None
    ) -> None:
        self.token = token or new_token()
        # A page that is open knows both, and is good for the next start with the same token.
        self.action_token, self._session = (_made_of(self.token, use) for use in ("action", "session"))
        self._metrics_without_token = metrics_without_token
        self._names = {"localhost", *(name.lower() for name in names)}

    def answer(self, request: Request) -> Response | None:
        """Return the answer to a request that is refused or brings the token; None if it may see data."""
        status, path = _refused(request), request.scope["path"]
        if status is not None:
            return Response(status_code=status)
        if not self._is_own(request.headers.get("host", "")):
            return Response(status_code=421)
        if path == "/" and _is_same(request.query_params.get("token"), self.token):
            return self._entry(request)
        return None if self._lets_in(request, path) else Response(status_code=401)

    def lets_act(self, request: Request) -> bool:
        """Return whether a request that was let in may also change the job."""
        origin = request.headers.get("origin")
        if origin is not None and not _is_same_origin(origin, request):
            return False
        return self._has_bearer(request) or _is_same(request.headers.get(ACTION_HEADER), self.action_token)

    def _is_own(self, host: str) -> bool:
        name = _name_of(host)
        return name is not None and (name in self._names or _is_number(name))

    def _lets_in(self, request: Request, path: str) -> bool:
        if _is_same(request.cookies.get(_cookie(request)), self._session) or self._has_bearer(request):
            return True
        return path in FOR_EVERYBODY or (self._metrics_without_token and path == "/metrics")

    def _has_bearer(self, request: Request) -> bool:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and _is_same(token.strip(), self.token)

    def _entry(self, request: Request) -> Response:
        """Return the page that leads to the page of jobs, with the cookie for it.

        Cookies name no path, so a browser returns them only below the folder of the page, as it knows it: a
        proxy may have several pages, each below a prefix of its own. The oldest cookies of other pages are
        deleted. Those of programs that have ended would be sent for ever otherwise.
        """
        own, is_secure = _cookie(request), _is_secure(request)
        others = [name for name in request.cookies if _COOKIE_OF_A_PAGE.fullmatch(name) and name != own]
        answer = HTMLResponse(_ENTRY)
        set_cookie = partial(answer.set_cookie, path=None, secure=is_secure, httponly=True, samesite="strict")
        set_cookie(own, self._session)
        for name in others[: max(0, len(others) - MOST_COOKIES + 1)]:
            set_cookie(name, max_age=0)
        return answer


def _made_of(token: str, use: str) -> str:
    """Return another secret, from which the token cannot be found."""
    return hmac.digest(token.encode("ascii"), use.encode("ascii"), "sha256").hex()


def _refused(request: Request) -> int | None:
    """Return the status for a request that this server does not take, whoever has sent it."""
    headers = request.headers
    if "transfer-encoding" in headers:
        return 501
    if any(len(headers.getlist(name)) > 1 for name in _ONLY_ONCE):
        return 400
    return 413 if int(headers.get("content-length", "0")) > MOST_BODY_BYTES else None


def _cookie(request: Request) -> str:
    """Return the name of this page's cookie: cookies do not know of ports, so two pages need two names."""
    return f"{COOKIE}{request.scope['server'][1]}"


def _is_secure(request: Request) -> bool:
    """Return whether a proxy says that the browser speaks HTTPS to it."""
    chain = request.headers.get("x-forwarded-proto", "").split(",")
    forwarded = request.headers.get("forwarded", "").partition(",")[0]
    stated = {part.strip().lower().replace('"', "") for part in forwarded.split(";")}
    return chain[0].strip().lower() == "https" or "proto=https" in stated


def _is_same_origin(origin: str, request: Request) -> bool:
    """Compare hosts only: a proxy may speak HTTPS to the browser."""
    _, found, host = origin.partition("://")
    return bool(found) and host.lower() == request.headers.get("host", "").lower()


def _is_same(given: str | None, wanted: str) -> bool:
    return given is not None and hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode("ascii"))


def _name_of(host: str) -> str | None:
    """Return a host without its port: ``[::1]:80`` and ``localhost:80``."""
    name, _, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "0")
    return name.lower() if port.isascii() and port.isdecimal() else None


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


# --- the token --------------------------------------------------------------------------------------------

#: A token is in an address, and is not guessed.
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,256}")
#: Others may do nothing with the file, and its group may only read it.
_TOO_MANY_MAY = 0o027


def new_token() -> str:
    """Return a token that nobody knows."""
    return secrets.token_urlsafe(32)


def token_in(path: str) -> str:
    """Return the token in a file; a file that is not there is made, with a new token.

    A bookmark and a scraper survive a restart of the program by it. Whoever reads the token may steer the
    jobs, so a file that others can read is refused, as is one that somebody else could write a known token
    into.

    Raises:
        ConfigurationError: the file cannot be read or made, has no token, or too many may read or write it.
    """
    try:
        with suppress(FileExistsError):
            _make(Path(path))
        with open(path, encoding="ascii", errors="replace") as file:
            mode, token = os.fstat(file.fileno()).st_mode, file.read(1_024).strip()
    except OSError as error:
        raise ConfigurationError(f"the token of the web page cannot be kept in {path}: {error}") from error
    if mode & _TOO_MANY_MAY:
        raise ConfigurationError(
            f"{path} has the token of the web page, and too many users may read or write it: chmod 600 {path}"
        )
    if _TOKEN.fullmatch(token) is None:
        raise ConfigurationError(
            f"{path} has no token for the web page, which is 16 to 256 letters, digits and any of . _ ~ -: "
            f"delete it, and a new one is made"
        )
    return token


def _make(path: Path) -> None:
    """Make a file with a new token; it appears whole.

    Raises:
        FileExistsError: there is one.
    """
    if path.exists():
        return
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(new_token() + "\n")
        os.link(unfinished, path)
    finally:
        os.unlink(unfinished)
