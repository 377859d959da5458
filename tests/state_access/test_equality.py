"""Which values count as equal when two checkpoints are compared."""

import pickle
from decimal import Decimal

import pytest

from pyflinkstate import Row, Types
from pyflinkstate.backends.types import encode_column
from pyflinkstate.state_access.equality import equal_rows

NAN = float("nan")
NESTED = Types.MAP(Types.STRING(), Types.LIST(Types.DOUBLE()))
ROW = Types.ROW_NAMED(["a", "b"], [Types.INT(), Types.STRING()])


def twice(text):
    """Return a list that has one text twice, as one object, which pickles otherwise than two equal ones."""
    return [text, text]


CASES = [
    (Types.LONG(), [1, 2, None, None], [1, 3, None, 4], [True, False, True, False]),
    (Types.DOUBLE(), [NAN, NAN, 0.0], [NAN, 1.0, -0.0], [True, False, True]),
    (Types.STRING(), ["a", "", None], ["a", "b", ""], [True, False, False]),
    (Types.LIST(Types.LONG()), [[1, 2], [1], [], None], [[1, 2], [1, 2], [], []], [True, False, True, False]),
    (Types.LIST(Types.LONG()), [[1, 2], [3], [4, 5]], [[1, 9], [3], [4, 5]], [False, True, True]),
    (NESTED, [{"x": [1.0], "y": []}, {"x": [1.0]}], [{"y": [], "x": [1.0]}, {"x": [2.0]}], [True, False]),
    (ROW, [Row(a=1, b="x"), Row(a=1, b=None)], [Row(a=1, b="x"), Row(a=1, b="y")], [True, False]),
    (Types.TUPLE([Types.BIG_DEC()]), [(Decimal(1),)], [(Decimal(2),)], [False]),
]


@pytest.mark.parametrize(("type_info", "old", "new", "expected"), CASES)
def test_rows(type_info, old, new, expected):
    columns = (encode_column(type_info, values) for values in (old, new))
    assert equal_rows(type_info, *columns).tolist() == expected


def test_pickles_of_plain_values_are_compared_by_value():
    one, other = twice("ab"), ["ab", "".join("ab")]
    assert pickle.dumps(one) != pickle.dumps(other)
    pickled = Types.PICKLED_BYTE_ARRAY()
    columns = (encode_column(pickled, values) for values in ([one, 1, Decimal(1)], [other, 2, Decimal(1)]))
    assert equal_rows(pickled, *columns).tolist() == [True, False, True]
