"""The file that keeps the token of a page, so that a bookmark and a scraper survive a restart of the program.

Whoever reads the token may steer the jobs, so a file that others can read is refused, as is one that somebody
else could write a known token into.
"""

from __future__ import annotations

import os
import re
import secrets
from contextlib import suppress
from pathlib import Path

from pyflinkstate.errors import ConfigurationError

#: A token is in an address, and is not guessed.
_TOKEN = re.compile(r"[A-Za-z0-9._~-]{16,256}")
#: Others may do nothing with the file, and its group may only read it.
_TOO_MANY_MAY = 0o027


def new_token() -> str:
    """Return a token that nobody knows."""
    return secrets.token_urlsafe(32)


def token_in(path: str) -> str:
    """Return the token in a file; a file that is not there is made, with a new token.

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
