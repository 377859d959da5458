"""Keys of a state that were added, removed and changed, a key group at a time."""

from __future__ import annotations

import attrs
import pyarrow as pa

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.backends.types import RegisteredStateMeta
from pyflinkstate.state_access.differences.rows import alike, changes_of, places_of, rows_of, values_at
from pyflinkstate.state_access.differences.sides import Sides, typed_column
from pyflinkstate.state_access.expiry import Expiry, user_type, user_values
from pyflinkstate.state_access.tables import Column, StateTable


@attrs.frozen
class KeyedPair:
    """The same state in two checkpoints."""

    sides: Sides
    allow_pickle: bool

    def table(self) -> StateTable:
        """Return the rows that differ."""
        declared = self.sides.declared
        assert isinstance(declared, RegisteredStateMeta)
        types = [one or user_type(declared.stored_type) for one in self._user_types]
        values = [
            typed_column(name, type_info) for name, type_info in zip(("old", "new"), types, strict=True)
        ]
        columns = (*self.sides.key_columns(), Column("change", pa.string()), *values)
        return self.sides.table(columns, self._compared, self.allow_pickle)

    @property
    def _user_types(self) -> list[TypeInformation | None]:
        """The types of values, as the program knows them."""
        metas = self.sides.metas
        return [
            user_type(meta.stored_type) if isinstance(meta, RegisteredStateMeta) else None for meta in metas
        ]

    def _compared(
        self, key_group: int, batches: list[pa.RecordBatch | None], columns: tuple[Column, ...]
    ) -> pa.RecordBatch:
        head = [
            pa.concat_arrays([batch.column(n).cast(column.arrow) for batch in batches if batch is not None])
            for n, column in enumerate(columns[1:-3])
        ]
        keys = [(column.type_info, array) for column, array in zip(columns[1:-3], head, strict=True)]
        first, places = places_of(keys, rows_of(batches[0]), self.sides.load)
        values = [self._values(n, batches[n], columns[n - 2].arrow) for n in range(2)]
        differs = ~alike(self._user_types[1], places, values)
        picked = [place[differs] for place in places]
        rows = pa.array(first[differs])
        arrays = [pa.repeat(pa.scalar(key_group, pa.int32()), len(rows))]
        arrays += [column.take(rows) for column in head]
        arrays.append(changes_of(picked))
        arrays += [values_at(value, place) for value, place in zip(values, picked, strict=True)]
        return pa.record_batch(arrays, schema=pa.schema([(column.name, column.arrow) for column in columns]))

    def _values(self, number: int, batch: pa.RecordBatch | None, arrow: pa.DataType) -> pa.Array:
        if batch is None:
            return pa.nulls(0, arrow)
        meta = self.sides.metas[number]
        assert isinstance(meta, RegisteredStateMeta)
        return user_values(meta.stored_type, batch.column("value"), Expiry(0))[0]
