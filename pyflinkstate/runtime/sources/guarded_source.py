"""A wrapper of a user's source, whose errors name the source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from pyflinkstate.api.values import Offset
from pyflinkstate.errors import FunctionResultError, PyFlinkStateError, SourceError
from pyflinkstate.runtime.sources.json_offset import part_that_is_no_json
from pyflinkstate.runtime.sources.source_set import SourceSet
from pyflinkstate.runtime.sources.sources import Available, Epoch, Source


class GuardedSource(Source):
    """Wraps a user's source: its errors become a ``SourceError``, after which a job may restart.

    An offset that is not a JSON value is refused with a ``FunctionResultError``, which ends the job.

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
            return self._checked(self._inner.initial_offset(), "initial_offset")

    def restored(self, position: Offset, may_drop: bool) -> Offset:
        """Return where the source continues from a checkpoint; see :meth:`SourceSet.restored`."""
        if not isinstance(self._inner, SourceSet):
            return position
        with self._errors("initial_offset"):
            return self._checked(self._inner.restored(position, may_drop), "initial_offset")

    def planned(self, ends: Mapping[int, Offset]) -> Mapping[int, Offset]:
        """Return the ends of epochs that earlier runs have planned; see :meth:`SourceSet.planned`."""
        return self._inner.planned(ends) if isinstance(self._inner, SourceSet) else ends

    def check_restored(self, position: Offset) -> None:
        """See :class:`Source`."""
        with self._errors("check_restored"):
            self._inner.check_restored(position)

    def latest_offset(self, start: Offset, whole: bool) -> Available:
        """See :class:`Source`."""
        with self._errors("latest_offset"):
            available = self._inner.latest_offset(start, whole)
            self._checked(available.end, "latest_offset")
            return available

    def plan(self, start: Offset, end: Offset) -> Epoch:
        """See :class:`Source`."""
        with self._errors("plan"):
            return self._inner.plan(start, end)

    def commit(self, end: Offset) -> None:
        """See :class:`Source`."""
        with self._errors("commit"):
            self._inner.commit(end)

    def _checked(self, offset: Offset, method: str) -> Offset:
        flaw = part_that_is_no_json(offset)
        if flaw is not None:
            raise FunctionResultError(
                f"source {self._name!r}: {method} returned an offset that is not a JSON value, so a "
                f"checkpoint cannot keep it: {flaw}. An offset is made of None, bool, int, finite float, "
                f"str, list, and dict with keys of str",
                source=self._name,
            )
        return offset

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
