"""What may change about the sources of a job that is restored: their order and their number."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
from support_job import JobRun, latest, numbers, once
from test_replacing_sinks import RARELY, Table

from pyflinkstate.errors import BadRecordError, IncompatibleCheckpointError
from pyflinkstate.runtime.plan.nodes import SourceNode, UnionNode
from pyflinkstate.runtime.sinks.sinks import DriverSink
from pyflinkstate.runtime.sources import DirectorySource
from pyflinkstate.runtime.sources.formats import JsonFormat
from pyflinkstate.runtime.storage.checkpoints import CheckpointFolders

pytestmark = pytest.mark.timeout(60)


@attrs.define
class Shop:
    """Directories of JSON files with the same names, and what jobs have read of them."""

    path: Path
    storage: CheckpointFolders
    out: list[str] = attrs.Factory(list)

    def write(self, directory: str, file: str) -> None:
        (self.path / directory).mkdir(exist_ok=True)
        (self.path / directory / file).write_text(f'"{directory}/{file}"\n')

    def files(self, directory: str, uid: str | None) -> SourceNode:
        return SourceNode(DirectorySource(str(self.path / directory), JsonFormat(), 5), "files", uid=uid)

    def reads(self, *sources: SourceNode, **settings: Any) -> list[str]:
        """Run a job of the sources to its end, and return what it reads."""
        self.out.clear()
        sink = DriverSink(lambda _, values: self.out.extend(values))
        JobRun(UnionNode(sources), sink, self.storage, **settings).run()
        return sorted(self.out)


@pytest.fixture
def shop(tmp_path: Path, storage: CheckpointFolders) -> Shop:
    made = Shop(tmp_path, storage)
    for directory, file in [("orders", "a"), ("orders", "b"), ("refunds", "a"), ("other", "a")]:
        made.write(directory, file)
    return made


def begun(shop: Shop) -> None:
    """Read orders and refunds, of which each then has a file that the other one had before."""
    assert shop.reads(shop.files("orders", "orders"), shop.files("refunds", "refunds")) == [
        "orders/a",
        "orders/b",
        "refunds/a",
    ]
    shop.write("orders", "c")
    shop.write("refunds", "b")


def test_sources_with_uids_may_come_in_another_order(shop: Shop) -> None:
    begun(shop)
    sources = shop.files("refunds", "refunds"), shop.files("orders", "orders")
    assert shop.reads(*sources, restore=latest(shop.storage)) == ["orders/c", "refunds/b"]


def test_a_new_source_is_read_from_its_beginning(shop: Shop) -> None:
    begun(shop)
    sources = [shop.files(name, name) for name in ("other", "orders", "refunds")]
    assert shop.reads(*sources, restore=latest(shop.storage)) == ["orders/c", "other/a", "refunds/b"]
    position = latest(shop.storage).metadata.source_position
    assert set(position) == {"other", "orders", "refunds"}
    assert shop.reads(*sources, restore=latest(shop.storage)) == []


def test_a_source_is_given_up_only_on_demand(shop: Shop) -> None:
    begun(shop)
    kept = shop.storage.completed(latest(shop.storage).metadata.job_id)
    sources = shop.files("other", "other"), shop.files("refunds", "refunds")
    with pytest.raises(IncompatibleCheckpointError, match="positions of the sources 'orders'"):
        shop.reads(*sources, restore=latest(shop.storage))
    found = latest(shop.storage)
    assert shop.storage.completed(found.metadata.job_id) == kept
    assert shop.reads(*sources, restore=found, allow_non_restored_state=True) == ["other/a", "refunds/b"]
    assert set(latest(shop.storage).metadata.source_position) == {"other", "refunds"}


def test_a_checkpoint_of_before_fits_the_program_that_it_was_taken_with(shop: Shop) -> None:
    """Uids had no effect on sources then."""
    shop.reads(shop.files("orders", None), shop.files("refunds", None))
    assert set(latest(shop.storage).metadata.source_position) == {"files-0", "files-1"}
    begun_again = shop.files("orders", "orders"), shop.files("refunds", "refunds")
    shop.write("orders", "c")
    assert shop.reads(*begun_again, restore=latest(shop.storage)) == ["orders/c"]


def test_epochs_that_were_planned_with_fewer_sources_are_cut_as_they_were(storage: CheckpointFolders) -> None:
    rows: dict[int, list[int]] = {}

    def run(*uids: str, **settings: Any) -> JobRun:
        sources = [attrs.evolve(numbers(8, 3), uid=uid) for uid in uids]
        return JobRun(UnionNode(tuple(sources)), Table(rows), storage, checkpoints=RARELY, **settings)

    first = run("a", "b")
    first.runner.after = once(BadRecordError("bad input"), 3)
    with pytest.raises(BadRecordError):
        first.run()
    run("c", "b", "a", restore=latest(storage)).run()
    assert [sorted(rows[number]) for number in sorted(rows)] == [
        [0, 0, 1, 1, 2, 2],
        [3, 3, 4, 4, 5, 5],
        [6, 6, 7, 7],
        [0, 1, 2],
        [3, 4, 5],
        [6, 7],
    ]
