"""The command line: what it prints, what it writes, and how it ends."""

import json

import pyarrow.parquet as parquet
import pytest
from read_support import JOB_ID, UID, state_file, write

from pyflinkstate import Types
from pyflinkstate.runtime.storage.checkpoints import CheckpointStorage
from pyflinkstate.state_access.command_line import main


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
        return code, [json.loads(line) for line in out.splitlines()], err

    return run


def test_ls(job, run):
    code, (listed,), _ = run("ls", job.parent)
    assert code == 0
    assert [(row["checkpoint"], row["status"]) for row in listed["rows"]] == [
        (1, "completed"),
        (2, "completed"),
    ]
    assert {row["job_id"] for row in listed["rows"]} == {JOB_ID}


@pytest.mark.parametrize("looks", [1, 2, 3])
def test_ls_leaves_out_what_a_job_that_runs_deletes_meanwhile(job, run, monkeypatch, looks):
    completed, left = CheckpointStorage.completed, [None] * looks

    def overtaken(storage, job_id):
        found = completed(storage, job_id)
        left.pop()
        if not left:
            monkeypatch.undo()
            storage.discard(storage.uri_of(job_id, 1))
        return found

    monkeypatch.setattr(CheckpointStorage, "completed", overtaken)
    code, (listed,), _ = run("ls", job.parent)
    assert code == 0
    assert [(row["checkpoint"], row["status"]) for row in listed["rows"]] == [(2, "completed")]


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


def test_keys_of_other_types_are_json(tmp_path, run):
    folder = write(tmp_path, {7: 1}, key_type=Types.LONG())
    assert run("show", folder, UID, "--key", "7")[1][0]["rows"] == [{"key": 7, "count": 1}]
    code, printed, err = run("show", folder, UID, "--key", "seven")
    assert (code, printed) == (3, [])
    assert "keys are of LONG, and 'seven' is not JSON" in err


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


@pytest.mark.parametrize("kind", ["parquet", "csv", "json"])
def test_export(job, run, tmp_path, kind):
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
    code, _, err = run("export", job, "--format", kind, "--to", tmp_path)
    assert code == 3
    assert "exists already" in err


def test_sql(job, run):
    pytest.importorskip("duckdb")
    assert [row["table"] for row in run("sql", job)[1][0]["rows"]] == ["op", "op_count"]
    code, (found,), _ = run("sql", job, "select sum(value) as total from op_count")
    assert (code, found["rows"]) == (0, [{"total": 4}])
    code, _, err = run("sql", job, "select nothing from nowhere")
    assert code == 3
    assert "the tables are op, op_count" in err


def test_what_cannot_be_read_ends_with_3(tmp_path, job, run):
    assert run("show", tmp_path / "nothing")[0] == 3
    code, _, err = run("show", job, "other")
    assert code == 3
    assert "has no operator 'other'; it has 'op'" in err


@pytest.mark.parametrize("words", [[], ["nothing"], ["show"], ["show", "x", "--limit", "-1"]])
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
def test_edit_writes_nothing_if_a_change_cannot_be_made(job, run, tmp_path, changes, told):
    code, _, complaint = run("edit", job, "--to", tmp_path / "new", *changes)
    assert code == 3
    assert told in complaint
    assert not (tmp_path / "new").exists()


def test_edit_needs_words(job, run, capsys):
    for words in (["--delete", UID], ["--rename-uid", UID], []):
        with pytest.raises(SystemExit):
            run("edit", job, *words)
    capsys.readouterr()
