"""Sources: how they cut their input into epochs, and that two offsets give the same input again."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
from support_runtime import raising

from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError, SourceError
from pyflinkstate.runtime.sources.cached_source import CachedRecords, CachedSource
from pyflinkstate.runtime.sources.connectors import NumberSequenceSource
from pyflinkstate.runtime.sources.formats import CsvFormat, JsonFormat
from pyflinkstate.runtime.sources.guarded_source import GuardedSource
from pyflinkstate.runtime.sources.initial_rows import InitialRows, SeededSource
from pyflinkstate.runtime.sources.source_set import SourceSet
from pyflinkstate.runtime.sources.sources import (
    Available,
    CollectionSource,
    DirectorySource,
    Epoch,
    RateSource,
    RddEpoch,
    RddSource,
    Source,
    SplitEpoch,
)

NO_REJECTS = raising(AssertionError("a record was rejected"))


def as_kept(offset: Any) -> Any:
    """Return an offset as a checkpoint gives it back."""
    return json.loads(json.dumps(offset))


@attrs.frozen
class Planned:
    """An epoch as the job master plans it."""

    start: Any
    end: Any
    is_last: bool
    epoch: Epoch


def epochs(source: Source, start: Any = None, whole: bool = False) -> Iterator[Planned]:
    """Plan to the end of what is there now, as the job master does."""
    start = source.initial_offset() if start is None else start
    while (found := source.latest_offset(as_kept(start), whole)).end != start:
        yield Planned(start, found.end, found.is_last, source.plan(as_kept(start), as_kept(found.end)))
        start = found.end


def records(epoch: Epoch) -> list[Any]:
    """Read an epoch as tasks do: the reader is pickled, and each split is read apart."""
    assert isinstance(epoch, SplitEpoch)
    read = pickle.loads(pickle.dumps(epoch.read))
    return [record for split in epoch.splits for record in read(split, NO_REJECTS)]


# --- collections -----------------------------------------------------------------------------------


def test_a_collection_is_cut_into_epochs_of_a_size() -> None:
    planned = list(epochs(CollectionSource(list(range(10)), 4)))
    assert [records(each.epoch) for each in planned] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [each.is_last for each in planned] == [False, False, True]


def test_an_epoch_that_ends_with_the_collection_is_the_last() -> None:
    planned = list(epochs(CollectionSource(list(range(8)), 4)))
    assert [each.is_last for each in planned] == [False, True]


def test_without_barriers_all_that_is_left_is_one_epoch() -> None:
    source = CollectionSource(list(range(10)), 4)
    (whole,) = epochs(source, whole=True)
    assert records(whole.epoch) == list(range(10))
    assert whole.is_last
    (rest,) = epochs(source, next(epochs(source)).end, whole=True)
    assert records(rest.epoch) == list(range(4, 10))


@pytest.mark.parametrize("whole", [True, False])
def test_an_empty_collection_is_over_at_once(whole: bool) -> None:
    source = CollectionSource([])
    start = source.initial_offset()
    assert source.latest_offset(start, whole) == Available(start, is_last=True)


@pytest.mark.parametrize("whole", [True, False])
def test_after_its_end_a_collection_is_over(whole: bool) -> None:
    source = CollectionSource([1, 2, 3], 2)
    end = list(epochs(source))[-1].end
    assert source.latest_offset(end, whole) == Available(end, is_last=True)


def test_an_offset_gives_the_same_epochs_again() -> None:
    source = CollectionSource([object() for _ in range(9)], 2)
    once = list(epochs(source))
    assert list(epochs(source, once[1].end)) == once[2:]


def test_offsets_may_be_further_apart_than_epochs_are_long() -> None:
    source = CollectionSource(list(range(9)), 2)
    first, *_, last = epochs(source)
    assert records(source.plan(first.start, last.end)) == list(range(9))
    assert records(source.plan(first.end, last.start)) == list(range(2, 8))


@pytest.mark.parametrize(
    "start",
    [{"index": 2, "length": 9}, {"partition": 1, "partitions": 10}, {"last": "a", "format": "csv"}, [1], 5],
    ids=repr,
)
def test_a_collection_refuses_the_offset_of_other_input(start: Any) -> None:
    with pytest.raises(IncompatibleCheckpointError, match="does not fit this collection"):
        CollectionSource(list(range(10))).latest_offset(start, False)


# --- RDDs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("whole", "expected"), [(False, [range(3), range(3, 6), range(6, 7)]), (True, [range(7)])]
)
def test_an_rdd_is_cut_into_partitions(whole: bool, expected: list[range]) -> None:
    rdd = object()
    planned = list(epochs(RddSource(rdd, 7, 3), whole=whole))
    assert [each.epoch for each in planned] == [RddEpoch(rdd, partitions) for partitions in expected]
    assert all(each.epoch.rdd is rdd for each in planned)
    assert [each.is_last for each in planned] == [False] * (len(expected) - 1) + [True]


def test_an_rdd_goes_on_after_an_offset() -> None:
    source = RddSource(object(), 7, 3)
    first = next(epochs(source))
    assert [each.epoch.partitions for each in epochs(source, first.end)] == [range(3, 6), range(6, 7)]


@pytest.mark.parametrize(("partitions", "reached"), [(7, 7), (0, 0)])
def test_an_rdd_without_more_partitions_is_over(partitions: int, reached: int) -> None:
    start = {"partition": reached, "partitions": partitions}
    assert RddSource(object(), partitions, 3).latest_offset(start, False) == Available(start, is_last=True)


@pytest.mark.parametrize("start", [{"partition": 3, "partitions": 8}, {"index": 3, "length": 7}, "3"])
def test_an_rdd_refuses_the_offset_of_other_input(start: Any) -> None:
    with pytest.raises(IncompatibleCheckpointError, match="does not fit this RDD"):
        RddSource(object(), 7, 3).latest_offset(start, True)


# --- files -------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five files of numbers, made in another order than that of their names."""
    for number in (3, 1, 5, 2, 4):
        (tmp_path / f"{number}.json").write_text(f"{number}\n{number}.5\n")
    return tmp_path


def numbers(planned: list[Planned]) -> list[list[float]]:
    return [records(each.epoch) for each in planned]


def test_files_are_read_in_the_order_of_their_names(folder: Path) -> None:
    planned = list(epochs(DirectorySource(str(folder), JsonFormat(), files_per_epoch=2)))
    assert numbers(planned) == [[1, 1.5, 2, 2.5], [3, 3.5, 4, 4.5], [5, 5.5]]
    assert [each.is_last for each in planned] == [False, False, True]
    assert [len(each.epoch.splits) for each in planned] == [2, 2, 1]


def test_without_barriers_all_files_are_one_epoch(folder: Path) -> None:
    (whole,) = epochs(DirectorySource(str(folder), JsonFormat()), whole=True)
    assert len(records(whole.epoch)) == 10
    assert whole.is_last


@pytest.mark.parametrize("form", ["{}", "{}/", "file://{}"])
def test_a_directory_may_be_a_path_or_a_uri(folder: Path, form: str) -> None:
    source = DirectorySource(form.format(folder), JsonFormat(), files_per_epoch=5)
    source.check()
    assert len(records(next(epochs(source)).epoch)) == 10


@pytest.mark.parametrize("form", ["{}", "file://{}"])
def test_names_with_blanks_and_signs_are_read(tmp_path: Path, form: str) -> None:
    for name in ("a b.json", "c%20d.json", "é#f?.json"):
        (tmp_path / name).write_text("1\n")
    (planned,) = epochs(DirectorySource(form.format(tmp_path), JsonFormat(), files_per_epoch=9))
    assert records(planned.epoch) == [1, 1, 1]


def test_hidden_files_and_folders_are_no_data(folder: Path) -> None:
    for name in (".4.json.crc", "_SUCCESS", "._1.json"):
        (folder / name).write_text("not JSON")
    (folder / "0.json").mkdir()
    assert len(list(epochs(DirectorySource(str(folder), JsonFormat())))) == 5


@pytest.mark.parametrize(("max_files", "count"), [(1, 1), (3, 3), (99, 5), (None, 5)])
def test_no_more_than_max_files_are_read(folder: Path, max_files: int | None, count: int) -> None:
    planned = list(epochs(DirectorySource(str(folder), JsonFormat(), max_files=max_files)))
    assert len(planned) == count
    assert planned[-1].is_last


def test_an_offset_goes_on_after_its_file(folder: Path) -> None:
    source = DirectorySource(str(folder), JsonFormat(), files_per_epoch=2)
    first = next(epochs(source))
    assert numbers(list(epochs(source, first.end))) == [[3, 3.5, 4, 4.5], [5, 5.5]]


def test_files_that_were_added_later_are_read_after_the_others(folder: Path) -> None:
    source = DirectorySource(str(folder), JsonFormat())
    end = list(epochs(source))[-1].end
    assert source.latest_offset(end, False) == Available(end, is_last=True)
    (folder / "6.json").write_text("6\n")
    assert numbers(list(epochs(source, end))) == [[6]]


def test_a_file_is_added_in_the_middle_of_the_run(folder: Path) -> None:
    source = DirectorySource(str(folder), JsonFormat())
    first = next(epochs(source))
    (folder / "1a.json").write_text('"added"\n')
    assert numbers(list(epochs(source, first.end)))[0] == ["added"]


def test_a_file_that_goes_after_it_was_read_is_no_matter(folder: Path) -> None:
    source = DirectorySource(str(folder), JsonFormat())
    end = next(epochs(source)).end
    (folder / "1.json").unlink()
    assert numbers(list(epochs(source, end)))[0] == [2, 2.5]


@pytest.mark.parametrize(
    "start", [{"last": "1.json", "format": "csv"}, {"index": 1, "length": 5}, "1.json"], ids=repr
)
def test_a_directory_refuses_the_offset_of_other_input(folder: Path, start: Any) -> None:
    with pytest.raises(IncompatibleCheckpointError, match="does not fit this directory"):
        DirectorySource(str(folder), JsonFormat()).latest_offset(start, False)


def test_an_offset_of_an_older_version_is_taken(folder: Path) -> None:
    """It did not tell how many files there were."""
    start = {"last": "3.json", "format": "json"}
    planned = list(epochs(DirectorySource(str(folder), JsonFormat()), start))
    assert numbers(planned) == [[4, 4.5], [5, 5.5]]


def test_an_offset_that_has_been_cut_off_is_refused(folder: Path) -> None:
    source = DirectorySource(str(folder), JsonFormat())
    end = next(epochs(source)).end
    for seen in (end["seen"][:-4], end["seen"][:-1], "%", 7):
        with pytest.raises(
            IncompatibleCheckpointError,
            match=r"the list of files in the source position .*restore another checkpoint",
        ):
            source.latest_offset({**end, "seen": seen}, False)


def test_fewer_files_than_were_read_are_refused(folder: Path) -> None:
    end = next(epochs(DirectorySource(str(folder), JsonFormat(), files_per_epoch=3))).end
    with pytest.raises(IncompatibleCheckpointError, match=r"3\.json.* max_files is 2: set it to 3 or more"):
        DirectorySource(str(folder), JsonFormat(), max_files=2).latest_offset(end, False)


def test_a_directory_that_vanishes_is_a_source_error(folder: Path) -> None:
    source = DirectorySource(str(folder / "later"), JsonFormat())
    with pytest.raises(SourceError, match="cannot list"):
        source.latest_offset(source.initial_offset(), False)


def test_a_directory_with_nothing_to_read_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").write_text("")
    with pytest.raises(
        ConfigurationError, match=r"holds no files to read .* put them there first, or set growing"
    ):
        DirectorySource(str(tmp_path), CsvFormat()).check()


@pytest.mark.parametrize("name", [b"caf\xe9.json", b".caf\xe9"])
def test_a_name_that_is_not_utf_8_is_told(tmp_path: Path, name: bytes) -> None:
    source = DirectorySource(str(tmp_path), JsonFormat(), growing=True)
    start = source.initial_offset()
    (tmp_path / os.fsdecode(name)).touch()
    with pytest.raises(SourceError, match=r"not UTF-8.*rename it") as caught:
        source.latest_offset(start, False)
    assert str(tmp_path) in str(caught.value)
    assert repr(name) in str(caught.value)
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        source.check()


@pytest.mark.parametrize("directory", ["{}/missing", "{}/file", "file:{}/missing"])
def test_what_is_no_directory_is_refused_at_once(tmp_path: Path, directory: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match="cannot list"):
        DirectorySource(directory.format(tmp_path), CsvFormat()).check()


# --- what every source may leave as it is ------------------------------------------------------------


class Endless(Source):
    """As little as a user's own source needs."""

    def initial_offset(self) -> Any:
        return 0

    def latest_offset(self, start: Any, whole: bool) -> Available:
        return Available(start + 1)

    def plan(self, start: Any, end: Any) -> Epoch:
        return SplitEpoch([range(start, end)], lambda split, reject: split)


def test_a_source_of_ones_own_needs_three_methods() -> None:
    source = Endless()
    source.open(raising(AssertionError("nothing is new")))
    source.commit(3)
    source.close(None)
    assert not source.commits_every_epoch
    assert not source.latest_offset(0, True).is_last
    with pytest.raises(TypeError, match="abstract"):
        Source()  # type: ignore[abstract]


def is_fresh(source: Source) -> bool:
    start = source.initial_offset()
    planned = source.plan(start, source.latest_offset(start, True).end)
    assert isinstance(planned, (SplitEpoch, RddEpoch))
    return planned.is_fresh


def test_which_sources_make_each_record_anew(tmp_path: Path) -> None:
    """Of a collection, an RDD, and a format or a source of the user's nothing is known."""
    (tmp_path / "a.json").write_text("[1]\n")
    assert is_fresh(DirectorySource(str(tmp_path), JsonFormat()))
    assert is_fresh(RateSource(1, lambda: 0))
    assert is_fresh(NumberSequenceSource(1, 2))
    assert is_fresh(CollectionSource([[1]], is_fresh=True))

    class OwnFormat(JsonFormat):
        """It might refill one record."""

    assert not is_fresh(DirectorySource(str(tmp_path), OwnFormat()))
    assert not is_fresh(CollectionSource([[1]]))
    assert not is_fresh(RddSource(object(), 1, 1))


# --- what a job is restored from ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "other"),
    [
        (CollectionSource([1, 2, 3]), CollectionSource([1, 2])),
        (RddSource(object(), 7, 3), RddSource(object(), 6, 3)),
        (RateSource(10, lambda: 0), RateSource(11, lambda: 0)),
        (NumberSequenceSource(1, 9), NumberSequenceSource(1, 8)),
        (SourceSet({"a": CollectionSource([1])}), SourceSet({"b": CollectionSource([1])})),
        (SourceSet({"a": CollectionSource([1])}), SourceSet({"a": CollectionSource([1, 2])})),
        (
            GuardedSource(CachedSource(lambda: CachedRecords(RddSource(object(), 2, 1), print)), "cached"),
            RddSource(object(), 1, 1),
        ),
        (
            SeededSource(("rows", InitialRows(lambda: SplitEpoch([], print))), ("a", CollectionSource([1]))),
            CollectionSource([1, 2]),
        ),
    ],
    ids=lambda source: type(source).__name__,
)
def test_a_source_says_whether_a_job_can_be_restored_with_it(source: Source, other: Source) -> None:
    inner = getattr(source, "_inner", source)
    if isinstance(inner, CachedSource):
        inner.fill()
    source.check_restored(as_kept(source.initial_offset()))
    with pytest.raises(IncompatibleCheckpointError, match="does not fit"):
        source.check_restored(as_kept(other.initial_offset()))


def test_so_does_a_directory(folder: Path) -> None:
    source = DirectorySource(str(folder), JsonFormat(), max_files=1)
    first = as_kept(next(epochs(source)).end)
    source.check_restored(first)
    second = as_kept(next(epochs(DirectorySource(str(folder), JsonFormat()), first)).end)
    with pytest.raises(IncompatibleCheckpointError, match="max_files is 1"):
        source.check_restored(second)
    with pytest.raises(IncompatibleCheckpointError, match="and had 1 when that was read"):
        source.check_restored({"last": second["files"][-1][0], "format": "json", "count": 1})
    with pytest.raises(IncompatibleCheckpointError, match="does not fit this directory"):
        source.check_restored({**first, "format": "csv"})
