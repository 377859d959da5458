"""Hash codes of keys: Java's for declared types; without one, equal keys always meet."""

import contextlib
import dataclasses
import datetime
import decimal
import enum
import fractions
import json
import math
import os
import subprocess
import sys
import textwrap
import uuid
import zoneinfo
from collections import namedtuple
from decimal import Decimal

import attrs
import numpy as np
import pytest
from hypothesis import given, strategies as st

from pyflinkstate import Instant, Row, RowKind
from pyflinkstate.api import ExternalTypeInfo, Types
from pyflinkstate.backends.key_groups import java_hash_of_string, key_group_of_hash
from pyflinkstate.backends.keys import KeyHasher
from pyflinkstate.backends.types.atoms import ATOMS
from pyflinkstate.backends.types.hashes import java_hash
from pyflinkstate.backends.types.table import codec_of
from pyflinkstate.errors import BadRecordError, ConfigurationError, InvalidKeyError

#: Printed by Java: ``"...".hashCode()``.
STRINGS = {
    "": 0,
    "a": 97,
    "hello": 99162322,
    "flink": 97520992,
    "user-42": -147182656,
    "été": 227742,
    "\U0001f600": 1772899,
}
LONGS = {
    0: 0,
    1: 1,
    42: 42,
    -1: 0,
    1234567890123: 1912276436,
    -(2**63): -2147483648,
    2**63 - 1: -2147483648,
    2**32: 1,
}

# Lone surrogates too: Python has them in file names, and they may be keys without a declared type.
any_text = st.text(st.one_of(st.characters(), st.characters(categories=["Cs"])), max_size=40)

JAVA_TYPES = [
    *((Types.STRING(), text, code) for text, code in STRINGS.items()),
    *((Types.LONG(), value, code) for value, code in LONGS.items()),
    *((Types.INT(), value, value) for value in (-1, 0, 128, -(2**31))),
    *((Types.SHORT(), value, value) for value in (-1, 128)),
    *((Types.BYTE(), value, value) for value in (-128, 127)),
    (Types.BOOLEAN(), True, 1231),
    (Types.BOOLEAN(), False, 1237),
    (Types.DOUBLE(), 1.5, 1073217536),
    (Types.DOUBLE(), 0.0, 0),
    (Types.DOUBLE(), math.inf, 0x7FF00000),
    (Types.DOUBLE(), -math.inf, 0x7FF00000 - 2**31),
    (Types.FLOAT(), 1.5, 0x3FC00000),
    (Types.FLOAT(), -1.5, 0x3FC00000 - 2**31),
    (Types.CHAR(), "a", 97),
    (Types.CHAR(), "é", 233),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"", 1),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x01\x02\x03", 30817),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\xff", 30),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\x80\x7f", 31 * (31 - 128) + 127),
    # By hand, of the definition: 31 * h + word, from the highest 32-bit word; times the sign.
    *((Types.BIG_INT(), value, code) for value, code in ((-1, -1), (2**32, 31), (-(2**32), -31))),
    (Types.BIG_INT(), 2**63, -(2**31)),
    (Types.BIG_INT(), 2**64 + 5 * 2**32 + 7, 31 * 31 + 5 * 31 + 7),
    (Types.BIG_INT(), 42, 42),
    (Types.BIG_INT(), 2**64, 961),
    (Types.BIG_INT(), -(2**64), -961),
    (ExternalTypeInfo(Types.STRING()), "flink", 97520992),
    (Types.INSTANT(), Instant(1, 2), 103),
    (Types.INSTANT(), Instant(-1, 999_999_999), -539607603),
    (Types.INSTANT(), Instant(1_700_000_000, 123_456_789), -593638353),
]

LONG, STRING = Types.LONG(), Types.STRING()

#: Printed by Java: ``Row.of(...).hashCode()`` of Flink 2.3.
ROWS = [
    (Types.ROW([STRING]), Row("a"), 159),
    (Types.ROW([LONG]), Row(1), 63),
    (Types.ROW([LONG, STRING]), Row(1, "a"), 2081),
    (Types.ROW([LONG]), Row(None), 31),
    (Types.ROW([]), Row(), 1),
    (Types.ROW([Types.PRIMITIVE_ARRAY(Types.BYTE())]), Row(b"\x01\x02\x03"), 30879),
    (Types.ROW([LONG, LONG, STRING]), Row(1, None, "a"), 60671),
    (Types.ROW([LONG]), Row.of_kind(RowKind.UPDATE_BEFORE, 1), 94),
    (Types.ROW([LONG]), Row.of_kind(RowKind.UPDATE_AFTER, 1), 125),
    (Types.ROW([LONG]), Row.of_kind(RowKind.DELETE, 1), 156),
    (Types.ROW([Types.ROW([LONG])]), Row(Row(1)), 125),
    (Types.ROW([Types.ROW([LONG, STRING]), Types.INT()]), Row(Row(1, "a"), 2), 66466),
    (
        Types.ROW([Types.BOOLEAN(), Types.DOUBLE(), Types.FLOAT(), Types.CHAR()]),
        Row(True, 1.5, 1.5, "c"),
        -595313547,
    ),
    (Types.ROW([Types.INSTANT()]), Row(Instant(1, 2)), 165),
    (Types.ROW([Types.BIG_INT()]), Row(-1), 61),
]


def test_surrogate_pairs_count_as_two_units():
    assert java_hash_of_string("\U0001f600") == 31 * 0xD83D + 0xDE00
    assert java_hash_of_string("\ud83d\ude00") == java_hash_of_string("\U0001f600")
    assert java_hash_of_string("\ud83d") == 0xD83D


@given(any_text)
def test_a_string_hashes_by_its_units_of_utf_16(text):
    data, code = text.encode("utf-16-le", "surrogatepass"), 0
    for low, high in zip(data[::2], data[1::2], strict=True):
        code = (31 * code + low + (high << 8)) % 2**32
    found = java_hash_of_string(text)
    assert (type(found), found) == (int, code - 2**32 if code >= 2**31 else code)


def test_hashes_of_strings_wrap_around_32_bits():
    assert java_hash_of_string("\uffff" * 3) == (0xFFFF * (31 * 31 + 31 + 1) + 2**31) % 2**32 - 2**31


@pytest.mark.parametrize(("key_type", "key", "code"), [*JAVA_TYPES, *ROWS], ids=lambda part: ascii(str(part)))
def test_a_declared_type_hashes_as_the_java_object(key_type, key, code):
    hasher = KeyHasher(key_type)
    kept = hasher.check(key)
    assert hasher.hashes([kept]) == [code]
    assert hasher.hashes([kept, kept]) == [code, code]


def test_a_named_row_hashes_by_the_places_that_its_type_gives_the_fields():
    hasher = KeyHasher(Types.ROW_NAMED(["b", "a"], [LONG, STRING]))
    for key in (Row(b=1, a="a"), Row(a="a", b=1), (1, "a")):
        assert hasher.hashes([hasher.check(key)]) == [2081]


def test_without_a_declared_type_rows_that_are_equal_have_one_hash():
    assert java_hash(Row(1, "a")) == java_hash(Row(1.0, "a")) == 2081
    assert java_hash(Row(a=1, b="a")) == java_hash(Row(b="a", a=1)) == 2081
    assert java_hash(Row.of_kind(RowKind.DELETE, 1)) == 156
    assert java_hash(Row(None)) == 31
    assert java_hash(Instant(1, 2)) == 103


PAIR = Types.TUPLE([STRING, Types.INT()])

#: Printed by Java: type, key, ``hashCode()`` and ``KeyGroupRangeAssignment.assignToKeyGroup(key, 128)`` of
#: ``Tuple2.of("a", 1)`` and the like, ``new BigDecimal("1.5")``, and of ``java.sql``'s ``Date``, ``Time`` and
#: ``Timestamp`` of the same milliseconds, in UTC. With Flink 2.3 and Java 17.
FLINK_KEYS = [
    (Types.TUPLE([]), (), 0, 94),
    (Types.TUPLE([STRING]), ("a",), 97, 81),
    (Types.TUPLE([STRING]), (None,), 0, 94),
    (PAIR, ("a", 1), 3008, 29),
    (Types.TUPLE([STRING, LONG]), ("a", -1), 3007, 12),
    (PAIR, (None, 1), 1, 86),
    (PAIR, ("a", None), 3007, 12),
    (Types.TUPLE([STRING, LONG, Types.BOOLEAN()]), ("flink", 7, True), -771605752, 66),
    (Types.TUPLE([PAIR, STRING]), (("a", 1), "b"), 93346, 40),
    (Types.TUPLE([PAIR, PAIR]), (("a", 1), ("b", 2)), 96288, 126),
    (Types.TUPLE([LONG, Types.TUPLE([LONG, Types.TUPLE([LONG])])]), (1, (2, (3,))), 96, 125),
    (Types.ROW([PAIR]), Row(("a", 1)), 3070, 44),
    (Types.TUPLE([Types.ROW([STRING, LONG]), LONG]), (Row("a", 1), 1), 153792, 39),
    *(
        (Types.BIG_DEC(), Decimal(number), code, key_group)
        for number, code, key_group in (
            ("0", 0, 94),
            ("1", 31, 123),
            ("-1", -31, 75),
            ("1.5", 466, 28),
            ("-1.5", -464, 1),
            ("0.001", 34, 125),
            ("100", 3100, 38),
            ("123456789012345678901234567890", -748148569, 82),
            ("-12345678901234567890.12345", -292950200, 40),
            ("9223372036854775808", -2147483648, 108),
            ("12.34", 38256, 114),
        )
    ),
    (Types.SQL_DATE(), datetime.date(1970, 1, 1), 0, 94),
    (Types.SQL_DATE(), datetime.date(2024, 2, 29), -232183411, 108),
    (Types.SQL_DATE(), datetime.date(1969, 12, 31), 86399999, 60),
    (Types.SQL_DATE(), datetime.date(1, 1, 1), 304934780, 94),
    (Types.SQL_DATE(), datetime.date(9999, 12, 31), -856070537, 60),
    (Types.SQL_TIME(), datetime.time(), 0, 94),
    (Types.SQL_TIME(), datetime.time(12, 34, 56, 789000), 45296789, 108),
    (Types.SQL_TIME(), datetime.time(23, 59, 59, 999999), 86399999, 60),
    (Types.SQL_TIMESTAMP(), datetime.datetime(1970, 1, 1), 0, 94),
    (Types.SQL_TIMESTAMP(), datetime.datetime(2024, 2, 29, 12, 34, 56, 789012), -186886888, 93),
    (Types.SQL_TIMESTAMP(), datetime.datetime(1969, 12, 31, 23, 59, 59, 999999), 0, 94),
    (Types.SQL_TIMESTAMP(), datetime.datetime(9999, 12, 31, 23, 59, 59, 999999), -769704568, 73),
]


def test_every_type_without_parts_that_can_be_a_key_is_here():
    """Whoever adds a type would forget to compare its hash with Java's otherwise."""
    hashed = {codec_of(key_type).name for key_type, *_ in (*JAVA_TYPES, *FLINK_KEYS)}
    assert {codec.name for codec in ATOMS if codec.java_hash(LONG, []) is not None} <= hashed


@pytest.mark.parametrize(("key_type", "key", "code", "key_group"), FLINK_KEYS, ids=str)
def test_a_declared_key_has_the_hash_and_key_group_of_flink(key_type, key, code, key_group):
    hasher = KeyHasher(key_type)
    assert hasher.hashes([hasher.check(key)]) == [code]
    assert key_group_of_hash(code, 128) == key_group


@pytest.mark.parametrize(
    "equal",
    [
        ("1", "1.0", "1.00", "100E-2", "0.1E+1"),
        ("100", "1E+2", "100.000", "10E1"),
        ("0", "-0", "0.00", "0E+5", "-0E-7"),
        ("-2.50", "-2.5", "-25E-1"),
        ("1E+500", "10E+499", "100.0E+498"),
    ],
)
def test_decimals_that_are_equal_meet_whatever_their_scale(equal):
    hasher = KeyHasher(Types.BIG_DEC())
    keys = [hasher.check(Decimal(number)) for number in equal]
    assert len(set(keys)) == len(set(hasher.hashes(keys))) == 1


def test_a_decimal_of_any_size_is_hashed_as_it_is():
    hasher = KeyHasher(Types.BIG_DEC())
    keys = [Decimal("1E+999999"), Decimal("1E-999999"), Decimal("9" * 10_000), Decimal("1" + "0" * 10_000)]
    assert len(set(hasher.hashes(keys))) == 4
    assert hasher.hashes([Decimal("1E+10000")]) == hasher.hashes(keys[3:])


@pytest.mark.parametrize("key_type", [PAIR, Types.PICKLED_BYTE_ARRAY()], ids=str)
def test_a_list_is_no_key_and_the_message_says_what_to_do(key_type):
    with pytest.raises(InvalidKeyError, match=r"invalid key \['a', 1\]: a list .* use a tuple"):
        KeyHasher(key_type).check(["a", 1])


def test_strings_among_other_keys_hash_the_same():
    hasher = KeyHasher(Types.PICKLED_BYTE_ARRAY())
    assert hasher.hashes(["flink", 1, "a"]) == [97520992, 1, 97]
    assert hasher.hashes(["flink", "a"]) == [97520992, 97]
    assert hasher.hashes([]) == []


@given(st.one_of(st.integers(), st.floats(allow_nan=False), any_text, st.binary(), st.booleans()))
def test_every_hash_is_a_java_int(key):
    assert -(2**31) <= java_hash(key) < 2**31


@pytest.mark.parametrize(
    "key_type",
    [
        Types.LIST(Types.LONG()),
        Types.MAP(Types.LONG(), Types.LONG()),
        Types.TUPLE([Types.LONG(), Types.LIST(Types.LONG())]),
        Types.PRIMITIVE_ARRAY(Types.LONG()),
        Types.BASIC_ARRAY(Types.STRING()),
        Types.OBJECT_ARRAY(Types.BYTE()),
        Types.ROW([Types.LONG(), Types.BASIC_ARRAY(Types.STRING())]),
    ],
    ids=str,
)
def test_a_type_that_no_key_can_have_is_refused_when_it_is_declared(key_type):
    with pytest.raises(ConfigurationError, match="cannot be a key type"):
        KeyHasher(key_type)


def hashes_in_another_process(hash_seed):
    program = """
        import datetime, decimal, enum, fractions, json, uuid
        import attrs, dataclasses
        from pyflinkstate.api.types import Types
        from pyflinkstate.backends.keys import KeyHasher

        class Color(enum.Enum):
            RED = object()

        @dataclasses.dataclass(frozen=True)
        class Point:
            x: int
            label: str

        @attrs.frozen
        class Place:
            name: str

        utc = datetime.timezone.utc
        keys = [
            "flink", "", "é", "\\ud800", b"bytes", 1, -1, 2**80, 1.5, float("inf"), True,
            decimal.Decimal("0.1"), fractions.Fraction(1, 3), (1, ("a", None)), (),
            datetime.date(2024, 2, 29), datetime.datetime(2024, 2, 29, 1),
            datetime.datetime(2024, 2, 29, 1, tzinfo=utc), uuid.UUID(int=7), Color.RED,
            Point(1, "a"), Place("Rome"),
        ]
        hasher = KeyHasher(Types.PICKLED_BYTE_ARRAY())
        print(json.dumps(hasher.hashes([hasher.check(key) for key in keys])), hash("salted"))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        capture_output=True,
        text=True,
        check=True,
    )
    hashes, python_hash = done.stdout.rsplit(maxsplit=1)
    return json.loads(hashes), python_hash


def test_hashes_do_not_depend_on_the_process():
    one, salted_one = hashes_in_another_process("1")
    other, salted_other = hashes_in_another_process("2")
    assert salted_one != salted_other
    assert one == other
    assert len(one) == 22
    assert one[0] == 97520992


UTC = datetime.timezone.utc
TOKYO = datetime.timezone(datetime.timedelta(hours=9))
BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
UNDECLARED = KeyHasher(Types.PICKLED_BYTE_ARRAY())

Pair = namedtuple("Pair", "left right")


class Text(str):
    """A str that is more than a str."""


class Level(str, enum.Enum):
    HIGH = "high"


class Size(enum.IntEnum):
    LARGE = 3


class Color(enum.Enum):
    RED = 1
    GREEN = 2


class Timeless(datetime.tzinfo):
    """A time zone that does not say how late it is: such datetimes compare as naive ones."""

    def utcoffset(self, dt):
        return None


@dataclasses.dataclass(frozen=True)
class Point:
    x: float
    label: str = dataclasses.field(default="", compare=False)


@attrs.frozen
class Place:
    name: str
    visits: int = attrs.field(default=0, eq=False)


@attrs.frozen
class Account:
    """Equal to another whatever the case of the name."""

    name: str = attrs.field(eq=str.lower)
    number: int = 0


@dataclasses.dataclass
class Changing:
    x: int

    __hash__ = object.__hash__


EQUAL_KEYS = {
    "one": [
        *(1, 1.0, True, decimal.Decimal(1), decimal.Decimal("1.00"), fractions.Fraction(1)),
        *(np.int8(1), np.int64(1), np.uint64(1), np.float32(1), np.float64(1), np.bool_(True)),
    ],
    "zero": [0, 0.0, -0.0, False, decimal.Decimal("-0"), np.float64(-0.0), np.bool_(False)],
    "half": [0.5, decimal.Decimal("0.50"), fractions.Fraction(1, 2), np.float16(0.5)],
    "beyond 64 bits": [2**70, 2.0**70, decimal.Decimal(2**70), fractions.Fraction(2**70), np.float64(2**70)],
    "infinity": [math.inf, decimal.Decimal("Infinity"), np.float32("inf")],
    "IntEnum": [Size.LARGE, 3, 3.0],
    "tuples": [(1, (True, "a")), (1.0, (1, "a")), (np.int32(1), (decimal.Decimal(1), Text("a")))],
    "named tuple": [Pair(1, "a"), (True, np.str_("a"))],
    "text": ["high", Text("high"), Level.HIGH, np.str_("high")],
    "bytes": [b"ab", np.bytes_(b"ab")],
    "aware datetimes": [
        datetime.datetime(2024, 3, 1, 0, 30, tzinfo=UTC),
        datetime.datetime(2024, 3, 1, 9, 30, tzinfo=TOKYO),
        datetime.datetime(2024, 3, 1, 1, 30, tzinfo=BERLIN),
    ],
    "naive datetimes": [
        datetime.datetime(2024, 10, 27, 2, 30),
        datetime.datetime(2024, 10, 27, 2, 30, fold=1),
        datetime.datetime(2024, 10, 27, 2, 30, tzinfo=Timeless()),
    ],
    "the hour that comes twice": [
        datetime.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN),
        datetime.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN, fold=1),
    ],
    "beyond double": [10**400, decimal.Decimal("1e400")],
    "uuid": [uuid.UUID(int=5), uuid.UUID("00000000-0000-0000-0000-000000000005")],
    "frozen dataclass": [Point(1), Point(1.0, label="ignored by ==")],
    "attrs class": [Place("Rome"), Place(Text("Rome"), visits=3)],
    "attrs class that compares a field in another form": [
        Account("Ann"),
        Account("ANN"),
        Account("ann", 0.0),
    ],
}

REFUSED = {
    "None": None,
    "NaN": math.nan,
    "numpy NaN": np.float64("nan"),
    "numpy 32-bit NaN": np.float32("nan"),
    "Decimal NaN": decimal.Decimal("NaN"),
    "Decimal signalling NaN": decimal.Decimal("sNaN"),
    "NaN in a tuple": (1, (math.nan,)),
    "NaN in a dataclass": Point(math.nan),
    "list": [1],
    "dict": {},
    "set": {1},
    "bytearray": bytearray(b"a"),
    "numpy array": np.array([1]),
    "list in a tuple": (1, ([2],)),
    "object": object(),
    "object in a tuple": (1, object()),
    "class": int,
    "function": len,
    "frozenset": frozenset([1]),
    "complex": 1j,
    "complex that equals an int": complex(1, 0),
    "numpy complex": np.complex128(1),
    "complex in a tuple": (1j,),
    "numpy datetime": np.datetime64("2024-01-01"),
    "dataclass that can change": Changing(1),
}

WRONG_FOR_DECLARED = [
    (Types.STRING(), 1),
    (Types.STRING(), b"a"),
    (Types.STRING(), "\ud800"),
    (Types.STRING(), None),
    (Types.LONG(), "1"),
    (Types.LONG(), 1.0),
    (Types.LONG(), True),
    (Types.LONG(), 2**63),
    (Types.INT(), 2**31),
    (Types.BOOLEAN(), 1),
    (Types.DOUBLE(), math.nan),
    (Types.FLOAT(), math.nan),
    (Types.DOUBLE(), "1"),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), "a"),
    (Types.TUPLE([Types.LONG(), Types.STRING()]), (1,)),
    (Types.TUPLE([Types.LONG(), Types.STRING()]), ("a", 1)),
    (Types.TUPLE([Types.LONG(), Types.STRING()]), [1, "a"]),
    (Types.TUPLE([Types.LONG(), Types.STRING()]), None),
    *((Types.TUPLE([field_type]), (math.nan,)) for field_type in (Types.DOUBLE(), Types.FLOAT())),
    *((Types.BIG_DEC(), Decimal(number)) for number in ("Infinity", "-Infinity", "NaN", "sNaN")),
    (Types.PICKLED_BYTE_ARRAY(), Row([1])),
    (Types.PICKLED_BYTE_ARRAY(), Row(float("nan"))),
    (Types.PICKLED_BYTE_ARRAY(), Row(object())),
    (Types.ROW([Types.DOUBLE()]), Row(float("nan"))),
    (Types.ROW([LONG]), Row("a")),
    (Types.ROW([LONG]), Row(1, 2)),
    (Types.ROW([LONG]), None),
    (Types.INSTANT(), 5),
]


def assert_equal_keys_meet(keys, hasher=UNDECLARED):
    assert all(key == keys[0] and hash(key) == hash(keys[0]) for key in keys)
    checked = [hasher.check(key) for key in keys]
    assert len(set(hasher.hashes(checked))) == 1
    assert checked == keys


@pytest.mark.parametrize("keys", EQUAL_KEYS.values(), ids=EQUAL_KEYS)
def test_equal_keys_hash_equal(keys):
    assert_equal_keys_meet(keys)


@given(st.integers(-(10**300), 10**300))
def test_an_integer_meets_its_equals(number):
    keys = [number, decimal.Decimal(number), fractions.Fraction(number)]
    if float(number) == number:
        keys.append(float(number))
    assert_equal_keys_meet(keys)


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_meets_its_equals(number):
    assert_equal_keys_meet([number, np.float64(number), decimal.Decimal(number), fractions.Fraction(number)])


@given(st.datetimes(datetime.datetime(1900, 1, 1), datetime.datetime(2100, 1, 1)))
def test_a_moment_meets_itself_in_every_time_zone(moment):
    moment = moment.replace(tzinfo=UTC)
    assert_equal_keys_meet([moment, moment.astimezone(TOKYO)])


def test_keys_that_differ_are_spread():
    keys = ["a", "b", 1, 2, 1.5, b"a", (1,), (2,), (1, 2), Color.RED, Color.GREEN, Place("a"), Point(1)]
    assert len(set(UNDECLARED.hashes(keys))) >= len(keys) - 2


@pytest.mark.parametrize("key", REFUSED.values(), ids=REFUSED)
def test_a_key_that_cannot_meet_itself_is_refused(key):
    with pytest.raises(InvalidKeyError, match="invalid key") as refusal:
        UNDECLARED.check(key)
    assert isinstance(refusal.value, BadRecordError)
    assert refusal.value.context["key"] == repr(key)


@pytest.mark.parametrize(("key_type", "key"), WRONG_FOR_DECLARED, ids=lambda part: ascii(str(part)))
def test_a_key_that_does_not_fit_its_declared_type_is_refused(key_type, key):
    with pytest.raises(InvalidKeyError, match="invalid key"):
        KeyHasher(key_type).check(key)


def test_a_declared_key_is_kept_as_its_type_keeps_it():
    kept = KeyHasher(Types.LONG()).check(np.int64(7))
    assert (type(kept), kept) == (int, 7)
    assert type(KeyHasher(Types.STRING()).check(Text("a"))) is str
    assert type(KeyHasher(Types.DOUBLE()).check(1)) is float


def test_an_undeclared_key_is_kept_as_it_is():
    key = Pair(1, Text("a"))
    assert UNDECLARED.check(key) is key


@pytest.mark.parametrize(
    ("key_type", "keys"),
    [
        (Types.DOUBLE(), [0.0, -0.0]),
        (Types.FLOAT(), [0.0, -0.0]),
        (Types.TUPLE([Types.DOUBLE()]), [(0.0,), (-0.0,)]),
    ],
    ids=str,
)
def test_declared_zeros_meet(key_type, keys):
    assert_equal_keys_meet(keys, KeyHasher(key_type))


@pytest.mark.parametrize(
    ("key_type", "key"),
    [(Types.PICKLED_BYTE_ARRAY(), fractions.Fraction(10**400)), (Types.DOUBLE(), 10**400)],
    ids=["Fraction", "DOUBLE"],
)
def test_a_number_beyond_double_is_hashed_or_refused(key_type, key):
    hasher = KeyHasher(key_type)
    with contextlib.suppress(InvalidKeyError):
        assert len(hasher.hashes([hasher.check(key)])) == 1
