"""The base of all types, and types without parts: numbers, strings, times and pickled objects.

PyFlink has them in ``pyflink.common.typeinfo``.

A type has one duty here: :meth:`TypeInformation.check` returns the value as it will be after a restore, or
raises ``ValueError`` saying why it does not fit. Checking on the way in means that no bad value is
discovered by a checkpoint, minutes later. How a type is written lives in
``pyflinkstate.backends.types``.

``str`` of a type spells it as ``Types`` does, which is what errors show; ``repr`` prints it as PyFlink does.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import math
import numbers
import operator
import struct
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Generic, TypeAlias

import attrs

from pyflinkstate.api.checks import safe_repr
from pyflinkstate.api.time import Instant
from pyflinkstate.api.values import InternalValue, Reduced, T, T_co, TypedValue
from pyflinkstate.errors import ConfigurationError


@attrs.frozen(repr=False)
class TypeInformation(Generic[T_co]):
    """The base of all types. Its own ``check`` accepts everything."""

    def check(self, value: Any) -> T_co:
        """Return ``value`` in the form that state keeps.

        Raises:
            ValueError: the value does not fit; the message says why.
        """
        checked: T_co = value
        return checked

    def parts(self) -> tuple[TypeInformation, ...]:
        """Return the types that this one is made of, in order; a type without parts returns ``()``."""
        return ()

    def with_parts(self, parts: Sequence[TypeInformation]) -> TypeInformation:
        """Return this type with its parts replaced by ``parts``, of which there must be as many."""
        return self

    def has_floats(self) -> bool:
        """Return whether a value contains 32-bit numbers: ``FLOAT``."""
        return any(part.has_floats() for part in self.parts())

    def rounded(self, value: Any) -> T_co:
        """Return a value of this type with its ``FLOAT`` numbers rounded to 32 bits.

        State keeps them unrounded, as PyFlink's does, also the keys of a value that is a map. Keys,
        namespaces and the user keys of map state and broadcast state are rounded, because they must be found
        again, and so are records that a source converts.
        """
        rounded: T_co = value
        return rounded

    @property
    def check_key(self) -> Callable[[TypedValue], T_co]:
        """Return the check for values that must be found again, such as keys: :meth:`check`, and rounding."""
        return self._check_and_round if self.has_floats() else self.check

    def _check_and_round(self, value: TypedValue) -> T_co:
        return self.rounded(self.check(value))

    @property
    def name(self) -> str:
        """The name as ``Types`` spells it, such as ``LONG`` or ``LIST(STRING)``."""
        return type(self).__name__

    @property
    def kind(self) -> str:
        """The name of a type without parts in a checkpoint, such as ``LONG``; empty for a type with parts."""
        return ""

    def need_conversion(self) -> bool:
        """Return whether PyFlink hands values to the JVM in another form."""
        return False

    def to_internal_type(self, obj: Any) -> InternalValue:
        """Return the form in which PyFlink hands a value to the JVM."""
        return obj

    def from_internal_type(self, obj: Any) -> TypedValue:
        """Return the value that :meth:`to_internal_type` was given."""
        return obj

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return type(self).__name__


#: What results are declared as: a type, or a list of types, which stands for a row of them as in PyFlink.
OutputType: TypeAlias = TypeInformation[T] | list[TypeInformation]


def misfit(value: object, name: str) -> ValueError:
    """Return the error for a value that is not of type ``name``."""
    return ValueError(f"{safe_repr(value)} ({type(value).__name__}) does not fit {name}")


#: Returns a value in the form that state keeps, or raises ``ValueError``.
Check: TypeAlias = Callable[[Any], Any]


def _bounds(bits: int) -> tuple[int, int]:
    return -(1 << (bits - 1)), (1 << (bits - 1)) - 1


def _check_integer(name: str, bits: int) -> Check:
    low, high = _bounds(bits)

    def check(value: TypedValue) -> TypedValue:
        if type(value) is not int:
            if isinstance(value, bool) or not isinstance(value, numbers.Integral):
                raise misfit(value, name)
            value = operator.index(value)
        if not low <= value <= high:
            raise ValueError(f"{safe_repr(value)} is out of the range of {name} ({low} to {high})")
        return value

    return check


def _check_boolean(value: TypedValue) -> TypedValue:
    if type(value) is bool:
        return value
    kind = type(value)
    if kind.__module__ != "numpy" or not kind.__name__.startswith("bool"):
        raise misfit(value, "BOOLEAN")
    return bool(value)


def _check_big_integer(value: TypedValue) -> TypedValue:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise misfit(value, "BIG_INT")
    return operator.index(value)


def _check_real(name: str) -> Check:
    def check(value: TypedValue) -> TypedValue:
        if type(value) is float:
            return value
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise misfit(value, name)
        try:
            return float(value)
        except OverflowError:
            raise ValueError(f"the number is out of the range of {name}") from None

    return check


def _to_32_bits(value: float) -> float:
    """Return the nearest 32-bit number; a number that is too large becomes infinite, as in Java."""
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", value))[0]
    except OverflowError:
        return math.copysign(math.inf, value)
    return rounded


def _check_string(value: TypedValue) -> str:
    if type(value) is not str:
        if not isinstance(value, str):
            raise misfit(value, "STRING")
        value = str.__str__(value)
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise ValueError(
                f"{safe_repr(value)} holds a lone surrogate, which STRING cannot store"
            ) from None
    return value


def _check_char(value: TypedValue) -> str:
    character = _check_string(value)
    if len(character) != 1:
        raise ValueError(f"{safe_repr(character)} is not one character, as CHAR must be")
    return character


def check_bytes(value: TypedValue) -> TypedValue:
    """Return bytes, or an object that can be read as bytes, as ``bytes``."""
    if not isinstance(value, (bytes, bytearray, memoryview)):
        raise misfit(value, "PRIMITIVE_ARRAY(BYTE)")
    return bytes(value)


def _check_instance(name: str, cls: type, plain: Check, but_not: tuple[type, ...] = ()) -> Check:
    """Return the check of a class. Of a value of a subclass, ``plain`` makes what a restore would give."""

    def check(value: TypedValue) -> TypedValue:
        if type(value) is cls:
            return value
        if not isinstance(value, cls) or isinstance(value, but_not):
            raise misfit(value, name)
        return plain(value)

    return check


def _plain_date(value: datetime.date) -> datetime.date:
    return datetime.date(value.year, value.month, value.day)


def _plain_time(value: datetime.time | datetime.datetime) -> datetime.time:
    return datetime.time(value.hour, value.minute, value.second, value.microsecond)


def _plain_datetime(value: datetime.datetime) -> datetime.datetime:
    return datetime.datetime.combine(_plain_date(value), _plain_time(value))


def _check_naive(name: str, cls: type, plain: Check) -> Check:
    fits = _check_instance(name, cls, lambda value: value)

    def check(value: Any) -> TypedValue:
        if fits(value).tzinfo is not None:
            raise ValueError(f"{safe_repr(value)} has a time zone, and {name} has none; convert it first")
        return _plain(value) if value.fold or type(value) is not cls else value

    def _plain(value: Any) -> TypedValue:
        """A subclass may hold more than a restore gives back: pandas' nanoseconds, or NaT; so does a fold."""
        if value != value or getattr(value, "nanosecond", 0):
            raise misfit(value, name)
        return plain(value)

    return check


#: The types whose values PyFlink hands to the JVM in another form.
_CONVERTED = frozenset({"INSTANT", "SQL_DATE", "SQL_TIME", "SQL_TIMESTAMP"})
_INTEGER_BITS = {"BYTE": 8, "SHORT": 16, "INT": 32, "LONG": 64}

#: A class of one type can pass its own check instead.
_CHECKS: dict[str, Check] = {
    "BOOLEAN": _check_boolean,
    **{name: _check_integer(name, bits) for name, bits in _INTEGER_BITS.items()},
    "FLOAT": _check_real("FLOAT"),
    "DOUBLE": _check_real("DOUBLE"),
    "CHAR": _check_char,
    "STRING": _check_string,
    "BIG_INT": _check_big_integer,
    "BIG_DEC": _check_instance("BIG_DEC", decimal.Decimal, decimal.Decimal),
    "INSTANT": _check_instance("INSTANT", Instant, lambda value: Instant(value.seconds, value.nanos)),
    "SQL_DATE": _check_instance("SQL_DATE", datetime.date, _plain_date, but_not=(datetime.datetime,)),
    "SQL_TIME": _check_naive("SQL_TIME", datetime.time, _plain_time),
    "SQL_TIMESTAMP": _check_naive("SQL_TIMESTAMP", datetime.datetime, _plain_datetime),
    "LOCAL_DATE": _check_instance("LOCAL_DATE", datetime.date, _plain_date, but_not=(datetime.datetime,)),
    "LOCAL_TIME": _check_naive("LOCAL_TIME", datetime.time, _plain_time),
    "LOCAL_DATE_TIME": _check_naive("LOCAL_DATE_TIME", datetime.datetime, _plain_datetime),
}


@attrs.frozen(repr=False, eq=False)
class AtomicTypeInfo(TypeInformation[T_co]):
    """The base of types without parts. ``kind`` is the name in ``Types`` and in checkpoints."""

    kind: str
    #: An instance attribute, so that a hot path can bind the checking function itself.
    check: Check = attrs.Factory(lambda self: _CHECKS[self.kind], takes_self=True)  # type: ignore[assignment]

    @property
    def name(self) -> str:
        return self.kind

    def has_floats(self) -> bool:
        return self.kind == "FLOAT"

    def need_conversion(self) -> bool:
        return self.kind in _CONVERTED

    def rounded(self, value: Any) -> Any:
        return _to_32_bits(value) if self.kind == "FLOAT" else value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AtomicTypeInfo) and self.kind == other.kind

    def __hash__(self) -> int:
        return hash(self.kind)

    def __reduce__(self) -> Reduced:
        return type(self), ()


class BasicType(enum.Enum):
    """The types for which Java has a basic type; the value is what PyFlink prints."""

    STRING = "String"
    BYTE = "Byte"
    BOOLEAN = "Boolean"
    SHORT = "Short"
    INT = "Integer"
    LONG = "Long"
    FLOAT = "Float"
    DOUBLE = "Double"
    CHAR = "Char"
    BIG_INT = "BigInteger"
    BIG_DEC = "BigDecimal"
    INSTANT = "Instant"


def _maker(basic_type: BasicType, of_values: type[T]) -> Callable[[], BasicTypeInfo[T]]:
    """Return a function without arguments that makes a basic type."""
    return lambda: BasicTypeInfo(basic_type)


@attrs.frozen(init=False, repr=False, eq=False)
class BasicTypeInfo(AtomicTypeInfo[T_co]):
    """The type information of a :class:`BasicType`, which is given as such or by name.

    Raises:
        ConfigurationError: no basic type has that name.
    """

    def __init__(self, basic_type: BasicType | str) -> None:
        kind = basic_type.name if isinstance(basic_type, BasicType) else basic_type
        if kind not in BasicType.__members__:
            raise ConfigurationError(
                f"there is no basic type {kind!r}; choose one of {', '.join(BasicType.__members__)}"
            )
        self.__attrs_init__(kind)

    def __repr__(self) -> str:
        return BasicType[self.kind].value

    def __reduce__(self) -> Reduced:
        return type(self), (self.kind,)

    # The same as the functions of ``Types``.
    STRING_TYPE_INFO = staticmethod(_maker(BasicType.STRING, str))
    BOOLEAN_TYPE_INFO = staticmethod(_maker(BasicType.BOOLEAN, bool))
    BYTE_TYPE_INFO = staticmethod(_maker(BasicType.BYTE, int))
    SHORT_TYPE_INFO = staticmethod(_maker(BasicType.SHORT, int))
    INT_TYPE_INFO = staticmethod(_maker(BasicType.INT, int))
    LONG_TYPE_INFO = staticmethod(_maker(BasicType.LONG, int))
    FLOAT_TYPE_INFO = staticmethod(_maker(BasicType.FLOAT, float))
    DOUBLE_TYPE_INFO = staticmethod(_maker(BasicType.DOUBLE, float))
    CHAR_TYPE_INFO = staticmethod(_maker(BasicType.CHAR, str))
    BIG_INT_TYPE_INFO = staticmethod(_maker(BasicType.BIG_INT, int))
    BIG_DEC_TYPE_INFO = staticmethod(_maker(BasicType.BIG_DEC, decimal.Decimal))

    @staticmethod
    def INSTANT_TYPE_INFO() -> InstantTypeInfo:
        """``Types.INSTANT()``."""
        return InstantTypeInfo(BasicType.INSTANT)


@attrs.frozen(init=False, repr=False, eq=False)
class InstantTypeInfo(BasicTypeInfo[Instant]):
    """An :class:`~pyflinkstate.api.time.Instant`."""

    def __init__(self, basic_type: BasicType | str = BasicType.INSTANT) -> None:
        super().__init__(basic_type)

    def to_internal_type(self, obj: Instant) -> InternalValue:
        """Return microseconds since 1970."""
        return obj.to_epoch_milli() * 1000

    def from_internal_type(self, obj: int) -> TypedValue:
        """Return the instant this many microseconds after 1970, rounded down to milliseconds."""
        return Instant.of_epoch_milli(obj // 1000)


_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
_MICROSECOND = datetime.timedelta(microseconds=1)


@attrs.frozen(init=False, repr=False, eq=False)
class DateTypeInfo(AtomicTypeInfo[datetime.date]):
    """``datetime.date``."""

    EPOCH_ORDINAL: ClassVar[int] = datetime.date(1970, 1, 1).toordinal()

    def __init__(self) -> None:
        self.__attrs_init__("SQL_DATE")

    def to_internal_type(self, d: datetime.date | None) -> InternalValue:
        """Return the days since 1970; None stays None."""
        return None if d is None else d.toordinal() - self.EPOCH_ORDINAL

    def from_internal_type(self, v: int | None) -> TypedValue:
        """Return the date this many days after 1970; None stays None."""
        return None if v is None else datetime.date.fromordinal(v + self.EPOCH_ORDINAL)


@attrs.frozen(init=False, repr=False, eq=False)
class TimeTypeInfo(AtomicTypeInfo[datetime.time]):
    """``datetime.time`` without a time zone, to the microsecond."""

    EPOCH_ORDINAL: ClassVar[int] = 0

    def __init__(self) -> None:
        self.__attrs_init__("SQL_TIME")

    def to_internal_type(self, t: datetime.time | None) -> InternalValue:
        """Return the microseconds since midnight, in UTC if ``t`` has a time zone; None stays None."""
        if t is None:
            return None
        since = datetime.timedelta(
            hours=t.hour, minutes=t.minute, seconds=t.second, microseconds=t.microsecond
        )
        return (since - (t.utcoffset() or datetime.timedelta())) // _MICROSECOND

    def from_internal_type(self, t: int | None) -> TypedValue:
        """Return the time this many microseconds after midnight; None stays None."""
        return None if t is None else (_EPOCH + t * _MICROSECOND).time()


@attrs.frozen(init=False, repr=False, eq=False)
class TimestampTypeInfo(AtomicTypeInfo[datetime.datetime]):
    """``datetime.datetime`` without a time zone, to the microsecond."""

    def __init__(self) -> None:
        self.__attrs_init__("SQL_TIMESTAMP")

    def to_internal_type(self, dt: datetime.datetime | None) -> InternalValue:
        """Return the microseconds since 1970; ``dt`` is local time if it has no time zone.

        None stays None.
        """
        return None if dt is None else (dt.astimezone(datetime.timezone.utc) - _EPOCH) // _MICROSECOND

    def from_internal_type(self, ts: int | None) -> TypedValue:
        """Return the local time this many microseconds after 1970; None stays None."""
        return None if ts is None else (_EPOCH + ts * _MICROSECOND).astimezone().replace(tzinfo=None)


class SqlTimeTypeInfo(TypeInformation):
    """Makes the same types as ``Types.SQL_DATE()``, ``Types.SQL_TIME()`` and ``Types.SQL_TIMESTAMP()``."""

    DATE = staticmethod(DateTypeInfo)
    TIME = staticmethod(TimeTypeInfo)
    TIMESTAMP = staticmethod(TimestampTypeInfo)


@attrs.frozen(init=False, repr=False, eq=False)
class LocalTimeTypeInfo(AtomicTypeInfo):
    """Java's ``LocalDate``, ``LocalTime`` and ``LocalDateTime``: Python's date, time and datetime."""

    class TimeType(enum.Enum):
        """Which of the three types it is."""

        LOCAL_DATE = 0
        LOCAL_TIME = 1
        LOCAL_DATE_TIME = 2

    def __init__(self, time_type: TimeType) -> None:
        self.__attrs_init__(time_type.name)

    def __repr__(self) -> str:
        return f"LocalTimeTypeInfo<{self.kind}>"

    def __reduce__(self) -> Reduced:
        return LocalTimeTypeInfo, (self.TimeType[self.kind],)


@attrs.frozen(repr=False)
class PickledBytesTypeInfo(TypeInformation):
    """Any picklable Python object. Restoring one can run code: see the security notes."""

    @property
    def name(self) -> str:
        return "PICKLED_BYTE_ARRAY"

    def __repr__(self) -> str:
        return "PickledByteArrayTypeInfo"


def integer_bounds(type_info: TypeInformation) -> tuple[int, int]:
    """Return the bounds within which ``check`` returns an int unchanged, or ``(1, 0)`` if there are none.

    >>> integer_bounds(BasicTypeInfo("BYTE")), integer_bounds(BasicTypeInfo("DOUBLE"))
    ((-128, 127), (1, 0))
    """
    if isinstance(type_info, PickledBytesTypeInfo):
        return _bounds(64)
    if type_info.kind in _INTEGER_BITS:
        return _bounds(_INTEGER_BITS[type_info.kind])
    return 1, 0
