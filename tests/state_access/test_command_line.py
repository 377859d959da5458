"""The command line: what it prints, what it writes, and how it ends."""

from __future__ import annotations

import csv
import datetime
import decimal
import errno
import io
import json
import math
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from backend_support import PICKLED, make_backend, state_of, take_snapshot
from read_support import JOB_ID, UID, operator_of, state_file, write, write_checkpoint
from tiers import cases
from type_samples import KEY_SAMPLES, Samples

from pyflinkstate.api import (
    ExternalTypeInfo,
    Instant,
    MapStateDescriptor,
    Row,
    Types,
    ValueStateDescriptor,
    names_of,
    row_of,
)
from pyflinkstate.backends.format import OperatorSubtaskState
from pyflinkstate.backends.keys import KeyHasher
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders
from pyflinkstate.runtime.storage.runs import RunHistory, TakenOver
from pyflinkstate.state_access.command_line import commands, main, output
from pyflinkstate.state_access.command_line.output import Progress, json_text, parsed_key, readable

#: How long a process may take.
PATIENCE_S = 60


def parsed(text):
    """Return what JSON says, without the constants that Python takes besides."""
    return json.loads(text, parse_constant=pytest.fail)


@pytest.fixture
def job(tmp_path):
    write(tmp_path, {"a": 1, "b": 2}, 1)
    write(tmp_path, {"a": 1, "b": 3}, 2)
    return tmp_path / JOB_ID


@pytest.fixture
def run(capsys):
    """Run a command; return the exit code, what it printed as JSON, and what it complained about."""

    def run(*words):
        code = main([*map(str, words), "--json"])
        out, err = capsys.readouterr()
        return code, [parsed(line) for line in out.splitlines()], err

    return run


@pytest.fixture
def refused(run):
    """Run a command that fails; return what it complained about."""

    def refused(*words):
        code, printed, err = run(*words)
        assert (code, printed) == (3, [])
        return err

    return refused


def test_ls(job, run):
    code, (listed,), _ = run("ls", job.parent)
    assert code == 0
    assert [(row["checkpoint"], row["status"]) for row in listed["rows"]] == [
        (1, "completed"),
        (2, "completed"),
    ]
    assert {row["job_id"] for row in listed["rows"]} == {JOB_ID}


def test_ls_leaves_out_what_a_job_that_runs_deletes_meanwhile(job, run, monkeypatch):
    completed = CheckpointFolders.completed

    def overtaken(storage, job_id):
        found = completed(storage, job_id)
        monkeypatch.undo()
        storage.discard(storage.uri_of(job_id, 1))
        return found

    monkeypatch.setattr(CheckpointFolders, "completed", overtaken)
    code, (listed,), _ = run("ls", job.parent)
    assert code == 0
    assert [(row["checkpoint"], row["status"]) for row in listed["rows"]] == [(2, "completed")]


@pytest.mark.parametrize("damaged", [1, 2, 3])
def test_ls_shows_the_others_beside_a_damaged_one(tmp_path, run, damaged):
    first, second = ("000001-aaaaaaaa", 0), ("000002-bbbbbbbb", 1)
    CheckpointFolders(str(tmp_path)).write_run(JOB_ID, second[0], TakenOver(RunHistory((first, second)), 1))
    write(tmp_path, {"a": 1}, 1, runs=(first,))
    write(tmp_path, {"a": 1}, 2, runs=(first,))  # published when the second run had taken over
    write(tmp_path, {"a": 1}, 3, runs=(first, second), epoch=2)
    write(tmp_path, {"a": 1}, 4, runs=(first,), epoch=3)
    metadata = tmp_path / JOB_ID / f"chk-{damaged}" / "_metadata"
    metadata.write_bytes(metadata.read_bytes()[:-1])
    code, (listed,), _ = run("ls", tmp_path)
    others = {1: "completed", 2: "not in the newest line", 3: "completed", 4: "not in the newest line"}
    assert code == 0
    assert {row["checkpoint"]: row["status"] for row in listed["rows"]} == others | {damaged: "damaged"}


def test_show(job, run):
    code, (facts,), _ = run("show", job)
    assert (code, facts["checkpoint_id"], facts["operators"][0]["uid"]) == (0, 2, UID)
    code, (states,), _ = run("show", job, UID)
    assert (code, [row["name"] for row in states["rows"]]) == (0, ["count"])
    code, (rows,), _ = run("show", job, UID, "--state", "count", "--key", "b")
    assert (code, rows["rows"]) == (0, [{"key": "b", "value": 3}])
    code, (rows,), _ = run("show", job, UID, "--key", "a")
    assert (code, rows["rows"]) == (0, [{"key": "a", "count": 1}])


def test_plain_text(job, capsys):
    assert main(["show", str(job), UID, "--state", "count", "--limit", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:2] == ["op count", "  key  value"]
    assert lines[-1] == "  there are more rows: --limit is 1"


def test_keys_of_other_types_are_json(tmp_path, run, refused):
    folder = write(tmp_path, {7: 1}, key_type=Types.LONG())
    assert run("show", folder, UID, "--key", "7")[1][0]["rows"] == [{"key": 7, "count": 1}]
    assert "keys are of LONG, and 'seven' is not JSON" in refused("show", folder, UID, "--key", "seven")


#: Types whose keys are written as texts, and how they are written.
WRITTEN_KEYS = [
    (Types.SQL_DATE(), datetime.date(2020, 1, 2), "2020-01-02"),
    (Types.SQL_TIME(), datetime.time(3, 4, 5, 678000), "03:04:05.678000"),
    (Types.SQL_TIMESTAMP(), datetime.datetime(2020, 1, 2, 3, 4, 5), "2020-01-02T03:04:05"),
    (Types.INSTANT(), Instant(1_577_934_245, 6_000_000), "2020-01-02T03:04:05.006Z"),
    (Types.INSTANT(), Instant(-62_135_596_800, 0), "0001-01-01T00:00:00Z"),
    (Types.BIG_DEC(), decimal.Decimal("1.50"), "1.50"),
    (Types.PRIMITIVE_ARRAY(Types.BYTE()), b"\xff\x00", "ff00"),
    (ExternalTypeInfo(Types.STRING()), "7", "7"),
    (
        Types.TUPLE([Types.STRING(), Types.SQL_DATE()]),
        ("a", datetime.date(2020, 1, 2)),
        '["a", "2020-01-02"]',
    ),
    (
        Types.TUPLE([Types.LONG(), Types.TUPLE([Types.INSTANT()])]),
        (1, (Instant(0, 5),)),
        '[1, ["1970-01-01T00:00:00.000000005Z"]]',
    ),
]


@pytest.mark.parametrize(("key_type", "key", "written"), WRITTEN_KEYS, ids=str)
def test_a_key_is_written_as_it_is_printed(tmp_path, run, key_type, key, written):
    folder = write(tmp_path, {key: 1}, key_type=key_type)
    (row,) = run("show", folder, UID, "--key", written)[1][0]["rows"]
    assert row["count"] == 1
    printed = row["key"] if isinstance(row["key"], str) else json.dumps(row["key"])
    assert run("show", folder, UID, "--key", printed)[1][0]["rows"] == [row]


@pytest.mark.parametrize(
    ("key", "key_type", "written", "example"),
    [
        (datetime.date.min, Types.SQL_DATE(), "yesterday", "2020-01-02"),
        (Instant(0, 0), Types.INSTANT(), "2020-01-02", "2020-01-02T03:04:05.678Z"),
        (decimal.Decimal(1), Types.BIG_DEC(), "much", "1.50"),
        ((datetime.date.min,), Types.TUPLE([Types.SQL_DATE()]), '["yesterday"]', "2020-01-02"),
    ],
    ids=str,
)
def test_a_key_that_is_written_otherwise_is_refused(tmp_path, refused, key, key_type, written, example):
    folder = write(tmp_path, {key: 1}, key_type=key_type)
    assert f"is written like {example}, and" in refused("show", folder, UID, "--key", written)


def test_diff(job, run):
    code, (found,), _ = run("diff", job / "chk-1", job / "chk-2")
    assert (code, found["title"]) == (1, "op count: 0 added, 0 removed, 1 changed")
    assert [(row["key"], row["old"], row["new"]) for row in found["rows"]] == [("b", 2, 3)]
    assert run("diff", job / "chk-2", job / "chk-2") == (0, [], "")


def test_history(job, run):
    code, moments, _ = run("history", job, UID, "b")
    assert code == 0
    assert [moment["rows"] for moment in moments] == [[{"key": "b", "count": 2}], [{"key": "b", "count": 3}]]


def test_verify(job, run):
    code, (found,), _ = run("verify", job)
    assert (code, found["problems"], len(found["checkpoints"])) == (0, [], 2)
    state_file(job / "chk-1").unlink()
    code, (found,), _ = run("verify", job)
    assert (code, len(found["problems"])) == (1, 1)


def test_verify_prints_problems_and_paths_to_their_end(job, capsys):
    file, stray = state_file(job / "chk-1"), job / "chk-2" / ("stray" * 20)
    stray.write_bytes(b"x")
    file.unlink()
    assert main(["verify", str(job)]) == 1
    title, _, problem, *_, path = capsys.readouterr().out.splitlines()[1:]
    assert (title, file.name in problem, "…" in problem) == ("problems", True, False)
    assert path.endswith(stray.name)


def test_export_gives_each_state_a_file_of_its_own(tmp_path, run, refused):
    backend = make_backend(Types.STRING())
    names = ["a b", "a/b", "a_b", "é" * 300, "é" * 301]
    for number, name in enumerate(names):
        state_of(backend, ValueStateDescriptor(name, Types.LONG()), "k").update(number)
    folder = write_checkpoint(tmp_path, [operator_of([OperatorSubtaskState(take_snapshot(backend))])])
    code, (found,), _ = run("export", folder, "--format", "json", "--to", tmp_path)
    assert code == 0
    files = {row["state"]: row["file"] for row in found["rows"]}
    assert [parsed(Path(files[name]).read_text())["value"] for name in names] == list(range(5))
    assert "cannot be written" in refused("export", folder, "--to", tmp_path / ("long" * 100))


def test_export_prints_paths_to_their_end(job, tmp_path, capsys):
    folder = tmp_path / ("long" * 20)
    folder.mkdir()
    assert main(["export", str(job), "--format", "csv", "--to", str(folder)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(f"  {folder / 'op.count.csv'}")


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_export(job, run, refused, tmp_path, kind):
    code, (found,), _ = run("export", job, "--format", kind, "--to", tmp_path)
    file = tmp_path / f"op.count.{kind}"
    assert (code, found["rows"]) == (0, [{"uid": UID, "state": "count", "rows": 2, "file": str(file)}])
    if kind == "parquet":
        assert sorted(map(tuple, map(dict.values, parquet.read_table(file).to_pylist()))) == [
            ("a", 1),
            ("b", 3),
        ]
    elif kind == "json":
        rows = [json.loads(line) for line in file.read_text().splitlines()]
        assert sorted(row["value"] for row in rows) == [1, 3]
    else:
        assert sorted(file.read_text().splitlines()) == sorted(['"key","value"', '"a",1', '"b",3'])
    assert "exists already" in refused("export", job, "--format", kind, "--to", tmp_path)


def test_sql(job, run):
    pytest.importorskip("duckdb")
    assert [row["table"] for row in run("sql", job)[1][0]["rows"]] == ["op", "op_count"]
    code, (found,), _ = run("sql", job, "select sum(value) as total from op_count")
    assert (code, found["rows"]) == (0, [{"total": 4}])


LOCKED = [
    ("select * from bystander", "bystander does not exist"),
    ("select * from 'seen.csv'", "disabled"),
    ("select * from read_csv('seen.csv')", "disabled"),
    ("select content from read_text('seen.csv')", "disabled"),
    ("select * from glob('*')", "disabled"),
    ("copy op_count to 'written.csv'", "disabled"),
    ("export database 'written'", "disabled"),
    ("attach 'written.db'", "disabled"),
    ("install httpfs", "disabled"),
    ("load httpfs", "disabled"),
    ("select st_point(1, 2)", "spatial extension"),
    ("set enable_external_access = true", "has been locked"),
    ("set python_enable_replacements = true", "has been locked"),
    ("reset lock_configuration", "has been locked"),
    ("select nothing from nowhere", "the tables are op, op_count"),
    ("select cast(key as integer) from op_count", "Conversion Error"),
]


@pytest.mark.parametrize(("query", "refusal"), LOCKED)
def test_sql_has_only_the_tables_of_the_checkpoint(job, refused, tmp_path, monkeypatch, query, refusal):
    pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "seen.csv").write_text("a\n1\n")
    # DuckDB would look for a table among the variables of the module that calls it.
    monkeypatch.setattr(commands, "bystander", pa.table({"a": [1]}), raising=False)
    assert refusal in refused("sql", job, query)
    assert not list(tmp_path.glob("written*"))


def test_sql_may_use_files_if_the_user_says_so(job, run, refused, tmp_path, monkeypatch):
    pytest.importorskip("duckdb")
    monkeypatch.chdir(tmp_path)
    assert run("sql", job, "copy op_count to 'written.csv'", "--allow-files")[0] == 0
    query = "select count(*) as n from op_count join 'written.csv' using (key)"
    assert run("sql", job, query, "--allow-files")[1][0]["rows"] == [{"n": 2}]
    assert "need --allow-files" in run("sql", job, query)[2]
    assert "has been locked" in refused("sql", job, "set python_enable_replacements = true", "--allow-files")


def test_sql_prints_what_json_has_not_as_texts(job, run):
    pytest.importorskip("duckdb")
    query = "select map {date '2024-05-01': 1.5::double} as m, '\\xFFa'::blob as b, time '12:30' as t"
    code, (found,), _ = run("sql", job, query)
    assert (code, found["rows"]) == (0, [{"m": {"2024-05-01": 1.5}, "b": "ff61", "t": "12:30:00"}])


@pytest.mark.parametrize(
    ("type_info", "value", "shown"),
    [
        (
            Types.MAP(PICKLED, Types.LONG()),
            {pickle.dumps(decimal.Decimal(n)): n for n in range(3)},
            {"<pickle, 42 bytes>": 0, "<pickle, 42 bytes> #2": 1, "<pickle, 42 bytes> #3": 2},
        ),
        (PICKLED, pickle.dumps({1: "a", "1": "b", "1 #2": "c"}), {"1": "a", "1 #2": "b", "1 #2 #2": "c"}),
    ],
    ids=["pickles", "a number and its text"],
)
def test_entries_of_a_map_whose_keys_are_printed_alike_are_all_there(type_info, value, shown):
    assert readable(type_info, value) == shown


#: By key: numbers, of which JSON does not have the first three, and what is shown of them.
NUMBERS = {"a": math.nan, "b": math.inf, "c": -math.inf, "d": 0.5}
SHOWN = {"a": "nan", "b": "inf", "c": "-inf", "d": 0.5}


class TestNumbersThatJsonDoesNotHave:
    @pytest.fixture
    def folder(self, tmp_path):
        """Write a checkpoint with such numbers, alone and in lists."""
        backend = make_backend(Types.STRING())
        for key, number in NUMBERS.items():
            state_of(backend, ValueStateDescriptor("one", Types.DOUBLE()), key).update(number)
            several = ValueStateDescriptor("several", Types.LIST(Types.DOUBLE()))
            state_of(backend, several, key).update([number])
        return write_checkpoint(tmp_path, [operator_of([OperatorSubtaskState(take_snapshot(backend))])])

    def test_shown(self, folder, run):
        for key, shown in SHOWN.items():
            code, (found,), _ = run("show", folder, UID, "--key", key)
            assert (code, found["rows"]) == (0, [{"key": key, "one": shown, "several": [shown]}])

    def test_in_pickles(self):
        assert readable(PICKLED, pickle.dumps({math.nan: (-math.inf, 1)})) == {"nan": ["-inf", 1]}

    def test_as_text(self, folder, capsys):
        assert main(["show", str(folder), UID, "--state", "one"]) == 0
        cells = dict(line.split() for line in capsys.readouterr().out.splitlines()[2:])
        assert cells == {key: str(shown) for key, shown in SHOWN.items()}

    def test_asked_by_sql(self, folder, run):
        pytest.importorskip("duckdb")
        code, (found,), _ = run("sql", folder, "select key, one, several from op order by key")
        shown = [{"key": key, "one": shown, "several": [shown]} for key, shown in SHOWN.items()]
        assert (code, found["rows"]) == (0, shown)


BYTES = Types.PRIMITIVE_ARRAY(Types.BYTE())
#: By kind: a state, and what is shown of its value; None if it is a map of pickled keys.
EXPORTED = {
    "number that JSON does not have": (Types.DOUBLE(), math.nan, "nan"),
    "list of such numbers": (Types.LIST(Types.DOUBLE()), [-math.inf, 0.5], ["-inf", 0.5]),
    "bytes": (BYTES, b"\xff,a", "ff2c61"),
    "text": (BYTES, b"a", "61"),
    "pickle": (PICKLED, [b"\xff", b"a"], ["ff", "61"]),
    "word": (PICKLED, "\xfcber", "\xfcber"),
    "bytes in a pickle": (PICKLED, b"\xff", "ff"),
    "map of bytes": (Types.MAP(Types.STRING(), BYTES), {"a": b"\xff"}, {"a": "ff"}),
    "list of bytes": (Types.LIST(BYTES), [b"\xff"], ["ff"]),
    "map": (Types.MAP(Types.STRING(), Types.LONG()), {"a": 1}, {"a": 1}),
    "row": (Types.ROW_NAMED(["n", "s"], [Types.LONG(), Types.STRING()]), Row(n=1, s="x"), [1, "x"]),
    "list": (Types.LIST(Types.TUPLE([Types.LONG(), Types.STRING()])), [(1, "x")], [[1, "x"]]),
}


@pytest.mark.parametrize("kind", EXPORTED)
@pytest.mark.parametrize("options", [(), ("--allow-pickle",)])
@pytest.mark.parametrize("is_map", [False, True], ids=["value", "beside pickled keys"])
def test_values_are_the_same_in_all_exported_texts(run, tmp_path, kind, options, is_map):
    type_info, value, shown = EXPORTED[kind]
    backend = make_backend(Types.STRING())
    if is_map:
        state_of(backend, MapStateDescriptor("one", PICKLED, type_info), "k").put(("p", "q"), value)
    else:
        state_of(backend, ValueStateDescriptor("one", type_info), "k").update(value)
    folder = write_checkpoint(tmp_path, [operator_of([OperatorSubtaskState(take_snapshot(backend))])])
    for form in ("json", "csv"):
        assert run("export", folder, "--format", form, "--to", tmp_path, *options)[::2] == (0, "")
    told = parsed((tmp_path / "op.one.json").read_text())
    (row,) = csv.DictReader((tmp_path / "op.one.csv").read_text(encoding="utf-8").splitlines())
    assert told["value"] == shown
    assert row["value"] == (shown if isinstance(shown, str) else json.dumps(shown))
    assert not is_map or json.loads(row["map_key"]) == told["map_key"]


#: The rows of so many keys are more than a pipe and a process hold.
MANY = 5_000


class Unread:
    """Stands for a standard output whose reader has left, and which has no descriptor."""

    def __init__(self, is_full):
        self.is_full = is_full

    def write(self, text):
        if self.is_full:
            raise BrokenPipeError

    def flush(self):
        raise BrokenPipeError

    def fileno(self):
        raise io.UnsupportedOperation("fileno")


class TestReaderThatLeaves:
    """Such as ``head``: that is no error of the command, and there is nothing to say about it."""

    @pytest.fixture
    def folder(self, tmp_path):
        return write(tmp_path, {f"the key {n}": n for n in range(MANY)})

    @staticmethod
    def run(words, most):
        """Return how a process ends of whose output so many bytes are read, and what it complains about."""
        reader, writer = os.pipe()
        if not most:
            os.close(reader)
        command = [sys.executable, "-m", "pyflinkstate", *map(str, words)]
        # As by default, a process writes what is left when it ends.
        env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
        process = subprocess.Popen(command, stdout=writer, stderr=subprocess.PIPE, text=True, env=env)
        os.close(writer)
        if most:
            assert os.read(reader, most)
            os.close(reader)
        _, complaint = process.communicate(timeout=PATIENCE_S)
        return process.returncode, complaint

    @pytest.mark.parametrize("most", cases([0, 1], quick=[1]))
    def test_before_the_end_of_a_long_output(self, folder, most):
        words = ["show", folder, UID, "--state", "count", "--limit", MANY]
        assert self.run(words, most) == (0, "")

    @pytest.mark.full
    @pytest.mark.parametrize(
        "words", [["show", "JOB"], ["diff", "JOB/chk-1", "JOB/chk-2"], ["--help"]], ids=str
    )
    def test_before_a_short_output(self, job, words):
        assert self.run([word.replace("JOB", str(job)) for word in words], 0) == (0, "")

    def test_an_error_is_an_error_nevertheless(self, folder):
        code, complaint = self.run(["show", folder, "other"], 0)
        assert (code, "has no operator 'other'" in complaint) == (3, True)

    @pytest.mark.parametrize("is_full", [True, False])
    def test_of_an_output_without_a_descriptor(self, job, monkeypatch, is_full):
        with monkeypatch.context() as patched:
            patched.setattr("sys.stdout", Unread(is_full))
            assert main(["show", str(job), "--json"]) == 0


class Full(Unread):
    """Stands for a standard output that has no space left."""

    def write(self, text):
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self):
        self.write("")


class TestOutputThatCannotBeWritten:
    def test_it_is_a_failure_and_no_difference(self, job, monkeypatch, capsys):
        with monkeypatch.context() as patched:
            patched.setattr("sys.stdout", Full(is_full=True))
            assert main(["diff", str(job / "chk-1"), str(job / "chk-2"), "--json"]) == 3
        assert capsys.readouterr().err == (
            "pyflinkstate: the output cannot be written: [Errno 28] No space left on device\n"
        )

    def test_a_complaint_that_nobody_reads(self, tmp_path, monkeypatch):
        with monkeypatch.context() as patched:
            patched.setattr("sys.stderr", Unread(is_full=True))
            assert main(["show", str(tmp_path / "nothing"), "--json"]) == 3

    @pytest.mark.full
    @pytest.mark.parametrize(("path", "code"), [("job", 3), ("nothing", 3)])
    def test_of_a_process(self, job, tmp_path, path, code):
        words = [sys.executable, "-m", "pyflinkstate", "show", str(job if path == "job" else tmp_path / path)]
        with open("/dev/full", "w") as full:
            assert subprocess.run(words, stdout=full, stderr=full, timeout=PATIENCE_S).returncode == code


def test_what_cannot_be_read_ends_with_3(tmp_path, job, refused):
    assert "nothing is no completed checkpoint" in refused("show", tmp_path / "nothing")
    assert "has no operator 'other'; it has 'op'" in refused("show", job, "other")


EDIT = ["edit", "x", "--to", "y"]


@pytest.mark.parametrize(
    "words",
    [
        [],
        ["nothing"],
        ["show"],
        ["show", "x", "--limit", "many"],
        ["edit", "x"],
        [*EDIT, "--delete", UID],
        [*EDIT, "--rename-uid", UID],
    ],
)
def test_wrong_arguments_end_with_2(words, capsys):
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2


def test_edit_makes_the_changes_in_their_order(job, run, tmp_path):
    changes = [
        "--rename-uid",
        UID,
        "other",
        "--delete",
        "other",
        "a",
        "none",
        "--max-parallelism",
        "other",
        64,
    ]
    code, (told,), _ = run("edit", job, "--to", tmp_path / "new", *changes)
    assert (code, told["rows"][0]["uid"], told["rows"][0]["max_parallelism"]) == (0, "other", 64)
    _, (rows,), _ = run("show", tmp_path / "new", "other", "--state", "count")
    assert rows["rows"] == [{"key": "b", "value": 3}]
    _, (facts,), _ = run("show", job)
    assert facts["operators"][0]["uid"] == UID


def test_edit_drops_operators_and_states(job, run, tmp_path):
    assert run("edit", job, "--to", tmp_path / "a", "--drop-state", UID, "count")[0] == 0
    assert run("show", tmp_path / "a", UID)[1][0]["rows"] == []
    assert run("edit", job, "--to", tmp_path / "b", "--drop", UID)[1][0]["rows"] == []


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        (["--drop", "none"], "no operator 'none'; it has 'op'"),
        (["--drop-state", UID, "none"], "no state 'none'; it has 'count'"),
        (["--max-parallelism", UID, "many"], "'many' is not a number of key groups"),
        (["--max-parallelism", UID, "0"], "0"),
    ],
)
def test_edit_writes_nothing_if_a_change_cannot_be_made(job, refused, tmp_path, changes, told):
    assert told in refused("edit", job, "--to", tmp_path / "new", *changes)
    assert not (tmp_path / "new").exists()


# --- what a terminal shows besides: tables with borders, and how much long work has read ----------


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def terminal(monkeypatch):
    """Make a stream a terminal; within the test, as pytest sets its own before."""

    def terminal(stream):
        made = Terminal()
        monkeypatch.setenv("TERM", "xterm")
        monkeypatch.setattr(stream, made)
        return made

    return terminal


class TestProgress:
    def test_it_is_shown_after_a_second(self, terminal):
        stderr = terminal("sys.stderr")
        now = [5.0]
        progress = Progress(clock=lambda: now[0])
        progress.expect(100)
        now[0] = 5.9
        progress.advance(10)
        assert stderr.getvalue() == ""
        now[0] = 6.0
        progress.advance(20)
        progress.hide()
        assert "30/100 bytes" in stderr.getvalue()

    def test_it_goes_away_while_lines_are_printed(self, terminal):
        stderr = terminal("sys.stderr")
        now = [0.0]
        progress = Progress(clock=lambda: now[0])
        now[0] = 2.0
        progress.advance(10)
        progress.hide()
        shown = stderr.getvalue()
        progress.hide()
        assert stderr.getvalue() == shown
        progress.advance(5)
        progress.hide()
        assert "15/?" in stderr.getvalue()[len(shown) :]

    def test_there_is_none_without_a_terminal(self, monkeypatch):
        plain = io.StringIO()
        monkeypatch.setattr("sys.stderr", plain)
        monkeypatch.setattr(output, "_PATIENCE_S", 0.0)
        progress = Progress()
        progress.advance(10)
        progress.hide()
        assert plain.getvalue() == ""

    @pytest.mark.parametrize(
        "words", [["verify", "JOB"], ["diff", "JOB/chk-1", "JOB/chk-2"], ["export", "JOB"]]
    )
    def test_of_commands(self, job, terminal, monkeypatch, tmp_path, capsys, words):
        stderr = terminal("sys.stderr")
        monkeypatch.setattr(output, "_PATIENCE_S", 0.0)
        words = [word.replace("JOB", str(job)) for word in words]
        words += ["--to", str(tmp_path)] if words[0] == "export" else []
        assert main([*words, "--json"]) in (0, 1)
        assert stderr.getvalue() == ""
        assert all(json.loads(line) for line in capsys.readouterr().out.splitlines())
        for file in tmp_path.glob("*.parquet"):
            file.unlink()
        assert main(words) in (0, 1)
        assert "read" in stderr.getvalue()

    def test_an_error_is_on_a_line_of_its_own(self, job, terminal, monkeypatch):
        stderr = terminal("sys.stderr")
        monkeypatch.setattr(output, "_PATIENCE_S", 0.0)
        assert main(["show", str(job), "other"]) == 3
        assert stderr.getvalue().splitlines()[-1].startswith("pyflinkstate: ")


def test_tables_have_borders(job, terminal):
    stdout = terminal("sys.stdout")
    assert main(["show", str(job), "op", "--state", "count"]) == 0
    text = stdout.getvalue()
    assert "┏━" in text
    assert "│ b " in text


# --- keys as they are written on the command line: whatever is printed of one finds it again ------


@pytest.mark.parametrize("samples", KEY_SAMPLES, ids=lambda samples: str(samples.type_info))
def test_what_is_printed_of_a_key_is_read_as_the_key(samples: Samples) -> None:
    hasher = KeyHasher(samples.type_info)
    for value in samples.fits:
        printed = readable(samples.type_info, value)
        written = printed if isinstance(printed, str) else json_text(printed)
        key = hasher.check(parsed_key(written, samples.type_info))
        if isinstance(value, Row):  # its kind is not printed
            value = row_of(tuple(value), names_of(value))
        assert key == value
