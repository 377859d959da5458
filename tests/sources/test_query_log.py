"""What Spark notes of a streaming query: which batch comes next, and whether it has been cut already."""

from __future__ import annotations

import attrs
import pytest

from pyflinkstate.errors import SourceError
from pyflinkstate.runtime.sources.query_log import NextBatch, QueryLog, position_of


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
