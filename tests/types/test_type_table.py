"""The table of types: every type that a program can declare has a row, and one walk finds all of it."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from type_samples import ALL_SAMPLES, SAMPLES, Samples

from pyflinkstate import CountWindowSerializer, Row, TimeWindow, TimeWindowSerializer
from pyflinkstate.api import (
    ExternalTypeInfo,
    LocalTimeTypeInfo,
    TypeInformation,
    Types,
    basic_types,
    composite_types,
    windows,
)
from pyflinkstate.backends.types import may_hold_nan
from pyflinkstate.backends.types.atoms import ATOMS
from pyflinkstate.backends.types.codec import walk
from pyflinkstate.backends.types.hashes import cannot_be_key
from pyflinkstate.backends.types.internal_types import TtlTypeInfo
from pyflinkstate.backends.types.table import (
    COMPOSITES,
    OF_NAME,
    USER_DEFINED,
    arrow_type,
    codec_of,
    decode_column,
    encode_column,
    find_codec,
    has_own_codec,
    type_from_json,
    type_to_json,
)
from pyflinkstate.backends.values import refuse_nan

LONG, STRING = Types.LONG(), Types.STRING()

FACTORIES = [name for name in vars(Types) if not name.startswith("_")]
DECLARED = [samples.type_info for samples in SAMPLES.values()]
OTHERS = [
    *map(LocalTimeTypeInfo, LocalTimeTypeInfo.TimeType),
    ExternalTypeInfo(STRING),
    TtlTypeInfo(LONG),
    Types.PRIMITIVE_ARRAY(Types.BYTE()),
    windows.TimeWindowSerializer(),
    windows.CountWindowSerializer(),
    windows.GlobalWindowSerializer(),
]
ALL = [*DECLARED, *OTHERS]


class Own(TypeInformation):
    """A type of the user's, of which nothing is known."""


@pytest.mark.parametrize("name", FACTORIES)
def test_every_type_that_can_be_declared_has_samples_and_a_row(name: str) -> None:
    assert name in SAMPLES, f"Types.{name} needs values in tests/support/type_samples.py"
    samples = SAMPLES[name]
    assert samples.fits, f"Types.{name} needs values that fit"
    assert samples.refused or name == "PICKLED_BYTE_ARRAY", f"Types.{name} needs values that are beyond"
    assert has_own_codec(samples.type_info), f"Types.{name} needs a row in pyflinkstate/backends/types"


# --- check and column ----------------------------------------------------------------------------------

each_type = pytest.mark.parametrize("samples", ALL_SAMPLES, ids=lambda samples: str(samples.type_info))


def in_full(value: Any) -> tuple[type, str]:
    """Return what tells a value from those that equal it."""
    return type(value), repr(value)


@each_type
def test_a_value_that_fits_is_kept_and_its_column_gives_it_back(samples: Samples) -> None:
    type_info = samples.type_info
    kept = [type_info.check(value) for value in samples.fits]
    assert list(map(in_full, kept)) == list(map(in_full, samples.fits))
    back = decode_column(type_info, encode_column(type_info, [None, *kept, None]))
    assert list(map(in_full, back[1:-1])) == list(map(in_full, kept))


EVERY_VALUE = [
    value
    for samples in ALL_SAMPLES
    for value in (*samples.fits, *samples.refused, *(given for given, _ in samples.nearly))
    if not isinstance(value, (Iterator, memoryview))  # these cannot be pickled without a declared type
]


@each_type
def test_what_check_accepts_of_any_values_the_column_gives_back(samples: Samples) -> None:
    """A value that only the column refuses would fail each checkpoint, far from where it was stored."""
    for value in EVERY_VALUE:
        with suppress(ValueError):
            kept = samples.type_info.check(value)
            (back,) = decode_or_fail(samples.type_info, kept)
            assert in_full(back) == in_full(kept)


def decode_or_fail(type_info: TypeInformation, value: Any) -> list[Any]:
    try:
        return decode_column(type_info, encode_column(type_info, [value]))
    except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
        raise AssertionError(f"{type_info}: check accepts {value!r}, and the column does not") from error


# --- keys ----------------------------------------------------------------------------------------------


#: Types without parts whose values cannot be keys, as in PyFlink; all others need a hash.
NO_KEYS = {"LOCAL_DATE", "LOCAL_TIME", "LOCAL_DATE_TIME"}
NUMBERS = {"BYTE", "SHORT", "INT", "LONG", "FLOAT", "DOUBLE", "BIG_INT", "BIG_DEC"}


def test_every_type_without_parts_has_a_hash_or_is_known_to_have_none() -> None:
    without = {codec.name for codec in ATOMS if codec.java_hash(LONG, []) is None}
    assert without == NO_KEYS


def test_the_error_for_a_type_that_no_key_can_have_names_those_that_it_can() -> None:
    message = cannot_be_key(Types.LIST(LONG)).message
    names = {codec.name for codec in ATOMS} - NO_KEYS - NUMBERS
    assert "a number" in message
    assert [name for name in sorted(names) if name.lower() not in message.lower()] == []


# --- rows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", [basic_types, composite_types], ids=lambda module: module.__name__)
def test_every_class_of_types_is_made_by_one_that_is_tested(module: Any) -> None:
    """A new class of types that no factory makes would be forgotten otherwise."""
    classes = {cls for cls in vars(module).values() if inspect.isclass(cls)}
    concrete = {cls for cls in classes if issubclass(cls, TypeInformation) and cls.__name__[0] != "_"}
    bases = {TypeInformation, basic_types.AtomicTypeInfo, composite_types.ArrayTypeInfo}
    makers = {basic_types.SqlTimeTypeInfo}
    assert concrete - bases - makers <= {type(type_info) for type_info in ALL}


@pytest.mark.parametrize("type_info", ALL, ids=str)
def test_a_row_is_whole(type_info: TypeInformation) -> None:
    codec = codec_of(type_info)
    assert OF_NAME[codec.name] is codec
    assert type_from_json(type_to_json(type_info)) == type_info
    assert decode_column(type_info, encode_column(type_info, [None, None])) == [None, None]
    assert arrow_type(type_info) == encode_column(type_info, []).type


@pytest.mark.parametrize("type_info", ALL, ids=str)
def test_a_type_is_made_of_its_parts(type_info: TypeInformation) -> None:
    assert type_info.with_parts(type_info.parts()) == type_info
    assert walk(type_info, lambda part, parts: part.with_parts(parts)) == type_info


@pytest.mark.parametrize("cls", COMPOSITES)
def test_other_parts_make_another_type_of_the_same_row(cls: type[TypeInformation]) -> None:
    (type_info,) = [found for found in ALL if type(found) is cls and not found.kind][:1]
    others = [Types.INT() for _ in type_info.parts()]
    other = type_info.with_parts(others)
    assert list(other.parts()) == others
    assert codec_of(other) is codec_of(type_info)
    assert other != type_info


def test_the_walk_goes_from_the_inside_out() -> None:
    seen: list[str] = []

    def visit(type_info: TypeInformation, parts: list[int]) -> int:
        seen.append(str(type_info))
        return 1 + sum(parts)

    assert walk(Types.MAP(STRING, Types.TUPLE([LONG, LONG])), visit) == 5
    assert seen == ["STRING", "LONG", "LONG", "TUPLE(LONG, LONG)", "MAP(STRING, TUPLE(LONG, LONG))"]


def test_what_is_derived_from_a_type_has_its_row_but_not_as_its_own() -> None:
    class Numbers(composite_types.ListTypeInfo):
        """A list with a check of the user's."""

    assert codec_of(Numbers(LONG)) is codec_of(Types.LIST(LONG))
    assert not has_own_codec(Numbers(LONG))
    assert find_codec(Own()) is USER_DEFINED


DOUBLE = Types.DOUBLE()
NAN = float("nan")


def accepts(type_info: TypeInformation, value: Any) -> bool:
    try:
        type_info.check(value)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    "type_info",
    [samples.type_info for samples in ALL_SAMPLES if not samples.type_info.parts()],
    ids=str,
)
def test_a_type_without_parts_may_hold_nan_if_its_check_accepts_it(type_info: TypeInformation) -> None:
    assert may_hold_nan(type_info) == any(accepts(type_info, value) for value in (NAN, Decimal("NaN")))


@pytest.mark.parametrize(
    ("type_info", "may"),
    [
        (Own(), True),
        (ExternalTypeInfo(DOUBLE), True),
        (Types.TUPLE([STRING, Types.TUPLE([LONG, DOUBLE])]), True),
        (Types.ROW_NAMED(["a", "b"], [LONG, Types.FLOAT()]), True),
        (ExternalTypeInfo(LONG), False),
        (TimeWindowSerializer(), False),
        (CountWindowSerializer(), False),
        (Types.TUPLE([STRING, Types.TUPLE([LONG, LONG])]), False),
        (Types.ROW([LONG, STRING]), False),
    ],
    ids=str,
)
def test_a_type_whose_values_may_be_nan_or_have_it_as_a_part(type_info: TypeInformation, may: bool) -> None:
    assert may_hold_nan(type_info) is may


@pytest.mark.parametrize(
    "value",
    [NAN, Decimal("NaN"), (NAN,), (1, (2, NAN)), Row(NAN), Row(a=("x", NAN)), frozenset([NAN]), (Row(NAN),)],
    ids=repr,
)
def test_nan_is_refused_wherever_it_is(value: Any) -> None:
    with pytest.raises(ValueError, match="NaN does not equal itself"):
        refuse_nan(value)


@pytest.mark.parametrize(
    "value",
    [
        "nan",
        1,
        1.5,
        float("inf"),
        True,
        None,
        b"",
        (),
        (1, ("a", 2.5)),
        Row(1, None),
        frozenset([1]),
        TimeWindow(0, 1),
    ],
    ids=repr,
)
def test_everything_else_passes(value: Any) -> None:
    refuse_nan(value)
