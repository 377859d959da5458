"""Timers that were added and removed, a key group at a time."""

from __future__ import annotations

import attrs
import pyarrow as pa

from pyflinkstate.backends.types import RegisteredQueueMeta
from pyflinkstate.state_access.differences.rows import changes_of, places_of, rows_of
from pyflinkstate.state_access.differences.sides import Sides
from pyflinkstate.state_access.tables import Column, StateTable
from pyflinkstate.state_access.views import timer_service


@attrs.frozen
class TimerPair:
    """The same queue of timers in two checkpoints."""

    sides: Sides
    allow_pickle: bool

    @property
    def service(self) -> str:
        """The name of the timer service, and its kind of time."""
        meta = self.sides.declared
        assert isinstance(meta, RegisteredQueueMeta)
        return ", ".join(reversed(timer_service(meta)))

    def table(self) -> StateTable:
        """Return the timers that only one of the two has."""
        timestamp, change = Column("timestamp_ms", pa.int64()), Column("change", pa.string())
        columns = (*self.sides.key_columns(), timestamp, change)
        return self.sides.table(columns, self._compared, self.allow_pickle)

    def _compared(
        self, key_group: int, batches: list[pa.RecordBatch | None], columns: tuple[Column, ...]
    ) -> pa.RecordBatch:
        parts = columns[1:-1]
        timers = [
            pa.concat_arrays([batch.column(n).cast(column.arrow) for batch in batches if batch is not None])
            for n, column in enumerate(parts)
        ]
        typed = [(column.type_info, array) for column, array in zip(parts, timers, strict=True)]
        first, places = places_of(typed, rows_of(batches[0]), self.sides.load)
        differs = (places[0] < 0) | (places[1] < 0)
        rows = pa.array(first[differs])
        arrays = [pa.repeat(pa.scalar(key_group, pa.int32()), len(rows))]
        arrays += [array.take(rows) for array in timers]
        arrays.append(changes_of([place[differs] for place in places]))
        return pa.record_batch(arrays, schema=pa.schema([(column.name, column.arrow) for column in columns]))
