"""A wrapper of a user's source, whose errors name the source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyflinkstate.api.values import Offset
from pyflinkstate.errors import PyFlinkStateError, SourceError
from pyflinkstate.runtime.sources.sources import Available, Epoch, Source


class GuardedSource(Source):
    """Wraps a user's source: its errors become a ``SourceError``, after which a job may restart.

    Args:
        inner: the user's source.
        name: its name in the plan.
    """

    def __init__(self, inner: Source, name: str) -> None:
        self._inner = inner
        self._name = name
        self.commits_every_epoch = inner.commits_every_epoch
        self.is_rewindable = inner.is_rewindable
        self.poll_s = inner.poll_s

    def open(self, wake_up: Callable[[], None]) -> None:
        """See :class:`Source`."""
        with self._errors("open"):
            self._inner.open(wake_up)

    def close(self, error: BaseException | None) -> None:
        """See :class:`Source`. Errors are not converted, as the job cannot restart any more."""
        self._inner.close(error)

    def initial_offset(self) -> Offset:
        """See :class:`Source`."""
        with self._errors("initial_offset"):
            return self._inner.initial_offset()

    def latest_offset(self, start: Offset, whole: bool) -> Available:
        """See :class:`Source`."""
        with self._errors("latest_offset"):
            return self._inner.latest_offset(start, whole)

    def plan(self, start: Offset, end: Offset) -> Epoch:
        """See :class:`Source`."""
        with self._errors("plan"):
            return self._inner.plan(start, end)

    def commit(self, end: Offset) -> None:
        """See :class:`Source`."""
        with self._errors("commit"):
            self._inner.commit(end)

    @contextmanager
    def _errors(self, method: str) -> Iterator[None]:
        try:
            yield
        except PyFlinkStateError:
            raise
        except Exception as error:
            raise SourceError(
                f"source {self._name!r}: {method} raised {type(error).__name__}: {error}", source=self._name
            ) from error
