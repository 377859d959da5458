"""Rows, instants and arrays in state and as keys: through snapshot and restore, and apart from snapshots."""

import decimal
import math

import pyarrow as pa
import pytest
from backend_support import PICKLED, entries, make_backend, restore, state_of, take_snapshot
from hypothesis import given, settings, strategies as st
from type_samples import ALL_SAMPLES, GREATEST_INSTANT, KEY_SAMPLES, LEAST_INSTANT

from pyflinkstate import (
    Duration,
    Instant,
    ListStateDescriptor,
    MapStateDescriptor,
    Row,
    RowKind,
    StateTtlConfig,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.api import (
    CountWindow,
    CountWindowSerializer,
    ExternalTypeInfo,
    GlobalWindow,
    GlobalWindowSerializer,
    TimeWindow,
    TimeWindowSerializer,
    TypeInformation,
)
from pyflinkstate.backends.types.table import (
    arrow_type,
    decode_column,
    encode_column,
    value_copier,
)
from pyflinkstate.errors import DescriptorTypeError, StateMigrationError, StateValueError

LONG, STRING, INT = Types.LONG(), Types.STRING(), Types.INT()
INSTANT = Types.INSTANT()

PERSON = Types.ROW_NAMED(["name", "born"], [STRING, INSTANT])
ANN, NOBODY = Row(name="Ann", born=Instant(-1, 999_999_999)), Row(name=None, born=None)
DELETED = Row.of_kind(RowKind.DELETE, name="Bob", born=Instant(0, 0))
NO_FIELDS = Row()
NO_FIELDS.set_field_names([])
FAR = [GREATEST_INSTANT, LEAST_INSTANT]

VALUES = [
    *((samples.type_info, samples.fits) for samples in ALL_SAMPLES),
    (Types.DOUBLE(), [math.inf, -0.0]),
    (Types.BIG_DEC(), [decimal.Decimal("Infinity")]),
    (Types.PRIMITIVE_ARRAY(Types.BOOLEAN()), [[True, False]]),
    (Types.PRIMITIVE_ARRAY(Types.CHAR()), [["a", "é"]]),
    (Types.PRIMITIVE_ARRAY(Types.DOUBLE()), [[0.1, math.inf]]),
    (Types.BASIC_ARRAY(INT), [[], [None], [1, None, 2]]),
    (Types.BASIC_ARRAY(Types.BYTE()), [[1, None, -128]]),
    (Types.OBJECT_ARRAY(Types.BIG_DEC()), [[], [None]]),
    (Types.OBJECT_ARRAY(Types.BIG_INT()), [[10**30, None]]),
    (Types.OBJECT_ARRAY(INSTANT), [[None, *FAR]]),
    (Types.OBJECT_ARRAY(Types.OBJECT_ARRAY(PERSON)), [[[ANN, None], None, []]]),
    (Types.OBJECT_ARRAY(PICKLED), [[{1}, None, (None,)]]),
    (PERSON, [ANN, NOBODY, DELETED]),
    (Types.ROW([]), [NO_FIELDS]),
    (Types.ROW_NAMED(["row_kind", "row_kind_"], [LONG, LONG]), [Row(row_kind=1, row_kind_=None)]),
    (Types.ROW_NAMED(["a", "b"], [PICKLED, Types.LIST(LONG)]), [Row(a={1}, b=[1]), Row(a=None, b=None)]),
    (Types.ROW_NAMED(["inner"], [PERSON]), [Row(inner=DELETED), Row(inner=None)]),
    (Types.TUPLE([PERSON, INSTANT]), [(ANN, Instant(1, 2)), (None, None)]),
    (Types.MAP(STRING, Types.LIST(PERSON)), [{}, {"a": [ANN, DELETED], "none": None, "empty": []}]),
    (Types.MAP(PERSON, INSTANT), [{ANN: Instant(1, 2), NOBODY: None}]),
    (Types.MAP(INSTANT, Types.BASIC_ARRAY(LONG)), [{Instant(1, 2): [None]}]),
    (ExternalTypeInfo(PERSON), [ANN, DELETED]),
    (Types.LIST(ExternalTypeInfo(Types.BIG_INT())), [[10**30]]),
    (PICKLED, [ANN, [DELETED], Row([1]), Instant(1, 2)]),
]

KEYS = [
    *((samples.type_info, samples.fits) for samples in KEY_SAMPLES),
    (PERSON, [ANN, NOBODY, DELETED]),
    (Types.ROW([Types.TUPLE([LONG, STRING]), Types.ROW([LONG])]), [Row(f0=(1, None), f1=Row(f0=1))]),
    (ExternalTypeInfo(STRING), ["a", "é"]),
    (Types.TUPLE([LONG, STRING]), [(1, "a"), (1, None)]),
    (PICKLED, [Row(1, "a"), Row(a=1), ANN, Instant(1, 2), "k", 1, 1.5, (1, "a"), b"b", "\ud800", 2**80]),
]


def type_name(part):
    return str(part) if isinstance(part, TypeInformation) else ""


def kinds_of(value):
    """Return the kinds of all rows in a value: they count for equality, but let us look anyway."""
    if isinstance(value, Row):
        return [value.get_row_kind(), *map(kinds_of, value)]
    return [kinds_of(item) for item in value] if isinstance(value, (list, tuple)) else None


@pytest.mark.parametrize(("type_info", "values"), VALUES, ids=type_name)
class TestEveryTypeComesBack:
    @pytest.mark.parametrize("async_snapshots", [True, False], ids=["copy on write", "nested maps"])
    def test_as_a_value(self, type_info, values, async_snapshots):
        backend = make_backend(LONG, async_snapshots=async_snapshots)
        descriptor = ValueStateDescriptor("v", type_info)
        for key, value in enumerate(values):
            state_of(backend, descriptor, key).update(value)
        restored = restore([take_snapshot(backend)], LONG, async_snapshots=async_snapshots)
        for key, value in enumerate(values):
            before, back = (
                state_of(backend, descriptor, key).value(),
                state_of(restored, descriptor, key).value(),
            )
            assert back == before == value
            assert (repr(back), type(back)) == (repr(value), type(value))
            assert kinds_of(back) == kinds_of(value)

    def test_in_a_list_and_a_map(self, type_info, values):
        backend = make_backend(LONG)
        in_list, in_map = ListStateDescriptor("l", type_info), MapStateDescriptor("m", STRING, type_info)
        state_of(backend, in_list, 1).add_all(values)
        state_of(backend, in_map, 1).put_all({**dict(zip("abcdef", values, strict=False)), "none": None})
        restored = restore([take_snapshot(backend)], LONG)
        assert list(state_of(restored, in_list, 1).get()) == values
        assert dict(state_of(restored, in_map, 1).items()) == {
            **dict(zip("abcdef", values, strict=False)),
            "none": None,
        }

    def test_with_time_to_live(self, type_info, values):
        descriptor = MapStateDescriptor("m", LONG, type_info)
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Duration.of_hours(1)).build())
        backend = make_backend(LONG)
        state_of(backend, descriptor, 1).put_all(dict(enumerate(values)))
        restored = restore([take_snapshot(backend)], LONG)
        assert dict(state_of(restored, descriptor, 1).items()) == dict(enumerate(values))

    def test_among_nulls(self, type_info, values):
        """A null of any type is null again, with its neighbours unharmed."""
        if type_info == PICKLED:
            return  # None is a value there
        column = [None, *values, None]
        assert decode_column(type_info, encode_column(type_info, column)) == column


@pytest.mark.parametrize(("key_type", "keys"), KEYS, ids=type_name)
def test_keys_of_every_type_come_back(key_type, keys):
    count, backend = ValueStateDescriptor("count", LONG), make_backend(key_type)
    for number, key in enumerate(keys):
        state_of(backend, count, key).update(number)
    restored = restore([take_snapshot(backend)], key_type)
    assert [state_of(restored, count, key).value() for key in keys] == list(range(len(keys)))
    assert sorted(map(repr, restored.get_keys("count"))) == sorted(map(repr, keys))


def test_a_row_key_is_found_by_all_that_stands_for_it():
    count, backend = ValueStateDescriptor("count", LONG), make_backend(PERSON)
    state_of(backend, count, Row(name="Ann", born=None)).update(1)
    for key in (Row("Ann", None), Row(born=None, name="Ann"), ("Ann", None)):
        assert state_of(backend, count, key).value() == 1


def test_a_row_key_does_not_change_with_the_callers_row():
    count, backend = ValueStateDescriptor("count", LONG), make_backend(Types.ROW_NAMED(["a"], [LONG]))
    mine = Row(a=1)
    state_of(backend, count, mine).update(5)
    mine["a"] = 2
    assert state_of(backend, count, mine).value() is None
    assert state_of(backend, count, Row(a=1)).value() == 5


@pytest.mark.parametrize(
    "key_type",
    [Types.PRIMITIVE_ARRAY(LONG), Types.BASIC_ARRAY(STRING), Types.OBJECT_ARRAY(LONG)],
    ids=str,
)
def test_arrays_are_no_user_keys_of_a_map_but_bytes_are(key_type):
    with pytest.raises(DescriptorTypeError, match="not hashable"):
        MapStateDescriptor("m", key_type, LONG)
    assert (
        MapStateDescriptor("m", Types.PRIMITIVE_ARRAY(Types.BYTE()), LONG).key_type_info.check(b"a") == b"a"
    )


def test_a_misfit_names_the_state_and_the_field():
    state = state_of(make_backend(), ValueStateDescriptor("people", PERSON), "k")
    with pytest.raises(StateValueError, match=r"people.*field 'born'"):
        state.update(Row(name="Ann", born=5))


# --- hypothesis --------------------------------------------------------------------------------------

instants = st.builds(Instant, st.integers(FAR[1].seconds, FAR[0].seconds), st.integers(0, 999_999_999))

LEAVES = [
    (LONG, st.integers(-(2**63), 2**63 - 1)),
    (STRING, st.text(max_size=5)),
    (INSTANT, instants),
    (Types.BIG_INT(), st.integers()),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), st.binary(max_size=5)),
    (Types.PRIMITIVE_ARRAY(LONG), st.lists(st.integers(-9, 9), max_size=3)),
    (Types.BASIC_ARRAY(STRING), st.lists(st.none() | st.text(max_size=3), max_size=3)),
]


def rows(parts):
    """Row types of these fields, each with a strategy for its rows."""
    names = [f"field {index}" for index in range(len(parts))]
    fields = st.tuples(*(st.none() | values for _, values in parts))
    made = st.builds(
        lambda values, kind: Row.of_kind(kind, **dict(zip(names, values, strict=True))),
        fields,
        st.sampled_from(RowKind),
    )
    return Types.ROW_NAMED(names, [part for part, _ in parts]), made


def nested(parts):
    return st.one_of(
        st.lists(parts, min_size=1, max_size=3).map(rows),
        parts.map(lambda part: (Types.LIST(part[0]), st.lists(part[1], max_size=3))),
        parts.map(lambda part: (Types.OBJECT_ARRAY(part[0]), st.lists(st.none() | part[1], max_size=3))),
        parts.map(
            lambda part: (
                Types.MAP(STRING, part[0]),
                st.dictionaries(st.text(max_size=3), st.none() | part[1], max_size=3),
            )
        ),
        st.lists(parts, min_size=1, max_size=3).map(
            lambda of: (
                Types.TUPLE([part for part, _ in of]),
                st.tuples(*(st.none() | values for _, values in of)),
            )
        ),
    )


types_and_values = st.recursive(st.sampled_from(LEAVES), nested, max_leaves=5)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_value_of_any_type_comes_back(data):
    type_info, values = data.draw(types_and_values)
    model = data.draw(st.dictionaries(st.integers(0, 99), values, max_size=5))
    backend, descriptor = make_backend(LONG), ValueStateDescriptor("v", type_info)
    for key, value in model.items():
        state_of(backend, descriptor, key).update(value)
    restored = restore([take_snapshot(backend)], LONG)
    state_of(restored, descriptor, 0)
    assert dict(entries(restored, "v")) == model


# --- apart from snapshots --------------------------------------------------------------------------


class TestRowsCanChange:
    FLAT = Types.ROW_NAMED(["n", "s"], [LONG, STRING])

    @pytest.mark.parametrize("type_info", [FLAT, Types.ROW([LONG, FLAT]), Types.LIST(FLAT), PICKLED], ids=str)
    def test_so_they_are_copied(self, type_info):
        assert value_copier(type_info) is not None

    def test_what_cannot_change_is_not_copied(self):
        assert value_copier(INSTANT) is None
        assert value_copier(Types.TUPLE([INSTANT, LONG])) is None
        assert value_copier(ExternalTypeInfo(LONG)) is None
        assert [value_copier(window_type) for window_type, _ in WINDOWS.values()] == [None] * 3
        assert value_copier(Types.BASIC_ARRAY(LONG)) is list


# --- what a checkpoint looks like, and what may change -----------------------------------------------


def test_columns_have_the_fields_names():
    born = "struct<seconds: int64, nanos: int32>"
    assert str(arrow_type(PERSON)) == f"struct<row_kind: int8, name: large_string, born: {born}>"
    taken = Types.ROW_NAMED(["row_kind"], [LONG])
    assert str(arrow_type(taken)) == "struct<row_kind_: int8, row_kind: int64>"


class TestMigration:
    def moved(self, was, now, value, kind=ValueStateDescriptor):
        backend = make_backend()
        state_of(backend, kind("v", was), "k").update(value)
        restored = restore([take_snapshot(backend)])
        state = state_of(restored, kind("v", now), "k")
        return state.value() if kind is ValueStateDescriptor else list(state.get())

    def test_fields_may_be_given_names_and_lose_them(self):
        """They keep their places, as there are no names to find them by."""
        unnamed = Types.ROW([STRING, INSTANT])
        assert self.moved(unnamed, PERSON, ("Bob", Instant(0, 0))) == Row(name="Bob", born=Instant(0, 0))
        assert self.moved(PERSON, unnamed, DELETED) == Row.of_kind(RowKind.DELETE, f0="Bob", f1=Instant(0, 0))
        was, now = (Types.MAP(STRING, Types.TUPLE([row])) for row in (PERSON, unnamed))
        inside = self.moved(was, now, {"a": (ANN,), "b": (None,), "c": None})
        assert inside == {"a": (Row(f0="Ann", f1=ANN.born),), "b": (None,), "c": None}

    @pytest.mark.parametrize("make", [Types.PRIMITIVE_ARRAY, Types.BASIC_ARRAY, Types.OBJECT_ARRAY])
    def test_what_earlier_releases_wrote_as_a_list_may_become_an_array(self, make):
        assert self.moved(Types.LIST(LONG), make(LONG), [1, 2]) == [1, 2]
        assert self.moved(Types.LIST(LONG), make(LONG), [[1], []], ListStateDescriptor) == [[1], []]

    @pytest.mark.parametrize(
        ("was", "now", "value"),
        [
            (Types.BASIC_ARRAY(LONG), Types.LIST(LONG), [1]),
            (Types.BASIC_ARRAY(LONG), Types.PRIMITIVE_ARRAY(LONG), [1]),
            (Types.LIST(LONG), Types.BASIC_ARRAY(INT), [1]),
            (Types.LIST(Types.BYTE()), Types.PRIMITIVE_ARRAY(Types.BYTE()), [1]),
            (PERSON, Types.ROW([STRING, LONG]), ANN),
            (PERSON, Types.ROW([STRING]), ANN),
            (PERSON, Types.ROW_NAMED(["who", "since"], [STRING, INSTANT]), ANN),
            (PERSON, Types.TUPLE([STRING, INSTANT]), ANN),
        ],
        ids=type_name,
    )
    def test_other_types_are_refused(self, was, now, value):
        with pytest.raises(StateMigrationError, match="type cannot change"):
            self.moved(was, now, value)


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
    assert set(restored.registered_kv_states["value"].keys_and_namespaces()) == {
        ("k", window) for window in windows
    }
    for number, window in enumerate(windows):
        assert restored.get_partitioned_state(values, window, window_type).value() == number
        assert restored.get_partitioned_state(maps, window, window_type).get(window) == number
