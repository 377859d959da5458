"""The file sink for lines of text: names, folders, and what is there when."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest
from support_sinks import JOB, Seen, seen

from pyflinkstate import Encoder, FileSink
from pyflinkstate.errors import BadRecordError, ConfigurationError, SinkError
from pyflinkstate.runtime.sinks.text_file_sink import (
    OWN_FOLDER,
    BucketAssigner,
    OutputFileConfig,
    RollingPolicy,
    RowFormatFileSink,
)

#: 2024-02-29T23:30:00Z
LEAP_DAY_MS = 1_709_249_400_000
BASE = BucketAssigner.base_path_bucket_assigner()


def builder(path: Path | str) -> Any:
    return FileSink.for_row_format(str(path), Encoder.simple_string_encoder())


def opened(path: Path | str, job_id: str = JOB, restored: int | None = None) -> RowFormatFileSink:
    sink: RowFormatFileSink = builder(path).with_bucket_assigner(BASE).build()
    sink.open(job_id, restored)
    return sink


def write(sink: RowFormatFileSink, epoch: int, *partitions: Iterable[str]) -> list[str]:
    writer = attrs.evolve(pickle.loads(pickle.dumps(sink.writer(epoch))), now_ms=lambda: LEAP_DAY_MS)
    return [name for number, texts in enumerate(partitions) for name in writer.write(number, iter(texts))]


def prepare(sink: RowFormatFileSink, epoch: int, *partitions: Iterable[str]) -> None:
    sink.prepare(epoch, write(sink, epoch, *partitions))


class TestEpochs:
    def test_an_epoch_is_seen_when_it_is_committed(self, tmp_path: Path) -> None:
        sink = opened(tmp_path)
        prepare(sink, 1, ["a", "b"], ["c"])
        assert not seen(tmp_path)
        sink.commit(1)
        assert seen(tmp_path) == Seen("abc")

    def test_what_a_task_wrote_that_does_not_count_is_never_seen(self, tmp_path: Path) -> None:
        sink = opened(tmp_path)
        write(sink, 1, ["lost"])
        prepare(sink, 1, ["kept"])
        sink.commit(1)
        assert seen(tmp_path) == Seen(["kept"])
        assert not list((tmp_path / OWN_FOLDER).rglob("pending/*"))
        assert not list((tmp_path / OWN_FOLDER).rglob("dropped/*"))

    @pytest.mark.parametrize("rest", ["/out/", "/out?user=etl", "/out/?user=etl"])
    def test_a_sink_on_a_uri(self, tmp_path: Path, rest: str) -> None:
        sink = opened(f"file://{tmp_path}{rest}")
        prepare(sink, 1, ["a"])
        assert not seen(tmp_path / "out"), "it is not committed"
        sink.commit(1)
        assert seen(tmp_path / "out") == Seen(["a"])
        assert [path.name for path in tmp_path.iterdir()] == ["out"]


class TestNames:
    def test_files_are_named_as_the_user_says_in_a_folder_for_each_hour(self, tmp_path: Path) -> None:
        config = OutputFileConfig.builder().with_part_prefix("prefix").with_part_suffix(".ext").build()
        bucket = BucketAssigner.date_time_bucket_assigner(timezone_id="UTC")
        sink = builder(tmp_path).with_output_file_config(config).with_bucket_assigner(bucket).build()
        sink.open(JOB, None)
        (name,) = write(sink, 1, ["a"])
        assert re.fullmatch(r"2024-02-29--23/prefix-[0-9a-f-]{36}-0\.ext", name)
        sink.prepare(1, [name])
        sink.commit(1)
        assert (tmp_path / name).read_text() == "a\n"

    @pytest.mark.parametrize(
        ("format_str", "folder"),
        [("yyyy/MM/dd", "2024/03/01"), ("HH:mm:ss", "00:30:00"), ("'at' yy 100%", "at 24 100%")],
    )
    def test_folders_are_named_in_javas_letters(self, format_str: str, folder: str) -> None:
        bucket = BucketAssigner.date_time_bucket_assigner(format_str, "Europe/Berlin")
        assert bucket.bucket_of(LEAP_DAY_MS) == folder

    @pytest.mark.parametrize("arguments", [("EEE",), ("yyyy", "Nowhere/City")])
    def test_a_folder_that_cannot_be_named_is_refused(self, arguments: tuple[str, ...]) -> None:
        with pytest.raises(ConfigurationError, match="BucketAssigner"):
            BucketAssigner.date_time_bucket_assigner(*arguments)

    @pytest.mark.parametrize("names", [("a/b", ""), ("_hidden", ""), ("part", "/x")])
    def test_a_name_that_readers_would_skip_is_refused(self, names: tuple[str, str]) -> None:
        with pytest.raises(ConfigurationError, match="OutputFileConfig"):
            OutputFileConfig(*names)

    def test_a_part_that_is_full_is_followed_by_another(self, tmp_path: Path) -> None:
        policy = RollingPolicy.default_rolling_policy(part_size=4)
        sink = builder(tmp_path).with_bucket_assigner(BASE).with_rolling_policy(policy).build()
        sink.open(JOB, None)
        names = write(sink, 1, ["a", "b", "long", "c"])
        assert [name.rpartition("-")[2] for name in names] == ["0", "1", "2"]

    def test_a_part_ends_with_its_epoch_alone_if_the_policy_says_so(self, tmp_path: Path) -> None:
        settings = builder(tmp_path).with_bucket_check_interval(1_000).with_bucket_assigner(BASE)
        sink = settings.with_rolling_policy(RollingPolicy.on_checkpoint_rolling_policy()).build()
        sink.open(JOB, None)
        assert len(write(sink, 1, ["a", "b" * 10_000, "c"])) == 1

    @pytest.mark.parametrize("part_size", [0, -1, True, 1.5, "4"])
    def test_a_part_without_bytes_is_refused(self, part_size: Any) -> None:
        with pytest.raises(ConfigurationError, match="RollingPolicy"):
            RollingPolicy(part_size)


def test_what_the_charset_has_not_is_an_error_that_names_the_record(tmp_path: Path) -> None:
    sink = FileSink.for_row_format(str(tmp_path), Encoder("ascii")).build()
    sink.open(JOB, None)
    with pytest.raises(BadRecordError, match="record 'é'"):
        write(sink, 1, ["é"])


def test_a_file_in_the_way_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(SinkError):
        opened(tmp_path / "file")


@pytest.mark.parametrize("method", ["with_bucket_assigner", "with_rolling_policy", "with_output_file_config"])
def test_a_setting_of_another_kind_is_refused(tmp_path: Path, method: str) -> None:
    with pytest.raises(ConfigurationError, match="is needed here"):
        getattr(builder(tmp_path), method)("text")
