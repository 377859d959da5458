"""Serializers against the bytes of Flink's own: snapshots and values, read and written."""

import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import attrs
import pytest
from hypothesis import given, strategies as st
from type_samples import SAMPLES

from pyflinkstate import Instant, Row, RowKind
from pyflinkstate.api import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    LocalTimeTypeInfo,
    TimeWindow,
    TimeWindowSerializer,
    TypeInformation,
    Types,
)
from pyflinkstate.backends.flink_format.cursor import Reader, utf, varint
from pyflinkstate.backends.flink_format.serializers import (
    PojoDetails,
    serializer_of,
    timer_serializer,
)
from pyflinkstate.backends.flink_format.snapshots import MAX_DEPTH, ROWS, Serializer, read_snapshot
from pyflinkstate.backends.types import VOID_NAMESPACE, VOID_NAMESPACE_TYPE, TtlTypeInfo
from pyflinkstate.errors import CheckpointError, ConfigurationError, CorruptCheckpointError

LONG, STRING = Types.LONG(), Types.STRING()
LOCAL = LocalTimeTypeInfo.TimeType
DAY, TIME = datetime.date(2024, 2, 29), datetime.time(1, 2, 3)


@attrs.frozen
class Written:
    """What Java wrote for one serializer: the length of values, the snapshot, and values."""

    length: int
    snapshot: bytes
    values: list[bytes]


def read_java() -> dict[str, Written]:
    found: dict[str, Written] = {}
    files = [Path(__file__).parent / f"{name}_serializers.txt" for name in ("java", "avro")]
    for line in "".join(file.read_text() for file in files).splitlines():
        if line.startswith("- "):
            [*found.values()][-1].values.append(bytes.fromhex(line[2:]))
        else:
            name, length, snapshot = line.split()
            found[name] = Written(int(length), bytes.fromhex(snapshot), [])
    return found


JAVA = read_java()
PERSON = Row(id=1, name=None, scores=[3])


def row(kind: RowKind, *values: object) -> Row:
    return Row.of_kind(kind, **{f"f{n}": value for n, value in enumerate(values)})


#: The type of each serializer, and the values that Java wrote.
KNOWN: dict[str, tuple[TypeInformation, list[Any]]] = {
    "BOOLEAN": (Types.BOOLEAN(), [True, False]),
    "BYTE": (Types.BYTE(), [-2]),
    "SHORT": (Types.SHORT(), [-2]),
    "INT": (Types.INT(), [-2]),
    "LONG": (LONG, [-2]),
    "FLOAT": (Types.FLOAT(), [1.5]),
    "DOUBLE": (Types.DOUBLE(), [1.5]),
    "CHAR": (Types.CHAR(), ["é"]),
    "STRING": (STRING, [None, "", "a", "é€", "😀", "x" * 127, "y" * 20000]),
    "BIG_INT": (Types.BIG_INT(), [None, 0, 1, 10, -1, -128, 128, 123456789012345678901234567890]),
    "BIG_DEC": (Types.BIG_DEC(), [None, *map(Decimal, ("0.00", "1", "1E+30", "-12.50"))]),
    "SQL_DATE": (Types.SQL_DATE(), [None, DAY, datetime.date(1950, 2, 28)]),
    "SQL_TIME": (Types.SQL_TIME(), [None, TIME]),
    "SQL_TIMESTAMP": (
        Types.SQL_TIMESTAMP(),
        [
            None,
            datetime.datetime(2024, 2, 29, 1, 2, 3, 123456),
            datetime.datetime(1950, 2, 28, 1, 2, 3, 123456),
        ],
    ),
    "LOCAL_DATE": (LocalTimeTypeInfo(LOCAL.LOCAL_DATE), [None, DAY]),
    "LOCAL_TIME": (LocalTimeTypeInfo(LOCAL.LOCAL_TIME), [None, datetime.time(1, 2, 3, 4)]),
    "LOCAL_DATE_TIME": (
        LocalTimeTypeInfo(LOCAL.LOCAL_DATE_TIME),
        [None, datetime.datetime(2024, 2, 29, 1, 2, 3, 4)],
    ),
    "INSTANT": (Types.INSTANT(), [None, Instant(-5, 6)]),
    "BYTES": (Types.PRIMITIVE_ARRAY(Types.BYTE()), [b"\x01\xff"]),
    "BOOLEANS": (Types.PRIMITIVE_ARRAY(Types.BOOLEAN()), [[True, False]]),
    "SHORTS": (Types.PRIMITIVE_ARRAY(Types.SHORT()), [[1, -2]]),
    "INTS": (Types.PRIMITIVE_ARRAY(Types.INT()), [[1, -2]]),
    "LONGS": (Types.PRIMITIVE_ARRAY(LONG), [[1, -2]]),
    "FLOATS": (Types.PRIMITIVE_ARRAY(Types.FLOAT()), [[1.0, -2.0]]),
    "DOUBLES": (Types.PRIMITIVE_ARRAY(Types.DOUBLE()), [[1.0, -2.0]]),
    "CHARS": (Types.PRIMITIVE_ARRAY(Types.CHAR()), [["a", "é"]]),
    "BASIC_STRINGS": (Types.BASIC_ARRAY(STRING), [["a", None]]),
    "BASIC_LONGS": (Types.BASIC_ARRAY(LONG), [[1, None]]),
    "BASIC_CHARS": (Types.BASIC_ARRAY(Types.CHAR()), [["é"]]),
    "OBJECT_ROWS": (Types.OBJECT_ARRAY(Types.ROW([LONG])), [[Row(f0=1), None]]),
    "OBJECT_TUPLES": (Types.OBJECT_ARRAY(Types.TUPLE([LONG])), []),
    "OBJECT_BASIC": (Types.OBJECT_ARRAY(Types.BASIC_ARRAY(LONG)), []),
    "OBJECT_LONGS": (Types.OBJECT_ARRAY(Types.PRIMITIVE_ARRAY(LONG)), []),
    "OBJECT_MAPS": (Types.OBJECT_ARRAY(Types.MAP(LONG, LONG)), []),
    "OBJECT_LISTS": (Types.OBJECT_ARRAY(Types.LIST(LONG)), []),
    "LIST": (Types.LIST(LONG), [[1, 2]]),
    "MAP": (Types.MAP(STRING, LONG), [{"a": 1, "b": None}]),
    "TUPLE": (Types.TUPLE([STRING, LONG]), [("a", 1)]),
    "TUPLE_OF_NUMBERS": (Types.TUPLE([LONG, Types.INT()]), [(1, 2)]),
    "ROW": (
        Types.ROW([STRING, LONG]),
        [
            row(RowKind.INSERT, "a", 1),
            row(RowKind.DELETE, "a", None),
            row(RowKind.UPDATE_BEFORE, None, 1),
            row(RowKind.UPDATE_AFTER, None, None),
        ],
    ),
    "ROW_OF_7": (Types.ROW([LONG] * 7), [row(RowKind.INSERT, 1, None, 3, None, 5, None, 7)]),
    "TTL": (TtlTypeInfo(STRING), [(7, "a")]),
    "VOID_NAMESPACE": (VOID_NAMESPACE_TYPE, [VOID_NAMESPACE]),
    "TIME_WINDOW": (TimeWindowSerializer(), [TimeWindow(1, 2)]),
    "GLOBAL_WINDOW": (GlobalWindowSerializer(), [GlobalWindow.get()]),
    "COUNT_WINDOW": (CountWindowSerializer(), [CountWindow(1)]),
}

#: Serializers that Flink has no type for here: what they are read as.
READ: dict[str, tuple[TypeInformation, list[Any]]] = {
    "DATE": (Types.SQL_TIMESTAMP(), [None, datetime.datetime(1969, 12, 31, 23, 59, 59, 999000)]),
    "ENUM": (Types.INT(), [2]),
    "NULLABLE": (LONG, [5, None]),
    "NULLABLE_UNPADDED": (LONG, [5, None]),
    "TIMER": (LONG, [(999999, 5, "ns"), (-1, 5, "")]),
    "TABLE_TIME_WINDOW": (TimeWindowSerializer(), [TimeWindow(1, 2)]),
    "WRAPPED_BYTES": (Types.PRIMITIVE_ARRAY(Types.BYTE()), [b"\x01\x02"]),
    "POJO": (
        Types.ROW_NAMED(["id", "name", "scores"], [LONG, STRING, Types.LIST(LONG)]),
        [
            Row(id=1, name=None, scores=[3]),
            Row(id=0, name="n", salary=9, scores=None),
            Row(hours=8, id=0, name=None, scores=None),
            None,
        ],
    ),
}

POINT = Types.ROW_NAMED(["x"], [Types.INT()])
READ["AVRO"] = (
    Types.ROW_NAMED(
        ["id", "name", "tags", "counts", "kind", "sum", "rate", "ok", "raw", "hash", "from", "to"],
        [
            *[LONG, STRING, Types.LIST(STRING), Types.MAP(STRING, Types.INT()), Types.INT(), Types.DOUBLE()],
            *[Types.FLOAT(), Types.BOOLEAN(), *[Types.PRIMITIVE_ARRAY(Types.BYTE())] * 2, POINT, POINT],
        ],
    ),
    [
        Row(
            id=number,
            name=name,
            tags=tags,
            counts=counts,
            kind=1,
            sum=1.5,
            rate=-0.25,
            ok=is_full,
            raw=b"\x01\x02\x03",
            hash=b"\x07\x08",
            **{"from": Row(x=-3) if is_full else None, "to": Row(x=-3)},
        )
        for number, name, tags, counts, is_full in [
            (1234567890123, "né", ["a", "b"], {"k": 5}, True),
            (-1, None, [], {}, False),
        ]
    ],
)
#: They are not written as they were read: a subclass has lost its name.
READ_ONLY = {"POJO"}

#: Serializers of which nobody knows how they write, and how messages call them.
UNKNOWN = {
    "KRYO": "KryoSerializer of DumpSerializers$Unknown",
    "EITHER": "JavaEitherSerializer",
    "EITHER_OF_KRYO": "JavaEitherSerializer",
    "AVRO_UNION": "AvroSerializer",
    "AVRO_RECURSIVE": "AvroSerializer",
    "ROW_OF_KRYO": "RowSerializer<KryoSerializer of DumpSerializers$Unknown, LongSerializer>",
}


def read(data: bytes) -> Serializer:
    source = Reader(data)
    found = read_snapshot(source)
    assert source.at == len(data)
    return found


def decoded(serializer: Serializer, data: bytes) -> object:
    source = Reader(data)
    value = serializer.form().decode(source)
    assert source.at == len(data)
    return value


def test_each_serializer_is_looked_at() -> None:
    assert {*KNOWN, *READ, *UNKNOWN} == {*JAVA}


@pytest.mark.parametrize("name", KNOWN)
def test_snapshots_and_values_are_those_of_flink(name: str) -> None:
    (type_info, values), written = KNOWN[name], JAVA[name]
    serializer = serializer_of(type_info)
    assert serializer.snapshot() == written.snapshot
    assert read(written.snapshot) == serializer
    assert serializer.type_info() == type_info
    assert serializer.form().length == written.length
    assert [decoded(serializer, data) for data in written.values] == values
    assert [serializer.form().encode(value) for value in values] == written.values


@pytest.mark.parametrize("name", READ)
def test_what_has_no_type_of_its_own_is_read(name: str) -> None:
    (type_info, values), written = READ[name], JAVA[name]
    serializer = read(written.snapshot)
    assert serializer.snapshot() == written.snapshot
    assert serializer.type_info() == type_info
    assert [decoded(serializer, data) for data in written.values] == values
    if name not in READ_ONLY:
        assert [serializer.form().encode(value) for value in values] == written.values


@pytest.mark.parametrize("name", UNKNOWN)
def test_what_is_unknown_stays_bytes(name: str) -> None:
    written = JAVA[name]
    serializer = read(written.snapshot)
    assert serializer.snapshot() == written.snapshot
    assert serializer.is_opaque
    assert str(serializer) == UNKNOWN[name]
    assert serializer.type_info() == Types.PRIMITIVE_ARRAY(Types.BYTE())
    assert [decoded(serializer, data) for data in written.values] == written.values


def test_a_pojo_can_be_written() -> None:
    row = ROWS["org.apache.flink.api.java.typeutils.runtime.PojoSerializerSnapshot"]
    details = PojoDetails("org.Person", ("id", "name"), ("org.Person", "org.Being"))
    serializer = Serializer(row, (details,), (serializer_of(LONG), serializer_of(STRING)))
    assert read(serializer.snapshot()) == serializer
    value = Row(id=1, name=None)
    assert decoded(serializer, serializer.form().encode(value)) == value
    assert decoded(serializer, serializer.form().encode(None)) is None


#: Pickled values are bytes to Flink, and rows have no names there.
SAMPLED = {
    name: samples for name, samples in SAMPLES.items() if name not in {"PICKLED_BYTE_ARRAY", "ROW_NAMED"}
}


@pytest.mark.parametrize("name", SAMPLED)
def test_all_samples_of_a_type_come_back(name: str) -> None:
    type_info = SAMPLED[name].type_info
    serializer = serializer_of(type_info)
    form = serializer.form()
    for value in SAMPLED[name].fits:
        if (type_info == Types.CHAR() and ord(value) > 0xFFFF) or (
            isinstance(value, tuple) and None in value
        ):
            continue  # Java's characters are UTF-16 units, and its tuples do not contain null
        back = decoded(serializer, form.encode(value))
        assert type_info.check(back) == in_flink(type_info, value)


def in_flink(type_info: TypeInformation, value: Any) -> Any:
    """Return what Flink keeps of a value."""
    if type_info == Types.SQL_TIME():
        return value.replace(microsecond=value.microsecond // 1000 * 1000)
    return type_info.rounded(value)


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_any_text_comes_back(text: str) -> None:
    assert decoded(serializer_of(STRING), serializer_of(STRING).form().encode(text)) == text
    assert Reader(utf(text)).utf() == text


@given(st.integers(), st.decimals(allow_nan=False, allow_infinity=False))
def test_any_number_comes_back(integer: int, number: Decimal) -> None:
    for type_info, value in ((Types.BIG_INT(), integer), (Types.BIG_DEC(), number)):
        serializer = serializer_of(type_info)
        back = decoded(serializer, serializer.form().encode(value))
        assert str(back) == str(value if value else abs(value))  # Java has no -0


@given(st.integers(0, 2**32 - 1))
def test_any_varint_comes_back(number: int) -> None:
    assert Reader(varint(number)).varint() == number


def test_a_user_s_own_type_has_no_serializer() -> None:
    with pytest.raises(ConfigurationError, match="no serializer for Own"):
        serializer_of(OwnType())
    with pytest.raises(ConfigurationError, match="1 to 25 fields"):
        serializer_of(Types.TUPLE([LONG] * 26))


@attrs.frozen
class OwnType(TypeInformation):
    @property
    def name(self) -> str:
        return "Own"


def test_a_length_that_lies_allocates_nothing() -> None:
    for type_info in (Types.PRIMITIVE_ARRAY(LONG), Types.LIST(LONG), Types.PRIMITIVE_ARRAY(Types.BYTE())):
        with pytest.raises(CorruptCheckpointError, match="are left") as caught:
            decoded(serializer_of(type_info), b"\x7f\xff\xff\xff1234")
        assert caught.value.context["offset"] in (0, 4)


def test_serializers_inside_of_each_other_are_bounded() -> None:
    deep = LONG
    for _ in range(MAX_DEPTH):
        deep = Types.LIST(deep)
    assert read(serializer_of(deep).snapshot()) == serializer_of(deep)
    with pytest.raises(CorruptCheckpointError, match="inside of each other"):
        read(serializer_of(Types.LIST(deep)).snapshot())


@pytest.mark.parametrize("name", JAVA)
def test_a_shorter_snapshot_or_value_is_an_error(name: str) -> None:
    written = JAVA[name]
    serializer = read(written.snapshot)
    for size in range(len(written.snapshot) if name not in UNKNOWN else 0):
        with pytest.raises((CheckpointError, ValueError)):
            read(written.snapshot[:size])
    for value in written.values if name not in UNKNOWN else []:
        for size in range(min(len(value), 200)):
            with pytest.raises((CheckpointError, ValueError)):
                decoded(serializer, value[:size])


def test_timers_of_early_times_sort_first() -> None:
    form = timer_serializer(serializer_of(LONG), serializer_of(VOID_NAMESPACE_TYPE)).form()
    times = [-(2**63), -1, 0, 1, 2**63 - 1]
    encoded = [form.encode((time, 1, VOID_NAMESPACE)) for time in times]
    assert encoded == sorted(encoded)
