"""Who may see the page: a token in the address that is logged, then a cookie; and which hosts it answers for.

The token comes with the first request, ``/?token=...``, or with each as ``Authorization: Bearer ...``. A
browser gets a cookie for it, which scripts cannot read and other sites cannot send. Actions need more: a
second token in a header, which the page asks for and no other site can send without being asked first (CORS
is never granted), and an ``Origin``, if there is one, that is this host.

A name in ``Host`` has to be one that this server was given. Otherwise a site could let its own name point to
this address, and its scripts would pass for the page's own (DNS rebinding). Addresses as numbers cannot be
misused in this way.
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
from collections.abc import Collection

from pyflinkstate.monitor.web.http import Request

#: The header that carries the token for actions.
ACTION_HEADER = "x-action-token"
#: The beginning of the names of cookies; the port follows.
COOKIE = "pyflinkstate-"
#: So many cookies of pages of this host are left in a browser, among them that of this one.
MOST_COOKIES = 16


class Access:
    """Decides about requests to one server.

    Args:
        names: the names under which the server is reached, beside ``localhost`` and numbers.
        metrics_without_token: whether ``/metrics`` is for everybody.
    """

    def __init__(self, names: Collection[str] = (), metrics_without_token: bool = False) -> None:
        self.token = secrets.token_urlsafe(32)
        self.action_token = secrets.token_urlsafe(32)
        self.metrics_without_token = metrics_without_token
        self._session = secrets.token_urlsafe(32)
        #: Where the server listens. Nobody knows the token before that is known.
        self.port = 0
        self._names = {"localhost", *(name.lower() for name in names)}

    def knows_host(self, request: Request) -> bool:
        """Return whether a request was meant for this server."""
        return self._is_own(request.headers.get("host", ""))

    def _is_own(self, host: str) -> bool:
        name = _name_of(host)
        return name is not None and (name in self._names or _is_number(name))

    def has_token(self, request: Request) -> bool:
        """Return whether the token is in the address."""
        return _is_same(request.query.get("token"), self.token)

    def lets_in(self, request: Request) -> bool:
        """Return whether a request may see data."""
        if _is_same(request.cookie(self._cookie), self._session) or self._has_bearer(request):
            return True
        return self.metrics_without_token and request.path == "/metrics"

    def lets_act(self, request: Request) -> bool:
        """Return whether a request that was let in may also change the job."""
        origin = request.headers.get("origin")
        if origin is not None and not self._is_same_origin(origin, request):
            return False
        return self._has_bearer(request) or _is_same(request.headers.get(ACTION_HEADER), self.action_token)

    def _is_same_origin(self, origin: str, request: Request) -> bool:
        """Compare hosts only: a proxy may speak HTTPS to the browser."""
        _, found, host = origin.partition("://")
        return bool(found) and host.lower() == request.headers.get("host", "").lower()

    def _has_bearer(self, request: Request) -> bool:
        scheme, _, token = request.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and _is_same(token.strip(), self.token)

    def cookies(self, request: Request) -> tuple[str, ...]:
        """Return the cookie for a browser that was let in, and words that take away the oldest of others.

        They name no path, so a browser returns them only below the folder of the page, as it knows it: a
        proxy may have several pages, each below a prefix of its own. Those of programs that have ended
        would be sent for ever otherwise.
        """
        rules = "HttpOnly; SameSite=Strict" + "; Secure" * request.is_secure
        others = [name for name, _ in request.cookies() if name.startswith(COOKIE) and name != self._cookie]
        old = others[: max(0, len(others) - MOST_COOKIES + 1)]
        return (f"{self._cookie}={self._session}; {rules}", *(f"{name}=; {rules}; Max-Age=0" for name in old))

    @property
    def _cookie(self) -> str:
        """Cookies do not know of ports, so two pages on one host need two names."""
        return f"{COOKIE}{self.port}"


def _is_same(given: str | None, wanted: str) -> bool:
    return given is not None and hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode("ascii"))


def _name_of(host: str) -> str | None:
    """Return a host without its port: ``[::1]:80`` and ``localhost:80``."""
    name, _, port = host.rpartition(":") if not host.endswith("]") and ":" in host else (host, "", "0")
    if not (port.isascii() and port.isdecimal()):
        return None
    return name.lower()


def _is_number(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True
