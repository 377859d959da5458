"""What Spark notes of a streaming query: which batch comes next, and which checkpoint is restored for it."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
from support_runtime import metadata

from pyflinkstate.backends.format import CheckpointMetadata
from pyflinkstate.errors import CheckpointNotFoundError, IncompatibleCheckpointError, SourceError
from pyflinkstate.runtime.sources.spark_sources import (
    NO_BATCH,
    NextBatch,
    QueryLog,
    checkpoint_before,
    position_of,
)


@attrs.define
class Files:
    """A checkpoint location in memory."""

    files: dict[str, bytes] = attrs.Factory(dict)

    def names(self, folder: str) -> list[str]:
        return [name.partition("/")[2] for name in self.files if name.startswith(f"{folder}/")]

    def read(self, name: str) -> bytes | None:
        return self.files.get(name)

    def batches(self, cut: int, done: int) -> None:
        """Note that so many batches were cut, and done; with the files that Spark leaves beside."""
        for folder, count in [("offsets", cut), ("commits", done)]:
            for batch in range(count):
                self.files[f"{folder}/{batch}"] = f"v1 {folder} {batch}".encode()
                self.files[f"{folder}/.{batch}.crc"] = b"crc"


@pytest.fixture
def files() -> Files:
    return Files()


@pytest.fixture
def log(files: Files) -> QueryLog:
    return QueryLog(files)


class TestNextBatch:
    @pytest.mark.parametrize("count", [0, 1, 2, 12])
    def test_all_are_done_so_the_next_one_will_be_cut(self, files: Files, log: QueryLog, count: int) -> None:
        files.batches(cut=count, done=count)
        assert log.next_batch() == NextBatch(count, None)

    @pytest.mark.parametrize("count", [1, 2, 12])
    def test_the_newest_is_not_done_so_it_comes_again(self, files: Files, log: QueryLog, count: int) -> None:
        files.batches(cut=count, done=count - 1)
        assert log.next_batch() == NextBatch(count - 1, log.identity(count - 1))
        assert log.next_batch().identity is not None

    def test_old_ones_may_have_been_deleted(self, files: Files, log: QueryLog) -> None:
        files.batches(cut=12, done=12)
        for batch in range(9):
            del files.files[f"offsets/{batch}"], files.files[f"commits/{batch}"]
        assert log.next_batch() == NextBatch(12)


class TestIdentity:
    def test_it_changes_with_what_spark_noted_and_with_nothing_else(
        self, files: Files, log: QueryLog
    ) -> None:
        files.batches(cut=3, done=2)
        before = log.identity(1), log.identity(2)
        files.batches(cut=4, done=3)
        assert (log.identity(1), log.identity(2)) == before
        files.files["offsets/1"] += b" "
        assert log.identity(1) != before[0]
        assert log.identity(2) == before[1]

    def test_a_batch_that_was_not_cut_has_none(self, files: Files, log: QueryLog) -> None:
        files.batches(cut=3, done=2)
        assert log.identity(3) is None


class TestQueryId:
    def test_a_query_that_never_ran_has_none(self, log: QueryLog) -> None:
        assert log.query_id() is None

    def test_it_is_the_one_in_the_metadata(self, files: Files, log: QueryLog) -> None:
        files.files["metadata"] = b'{"id":"8b1f"}'
        assert log.query_id() == "8b1f"

    @pytest.mark.parametrize("data", [b"", b"{", b"[]", b"{}"])
    def test_damaged_metadata_is_told_of(self, files: Files, log: QueryLog, data: bytes) -> None:
        files.files["metadata"] = data
        with pytest.raises(
            SourceError, match=r"location is damaged: its file 'metadata' .* restore that file"
        ):
            log.query_id()


def test_a_position_names_its_batch_only_where_it_is_known() -> None:
    assert position_of(-1, "8b1f", None) == {"batch": -1, "query": "8b1f"}
    assert position_of(3, "8b1f", "x") == {"batch": 3, "query": "8b1f", "identity": "x"}


# --- which checkpoint is restored -----------------------------------------------------------------------

QUERY = "8b1f"
#: What tells the batches of these tests, as Spark cut them first.
CUT = "cut once"


def kept(
    checkpoint_id: int, batch: int, query: str = QUERY, identity: str | None = CUT
) -> CheckpointMetadata:
    """Return a retained checkpoint of the state after ``batch``."""
    return metadata(checkpoint_id, source_position=position_of(batch, query, identity))


def restored(*retained: CheckpointMetadata, batch: int = 5, identity: str | None = CUT) -> int | None:
    newest_first = sorted(retained, key=lambda kept: kept.checkpoint_id, reverse=True)
    found = checkpoint_before(NextBatch(batch, identity), QUERY, newest_first)
    return None if found is None else found.checkpoint_id


@pytest.mark.parametrize(
    ("retained", "asked", "checkpoint"),
    [
        pytest.param([kept(9, 4)], {}, 9, id="the batch before is where spark goes on"),
        pytest.param([kept(9, 5)], {}, 9, id="the batch itself was durable and spark had not heard so"),
        *(
            pytest.param([kept(7, 4), kept(9, newest)], {}, 7, id=f"spark was set back from {newest}")
            for newest in (6, 7, 100)
        ),
        pytest.param([], {"batch": 0}, None, id="the first batch may begin without one"),
        pytest.param([kept(1, NO_BATCH)], {"batch": 0}, 1, id="stopped before a record came"),
        pytest.param([kept(1, 0)], {"batch": 0}, 1, id="the first batch is durable"),
        *(
            pytest.param(
                [kept(7, 4), kept(8, 5), *newer], {"identity": identity}, 7, id=f"cut anew, {identity}"
            )
            for identity in (None, "cut again")
            for newer in ([], [kept(9, 6)])
        ),
        pytest.param([kept(7, 4), kept(8, 5), kept(9, 6)], {}, 8, id="that very batch, set back"),
        *(
            pytest.param([kept(7, 4), kept(8, 5, identity=None)], asked, 7, id="one does not know its batch")
            for asked in ({}, {"identity": None})
        ),
    ],
)
def test_the_checkpoint_with_the_state_before_the_batch_is_restored(
    retained: list[CheckpointMetadata], asked: Any, checkpoint: int | None
) -> None:
    """A batch that is cut anew may have other records than those that a state has seen."""
    assert restored(*retained, **asked) == checkpoint


@pytest.mark.parametrize(
    ("retained", "asked", "reason"),
    [
        *(([kept(9, newest)], {}, f"retained checkpoints are of batches {newest}") for newest in (6, 100)),
        *(([kept(9, newest)], {}, r"batch 5.*lost or counted twice") for newest in (3, 0, NO_BATCH)),
        *(
            (
                [kept(8, 5), kept(9, 6)],
                {"identity": identity},
                r"batch 5, which Spark plans again, .* batches 6, 5",
            )
            for identity in (None, "cut again")
        ),
        ([kept(3, 8), kept(2, 7), kept(4, 9)], {}, "are of batches 9, 8, 7"),
        ([kept(9, 4, "other")], {}, r"another streaming query.*this is 8b1f"),
        ([kept(8, 4), kept(9, 4, "other")], {}, "checkpoint 9 belongs to another"),
        *(
            ([metadata(9, source_position=position)], {}, "another streaming query")
            for position in ({"index": 4, "length": 9}, {"query": QUERY}, [4], None, "earliest")
        ),
    ],
)
def test_what_lies_between_cannot_be_had_and_the_state_of_another_is_refused(
    retained: list[CheckpointMetadata], asked: Any, reason: str
) -> None:
    with pytest.raises(IncompatibleCheckpointError, match=reason):
        restored(*retained, **asked)


def test_without_a_checkpoint_only_the_first_batch_may_begin() -> None:
    with pytest.raises(CheckpointNotFoundError, match="goes on with batch 1"):
        restored(batch=1)


def test_none_is_looked_at_that_is_older_than_the_one_that_fits() -> None:
    newest_first = iter([kept(10, 6), kept(9, 4), kept(8, 3)])
    assert checkpoint_before(NextBatch(5, CUT), QUERY, newest_first) == kept(9, 4)
    assert [left.checkpoint_id for left in newest_first] == [8]


def test_a_query_that_never_ran_has_no_checkpoint() -> None:
    with pytest.raises(IncompatibleCheckpointError, match=r"another streaming query.*this is a new one"):
        checkpoint_before(NextBatch(0), None, [kept(1, NO_BATCH)])
