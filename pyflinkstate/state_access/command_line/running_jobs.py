"""The commands for jobs that run: they ask the web page of the program, with its token."""

from __future__ import annotations

import json
import os
import re
from argparse import Namespace
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import cast
from urllib.parse import SplitResult, parse_qs, quote, urlsplit

import attrs

from pyflinkstate.api import JsonObject
from pyflinkstate.errors import CheckpointError, ConfigurationError, RuntimeFailure
from pyflinkstate.state_access.command_line.output import Printer

#: The environment variable with the token.
TOKEN = "PYFLINKSTATE_TOKEN"
#: How long to wait for an answer; the page waits for a savepoint for up to ten minutes.
TIMEOUT_S = 630
#: An answer is not longer.
_MOST_BYTES = 1 << 24
_TOKEN = re.compile(r"[!-~]+")
#: What a status of the page means.
_REFUSED = {
    401: "it refuses the token",
    403: "it takes no actions",
    404: "it knows no such job, or is of another version",
    421: "it is reached under another name: use that name, or its address as a number",
}


def jobs(chosen: Namespace, printer: Printer) -> bool:
    """List the jobs on a page."""
    page = _page(chosen)
    shown = ("id", "name", "status", "started_ms", "ended_ms")
    rows = [{name: job[name] for name in shown} for job in page.jobs()]
    printer.table(f"jobs at {page}", rows, times=("started_ms", "ended_ms"))
    return False


def savepoint(chosen: Namespace, printer: Printer) -> bool:
    """Take a savepoint, and print its folder when it is complete."""
    return _act(chosen, printer, "savepoint")


def stop(chosen: Namespace, printer: Printer) -> bool:
    """Stop a job with a savepoint, and print its folder when it is complete."""
    return _act(chosen, printer, "drain" if chosen.drain else "stop")


def cancel(chosen: Namespace, printer: Printer) -> bool:
    """Cancel a job, without a savepoint."""
    return _act(chosen, printer, "cancel")


def _act(chosen: Namespace, printer: Printer, action: str) -> bool:
    page = _page(chosen)
    answer = page.ask("POST", f"api/jobs/{quote(_running(page, chosen.job))}/{action}?wait")
    if printer.as_json:
        printer.value(answer)
    else:
        printer.note(str(answer.get("savepoint", answer["message"])))
    return False


def _running(page: Page, named: str | None) -> str:
    """Return the id of the job with an id or a name, or of the only one that runs.

    Raises:
        ConfigurationError: there is none, or there are several.
    """
    running = {str(job["id"]): job["name"] for job in page.jobs() if job["is_live"]}
    found = [job_id for job_id, name in running.items() if named in (None, job_id, name)]
    if len(found) == 1:
        return found[0]
    which = ", ".join(f"{job_id} ({name})" for job_id, name in running.items()) or "none"
    raise ConfigurationError(f"name one of the jobs that run at {page}: {which}")


@attrs.frozen
class Page:
    """The web page of a program."""

    parts: SplitResult
    token: str = attrs.field(repr=False)

    def __str__(self) -> str:
        return f"{self.parts.scheme}://{self.parts.netloc}{self.parts.path}"

    def jobs(self) -> list[JsonObject]:
        """Return the jobs that it shows."""
        return cast(list[JsonObject], self.ask("GET", "api/jobs")["jobs"])

    def ask(self, method: str, path: str) -> JsonObject:
        """Return the answer to a request. It goes to this host alone: no proxy, and no other address.

        Raises:
            RuntimeFailure: the page cannot be reached, or does not answer as one.
            ConfigurationError: it refuses the request.
            CheckpointError: it could not do what was asked.
        """
        status, body = self._sent(method, f"{self.parts.path.rstrip('/')}/{path}")
        if status in _REFUSED:
            raise ConfigurationError(f"the page at {self} does not do it: {_REFUSED[status]}")
        try:
            answer = json.loads(body)
        except ValueError:
            raise RuntimeFailure(f"{self} is not the page of a program: its status is {status}") from None
        if status != 200 and not (status == 202 and "cancel" in path):
            raise CheckpointError(str(answer["message"]))
        return dict(answer)

    def _sent(self, method: str, path: str) -> tuple[int, bytes]:
        kind = HTTPSConnection if self.parts.scheme == "https" else HTTPConnection
        connection = kind(self.parts.hostname or "", self.parts.port, timeout=TIMEOUT_S)
        try:
            connection.request(method, path, headers={"Authorization": f"Bearer {self.token}"})
            answer = connection.getresponse()
            return answer.status, answer.read(_MOST_BYTES)
        except (OSError, HTTPException) as error:
            why = str(error) or type(error).__name__
            raise RuntimeFailure(
                f"the page at {self} cannot be reached ({why}): does the program run?"
            ) from error
        finally:
            connection.close()


def _page(chosen: Namespace) -> Page:
    """Return the page that is meant.

    Raises:
        ConfigurationError: it is not an address, or there is no token.
    """
    parts = urlsplit(chosen.address)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ConfigurationError("name the address of the web page, such as http://127.0.0.1:8081")
    (token, *_) = parse_qs(parts.query).get("token", [_token_of(chosen.token_file)])
    if _TOKEN.fullmatch(token) is None:
        raise ConfigurationError(
            f"there is no token for the web page: name its file with --token-file, set {TOKEN}, or give the "
            f"address as it was logged"
        )
    return Page(parts, token)


def _token_of(path: str | None) -> str:
    if path is None:
        return os.environ.get(TOKEN, "")
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1_024).strip()
    except OSError as error:
        raise ConfigurationError(f"the token cannot be read: {error}") from error
