"""Sources: how they cut their input into epochs, and that a position gives the same input again."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support_runtime import raising

from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError
from pyflinkstate.runtime.formats import CsvFormat, JsonFormat
from pyflinkstate.runtime.sources import (
    CollectionSource,
    FileSource,
    RddEpoch,
    RddSource,
    Source,
    SplitEpoch,
)

NO_REJECTS = raising(AssertionError("a record was rejected"))


def epochs(source: Source, position: Any = None, bounded: bool = True) -> Iterator[Any]:
    """Plan to the end, as the job master does; positions go through JSON, as in a checkpoint."""
    while (epoch := source.plan(position, bounded)) is not None:
        yield epoch
        position = json.loads(json.dumps(epoch.end))


def records(epoch: SplitEpoch) -> list[Any]:
    """Read an epoch as tasks do: the reader is pickled, and each split is read apart."""
    read = pickle.loads(pickle.dumps(epoch.read))
    return [record for split in epoch.splits for record in read(split, NO_REJECTS)]


# --- collections -----------------------------------------------------------------------------------


def test_a_collection_is_cut_into_epochs_of_a_size() -> None:
    planned = list(epochs(CollectionSource(list(range(10)), 4)))
    assert [records(epoch) for epoch in planned] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [epoch.is_last for epoch in planned] == [False, False, True]


def test_an_epoch_that_ends_with_the_collection_is_the_last() -> None:
    planned = list(epochs(CollectionSource(list(range(8)), 4)))
    assert [epoch.is_last for epoch in planned] == [False, True]


def test_without_barriers_all_that_is_left_is_one_epoch() -> None:
    source = CollectionSource(list(range(10)), 4)
    (whole,) = epochs(source, bounded=False)
    assert records(whole) == list(range(10))
    assert whole.is_last
    (rest,) = epochs(source, next(epochs(source)).end, bounded=False)
    assert records(rest) == list(range(4, 10))


@pytest.mark.parametrize("bounded", [True, False])
def test_an_empty_collection_has_no_epochs(bounded: bool) -> None:
    assert list(epochs(CollectionSource([]), bounded=bounded)) == []


def test_a_position_gives_the_same_records_again() -> None:
    source = CollectionSource([object() for _ in range(9)], 2)
    once = list(epochs(source))
    again = list(epochs(source, once[1].end))
    assert [epoch.splits for epoch in again] == [epoch.splits for epoch in once[2:]]
    assert [epoch.end for epoch in again] == [epoch.end for epoch in once[2:]]


@pytest.mark.parametrize(
    "position",
    [{"index": 2, "length": 9}, {"partition": 1, "partitions": 10}, {"last": "a", "format": "csv"}, [1], 5],
    ids=repr,
)
def test_a_collection_refuses_the_position_of_other_input(position: Any) -> None:
    with pytest.raises(IncompatibleCheckpointError, match="does not fit this collection"):
        CollectionSource(list(range(10))).plan(position, True)


# --- RDDs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounded", "expected"), [(True, [range(3), range(3, 6), range(6, 7)]), (False, [range(7)])]
)
def test_an_rdd_is_cut_into_partitions(bounded: bool, expected: list[range]) -> None:
    rdd = object()
    planned = list(epochs(RddSource(rdd, 7, 3), bounded=bounded))
    assert all(isinstance(epoch, RddEpoch) and epoch.rdd is rdd for epoch in planned)
    assert [epoch.partitions for epoch in planned] == expected
    assert [epoch.is_last for epoch in planned] == [False] * (len(expected) - 1) + [True]


def test_an_rdd_goes_on_after_a_position() -> None:
    source = RddSource(object(), 7, 3)
    first = source.plan(None, True)
    assert [epoch.partitions for epoch in epochs(source, first.end)] == [range(3, 6), range(6, 7)]
    assert list(epochs(source, {"partition": 7, "partitions": 7})) == []
    assert list(epochs(RddSource(object(), 0, 3))) == []


@pytest.mark.parametrize("position", [{"partition": 3, "partitions": 8}, {"index": 3, "length": 7}, "3"])
def test_an_rdd_refuses_the_position_of_other_input(position: Any) -> None:
    with pytest.raises(IncompatibleCheckpointError, match="does not fit this RDD"):
        RddSource(object(), 7, 3).plan(position, True)


# --- files -------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five files of numbers, made in another order than that of their names."""
    for number in (3, 1, 5, 2, 4):
        (tmp_path / f"{number}.json").write_text(f"{number}\n{number}.5\n")
    return tmp_path


def numbers(planned: list[SplitEpoch]) -> list[list[float]]:
    return [records(epoch) for epoch in planned]


def test_files_are_read_in_the_order_of_their_names(folder: Path) -> None:
    planned = list(epochs(FileSource(str(folder), JsonFormat(), files_per_epoch=2)))
    assert numbers(planned) == [[1, 1.5, 2, 2.5], [3, 3.5, 4, 4.5], [5, 5.5]]
    assert [epoch.is_last for epoch in planned] == [False, False, True]
    assert [len(epoch.splits) for epoch in planned] == [2, 2, 1]


def test_without_barriers_all_files_are_one_epoch(folder: Path) -> None:
    (whole,) = epochs(FileSource(str(folder), JsonFormat()), bounded=False)
    assert len(records(whole)) == 10
    assert whole.is_last


@pytest.mark.parametrize("form", ["{}", "{}/", "file://{}"])
def test_a_directory_may_be_a_path_or_a_uri(folder: Path, form: str) -> None:
    source = FileSource(form.format(folder), JsonFormat(), files_per_epoch=5)
    source.check()
    assert len(records(next(epochs(source)))) == 10


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_names_with_blanks_and_signs_are_read(tmp_path: Path, form: str) -> None:
    for name in ("a b.json", "c%20d.json", "é#f?.json"):
        (tmp_path / name).write_text("1\n")
    (epoch,) = epochs(FileSource(form.format(tmp_path), JsonFormat(), files_per_epoch=9))
    assert records(epoch) == [1, 1, 1]


def test_hidden_files_and_folders_are_no_data(folder: Path) -> None:
    for name in (".4.json.crc", "_SUCCESS", "._1.json"):
        (folder / name).write_text("not JSON")
    (folder / "0.json").mkdir()
    assert len(list(epochs(FileSource(str(folder), JsonFormat())))) == 5


@pytest.mark.parametrize(("max_files", "count"), [(1, 1), (3, 3), (99, 5), (None, 5)])
def test_no_more_than_max_files_are_read(folder: Path, max_files: int | None, count: int) -> None:
    planned = list(epochs(FileSource(str(folder), JsonFormat(), max_files=max_files)))
    assert len(planned) == count
    assert planned[-1].is_last


def test_a_position_goes_on_after_its_file(folder: Path) -> None:
    source = FileSource(str(folder), JsonFormat(), files_per_epoch=2)
    first = source.plan(None, True)
    assert numbers(list(epochs(source, first.end))) == [[3, 3.5, 4, 4.5], [5, 5.5]]


def test_files_that_were_added_later_are_read_after_the_others(folder: Path) -> None:
    source = FileSource(str(folder), JsonFormat())
    end = list(epochs(source))[-1].end
    assert source.plan(end, True) is None
    (folder / "6.json").write_text("6\n")
    assert numbers(list(epochs(source, end))) == [[6]]


def test_a_file_is_added_in_the_middle_of_the_run(folder: Path) -> None:
    source = FileSource(str(folder), JsonFormat())
    first = source.plan(None, True)
    (folder / "1a.json").write_text('"added"\n')
    assert numbers(list(epochs(source, first.end)))[0] == ["added"]


def test_a_directory_without_the_last_file_read_is_refused(folder: Path) -> None:
    source = FileSource(str(folder), JsonFormat())
    position = source.plan(None, True).end
    (folder / "1.json").unlink()
    with pytest.raises(IncompatibleCheckpointError, match=r"after file '1\.json', which is not in"):
        source.plan(position, True)


@pytest.mark.parametrize(
    "position", [{"last": "1.json", "format": "csv"}, {"index": 1, "length": 5}, "1.json"], ids=repr
)
def test_a_directory_refuses_the_position_of_other_input(folder: Path, position: Any) -> None:
    with pytest.raises(IncompatibleCheckpointError, match="does not fit this directory"):
        FileSource(str(folder), JsonFormat()).plan(position, True)


def test_fewer_files_than_were_read_are_refused(folder: Path) -> None:
    end = FileSource(str(folder), JsonFormat(), files_per_epoch=3).plan(None, True).end
    with pytest.raises(IncompatibleCheckpointError, match=r"3\.json"):
        FileSource(str(folder), JsonFormat(), max_files=2).plan(end, True)


def test_a_directory_with_nothing_to_read_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").write_text("")
    with pytest.raises(ConfigurationError, match="holds no files to read"):
        FileSource(str(tmp_path), CsvFormat()).check()


@pytest.mark.parametrize("directory", ["{}/missing", "{}/file", "ftp://host/dir"])
def test_what_is_no_directory_is_refused_at_once(tmp_path: Path, directory: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot list"):
        FileSource(directory.format(tmp_path), CsvFormat()).check()
