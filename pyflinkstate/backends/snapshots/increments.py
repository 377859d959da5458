"""What changed since a checkpoint, so that the next one need not write the rest.

A map only knows the keys that changed since it was asked last. Which checkpoint an increment is put on
top of is the coordinator's choice, and known only when the barrier comes: the last *completed* one. So the
changes between any two barriers are kept until a later checkpoint is the base. An aborted checkpoint
needs no undoing that way: its changes are simply part of the next increment.
"""

from __future__ import annotations

from typing import Any, Protocol

#: For each state, and there for each key group, a set of the entry keys (or timers, in order) that changed.
Changes = dict[str, list[Any]]


class TracksChanges(Protocol):
    """What is asked of a backend that can write increments."""

    def track_changes(self) -> None:
        """Note from now on what changes."""

    def take_changes(self) -> Changes:
        """Return what changed since the last call, and begin anew."""


class ChangeHistory:
    """The changes of a backend, cut at every barrier."""

    def __init__(self, backend: TracksChanges) -> None:
        self._backend = backend
        #: By checkpoint, in order: what changed between the barrier before it and its own.
        self._cuts: dict[int, Changes] = {}
        self._base_id: int | None = None
        backend.track_changes()

    def cut(self, checkpoint_id: int, base_id: int | None) -> Changes | None:
        """Return what changed since checkpoint ``base_id``; None where everything must be written.

        Changes before the base are forgotten: no later increment may ask for an earlier one.
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
    """Return both; what is in both has its later place, where there is an order."""
    if isinstance(mine, set):
        return mine | later
    return {change: None for change in mine if change not in later} | later
