"""Says to whom a file system has refused something: on a cluster each host may have users of its own."""

from __future__ import annotations

import os
import pwd
import socket


def reason_of(error: BaseException) -> str:
    """Return the message of an error and, if it is about permissions, the refused user and host."""
    if not isinstance(error, PermissionError):
        return str(error)
    return f"{error} (refused to user {_user()} on host {socket.gethostname()})"


def _user() -> str:
    """Return the name of the user that this process has now, whatever its environment says."""
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return str(os.geteuid())  # in a container, a user may have no name
