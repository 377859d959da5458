"""Sources around other sources: several read as one, one after initial rows, and one of a user.

An offset must be a JSON value, so that a checkpoint can keep it. JSON refuses some values, and quietly
changes others: a tuple becomes a list. A job that restarts would then begin at another offset than a job that
is restored from the same checkpoint. So each offset of a user's source is checked.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack

import attrs

from pyflinkstate.api import JsonObject, Position, safe_repr
from pyflinkstate.errors import (
    FunctionResultError,
    IncompatibleCheckpointError,
    SourceError,
)
from pyflinkstate.runtime.sources.sources import Available, Epoch, EpochSet, RddEpoch, Source, SplitEpoch
from pyflinkstate.runtime.wire import errors_as

#: Marks a uid that could be taken for a place.
UID = "uid:"
#: Marks a place that could be taken for a uid, as the name of the source begins like one.
PLACE = "name:"

_log = logging.getLogger("pyflinkstate.sources")


class LiveReader:
    """Asks a source for an epoch that is read live, if it is to be, and keeps it until it is planned."""

    def __init__(self, source: Source) -> None:
        self._source = source
        #: Whether the source is read live if it can be.
        self.is_on = False
        self._epoch: SplitEpoch | None = None

    def ask(self, start: Position) -> Available | None:
        """Return that the source is read live from ``start``; None if its epoch must be planned."""
        self._epoch = self._source.live(start) if self.is_on else None
        return None if self._epoch is None else Available(start, is_live=True)

    def hold_back(self) -> None:
        """Read nothing of the source now."""
        self._epoch = None

    def epoch(self, start: Position, end: Position) -> SplitEpoch | None:
        """Return the epoch that is read live; None if there is none, or an end is planned."""
        return self._epoch if start == end else None


class SourceSet(Source):
    """An epoch has the next epoch of each source; the offset is a JSON object of their offsets by name.

    Args:
        sources: the sources by name, by which a checkpoint finds them again: see :meth:`restored`.
        places: the names that the sources have if they have no uid. By default, no source has one.
    """

    def __init__(self, sources: dict[str, Source], places: Mapping[str, str] | None = None) -> None:
        self._sources = sources
        self._places = {name: name for name in sources} if places is None else places
        #: Where sources begin that a checkpoint does not have; asked for once, as later attempts begin there
        #: too.
        self._firsts: dict[str, Position] = {}
        #: The position at which the job begins, or continues from a checkpoint.
        self._start: dict[str, Position] = {}
        self.poll_s = min(source.poll_s for source in sources.values())
        #: The last known offset of each source.
        self._ends: dict[str, Position] = {}
        self._hold_back: Callable[[frozenset[str]], frozenset[str]] = lambda ended: frozenset()
        self._live = {name: LiveReader(source) for name, source in sources.items()}

    def align(self, hold_back: Callable[[frozenset[str]], frozenset[str]]) -> None:
        """Let sources wait for others: ``hold_back`` returns them, given those that have ended."""
        self._hold_back = hold_back

    def read_live(self, does: bool) -> None:
        """Read the sources live that can be, or read none live."""
        for reader in self._live.values():
            reader.is_on = does

    def open(self, wake_up: Callable[[], None]) -> None:
        """See :class:`Source`."""
        for source in self._sources.values():
            source.open(wake_up)

    def close(self, error: BaseException | None) -> None:
        """See :class:`Source`. Each is closed, whatever the others raise."""
        with ExitStack() as closing:
            for source in reversed(self._sources.values()):
                closing.callback(source.close, error)

    def initial_offset(self) -> Position:
        """See :class:`Source`."""
        self._start = {name: source.initial_offset() for name, source in self._sources.items()}
        return self._start

    def restored(self, position: Position, may_drop: bool) -> Position:
        """Return where these sources continue from a checkpoint; one that it lacks begins as a new one.

        Args:
            position: the position in the checkpoint.
            may_drop: whether it may have positions of sources that no longer exist.

        Raises:
            IncompatibleCheckpointError: it has, or it has no position of any of the sources.
        """
        known = position if isinstance(position, dict) else {}
        found = _found_in(known, self._places)
        if not found:
            raise self._misfit(position)
        gone = set(known).difference(found.values())
        if gone and not may_drop:
            raise self._loss(gone, set(self._sources).difference(found))
        self._start = {
            name: known[found[name]] if name in found else self._first_of(name) for name in self._sources
        }
        return self._start

    def had_no_uid(self, name: str, position: Position) -> bool:
        """Return whether a checkpoint has the position of a source that had no uid when it was taken."""
        return _found_in(position if isinstance(position, dict) else {}, self._places).get(name, name) != name

    def planned(self, ends: Mapping[int, Position]) -> dict[int, Position]:
        """Return the ends of epochs that earlier runs, maybe with other sources, have planned.

        An epoch has nothing of a source that its run did not have.

        Args:
            ends: the ends by the number of the epoch.
        """
        planned: dict[int, Position] = {}
        at = self._start
        for number, end in sorted(ends.items()):
            at = planned[number] = self._moved(at, end)
        return planned

    def _moved(self, start: Mapping[str, Position], end: Position) -> dict[str, Position]:
        """Return the end of an epoch, and the start for each source of which that knows nothing."""
        known: JsonObject = end if isinstance(end, dict) else {}
        found = _found_in(known, self._places)
        return {name: known[found[name]] if name in found else at for name, at in start.items()}

    def _first_of(self, name: str) -> Position:
        if name not in self._firsts:
            _log.info("source %r is not in the checkpoint, so it is read from its beginning", name)
            self._firsts[name] = self._sources[name].initial_offset()
        return self._firsts[name]

    def _loss(self, gone: Iterable[str], new: Iterable[str]) -> IncompatibleCheckpointError:
        begins = f" and begin with {_listed(new)} anew" if new else ""
        return IncompatibleCheckpointError(
            f"the checkpoint has positions of the sources {_listed(gone)}, which the program does not have "
            f"(it has {_listed(self._sources)}): restore with the sources that the checkpoint was taken "
            f"with, and set uid() on each before any is added or removed; or give up the positions{begins} "
            f"with allow_non_restored_state=True"
        )

    def check_restored(self, position: JsonObject) -> None:
        """See :class:`Source`."""
        self._check(position)
        for name, source in self._sources.items():
            source.check_restored(position[name])

    def latest_offset(self, start: JsonObject, whole: bool) -> Available:
        """See :class:`Source`."""
        self._check(start)
        found = {
            name: self._live[name].ask(start[name]) or source.latest_offset(start[name], whole)
            for name, source in self._sources.items()
        }
        self._ends.update({name: available.end for name, available in found.items() if available.is_last})
        ended = self.ended(start)
        for name in self._hold_back(ended) - ended:
            found[name] = Available(start[name])
            self._live[name].hold_back()
        end = {name: available.end for name, available in found.items()}
        is_last = all(available.is_last for available in found.values())
        is_settled = all(available.is_settled for available in found.values())
        is_live = any(available.is_live for available in found.values())
        is_full = any(available.is_full for available in found.values()) if is_live else is_settled
        return Available(end, is_last, is_full and not is_last, is_live)

    def _check(self, position: Position) -> None:
        if not isinstance(position, dict) or set(position) != set(self._sources):
            raise self._misfit(position)

    def _misfit(self, position: Position) -> IncompatibleCheckpointError:
        names = ", ".join(name.removeprefix(UID) for name in self._sources)
        return IncompatibleCheckpointError(
            f"the checkpoint's source position {safe_repr(position)} does not fit the sources {names}: "
            f"restore with the sources that the checkpoint was taken with, and set uid() on each before any "
            f"is added or removed"
        )

    def plan(self, start: JsonObject, end: JsonObject) -> Epoch:
        """See :class:`Source`."""
        epochs: dict[str, SplitEpoch | RddEpoch | None] = {}
        for name, source in self._sources.items():
            is_planned = start[name] != end[name]
            live = self._live[name].epoch(start[name], end[name])
            epoch = source.plan(start[name], end[name]) if is_planned else live
            assert not isinstance(epoch, EpochSet), "a SourceSet cannot contain another SourceSet"
            epochs[name] = epoch
        return EpochSet(epochs, self.ended(end))

    def settled(self, end: Position, reached: Mapping[str, list[Position]]) -> JsonObject:
        """Return where an epoch has ended.

        Args:
            end: where it ends; where it begins, for sources that are read live.
            reached: the positions of the splits of those, by the names of the sources.
        """
        assert isinstance(end, dict)
        ends = {name: self._sources[name].reached(end[name], reached[name]) for name in reached}
        return {**end, **ends}

    def ended(self, end: JsonObject) -> frozenset[str]:
        """Return the names of the sources that end at ``end`` or before."""
        return frozenset(name for name, last in self._ends.items() if last == end[name])

    def commit(self, end: JsonObject) -> None:
        """See :class:`Source`."""
        self._check(end)
        for name, source in self._sources.items():
            source.commit(end[name])


def key_of_uid(uid: str) -> str:
    """Return the name of a source with a uid in a position, which is never that of a place."""
    return f"{UID}{uid}" if _number_in(uid) else uid


def key_of_place(name: str, number: int) -> str:
    """Return the name, never that of a uid, of a job's ``number``-th source in a position."""
    return f"{PLACE if name.startswith(UID) else ''}{name}-{number}"


def _listed(names: Iterable[str]) -> str:
    return ", ".join(repr(name.removeprefix(UID)) for name in sorted(names))


def _found_in(position: Iterable[str], places: Mapping[str, str]) -> dict[str, str]:
    """Return the name of each source in a position that has it.

    A source is found by its uid. The others are told apart by their order, and only if there are as many of
    a base name as the position has: otherwise a source could go on where another one was. That also finds
    sources that have got a uid since, and those of earlier versions, which ignored it.
    """
    kept = set(position)
    found = {name: name for name, place in places.items() if name != place and name in kept}
    unknown = {name for name in kept.difference(found) if not name.startswith(UID)}
    before = _by_base_name((name, name) for name in unknown)
    now = _by_base_name((place, name) for name, place in places.items() if name not in found)
    for base, names in now.items():
        if len(names) == len(before[base]):
            found.update(zip(names, before[base], strict=True))
    return found


def _number_in(place: str) -> str:
    """Return the number at the end of a source's key; empty if the string is not a source's key."""
    _, hyphen, number = place.rpartition("-")
    return number if hyphen and number.isdecimal() else ""


def _by_base_name(places: Iterable[tuple[str, str]]) -> defaultdict[str, list[str]]:
    """Return the names of sources in their order, by what is before the number in their places."""
    groups: defaultdict[str, list[tuple[int, str]]] = defaultdict(list)
    for place, name in places:
        number = _number_in(place)
        if number:
            groups[place.removesuffix(f"-{number}")].append((int(number), name))
    return defaultdict(list, {base: [name for _, name in sorted(group)] for base, group in groups.items()})


# --- initial rows ----------------------------------------------------------------------------------

#: In the offset of a job that has not read its initial rows.
UNREAD = "initial_rows"


@attrs.frozen(eq=False)
class InitialRows(Source):
    """Rows that are read once, before the other source of a job: see :class:`SeededSource`.

    Args:
        read: returns an epoch of all rows. It is called only if they are read, and again after a restart.
    """

    gives_rdds = True
    is_bounded = True
    _read: Callable[[], SplitEpoch | RddEpoch]

    def initial_offset(self) -> Position:
        """See :class:`Source`."""
        return 0

    def latest_offset(self, start: Position, whole: bool) -> Available:
        """See :class:`Source`."""
        return Available(1, is_last=True)

    def plan(self, start: Position, end: Position) -> SplitEpoch | RddEpoch:
        """See :class:`Source`; raise ``SourceError`` if the rows cannot be read."""
        with errors_as(SourceError, "initial_state cannot be read:"):
            return self._read()


class SeededSource(Source):
    """Reads initial rows in an epoch of their own, and after that another source.

    From the end of that epoch on, an offset is one of the other source. So the checkpoint after it fits what
    the other source begins with, such as the first batch of a streaming query, and a job that is restored
    from it, or from any later one, does not read the rows again. Before, the offset is the other source's
    first one, with a mark. An attempt that fails in the first epoch leaves no state behind, and the next one
    begins with the rows.

    Args:
        rows: the key in an :class:`EpochSet` and the source of the initial rows.
        rest: the same of the other source, whose offsets are JSON objects.
    """

    def __init__(self, rows: tuple[str, InitialRows], rest: tuple[str, Source]) -> None:
        self._rows_key, self._rows = rows
        self._rest_key, self._rest = rest
        self.commits_every_epoch = self._rest.commits_every_epoch
        self.is_rewindable = self._rest.is_rewindable
        self.poll_s = self._rest.poll_s

    def open(self, wake_up: Callable[[], None]) -> None:
        """See :class:`Source`."""
        self._rest.open(wake_up)

    def close(self, error: BaseException | None) -> None:
        """See :class:`Source`."""
        self._rest.close(error)

    def initial_offset(self) -> Position:
        """See :class:`Source`."""
        return {**self._rest.initial_offset(), UNREAD: True}

    def check_restored(self, position: JsonObject) -> None:
        """See :class:`Source`."""
        self._rest.check_restored(_without_mark(position) if isinstance(position, dict) else position)

    def latest_offset(self, start: JsonObject, whole: bool) -> Available:
        """See :class:`Source`."""
        if UNREAD in start:
            return Available(_without_mark(start), is_full=True)
        return self._rest.latest_offset(start, whole)

    def plan(self, start: JsonObject, end: JsonObject) -> Epoch:
        """See :class:`Source`."""
        if UNREAD in start:
            return EpochSet({self._rows_key: self._rows.plan(0, 1)})
        epoch = self._rest.plan(start, end)
        assert not isinstance(epoch, EpochSet), "initial rows come before a single source"
        return EpochSet({self._rest_key: epoch})

    def commit(self, end: JsonObject) -> None:
        """See :class:`Source`."""
        self._rest.commit(_without_mark(end))


def _without_mark(offset: JsonObject) -> JsonObject:
    return {name: value for name, value in offset.items() if name != UNREAD}


# --- sources of users ------------------------------------------------------------------------------


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
        self._live = LiveReader(inner)

    def read_live(self, does: bool) -> None:
        """Read live what can be read live, or have everything planned."""
        self._live.is_on = does
        if isinstance(self._inner, SourceSet):
            self._inner.read_live(does)

    def open(self, wake_up: Callable[[], None]) -> None:
        """See :class:`Source`."""
        with self._errors("open"):
            self._inner.open(wake_up)

    def close(self, error: BaseException | None) -> None:
        """See :class:`Source`. Errors are not converted, as the job cannot restart any more."""
        self._inner.close(error)

    def initial_offset(self) -> Position:
        """See :class:`Source`."""
        with self._errors("initial_offset"):
            return self._checked(self._inner.initial_offset(), "initial_offset")

    def restored(self, position: Position, may_drop: bool) -> Position:
        """Return where the source continues from a checkpoint; see :meth:`SourceSet.restored`."""
        if not isinstance(self._inner, SourceSet):
            return position
        with self._errors("initial_offset"):
            return self._checked(self._inner.restored(position, may_drop), "initial_offset")

    def planned(self, ends: Mapping[int, Position]) -> Mapping[int, Position]:
        """Return the ends of epochs that earlier runs have planned; see :meth:`SourceSet.planned`."""
        return self._inner.planned(ends) if isinstance(self._inner, SourceSet) else ends

    def settled(self, end: Position, reached: Mapping[str, list[Position]]) -> Position:
        """Return where an epoch has ended; see :meth:`SourceSet.settled`."""
        inner = self._inner
        with self._errors("reached"):
            if isinstance(inner, SourceSet):
                found: Position = inner.settled(end, reached)
            else:
                (positions,) = reached.values()
                found = inner.reached(end, positions)
            return self._checked(found, "reached")

    def check_restored(self, position: Position) -> None:
        """See :class:`Source`."""
        with self._errors("check_restored"):
            self._inner.check_restored(position)

    def latest_offset(self, start: Position, whole: bool) -> Available:
        """See :class:`Source`."""
        with self._errors("live"):
            live = self._live.ask(start)
        if live is not None:
            return live
        with self._errors("latest_offset"):
            available = self._inner.latest_offset(start, whole)
            self._checked(available.end, "latest_offset")
            return available

    def plan(self, start: Position, end: Position) -> Epoch:
        """See :class:`Source`."""
        with self._errors("plan"):
            return self._live.epoch(start, end) or self._inner.plan(start, end)

    def commit(self, end: Position) -> None:
        """See :class:`Source`."""
        with self._errors("commit"):
            self._inner.commit(end)

    def _checked(self, offset: Position, method: str) -> Position:
        try:
            kept = json.loads(json.dumps(offset, allow_nan=False))
            flaw = "" if kept == offset else f"JSON would read it back as {safe_repr(kept)}"
        except (TypeError, ValueError) as error:
            flaw = str(error)
        if flaw:
            raise FunctionResultError(
                f"source {self._name!r}: {method} returned an offset that is not a JSON value, so a "
                f"checkpoint cannot keep it: {safe_repr(offset)}: {flaw}. An offset is made of None, bool, "
                f"int, finite float, str, list, and dict with keys of str",
                source=self._name,
            )
        return offset

    def _errors(self, method: str) -> AbstractContextManager[None]:
        return errors_as(SourceError, f"source {self._name!r}: {method} raised", source=self._name)
