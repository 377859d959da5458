"""Every type's ``check``: what it accepts and converts, what it refuses; names, equality, pickling."""

import datetime
import fractions
import itertools
import math
import pickle
import struct

import numpy as np
import pytest
from type_samples import ALL_SAMPLES

from pyflinkstate.api import BasicTypeInfo, ExternalTypeInfo, TypeInformation, Types, safe_repr
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
