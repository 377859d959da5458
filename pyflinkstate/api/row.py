"""Rows: values with a fixed number of fields, by position or by name (``pyflink.common.types``)."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from pyflinkstate.api.values import FieldValue, Reduced


class RowKind(enum.Enum):
    """The change that a row stands for in a changelog; most rows are inserts (Flink: ``RowKind``)."""

    INSERT = 0
    UPDATE_BEFORE = 1
    UPDATE_AFTER = 2
    DELETE = 3

    def __str__(self) -> str:
        return _SHORT_NAMES[self.value]


_SHORT_NAMES = ("+I", "-U", "+U", "-D")


class Row:
    """Fields by position, ``Row(1, "a")``, or by name, ``Row(id=1, name="a")``.

    A row of names is a schema: call it with values to make rows.

    >>> Person = Row("name", "age")
    >>> person = Person("Ann", 30)
    >>> person, person["age"], person.name, person[0]
    (Row(name='Ann', age=30), 30, 'Ann', 'Ann')

    Rows are equal if their kinds, names and fields are equal; the order of named fields does not matter. Rows
    are mutable, so do not change a row that is a key or an element of a set.

    Raises:
        ValueError: fields are given both by position and by name.
    """

    __slots__ = ("_fields", "_row_kind", "_values")

    _fields: tuple[str, ...] | None
    _row_kind: RowKind
    _values: list[Any]

    def __init__(self, *args: FieldValue, **kwargs: FieldValue) -> None:
        if args and kwargs:
            raise ValueError("a Row has its fields by position or by name, not both")
        self._fields = tuple(kwargs) if kwargs else None
        self._values = list(kwargs.values()) if kwargs else list(args)
        self._row_kind = RowKind.INSERT

    @staticmethod
    def of_kind(row_kind: RowKind, *args: FieldValue, **kwargs: FieldValue) -> Row:
        """Return a row of the given kind, with fields by position or by name."""
        row = Row(*args, **kwargs)
        row.set_row_kind(row_kind)
        return row

    def __call__(self, *args: FieldValue) -> Row:
        """Return a row whose fields are named by the values of this one.

        Fewer values than names make a row of the first names.

        Raises:
            ValueError: there are more values than names.
        """
        if len(args) > len(self._values):
            raise ValueError(f"{self!r} names {len(self._values)} fields, and {len(args)} values are given")
        return row_of(args, tuple(self._values[: len(args)]))

    def get_row_kind(self) -> RowKind:
        """Return the kind, which is ``INSERT`` unless it was set."""
        return self._row_kind

    def set_row_kind(self, row_kind: RowKind) -> None:
        """Set the kind; raise ``ValueError`` if ``row_kind`` is not a ``RowKind``."""
        if not isinstance(row_kind, RowKind):
            raise ValueError(f"{row_kind!r} is not a RowKind")
        self._row_kind = row_kind

    def set_field_names(self, field_names: Sequence[str]) -> None:
        """Name the fields, in order.

        Raises:
            ValueError: there are more or fewer names than fields.
        """
        if len(field_names) != len(self._values):
            raise ValueError(f"{self!r} has {len(self._values)} fields, not {len(field_names)}")
        self._fields = tuple(field_names)

    def get_fields_by_names(self, names: Iterable[str]) -> list[Any]:
        """Return the fields with these names, in this order, or all fields if the row has no names.

        Raises:
            ValueError: no field has one of the names.
        """
        if self._fields is None:
            return list(self._values)
        return [self._values[self._position(name)] for name in names]

    def as_dict(self, recursive: bool = False) -> dict[str, Any]:
        """Return the fields by name.

        Args:
            recursive: whether rows in fields, and in lists and dicts there, become dicts too.

        Raises:
            TypeError: the row, or a row inside it, has no names.
        """
        if self._fields is None:
            raise TypeError(f"{self!r} has no field names; set_field_names() gives it some")
        values = map(_as_dicts, self._values) if recursive else self._values
        return dict(zip(self._fields, values, strict=True))

    # --- fields ------------------------------------------------------------------------------------

    def _position(self, name: str) -> int:
        if self._fields is None or name not in self._fields:
            raise ValueError(f"{self!r} has no field {name!r}")
        return self._fields.index(name)

    def __getitem__(self, item: int | str | slice) -> Any:
        """Return a field by position or name, or a list of fields for a slice."""
        if isinstance(item, str):
            return self._values[self._position(item)]
        return self._values[item]

    def __setitem__(self, key: int | str | slice, value: Any) -> None:
        """Set an existing field by position or name.

        Raises:
            IndexError: there is no such position.
            ValueError: there is no such name, or a slice is set to another number of fields.
        """
        if isinstance(key, str):
            key = self._position(key)
        if isinstance(key, slice):
            value = list(value)
            if len(value) != len(self._values[key]):
                raise ValueError(f"the number of fields of a Row cannot change; {value!r} would change it")
        self._values[key] = value

    def __getattr__(self, item: str) -> Any:
        # copy and pickle ask incomplete rows for special names.
        if not item.startswith("__") and item not in Row.__slots__:
            fields = self._fields
            if fields is not None and item in fields:
                return self._values[fields.index(item)]
        raise AttributeError(f"this Row has no field {item!r}", name=item, obj=self)

    def __setattr__(self, key: str, value: FieldValue) -> None:
        if key not in Row.__slots__:
            raise AttributeError(f"set a field by row[{key!r}] = value, not as an attribute")
        object.__setattr__(self, key, value)

    def __contains__(self, item: object) -> bool:
        """Return whether a field has this name or, in a row without names, this value."""
        return item in (self._values if self._fields is None else self._fields)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    # --- as a whole --------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Row):
            return NotImplemented
        if self._row_kind is not other._row_kind:
            return False
        if self._fields == other._fields:
            return self._values == other._values
        if self._fields is None or other._fields is None:
            return False
        return len(self) == len(other) and self.as_dict() == other.as_dict()

    def __hash__(self) -> int:
        """Rows that differ only in the order of named fields are equal, so their hashes must be equal."""
        return hash(tuple(fields_to_hash(self)))

    def __repr__(self) -> str:
        if self._fields is None:
            return f"<Row({', '.join(map(repr, self._values))})>"
        named = zip(self._fields, self._values, strict=True)
        return f"Row({', '.join(f'{name}={value!r}' for name, value in named)})"

    def __reduce__(self) -> Reduced:
        return _restored, (tuple(self._values), self._fields, self._row_kind.value)

    def __copy__(self) -> Row:
        return row_of(self._values, self._fields, self._row_kind)


def row_of(
    values: Iterable[FieldValue], names: tuple[str, ...] | None, row_kind: RowKind = RowKind.INSERT
) -> Row:
    """Return a row of ``values``, without names if ``names`` is None."""
    row = object.__new__(Row)
    _set_values(row, list(values))
    _set_fields(row, names)
    _set_row_kind(row, row_kind)
    return row


def rearranged(row: Row, places: Iterable[int], names: tuple[str, ...]) -> Row:
    """Return a row of the same kind with the fields at ``places``; the field for -1 is None."""
    values = [*row._values, None]
    return row_of([values[place] for place in places], names, row._row_kind)


# Six times as fast as ``Row.__setattr__``, which only checks what users set.
_set_values, _set_fields, _set_row_kind = (
    vars(Row)[slot].__set__ for slot in ("_values", "_fields", "_row_kind")
)


def _restored(values: tuple[FieldValue, ...], names: tuple[str, ...] | None, row_kind: int) -> Row:
    return row_of(values, names, RowKind(row_kind))


def fields_to_hash(row: Row) -> list[FieldValue]:
    """Return the fields in an order that is the same for all equal rows."""
    if row._fields is None:
        return row._values
    # Sorted by name alone, as values need not be comparable.
    order = sorted(range(len(row._values)), key=list(map(str, row._fields)).__getitem__)
    return [row._values[index] for index in order]


def names_of(row: Row) -> tuple[str, ...] | None:
    """Return the names of a row's fields, or None if it has none."""
    return row._fields


def _as_dicts(value: FieldValue) -> FieldValue:
    if isinstance(value, Row):
        return value.as_dict(recursive=True)
    if isinstance(value, list):
        return [_as_dicts(item) for item in value]
    if isinstance(value, dict):
        return {key: _as_dicts(item) for key, item in value.items()}
    return value
