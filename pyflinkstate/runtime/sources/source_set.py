"""Several sources read as one, so that a job has one position."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from pyflinkstate.api.values import Offset
from pyflinkstate.errors import IncompatibleCheckpointError
from pyflinkstate.runtime.sources.sources import Available, Epoch, EpochSet, RddEpoch, Source, SplitEpoch


class SourceSet(Source):
    """An epoch has the next epoch of each source; the offset is a JSON object of their offsets by name.

    Args:
        sources: the sources by name; names must stay the same from one run of the program to the next.
    """

    def __init__(self, sources: dict[str, Source]) -> None:
        self._sources = sources
        self.poll_s = min(source.poll_s for source in sources.values())
        #: The last offset of each source, as far as it is known.
        self._ends: dict[str, Offset] = {}
        self._hold_back: Callable[[frozenset[str]], frozenset[str]] = lambda ended: frozenset()

    def align(self, hold_back: Callable[[frozenset[str]], frozenset[str]]) -> None:
        """Let sources wait for others: ``hold_back`` returns which, given those that have ended."""
        self._hold_back = hold_back

    def open(self, wake_up: Callable[[], None]) -> None:
        """See :class:`Source`."""
        for source in self._sources.values():
            source.open(wake_up)

    def close(self, error: BaseException | None) -> None:
        """See :class:`Source`. Each is closed, whatever the others raise."""
        with ExitStack() as closing:
            for source in reversed(self._sources.values()):
                closing.callback(source.close, error)

    def initial_offset(self) -> Offset:
        """See :class:`Source`."""
        return {name: source.initial_offset() for name, source in self._sources.items()}

    def check_restored(self, position: Offset) -> None:
        """See :class:`Source`."""
        self._check(position)
        for name, source in self._sources.items():
            source.check_restored(position[name])

    def latest_offset(self, start: Offset, whole: bool) -> Available:
        """See :class:`Source`."""
        self._check(start)
        found = {name: source.latest_offset(start[name], whole) for name, source in self._sources.items()}
        self._ends.update({name: available.end for name, available in found.items() if available.is_last})
        ended = self.ended(start)
        for name in self._hold_back(ended) - ended:
            found[name] = Available(start[name])
        end = {name: available.end for name, available in found.items()}
        is_last = all(available.is_last for available in found.values())
        is_settled = all(available.is_settled for available in found.values())
        return Available(end, is_last, is_full=is_settled and not is_last)

    def _check(self, position: Offset) -> None:
        if not isinstance(position, dict) or set(position) != set(self._sources):
            raise IncompatibleCheckpointError(
                f"the checkpoint's source position {position!r} does not fit the sources "
                f"{', '.join(self._sources)}: restore with the sources that the checkpoint was taken with"
            )

    def plan(self, start: Offset, end: Offset) -> Epoch:
        """See :class:`Source`."""
        epochs: dict[str, SplitEpoch | RddEpoch | None] = {}
        for name, source in self._sources.items():
            epoch = None if start[name] == end[name] else source.plan(start[name], end[name])
            assert not isinstance(epoch, EpochSet), "a SourceSet cannot contain another SourceSet"
            epochs[name] = epoch
        return EpochSet(epochs, self.ended(end))

    def ended(self, end: Offset) -> frozenset[str]:
        """Return the names of the sources that end at ``end`` or before."""
        return frozenset(name for name, last in self._ends.items() if last == end[name])

    def commit(self, end: Offset) -> None:
        """See :class:`Source`."""
        self._check(end)
        for name, source in self._sources.items():
            source.commit(end[name])
