"""Sources without end: the rate, and directories that grow."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given, strategies as st
from support_job import JobRun, once
from support_runtime import ManualClock
from test_sources import as_kept, epochs, numbers, records

from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError, SlotLostError, SourceError
from pyflinkstate.runtime.plan.nodes import SourceNode
from pyflinkstate.runtime.settings.restart import FixedDelayRestart
from pyflinkstate.runtime.sinks.sinks import DriverSink
from pyflinkstate.runtime.sources import seen_files
from pyflinkstate.runtime.sources.formats import CsvFormat, JsonFormat
from pyflinkstate.runtime.sources.sources import Available, DirectorySource, RateSource, SplitEpoch
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders

BEGAN_MS = 1_700_000_000_000


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(BEGAN_MS)


class TestRate:
    """Numbers that are due by the clock."""

    def advance(self, clock: ManualClock, source: RateSource, start: Any, by_ms: int) -> Any:
        """Let time pass; return what lies between ``start`` and what is due then, and its end."""
        clock.time_ms += by_ms
        found = source.latest_offset(as_kept(start), False)
        return records(source.plan(as_kept(start), as_kept(found.end))), found.end

    def test_nothing_is_due_at_once(self, clock: ManualClock) -> None:
        source = RateSource(10, clock.now_ms)
        start = source.initial_offset()
        assert source.latest_offset(start, False) == Available(start)

    @pytest.mark.parametrize(
        ("rate", "passed_ms", "due"),
        [(10, 99, 0), (10, 100, 1), (10, 1_000, 10), (1, 999, 0), (1, 1_000, 1), (3, 1_000, 3), (3, 334, 1)],
    )
    def test_what_is_due_is_told_by_the_clock(
        self, clock: ManualClock, rate: int, passed_ms: int, due: int
    ) -> None:
        source = RateSource(rate, clock.now_ms)
        found, _ = self.advance(clock, source, source.initial_offset(), passed_ms)
        assert [record["value"] for record in found] == list(range(due))

    def test_numbers_go_on_where_the_epoch_before_ended(self, clock: ManualClock) -> None:
        source, seen = RateSource(1_000, clock.now_ms, partitions=3), []
        start = source.initial_offset()
        for passed_ms in (5, 0, 1, 20, 7):
            found, start = self.advance(clock, source, start, passed_ms)
            seen += [record["value"] for record in found]
        assert seen == list(range(33))

    def test_records_tell_when_they_were_due(self, clock: ManualClock) -> None:
        source = RateSource(4, clock.now_ms, partitions=2)
        found, end = self.advance(clock, source, source.initial_offset(), 1_000)
        assert found == [
            {"timestamp_ms": BEGAN_MS + passed, "value": value}
            for value, passed in enumerate([0, 250, 500, 750])
        ]
        later, _ = self.advance(clock, source, end, 250)
        assert later == [{"timestamp_ms": BEGAN_MS + 1_000, "value": 4}]

    def test_no_record_is_ahead_of_the_clock(self, clock: ManualClock) -> None:
        source = RateSource(7, clock.now_ms)
        start = source.initial_offset()
        for _ in range(50):
            found, start = self.advance(clock, source, start, 83)
            assert all(record["timestamp_ms"] <= clock.time_ms for record in found)

    def test_it_never_ends(self, clock: ManualClock) -> None:
        source = RateSource(10, clock.now_ms)
        start = source.initial_offset()
        clock.time_ms += 10_000_000
        assert not source.latest_offset(start, False).is_last
        assert not source.latest_offset(start, True).is_last

    @given(length=st.integers(0, 60), partitions=st.integers(1, 9), first=st.integers(0, 1_000))
    def test_partitions_are_even_and_in_order(self, length: int, partitions: int, first: int) -> None:
        source = RateSource(50, ManualClock().now_ms, partitions)
        start = {**source.initial_offset(), "index": first}
        planned = source.plan(start, {**start, "index": first + length})
        assert isinstance(planned, SplitEpoch)
        sizes = [len(list(planned.read(split, lambda rejected: None))) for split in planned.splits]
        assert len(sizes) == partitions
        assert max(sizes) - min(sizes) <= 1
        assert [record["value"] for record in records(planned)] == list(range(first, first + length))

    def test_after_a_long_stop_it_catches_up_by_the_epoch(self, clock: ManualClock) -> None:
        source = RateSource(10, clock.now_ms, max_records_per_epoch=40)
        start = source.initial_offset()
        clock.time_ms += 10_000
        planned = list(epochs(source, start))
        assert [len(records(each.epoch)) for each in planned] == [40, 40, 20]
        assert [record["value"] for each in planned for record in records(each.epoch)] == list(range(100))

    def test_a_clock_that_is_set_back_takes_nothing_back(self, clock: ManualClock) -> None:
        source = RateSource(10, clock.now_ms)
        _, end = self.advance(clock, source, source.initial_offset(), 1_000)
        for time_ms in (BEGAN_MS + 500, BEGAN_MS - 10_000):
            clock.time_ms = time_ms
            assert source.latest_offset(end, False) == Available(end)

    def test_the_same_offsets_give_the_same_records_whenever_and_wherever(self, clock: ManualClock) -> None:
        source = RateSource(100, clock.now_ms, partitions=2)
        _, start = self.advance(clock, source, source.initial_offset(), 130)
        once_read, end = self.advance(clock, source, start, 270)
        restored = RateSource(100, ManualClock(BEGAN_MS + 99_999).now_ms, partitions=5)
        assert records(restored.plan(as_kept(start), as_kept(end))) == once_read
        assert len(once_read) == 27

    @pytest.mark.parametrize("start", [{"start_ms": 0, "index": 3, "rate": 11}, {"index": 1, "length": 5}, 7])
    def test_the_offset_of_other_input_is_refused(self, clock: ManualClock, start: Any) -> None:
        with pytest.raises(IncompatibleCheckpointError, match="does not fit this rate source"):
            RateSource(10, clock.now_ms).latest_offset(start, False)

    def test_an_epoch_that_is_run_again_before_any_checkpoint_is_the_same(
        self, storage: CheckpointFolders
    ) -> None:
        """A restart may wait for long; what the failed run has read is not read otherwise then."""
        clock = ManualClock(BEGAN_MS, step_ms=200)
        source = SourceNode(RateSource(100, clock.now_ms), "rate")
        seen: list[Any] = []
        run = JobRun(source, DriverSink(lambda _, values: seen.extend(values)), storage, clock=clock)
        run.restart = FixedDelayRestart(1, 60_000)
        run.runner.before = once(SlotLostError("gone"), epoch=1)
        job = run.job().run()
        list(islice(job, 2))
        job.close()
        first, again = (request.epoch for request in run.runner.requests[:2])
        assert run.heard.restarts
        assert records(again) == records(first)
        timestamps = [record["timestamp_ms"] for record in seen]
        assert timestamps == sorted(timestamps)
        assert [record["value"] for record in seen] == list(range(len(seen)))


class TestGrowingDirectory:
    """Files that appear later, in the order of their names."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for number in (1, 2, 3):
            self.add(tmp_path, number)
        return tmp_path

    def add(self, folder: Path, number: float) -> None:
        """Add a whole file at once, as the documentation asks for."""
        (folder / "_writing").write_text(f"{number}\n")
        (folder / "_writing").rename(folder / f"{number}.json")

    def source(self, folder: Path, **settings: Any) -> DirectorySource:
        return DirectorySource(str(folder), JsonFormat(), growing=True, **settings)

    def test_it_goes_on_with_files_that_appear(self, folder: Path) -> None:
        source = self.source(folder)
        planned = list(epochs(source))
        assert numbers(planned) == [[1], [2], [3]]
        end = planned[-1].end
        assert source.latest_offset(end, False) == Available(end)
        for number in (4, 5):
            self.add(folder, number)
        assert numbers(list(epochs(source, end))) == [[4], [5]]

    def test_it_never_ends(self, folder: Path) -> None:
        source = self.source(folder, files_per_epoch=3)
        assert [each.is_last for each in epochs(source)] == [False]

    def test_it_may_be_empty_at_first(self, tmp_path: Path) -> None:
        source = self.source(tmp_path)
        source.check()
        start = source.initial_offset()
        assert source.latest_offset(start, False) == Available(start)
        self.add(tmp_path, 7)
        assert numbers(list(epochs(source, start))) == [[7]]

    def test_it_must_be_there_though(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigurationError, match="cannot list"):
            self.source(tmp_path / "missing").check()

    def test_without_barriers_epochs_have_their_size_still(self, folder: Path) -> None:
        """One epoch of all files would never be the last."""
        planned = list(epochs(self.source(folder, files_per_epoch=2), whole=True))
        assert numbers(planned) == [[1, 2], [3]]

    def test_a_file_that_is_still_written_is_not_read(self, folder: Path) -> None:
        source = self.source(folder)
        end = list(epochs(source))[-1].end
        for name in ("_4.json", ".4.json.tmp"):
            (folder / name).write_text("4")
        assert source.latest_offset(end, False) == Available(end)

    def test_a_restored_job_goes_on_after_its_offset(self, folder: Path) -> None:
        second = list(epochs(self.source(folder)))[1]
        self.add(folder, 4)
        assert numbers(list(epochs(self.source(folder), as_kept(second.end)))) == [[3], [4]]

    def test_the_same_offsets_give_the_same_records_again(self, folder: Path) -> None:
        planned = list(epochs(self.source(folder, files_per_epoch=2)))
        for number in (4, 5):
            self.add(folder, number)
        again = self.source(folder)
        assert [records(again.plan(as_kept(each.start), as_kept(each.end))) for each in planned] == [
            [1, 2],
            [3],
        ]

    def test_a_directory_may_become_a_growing_one(self, folder: Path) -> None:
        bounded = DirectorySource(str(folder), JsonFormat())
        end = list(epochs(bounded))[-1].end
        self.add(folder, 4)
        assert numbers(list(epochs(self.source(folder), end))) == [[4]]

    def test_offsets_are_those_of_one_format(self, folder: Path) -> None:
        end = next(epochs(self.source(folder))).end
        with pytest.raises(IncompatibleCheckpointError, match="does not fit this directory"):
            DirectorySource(str(folder), CsvFormat(), growing=True).latest_offset(end, False)


class TestLateFiles:
    """A file whose name comes before one that was read is read when it comes, as in Flink."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for number in (2, 4, 6):
            (tmp_path / f"{number}.json").write_text(f"{number}\n")
        return tmp_path

    @pytest.mark.parametrize("growing", [True, False])
    @pytest.mark.parametrize("late", [1, 3, 5])
    def test_it_is_read(self, folder: Path, late: int, growing: bool) -> None:
        source = DirectorySource(str(folder), JsonFormat(), growing=growing)
        end = list(epochs(source))[-1].end
        (folder / f"{late}.json").write_text(f"{late}\n")
        assert numbers(list(epochs(source, end))) == [[late]]

    def test_a_restored_job_finds_it_too(self, folder: Path) -> None:
        end = list(epochs(DirectorySource(str(folder), JsonFormat(), growing=True)))[1].end
        (folder / "3.json").write_text("3\n")
        source = DirectorySource(str(folder), JsonFormat(), growing=True)
        assert numbers(list(epochs(source, as_kept(end)))) == [[3], [6]]

    def test_an_archived_file_does_not_hide_one_that_came_while_the_job_was_down(self, folder: Path) -> None:
        """As many files as before, and 35 records that nobody has read."""
        end = list(epochs(DirectorySource(str(folder), JsonFormat(), growing=True)))[-1].end
        (folder / "2.json").unlink()
        (folder / "1.json").write_text("".join(f"{n}\n" for n in range(35)))
        source = DirectorySource(str(folder), JsonFormat(), growing=True)
        assert numbers(list(epochs(source, as_kept(end)))) == [list(range(35))]

    def test_a_file_between_the_offset_and_the_others_is_not_late(self, folder: Path) -> None:
        source = DirectorySource(str(folder), JsonFormat(), growing=True)
        first = next(epochs(source))
        (folder / "3.json").write_text("3\n")
        assert numbers(list(epochs(source, first.end))) == [[3], [4], [6]]

    def test_a_file_that_is_late_for_an_epoch_does_not_change_it(self, folder: Path) -> None:
        """The epoch was planned and perhaps read; run again, it must not have one file more."""
        source = DirectorySource(str(folder), JsonFormat(), files_per_epoch=2, growing=True)
        first = next(epochs(source))
        (folder / "3.json").write_text("3\n")
        assert records(source.plan(as_kept(first.start), as_kept(first.end))) == [2, 4]
        assert numbers(list(epochs(source, first.end))) == [[3, 6]]

    def test_an_epoch_that_has_lost_a_file_is_not_run_without_it(self, folder: Path) -> None:
        source = DirectorySource(str(folder), JsonFormat(), files_per_epoch=3, growing=True)
        first = next(epochs(source))
        (folder / "4.json").unlink()
        with pytest.raises(SourceError, match=r"file '4\.json' of .* had 2 bytes .*, and is gone"):
            source.plan(first.start, first.end)

    def test_old_files_may_be_cleaned_up(self, folder: Path) -> None:
        source = DirectorySource(str(folder), JsonFormat(), growing=True)
        second = list(epochs(source))[1]
        (folder / "2.json").unlink()
        (folder / "4.json").unlink()
        assert numbers(list(epochs(source, second.end))) == [[6]]
        (folder / "7.json").write_text("7\n")
        third = next(epochs(source, second.end))
        assert numbers(list(epochs(source, third.end))) == [[7]]

    def test_max_files_counts_what_was_read(self, folder: Path) -> None:
        source = DirectorySource(str(folder), JsonFormat(), max_files=3, growing=True)
        second = list(epochs(source))[1]
        for number in (1, 3):
            (folder / f"{number}.json").write_text(f"{number}\n")
        assert numbers(list(epochs(source, as_kept(second.end)))) == [[1]]


class TestFilesThatChange:
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for number in (2, 4):
            (tmp_path / f"{number}.json").write_text(f"{number}\n")
        return tmp_path

    @pytest.mark.parametrize(("text", "size"), [("2\n3\n", 4), ("2", 1)])
    def test_after_it_was_read_it_is_told_once_and_not_read_again(
        self, folder: Path, text: str, size: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        end = list(epochs(DirectorySource(str(folder), JsonFormat(), growing=True)))[-1].end
        (folder / "2.json").write_text(text)
        source = DirectorySource(str(folder), JsonFormat(), growing=True)
        for _ in range(3):
            assert source.latest_offset(as_kept(end), False) == Available(as_kept(end))
        (message,) = caplog.messages
        assert f"file '2.json' of {folder} had 2 bytes when it was read, and has {size}" in message

    def test_before_its_epoch_is_committed_it_is_an_error(self, folder: Path) -> None:
        """Run again, the epoch would have other records."""
        source = DirectorySource(str(folder), JsonFormat(), growing=True)
        first = next(epochs(source))
        (folder / "2.json").write_text("2\n3\n")
        with pytest.raises(
            SourceError, match=r"file '2\.json' of .* had 2 bytes .*, and has 4: the files of an"
        ):
            source.plan(first.start, first.end)

    def test_one_that_comes_back_is_not_read_again(self, folder: Path) -> None:
        source = DirectorySource(str(folder), JsonFormat(), growing=True)
        end = list(epochs(source))[-1].end
        (folder / "2.json").rename(folder / "_2.json")
        self.add(folder, 6)
        later = list(epochs(source, as_kept(end)))
        (folder / "_2.json").rename(folder / "2.json")
        assert numbers(later) == [[6]]
        assert list(epochs(source, as_kept(later[-1].end))) == []

    def add(self, folder: Path, number: int) -> None:
        (folder / f"{number}.json").write_text(f"{number}\n")


class TestThePosition:
    def test_of_files_that_are_gone_only_the_newest_are_remembered(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(seen_files, "MAX_GONE", 3)
        source = DirectorySource(str(tmp_path), JsonFormat(), growing=True)
        end, sizes = source.initial_offset(), []
        for number in range(10):
            (tmp_path / f"{number}.json").write_text("0\n")
            (read,) = epochs(source, end)
            end = as_kept(read.end)
            sizes.append(len(end["seen"]))
            (tmp_path / f"{number}.json").unlink()
        assert end["count"] == 10
        assert sizes == [32, 64, 96, *[128] * 7], "the one that was read, and three that are gone"
        (tmp_path / "5.json").write_text("0\n")
        assert list(epochs(source, end)) != [], "a file that came back after so long is new"

    def test_of_files_that_are_there_all_are(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(seen_files, "MAX_GONE", 3)
        for number in range(20):
            (tmp_path / f"{number:02}.json").write_text("0\n")
        end = list(epochs(DirectorySource(str(tmp_path), JsonFormat(), growing=True)))[-1].end
        (tmp_path / "20.json").write_text("20\n")
        source = DirectorySource(str(tmp_path), JsonFormat(), growing=True)
        assert numbers(list(epochs(source, as_kept(end)))) == [[20]]


class TestPositionsOfEarlierVersions:
    """They have the last name, and how many files there were up to it."""

    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        for number in (2, 4, 6):
            (tmp_path / f"{number}.json").write_text(f"{number}\n")
        return tmp_path

    def source(self, folder: Path) -> DirectorySource:
        return DirectorySource(str(folder), JsonFormat(), growing=True)

    START: ClassVar = {"last": "4.json", "format": "json", "count": 2, "files": 1}

    def test_they_are_restored(self, folder: Path) -> None:
        planned = list(epochs(self.source(folder), self.START))
        assert numbers(planned) == [[6]]
        assert planned[0].end["count"] == 3
        (folder / "3.json").write_text("3\n")
        assert numbers(list(epochs(self.source(folder), as_kept(planned[0].end)))) == [[3]]

    def test_from_before_the_first_file(self, folder: Path) -> None:
        start = {"last": "", "format": "json", "count": 0, "files": 0}
        assert numbers(list(epochs(self.source(folder), start))) == [[2], [4], [6]]

    def test_files_may_have_been_cleaned_up_meanwhile(self, folder: Path) -> None:
        for number in (2, 4):
            (folder / f"{number}.json").unlink()
        assert numbers(list(epochs(self.source(folder), self.START))) == [[6]]

    def test_more_files_than_were_read_are_an_error_that_says_so(self, folder: Path) -> None:
        (folder / "3.json").write_text("3\n")
        with pytest.raises(IncompatibleCheckpointError, match=r"has 3 files up to '4\.json', and had 2"):
            self.source(folder).latest_offset(self.START, False)

    def test_what_comes_after_the_first_look_is_new(self, folder: Path) -> None:
        (folder / "6.json").unlink()
        source = self.source(folder)
        assert source.latest_offset(self.START, False) == Available(self.START)
        (folder / "3.json").write_text("3\n")
        assert numbers(list(epochs(source, self.START))) == [[3]]
