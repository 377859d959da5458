"""Closes several things although one of them raises, and keeps the error that came first."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager

_log = logging.getLogger("pyflinkstate.tasks")

Close = Callable[[], None]


@contextmanager
def closed_at_end(close: Close) -> Iterator[None]:
    """Close at the end of the block; an error of the block is not replaced by one of ``close``."""
    try:
        yield
    except BaseException:
        close_after_error(close)
        raise
    close()


def close_after_error(close: Close) -> None:
    """Close because there was an error, which says more than what ``close`` raises: that is only logged."""
    error = _error_of(close)
    if error is not None:
        _log_later(error)


def close_all(*closes: Close) -> None:
    """Call each, in order, and raise the first error; later ones are logged."""
    errors = [error for error in map(_error_of, closes) if error is not None]
    for error in errors[1:]:
        _log_later(error)
    if errors:
        raise errors[0]


def _error_of(close: Close) -> BaseException | None:
    try:
        close()
    except BaseException as error:  # noqa: BLE001 - also sys.exit() in a user's close()
        return error
    return None


def _log_later(error: BaseException) -> None:
    _log.warning("close() failed after another error: %s: %s", type(error).__name__, error)
