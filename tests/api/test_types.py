"""Every type's ``check``: what it accepts and converts, what it refuses; names, equality, pickling."""

import datetime
import fractions
import itertools
import math
import pickle
import struct
import time

import numpy as np
import pytest
from type_samples import ALL_SAMPLES

from pyflinkstate import Instant, Row, RowKind
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
    RowTypeInfo,
    SqlTimeTypeInfo,
    TimestampTypeInfo,
    TimeTypeInfo,
    TypeInformation,
    Types,
    safe_repr,
)
from pyflinkstate.errors import ConfigurationError


def rounded_to_32_bits(value):
    return struct.unpack(">f", struct.pack(">f", value))[0]


def case(type_info, *values):
    return pytest.param(type_info, *values, id=f"{type_info}-{safe_repr(values[0])}"[:60])


CONVERTED = [
    *(case(samples.type_info, *pair) for samples in ALL_SAMPLES for pair in samples.nearly),
    case(Types.SHORT(), np.uint8(255), 255),
    case(Types.LONG(), np.int64(-(2**63)), -(2**63)),
    case(Types.DOUBLE(), fractions.Fraction(1, 4), 0.25),
    case(Types.FLOAT(), 16777217, 16777217.0),
    case(Types.FLOAT(), np.float64(0.1), 0.1),
    case(Types.FLOAT(), 1e-50, 1e-50),
    case(Types.FLOAT(), 1e300, 1e300),
    case(Types.LIST(Types.DOUBLE()), (1, 2), [1.0, 2.0]),
    case(Types.MAP(Types.LONG(), Types.DOUBLE()), {np.int64(1): 2}, {1: 2.0}),
    case(Types.TUPLE([Types.DOUBLE(), Types.LIST(Types.LONG())]), [1, (2,)], (1.0, [2])),
]

REFUSED = [
    *(case(samples.type_info, value) for samples in ALL_SAMPLES for value in samples.refused),
    case(Types.LONG(), np.uint64(2**63)),
    case(Types.DOUBLE(), 10**400),
    case(Types.DOUBLE(), fractions.Fraction(10**400)),
]

ALL_TYPES = {
    "BOOLEAN": Types.BOOLEAN(),
    "BYTE": Types.BYTE(),
    "SHORT": Types.SHORT(),
    "INT": Types.INT(),
    "LONG": Types.LONG(),
    "FLOAT": Types.FLOAT(),
    "DOUBLE": Types.DOUBLE(),
    "CHAR": Types.CHAR(),
    "STRING": Types.STRING(),
    "BIG_INT": Types.BIG_INT(),
    "BIG_DEC": Types.BIG_DEC(),
    "SQL_DATE": Types.SQL_DATE(),
    "SQL_TIME": Types.SQL_TIME(),
    "SQL_TIMESTAMP": Types.SQL_TIMESTAMP(),
    "PICKLED_BYTE_ARRAY": Types.PICKLED_BYTE_ARRAY(),
    "PRIMITIVE_ARRAY(BYTE)": Types.PRIMITIVE_ARRAY(Types.BYTE()),
    "LIST(LONG)": Types.LIST(Types.LONG()),
    "LIST(STRING)": Types.LIST(Types.STRING()),
    "MAP(STRING, LIST(LONG))": Types.MAP(Types.STRING(), Types.LIST(Types.LONG())),
    "MAP(LIST(LONG), STRING)": Types.MAP(Types.LIST(Types.LONG()), Types.STRING()),
    "TUPLE(LONG, STRING)": Types.TUPLE([Types.LONG(), Types.STRING()]),
    "TUPLE(STRING, LONG)": Types.TUPLE([Types.STRING(), Types.LONG()]),
    "TUPLE()": Types.TUPLE([]),
}


@pytest.mark.parametrize(("type_info", "value", "expected"), CONVERTED)
def test_what_nearly_fits_becomes_what_a_restore_would_give(type_info, value, expected):
    kept = type_info.check(value)
    assert (repr(kept), type(kept)) == (repr(expected), type(expected))
    assert type_info.check(kept) == kept


@pytest.mark.parametrize(("type_info", "value"), REFUSED)
def test_what_does_not_fit_is_refused(type_info, value):
    with pytest.raises(ValueError, match=r"fit|range|surrogate|character|zone|fields") as refusal:
        type_info.check(value)
    assert type(refusal.value) is ValueError


@pytest.mark.parametrize("type_info", [Types.DOUBLE(), Types.FLOAT()], ids=str)
def test_nan_is_a_legal_value_and_the_sign_of_zero_is_kept(type_info):
    assert math.isnan(type_info.check(math.nan))
    assert math.isnan(type_info.check(np.float32("nan")))
    assert math.copysign(1, type_info.check(-0.0)) == -1


def test_a_container_is_copied_so_that_the_callers_own_cannot_change_the_state():
    for mine, type_info in (([1], Types.LIST(Types.LONG())), ({1: 1}, Types.MAP(Types.LONG(), Types.LONG()))):
        kept = type_info.check(mine)
        assert kept == mine
        assert kept is not mine


def test_undeclared_values_pass_untouched():
    value = object()
    assert Types.PICKLED_BYTE_ARRAY().check(value) is value
    assert TypeInformation().check(value) is value


ROUNDED = [
    case(Types.FLOAT(), 0.1, rounded_to_32_bits(0.1)),
    case(Types.FLOAT(), 16777217, 16777216.0),
    case(Types.FLOAT(), 1e-50, 0.0),
    case(Types.FLOAT(), 3.5e38, math.inf),
    case(Types.FLOAT(), -1e300, -math.inf),
    case(Types.DOUBLE(), 0.1, 0.1),
    case(Types.LIST(Types.FLOAT()), [0.1], [rounded_to_32_bits(0.1)]),
    case(Types.BASIC_ARRAY(Types.FLOAT()), [0.1, None], [rounded_to_32_bits(0.1), None]),
    case(Types.MAP(Types.FLOAT(), Types.FLOAT()), {0.1: None}, {rounded_to_32_bits(0.1): None}),
    case(Types.TUPLE([Types.FLOAT(), Types.LONG()]), (0.1, None), (rounded_to_32_bits(0.1), None)),
    case(Types.ROW([Types.FLOAT()]), [0.1], Types.ROW([Types.FLOAT()]).check([rounded_to_32_bits(0.1)])),
    case(ExternalTypeInfo(Types.FLOAT()), 0.1, rounded_to_32_bits(0.1)),
]


@pytest.mark.parametrize(("type_info", "value", "expected"), ROUNDED)
def test_a_value_to_be_found_again_is_rounded_and_one_in_state_is_not(type_info, value, expected):
    assert type_info.check_key(value) == expected
    assert type_info.rounded(type_info.check(value)) == expected
    assert type_info.has_floats() is (type_info != Types.DOUBLE())


def test_a_type_without_floats_checks_keys_as_it_checks_values():
    assert Types.STRING().check_key is Types.STRING().check


def test_a_timestamp_is_kept_as_a_restore_would_give_it():
    pandas = pytest.importorskip("pandas")
    kept = Types.SQL_TIMESTAMP().check(pandas.Timestamp("2024-02-29 00:00:00.000001"))
    assert type(kept) is datetime.datetime
    for refused in (pandas.Timestamp("2024-02-29 00:00:00.000000001"), pandas.NaT):
        with pytest.raises(ValueError, match="does not fit SQL_TIMESTAMP"):
            Types.SQL_TIMESTAMP().check(refused)
    assert kept == datetime.datetime(2024, 2, 29, microsecond=1)


@pytest.mark.parametrize(("name", "type_info"), ALL_TYPES.items(), ids=ALL_TYPES)
def test_a_type_is_spelled_as_types_spells_it_also_after_pickling(name, type_info):
    back = pickle.loads(pickle.dumps(type_info))
    assert (back, hash(back)) == (type_info, hash(type_info))
    for one in (type_info, back):
        assert one.name == str(one) == name


def test_a_pickled_type_still_checks():
    back = pickle.loads(pickle.dumps(Types.LIST(Types.BYTE())))
    assert back.check([127]) == [127]
    with pytest.raises(ValueError, match="BYTE"):
        back.check([128])


def test_types_are_equal_exactly_when_they_are_made_alike():
    for (name, one), (other_name, other) in itertools.product(ALL_TYPES.items(), repeat=2):
        assert (one == other) is (name == other_name)
    assert len(set(ALL_TYPES.values())) == len(ALL_TYPES)
    assert Types.LIST(Types.LONG()) == Types.LIST(Types.LONG())
    assert hash(Types.TUPLE([Types.LONG()])) == hash(Types.TUPLE([Types.LONG()]))


def test_types_cannot_be_changed():
    with pytest.raises(AttributeError):
        Types.LONG().kind = "INT"
    with pytest.raises(AttributeError):
        Types.LIST(Types.LONG()).element_type = Types.INT()


@pytest.mark.parametrize(
    "make",
    [
        Types.LIST,
        Types.OBJECT_ARRAY,
        Types.BASIC_ARRAY,
        Types.PRIMITIVE_ARRAY,
        lambda parts: Types.MAP(parts, Types.LONG()),
        lambda parts: Types.MAP(Types.STRING(), parts),
        ExternalTypeInfo,
        lambda parts: Types.TUPLE([parts]),
        lambda parts: Types.ROW([parts]),
    ],
)
@pytest.mark.parametrize("parts", [(), (Types.LONG(),), (Types.LONG(), Types.STRING())], ids=repr)
def test_several_types_are_no_part_of_a_type(make, parts):
    with pytest.raises(ConfigurationError, match=r"must be made by Types, such as Types.LONG\(\), not \("):
        make(parts)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        pytest.param(
            lambda: Types.LONG().check("7"),
            ValueError,
            r"'7' \(str\) does not fit LONG",
            id="a_refusal_shows_the_value_its_type_and_the_declared_type_1",
        ),
        pytest.param(
            lambda: Types.BYTE().check(128),
            ValueError,
            r"128 is out of the range of BYTE \(-128 to 127\)",
            id="a_refusal_shows_the_value_its_type_and_the_declared_type_2",
        ),
        pytest.param(
            lambda: Types.TUPLE([Types.LONG(), Types.LONG()]).check((1,)),
            ValueError,
            r"1 fields, and TUPLE\(LONG, LONG\) has 2",
            id="a_refusal_shows_the_value_its_type_and_the_declared_type_3",
        ),
        pytest.param(
            lambda: Types.LIST(Types.PICKLED_BYTE_ARRAY()).check([None]),
            ValueError,
            "None",
            id="none_is_refused_in_a_list_of_undeclared_elements",
        ),
        pytest.param(
            lambda: BasicTypeInfo("DECIMAL"),
            ValueError,
            "DECIMAL",
            id="a_basic_type_of_an_unknown_kind_cannot_be_made",
        ),
    ],
)
def test_a_mistake_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()


# --- row types: what stands for a row, what becomes of it, what is refused and how -------------------------


LONG, STRING, INT, BYTE = Types.LONG(), Types.STRING(), Types.INT(), Types.BYTE()
PERSON = Types.ROW_NAMED(["name", "age"], [STRING, LONG])
PAIR = Types.ROW([LONG, STRING])


class TestWhatFits:
    @pytest.mark.parametrize(
        "value",
        [
            Row("Ann", 30),
            Row(name="Ann", age=30),
            Row(age=30, name="Ann"),
            ("Ann", 30),
            ["Ann", 30],
            {"age": 30, "name": "Ann"},
        ],
        ids=repr,
    )
    def test_becomes_a_row_with_the_names_of_the_type(self, value):
        kept = PERSON.check(value)
        assert repr(kept) == "Row(name='Ann', age=30)"
        assert PERSON.check(kept) == kept

    @pytest.mark.parametrize(
        ("row_type", "value", "kept"),
        [
            (PAIR, (1, "a"), "Row(f0=1, f1='a')"),
            (PAIR, Row(f1="a", f0=1), "Row(f0=1, f1='a')"),
            (PERSON, Row(None, None), "Row(name=None, age=None)"),
            (PERSON, {"name": None, "age": None}, "Row(name=None, age=None)"),
            (
                Types.ROW([Types.DOUBLE(), Types.LIST(LONG), PAIR]),
                (1, (2,), [3, "x"]),
                "Row(f0=1.0, f1=[2], f2=Row(f0=3, f1='x'))",
            ),
        ],
    )
    def test_fields_are_converted_and_may_be_none(self, row_type, value, kept):
        assert repr(row_type.check(value)) == kept

    def test_the_kind_is_kept(self):
        kept = PAIR.check(Row.of_kind(RowKind.UPDATE_BEFORE, 1, "a"))
        assert kept.get_row_kind() is RowKind.UPDATE_BEFORE

    def test_what_is_kept_is_the_types_own(self):
        mine = Row(name="Ann", age=30)
        kept = PERSON.check(mine)
        mine["age"] = "no long"
        assert kept.age == 30
        assert kept is not mine


class TestWhatDoesNotFit:
    @pytest.mark.parametrize(
        ("value", "reason"),
        [
            (Row("Ann"), "there is none for 'age'"),
            (("Ann",), "there is none for 'age'"),
            ([], "there is none for 'name'"),
            (Row("Ann", 30, 1), "has 3 fields, and ROW.* has 2"),
            ({"name": "Ann"}, "has no field 'age'"),
            ({"name": "Ann", "age": 1, "more": 2}, "has a field 'more'"),
            (Row(name="Ann", years=1), "has no field 'age'"),
            (Row(name="Ann", age=1, more=2), "has a field 'more'"),
            (Row(name="Ann", age="old"), r"field 'age': 'old' \(str\) does not fit LONG"),
            (("Ann", 2**63), "field 'age': .* out of the range of LONG"),
            ("Ann", r"does not fit ROW\(name: STRING, age: LONG\)"),
            (5, "does not fit ROW"),
            (None, "does not fit ROW"),
            ({1, 2}, "does not fit ROW"),
        ],
        ids=repr,
    )
    def test_is_refused_by_the_name_of_the_field(self, value, reason):
        with pytest.raises(ValueError, match=reason):
            PERSON.check(value)

    def test_a_field_of_a_row_inside_is_told_by_its_path(self):
        nested = Types.ROW_NAMED(["who"], [PERSON])
        with pytest.raises(ValueError, match="field 'who': field 'age': "):
            nested.check([("Ann", "old")])


class TestTheType:
    def test_names_and_types_of_the_fields(self):
        assert PERSON.get_field_names() == ["name", "age"]
        assert PAIR.get_field_names() == ["f0", "f1"]
        assert PERSON.get_field_types() == [STRING, LONG]
        assert PERSON.get_field_index("age") == 1
        with pytest.raises(ValueError, match="no field 'z'"):
            PERSON.get_field_index("z")

    @pytest.mark.parametrize(
        ("names", "reason"),
        [
            (["a"], "cannot have 1 names"),
            (["a", "b", "c"], "cannot have 3 names"),
            (["a", "a"], "a name of its own"),
            (["a", 1], "a name of its own"),
        ],
        ids=repr,
    )
    def test_there_is_one_name_for_each_field(self, names, reason):
        with pytest.raises(ConfigurationError, match=reason):
            Types.ROW_NAMED(names, [LONG, STRING])

    @pytest.mark.parametrize(
        ("row_type", "spelled", "printed"),
        [
            (PERSON, "ROW(name: STRING, age: LONG)", "RowTypeInfo(name: String, age: Long)"),
            (PAIR, "ROW(LONG, STRING)", "RowTypeInfo(Long, String)"),
            (Types.ROW([]), "ROW()", "RowTypeInfo()"),
        ],
    )
    def test_is_spelled_with_names_where_it_has_some(self, row_type, spelled, printed):
        assert (str(row_type), repr(row_type)) == (spelled, printed)

    def test_types_are_equal_with_names_and_types(self):
        assert Types.ROW_NAMED(["f0", "f1"], [LONG, STRING]) == PAIR
        assert Types.ROW_NAMED(["a", "b"], [LONG, STRING]) != PAIR
        assert Types.ROW([LONG, LONG]) != PAIR
        assert Types.TUPLE([LONG, STRING]) != PAIR
        assert len({PAIR, RowTypeInfo([LONG, STRING])}) == 1

    @pytest.mark.parametrize("row_type", [PERSON, PAIR, ExternalTypeInfo(PERSON)], ids=str)
    def test_survives_pickling(self, row_type):
        back = pickle.loads(pickle.dumps(row_type))
        assert back == row_type
        assert repr(back) == repr(row_type)
        with pytest.raises(ValueError, match="field"):
            back.check(("a", "b"))


def test_an_external_type_checks_as_the_type_inside():
    external = ExternalTypeInfo(PERSON)
    assert external.check(("Ann", 30)) == Row(name="Ann", age=30)
    assert (str(external), repr(ExternalTypeInfo(LONG))) == (f"EXTERNAL({PERSON})", "ExternalTypeInfo<Long>")


# --- type information under PyFlink's class names ----------------------------------------------------------


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
