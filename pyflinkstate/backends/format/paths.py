"""The form of the names in a checkpoint. A file that was tampered with may contain any other name."""

from __future__ import annotations

import re

#: The beginning of the path to a file in the job's ``shared`` folder, from the folder of its checkpoint.
SHARED_PREFIX = "../shared/"

#: Number of digits in a state file's name that identify its writer; the others are random.
_WRITER_DIGITS = 8

_JOB_ID = re.compile(r"[0-9a-f]{32}")
_FILE_NAME = re.compile(r"(\d{1,19}-)?[0-9a-f]{32}")


def is_job_id(name: object) -> bool:
    """Return whether ``name`` can be the id of a job, which is also the name of its folder."""
    return isinstance(name, str) and _JOB_ID.fullmatch(name) is not None


def is_file_name(name: object) -> bool:
    """Return whether ``name`` can be the name of a state file."""
    return isinstance(name, str) and name.isascii() and _FILE_NAME.fullmatch(name) is not None


def is_state_path(path: object) -> bool:
    """Return whether ``path`` can lead from the folder of a checkpoint to a state file.

    State files are in that folder or in the job's shared one: nothing else is ever read or deleted.

    >>> name = 32 * "0"
    >>> is_state_path(name), is_state_path("../shared/7-" + name), is_state_path("../../" + name)
    (True, True, False)
    """
    return isinstance(path, str) and is_file_name(path.removeprefix(SHARED_PREFIX))


def state_file_name(writer: str, digits: str) -> str:
    """Return the name of a new state file.

    Args:
        writer: what :func:`written_by` is to return, or empty.
        digits: 32 random hexadecimal digits.
    """
    return writer + digits[len(writer) :]


def written_by(path: str) -> str:
    """Return the digits that the driver had whose subtasks wrote a state file.

    >>> written_by("../shared/7-" + 8 * "a" + 24 * "0"), written_by(8 * "b" + 24 * "0")
    ('aaaaaaaa', 'bbbbbbbb')
    """
    return path.rpartition("-")[2][:_WRITER_DIGITS]


def written_at(path: str) -> int:
    """Return at which checkpoint a shared file was written, or 0 if its name does not tell.

    >>> written_at("../shared/7-" + 32 * "0"), written_at("../shared/" + 32 * "0")
    (7, 0)
    """
    number, dash, _ = path.removeprefix(SHARED_PREFIX).partition("-")
    return int(number) if dash else 0
