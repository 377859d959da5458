"""The two laws of undeclared keys: equal ones hash equal, and what can never meet itself is refused."""

import contextlib
import dataclasses
import datetime
import decimal
import enum
import fractions
import math
import uuid
import zoneinfo
from collections import namedtuple

import attrs
import numpy as np
import pytest
from hypothesis import given, strategies as st

from pyflinkstate.api.types import Types
from pyflinkstate.backends.keys import KeyHasher
from pyflinkstate.errors import BadRecordError, InvalidKeyError

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


@pytest.mark.parametrize("field_type", [Types.DOUBLE(), Types.FLOAT()], ids=str)
def test_nan_in_a_declared_tuple_is_refused(field_type):
    with pytest.raises(InvalidKeyError):
        KeyHasher(Types.TUPLE([field_type])).check((math.nan,))


def test_a_decimal_beyond_double_meets_its_equal():
    assert_equal_keys_meet([10**400, decimal.Decimal("1e400")])


@pytest.mark.parametrize(
    ("key_type", "key"),
    [(Types.PICKLED_BYTE_ARRAY(), fractions.Fraction(10**400)), (Types.DOUBLE(), 10**400)],
    ids=["Fraction", "DOUBLE"],
)
def test_a_number_beyond_double_is_hashed_or_refused(key_type, key):
    hasher = KeyHasher(key_type)
    with contextlib.suppress(InvalidKeyError):
        assert len(hasher.hashes([hasher.check(key)])) == 1


def test_the_hour_that_comes_twice_meets_itself():
    moment = datetime.datetime(2024, 10, 27, 2, 30, tzinfo=BERLIN)
    assert_equal_keys_meet([moment, moment.replace(fold=1)])
