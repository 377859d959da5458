"""Values of each type: the least and greatest ones, what becomes one of them, and what is just beyond.

``tests/types/test_type_table.py`` fails for a type of ``Types`` that has no samples here. The tests of types,
of state and of keys take their values from this table.
"""

from __future__ import annotations

import datetime
import decimal
import math
from typing import Any

import attrs
import numpy as np

from pyflinkstate import Instant, Row, RowKind
from pyflinkstate.api import LocalTimeTypeInfo, TypeInformation, Types
from pyflinkstate.backends.keys import KeyHasher
from pyflinkstate.errors import ConfigurationError

UTC = datetime.timezone.utc
WHEN = datetime.datetime(2024, 2, 29, 23, 59, 59, 999999)
LEAST_INSTANT = Instant(-31_557_014_167_219_200, 0)
GREATEST_INSTANT = Instant(31_556_889_864_403_199, 999_999_999)
#: From so many bits on, an integer is written in another form, because Python does not read its digits.
MANY_BITS = 14_001

LONG, STRING = Types.LONG(), Types.STRING()
LOCAL = LocalTimeTypeInfo.TimeType


class Text(str):
    """A str that is more than a str."""


class Date(datetime.date):
    """A date that is more than a date."""


class Time(datetime.time):
    """A time that is more than a time."""


class Moment(datetime.datetime):
    """A datetime that is more than a datetime."""


class Number(decimal.Decimal):
    """A Decimal that is more than a Decimal."""


class Later(Instant):
    """An Instant that is more than an Instant."""


@attrs.frozen
class Samples:
    """Values of one type.

    Attributes:
        type_info: the type; one of them for a type with parts.
        fits: what is kept as it is, in state, in a checkpoint and as a key: with the least and the greatest
            value, if there is one.
        nearly: what is given, and what it becomes: an equal value of the class that a restore gives.
        refused: what does not fit, with the first value below and above the range, if there is one.
    """

    type_info: TypeInformation
    fits: list[Any]
    nearly: list[tuple[Any, Any]] = attrs.field(factory=list, kw_only=True)
    refused: list[Any] = attrs.field(factory=list, kw_only=True)


def _integers(type_info: TypeInformation, bits: int) -> Samples:
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    refused = [low - 1, high + 1, True, 1.0, "1", None, np.float64(1), decimal.Decimal(1), np.bool_(True)]
    return Samples(type_info, [low, 0, high], nearly=[(np.int8(-7), -7)], refused=refused)


def _dates(type_info: TypeInformation) -> Samples:
    return Samples(
        type_info,
        [datetime.date.min, datetime.date.max],
        nearly=[(Date(2024, 2, 29), datetime.date(2024, 2, 29))],
        refused=[WHEN, "2024-02-29", 1, None],
    )


def _times(type_info: TypeInformation) -> Samples:
    plain = datetime.time(1, 2, 3, 4)
    return Samples(
        type_info,
        [datetime.time.min, plain, datetime.time.max],
        nearly=[(Time(1, 2, 3, 4), plain), (plain.replace(fold=1), plain)],
        refused=[datetime.time(1, tzinfo=UTC), WHEN, "01:00", None],
    )


def _moments(type_info: TypeInformation) -> Samples:
    return Samples(
        type_info,
        [datetime.datetime.min, WHEN, datetime.datetime.max],
        nearly=[(Moment(2024, 2, 29), datetime.datetime(2024, 2, 29)), (WHEN.replace(fold=1), WHEN)],
        refused=[WHEN.replace(tzinfo=UTC), datetime.date.min, 1709251199, None],
    )


def _row(type_info: TypeInformation, *names: str) -> Samples:
    def row(*values: Any, kind: RowKind = RowKind.INSERT) -> Row:
        return Row.of_kind(kind, **dict(zip(names, values, strict=True)))

    return Samples(
        type_info,
        [row(-(2**63), "a"), row(None, None), row(1, "a", kind=RowKind.DELETE)],
        nearly=[((1, "a"), row(1, "a"))],
        refused=[row(2**63, "a"), Row(1), (1,), 7, None],
    )


#: By the name of the factory in ``Types``.
SAMPLES: dict[str, Samples] = {
    "BOOLEAN": Samples(
        Types.BOOLEAN(),
        [True, False],
        nearly=[(np.True_, True), (np.False_, False)],
        refused=[1, 0, "True", None, np.int8(1)],
    ),
    "BYTE": _integers(Types.BYTE(), 8),
    "SHORT": _integers(Types.SHORT(), 16),
    "INT": _integers(Types.INT(), 32),
    "LONG": _integers(LONG, 64),
    "BIG_INT": Samples(
        Types.BIG_INT(),
        [10**40, -(10**40), 0, 2**MANY_BITS, -(2**MANY_BITS)],
        nearly=[(np.uint64(2**64 - 1), 2**64 - 1)],
        refused=[True, 1.0, "1", None, decimal.Decimal(1)],
    ),
    "FLOAT": Samples(
        Types.FLOAT(),
        [0.5, 3.4028234663852886e38, -math.inf],
        nearly=[(np.float32(0.5), 0.5), (7, 7.0)],
        refused=[10**400, True, "1.0", None, 1j, decimal.Decimal(1)],
    ),
    "DOUBLE": Samples(
        Types.DOUBLE(),
        [0.1, 5e-324, 1.7976931348623157e308, -math.inf],
        nearly=[(np.float32(0.5), 0.5), (np.float64(0.1), 0.1), (7, 7.0)],
        refused=[10**400, True, "1.0", None, 1j, decimal.Decimal(1)],
    ),
    "CHAR": Samples(
        Types.CHAR(),
        ["\x00", "a", "é", "\U0010ffff"],
        nearly=[(Text("c"), "c")],
        refused=["", "ab", "\ud800", 97, None],
    ),
    "STRING": Samples(
        STRING,
        ["", "日本 \x00 \U0001f600", "a" * 10_000],
        nearly=[(Text("sub"), "sub"), (np.str_("sub"), "sub")],
        refused=[b"a", 1, None, "\ud800", "a\udfff", Text("\udc00")],
    ),
    "BIG_DEC": Samples(
        Types.BIG_DEC(),
        [decimal.Decimal(text) for text in ("1.10", "-1E+50", "0E-10", "1E+999999", "-9E-999999")],
        nearly=[(Number("1.50"), decimal.Decimal("1.50"))],
        refused=[1, 1.0, "1", None],
    ),
    "SQL_DATE": _dates(Types.SQL_DATE()),
    "SQL_TIME": _times(Types.SQL_TIME()),
    "SQL_TIMESTAMP": _moments(Types.SQL_TIMESTAMP()),
    "INSTANT": Samples(
        Types.INSTANT(),
        [LEAST_INSTANT, Instant(-1, 1), Instant(0, 0), GREATEST_INSTANT],
        nearly=[(Later(1, 2), Instant(1, 2))],
        refused=[5, WHEN, None],
    ),
    "PICKLED_BYTE_ARRAY": Samples(
        Types.PICKLED_BYTE_ARRAY(), [0, "", [], {"a": {1, 2}}, 1j, frozenset([1]), WHEN, "\ud800", 10**4000]
    ),
    "PRIMITIVE_ARRAY": Samples(
        Types.PRIMITIVE_ARRAY(LONG),
        [[], [2**63 - 1, -(2**63)]],
        nearly=[((1, 2), [1, 2])],
        refused=[[2**63], [None], {1}, "ab", None],
    ),
    "BASIC_ARRAY": Samples(
        Types.BASIC_ARRAY(STRING),
        [[], [None], ["", None, "日本"]],
        nearly=[(("a",), ["a"])],
        refused=[["\ud800"], [1], "ab", None],
    ),
    "OBJECT_ARRAY": Samples(
        Types.OBJECT_ARRAY(Types.LIST(LONG)),
        [[], [None, [], [1]]],
        nearly=[(((1,),), [[1]])],
        refused=[[[2**63]], [[None]], None],
    ),
    "LIST": Samples(
        Types.LIST(STRING),
        [[], ["", "é"]],
        nearly=[(("a",), ["a"])],
        refused=[[None], ["a", 1], {"a"}, {"a": "b"}, 1, "ab", None, iter(["a"])],
    ),
    "MAP": Samples(
        Types.MAP(STRING, LONG),
        [{}, {"a": 1, "b": None}, {"": 2**63 - 1}],
        nearly=[({Text("a"): np.int8(1)}, {"a": 1})],
        refused=[{"a": 2**63}, {1: 1}, {"a": "1"}, {None: 1}, [("a", 1)], None],
    ),
    "TUPLE": Samples(
        Types.TUPLE([LONG, STRING]),
        [(1, "a"), (-(2**63), ""), (None, None)],
        nearly=[([1, "a"], (1, "a"))],
        refused=[(2**63, "a"), (1,), (1, "a", 2), (), ("a", 1), "ab", None, {1: "a", 2: "b"}],
    ),
    "ROW": _row(Types.ROW([LONG, STRING]), "f0", "f1"),
    "ROW_NAMED": _row(Types.ROW_NAMED(["a", "b"], [LONG, STRING]), "a", "b"),
}
#: Of types that ``Types`` does not make, by what they are called in a checkpoint.
OTHERS: dict[str, Samples] = {
    "LOCAL_DATE": _dates(LocalTimeTypeInfo(LOCAL.LOCAL_DATE)),
    "LOCAL_TIME": _times(LocalTimeTypeInfo(LOCAL.LOCAL_TIME)),
    "LOCAL_DATE_TIME": _moments(LocalTimeTypeInfo(LOCAL.LOCAL_DATE_TIME)),
    "BYTES": Samples(
        Types.PRIMITIVE_ARRAY(Types.BYTE()),
        [b"", b"\x00\xff"],
        nearly=[(bytearray(b"ab"), b"ab"), (memoryview(b"ab"), b"ab")],
        refused=["ab", [1, 2], 3, None],
    ),
}
ALL_SAMPLES: list[Samples] = [*SAMPLES.values(), *OTHERS.values()]


def _can_be_keys(samples: Samples) -> bool:
    """Return whether all values of a type can be keys. Without a declared type, only some can."""
    if samples is SAMPLES["PICKLED_BYTE_ARRAY"]:
        return False
    try:
        KeyHasher(samples.type_info)
    except ConfigurationError:
        return False
    return True


KEY_SAMPLES: list[Samples] = [samples for samples in ALL_SAMPLES if _can_be_keys(samples)]
