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


class TestCheckpointBefore:
    """Spark goes on with batch 5; which checkpoint has the state before it?"""

    def restored(
        self, *retained: CheckpointMetadata, batch: int = 5, identity: str | None = CUT
    ) -> int | None:
        newest_first = sorted(retained, key=lambda kept: kept.checkpoint_id, reverse=True)
        found = checkpoint_before(NextBatch(batch, identity), QUERY, newest_first)
        return None if found is None else found.checkpoint_id

    def test_the_batch_before_is_where_spark_goes_on(self) -> None:
        assert self.restored(kept(9, 4)) == 9

    def test_the_batch_itself_was_durable_and_spark_had_not_heard_so(self) -> None:
        assert self.restored(kept(9, 5)) == 9

    @pytest.mark.parametrize("newest", [6, 7, 100])
    def test_if_spark_was_set_back_an_older_checkpoint_is_taken(self, newest: int) -> None:
        assert self.restored(kept(7, 4), kept(9, newest)) == 7

    @pytest.mark.parametrize("newest", [6, 100])
    def test_if_spark_was_set_back_too_far_nothing_fits(self, newest: int) -> None:
        with pytest.raises(
            IncompatibleCheckpointError, match=f"retained checkpoints are of batches {newest}"
        ):
            self.restored(kept(9, newest))

    @pytest.mark.parametrize("newest", [3, 0, NO_BATCH])
    def test_what_lies_between_an_older_state_and_the_batch_cannot_be_had(self, newest: int) -> None:
        with pytest.raises(IncompatibleCheckpointError, match=r"batch 5.*lost or counted twice"):
            self.restored(kept(9, newest))

    def test_without_a_checkpoint_only_the_first_batch_may_begin(self) -> None:
        assert self.restored(batch=0) is None
        with pytest.raises(CheckpointNotFoundError, match="goes on with batch 1"):
            self.restored(batch=1)

    def test_the_first_batch_goes_on_from_a_state_before_any(self) -> None:
        """As where a job was stopped before a record came."""
        assert self.restored(kept(1, NO_BATCH), batch=0) == 1

    def test_the_first_batch_may_be_durable_already(self) -> None:
        assert self.restored(kept(1, 0), batch=0) == 1

    def test_none_is_looked_at_that_is_older_than_the_one_that_fits(self) -> None:
        newest_first = iter([kept(10, 6), kept(9, 4), kept(8, 3)])
        assert checkpoint_before(NextBatch(5, CUT), QUERY, newest_first) == kept(9, 4)
        assert [left.checkpoint_id for left in newest_first] == [8]

    @pytest.mark.parametrize("identity", [None, "cut again"])
    def test_a_batch_that_is_cut_anew_is_not_skipped(self, identity: str | None) -> None:
        """By its number it is the newest; it may have other records than those that the state has seen."""
        assert self.restored(kept(7, 4), kept(8, 5), identity=identity) == 7
        assert self.restored(kept(7, 4), kept(8, 5), kept(9, 6), identity=identity) == 7
        with pytest.raises(
            IncompatibleCheckpointError, match=r"batch 5, which Spark plans again, .* batches 6, 5"
        ):
            self.restored(kept(8, 5), kept(9, 6), identity=identity)

    def test_that_very_batch_is_skipped_also_if_spark_was_set_back(self) -> None:
        assert self.restored(kept(7, 4), kept(8, 5), kept(9, 6)) == 8

    def test_a_checkpoint_that_does_not_know_its_batch_is_not_that_of_the_batch(self) -> None:
        assert self.restored(kept(7, 4), kept(8, 5, identity=None)) == 7
        assert self.restored(kept(7, 4), kept(8, 5, identity=None), identity=None) == 7

    def test_a_query_that_never_ran_has_no_checkpoint(self) -> None:
        with pytest.raises(IncompatibleCheckpointError, match=r"another streaming query.*this is a new one"):
            checkpoint_before(NextBatch(0), None, [kept(1, NO_BATCH)])

    def test_all_retained_batches_are_named(self) -> None:
        with pytest.raises(IncompatibleCheckpointError, match="are of batches 9, 8, 7"):
            self.restored(kept(3, 8), kept(2, 7), kept(4, 9))

    def test_another_querys_state_is_refused_even_if_its_batch_fits(self) -> None:
        with pytest.raises(IncompatibleCheckpointError, match=r"another streaming query.*this is 8b1f"):
            self.restored(kept(9, 4, "other"))

    def test_another_query_does_not_hide_behind_an_older_checkpoint(self) -> None:
        with pytest.raises(IncompatibleCheckpointError, match="checkpoint 9 belongs to another"):
            self.restored(kept(8, 4), kept(9, 4, "other"))

    @pytest.mark.parametrize(
        "position", [{"index": 4, "length": 9}, {"query": QUERY}, [4], None, "earliest"], ids=repr
    )
    def test_the_state_of_another_source_is_refused(self, position: Any) -> None:
        with pytest.raises(IncompatibleCheckpointError, match="another streaming query"):
            self.restored(metadata(9, source_position=position))
