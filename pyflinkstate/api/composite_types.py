"""Types with parts: arrays, lists, maps, tuples and rows (``pyflink.common.typeinfo``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Generic, TypeAlias

import attrs

from pyflinkstate.api.basic_types import TypeInformation, check_bytes, misfit
from pyflinkstate.api.checks import check_kind, safe_repr
from pyflinkstate.api.row import Row, RowKind, names_of, row_of
from pyflinkstate.api.values import InternalValue, K, T, T_co, TypedValue, V
from pyflinkstate.errors import ConfigurationError

#: The fields of a tuple.
Fields: TypeAlias = tuple[Any, ...]


def _rounded(type_info: TypeInformation, value: TypedValue) -> Any:
    return None if value is None else type_info.rounded(value)


def _made_by_types(type_info: Any, attribute: attrs.Attribute[Any], given: object) -> None:
    """Check a part of a type."""
    check_kind(
        f"Types.{type_info.maker}(): {attribute.name} must be made by Types, such as Types.LONG()",
        given,
        TypeInformation,
    )


def _refuse_none(value: Iterable[TypedValue], name: str) -> None:
    if any(element is None for element in value):
        raise ValueError(f"None does not fit {name} as an element")


def _as_list(value: TypedValue, name: str) -> Sequence[Any]:
    if not isinstance(value, (list, tuple)):
        raise misfit(value, name)
    return value


@attrs.frozen(repr=False)
class _TypeOfParts(TypeInformation[T_co]):
    """The base of types with parts, which are the arguments of their class."""

    #: The name in ``Types``.
    maker: ClassVar[str]

    def with_parts(self, parts: Sequence[TypeInformation]) -> TypeInformation:
        return type(self)(*parts)

    @property
    def name(self) -> str:
        return f"{self.maker}({', '.join(map(str, self.parts()))})"

    def __repr__(self) -> str:
        return f"{type(self).__name__}<{', '.join(map(repr, self.parts()))}>"


@attrs.frozen(repr=False)
class _SequenceTypeInfo(_TypeOfParts[list[T]], Generic[T]):
    """What lists and arrays have in common: all elements have one type."""

    element_type: TypeInformation[T] = attrs.field(validator=_made_by_types)

    def parts(self) -> tuple[TypeInformation, ...]:
        return (self.element_type,)

    def rounded(self, value: list[T]) -> list[T]:
        return [_rounded(self.element_type, element) for element in value] if self.has_floats() else value


@attrs.frozen(repr=False)
class ListTypeInfo(_SequenceTypeInfo[T]):
    """A list whose elements have one type; None elements are refused, as in Flink's ListSerializer."""

    maker: ClassVar[str] = "LIST"

    def check(self, value: Any) -> list[T]:
        _refuse_none(_as_list(value, self.name), self.name)
        check = self.element_type.check
        return [check(element) for element in value]


# --- arrays ----------------------------------------------------------------------------------------

_PRIMITIVE_KINDS = frozenset({"BOOLEAN", "BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "CHAR"})
_BASIC_ARRAY_KINDS = _PRIMITIVE_KINDS | {"STRING"}


@attrs.frozen(repr=False)
class ArrayTypeInfo(_SequenceTypeInfo[T]):
    """The base of arrays: a list whose elements have one type; None is a legal element."""

    #: The kinds of elements that are allowed; None allows any type.
    element_kinds: ClassVar[frozenset[str] | None] = None

    element_type: TypeInformation[T] = attrs.field(validator=_made_by_types)

    @element_type.validator
    def _check_element_type(self, attribute: object, value: TypeInformation[T]) -> None:
        if self.element_kinds is not None and value.kind not in self.element_kinds:
            kinds = ", ".join(sorted(self.element_kinds))
            raise ConfigurationError(
                f"{self.maker} cannot have elements of {value}, only {kinds}; use Types.OBJECT_ARRAY "
                f"or Types.LIST"
            )

    def check(self, value: Any) -> list[T]:
        check = self.element_type.check
        checked: list[Any] = [
            None if element is None else check(element) for element in _as_list(value, self.name)
        ]
        return checked


@attrs.frozen(repr=False)
class PrimitiveArrayTypeInfo(ArrayTypeInfo[T]):
    """``bytes`` for ``Types.BYTE()``, else a list of numbers, booleans or characters without None.

    Raises:
        ConfigurationError: Java has no such primitive type.
    """

    maker: ClassVar[str] = "PRIMITIVE_ARRAY"
    element_kinds: ClassVar[frozenset[str] | None] = _PRIMITIVE_KINDS

    def check(self, value: Any) -> Any:
        if self.kind:
            return check_bytes(value)
        _refuse_none(_as_list(value, self.name), self.name)
        return ArrayTypeInfo.check(self, value)

    @property
    def kind(self) -> str:
        return "BYTES" if self.element_type.kind == "BYTE" else ""


@attrs.frozen(repr=False)
class BasicArrayTypeInfo(ArrayTypeInfo[T]):
    """A list of numbers, booleans, characters or strings; None is a legal element.

    Raises:
        ConfigurationError: the elements have another type.
    """

    maker: ClassVar[str] = "BASIC_ARRAY"
    element_kinds: ClassVar[frozenset[str] | None] = _BASIC_ARRAY_KINDS


@attrs.frozen(repr=False)
class ObjectArrayTypeInfo(ArrayTypeInfo[T]):
    """A list of elements of any type; None is a legal element."""

    maker: ClassVar[str] = "OBJECT_ARRAY"


# --- maps, tuples, rows ----------------------------------------------------------------------------


@attrs.frozen(repr=False)
class MapTypeInfo(_TypeOfParts[dict[K, V]], Generic[K, V]):
    """A dict with keys of one type and values of another; None is a legal value."""

    maker: ClassVar[str] = "MAP"

    key_type_info: TypeInformation[K] = attrs.field(validator=_made_by_types)
    value_type_info: TypeInformation[V] = attrs.field(validator=_made_by_types)

    def check(self, value: TypedValue) -> dict[K, V]:
        if not isinstance(value, dict):
            raise misfit(value, self.name)
        check_key, check_value = self.key_type_info.check, self.value_type_info.check
        try:
            checked: dict[K, Any] = {
                check_key(key): None if item is None else check_value(item) for key, item in value.items()
            }
        except TypeError as error:
            raise ValueError(f"a key of {self.name}: {error}") from error
        return checked

    def parts(self) -> tuple[TypeInformation, ...]:
        return self.key_type_info, self.value_type_info

    def rounded(self, value: dict[K, V]) -> dict[K, V]:
        keys, items = self.key_type_info, self.value_type_info
        return {keys.rounded(key): _rounded(items, item) for key, item in value.items()}


def _types_of(maker: str, field_types: Iterable[TypeInformation]) -> tuple[TypeInformation, ...]:
    if isinstance(field_types, TypeInformation) or not isinstance(field_types, Iterable):
        raise ConfigurationError(
            f"Types.{maker}() takes a list of types, such as [Types.LONG()], not {field_types!r}"
        )
    return tuple(field_types)


def _types(field_types: Iterable[TypeInformation]) -> tuple[TypeInformation, ...]:
    return _types_of("TUPLE", field_types)


def _converted(
    field_types: Sequence[TypeInformation],
    values: Sequence[TypedValue],
    convert: Callable[[TypeInformation, TypedValue], TypedValue],
) -> Fields:
    return tuple(
        convert(field_type, value) if field_type.need_conversion() and value is not None else value
        for field_type, value in zip(field_types, values, strict=True)
    )


def _to_internal(field_type: TypeInformation, value: TypedValue) -> InternalValue:
    return field_type.to_internal_type(value)


def _from_internal(field_type: TypeInformation, value: InternalValue) -> TypedValue:
    return field_type.from_internal_type(value)


@attrs.frozen(repr=False)
class _TypeOfFields(_TypeOfParts[T_co]):
    """The base of types with fields of different types."""

    field_types: tuple[TypeInformation, ...] = attrs.field(
        converter=_types, validator=attrs.validators.deep_iterable(_made_by_types)
    )

    def parts(self) -> tuple[TypeInformation, ...]:
        return self.field_types

    def get_field_types(self) -> list[TypeInformation]:
        """Return the types of the fields, in order."""
        return list(self.field_types)

    def need_conversion(self) -> bool:
        return True


@attrs.frozen(repr=False)
class TupleTypeInfo(_TypeOfFields[Fields]):
    """A tuple with a fixed number of typed fields; None is a legal field."""

    maker: ClassVar[str] = "TUPLE"

    def check(self, value: TypedValue) -> Fields:
        if not isinstance(value, (tuple, list)):
            raise misfit(value, self.name)
        if len(value) != len(self.field_types):
            raise ValueError(
                f"{safe_repr(value)} has {len(value)} fields, and {self.name} has {len(self.field_types)}"
            )
        return tuple(
            None if field is None else field_type.check(field)
            for field, field_type in zip(value, self.field_types, strict=True)
        )

    def with_parts(self, parts: Sequence[TypeInformation]) -> TypeInformation:
        return type(self)(parts)

    def rounded(self, value: Fields) -> Fields:
        return tuple(map(_rounded, self.field_types, value))

    def to_internal_type(self, obj: TypedValue) -> InternalValue:
        """Return the fields, each in the form that the JVM gets; None stays None."""
        if obj is None:
            return None
        fields = tuple(obj) if isinstance(obj, Row) else obj
        return _converted(self.field_types, self._of_right_length(fields), _to_internal)

    def from_internal_type(self, obj: Sequence[object] | None) -> TypedValue:
        """Return the tuple that :meth:`to_internal_type` was given."""
        return None if obj is None else _converted(self.field_types, obj, _from_internal)

    def _of_right_length(self, fields: TypedValue) -> Sequence[TypedValue]:
        if not isinstance(fields, (tuple, list)) or len(fields) != len(self.field_types):
            raise misfit(fields, self.name)
        return fields

    def __repr__(self) -> str:
        return f"TupleTypeInfo({', '.join(map(repr, self.field_types))})"


@attrs.frozen(init=False, repr=False)
class RowTypeInfo(_TypeOfFields[Row]):
    """A :class:`~pyflinkstate.api.row.Row` with typed fields; None is a legal field.

    The fields are taken by name from a dict or a ``Row`` with names, and by position from a tuple, a list or
    a ``Row`` without names. State keeps a ``Row`` with the names of this type and the kind of the given row.

    Args:
        field_types: the type of each field.
        field_names: a different name for each field. Default: ``f0``, ``f1`` ...

    Raises:
        ConfigurationError: the names are too few, too many, or not all different; or a field has no type.
    """

    maker: ClassVar[str] = "ROW"

    field_names: tuple[str, ...] = attrs.field()

    def __init__(
        self, field_types: Iterable[TypeInformation], field_names: Iterable[str] | None = None
    ) -> None:
        types = _types_of("ROW", field_types)
        if isinstance(field_names, str):
            raise ConfigurationError(
                f"the names of a row's fields are a list, not {field_names!r}: give [{field_names!r}]"
            )
        names = _default_names(len(types)) if field_names is None else tuple(field_names)
        self.__attrs_init__(types, names)

    @field_names.validator
    def _check_names(self, attribute: object, names: tuple[str, ...]) -> None:
        if len(names) != len(self.field_types):
            raise ConfigurationError(
                f"a row of {len(self.field_types)} fields cannot have {len(names)} names"
            )
        if len(set(names)) != len(names) or not all(isinstance(name, str) for name in names):
            raise ConfigurationError(
                f"each field of a row needs a name of its own; the names given are {list(names)}"
            )

    def check(self, value: TypedValue) -> Row:
        kind = RowKind.INSERT
        if isinstance(value, Row):
            kind = value.get_row_kind()
        fields = [
            None if field is None else self._check_field(name, field_type, field)
            for name, field_type, field in zip(
                self.field_names, self.field_types, self._in_order(value), strict=True
            )
        ]
        return row_of(fields, self.field_names, kind)

    def with_parts(self, parts: Sequence[TypeInformation]) -> TypeInformation:
        return RowTypeInfo(parts, self.field_names)

    def rounded(self, value: Row) -> Row:
        return row_of(map(_rounded, self.field_types, value), self.field_names, value.get_row_kind())

    def _check_field(self, name: str, field_type: TypeInformation, field: TypedValue) -> TypedValue:
        try:
            return field_type.check(field)
        except ValueError as error:
            raise ValueError(f"field {name!r}: {error}") from None

    def _in_order(self, value: TypedValue) -> Sequence[TypedValue]:
        """Return the fields of a value that stands for a row, in the order of the type."""
        if isinstance(value, Row):
            names = names_of(value)
            if names is None or names == self.field_names:
                return self._of_right_length(list(value))
            return self._by_name(value.as_dict())
        if isinstance(value, Mapping):
            return self._by_name(value)
        if isinstance(value, (tuple, list)):
            return self._of_right_length(value)
        raise misfit(value, self.name)

    def _by_name(self, fields: Mapping[Any, TypedValue]) -> list[TypedValue]:
        for name in self.field_names:
            if name not in fields:
                raise ValueError(f"{safe_repr(fields)} has no field {name!r}, which {self.name} has")
        if len(fields) != len(self.field_names):
            unknown = next(name for name in fields if name not in self.field_names)
            raise ValueError(
                f"{safe_repr(fields)} has a field {safe_repr(unknown)}, which {self.name} does not have"
            )
        return [fields[name] for name in self.field_names]

    def _of_right_length(self, fields: Sequence[TypedValue]) -> Sequence[TypedValue]:
        if len(fields) == len(self.field_names):
            return fields
        missing = self.field_names[len(fields) :]
        which = f"; there is none for {missing[0]!r}" if missing else ""
        count = len(self.field_names)
        raise ValueError(f"{safe_repr(fields)} has {len(fields)} fields, and {self.name} has {count}{which}")

    def get_field_names(self) -> list[str]:
        """Return the names of the fields, in order."""
        return list(self.field_names)

    def get_field_index(self, field_name: str) -> int:
        """Return the position of a field; raise ``ValueError`` if no field has that name."""
        if field_name not in self.field_names:
            raise ValueError(f"{self.name} has no field {field_name!r}")
        return self.field_names.index(field_name)

    def to_internal_type(self, obj: TypedValue) -> InternalValue:
        """Return the number of the row's kind, and the fields in the form that the JVM gets."""
        if obj is None:
            return None
        kind = obj.get_row_kind() if isinstance(obj, Row) else RowKind.INSERT
        return kind.value, *_converted(self.field_types, self._in_order(obj), _to_internal)

    def from_internal_type(self, obj: Sequence[object] | None) -> TypedValue:
        """Return the row that :meth:`to_internal_type` was given."""
        if obj is None:
            return None
        fields = _converted(self.field_types, obj[1:], _from_internal)
        return row_of(fields, self.field_names, RowKind(obj[0]))

    @property
    def name(self) -> str:
        return f"ROW({', '.join(self._spelled(str))})"

    def __repr__(self) -> str:
        return f"RowTypeInfo({', '.join(self._spelled(repr))})"

    def _spelled(self, spell: Callable[[object], str]) -> Iterator[str]:
        named = self.field_names != _default_names(len(self.field_types))
        for name, field_type in zip(self.field_names, self.field_types, strict=True):
            yield f"{name}: {spell(field_type)}" if named else spell(field_type)


def declared_type(name: str, given: object) -> TypeInformation | None:
    """Return the type that an argument of that name declares; a list stands for a row of its types.

    Raises:
        ConfigurationError: it is neither a type, nor a list of types, nor None.
    """
    if isinstance(given, list) and all(isinstance(field_type, TypeInformation) for field_type in given):
        return RowTypeInfo(given)
    return check_type(name, given)


def check_type(name: str, given: object) -> TypeInformation | None:
    """Return the type that an argument of that name is, or None.

    Raises:
        ConfigurationError: it is neither.
    """
    if given is not None and not isinstance(given, TypeInformation):
        raise ConfigurationError(f"{name} must be made by Types, such as Types.LONG(), not {given!r}")
    return given


def _default_names(count: int) -> tuple[str, ...]:
    return tuple(f"f{index}" for index in range(count))


@attrs.frozen(repr=False)
class ExternalTypeInfo(_TypeOfParts[T_co]):
    """The name that Flink's tables give to a type of their own; its values are those of ``type_info``."""

    maker: ClassVar[str] = "EXTERNAL"

    type_info: TypeInformation[T_co] = attrs.field(validator=_made_by_types)

    def check(self, value: TypedValue) -> T_co:
        return self.type_info.check(value)

    def parts(self) -> tuple[TypeInformation, ...]:
        return (self.type_info,)

    def rounded(self, value: Any) -> T_co:
        return self.type_info.rounded(value)
