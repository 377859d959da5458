"""Savepoints are written under Flink's names as well."""

import pytest
from test_bootstrap import TABLE, Names, Totals, totals

from pyflinkstate import Types
from pyflinkstate.errors import ConfigurationError, UnknownOperatorError
from pyflinkstate.state_access.flink_names import (
    OperatorIdentifier,
    OperatorTransformation,
    SavepointReader,
    SavepointWriter,
)


def test_a_savepoint_is_made_changed_and_read(tmp_path):
    rows = OperatorTransformation.bootstrap_with(TABLE)
    keyed = rows.assign_timestamps("at").key_by("who", Types.STRING()).transform(Totals())
    uid = OperatorIdentifier.for_uid("totals")
    writer = SavepointWriter.new_savepoint("job", 16).with_operator(uid, keyed)
    writer.with_operator("names", rows.transform(Names()).set_max_parallelism(4))
    written = writer.write(tmp_path / "first")
    assert totals(written) == {"a": 4, "b": 2, "c": 4}
    assert [row["timestamp_ms"] for row in written.timers("totals", keys=["c"]).rows()] == [140]
    assert [operator.max_parallelism for operator in written.operators()] == [16, 4]

    again = SavepointWriter.from_existing_savepoint(tmp_path / "first")
    again.change_operator_identifier(uid, "sums").remove_operator("names")
    changed = again.write(tmp_path / "second")
    assert [operator.uid for operator in changed.operators()] == ["sums"]
    found = SavepointReader.read(tmp_path / "first").read_list_state("names", "names")
    assert list(found) == ["a", "b", "a", "c"]


def test_a_uid_twice_and_one_that_is_not_there(tmp_path):
    keyed = OperatorTransformation.bootstrap_with(TABLE).key_by("who").transform(Totals())
    writer = SavepointWriter.new_savepoint("job").with_operator("a", keyed)
    with pytest.raises(ConfigurationError, match="operator 'a' already"):
        writer.with_operator("a", keyed)
    with pytest.raises(UnknownOperatorError, match="it has 'a'"):
        writer.remove_operator("b")


def test_an_environment_in_the_place_of_the_path():
    with pytest.raises(ConfigurationError, match="takes the path of a savepoint first, not object"):
        SavepointWriter.from_existing_savepoint(object(), "savepoint")
