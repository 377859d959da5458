"""Keys of maps and namespaces that are put into a checkpoint are found by the program."""

import decimal
import pickle

import pyarrow as pa
import pytest
from backend_support import make_backend, state_of
from read_support import COUNT, UID, checkpoint_with, restored

from pyflinkstate import MapStateDescriptor, StateTtlConfig, Time, Types
from pyflinkstate.errors import StateTableError
from pyflinkstate.state_access.writing import edit
from pyflinkstate.state_access.writing.user_keys import key_check

FLOAT, DOUBLE, LONG, PICKLED = Types.FLOAT(), Types.DOUBLE(), Types.LONG(), Types.PICKLED_BYTE_ARRAY()
NAN = float("nan")
is_lasting = pytest.mark.parametrize("is_lasting", [False, True], ids=["for ever", "for a time"])
FORMS = {
    "entries of Python": lambda key: {"map_key": [key], "value": [5]},
    "entries of Arrow": lambda key: {"map_key": pa.array([key]), "value": pa.array([5])},
    "a dict": lambda key: {"value": [{key: 5}]},
    "pairs": lambda key: {"value": [[(key, 5)]]},
}
forms = pytest.mark.parametrize("form", FORMS)


def mapped(key_type, key, is_lasting=False):
    """Return a checkpoint in which a map has one entry, and the state's descriptor."""
    descriptor = MapStateDescriptor("map", key_type, LONG)
    if is_lasting:
        descriptor.enable_time_to_live(StateTtlConfig.new_builder(Time.hours(1)).build())
    backend = make_backend(Types.STRING())
    state_of(backend, descriptor, "a").put(key, 1)
    return checkpoint_with(backend), descriptor


@forms
@is_lasting
@pytest.mark.parametrize(
    ("key_type", "key"),
    [(FLOAT, 0.1), (DOUBLE, 0.1), (Types.TUPLE([FLOAT, LONG]), (0.1, 1)), (PICKLED, 0.1), (PICKLED, "x")],
    ids=str,
)
def test_the_key_of_a_map_is_found(tmp_path, form, is_lasting, key_type, key):
    if form == "entries of Arrow" and isinstance(key, tuple):
        pytest.skip("Arrow has no tuples")
    checkpoint, descriptor = mapped(key_type, key, is_lasting)
    changed = edit(checkpoint, clock=lambda: 0).put(UID, "map", {"key": ["a"], **FORMS[form](key)})
    state = state_of(*restored(changed.write(tmp_path / "s")), descriptor, "a")
    assert state.get(key) == 5
    assert len(list(state.keys())) == 1


@forms
@is_lasting
@pytest.mark.parametrize(
    ("key_type", "good", "bad"),
    [
        (FLOAT, 1.0, NAN),
        (DOUBLE, 1.0, NAN),
        (Types.BIG_DEC(), decimal.Decimal(1), decimal.Decimal("NaN")),
        (Types.TUPLE([DOUBLE, LONG]), (1.0, 1), (NAN, 1)),
        (PICKLED, 1.0, NAN),
        (PICKLED, 1.0, (1, NAN)),
    ],
    ids=str,
)
def test_nan_is_no_key_of_a_map(form, is_lasting, key_type, good, bad):
    if form == "entries of Arrow" and not isinstance(bad, float):
        pytest.skip("Arrow has no such values")
    checkpoint, _ = mapped(key_type, good, is_lasting)
    with pytest.raises(
        StateTableError,
        match="NaN does not equal itself, so what is kept under it would never be found again",
    ):
        edit(checkpoint).put(UID, "map", {"key": ["a"], **FORMS[form](bad)})


def test_a_pickle_is_looked_into_if_that_runs_no_code():
    checkpoint, _ = mapped(PICKLED, 1.0)
    for bad, message in ((NAN, "NaN does not equal itself"), ([1], "unhashable")):
        with pytest.raises(StateTableError, match=message):
            edit(checkpoint).put(UID, "map", {"key": ["a"], "map_key": [pickle.dumps(bad)], "value": [5]})


def test_namespaces_are_found(tmp_path):
    backend = make_backend(Types.STRING())
    backend.set_current_key("a")
    backend.get_partitioned_state(COUNT, 0.1, FLOAT).update(1)
    checkpoint = checkpoint_with(backend)
    for number, namespaces in enumerate(([0.1], pa.array([0.1]))):
        table = {"key": ["a"], "namespace": namespaces, "value": [5]}
        (again,) = restored(edit(checkpoint).put(UID, "count", table).write(tmp_path / f"s{number}"))
        again.set_current_key("a")
        assert again.get_partitioned_state(COUNT, 0.1, FLOAT).value() == 5
        assert again.num_key_value_state_entries() == 1
    for namespaces in ([NAN], pa.array([NAN])):
        table = {"key": ["a"], "namespace": namespaces, "value": [5]}
        with pytest.raises(StateTableError, match=r"'namespace'.*NaN does not equal itself"):
            edit(checkpoint).put(UID, "count", table)


def test_keys_of_plain_types_need_no_look_at_each():
    plain = [Types.STRING(), LONG, Types.INT(), Types.BOOLEAN(), Types.BYTE()]
    assert [key_check(type_info) for type_info in plain] == [None] * len(plain)
