"""Windows as namespaces: what fits, how they become columns, and how a checkpoint calls their types."""

import pyarrow as pa
import pytest
from backend_support import make_backend, restore, take_snapshot

from pyflinkstate import MapStateDescriptor, Types, ValueStateDescriptor
from pyflinkstate.api.windows import (
    CountWindow,
    CountWindowSerializer,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
)
from pyflinkstate.backends.types.table import (
    arrow_type,
    decode_column,
    encode_column,
    type_from_json,
    type_to_json,
    value_copier,
)
from pyflinkstate.errors import StateValueError

LOWEST, HIGHEST = -(2**63), 2**63 - 1

WINDOWS = {
    "TIME_WINDOW": (
        TimeWindowSerializer(),
        [TimeWindow(0, 10), TimeWindow(LOWEST, HIGHEST), TimeWindow(-5, -1)],
    ),
    "COUNT_WINDOW": (CountWindowSerializer(), [CountWindow(0), CountWindow(HIGHEST)]),
    "GLOBAL_WINDOW": (GlobalWindowSerializer(), [GlobalWindow()]),
}

every_type = pytest.mark.parametrize("name", WINDOWS)


@every_type
def test_columns_and_back(name):
    window_type, windows = WINDOWS[name]
    column = encode_column(window_type, windows)
    assert column.type == arrow_type(window_type)
    assert decode_column(window_type, column) == windows
    assert decode_column(window_type, column.slice(1)) == windows[1:]
    assert decode_column(window_type, encode_column(window_type, [])) == []
    assert decode_column(window_type, encode_column(window_type, [None, windows[0]])) == [None, windows[0]]


@every_type
def test_the_type_has_its_name_in_a_checkpoint(name):
    window_type, windows = WINDOWS[name]
    assert type_to_json(window_type) == str(window_type) == name
    assert type_from_json(name) == window_type
    pairs = Types.LIST(Types.TUPLE([window_type, window_type]))
    assert type_from_json(type_to_json(pairs)) == pairs
    both = [[(windows[0], windows[-1])], []]
    assert decode_column(pairs, encode_column(pairs, both)) == both
    assert value_copier(window_type) is None


def test_anybody_can_read_a_time_window():
    column = encode_column(TimeWindowSerializer(), [TimeWindow(3, 9)])
    assert column.to_pylist() == [{"start": 3, "end": 9}]
    assert column.type.field("start").type == pa.int64()


class Later(TimeWindow):
    pass


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIME_WINDOW", (0, 1)),
        ("TIME_WINDOW", Later(0, 1)),
        ("TIME_WINDOW", CountWindow(1)),
        ("TIME_WINDOW", TimeWindow(0, HIGHEST + 1)),
        ("TIME_WINDOW", TimeWindow(LOWEST - 1, 0)),
        ("TIME_WINDOW", TimeWindow(0.5, 1)),
        ("COUNT_WINDOW", CountWindow(HIGHEST + 1)),
        ("COUNT_WINDOW", CountWindow("one")),
        ("COUNT_WINDOW", 1),
        ("GLOBAL_WINDOW", TimeWindow(0, 1)),
    ],
)
def test_what_does_not_fit_is_refused_before_it_is_state(backend, name, value):
    state = backend.get_or_create_keyed_state(ValueStateDescriptor("value"), WINDOWS[name][0])
    with pytest.raises(StateValueError, match="namespace"):
        state.set_current_namespace(value)


@every_type
def test_state_by_window_is_restored(name):
    window_type, windows = WINDOWS[name]
    values, maps = ValueStateDescriptor("value", Types.LONG()), MapStateDescriptor("map")
    written = make_backend()
    for number, window in enumerate(windows):
        written.set_current_key("k")
        written.get_partitioned_state(values, window, window_type).update(number)
        written.get_partitioned_state(maps, window, window_type).put(window, number)
    restored = restore([take_snapshot(written)])
    restored.set_current_key("k")
    assert set(restored.get_keys_and_namespaces("value")) == {("k", window) for window in windows}
    for number, window in enumerate(windows):
        assert restored.get_partitioned_state(values, window, window_type).value() == number
        assert restored.get_partitioned_state(maps, window, window_type).get(window) == number
