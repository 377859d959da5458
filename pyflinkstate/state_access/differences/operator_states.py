"""Elements of operator state that were added and removed, and entries of broadcast state that were changed.

Elements of lists have no key, and a restore gives them to other subtasks in another order. So a list is
compared as a bag, over all subtasks. The whole state is in memory meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from typing import TypeAlias

import attrs
import pyarrow as pa

from pyflinkstate.api.types import TypeInformation
from pyflinkstate.api.values import TypedValue
from pyflinkstate.errors import StateTableError
from pyflinkstate.state_access.differences.rows import alike, changes_of, places_of, values_at
from pyflinkstate.state_access.differences.sides import typed_column
from pyflinkstate.state_access.identity import Codes, row_codes
from pyflinkstate.state_access.operator_states import OperatorStates
from pyflinkstate.state_access.pickles import comparable
from pyflinkstate.state_access.tables import Column, StateTable

Columns: TypeAlias = tuple[Column, ...]

_CHANGE = Column("change", pa.string())


@attrs.frozen
class OperatorStatePair:
    """The same operator state in two checkpoints.

    Attributes:
        name: its name.
        states: the operator state of the operator in the two; None where there is no such operator.
        allow_pickle: whether pickles are loaded in the rows of the table.
    """

    name: str
    states: tuple[OperatorStates | None, OperatorStates | None]
    allow_pickle: bool

    def table(self) -> StateTable:
        """Return the elements, or the entries of a broadcast state, that differ.

        Raises:
            StateTableError: the two have elements or entries of different types.
        """
        types = self._types()
        value = types["value"]
        if "key" in types:
            head = (typed_column("key", types["key"]), _CHANGE)
            entries = (*head, typed_column("old", value), typed_column("new", value))
            return self._table(OperatorStatePair._entries, entries)
        return self._table(OperatorStatePair._elements, (_CHANGE, typed_column("value", value)))

    def _table(
        self, read: Callable[[OperatorStatePair, Columns], pa.RecordBatch], columns: Columns
    ) -> StateTable:
        return StateTable(columns, partial(_unless_empty, partial(read, self, columns)), self.allow_pickle)

    def _types(self) -> dict[str, TypeInformation]:
        tables = [state.table(self.name) for state in self._present]
        found = [
            {column.name: column.type_info for column in table.columns if column.type_info is not None}
            for table in tables
        ]
        if any(types != found[0] for types in found):
            told = [" to ".join(map(str, types.values())) for types in found]
            raise StateTableError(
                f"operator state {self.name!r} is of {' and of '.join(told)} in the two checkpoints, so it "
                f"cannot be compared",
                state=self.name,
            )
        return found[0]

    @property
    def _present(self) -> list[OperatorStates]:
        return [state for state in self.states if state is not None and self.name in state.written]

    def _columns(self, name: str, arrow: pa.DataType) -> list[pa.Array]:
        """Return a column in both checkpoints; it is empty where the state is not there."""
        found = []
        for state in self.states:
            has_it = state is not None and self.name in state.written
            batches = list(state.table(self.name).read()) if state is not None and has_it else []
            found.append(pa.concat_arrays([pa.nulls(0, arrow), *(batch.column(name) for batch in batches)]))
        return found

    def _entries(self, columns: Columns) -> pa.RecordBatch:
        key, _, old, _ = columns
        keys, values = self._columns("key", key.arrow), self._columns("value", old.arrow)
        both = pa.concat_arrays(keys)
        first, places = places_of([(key.type_info, both)], len(keys[0]), _identity)
        differs = ~alike(old.type_info, places, values)
        picked = [place[differs] for place in places]
        arrays = [both.take(pa.array(first[differs])), changes_of(picked)]
        arrays += [values_at(value, place) for value, place in zip(values, picked, strict=True)]
        return pa.record_batch(arrays, schema=_schema(columns))

    def _elements(self, columns: Columns) -> pa.RecordBatch:
        value = columns[1]
        old, new = self._columns("value", value.arrow)
        both = pa.concat_arrays([old, new])
        codes = row_codes([(value.type_info, both)], _identity)
        removed = _surplus(codes[: len(old)], codes[len(old) :])
        added = [len(old) + row for row in _surplus(codes[len(old) :], codes[: len(old)])]
        kinds = ["removed"] * len(removed) + ["added"] * len(added)
        arrays = [pa.array(kinds, pa.string()), both.take(pa.array(removed + added, pa.int64()))]
        return pa.record_batch(arrays, schema=_schema(columns))


def _unless_empty(read: Callable[[], pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    batch = read()
    if batch.num_rows:
        yield batch


def _schema(columns: Columns) -> pa.Schema:
    return pa.schema([(column.name, column.arrow) for column in columns])


def _surplus(codes: Codes, others: Codes) -> list[int]:
    """Return the rows without a counterpart among the others, each of which matches one row."""
    left = Counter(others.tolist())
    found = []
    for row, code in enumerate(codes.tolist()):
        if left[code] > 0:
            left[code] -= 1
        else:
            found.append(row)
    return found


def _identity(data: bytes) -> TypedValue:
    """Return the identity of a pickle: its value if that is plain and hashable, otherwise its bytes."""
    value = comparable(data)
    try:
        hash(value)
    except TypeError:
        return data
    return value
