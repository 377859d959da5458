"""Reading checkpoints in object storage: on a real S3 server of this host."""

import json

import pytest
from read_support import JOB_ID, UID, write

from pyflinkstate.errors import CheckpointNotFoundError, CheckpointStorageError
from pyflinkstate.state_access import diff, history, open_checkpoint, verify
from pyflinkstate.state_access.command_line import main

pytest.importorskip("boto3")
pytest.importorskip("moto.server")

from s3_server import CREDENTIALS, Bucket, Server


@pytest.fixture(scope="module")
def server():
    running = Server()
    yield running
    running.stop()


@pytest.fixture
def bucket(server, tmp_path, monkeypatch):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    yield Bucket(server.port, "b" + "".join(filter(str.isalnum, tmp_path.name.lower()))).create()
    server.denied = lambda method, path: False


@pytest.fixture
def chk(bucket):
    """Two checkpoints of a job, with their state in objects."""
    write(bucket.uri("chk"), {"a": 1, "b": 2}, 1)
    write(bucket.uri("chk"), {"a": 1, "b": 3}, 2)
    return lambda number: bucket.uri(f"chk/{JOB_ID}/chk-{number}")


@pytest.fixture
def run(capsys):
    def run(*words):
        code = main([*words, "--json"])
        out, err = capsys.readouterr()
        return code, [json.loads(line) for line in out.splitlines()], err

    return run


def rows(table):
    return sorted(table.rows(), key=repr)


def test_tables(bucket, chk):
    assert rows(open_checkpoint(chk(1)).keyed(UID)) == [{"key": "a", "count": 1}, {"key": "b", "count": 2}]
    newest = open_checkpoint(bucket.uri(f"chk/{JOB_ID}"))
    assert rows(newest.keyed(UID, ["b"])) == [{"key": "b", "count": 3}]
    parts = newest.entries(UID, "count").parts(4)
    assert sum(len(rows(part)) for part in parts) == 2


def test_diff(chk, run):
    (found,) = diff(chk(1), chk(2))
    assert [(row["key"], row["old"], row["new"]) for row in found.table.rows()] == [("b", 2, 3)]
    assert run("diff", chk(1), chk(2))[0] == 1


def test_history_and_the_listing(bucket, chk, run):
    moments = history(bucket.uri(f"chk/{JOB_ID}"), UID, "b")
    assert [row["count"] for moment in moments for row in moment.table.rows()] == [2, 3]
    code, (listed,), _ = run("ls", bucket.uri("chk"))
    assert (code, [row["checkpoint"] for row in listed["rows"]]) == (0, [1, 2])


def test_verify(bucket, chk, run):
    assert verify(bucket.uri(f"chk/{JOB_ID}")).is_sound
    (name,) = (key for key in bucket.objects() if "/chk-1/" in key and not key.endswith(("_metadata", "/")))
    bucket.client().delete_object(Bucket=bucket.name, Key=name)
    code, (found,), _ = run("verify", bucket.uri(f"chk/{JOB_ID}"))
    assert (code, len(found["problems"])) == (1, 1)
    assert name in found["problems"][0]


def test_what_is_not_there_or_may_not_be_read(bucket, server, chk, run):
    with pytest.raises(CheckpointNotFoundError):
        open_checkpoint(bucket.uri("nothing"))
    server.denied = lambda method, path: method == "GET" and "/chk-1/" in path
    with pytest.raises(CheckpointStorageError, match="ACCESS_DENIED"):
        open_checkpoint(chk(1))
    code, _, err = run("show", chk(1))
    assert code == 3
    assert "ACCESS_DENIED" in err
