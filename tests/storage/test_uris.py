"""What is a URI and what is a path; which file systems there are; that no folder is made by mistake."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote

import pytest
from pyarrow import fs
from support_runtime import metadata

from pyflinkstate import (
    Encoder,
    FileSink,
    FileSource,
    FileSystemCheckpointStorage,
    JobClient,
    StreamFormat,
)
from pyflinkstate.errors import ConfigurationError
from pyflinkstate.runtime.master import Job
from pyflinkstate.runtime.program import EnvironmentSettings
from pyflinkstate.runtime.program.dataframes.options import JobOptions
from pyflinkstate.runtime.sources import DirectorySource, SplitEpoch
from pyflinkstate.runtime.sources.formats import JsonFormat
from pyflinkstate.runtime.storage import (
    CheckpointFolders,
    absolute,
    check_spark_reaches,
    check_spark_reads,
    child_uri,
    is_uri,
    load_checkpoint,
    name_below,
    open_file_system,
    open_folder,
    path_in_spark,
)
from pyflinkstate.runtime.storage.file_systems import KNOWN_SCHEMES, scheme_of

URIS = [
    ("dbfs:/foo/ck", "dbfs"),
    ("file:/x", "file"),
    ("file:///x", "file"),
    ("FILE:///x", "file"),
    ("s3://bucket/a", "s3"),
    ("abfss://c@account.dfs.core.windows.net/a", "abfss"),
    ("hdfs:/x", "hdfs"),
    ("a-b+c.9:x", "a-b+c.9"),
]
PATHS = [
    "/data/a:b",
    "./x:y",
    "../x:y",
    "x/y:z",
    "relative",
    "C:/Users/x",
    "c:x",
    "10:30",
    "my_folder:x",
    ":x",
    "",
    "a b:c",
]


@pytest.mark.parametrize(("uri", "scheme"), URIS)
def test_what_begins_with_a_scheme_is_a_uri(uri: str, scheme: str) -> None:
    assert scheme_of(uri) == scheme
    assert is_uri(uri)


@pytest.mark.parametrize("path", PATHS)
def test_all_else_is_a_local_path(path: str) -> None:
    assert scheme_of(path) is None
    assert absolute(path) == str(Path(path).absolute())


@pytest.mark.parametrize("name", ["a:b", "x:/y", "50%20off", "what?"])
def test_a_path_with_odd_characters_is_where_it_says(tmp_path: Path, name: str) -> None:
    storage = CheckpointFolders(f"{tmp_path}/{name}")
    storage.begin("0" * 32, 1)
    storage.complete(metadata())
    assert (tmp_path / name / ("0" * 32) / "chk-1" / "_metadata").is_file()
    assert storage.load_latest("orders")[0] == metadata()


@pytest.mark.parametrize("form", ["file:{}", "file://{}", "file://localhost{}", "FILE:{}"])
def test_local_uris_are_local_paths(tmp_path: Path, form: str) -> None:
    folder = tmp_path / "a b"
    storage = CheckpointFolders(form.format(str(folder).replace(" ", "%20")))
    storage.begin("0" * 32, 1)
    storage.complete(metadata())
    assert CheckpointFolders(str(folder)).load_latest("orders")[0] == metadata()
    loaded, _ = load_checkpoint(storage.uri_of("0" * 32, 1) + "/_metadata")
    assert loaded == metadata()


@pytest.mark.parametrize(
    ("uri", "kept"),
    [
        ("file://var/x/", "file://var/x"),
        ("file:///var/x//", "file:///var/x"),
        ("s3://bucket/x/?endpoint_override=h", "s3://bucket/x?endpoint_override=h"),
        ("s3://bucket/", "s3://bucket/"),
        ("file:///", "file:///"),
        ("/var/x/", "/var/x"),
    ],
)
def test_slashes_at_the_end_are_removed(uri: str, kept: str) -> None:
    assert absolute(uri) == kept


@pytest.mark.parametrize("uri", ["file:x", "file:./x", "file://host/x"])
def test_a_local_uri_is_an_absolute_path_of_this_host(uri: str) -> None:
    with pytest.raises(ConfigurationError, match="absolute path on this host") as caught:
        open_file_system(uri)
    assert uri in str(caught.value)


def directory_source(uri: str) -> DirectorySource:
    return DirectorySource(uri, JsonFormat())


def stream_source(uri: str) -> FileSource:
    return FileSource.for_record_stream_format(StreamFormat.text_line_format(), uri).build()


def default_savepoints(uri: str) -> object:
    settings = EnvironmentSettings(lambda: 1)
    settings.put(savepoint_directory=uri)
    return settings


def a_savepoint(uri: str) -> object:
    """The program hears of it, and not the job, which would have ended with it."""

    class Idle:
        job_id = "0" * 32
        requests: list[Any]

        def run(self) -> list[int]:
            return []

        def result(self) -> None:
            return None

    return JobClient(cast(Job, Idle()), None).trigger_savepoint(uri)


DOORS: list[Callable[[str], object]] = [
    FileSystemCheckpointStorage,
    CheckpointFolders,
    FileSink,
    lambda uri: FileSink.for_row_format(uri, Encoder.simple_string_encoder()).build(),
    directory_source,
    stream_source,
    load_checkpoint,
    open_folder,
    default_savepoints,
    a_savepoint,
]


@pytest.mark.parametrize("uri", ["dbfs:/foo/ck", "s3a://bucket/x", "ftp://host/x", "nosuch:x"])
@pytest.mark.parametrize("door", range(len(DOORS)))
def test_an_unknown_scheme_is_refused_everywhere_and_no_folder_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, door: int, uri: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError) as caught:
        DOORS[door](uri)
    message = str(caught.value)
    assert uri in message
    assert f"the scheme {scheme_of(uri)}: is not supported" in message
    assert all(f"{scheme}:" in message for scheme in KNOWN_SCHEMES)
    assert list(tmp_path.iterdir()) == []


#: What takes a folder that need not be there.
TAKES_PATHS: list[Callable[[Any], object]] = [
    absolute,
    FileSystemCheckpointStorage,
    FileSink,
    lambda path: FileSink(path, file_system=fs.LocalFileSystem()),
    lambda path: FileSink.for_row_format(path, Encoder.simple_string_encoder()).build(),
    DOORS[4],
    stream_source,
    default_savepoints,
    lambda path: JobOptions("keyed_process()", {"checkpoint_directory": path}).base(),
]


@pytest.mark.parametrize("door", range(len(TAKES_PATHS)))
def test_a_path_object_will_do_wherever_a_text_does(tmp_path: Path, door: int) -> None:
    TAKES_PATHS[door](tmp_path)
    for wrong in (7, b"/x", ["/x"]):
        with pytest.raises(ConfigurationError, match=r"a path must be a string or a pathlib\.Path, not "):
            TAKES_PATHS[door](wrong)


def test_a_tilde_is_the_home_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert absolute("~") == f"{tmp_path}/home"
    assert absolute("~/out") == absolute(Path("~/out")) == f"{tmp_path}/home/out"
    assert open_file_system("~/out")[1] == f"{tmp_path}/home/out"
    assert FileSystemCheckpointStorage("~/ck").checkpoint_path == f"{tmp_path}/home/ck"
    assert FileSink("~/out").directory == f"{tmp_path}/home/out"
    assert directory_source("~/in").directory == f"{tmp_path}/home/in"
    assert stream_source("~/in").paths == (f"{tmp_path}/home/in",)
    assert CheckpointFolders("~/ck").begin_savepoint("~/sp", "0" * 32).startswith(f"{tmp_path}/home/sp/")
    assert not (tmp_path / "~").exists()


@pytest.mark.parametrize("path", ["./~", "a/~", "~nobody-has-this-name", "file:/~/x", "s3://b/~/x"])
def test_a_tilde_elsewhere_is_itself(path: str) -> None:
    assert "~" in absolute(path)


def test_a_savepoint_below_an_unknown_scheme_fails_and_the_storage_is_as_it_was(
    storage: CheckpointFolders, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="scheme dbfs: is not supported"):
        storage.begin_savepoint("dbfs:/savepoints", "0" * 32)
    assert list(tmp_path.iterdir()) == []


def test_files_below_a_local_uri_are_read_by_their_names(tmp_path: Path) -> None:
    (tmp_path / "a b.json").write_text("1\n")
    source = DirectorySource(f"file:{tmp_path}", JsonFormat())
    start = source.initial_offset()
    epoch = source.plan(start, source.latest_offset(start, True).end)
    assert isinstance(epoch, SplitEpoch)
    file_system, path = open_file_system(epoch.splits[0])
    assert path == f"{tmp_path}/a b.json"
    assert isinstance(file_system, fs.LocalFileSystem)


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("/a", "/a/b/c"),
        ("/a/?", "/a/?/b/c"),
        ("/a:x/?y", "/a:x/?y/b/c"),
        ("file:/a", "file:/a/b/c"),
        ("s3://bucket/a/", "s3://bucket/a/b/c"),
        ("s3://bucket/a?region=eu&scheme=http", "s3://bucket/a/b/c?region=eu&scheme=http"),
    ],
)
def test_options_of_a_uri_stay_at_its_end(uri: str, expected: str) -> None:
    assert child_uri(uri, "b", "c") == expected


@pytest.mark.parametrize(
    ("uri", "reaches"),
    [("s3://b/x", False), ("S3://b/x", False), ("hdfs:/x?y=z", False), ("/a?b", True), ("file:/x", True)],
)
def test_what_spark_reaches_as_well(uri: str, reaches: bool) -> None:
    if reaches:
        check_spark_reaches(uri, "job in", "name another")
    else:
        with pytest.raises(ConfigurationError, match=r"job in .* name another"):
            check_spark_reaches(uri, "job in", "name another")


@pytest.mark.parametrize(
    ("uri", "expected"),
    [
        ("/a b/50%20off", "/a b/50%20off"),
        ("file:/a%20b", "file:///a b"),
        ("FILE:///a%2520b/c", "file:///a%20b/c"),
        ("file://localhost/%7Bx%7D", "file:///{x}"),
        ("hdfs:/a%20b", "hdfs:/a b"),
        ("HDFS://host:1/a%c3%a9", "hdfs://host:1/aé"),
        ("abfss://c%40d@account/a%20b", "abfss://c%40d@account/a b"),
        ("gs://bucket", "gs://bucket"),
    ],
)
def test_spark_is_given_a_uri_without_escapes(uri: str, expected: str) -> None:
    assert path_in_spark(uri) == expected


@pytest.mark.parametrize("form", ["{}", "file:{}", "file://{}"])
def test_a_name_of_a_user_is_found_under_a_path_and_a_uri_alike(tmp_path: Path, form: str) -> None:
    base = form.format(tmp_path)
    for name in ("a b", "50%20off", "what?", "a#b", "é", "a/b", "x:y"):
        folder = child_uri(base, name_below(base, name))
        assert open_file_system(folder)[1] == f"{tmp_path}/{name}"
        assert path_in_spark(folder).removeprefix("file://") == f"{tmp_path}/{name}"


@pytest.mark.parametrize("character", "{}[]*?\\")
def test_a_folder_that_spark_takes_for_a_pattern_is_refused(character: str) -> None:
    name = f"a{character}b"
    for folder in (f"/x/{name}/y", f"hdfs://host/x/{name_below('hdfs:', name)}", f"file:/{quote(name)}"):
        with pytest.raises(ConfigurationError, match="choose another") as caught:
            check_spark_reads(folder, "a job with", "choose another")
        assert f"a job with {path_in_spark(folder)}: Spark takes a path with {character}" in str(caught.value)


@pytest.mark.parametrize("folder", ["/a b/50%5Boff", "file:/a%20b", "hdfs://[::1]:8020/a", "gs://b/(a,b)!^~"])
def test_a_folder_that_spark_takes_for_a_name_is_not(folder: str) -> None:
    check_spark_reads(folder, "a job with", "choose another")


def test_escapes_are_what_the_file_systems_of_arrow_decode() -> None:
    """GCS stands for the others: all of them ask Arrow's URI for its path."""
    _, path = open_file_system("gs://anonymous@bucket/a%20b/50%2520off")
    assert path == "bucket/a b/50%20off"
