"""Sources under PyFlink's names: files of lines, sequences of numbers."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import attrs
import pytest
from support_runtime import ManualClock

from pyflinkstate import Duration, Source, SplitEpoch, Types
from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError, SourceError
from pyflinkstate.runtime.sources.connectors import (
    FileSource,
    NumberSequenceSource,
    StreamFormat,
    type_of_source,
)


def read(source: Source, whole: bool = True) -> list[list[Any]]:
    """Return the records of each epoch."""
    epochs, position = [], source.initial_offset()
    while True:
        available = source.latest_offset(position, whole)
        if available.end != position:
            epoch = source.plan(position, available.end)
            assert isinstance(epoch, SplitEpoch)
            epochs.append([record for split in epoch.splits for record in epoch.read(split, print)])
        if available.is_last or available.end == position:
            return epochs
        position = available.end


def lines_of(*paths: Path) -> Any:
    return FileSource.for_record_stream_format(StreamFormat.text_line_format(), *map(str, paths))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "b.txt").write_text("three\n\nfour")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.txt").write_text("one\r\ntwo\n")
    (tmp_path / "_hidden").mkdir()
    (tmp_path / "_hidden" / "y.txt").write_text("never")
    (tmp_path / ".z").write_text("never")
    return tmp_path


def test_all_files_below_a_folder_are_read_in_the_order_of_their_paths(folder: Path) -> None:
    assert read(lines_of(folder).build()) == [["one", "two", "three", "", "four"]]


def test_with_checkpoints_each_file_is_an_epoch(folder: Path) -> None:
    assert read(lines_of(folder).build(), whole=False) == [["one", "two"], ["three", "", "four"]]


def test_one_file_is_read(folder: Path) -> None:
    assert read(lines_of(folder / "b.txt").build()) == [["three", "", "four"]]


def test_a_path_that_is_named_twice_is_read_once(folder: Path) -> None:
    assert read(lines_of(folder / "b.txt", folder / "b.txt").build()) == [["three", "", "four"]]


def test_a_compressed_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"one\ntwo\n"))
    assert read(lines_of(tmp_path).build()) == [["one", "two"]]


def test_another_charset_and_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes("é\n".encode("latin-1"))
    path = str(tmp_path)
    latin = FileSource.for_record_stream_format(StreamFormat.text_line_format("latin-1"), path).build()
    assert read(latin) == [["é"]]
    assert read(lines_of(tmp_path).build()) == [["\ufffd"]]


def test_a_path_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="there is no"):
        read(lines_of(tmp_path / "nothing").build())


@pytest.mark.parametrize("name", [b"caf\xe9", b"a/caf\xe9"])
def test_a_name_that_is_not_utf_8_is_told(folder: Path, name: bytes) -> None:
    (folder / os.fsdecode(name)).touch()
    with pytest.raises(SourceError, match=r"not UTF-8.*rename it") as caught:
        read(lines_of(folder).build())
    assert f"cannot list {folder}:" in str(caught.value)
    assert repr(name)[2:] in str(caught.value)


def test_a_source_is_bounded_unless_it_watches_its_folders(folder: Path) -> None:
    assert lines_of(folder).process_static_file_set().build().is_bounded
    assert not lines_of(folder).monitor_continuously(Duration.of_seconds(1)).build().is_bounded


def test_a_source_that_watches_its_folders_looks_as_often_as_it_was_told(folder: Path) -> None:
    """The job asks it more often than that, to see what else is due."""
    clock = ManualClock()
    built = lines_of(folder).monitor_continuously(Duration.of_minutes(2)).build()
    source = attrs.evolve(built, now_ms=clock.monotonic_ms)
    assert source.poll_s == 1
    start = source.latest_offset(source.initial_offset(), whole=True).end
    while (found := source.latest_offset(start, whole=True)).end != start:
        start = found.end
    (folder / "later").write_text("later\n")
    clock.sleep_ms(119_999)
    assert source.latest_offset(start, whole=True).end == start
    clock.sleep_ms(1)
    assert source.latest_offset(start, whole=True).end != start


def test_after_a_restart_the_files_since_the_checkpoint_are_found_at_once(folder: Path) -> None:
    built = lines_of(folder).monitor_continuously(Duration.of_minutes(2)).build()
    source = attrs.evolve(built, now_ms=ManualClock().monotonic_ms)
    end = checkpointed = source.latest_offset(source.initial_offset(), whole=True).end
    while (found := source.latest_offset(end, whole=True)).end != end:
        end = found.end
    assert source.latest_offset(end, whole=True).end == end
    assert source.latest_offset(checkpointed, whole=True).end != checkpointed


def test_a_short_interval_is_how_often_it_is_asked(folder: Path) -> None:
    builder = lines_of(folder).monitor_continuously(Duration.of_millis(50))
    assert builder.build().poll_s == 0.05
    assert builder.process_static_file_set().build().poll_s == lines_of(folder).build().poll_s == 1


@pytest.mark.parametrize("interval", [10, "10 s", None, Duration.of_millis(0), Duration.of_millis(-1)])
def test_how_often_it_looks_is_a_length_of_time(folder: Path, interval: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"monitor_continuously\(\)"):
        lines_of(folder).monitor_continuously(interval)


@pytest.mark.parametrize("charset", ["nothing", "base64", 7])
def test_a_charset_that_is_none_is_refused(charset: Any) -> None:
    with pytest.raises(ConfigurationError, match="charset"):
        StreamFormat.text_line_format(charset)


def test_a_source_of_files_has_a_format_and_a_path() -> None:
    with pytest.raises(ConfigurationError, match="at least one path"):
        lines_of()
    with pytest.raises(ConfigurationError, match="text_line_format"):
        FileSource.for_record_stream_format("csv", "path")  # type: ignore[arg-type]


def test_numbers_come_in_order_both_ends_included() -> None:
    assert read(NumberSequenceSource(3, 6)) == [[3, 4, 5, 6]]
    assert read(NumberSequenceSource(1, 5, records_per_epoch=2), whole=False) == [[1, 2], [3, 4], [5]]


@pytest.mark.parametrize("ends", [(2, 1), (1.0, 2), ("a", "b")])
def test_a_sequence_that_is_none_is_refused(ends: Any) -> None:
    with pytest.raises(ConfigurationError, match="NumberSequenceSource"):
        NumberSequenceSource(*ends)


@pytest.mark.parametrize("number", [0, -1, 1.5, "3"])
def test_an_epoch_has_at_least_one_number(number: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"records_per_epoch must be a whole number, at least 1"):
        NumberSequenceSource(1, 10, records_per_epoch=number)


def test_a_position_in_other_numbers_is_refused() -> None:
    with pytest.raises(IncompatibleCheckpointError):
        NumberSequenceSource(1, 9).latest_offset(NumberSequenceSource(1, 8).initial_offset(), True)


def test_sources_know_the_type_of_their_records(folder: Path) -> None:
    assert type_of_source(lines_of(folder).build(), None) == Types.STRING()
    assert type_of_source(NumberSequenceSource(1, 2), None) == Types.LONG()
    assert type_of_source(NumberSequenceSource(1, 2), Types.INT()) == Types.INT()
