"""Records that a task takes in batches, as columns, and passes on as columns."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence

from pyflinkstate.runtime.wire import ColumnBatch, FrameCutter, frames


class BatchedRecords:
    """Records that come in batches.

    Args:
        batches: the batches; closing what takes them closes the chain that they come from.
    """

    def __init__(self, batches: Iterable[ColumnBatch]) -> None:
        self.batches = iter(batches)
        self._frames = self.frames(frames.RECORDS_PER_FRAME)
        self.is_over = False

    def frames(self, max_records: int) -> Iterator[ColumnBatch]:
        """Yield the records of one frame after the other."""
        for batch in self.batches:
            yield from batch.parts(max_records, frames.FRAME_BYTES)

    def take(self, cutter: FrameCutter) -> tuple[Sequence[object], list[int | None]]:
        """Return the records of the next frame, which have no timestamps; none at the end."""
        batch = next(self._frames, None)
        if batch is None:
            cutter.has_ended = self.is_over = True
            return (), []
        return batch, [None] * len(batch)

    def close(self) -> None:
        """Close the chain that the records come from, before its end."""
        if isinstance(self.batches, Generator):
            self.batches.close()
