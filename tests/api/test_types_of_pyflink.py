"""Type information under PyFlink's class names: arrays, basic types, dates, and what they print."""

import datetime
import itertools
import pickle
import time

import pytest

from pyflinkstate import Instant, Row, RowKind, Types
from pyflinkstate.api import (
    BasicArrayTypeInfo,
    BasicType,
    BasicTypeInfo,
    DateTypeInfo,
    ExternalTypeInfo,
    LocalTimeTypeInfo,
    ObjectArrayTypeInfo,
    PickledBytesTypeInfo,
    PrimitiveArrayTypeInfo,
    SqlTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
)
from pyflinkstate.errors import ConfigurationError

LONG, STRING, INT, BYTE = Types.LONG(), Types.STRING(), Types.INT(), Types.BYTE()
TIME_TYPES = LocalTimeTypeInfo.TimeType

PRINTED = {
    "Boolean": Types.BOOLEAN(),
    "Byte": BYTE,
    "Short": Types.SHORT(),
    "Integer": INT,
    "Long": LONG,
    "Float": Types.FLOAT(),
    "Double": Types.DOUBLE(),
    "Char": Types.CHAR(),
    "String": STRING,
    "BigInteger": Types.BIG_INT(),
    "BigDecimal": Types.BIG_DEC(),
    "Instant": Types.INSTANT(),
    "DateTypeInfo": Types.SQL_DATE(),
    "TimeTypeInfo": Types.SQL_TIME(),
    "TimestampTypeInfo": Types.SQL_TIMESTAMP(),
    "LocalTimeTypeInfo<LOCAL_DATE>": LocalTimeTypeInfo(TIME_TYPES.LOCAL_DATE),
    "PickledByteArrayTypeInfo": Types.PICKLED_BYTE_ARRAY(),
    "PrimitiveArrayTypeInfo<Byte>": Types.PRIMITIVE_ARRAY(BYTE),
    "BasicArrayTypeInfo<String>": Types.BASIC_ARRAY(STRING),
    "ObjectArrayTypeInfo<RowTypeInfo(Integer)>": Types.OBJECT_ARRAY(Types.ROW([INT])),
    "ListTypeInfo<Long>": Types.LIST(LONG),
    "MapTypeInfo<Long, String>": Types.MAP(LONG, STRING),
    "TupleTypeInfo(Long, String)": Types.TUPLE([LONG, STRING]),
    "ExternalTypeInfo<Integer>": ExternalTypeInfo(INT),
}


@pytest.mark.parametrize(("printed", "type_info"), PRINTED.items(), ids=PRINTED)
def test_types_print_as_in_pyflink_and_survive_pickling(printed, type_info):
    assert repr(type_info) == printed
    back = pickle.loads(pickle.dumps(type_info))
    assert back == type_info
    assert (repr(back), hash(back), type(back)) == (printed, hash(type_info), type(type_info))


def test_all_these_types_differ():
    assert len(set(PRINTED.values())) == len(PRINTED)


class TestArrays:
    ARRAYS = (PrimitiveArrayTypeInfo, BasicArrayTypeInfo, ObjectArrayTypeInfo)

    def test_each_is_a_type_of_its_own(self):
        made = [Types.PRIMITIVE_ARRAY(INT), Types.BASIC_ARRAY(INT), Types.OBJECT_ARRAY(INT), Types.LIST(INT)]
        assert tuple(map(type, made[:3])) == self.ARRAYS
        assert len(set(made)) == 4
        assert list(map(str, made)) == [
            "PRIMITIVE_ARRAY(INT)",
            "BASIC_ARRAY(INT)",
            "OBJECT_ARRAY(INT)",
            "LIST(INT)",
        ]

    @pytest.mark.parametrize(
        ("array", "value", "kept"),
        [
            *((cls(Types.DOUBLE()), (1, 2.5), [1.0, 2.5]) for cls in ARRAYS),
            (Types.BASIC_ARRAY(INT), [1, None], [1, None]),
            (Types.OBJECT_ARRAY(Types.ROW([INT])), [None, (1,)], [None, Row(f0=1)]),
            (Types.PRIMITIVE_ARRAY(BYTE), bytearray(b"ab"), b"ab"),
            (Types.BASIC_ARRAY(BYTE), [1, -1], [1, -1]),
            (Types.BASIC_ARRAY(STRING), ["a"], ["a"]),
        ],
    )
    def test_elements_are_checked(self, array, value, kept):
        assert repr(array.check(value)) == repr(kept)

    @pytest.mark.parametrize(
        ("array", "value"),
        [
            *itertools.product(
                [cls(Types.DOUBLE()) for cls in ARRAYS], ["ab", 5, None, {1.0}, {1: 2}, ["x"]]
            ),
            (Types.PRIMITIVE_ARRAY(INT), [1, None]),
            (Types.BASIC_ARRAY(BYTE), b"ab"),
        ],
    )
    def test_what_is_no_array_is_refused(self, array, value):
        with pytest.raises(ValueError, match="fit"):
            array.check(value)

    @pytest.mark.parametrize(
        ("make", "element"),
        [
            (Types.PRIMITIVE_ARRAY, STRING),
            *itertools.product(
                [Types.PRIMITIVE_ARRAY, Types.BASIC_ARRAY],
                [Types.BIG_DEC(), Types.BIG_INT(), Types.INSTANT(), Types.LIST(INT)],
            ),
        ],
    )
    def test_elements_that_java_has_no_array_for_are_refused(self, make, element):
        with pytest.raises(ConfigurationError, match=r"cannot have elements of .* use Types.OBJECT_ARRAY"):
            make(element)
        assert Types.OBJECT_ARRAY(element).element_type == element


class TestBasicTypes:
    @pytest.mark.parametrize("basic_type", BasicType)
    def test_each_has_a_maker_and_a_constructor(self, basic_type):
        made = getattr(Types, basic_type.name)()
        assert getattr(BasicTypeInfo, f"{basic_type.name}_TYPE_INFO")() == made
        assert BasicTypeInfo(basic_type) == BasicTypeInfo(basic_type.name) == made
        assert isinstance(made, BasicTypeInfo)

    def test_there_is_no_other(self):
        with pytest.raises(ConfigurationError, match="SQL_DATE"):
            BasicTypeInfo("SQL_DATE")

    def test_sql_types_have_a_class_that_makes_them(self):
        assert SqlTimeTypeInfo.DATE() == Types.SQL_DATE() == DateTypeInfo()
        assert SqlTimeTypeInfo.TIME() == Types.SQL_TIME() == TimeTypeInfo()
        assert SqlTimeTypeInfo.TIMESTAMP() == Types.SQL_TIMESTAMP() == TimestampTypeInfo()

    @pytest.mark.parametrize(
        ("time_type", "value"),
        [
            (TIME_TYPES.LOCAL_DATE, datetime.date(2024, 2, 29)),
            (TIME_TYPES.LOCAL_TIME, datetime.time(1, 2, 3, 4)),
            (TIME_TYPES.LOCAL_DATE_TIME, datetime.datetime(2024, 2, 29, 1)),
        ],
    )
    def test_local_times_are_pythons(self, time_type, value):
        assert LocalTimeTypeInfo(time_type).check(value) == value
        assert str(LocalTimeTypeInfo(time_type)) == time_type.name
        with pytest.raises(ValueError, match="does not fit LOCAL_"):
            LocalTimeTypeInfo(time_type).check("noon")


@pytest.fixture
def in_berlin(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


class TestInternalTypes:
    """What PyFlink hands to the JVM."""

    @pytest.mark.parametrize(
        ("type_info", "value", "internal"),
        [
            (Types.SQL_DATE(), datetime.date(1970, 1, 2), 1),
            (Types.SQL_DATE(), datetime.date(1969, 12, 31), -1),
            (Types.SQL_TIME(), datetime.time(1, 2, 3, 4), 3_723_000_004),
            (Types.INSTANT(), Instant(1, 2_000_000), 1_002_000),
            (Types.INSTANT(), Instant(-1, 999_000_000), -1_000),
            (Types.TUPLE([LONG, Types.SQL_DATE()]), (1, datetime.date(1970, 1, 2)), (1, 1)),
            (Types.TUPLE([LONG, Types.SQL_DATE()]), (None, None), (None, None)),
            (Types.ROW([LONG, Types.SQL_DATE()]), Row(f0=1, f1=datetime.date(1970, 1, 2)), (0, 1, 1)),
            (Types.ROW([LONG, Types.INSTANT()]), Row(f0=1, f1=None), (0, 1, None)),
            (LONG, 5, 5),
            (TypeInformation(), "x", "x"),
        ],
        ids=repr,
    )
    def test_there_and_back(self, type_info, value, internal):
        assert type_info.to_internal_type(value) == internal
        assert type_info.from_internal_type(internal) == value

    def test_a_row_may_be_given_as_a_tuple_or_dict_and_keeps_its_kind(self):
        row_type = Types.ROW_NAMED(["a", "b"], [LONG, Types.SQL_DATE()])
        day = datetime.date(1970, 1, 2)
        assert row_type.to_internal_type((1, day)) == (0, 1, 1)
        assert row_type.to_internal_type({"b": day, "a": 1}) == (0, 1, 1)
        deleted = Row.of_kind(RowKind.DELETE, b=day, a=1)
        assert row_type.to_internal_type(deleted) == (3, 1, 1)
        assert row_type.from_internal_type((3, 1, 1)) == deleted
        assert Types.TUPLE([LONG]).to_internal_type(Row(1)) == (1,)
        with pytest.raises(ValueError, match="fit TUPLE"):
            Types.TUPLE([LONG]).to_internal_type(5)

    def test_a_time_with_a_zone_is_handed_over_in_utc(self):
        zone = datetime.timezone(datetime.timedelta(hours=1))
        assert Types.SQL_TIME().to_internal_type(datetime.time(1, 2, 3, 4, tzinfo=zone)) == 123_000_004

    def test_a_timestamp_is_one_of_local_time(self, in_berlin):
        noon = datetime.datetime(2024, 7, 1, 12, 0, 0, 5)
        internal = Types.SQL_TIMESTAMP().to_internal_type(noon)
        assert internal == 1_719_828_000_000_005
        assert Types.SQL_TIMESTAMP().from_internal_type(internal) == noon
        aware = datetime.datetime(2024, 7, 1, 10, 0, 0, 5, tzinfo=datetime.timezone.utc)
        assert Types.SQL_TIMESTAMP().to_internal_type(aware) == internal

    @pytest.mark.parametrize(
        "type_info",
        [Types.SQL_DATE(), Types.SQL_TIME(), Types.SQL_TIMESTAMP(), Types.ROW([LONG]), Types.TUPLE([LONG])],
        ids=repr,
    )
    def test_none_stays(self, type_info):
        assert type_info.need_conversion()
        assert type_info.to_internal_type(None) is None
        assert type_info.from_internal_type(None) is None

    @pytest.mark.parametrize(
        "type_info", [LONG, PickledBytesTypeInfo(), Types.LIST(Types.SQL_DATE())], ids=repr
    )
    def test_others_are_handed_over_as_they_are(self, type_info):
        assert not type_info.need_conversion()
        assert type_info.to_internal_type([1]) == [1]
