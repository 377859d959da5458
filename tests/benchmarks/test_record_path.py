"""The benchmark of a record's way runs the real steps, and no record is missing at their end."""

from __future__ import annotations

import pytest
import record_path


@pytest.mark.parametrize("name", record_path.NAMES)
def test_each_program_goes_all_steps_and_counts_each_record(name: str) -> None:
    found = record_path.steps(name, 10_000)  # raises an error if a record is missing
    assert found["source"] > 0
    assert found["unpickle"] > 0
    assert (found["timestamps"] == 0) == (name in record_path.UNTIMED)


def test_a_record_that_is_missing_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_path, "run_slot", lambda function, frames: [])
    with pytest.raises(AssertionError, match="value: 0 of"):
        record_path.steps("value", 1_000)
