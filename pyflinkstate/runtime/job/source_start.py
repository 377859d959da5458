"""Where the source of a job goes on from when an attempt begins."""

from __future__ import annotations

from pyflinkstate.api.values import Offset
from pyflinkstate.runtime.checkpoints import RestorePoint
from pyflinkstate.runtime.sources import GuardedSource


class SourceStart:
    """The beginning of the source, or where it was at a checkpoint.

    Args:
        source: the source of the job.
        may_drop: whether a checkpoint may have positions of sources that the program no longer has.
    """

    def __init__(self, source: GuardedSource, may_drop: bool) -> None:
        self._source = source
        self._may_drop = may_drop
        #: Asked for once, so that a restart without a checkpoint begins there again.
        self._initial: Offset | None = None

    def position(self, restore: RestorePoint | None, is_final: bool) -> Offset:
        """Return where an attempt begins that restores ``restore``.

        Args:
            restore: the checkpoint, or None.
            is_final: no other checkpoint will be restored instead; the source may drop what is before.
        """
        position = self._restored(restore)
        if position is None:
            if self._initial is None:
                self._initial = self._source.initial_offset()
            return self._initial
        if is_final:
            self._source.commit(position)
        return position

    def check(self, restore: RestorePoint | None) -> None:
        """Compare a checkpoint that will be restored with the source, which may drop what is before."""
        position = self._restored(restore)
        if position is not None:
            self._source.check_restored(position)
            self._source.commit(position)

    def _restored(self, restore: RestorePoint | None) -> Offset | None:
        """Return where the sources go on; None if there is no checkpoint, or one that was seeded."""
        position = None if restore is None else restore.metadata.source_position
        return None if position is None else self._source.restored(position, self._may_drop)
