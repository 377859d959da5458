"""The values of PyFlink's programs in process mode, which are bytes to Flink.

PyFlink's own coders write them, and for some types not as Flink's serializers do. Pickles stay bytes.
"""

from __future__ import annotations

from decimal import Decimal
from typing import cast

from pyflinkstate.api import TypeInformation, Types
from pyflinkstate.backends.flink_format import forms
from pyflinkstate.backends.flink_format.avro import TEXT
from pyflinkstate.backends.flink_format.cursor import Reader
from pyflinkstate.backends.flink_format.forms import Form
from pyflinkstate.backends.flink_format.serializers import (
    LIST,
    always,
    moment_of,
    ms_of,
    nullable_list,
    serializer_of,
)
from pyflinkstate.backends.flink_format.snapshots import MakeForm, SerializerRow
from pyflinkstate.backends.types import TtlTypeInfo

#: How PyFlink's coders write types that Flink's serializers write otherwise.
_CODERS: dict[TypeInformation, Form] = {
    Types.STRING(): TEXT,
    Types.CHAR(): TEXT,
    Types.BIG_INT(): forms.Number("q"),
    Types.BIG_DEC(): forms.Mapped(TEXT, lambda text: Decimal(cast(str, text)), str),
    Types.SQL_DATE(): forms.Fields(
        "i", Types.SQL_DATE().from_internal_type, lambda date: (Types.SQL_DATE().to_internal_type(date),)
    ),
    Types.SQL_TIME(): forms.Fields("i", lambda ms: moment_of(ms).time(), ms_of),
    Types.SQL_TIMESTAMP(): forms.Fields("q", moment_of, ms_of),
    Types.BASIC_ARRAY(Types.STRING()): nullable_list(TEXT),
    Types.PRIMITIVE_ARRAY(Types.CHAR()): forms.List(TEXT),
}
_INSTEAD: dict[SerializerRow, MakeForm] = {
    serializer_of(type_info).row: always(form) for type_info, form in _CODERS.items()
}
_INSTEAD[LIST] = lambda _, parts: nullable_list(*parts)


class Coder:
    """The coder of one type in process mode. With time to live, a timestamp goes with the bytes."""

    def __init__(self, type_info: TypeInformation) -> None:
        self._is_stamped = isinstance(type_info, TtlTypeInfo)
        self._form = serializer_of(type_info.parts()[0] if self._is_stamped else type_info).form(_INSTEAD)

    def decode(self, coded: object) -> list[object]:
        """Return the values in an element, which may hold several."""
        if self._is_stamped:
            timestamp_ms, data = cast(tuple[int, bytes], coded)
            return [(timestamp_ms, value) for value in self._values(data)]
        return self._values(cast(bytes, coded))

    def _values(self, data: bytes) -> list[object]:
        source, found = Reader(data), []
        while source.at < source.end:
            found.append(self._form.decode(source))
        return found

    def encode(self, value: object) -> object:
        """Return the element for a value."""
        if self._is_stamped:
            timestamp_ms, user_value = cast(tuple[int, object], value)
            return timestamp_ms, self._form.encode(user_value)
        return self._form.encode(value)
