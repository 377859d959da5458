"""Columns that are put together here are those that pyarrow makes, and load no pandas."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from pyflinkstate.backends.types.columns import put_together

_PAIR = pa.struct(
    [pa.field("timestamp_ms", pa.int64(), nullable=False), pa.field("value", pa.large_string())]
)
_COLUMNS = [
    (pa.int64(), [1, -(1 << 63), (1 << 63) - 1]),
    (pa.int32(), [1, -(1 << 31)]),
    (pa.int16(), [1, 2]),
    (pa.float64(), [1.5, -0.0, float("inf")]),
    (pa.bool_(), [True, False] * 9),
    (pa.large_string(), ["", "a", "bc"]),
    (pa.large_string(), ["a", "äöü", "\U0001f600"]),
    (pa.large_binary(), [b"", b"\x00\xff"]),
    (pa.struct([]), [(), ()]),
    (_PAIR, [(1, "a"), (2, None)]),
    (pa.large_list(pa.int64()), [[], [1, 2], [3]]),
    (pa.large_list(_PAIR), [[], [(1, "a")]]),
    (pa.map_(pa.large_string(), pa.int64()), [[("a", 1), ("b", None)], []]),
    (pa.map_(pa.large_string(), pa.large_list(pa.float64())), [[("a", [1.0])]]),
]


@pytest.mark.parametrize(("arrow", "values"), _COLUMNS)
@pytest.mark.parametrize("nulls", ["none", "some", "all", "no values"])
def test_a_column_is_the_one_of_pyarrow(arrow: pa.DataType, values: list[object], nulls: str) -> None:
    given = {"none": values, "some": [None, *values, None], "all": [None, None], "no values": []}[nulls]
    made = put_together(given, arrow)
    made.validate(full=True)
    assert made.equals(pa.array(given, arrow))
    assert made.type.equals(arrow, check_metadata=True)


@pytest.mark.parametrize(
    ("arrow", "values"),
    [
        (pa.int64(), [1 << 63]),
        (pa.int64(), [1, True]),
        (pa.int8(), [128]),
        (pa.int64(), ["a"]),
        (pa.large_string(), ["\ud800"]),
        (pa.large_string(), [b"a", 1]),
        (_PAIR, [(1, "a"), (1,)]),
        (_PAIR, [("a", "a")]),
        (pa.large_list(pa.int64()), [[1], 2]),
    ],
)
def test_what_does_not_fit_is_refused_as_by_pyarrow(arrow: pa.DataType, values: list[object]) -> None:
    with pytest.raises(Exception) as expected:  # noqa: PT011 - any: the two are compared
        pa.array(values, arrow)
    with pytest.raises(type(expected.value)) as seen:
        put_together(values, arrow)
    assert str(seen.value) == str(expected.value)


def test_a_checkpoint_of_common_types_loads_no_pandas() -> None:
    program = """
import sys
from pyflinkstate import Types
from pyflinkstate.backends.types import encode_column
row = Types.ROW_NAMED(["a", "b"], [Types.LONG(), Types.LIST(Types.STRING())])
from pyflinkstate import Row
for of, values in ((Types.LONG(), [1, None]), (Types.STRING(), ["a"]), (Types.PICKLED_BYTE_ARRAY(), [{1}]),
                   (Types.MAP(Types.STRING(), Types.DOUBLE()), [{"a": 1.0}]), (row, [Row(a=1, b=["x"])])):
    encode_column(of, values)
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True)
