"""Which sources know where the next epoch ends, whenever they are asked: it may be read while one runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from support_job import GrowingSource
from support_runtime import ManualClock

from pyflinkstate.runtime.sources.connectors import NumberSequenceSource
from pyflinkstate.runtime.sources.formats import CsvFormat, JsonFormat
from pyflinkstate.runtime.sources.source_set import SourceSet
from pyflinkstate.runtime.sources.sources import (
    CollectionSource,
    DirectorySource,
    RateSource,
    RddSource,
    Source,
)


@pytest.mark.parametrize(
    "source",
    [
        CollectionSource(list(range(5)), 2),
        RddSource(None, 5, 2),
        NumberSequenceSource(0, 4, records_per_epoch=2),
        SourceSet({"a": CollectionSource([1, 2], 1), "b": CollectionSource([1, 2, 3], 2)}),
    ],
    ids=lambda source: type(source).__name__,
)
def test_an_epoch_of_a_fixed_size_is_full_until_the_last_one_which_is_settled(source: Source) -> None:
    found = source.latest_offset(source.initial_offset(), whole=False)
    assert (found.is_full, found.is_last) == (True, False)
    while not found.is_last:
        found = source.latest_offset(found.end, whole=False)
    assert not found.is_full
    assert found.is_settled


def test_a_rate_is_full_only_when_more_is_due_than_an_epoch_may_have() -> None:
    clock = ManualClock()
    source = RateSource(10, clock.now_ms, max_records_per_epoch=5)
    start = source.initial_offset()
    clock.time_ms += 400
    assert not source.latest_offset(start, whole=False).is_settled
    clock.time_ms += 200
    assert source.latest_offset(start, whole=False).is_full


def test_a_growing_directory_is_full_only_with_as_many_files_as_an_epoch_has(tmp_path: Path) -> None:
    source = DirectorySource(str(tmp_path), CsvFormat(), 2, growing=True)
    for name in ("1.csv", "2.csv"):
        assert not source.latest_offset(source.initial_offset(), whole=False).is_settled
        (tmp_path / name).write_text("1\n")
    assert source.latest_offset(source.initial_offset(), whole=False).is_full


def test_several_sources_are_settled_when_each_of_them_is() -> None:
    growing = GrowingSource(4, lambda _: None, 2)
    both = SourceSet({"a": CollectionSource([1, 2, 3], 1), "b": growing})
    assert not both.latest_offset(both.initial_offset(), whole=False).is_settled


def ends(source: Source, whole: bool) -> int:
    """Return the number of epochs."""
    number, offset = 1, source.initial_offset()
    while not (found := source.latest_offset(offset, whole)).is_last:
        number, offset = number + 1, found.end
    return number


def test_a_number_that_the_program_sets_cuts_epochs_without_checkpoints_too(tmp_path: Path) -> None:
    for name in "abc":
        (tmp_path / name).write_text("1")
    for cut, uncut in (
        (CollectionSource([1, 2, 3], 1, is_cut=True), CollectionSource([1, 2, 3], 1)),
        (RddSource(None, 3, 1, is_cut=True), RddSource(None, 3, 1)),
        (NumberSequenceSource(1, 3, records_per_epoch=1), NumberSequenceSource(1, 3)),
        (
            DirectorySource(str(tmp_path), JsonFormat(), is_cut=True),
            DirectorySource(str(tmp_path), JsonFormat()),
        ),
    ):
        assert (ends(cut, whole=True), ends(cut, whole=False)) == (3, 3)
        assert ends(uncut, whole=True) == 1
