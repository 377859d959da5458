"""How errors show what a user gave: in full as long as it is short, and whatever its repr does."""

from __future__ import annotations

import datetime

import pytest

from pyflinkstate.api import MAX_REPR, TypeInformation, Types, safe_repr
from pyflinkstate.backends.types import VOID_NAMESPACE_TYPE


class Shy:
    """Its repr raises, as one of the user's may."""

    def __init__(self, error: type[Exception]) -> None:
        self.error = error

    def __repr__(self) -> str:
        raise self.error("no")


def test_what_is_short_is_shown_in_full() -> None:
    assert safe_repr(["a", 1]) == "['a', 1]"


@pytest.mark.parametrize("limit", [10, MAX_REPR])
def test_what_is_long_is_cut(limit: int) -> None:
    text = "x" * (limit - 2)
    assert safe_repr(text, limit) == repr(text)
    assert safe_repr(text + "x", limit) == f"'{text}x..."


@pytest.mark.parametrize("error", [ValueError, KeyError, RecursionError])
def test_a_repr_that_raises_is_described(error: type[Exception]) -> None:
    assert safe_repr(Shy(error)) == f"<Shy, whose repr raised {error.__name__}>"


def test_an_int_that_python_refuses_to_print_is_described() -> None:
    assert safe_repr(10**5000) == "an int with more digits than Python prints"


class ShyText(str):
    """A text whose repr raises."""

    __slots__ = ()

    def __repr__(self) -> str:
        raise KeyError


class ShyTime(datetime.time):
    """A time whose repr raises."""

    def __repr__(self) -> str:
        raise KeyError


@pytest.mark.parametrize(
    ("type_info", "value"),
    [
        (Types.STRING(), list(range(100_000))),
        (Types.STRING(), Shy(RuntimeError)),
        (Types.LIST(Types.LONG()), [Shy(RuntimeError)]),
        (Types.STRING(), "\ud800" * 100_000),
        (Types.CHAR(), "x" * 100_000),
        (Types.CHAR(), ""),
        (Types.SQL_TIME(), ShyTime(1, tzinfo=datetime.timezone.utc)),
        (Types.TUPLE([Types.LONG()]), (1, Shy(RuntimeError))),
        (Types.TUPLE([Types.LONG()]), list(range(100_000))),
        (Types.ROW([Types.LONG()]), {"f0": 1, ShyText("x"): 1}),
        (VOID_NAMESPACE_TYPE, Shy(RuntimeError)),
    ],
)
def test_what_is_wrong_with_a_value_is_said_in_a_message_that_can_be_read(
    type_info: TypeInformation, value: object
) -> None:
    with pytest.raises(ValueError, match=r"does not fit|holds|is not|has") as caught:
        type_info.check(value)
    assert len(str(caught.value)) < MAX_REPR + 100
