"""Which checkpoint is restored when a streaming query goes on with a certain batch."""

from __future__ import annotations

from typing import Any

import pytest
from support_runtime import metadata

from pyflinkstate.backends.format.metadata import CheckpointMetadata
from pyflinkstate.errors import CheckpointNotFoundError, IncompatibleCheckpointError
from pyflinkstate.runtime.sources.query_log import NextBatch, position_of
from pyflinkstate.runtime.sources.spark_sources import NO_BATCH, checkpoint_before

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
