"""Which types may hold NaN, and which values do."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest
from type_samples import ALL_SAMPLES

from pyflinkstate import CountWindowSerializer, Row, TimeWindow, TimeWindowSerializer
from pyflinkstate.api.types import ExternalTypeInfo, TypeInformation, Types
from pyflinkstate.backends.types import may_hold_nan
from pyflinkstate.backends.values import refuse_nan

LONG, STRING, DOUBLE = Types.LONG(), Types.STRING(), Types.DOUBLE()
NAN = float("nan")


class OwnType(TypeInformation[Any]):
    """A type of the user's, of whose values nothing is known."""

    def check(self, value: Any) -> Any:
        return value


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
    "type_info",
    [
        OwnType(),
        ExternalTypeInfo(DOUBLE),
        Types.TUPLE([STRING, Types.TUPLE([LONG, DOUBLE])]),
        Types.ROW_NAMED(["a", "b"], [LONG, Types.FLOAT()]),
    ],
    ids=str,
)
def test_a_type_whose_values_may_be_nan_or_have_it_as_a_part(type_info: TypeInformation) -> None:
    assert may_hold_nan(type_info)


@pytest.mark.parametrize(
    "type_info",
    [
        ExternalTypeInfo(LONG),
        TimeWindowSerializer(),
        CountWindowSerializer(),
        Types.TUPLE([STRING, Types.TUPLE([LONG, LONG])]),
        Types.ROW([LONG, STRING]),
    ],
    ids=str,
)
def test_a_type_whose_values_never_are(type_info: TypeInformation) -> None:
    assert not may_hold_nan(type_info)


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
