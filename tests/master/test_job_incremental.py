"""Jobs with incremental checkpoints: what they restore, and what lies in ``shared/`` meanwhile and after."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import attrs
import pytest
from slot_functions import Basket, Poisoned
from support_job import JobRun, PacedSource, latest, once, restore_point
from support_runtime import PICKLED
from support_slots import SLOTS, ActingRunner, ServedSlot

from pyflinkstate import FileSystemCheckpointStorage
from pyflinkstate.backends.format import CheckpointMetadata, KeyGroupsStateHandle, OperatorSubtaskState
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.errors import BadRecordError, CheckpointStorageError, SparkJobError
from pyflinkstate.runtime.engine import EpochRequest
from pyflinkstate.runtime.master import RestorePoint
from pyflinkstate.runtime.master.checkpoint_files import shared_files
from pyflinkstate.runtime.plan import SourceNode, StatefulNode
from pyflinkstate.runtime.settings import CheckpointSettings
from pyflinkstate.runtime.sources import CollectionSource
from pyflinkstate.runtime.storage import CheckpointFolders
from pyflinkstate.runtime.wire import CheckpointAck, StateMaterialized

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def storage(tmp_path: Path) -> CheckpointFolders:
    return without_inline_state(tmp_path)


def without_inline_state(folder: Path) -> CheckpointFolders:
    """Return storage that puts state of any size into files, so that a test can look at them."""
    settings = FileSystemCheckpointStorage(str(folder / "checkpoints"), 0, write_buffer_size=0)
    return CheckpointFolders(settings)


def incremental(**settings: Any) -> CheckpointSettings:
    return attrs.evolve(
        CheckpointSettings(interval_ms=0, incremental=True, materialization_interval=100), **settings
    )


def lies_in_shared(storage: CheckpointFolders, job_id: str) -> set[str]:
    folder = Path(storage.uri, job_id, "shared")
    return {f"../shared/{path.name}" for path in folder.iterdir()} if folder.exists() else set()


def needed(storage: CheckpointFolders, job_id: str, checkpoint_ids: Iterable[int] | None = None) -> set[str]:
    """Return what the completed checkpoints of a job, or certain ones, need of ``shared/``."""
    ids = storage.completed(job_id) if checkpoint_ids is None else checkpoint_ids
    loaded = [storage.load(storage.uri_of(job_id, checkpoint_id)) for checkpoint_id in ids]
    return shared_files(
        subtask for metadata in loaded for operator in metadata.operators for subtask in operator.subtasks
    )


def chains(storage: CheckpointFolders, job_id: str, checkpoint_id: int) -> list[list[int]]:
    """Return, for each subtask, the checkpoints at which the files of its chain were written."""
    (operator,) = storage.load(storage.uri_of(job_id, checkpoint_id)).operators
    handles = [subtask.managed_keyed for subtask in operator.subtasks]
    return [[written.checkpoint_id for written in (handle, *handle.increments)] for handle in handles]


# --- what is restored ----------------------------------------------------------------------------------


def shopping(count: int) -> list[tuple[str, str, int]]:
    """Return records of some twenty keys that add to state, remove of it, and clear it."""
    rng = random.Random(7)
    return [
        (f"key-{rng.randrange(20)}", f"item-{rng.randrange(5)}", rng.choice([-1, 0, 1, 2, 3, 4, 5]))
        for _ in range(count)
    ]


def expected_of(records: list[tuple[str, str, int]]) -> Counter[Any]:
    """Return what ``Basket`` gives, computed with plain dicts."""
    baskets: dict[str, tuple[int | None, dict[str, int], list[int]]] = {}
    out: Counter[Any] = Counter()
    for key, item, amount in records:
        total, items, amounts = baskets.get(key, (None, {}, []))
        if amount == 0:
            total, items, amounts = None, {}, []
        elif amount < 0:
            items.pop(item, None)
        else:
            total, items, amounts = (total or 0) + amount, {**items, item: amount}, [*amounts, amount]
        baskets[key] = total, items, amounts
        out[key, total, tuple(sorted(items.items())), tuple(amounts)] += 1
    return out


RECORDS = shopping(240)
RECORDS_PER_EPOCH = 30


@attrs.define
class Observed:
    """What lay in ``shared/`` when a checkpoint was complete, and what was needed of it."""

    checkpoint_id: int
    lies: set[str]
    needed: set[str]
    chains: list[list[int]]


@attrs.define
class Shop:
    """A job over ``RECORDS`` that waits for each checkpoint and looks at ``shared/`` then."""

    storage: CheckpointFolders
    out: list[Any] = attrs.Factory(list)
    observed: list[Observed] = attrs.Factory(list)

    def run(self, **settings: Any) -> JobRun:
        source = PacedSource(CollectionSource(RECORDS, RECORDS_PER_EPOCH), lambda: made.settled())
        node = StatefulNode(
            SourceNode(source, "orders"), lambda record: record[0], PICKLED, Basket(), "process"
        )
        made = JobRun(node, out=self.out, storage=self.storage, **settings)
        made.runner.before = lambda request: self.look(made, request)
        return made

    def look(self, run: JobRun, request: EpochRequest) -> None:
        if not run.heard.checkpoints:
            return
        job_id = Path(request.barrier.folder).parent.name
        checkpoint_id = run.heard.checkpoints[-1].checkpoint_id
        self.observed.append(
            Observed(
                checkpoint_id,
                lies_in_shared(self.storage, job_id),
                needed(self.storage, job_id),
                chains(self.storage, job_id, checkpoint_id),
            )
        )


def test_a_chain_restores_to_what_a_run_without_interruption_has(storage: CheckpointFolders) -> None:
    shop = Shop(storage)
    stopped = shop.run(parallelism=2, checkpoints=incremental(num_retained=2))
    stopped.runner.after = once(BadRecordError("bad input"), 6)
    stopped.fails(BadRecordError)

    first, *others = stopped.heard.checkpoints
    assert not first.is_incremental
    assert first.checkpointed_bytes == first.size_bytes
    assert [stats.is_incremental for stats in others] == [True] * 4
    assert all(0 < stats.checkpointed_bytes < stats.size_bytes for stats in others)
    for number, seen in enumerate(shop.observed, start=1):
        assert seen.chains == [list(range(1, number + 1))] * 2
        assert seen.lies == seen.needed
        assert len(seen.lies) == 2 * number
    assert lies_in_shared(storage, stopped.job_id) == shop.observed[-1].needed, "the last one was given up"

    restored = shop.run(parallelism=3, checkpoints=incremental(), restore=latest(storage))
    assert restored.run().job_id == stopped.job_id
    assert Counter(shop.out) == expected_of(RECORDS)
    assert shop.observed[-1].chains == [[6, 7]] * 3, "new slots begin with all of their state"
    assert lies_in_shared(storage, stopped.job_id) == needed(storage, stopped.job_id)
    assert storage.completed(stopped.job_id) == [8]


def test_the_full_size_is_what_a_restore_reads(storage: CheckpointFolders) -> None:
    run = Shop(storage).run(parallelism=2, checkpoints=incremental())
    job_id = run.run().job_id
    last = run.heard.checkpoints[-1]
    folder = Path(storage.uri_of(job_id, last.checkpoint_id))
    files = [folder / path for path in needed(storage, job_id)]
    assert last.is_incremental
    assert last.size_bytes == sum(file.stat().st_size for file in files) > last.checkpointed_bytes


def test_a_checkpoint_takes_at_least_as_long_as_each_of_its_parts(storage: CheckpointFolders) -> None:
    """Subtasks reach the barrier before the epoch ends, and write meanwhile; the driver's clock is still."""
    run = Shop(storage).run(parallelism=2, checkpoints=incremental())
    stats = run.run().result().checkpoints
    assert [one for one in stats if one.duration_ms < max(one.sync_ms, one.async_ms)] == []
    assert min(one.async_ms for one in stats) > 0


# --- checkpoints that come to nothing ------------------------------------------------------------------


#: Three records each epoch, and the fifth makes a checkpoint fail. "c" changes with that one and the last.
RECORDS_WITH_POISON = [
    *[("a", ""), ("b", ""), ("d", "")],
    *[("a", ""), ("b", "poison"), ("c", "")],
    *[("a", ""), ("b", ""), ("d", "")],
    *[("a", ""), ("b", ""), ("c", "")],
]
COUNTED = [*((key, number) for key in "ab" for number in range(1, 5)), ("c", 1), ("c", 2), ("d", 1), ("d", 2)]


def poisoned(storage: CheckpointFolders, gate: str | None = None, **settings: Any) -> JobRun:
    """Return a job over these records."""
    source = PacedSource(CollectionSource(RECORDS_WITH_POISON, 3), lambda: made.settled())
    node = StatefulNode(
        SourceNode(source, "records"), lambda record: record[0], PICKLED, Poisoned(gate), "process"
    )
    made = JobRun(node, storage=storage, **settings)
    return made


def test_what_an_aborted_checkpoint_wrote_goes_and_what_it_had_is_in_the_next(
    storage: CheckpointFolders,
) -> None:
    run = poisoned(storage, parallelism=2, checkpoints=incremental(tolerable_failures=1))
    seen: list[tuple[set[str], set[str]]] = []

    def before(request: EpochRequest) -> None:
        if request.link.epoch == 4:
            job_id = Path(request.barrier.folder).parent.name
            seen.append((lies_in_shared(storage, job_id), needed(storage, job_id)))
            assert chains(storage, job_id, 3) == [[1, 3], [1, 3]]
            raise SparkJobError("an executor was lost")

    run.runner.before = before
    run.fails(SparkJobError)
    assert [stats.checkpoint_id for stats in run.heard.failed] == [2, 4]
    ((lies, expected),) = seen
    assert lies == expected
    assert len(lies) == 4
    again = poisoned(storage, parallelism=1, restore=latest(storage), checkpoints=incremental())
    assert sorted(run.out + again.results()) == sorted(COUNTED)


# --- acted slots: messages in every order --------------------------------------------------------------


@attrs.define
class Writer:
    """Writes as slots would, and says so; bytes take the place of state."""

    storage: CheckpointFolders
    #: The checkpoints that these slots took part in: increments are put on top of such.
    known: set[int] = attrs.Factory(set)

    def written(self, request: EpochRequest, checkpoint_id: int) -> KeyGroupsStateHandle:
        streams = self.storage.streams(request.barrier.folder, shared_by=checkpoint_id)
        stream = streams.create()
        stream.write(b"state")
        return KeyGroupsStateHandle(
            KeyGroupRange(0, 127), stream.close_and_get_handle(), {}, checkpoint_id=checkpoint_id
        )

    def acknowledge(self, request: EpochRequest, slots: list[ServedSlot]) -> None:
        checkpoint_id, base_id = request.barrier.checkpoint_id, request.barrier.base_id
        self.known.add(checkpoint_id)
        for slot in slots:
            state = OperatorSubtaskState(self.written(request, checkpoint_id))
            known = base_id if base_id in self.known else None
            slot.connection.send(CheckpointAck(checkpoint_id, slot.slot_id, state, 0.5, 1.5, known))

    def materialize(self, request: EpochRequest, slots: list[ServedSlot]) -> None:
        checkpoint_id = request.barrier.checkpoint_id
        for slot in slots:
            full = self.written(request, checkpoint_id)
            slot.connection.send(StateMaterialized(checkpoint_id, slot.slot_id, full))


Act = Callable[[Writer, EpochRequest, list[ServedSlot]], None]


def acted(storage: CheckpointFolders, act: Act, count: int = 12, **settings: Any) -> JobRun:
    """Return a job of three numbers an epoch, over acted slots, that waits for each checkpoint."""
    writer = Writer(storage)
    source = PacedSource(CollectionSource(list(range(count)), 3), lambda: made.settled())
    node = StatefulNode(SourceNode(source, "numbers"), lambda n: n, PICKLED, Basket(), "process")
    runner = ActingRunner(lambda request, slots: act(writer, request, slots))
    made = JobRun(node, storage=storage, parallelism=len(SLOTS), runner=runner, **settings)
    return made


def chain_of(storage: CheckpointFolders, request: EpochRequest, checkpoint_id: int) -> list[int]:
    """Return the chain of each slot, while nothing lies in ``shared/`` that is not needed."""
    job_id = Path(request.barrier.folder).parent.name
    assert lies_in_shared(storage, job_id) == needed(storage, job_id)
    (chain, other) = chains(storage, job_id, checkpoint_id)
    assert chain == other
    return chain


def fails_in_the_third(writer: Writer, request: EpochRequest, slots: list[ServedSlot]) -> None:
    if request.link.epoch == 3 and request.link.driver.attempt == 0:
        raise BadRecordError("bad input")
    writer.acknowledge(request, slots)


def ended_by_bad_input(storage: CheckpointFolders, act: Act, **settings: Any) -> RestorePoint:
    """Run a job that fails for good, and return its last checkpoint."""
    acted(storage, act, checkpoints=incremental(**settings)).fails(BadRecordError)
    return latest(storage)


class TestMaterialization:
    def test_it_is_asked_for_each_so_many_increments(self, storage: CheckpointFolders) -> None:
        settings = incremental(materialization_interval=2)
        run = acted(storage, Writer.acknowledge, count=15, checkpoints=settings)
        run.run()
        barriers = [request.barrier for request in run.runner.requests]
        assert [barrier.base_id for barrier in barriers] == [None, 1, 2, 3, 4]
        assert [barrier.materialize for barrier in barriers] == [False, False, True, False, True]

    @pytest.mark.parametrize("before_the_checkpoint", [True, False])
    def test_it_takes_the_place_of_what_was_written_before(
        self, storage: CheckpointFolders, before_the_checkpoint: bool
    ) -> None:
        def act(writer: Writer, request: EpochRequest, slots: list[ServedSlot]) -> None:
            if request.link.epoch == 2 and before_the_checkpoint:
                writer.materialize(request, slots)
            if request.link.epoch == 3 and not before_the_checkpoint:
                writer.materialize(run.runner.requests[1], slots)
            if request.link.epoch == 4:
                looked.append(chain_of(storage, request, 3))
            writer.acknowledge(request, slots)

        looked: list[list[int]] = []
        run = acted(storage, act, checkpoints=incremental())
        run.run()
        assert looked == [[2, 3]]


class TestSeveralAtOnce:
    """Two checkpoints are on their way, both put on top of the first."""

    def test_an_increment_on_top_of_what_is_not_there_is_a_checkpoint_that_failed(
        self, storage: CheckpointFolders
    ) -> None:
        def act(writer: Writer, request: EpochRequest, slots: list[ServedSlot]) -> None:
            if request.link.epoch == 2:
                writer.known.add(77)
                request = attrs.evolve(request, barrier=attrs.evolve(request.barrier, base_id=77))
            writer.acknowledge(request, slots)

        run = acted(storage, act, checkpoints=incremental(tolerable_failures=1))
        job = run.run()
        (failed,) = run.heard.failed
        assert "changed since checkpoint 77, which no longer exists" in failed.failure
        assert chains(storage, job.job_id, 4) == [[1, 3, 4]] * 2
        assert lies_in_shared(storage, job.job_id) == needed(storage, job.job_id)


class TestAfterTheEnd:
    @pytest.mark.parametrize("is_incremental", [True, False])
    def test_restoring_an_older_checkpoint_keeps_all_that_newer_ones_need(
        self, storage: CheckpointFolders, is_incremental: bool
    ) -> None:
        first = acted(storage, Writer.acknowledge, checkpoints=incremental(num_retained=4))
        job_id = first.run().job_id
        assert storage.completed(job_id) == [1, 2, 3, 4]

        def act(writer: Writer, request: EpochRequest, slots: list[ServedSlot]) -> None:
            raise BadRecordError("enough seen")

        settings = incremental(num_retained=4, incremental=is_incremental)
        restored = acted(storage, act, checkpoints=settings, restore=restore_point(storage, job_id, 2))
        restored.fails(BadRecordError)
        assert storage.completed(job_id) == [1, 2]
        aside = [storage.load(uri) for uri in storage.superseded(job_id)]
        assert sorted(metadata.checkpoint_id for metadata in aside) == [3, 4]
        states = [state for metadata in aside for op in metadata.operators for state in op.subtasks]
        assert lies_in_shared(storage, job_id) == needed(storage, job_id) | shared_files(states)

    def test_files_of_a_checkpoint_that_could_not_be_read_go_when_it_has_been_subsumed(
        self, storage: CheckpointFolders
    ) -> None:
        newest = ended_by_bad_input(storage, fails_in_the_third, num_retained=2)
        job_id = newest.metadata.job_id
        assert storage.completed(job_id) == [1, 2]
        Path(storage.uri_of(job_id, 1), "_metadata").write_bytes(b"damaged")
        unknown = Path(storage.uri, job_id, "shared", f"1-{'0' * 32}")
        unknown.write_bytes(b"state")
        acted(storage, Writer.acknowledge, checkpoints=incremental(num_retained=2), restore=newest).run()
        assert 1 not in storage.checkpoint_ids(job_id)
        assert not unknown.exists()
        assert lies_in_shared(storage, job_id) == needed(storage, job_id)


class Flaky(CheckpointFolders):
    """Cannot read checkpoints whose folders have certain names."""

    unreadable: tuple[str, ...] = ()

    def load(self, uri: str) -> CheckpointMetadata:
        if uri.endswith(self.unreadable):
            raise CheckpointStorageError(f"checkpoint storage: cannot read {uri}: it took too long")
        return super().load(uri)


class TestCheckpointsThatCannotBeRead:
    @pytest.fixture
    def storage(self, tmp_path: Path) -> Flaky:
        return Flaky(without_inline_state(tmp_path).settings)

    def test_what_one_may_share_stays_when_others_are_subsumed(self, storage: Flaky) -> None:
        """All state is written anew behind checkpoint 2, so later ones do not share what 1 and 2 do."""

        def act(writer: Writer, request: EpochRequest, slots: list[ServedSlot]) -> None:
            if request.link.epoch == 3:
                writer.materialize(first.runner.requests[1], slots)
            if request.link.epoch == 4:
                raise BadRecordError("bad input")
            writer.acknowledge(request, slots)

        first = acted(storage, act, checkpoints=incremental(num_retained=3))
        first.fails(BadRecordError)
        newest = latest(storage)
        job_id = newest.metadata.job_id
        assert [chains(storage, job_id, number)[0] for number in (1, 2, 3)] == [[1], [1, 2], [2, 3]]

        def act_again(writer: Writer, request: EpochRequest, slots: list[ServedSlot]) -> None:
            storage.unreadable = ()
            writer.acknowledge(request, slots)

        storage.unreadable = ("/chk-2",)
        settings = incremental(num_retained=3)
        acted(storage, act_again, checkpoints=settings, restore=newest).run()
        assert storage.completed(job_id)[:2] == [2, 3]
        assert needed(storage, job_id, [2]) <= lies_in_shared(storage, job_id)
        left = lies_in_shared(storage, job_id) - needed(storage, job_id)
        assert left == set(), "what checkpoint 1 had, 2 has as well"
