"""The table of serializers: one row for each, and the types of this project that it stands for.

Java's dates and times are read and written in UTC. Fractions of a microsecond are dropped.
"""

from __future__ import annotations

import datetime
import operator
from collections.abc import Callable
from typing import cast

import attrs

from pyflinkstate.api import (
    BasicArrayTypeInfo,
    CountWindow,
    CountWindowSerializer,
    ExternalTypeInfo,
    GlobalWindow,
    GlobalWindowSerializer,
    Instant,
    ListTypeInfo,
    LocalTimeTypeInfo,
    MapTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    RowTypeInfo,
    TimeWindow,
    TimeWindowSerializer,
    TupleTypeInfo,
    TypeInformation,
    Types,
)
from pyflinkstate.backends.flink_format import forms
from pyflinkstate.backends.flink_format.avro import UNKNOWN, form_and_type
from pyflinkstate.backends.flink_format.cursor import Reader, four_bytes, utf
from pyflinkstate.backends.flink_format.forms import Form
from pyflinkstate.backends.flink_format.snapshots import (
    EMPTY,
    ROWS,
    Body,
    Content,
    Details,
    MakeForm,
    Serializer,
    SerializerRow,
    composite,
    read_optional_map,
    read_snapshot,
    write_optional_map,
)
from pyflinkstate.backends.types import (
    VOID_NAMESPACE,
    VOID_NAMESPACE_TYPE,
    SealedPickles,
    TtlTypeInfo,
    dump_pickle,
)
from pyflinkstate.errors import ConfigurationError

_BASE = "org.apache.flink.api.common.typeutils.base."
_ARRAYS = f"{_BASE}array."
_RUNTIME = "org.apache.flink.api.java.typeutils.runtime."
_TUPLE = "org.apache.flink.api.java.tuple.Tuple"
_WINDOWS = "org.apache.flink.streaming.api.windowing.windows."
_TABLE_WINDOWS = "org.apache.flink.table.runtime.operators.window."


def _inner(serializer: str) -> str:
    """Return the class of the snapshot of a serializer, which is inside of it."""
    return f"{serializer}${serializer.rsplit('.', 1)[-1].rsplit('$', 1)[-1]}Snapshot"


def always(form: Form) -> MakeForm:
    """Return what makes the same form for every serializer."""
    return lambda *_: form


def _atom(snapshot: str, form: Form, type_info: TypeInformation, java_class: str) -> SerializerRow:
    return SerializerRow(
        snapshot=snapshot,
        form=always(form),
        type_info=lambda _: type_info,
        java_class=lambda _: java_class,
        body=EMPTY,
    )


# --- dates and times ---------------------------------------------------------------------------------

_LEAST_LONG, _LEAST_INT, _LEAST_BYTE = -(2**63), -(2**31), -(2**7)
_MS_OF_DAY, _DAY_ONE = 86_400_000, datetime.date(1970, 1, 1).toordinal()
EPOCH, _MICROSECOND = datetime.datetime(1970, 1, 1), datetime.timedelta(microseconds=1)


_date_fields = operator.attrgetter("year", "month", "day")


def _in_nanos(make: Callable[..., object]) -> Callable[..., object]:
    """Return what makes a time whose last field is in nanoseconds."""
    return lambda *fields: make(*fields[:-1], fields[-1] // 1000)


def _time_fields(value: object) -> tuple[int, ...]:
    time = cast(datetime.time, value)
    return time.hour, time.minute, time.second, time.microsecond * 1000


def _moment_fields(value: object) -> tuple[int, ...]:
    return (*_date_fields(value), *_time_fields(value))


def _timestamp(ms: int, nanos: int) -> datetime.datetime:
    return EPOCH + datetime.timedelta(seconds=ms // 1000, microseconds=nanos // 1000)


def _timestamp_fields(value: object) -> tuple[int, ...]:
    us = (cast(datetime.datetime, value) - EPOCH) // _MICROSECOND
    return us // 1000, us % 1_000_000 * 1000


def moment_of(ms: int) -> datetime.datetime:
    """Return the moment that is so many milliseconds after the begin of 1970."""
    return EPOCH + datetime.timedelta(milliseconds=ms)


def ms_of(value: object) -> tuple[int, ...]:
    """Return the milliseconds of a moment since the begin of 1970, or those of a time since midnight."""
    if isinstance(value, datetime.time):
        value = datetime.datetime.combine(EPOCH, value)
    return _timestamp_fields(value)[:1]


_NO_DATE = (_LEAST_INT, _LEAST_BYTE, 0)
_NO_TIME = (_LEAST_BYTE, _LEAST_BYTE, 0, _LEAST_INT)
_LOCAL = LocalTimeTypeInfo.TimeType

_FLOAT = forms.Fields("f", float, lambda value: (Types.FLOAT().rounded(cast(float, value)),))
_CHARACTER = forms.Fields("H", chr, lambda value: (ord(cast(str, value)),))
#: The sign is flipped, so that timers sort by their time.
_TIMER_TIME = forms.Fields("Q", lambda time: time - (1 << 63), lambda time: (cast(int, time) + (1 << 63),))

# --- the rows of types without parts -----------------------------------------------------------------

#: The rows of atoms: serializer, form, type, and class of the values.
_ATOMS: list[tuple[str, Form, TypeInformation, str]] = [
    ("BooleanSerializer", forms.Number("?"), Types.BOOLEAN(), "java.lang.Boolean"),
    ("ByteSerializer", forms.Number("b"), Types.BYTE(), "java.lang.Byte"),
    ("ShortSerializer", forms.Number("h"), Types.SHORT(), "java.lang.Short"),
    ("IntSerializer", forms.Number("i"), Types.INT(), "java.lang.Integer"),
    ("LongSerializer", forms.Number("q"), Types.LONG(), "java.lang.Long"),
    ("FloatSerializer", _FLOAT, Types.FLOAT(), "java.lang.Float"),
    ("DoubleSerializer", forms.Number("d"), Types.DOUBLE(), "java.lang.Double"),
    ("CharSerializer", _CHARACTER, Types.CHAR(), "java.lang.Character"),
    ("StringSerializer", forms.Text(), Types.STRING(), "java.lang.String"),
    ("BigIntSerializer", forms.BigInteger(), Types.BIG_INT(), "java.math.BigInteger"),
    ("BigDecSerializer", forms.BigDecimal(), Types.BIG_DEC(), "java.math.BigDecimal"),
    (
        "SqlDateSerializer",
        forms.Fields(
            "q",
            lambda ms: datetime.date.fromordinal(ms // _MS_OF_DAY + _DAY_ONE),
            lambda value: ((cast(datetime.date, value).toordinal() - _DAY_ONE) * _MS_OF_DAY,),
            (_LEAST_LONG,),
        ),
        Types.SQL_DATE(),
        "java.sql.Date",
    ),
    (
        "SqlTimeSerializer",
        forms.Fields(
            "q",
            lambda ms: moment_of(ms).time(),
            ms_of,
            (_LEAST_LONG,),
        ),
        Types.SQL_TIME(),
        "java.sql.Time",
    ),
    (
        "SqlTimestampSerializer",
        forms.Fields("qi", _timestamp, _timestamp_fields, (_LEAST_LONG, 0)),
        Types.SQL_TIMESTAMP(),
        "java.sql.Timestamp",
    ),
    (
        "LocalDateSerializer",
        forms.Fields("ibb", datetime.date, _date_fields, _NO_DATE),
        LocalTimeTypeInfo(_LOCAL.LOCAL_DATE),
        "java.time.LocalDate",
    ),
    (
        "LocalTimeSerializer",
        forms.Fields("bbbi", _in_nanos(datetime.time), _time_fields, _NO_TIME),
        LocalTimeTypeInfo(_LOCAL.LOCAL_TIME),
        "java.time.LocalTime",
    ),
    (
        "LocalDateTimeSerializer",
        forms.Fields("ibbbbbi", _in_nanos(datetime.datetime), _moment_fields, _NO_DATE + _NO_TIME),
        LocalTimeTypeInfo(_LOCAL.LOCAL_DATE_TIME),
        "java.time.LocalDateTime",
    ),
    (
        "InstantSerializer",
        forms.Fields("qi", Instant, operator.attrgetter("seconds", "nanos"), (_LEAST_LONG, _LEAST_INT)),
        Types.INSTANT(),
        "java.time.Instant",
    ),
]

_BYTES = _atom(
    _inner(f"{_ARRAYS}BytePrimitiveArraySerializer"), forms.Bytes(), Types.PRIMITIVE_ARRAY(Types.BYTE()), "[B"
)
#: PyFlink's pickled values are bytes to Flink. They are read as such: this row is only written.
_PICKLED = _atom(
    _BYTES.snapshot,
    forms.Mapped(forms.Bytes(), lambda data: data, dump_pickle),
    Types.PICKLED_BYTE_ARRAY(),
    "[B",
)

#: Java's older dates are moments, too.
_JAVA_DATE = _atom(
    _inner(f"{_BASE}DateSerializer"),
    forms.Fields(
        "q",
        moment_of,
        ms_of,
        (_LEAST_LONG,),
    ),
    Types.SQL_TIMESTAMP(),
    "java.util.Date",
)

_STRINGS = _atom(
    _inner(f"{_ARRAYS}StringArraySerializer"),
    forms.List(forms.Text()),
    Types.BASIC_ARRAY(Types.STRING()),
    "[Ljava.lang.String;",
)


def _primitive_array(name: str, code: str, element: TypeInformation, java_class: str) -> SerializerRow:
    form = forms.List(_CHARACTER) if code == "H" else forms.PrimitiveArray(code)
    snapshot = _inner(f"{_ARRAYS}{name}PrimitiveArraySerializer")
    return _atom(snapshot, form, Types.PRIMITIVE_ARRAY(element), java_class)


#: By the kinds of their elements.
_PRIMITIVE_ARRAYS = {
    "BOOLEAN": _primitive_array("Boolean", "?", Types.BOOLEAN(), "[Z"),
    "SHORT": _primitive_array("Short", "h", Types.SHORT(), "[S"),
    "INT": _primitive_array("Int", "i", Types.INT(), "[I"),
    "LONG": _primitive_array("Long", "q", Types.LONG(), "[J"),
    "FLOAT": _primitive_array("Float", "f", Types.FLOAT(), "[F"),
    "DOUBLE": _primitive_array("Double", "d", Types.DOUBLE(), "[D"),
    "CHAR": _primitive_array("Char", "H", Types.CHAR(), "[C"),
}

_TIME_WINDOW_FORM = forms.Fields("qq", TimeWindow, operator.attrgetter("start", "end"))
_COUNT_WINDOW_FORM = forms.Fields("q", CountWindow, lambda value: (cast(CountWindow, value).id,))

#: The rows of namespaces. The windows of SQL are written like those of streams.
_VOID = _atom(
    _inner("org.apache.flink.runtime.state.VoidNamespaceSerializer"),
    forms.Fields("x", lambda: VOID_NAMESPACE, lambda _: (), length=0),
    VOID_NAMESPACE_TYPE,
    "",
)
_TIME_WINDOW, TABLE_TIME_WINDOW = (
    _atom(
        f"{package}TimeWindow$Serializer$TimeWindowSerializerSnapshot",
        _TIME_WINDOW_FORM,
        TimeWindowSerializer(),
        "",
    )
    for package in (_WINDOWS, _TABLE_WINDOWS)
)
_GLOBAL_WINDOW = _atom(
    f"{_WINDOWS}GlobalWindow$Serializer$GlobalWindowSerializerSnapshot",
    forms.Fields("x", GlobalWindow.get, lambda _: ()),
    GlobalWindowSerializer(),
    "",
)
_COUNT_WINDOW = _atom(
    f"{_TABLE_WINDOWS}CountWindow$Serializer$CountWindowSerializerSnapshot",
    _COUNT_WINDOW_FORM,
    CountWindowSerializer(),
    "",
)
#: The keys of PyFlink's maps in process mode.
WRAPPED_BYTES = _atom(
    _inner("org.apache.flink.streaming.api.utils.ByteArrayWrapperSerializer"),
    forms.Bytes(),
    Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "",
)

# --- the rows of types with parts --------------------------------------------------------------------


def _text(source: Reader) -> Details:
    return (source.utf(),)


def _write_text(details: Details) -> bytes:
    return utf(cast(str, details[0]))


def _types(serializer: Serializer) -> list[TypeInformation]:
    return [part.type_info() for part in serializer.parts]


def nullable_list(element: Form) -> Form:
    """Return the form of arrays: a byte before each element says whether it is there."""
    return forms.List(forms.Nullable(element, b"\1", b"\0"))


def _class_of_array(serializer: Serializer) -> str:
    element = cast(str, serializer.details[0])
    return f"[{element}" if element.startswith("[") else f"[L{element};"


_BASIC = {kind for _, _, type_info, _ in _ATOMS[:9] if (kind := type_info.kind)}


def _array_type(serializer: Serializer) -> TypeInformation:
    (element,) = _types(serializer)
    return BasicArrayTypeInfo(element) if element.kind in _BASIC else ObjectArrayTypeInfo(element)


def _row_type(serializer: Serializer) -> RowTypeInfo:
    return RowTypeInfo(_types(serializer), serializer.names or None)


LIST = SerializerRow(
    snapshot=f"{_BASE}ListSerializerSnapshot",
    form=lambda _, parts: forms.List(*parts),
    type_info=lambda of: ListTypeInfo(*_types(of)),
    java_class=lambda _: "java.util.List",
    body=composite(1, 1),
)
MAP = SerializerRow(
    snapshot=f"{_BASE}MapSerializerSnapshot",
    form=lambda _, parts: forms.Map(*parts),
    type_info=lambda of: MapTypeInfo(*_types(of)),
    java_class=lambda _: "java.util.Map",
    body=composite(1, 2),
)
_ARRAY = SerializerRow(
    snapshot=f"{_BASE}GenericArraySerializerSnapshot",
    form=lambda _, parts: nullable_list(*parts),
    type_info=_array_type,
    java_class=_class_of_array,
    body=composite(1, 1, _text, _write_text),
)
_TUPLE_ROW = SerializerRow(
    snapshot=f"{_RUNTIME}TupleSerializerSnapshot",
    form=lambda _, parts: forms.Tuple(parts),
    type_info=lambda of: TupleTypeInfo(_types(of)),
    java_class=lambda of: cast(str, of.details[0]),
    body=composite(2, None, _text, _write_text),
)
#: Rows of Flink 1.10 and older have no kind.
_WITH_KIND: Details = (b"\1",)
_ROW = SerializerRow(
    snapshot=f"{_RUNTIME}RowSerializer$RowSerializerSnapshot",
    form=lambda of, parts: forms.Fielded(parts, _row_type(of).field_names),
    type_info=_row_type,
    java_class=lambda _: "org.apache.flink.types.Row",
    body=composite(4, None, lambda source: (source.take(1),), lambda details: cast(bytes, details[0])),
    is_opaque=lambda of: of.details != _WITH_KIND,
)
_NULLABLE = SerializerRow(
    snapshot=f"{_RUNTIME}NullableSerializer$NullableSerializerSnapshot",
    form=lambda of, parts: forms.Nullable(parts[0], b"\0", b"\1" + bytes(cast(int, of.details[0]))),
    type_info=lambda of: _types(of)[0],
    java_class=lambda of: of.parts[0].row.java_class(of.parts[0]),
    body=composite(
        2,
        1,
        lambda source: (source.unsigned(4),),
        lambda details: four_bytes(cast(int, details[0])),
    ),
)
_TTL = SerializerRow(
    snapshot="org.apache.flink.runtime.state.ttl.TtlStateFactory$TtlSerializerSnapshot",
    form=lambda _, parts: forms.Tuple(parts),
    type_info=lambda of: TtlTypeInfo(_types(of)[1]),
    body=composite(2, 2),
    ends_in_part=True,
)
TIMER = SerializerRow(
    snapshot="org.apache.flink.streaming.api.operators.TimerSerializerSnapshot",
    form=lambda _, parts: forms.Tuple([_TIMER_TIME, *parts]),
    type_info=lambda _: Types.LONG(),
    body=composite(2, 2),
)

# --- enums and objects -------------------------------------------------------------------------------


def _read_enum(source: Reader, depth: int) -> Content:
    return (source.utf(), *[source.utf() for _ in range(source.count())]), ()


def _write_enum(serializer: Serializer) -> bytes:
    name, *constants = [utf(cast(str, detail)) for detail in serializer.details]
    return b"".join([name, four_bytes(len(constants)), *constants])


#: A constant is its place among the others.
_ENUM = SerializerRow(
    snapshot=_inner(f"{_BASE}EnumSerializer"),
    form=always(forms.Number("i")),
    type_info=lambda _: Types.INT(),
    java_class=lambda of: cast(str, of.details[0]),
    body=Body(_read_enum, _write_enum),
)


@attrs.frozen
class PojoDetails:
    """What the snapshot of a Java class says besides the serializers of its fields and its subclasses.

    Attributes:
        class_name: the class.
        fields: the fields, in the order in which they are written.
        declared_in: the class that declares each of them.
        subclasses: the subclasses that were registered.
        others: other subclasses of which there were objects.
    """

    class_name: str
    fields: tuple[str, ...]
    declared_in: tuple[str, ...]
    subclasses: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def _read_pojo(source: Reader, depth: int) -> Content:
    class_name = source.utf()
    fields, subclasses, others = [read_optional_map(source) for _ in range(3)]
    details = PojoDetails(
        class_name,
        *[tuple([name for name, _, _ in fields]), tuple([Reader(key).utf() for _, key, _ in fields])],
        *[tuple([name for name, _, _ in entries]) for entries in (subclasses, others)],
    )
    snapshots = [snapshot for _, _, snapshot in fields + subclasses + others]
    return (details,), tuple([read_snapshot(Reader(snapshot), depth + 1) for snapshot in snapshots])


def _write_pojo(serializer: Serializer) -> bytes:
    details, snapshots = _pojo(serializer), [part.snapshot() for part in serializer.parts]
    fields = [
        (name, utf(declared) + utf(name), snapshots.pop(0))
        for name, declared in zip(details.fields, details.declared_in, strict=True)
    ]
    known = [(name, b"", snapshots.pop(0)) for name in details.subclasses]
    others = [(name, b"", snapshots.pop(0)) for name in details.others]
    return utf(details.class_name) + b"".join(map(write_optional_map, (fields, known, others)))


def _pojo(serializer: Serializer) -> PojoDetails:
    return cast(PojoDetails, serializer.details[0])


def _pojo_form(serializer: Serializer, parts: list[Form]) -> Form:
    details = _pojo(serializer)
    middle = len(details.fields)
    end = middle + len(details.subclasses)
    others = dict(zip(details.others, parts[end:], strict=True))
    return forms.Pojo(parts[:middle], details.fields, parts[middle:end], others)


def _pojo_type(serializer: Serializer) -> TypeInformation:
    names = _pojo(serializer).fields
    return RowTypeInfo(_types(serializer)[: len(names)], names)


_POJO = SerializerRow(
    snapshot=f"{_RUNTIME}PojoSerializerSnapshot",
    form=_pojo_form,
    type_info=_pojo_type,
    java_class=lambda of: _pojo(of).class_name,
    body=Body(_read_pojo, _write_pojo, version=2),
)


_TEXT = forms.Text()
#: The details are a class and the schema.
_AVRO = SerializerRow(
    snapshot="org.apache.flink.formats.avro.typeutils.AvroSerializerSnapshot",
    form=lambda of, _: form_and_type(cast(str, of.details[1]))[0],
    type_info=lambda of: form_and_type(cast(str, of.details[1]))[1],
    java_class=lambda of: cast(str, of.details[0]),
    body=Body(
        lambda source, depth: ((_TEXT.decode(source), _TEXT.decode(source)), ()),
        lambda of: b"".join(map(_TEXT.encode, of.details)),
    ),
    is_opaque=lambda of: form_and_type(cast(str, of.details[1])) is UNKNOWN,
)

# --- from a type to its serializer -------------------------------------------------------------------

_OF_KIND = {
    type_info.kind: _atom(_inner(_BASE + name), form, type_info, java)
    for name, form, type_info, java in _ATOMS
}
_OF_KIND["BYTES"] = _BYTES

_OTHERS = (
    _BYTES,
    _STRINGS,
    _JAVA_DATE,
    _VOID,
    _TIME_WINDOW,
    TABLE_TIME_WINDOW,
    _GLOBAL_WINDOW,
    _COUNT_WINDOW,
    WRAPPED_BYTES,
)
_WITH_PARTS = (LIST, MAP, _ARRAY, _TUPLE_ROW, _ROW, _NULLABLE, _TTL, TIMER, _ENUM, _POJO, _AVRO)
ROWS.update(
    {row.snapshot: row for row in (*_OF_KIND.values(), *_PRIMITIVE_ARRAYS.values(), *_OTHERS, *_WITH_PARTS)}
)

Parts = list[Serializer]


def _array(_: TypeInformation, parts: Parts) -> Serializer:
    (element,) = parts
    if element.row is _OF_KIND["STRING"]:
        return Serializer(_STRINGS)
    return Serializer(_ARRAY, (element.row.java_class(element),), (element,))


def _tuple(type_info: TypeInformation, parts: Parts) -> Serializer:
    if not 1 <= len(parts) <= 25:
        raise ConfigurationError(
            f"Flink has tuples of 1 to 25 fields: {type_info} cannot be written; use Types.ROW"
        )
    return Serializer(_TUPLE_ROW, (f"{_TUPLE}{len(parts)}",), tuple(parts))


_OF_CLASS: dict[type[TypeInformation], Callable[[TypeInformation, Parts], Serializer]] = {
    PrimitiveArrayTypeInfo: lambda of, parts: Serializer(_PRIMITIVE_ARRAYS[of.parts()[0].kind]),
    BasicArrayTypeInfo: _array,
    ObjectArrayTypeInfo: _array,
    ListTypeInfo: lambda _, parts: Serializer(LIST, (), tuple(parts)),
    MapTypeInfo: lambda _, parts: Serializer(MAP, (), tuple(parts)),
    TupleTypeInfo: _tuple,
    RowTypeInfo: lambda of, parts: Serializer(
        _ROW, _WITH_KIND, tuple(parts), cast(RowTypeInfo, of).field_names
    ),
    ExternalTypeInfo: lambda _, parts: parts[0],
    TtlTypeInfo: lambda _, parts: Serializer(_TTL, (), (Serializer(_OF_KIND["LONG"]), *parts)),
    PickledBytesTypeInfo: lambda *_: Serializer(_PICKLED),
    SealedPickles: lambda *_: Serializer(_BYTES),
    type(VOID_NAMESPACE_TYPE): lambda *_: Serializer(_VOID),
    TimeWindowSerializer: lambda *_: Serializer(_TIME_WINDOW),
    GlobalWindowSerializer: lambda *_: Serializer(_GLOBAL_WINDOW),
    CountWindowSerializer: lambda *_: Serializer(_COUNT_WINDOW),
}


def serializer_of(type_info: TypeInformation) -> Serializer:
    """Return the serializer that Flink has for a type.

    Raises:
        ConfigurationError: it has none, because the type is a user's own.
    """
    if type_info.kind in _OF_KIND:
        return Serializer(_OF_KIND[type_info.kind])
    make = _OF_CLASS.get(type(type_info))
    if make is None:
        raise ConfigurationError(f"Flink has no serializer for {type_info}; use a type made by Types")
    return make(type_info, [serializer_of(part) for part in type_info.parts()])


def timer_serializer(key: Serializer, namespace: Serializer) -> Serializer:
    """Return the serializer of timers."""
    return Serializer(TIMER, (), (key, namespace))
