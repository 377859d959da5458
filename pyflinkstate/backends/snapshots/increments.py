"""The changes since a checkpoint, so that the next checkpoint can write only these.

A map only knows which keys changed since it was last asked. The coordinator chooses the base of an increment,
the last *completed* checkpoint, and the base is known only when the barrier arrives. So the changes between
any two barriers are kept until a later checkpoint is the base. Nothing needs to be undone for an aborted
checkpoint: its changes are simply part of the next increment.
"""

from __future__ import annotations

from typing import Any, Protocol

#: For each state and each of its key groups, the set of entry keys (or the ordered set of timers) that
#: changed.
Changes = dict[str, list[Any]]


class TracksChanges(Protocol):
    """A backend that can write increments."""

    def track_changes(self) -> None:
        """From now on, record what changes."""

    def take_changes(self) -> Changes:
        """Return the changes since the last call, and start again."""


class ChangeHistory:
    """The changes of a backend, kept separately for each interval between two barriers."""

    def __init__(self, backend: TracksChanges) -> None:
        self._backend = backend
        #: By checkpoint, in order: what changed between the previous barrier and its own.
        self._cuts: dict[int, Changes] = {}
        self._base_id: int | None = None
        backend.track_changes()

    def cut(self, checkpoint_id: int, base_id: int | None) -> Changes | None:
        """Return the changes since checkpoint ``base_id``, or None if everything must be written.

        Changes before the base are forgotten: no later increment may have an earlier base.
        """
        self._cuts[checkpoint_id] = self._backend.take_changes()
        if base_id is None or (base_id not in self._cuts and base_id != self._base_id):
            return None
        self._base_id = base_id
        self._cuts = {cut: changes for cut, changes in self._cuts.items() if cut > base_id}
        return _united(self._cuts.values())


def _united(cuts: Any) -> Changes:
    united: Changes = {}
    for changes in cuts:
        for name, groups in changes.items():
            if name in united:
                united[name] = list(map(_union, united[name], groups))
            else:
                united[name] = groups
    return united


def _union(mine: Any, later: Any) -> Any:
    """Return the union; in an ordered set, an element of both has the later place."""
    if isinstance(mine, set):
        return mine | later
    return {change: None for change in mine if change not in later} | later
