"""Type information: what a state, a key or a field holds, checked when a value arrives.

Names are PyFlink's (``pyflink.common.typeinfo``). A type has one duty here: :meth:`TypeInformation.check`
returns the value as it will be after a restore, or raises ``ValueError`` saying why it does not fit.
Checking on the way in means that no bad value is discovered by a checkpoint, minutes later.
How a type is written lives in ``pyflinkstate.backends.serializers``.
"""

from __future__ import annotations

import datetime
import decimal
import numbers
import operator
import struct
from collections.abc import Callable
from typing import Any

import attrs


@attrs.frozen
class TypeInformation:
    """The base of all types. ``check`` accepts everything here."""

    def check(self, value: Any) -> Any:
        """Return ``value`` in the form in which the state keeps it.

        Raises:
            ValueError: the value does not fit; the message says why.
        """
        return value

    @property
    def name(self) -> str:
        """The name as ``Types`` spells it, such as ``LONG`` or ``LIST(STRING)``."""
        return type(self).__name__

    def __str__(self) -> str:
        return self.name


def _misfit(value: object, name: str) -> ValueError:
    return ValueError(f"{safe_repr(value)} ({type(value).__name__}) does not fit {name}")


def safe_repr(value: object) -> str:
    """Return ``repr(value)``, also of an int that Python refuses to print."""
    try:
        return repr(value)
    except ValueError:
        return "an int with more digits than Python prints"


def _bounds(bits: int) -> tuple[int, int]:
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def _check_integer(name: str, bits: int) -> Callable[[Any], Any]:
    low, high = _bounds(bits)

    def check(value: Any) -> Any:
        if type(value) is not int:
            if isinstance(value, bool) or not isinstance(value, numbers.Integral):
                raise _misfit(value, name)
            value = operator.index(value)
        if not low <= value <= high:
            raise ValueError(f"{safe_repr(value)} is out of the range of {name} ({low} to {high})")
        return value

    return check


def _check_big_integer(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise _misfit(value, "BIG_INT")
    return operator.index(value)


def _check_double(value: Any) -> Any:
    if type(value) is float:
        return value
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise _misfit(value, "DOUBLE")
    try:
        return float(value)
    except OverflowError:
        raise ValueError("the number is out of the range of DOUBLE") from None


def _check_float(value: Any) -> Any:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise _misfit(value, "FLOAT")
    try:
        return struct.unpack("<f", struct.pack("<f", float(value)))[0]
    except OverflowError:
        raise ValueError("the number is out of the range of FLOAT") from None


def _check_string(value: Any) -> Any:
    if type(value) is not str:
        if not isinstance(value, str):
            raise _misfit(value, "STRING")
        value = str.__str__(value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(f"{value!r} holds a lone surrogate, which STRING cannot") from None
    return value


def _check_char(value: Any) -> Any:
    value = _check_string(value)
    if len(value) != 1:
        raise ValueError(f"{value!r} is not one character, as CHAR must be")
    return value


def _check_bytes(value: Any) -> Any:
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise _misfit(value, "PRIMITIVE_ARRAY(BYTE)")
    return bytes(value)


def _check_instance(name: str, cls: type, but_not: tuple[type, ...] = ()) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, cls) or isinstance(value, but_not):
            raise _misfit(value, name)
        return value

    return check


def _check_naive(name: str, cls: type) -> Callable[[Any], Any]:
    fits = _check_instance(name, cls)

    def check(value: Any) -> Any:
        if fits(value).tzinfo is not None:
            raise ValueError(f"{value!r} has a time zone, and {name} has none; convert it first")
        return value if type(value) is cls else _plain(value)

    def _plain(value: Any) -> Any:
        """A subclass may hold what a restore would not give back: pandas' nanoseconds, or NaT."""
        if value != value or getattr(value, "nanosecond", 0):
            raise _misfit(value, name)
        return value.to_pydatetime() if hasattr(value, "to_pydatetime") else value

    return check


_INTEGER_BITS = {"BYTE": 8, "SHORT": 16, "INT": 32, "LONG": 64}

_BASIC_CHECKS: dict[str, Callable[[Any], Any]] = {
    "BOOLEAN": _check_instance("BOOLEAN", bool),
    **{name: _check_integer(name, bits) for name, bits in _INTEGER_BITS.items()},
    "FLOAT": _check_float,
    "DOUBLE": _check_double,
    "CHAR": _check_char,
    "STRING": _check_string,
    "BIG_INT": _check_big_integer,
    "BIG_DEC": _check_instance("BIG_DEC", decimal.Decimal),
    "BYTES": _check_bytes,
    "SQL_DATE": _check_instance("SQL_DATE", datetime.date, but_not=(datetime.datetime,)),
    "SQL_TIME": _check_naive("SQL_TIME", datetime.time),
    "SQL_TIMESTAMP": _check_naive("SQL_TIMESTAMP", datetime.datetime),
}


@attrs.frozen
class BasicTypeInfo(TypeInformation):
    """A type without parts. ``kind`` is its name in ``Types``."""

    kind: str
    #: An instance attribute, so that a hot path can bind the checking function itself.
    check: Callable[[Any], Any] = attrs.field(  # type: ignore[assignment]
        init=False, eq=False, repr=False
    )

    @check.default
    def _check_of_kind(self) -> Callable[[Any], Any]:
        if self.kind not in _BASIC_CHECKS:
            raise ValueError(f"no basic type {self.kind!r}; choose one of {', '.join(_BASIC_CHECKS)}")
        return _BASIC_CHECKS[self.kind]

    @property
    def name(self) -> str:
        return "PRIMITIVE_ARRAY(BYTE)" if self.kind == "BYTES" else self.kind

    def __reduce__(self) -> tuple[Any, ...]:
        return BasicTypeInfo, (self.kind,)


@attrs.frozen
class PickledBytesTypeInfo(TypeInformation):
    """Any picklable Python object. What is restored from it runs code: see the security notes."""

    @property
    def name(self) -> str:
        return "PICKLED_BYTE_ARRAY"


def integer_bounds(type_info: TypeInformation) -> tuple[int, int]:
    """Return the bounds within which ``check`` gives an int back as it is; none are ``(1, 0)``.

    >>> integer_bounds(BasicTypeInfo("BYTE")), integer_bounds(BasicTypeInfo("DOUBLE"))
    ((-128, 127), (1, 0))
    """
    if isinstance(type_info, PickledBytesTypeInfo):
        return _bounds(64)
    if isinstance(type_info, BasicTypeInfo) and type_info.kind in _INTEGER_BITS:
        return _bounds(_INTEGER_BITS[type_info.kind])
    return 1, 0


@attrs.frozen
class ListTypeInfo(TypeInformation):
    """A list, each element of one type; None elements are refused, as in Flink's ListSerializer."""

    element_type: TypeInformation

    def check(self, value: Any) -> Any:
        if not isinstance(value, (list, tuple)):
            raise _misfit(value, self.name)
        if any(element is None for element in value):
            raise ValueError(f"None does not fit {self.name} as an element")
        check = self.element_type.check
        return [check(element) for element in value]

    @property
    def name(self) -> str:
        return f"LIST({self.element_type})"


@attrs.frozen
class MapTypeInfo(TypeInformation):
    """A dict with keys of one type and values of another; None is a legal value."""

    key_type_info: TypeInformation
    value_type_info: TypeInformation

    def check(self, value: Any) -> Any:
        if not isinstance(value, dict):
            raise _misfit(value, self.name)
        check_key, check_value = self.key_type_info.check, self.value_type_info.check
        try:
            return {
                check_key(key): None if item is None else check_value(item) for key, item in value.items()
            }
        except TypeError as error:
            raise ValueError(f"a key of {self.name}: {error}") from error

    @property
    def name(self) -> str:
        return f"MAP({self.key_type_info}, {self.value_type_info})"


@attrs.frozen
class TupleTypeInfo(TypeInformation):
    """A tuple with a fixed number of typed fields; None is a legal field."""

    field_types: tuple[TypeInformation, ...]

    def check(self, value: Any) -> Any:
        if not isinstance(value, (tuple, list)):
            raise _misfit(value, self.name)
        if len(value) != len(self.field_types):
            raise ValueError(
                f"{value!r} has {len(value)} fields, and {self.name} has {len(self.field_types)}"
            )
        return tuple(
            None if field is None else field_type.check(field)
            for field, field_type in zip(value, self.field_types, strict=True)
        )

    @property
    def name(self) -> str:
        return f"TUPLE({', '.join(map(str, self.field_types))})"


class Types:
    """Makes type information, under PyFlink's names (``pyflink.common.Types``)."""

    @staticmethod
    def BOOLEAN() -> TypeInformation:
        """``bool``."""
        return BasicTypeInfo("BOOLEAN")

    @staticmethod
    def BYTE() -> TypeInformation:
        """``int`` of 8 bits, -128 to 127."""
        return BasicTypeInfo("BYTE")

    @staticmethod
    def SHORT() -> TypeInformation:
        """``int`` of 16 bits."""
        return BasicTypeInfo("SHORT")

    @staticmethod
    def INT() -> TypeInformation:
        """``int`` of 32 bits."""
        return BasicTypeInfo("INT")

    @staticmethod
    def LONG() -> TypeInformation:
        """``int`` of 64 bits."""
        return BasicTypeInfo("LONG")

    @staticmethod
    def FLOAT() -> TypeInformation:
        """``float``, rounded to 32 bits when it enters the state, as it would be by a restore."""
        return BasicTypeInfo("FLOAT")

    @staticmethod
    def DOUBLE() -> TypeInformation:
        """``float``; an ``int`` is converted."""
        return BasicTypeInfo("DOUBLE")

    @staticmethod
    def CHAR() -> TypeInformation:
        """``str`` of one character."""
        return BasicTypeInfo("CHAR")

    @staticmethod
    def STRING() -> TypeInformation:
        """``str`` without lone surrogates."""
        return BasicTypeInfo("STRING")

    @staticmethod
    def BIG_INT() -> TypeInformation:
        """``int`` of any size."""
        return BasicTypeInfo("BIG_INT")

    @staticmethod
    def BIG_DEC() -> TypeInformation:
        """``decimal.Decimal``."""
        return BasicTypeInfo("BIG_DEC")

    @staticmethod
    def SQL_DATE() -> TypeInformation:
        """``datetime.date``."""
        return BasicTypeInfo("SQL_DATE")

    @staticmethod
    def SQL_TIME() -> TypeInformation:
        """``datetime.time`` without time zone, to the microsecond."""
        return BasicTypeInfo("SQL_TIME")

    @staticmethod
    def SQL_TIMESTAMP() -> TypeInformation:
        """``datetime.datetime`` without time zone, to the microsecond."""
        return BasicTypeInfo("SQL_TIMESTAMP")

    @staticmethod
    def PICKLED_BYTE_ARRAY() -> TypeInformation:
        """Any picklable object; what is used where no type is declared."""
        return PickledBytesTypeInfo()

    @staticmethod
    def PRIMITIVE_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """``bytes`` for ``Types.BYTE()``, else a list of numbers."""
        if element_type == Types.BYTE():
            return BasicTypeInfo("BYTES")
        return ListTypeInfo(element_type)

    @staticmethod
    def BASIC_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """A list."""
        return ListTypeInfo(element_type)

    @staticmethod
    def OBJECT_ARRAY(element_type: TypeInformation) -> TypeInformation:
        """A list."""
        return ListTypeInfo(element_type)

    @staticmethod
    def LIST(element_type_info: TypeInformation) -> TypeInformation:
        """A list of one element type."""
        return ListTypeInfo(element_type_info)

    @staticmethod
    def MAP(key_type_info: TypeInformation, value_type_info: TypeInformation) -> TypeInformation:
        """A dict of one key type and one value type."""
        return MapTypeInfo(key_type_info, value_type_info)

    @staticmethod
    def TUPLE(field_types: list[TypeInformation]) -> TypeInformation:
        """A tuple of fixed field types."""
        return TupleTypeInfo(tuple(field_types))
