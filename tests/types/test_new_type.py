"""A type that the package does not have: its class with the check, and one row, are all that it needs."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import attrs
import pyarrow as pa
import pytest
from backend_support import make_backend, state_of
from read_support import COUNT, UID, checkpoint_with, restored

from pyflinkstate.api import AtomicTypeInfo, MapStateDescriptor, Types, ValueStateDescriptor, misfit
from pyflinkstate.backends.types import hashes, table
from pyflinkstate.backends.types.atoms import atom
from pyflinkstate.backends.types.codec import WrittenForm
from pyflinkstate.backends.types.table import type_from_json, type_to_json
from pyflinkstate.errors import InvalidKeyError
from pyflinkstate.runtime.sinks import RecordText
from pyflinkstate.runtime.tasks.router import KeyGroups
from pyflinkstate.state_access.command_line.output import parsed_key, readable
from pyflinkstate.state_access.writing import edit

ONE, OTHER = uuid.UUID(int=2**128 - 1), uuid.UUID(int=0)


def check_uuid(value: Any) -> uuid.UUID:
    if type(value) is not uuid.UUID:
        raise misfit(value, "UUID")
    return value


@attrs.frozen(init=False, repr=False, eq=False)
class UuidTypeInfo(AtomicTypeInfo[uuid.UUID]):
    """``uuid.UUID``."""

    def __init__(self) -> None:
        self.__attrs_init__("UUID", check_uuid)


UUID = UuidTypeInfo()
ROW = atom(
    UUID,
    pa.large_binary(),
    lambda value: hashes.java_hash_of_long(value.int),
    to_arrow=lambda value: value.bytes,
    from_arrow=lambda data: uuid.UUID(bytes=data),
    written=WrittenForm("00000000-0000-0000-0000-000000000000", uuid.UUID),
    exact=uuid.UUID,
)


@pytest.fixture(autouse=True)
def its_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(table.OF_NAME, ROW.name, ROW)


def test_its_name_is_read_from_a_checkpoint() -> None:
    declared = Types.MAP(UUID, Types.LIST(UUID))
    assert type_from_json(type_to_json(declared)) == declared


FORMS = {
    "arrow": lambda entries: entries.to_arrow(),
    "pandas": lambda entries: entries.to_pandas(),
    "dicts": lambda entries: entries.to_arrow().to_pylist(),
    "rows": lambda entries: list(entries.rows()),
}


@pytest.mark.parametrize("form", FORMS)
def test_it_goes_through_a_checkpoint_and_through_tables(tmp_path: Path, form: str) -> None:
    value = ValueStateDescriptor("value", UUID)
    parts = MapStateDescriptor("parts", UUID, Types.TUPLE([UUID, Types.LONG()]))
    backend = make_backend(UUID)
    for key in (ONE, OTHER):
        state_of(backend, COUNT, key).update(1)
    state_of(backend, value, ONE).update(OTHER)
    state_of(backend, parts, ONE).put(OTHER, (ONE, 1))
    checkpoint = checkpoint_with(backend)
    changed = edit(checkpoint)
    for state in ("count", "value", "parts"):
        changed.put(UID, state, FORMS[form](checkpoint.entries(UID, state)))
    (again,) = restored(changed.write(tmp_path / "s"), key_type=UUID)
    assert dict(again.registered_kv_states["count"].items()) == {ONE: 1, OTHER: 1}
    assert state_of(again, value, ONE).value() == OTHER
    assert dict(state_of(again, parts, ONE).items()) == {OTHER: (ONE, 1)}


def test_a_value_that_does_not_fit_is_refused_where_it_is_stored() -> None:
    backend = make_backend(UUID)
    with pytest.raises(ValueError, match=r"'x' \(str\) does not fit UUID"):
        state_of(backend, ValueStateDescriptor("value", UUID), ONE).update("x")


def test_it_can_be_a_key_of_a_stream() -> None:
    keys, groups = KeyGroups(UUID, 128).of_batch([ONE, OTHER, ONE])
    assert keys == [ONE, OTHER, ONE]
    assert groups[0] == groups[2] != groups[1]
    with pytest.raises(InvalidKeyError):
        KeyGroups(UUID, 128).of_batch([str(ONE)])


def test_it_is_printed() -> None:
    assert RecordText("print", Types.TUPLE([UUID, Types.BOOLEAN()]))((OTHER, True)) == f"({OTHER},true)"


def test_the_command_line_reads_the_key_that_it_prints() -> None:
    printed = readable(UUID, ONE)
    assert parsed_key(printed, UUID) == ONE
    with pytest.raises(InvalidKeyError, match="is written like 00000000-"):
        parsed_key("x", UUID)
