"""What a record looks like in print, and in files of text: as in PyFlink.

A record without a declared type is shown by Python, ``('a', True)``. One of a ``ROW`` is shown as a change,
``+I[a, ...]``, its fields by Python. Every other declared type is shown by Java: ``(a,true,1.0E10)``.
"""

from __future__ import annotations

import datetime
import math
import struct
from collections.abc import Callable, Iterable
from decimal import Decimal

import attrs
import numpy as np

from pyflinkstate.api.row import Row
from pyflinkstate.api.time import Instant
from pyflinkstate.api.types import (
    ArrayTypeInfo,
    ExternalTypeInfo,
    ListTypeInfo,
    MapTypeInfo,
    PickledBytesTypeInfo,
    RowTypeInfo,
    TupleTypeInfo,
    TypeInformation,
)
from pyflinkstate.api.values import Record, Reduced
from pyflinkstate.errors import BadRecordError
from pyflinkstate.runtime.sinks.sinks import DriverSink
from pyflinkstate.runtime.wire import shorten

#: Makes the text of a value.
_Show = Callable[[Record], str]

_EPOCH = datetime.datetime(1970, 1, 1)


@attrs.frozen
class RecordText:
    """Makes the text of the records of a stream.

    Args:
        operator: whose results they are.
        type_info: of the stream.
    """

    operator: str
    type_info: TypeInformation
    _show: _Show = attrs.field(init=False, eq=False, repr=False)

    @_show.default
    def _show_of_type(self) -> _Show:
        return _shown_by(self.type_info)

    def __reduce__(self) -> Reduced:
        return RecordText, (self.operator, self.type_info)

    def __call__(self, record: Record) -> str:
        """Return the text.

        Raises:
            BadRecordError: the record does not fit the type of the stream.
        """
        if isinstance(self.type_info, PickledBytesTypeInfo):
            return self._show(record)
        try:
            return self._show(self.type_info.check(record))
        except ValueError as error:
            raise BadRecordError(
                f"operator {self.operator!r}: a result does not fit the type of its stream, "
                f"{self.type_info}: {error}; record {shorten(record)}",
                operator=self.operator,
                record=shorten(record),
            ) from None


def _shown_by(type_info: TypeInformation) -> _Show:
    if isinstance(type_info, ExternalTypeInfo):
        return _shown_by(type_info.type_info)
    if isinstance(type_info, PickledBytesTypeInfo):
        return str
    return _show_row if isinstance(type_info, RowTypeInfo) else _shown_by_java(type_info)


def _show_row(row: Row) -> str:
    return f"{row.get_row_kind()}[{','.join(map(str, row))}]"


def _shown_by_java(type_info: TypeInformation) -> _Show:
    """Return what makes the text of values that are not None."""
    if isinstance(type_info, TupleTypeInfo):
        parts = [_or_null(part) for part in type_info.field_types]
        return lambda value: f"({','.join([show(item) for show, item in zip(parts, value, strict=True)])})"
    if isinstance(type_info, (ListTypeInfo, ArrayTypeInfo)) and not type_info.kind:
        element = _or_null(type_info.element_type)
        return lambda value: f"[{', '.join(map(element, value))}]"
    if isinstance(type_info, MapTypeInfo):
        key, item = _or_null(type_info.key_type_info), _or_null(type_info.value_type_info)
        return lambda value: f"{{{', '.join([f'{key(k)}={item(v)}' for k, v in value.items()])}}}"
    if isinstance(type_info, (RowTypeInfo, ExternalTypeInfo, PickledBytesTypeInfo)):
        return _shown_by(type_info)
    return _OF_KIND.get(type_info.kind, str)


def _or_null(type_info: TypeInformation) -> _Show:
    show = _shown_by_java(type_info)
    return lambda value: "null" if value is None else show(value)


def show_double(value: float) -> str:
    """Return a number of 64 bits as Java's ``Double.toString`` does.

    >>> show_double(1e10), show_double(0.1), show_double(1e-5), show_double(100.0)
    ('1.0E10', '0.1', '1.0E-5', '100.0')
    """
    return _show_number(value, repr(float(value)))


def show_float(value: float) -> str:
    """Return a number of 32 bits as Java's ``Float.toString`` does; one of more bits is rounded.

    >>> show_float(110.1), show_float(16777217)
    ('110.1', '1.6777216E7')
    """
    if math.isfinite(value) and abs(value) > _MAX_FLOAT:
        value = math.copysign(math.inf, value)
    return _show_number(value, str(np.float32(value)))


_MAX_FLOAT = struct.unpack("<f", b"\xff\xff\x7f\x7f")[0]


def _show_number(value: float, shortest: str) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    sign, digits, exponent = Decimal(shortest).as_tuple()
    assert isinstance(exponent, int)
    text = "".join(map(str, digits)).lstrip("0")
    minus = "-" if sign else ""
    if not text:
        return f"{minus}0.0"
    point = len(text) + exponent  # of the decimal point, in digits from the left
    text = text.rstrip("0")
    if -3 < point <= 7:
        whole = text[:point].ljust(point, "0") if point > 0 else "0"
        return f"{minus}{whole}.{'0' * -min(point, 0)}{text[max(point, 0) :] or '0'}"
    return f"{minus}{text[0]}.{text[1:] or '0'}E{point - 1}"


def _show_bool(value: bool) -> str:
    return "true" if value else "false"


def _fraction(nanos: int, groups: int) -> str:
    """Return a fraction of a second in no more digits than it needs, in groups of so many."""
    digits = f"{nanos:09}"
    while len(digits) > groups and digits.endswith("0" * groups):
        digits = digits[:-groups]
    return digits


def _show_timestamp(value: datetime.datetime) -> str:
    return f"{value:%Y-%m-%d %H:%M:%S}.{_fraction(value.microsecond * 1000, 1)}"


def _show_sql_time(value: datetime.time) -> str:
    return f"{value:%H:%M:%S}"


def _show_local_time(value: datetime.time) -> str:
    if value.microsecond:
        return f"{value:%H:%M:%S}.{_fraction(value.microsecond * 1000, 3)}"
    return f"{value:%H:%M:%S}" if value.second else f"{value:%H:%M}"


def _show_local_date_time(value: datetime.datetime) -> str:
    return f"{value:%Y-%m-%d}T{_show_local_time(value.time())}"


def _show_instant(value: Instant) -> str:
    try:
        second = _EPOCH + datetime.timedelta(seconds=value.seconds)
    except OverflowError:
        return str(value)
    fraction = f".{_fraction(value.nanos, 3)}" if value.nanos else ""
    return f"{second:%Y-%m-%dT%H:%M:%S}{fraction}Z"


def _show_big_decimal(value: Decimal) -> str:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        return str(value)
    return f"{value:f}" if exponent <= 0 and len(digits) + exponent > -6 else str(value)


def _show_bytes(value: bytes) -> str:
    return f"[{', '.join(str(byte - 256 if byte > 127 else byte) for byte in value)}]"


_OF_KIND: dict[str, _Show] = {
    "BOOLEAN": _show_bool,
    "FLOAT": show_float,
    "DOUBLE": show_double,
    "BIG_DEC": _show_big_decimal,
    "BYTES": _show_bytes,
    "SQL_TIME": _show_sql_time,
    "SQL_TIMESTAMP": _show_timestamp,
    "LOCAL_TIME": _show_local_time,
    "LOCAL_DATE_TIME": _show_local_date_time,
    "INSTANT": _show_instant,
}


class PrintSink(DriverSink):
    """Prints texts in the driver as Flink's print sink does.

    Args:
        identifier: leads each line, if there is one.
        parallelism: of the sink; from 2 on lines say from which subtask they come, counted from 1.
    """

    def __init__(self, identifier: str | None, parallelism: int) -> None:
        super().__init__(self._print)
        self._identifier = identifier
        self.parallelism = parallelism

    def _print(self, partition: int, values: Iterable[str]) -> None:
        subtask = str(partition % self.parallelism + 1) if self.parallelism > 1 else ""
        prefix = ":".join(part for part in (self._identifier, subtask) if part)
        for value in values:
            print(f"{prefix}> {value}" if prefix else value)
