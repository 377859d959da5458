"""Sources of files: which are read, in which order, and what becomes of late, changed and lost ones."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import attrs
import pytest
from support_runtime import ManualClock
from test_sources import as_kept, epochs, numbers, records

from pyflinkstate import Duration, Types
from pyflinkstate.errors import ConfigurationError, IncompatibleCheckpointError, SourceError
from pyflinkstate.runtime.sources import Available, DirectorySource, FileSource, StreamFormat, sources
from pyflinkstate.runtime.sources.formats import JsonFormat


def source_of(folder: Path | str, growing: bool = True, **settings: Any) -> DirectorySource:
    return DirectorySource(str(folder), JsonFormat(), growing=growing, **settings)


def add(folder: Path, *names: float) -> None:
    """Add files of one number, each whole at once, as the documentation asks for."""
    for name in names:
        (folder / "_writing").write_text(f"{name}\n")
        (folder / "_writing").rename(folder / f"{name}.json")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files, made in another order than that of their names."""
    add(tmp_path, 6, 2, 4)
    return tmp_path


# --- which files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("growing", [False, True])
def test_files_are_read_in_the_order_of_their_names(folder: Path, whole: bool, growing: bool) -> None:
    """Without barriers a growing directory is still cut: an epoch of all files would never be the last."""
    planned = list(epochs(source_of(folder, growing, files_per_epoch=2), whole=whole))
    assert numbers(planned) == ([[2, 4, 6]] if whole and not growing else [[2, 4], [6]])
    assert [each.is_last for each in planned] == [False] * (len(planned) - 1) + [not growing]


@pytest.mark.parametrize("form", ["{}", "{}/", "file://{}"])
def test_a_directory_may_be_a_path_or_a_uri(folder: Path, form: str) -> None:
    for name in ("a b.json", "c%20d.json", "é#f?.json"):
        (folder / name).write_text("7\n")
    source = source_of(form.format(folder), files_per_epoch=9)
    source.check()
    assert numbers(list(epochs(source))) == [[2, 4, 6, 7, 7, 7]]


def test_hidden_files_and_folders_are_no_data(folder: Path) -> None:
    for name in (".4.json.crc", "_SUCCESS", "._1.json", ".4.json.tmp"):
        (folder / name).write_text("not JSON")
    (folder / "0.json").mkdir()
    assert numbers(list(epochs(source_of(folder)))) == [[2], [4], [6]]


@pytest.mark.parametrize(("max_files", "count"), [(1, 1), (2, 2), (99, 3), (None, 3)])
def test_no_more_than_max_files_are_read(folder: Path, max_files: int | None, count: int) -> None:
    planned = list(epochs(source_of(folder, growing=False, max_files=max_files)))
    assert len(planned) == count
    assert planned[-1].is_last


def test_max_files_counts_what_was_read(folder: Path) -> None:
    source = source_of(folder, max_files=3)
    second = list(epochs(source))[1]
    add(folder, 1, 3)
    assert numbers(list(epochs(source, as_kept(second.end)))) == [[1]]


def test_a_growing_directory_may_be_empty_at_first(tmp_path: Path) -> None:
    source = source_of(tmp_path)
    source.check()
    start = source.initial_offset()
    assert source.latest_offset(start, False) == Available(start)
    add(tmp_path, 7)
    assert numbers(list(epochs(source, start))) == [[7]]


def test_a_directory_with_nothing_to_read_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "_SUCCESS").write_text("")
    with pytest.raises(
        ConfigurationError, match=r"holds no files to read .* put them there first, or set growing"
    ):
        source_of(tmp_path, growing=False).check()


@pytest.mark.parametrize("directory", ["{}/missing", "{}/file", "file:{}/missing"])
@pytest.mark.parametrize("growing", [False, True])
def test_what_is_no_directory_is_refused_at_once(tmp_path: Path, directory: str, growing: bool) -> None:
    (tmp_path / "file").write_text("")
    source = source_of(directory.format(tmp_path), growing)
    with pytest.raises(ConfigurationError, match="cannot list"):
        source.check()
    with pytest.raises(SourceError, match="cannot list"):
        source.latest_offset(source.initial_offset(), False)


@pytest.mark.parametrize("name", [b"caf\xe9.json", b".caf\xe9"])
def test_a_name_that_is_not_utf_8_is_told(tmp_path: Path, name: bytes) -> None:
    source = source_of(tmp_path)
    (tmp_path / os.fsdecode(name)).touch()
    with pytest.raises(SourceError, match=r"not UTF-8.*rename it") as caught:
        source.latest_offset(source.initial_offset(), False)
    assert str(tmp_path) in str(caught.value)
    assert repr(name) in str(caught.value)
    with pytest.raises(ConfigurationError, match="not UTF-8"):
        source.check()


# --- files that come, go and change ----------------------------------------------------------------------


@pytest.mark.parametrize("growing", [True, False])
@pytest.mark.parametrize("late", [1, 3, 5, 7])
def test_a_file_that_comes_later_is_read_whatever_its_name(folder: Path, late: int, growing: bool) -> None:
    """As in Flink; also by a job that is restored, and by one that lets its directory grow from now on."""
    source = source_of(folder, growing)
    end = list(epochs(source))[-1].end
    assert source.latest_offset(end, False) == Available(end, is_last=not growing)
    add(folder, late)
    for reader in (source, source_of(folder, growing), source_of(folder)):
        assert numbers(list(epochs(reader, as_kept(end)))) == [[late]]


def test_a_file_that_comes_in_the_middle_of_the_run_is_read_in_its_order(folder: Path) -> None:
    source = source_of(folder)
    first = next(epochs(source))
    add(folder, 3)
    assert numbers(list(epochs(source, first.end))) == [[3], [4], [6]]


def test_a_file_that_is_late_for_an_epoch_does_not_change_it(folder: Path) -> None:
    """The epoch was planned and perhaps read; run again, it must not have one file more."""
    first = next(epochs(source_of(folder, files_per_epoch=2)))
    add(folder, 3)
    again = source_of(folder, files_per_epoch=2)
    assert records(again.plan(as_kept(first.start), as_kept(first.end))) == [2, 4]
    assert numbers(list(epochs(again, first.end))) == [[3, 6]]


@pytest.mark.parametrize(("text", "now"), [(None, "is gone"), ("4\n5\n", "has 4")])
def test_an_epoch_whose_files_are_not_the_same_is_not_run(folder: Path, text: str | None, now: str) -> None:
    """Run again, it would have other records."""
    source = source_of(folder, files_per_epoch=3)
    first = next(epochs(source))
    (folder / "4.json").unlink()
    if text is not None:
        (folder / "4.json").write_text(text)
    with pytest.raises(
        SourceError, match=rf"file '4\.json' of .* had 2 bytes .*, and {now}: the files of an"
    ):
        source.plan(first.start, first.end)


def test_old_files_may_be_cleaned_up(folder: Path) -> None:
    source = source_of(folder)
    second = list(epochs(source))[1]
    (folder / "2.json").unlink()
    (folder / "4.json").unlink()
    third = next(epochs(source, second.end))
    assert numbers([third]) == [[6]]
    (folder / "6.json").unlink()
    add(folder, 1)
    assert numbers(list(epochs(source_of(folder), as_kept(third.end)))) == [[1]], "as many files as before"


@pytest.mark.parametrize(("text", "size"), [("2\n3\n", 4), ("2", 1)])
def test_a_file_that_changes_after_it_was_read_is_told_once_and_not_read_again(
    folder: Path, text: str, size: int, caplog: pytest.LogCaptureFixture
) -> None:
    end = as_kept(list(epochs(source_of(folder)))[-1].end)
    (folder / "2.json").write_text(text)
    source = source_of(folder)
    for _ in range(3):
        assert source.latest_offset(end, False) == Available(end)
    (message,) = caplog.messages
    assert f"file '2.json' of {folder} had 2 bytes when it was read, and has {size}" in message


def test_a_file_that_comes_back_is_not_read_again(folder: Path) -> None:
    source = source_of(folder)
    end = list(epochs(source))[-1].end
    (folder / "2.json").rename(folder / "_2.json")
    add(folder, 8)
    later = list(epochs(source, as_kept(end)))
    (folder / "_2.json").rename(folder / "2.json")
    assert numbers(later) == [[8]]
    assert list(epochs(source, as_kept(later[-1].end))) == []


# --- positions -------------------------------------------------------------------------------------------


def test_of_files_that_are_gone_only_the_newest_are_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sources, "MAX_GONE", 3)
    source = source_of(tmp_path)
    end, sizes = source.initial_offset(), []
    for number in range(10):
        add(tmp_path, number)
        (read,) = epochs(source, end)
        end = as_kept(read.end)
        sizes.append(len(end["seen"]))
        (tmp_path / f"{number}.json").unlink()
    assert end["count"] == 10
    assert sizes == [32, 64, 96, *[128] * 7], "the one that was read, and three that are gone"
    add(tmp_path, 5)
    assert list(epochs(source, end)) != [], "a file that came back after so long is new"


def test_of_files_that_are_there_all_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "MAX_GONE", 3)
    add(tmp_path, *range(20))
    end = list(epochs(source_of(tmp_path)))[-1].end
    add(tmp_path, 20)
    assert numbers(list(epochs(source_of(tmp_path), as_kept(end)))) == [[20]]


@pytest.mark.parametrize(
    "start", [{"count": 1, "format": "csv"}, {"index": 1, "length": 5}, "1.json"], ids=repr
)
def test_the_position_in_another_input_is_refused(folder: Path, start: Any) -> None:
    source = source_of(folder)
    for refuses in (source.check_restored, lambda start: source.latest_offset(start, False)):
        with pytest.raises(IncompatibleCheckpointError, match="does not fit this directory"):
            refuses(start)


def test_a_position_that_has_been_cut_off_is_refused(folder: Path) -> None:
    source = source_of(folder)
    end = next(epochs(source)).end
    for seen in (end["seen"][:-4], end["seen"][:-1], "%", 7):
        with pytest.raises(
            IncompatibleCheckpointError,
            match=r"the list of files in the source position .*restore another checkpoint",
        ):
            source.latest_offset({**end, "seen": seen}, False)


def test_fewer_files_than_were_read_are_refused(folder: Path) -> None:
    first, second, *_ = epochs(source_of(folder))
    source = source_of(folder, max_files=1)
    source.check_restored(as_kept(first.end))
    for refuses in (source.check_restored, lambda start: source.latest_offset(start, False)):
        with pytest.raises(
            IncompatibleCheckpointError, match=r"4\.json.* max_files is 1: set it to 2 or more"
        ):
            refuses(as_kept(second.end))


# --- PyFlink's source of files ---------------------------------------------------------------------------


def lines_of(*paths: Path) -> Any:
    return FileSource.for_record_stream_format(StreamFormat.text_line_format(), *map(str, paths))


def read(source: FileSource, whole: bool = True) -> list[list[Any]]:
    """Return the records of each epoch."""
    return [records(each.epoch) for each in epochs(source, whole=whole)]


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Files of lines in several folders."""
    (tmp_path / "b.txt").write_text("three\n\nfour")
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x.txt").write_text("one\r\ntwo\n")
    (tmp_path / "_hidden").mkdir()
    (tmp_path / "_hidden" / "y.txt").write_text("never")
    (tmp_path / ".z").write_text("never")
    return tmp_path


def test_all_files_below_a_folder_are_read_in_the_order_of_their_paths(tree: Path) -> None:
    assert read(lines_of(tree).build()) == [["one", "two", "three", "", "four"]]
    assert read(lines_of(tree).build(), whole=False) == [["one", "two"], ["three", "", "four"]]


def test_a_path_that_is_named_twice_is_read_once(tree: Path) -> None:
    assert read(lines_of(tree / "b.txt", tree / "b.txt").build()) == [["three", "", "four"]]


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
def test_a_name_below_a_folder_that_is_not_utf_8_is_told(tree: Path, name: bytes) -> None:
    (tree / os.fsdecode(name)).touch()
    with pytest.raises(SourceError, match=r"not UTF-8.*rename it") as caught:
        read(lines_of(tree).build())
    assert f"cannot list {tree}:" in str(caught.value)
    assert repr(name)[2:] in str(caught.value)


def test_a_source_is_bounded_unless_it_watches_its_folders(tree: Path) -> None:
    assert lines_of(tree).process_static_file_set().build().is_bounded
    assert not lines_of(tree).monitor_continuously(Duration.of_seconds(1)).build().is_bounded


def test_a_source_that_watches_its_folders_looks_as_often_as_it_was_told(tree: Path) -> None:
    """The job asks it more often than that, to see what else is due. After a restart it looks at once."""
    clock = ManualClock()
    built = lines_of(tree).monitor_continuously(Duration.of_minutes(2)).build()
    source = attrs.evolve(built, now_ms=clock.monotonic_ms)
    assert source.poll_s == 1
    checkpointed, end = (each.end for each in epochs(source, whole=True))
    (tree / "later").write_text("later\n")
    clock.sleep_ms(119_999)
    assert source.latest_offset(end, whole=True).end == end
    assert source.latest_offset(checkpointed, whole=True).end != checkpointed
    clock.sleep_ms(1)
    assert source.latest_offset(end, whole=True).end != end


def test_a_short_interval_is_how_often_it_is_asked(tree: Path) -> None:
    builder = lines_of(tree).monitor_continuously(Duration.of_millis(50))
    assert builder.build().poll_s == 0.05
    assert builder.process_static_file_set().build().poll_s == lines_of(tree).build().poll_s == 1


@pytest.mark.parametrize("interval", [10, "10 s", None, Duration.of_millis(0), Duration.of_millis(-1)])
def test_how_often_it_looks_is_a_length_of_time(tree: Path, interval: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"monitor_continuously\(\)"):
        lines_of(tree).monitor_continuously(interval)


@pytest.mark.parametrize("charset", ["nothing", "base64", 7])
def test_a_charset_that_is_none_is_refused(charset: Any) -> None:
    with pytest.raises(ConfigurationError, match="charset"):
        StreamFormat.text_line_format(charset)


def test_a_source_of_files_has_a_format_and_a_path(tree: Path) -> None:
    assert lines_of(tree).build().type_info == Types.STRING()
    with pytest.raises(ConfigurationError, match="at least one path"):
        lines_of()
    with pytest.raises(ConfigurationError, match="text_line_format"):
        FileSource.for_record_stream_format("csv", "path")  # type: ignore[arg-type]
