"""Chains of incremental checkpoints, and which of their files must stay."""

from __future__ import annotations

import pickle
import random
from collections import Counter

import attrs
import pytest
from support_runtime import ack, handle, metadata

from pyflinkstate.backends.format.metadata import OperatorState
from pyflinkstate.backends.format.state_handles import (
    ByteStreamStateHandle,
    FileStateHandle,
    KeyGroupsStateHandle,
    OperatorStateHandle,
    OperatorSubtaskState,
    RawOperatorStateHandle,
    StreamStateHandle,
)
from pyflinkstate.errors import CheckpointError
from pyflinkstate.runtime.master.shared_state import SHARED_PREFIX, SharedStateRegistry, shared_files
from pyflinkstate.runtime.wire.messages import CheckpointAck, SlotId

A, B = SlotId("count", 0), SlotId("count", 1)


def written(checkpoint_id: int, name: str, stream: StreamStateHandle | None = None) -> KeyGroupsStateHandle:
    """A handle of the file ``name`` in the shared folder, or of what else it is in."""
    stream = stream or FileStateHandle(SHARED_PREFIX + name, 10)
    return attrs.evolve(handle(), stream=stream, checkpoint_id=checkpoint_id)


def acked(
    checkpoint_id: int, keyed: KeyGroupsStateHandle | None, base_id: int | None = None, slot: SlotId = A
) -> CheckpointAck:
    return attrs.evolve(ack(checkpoint_id, slot), state=OperatorSubtaskState(keyed), base_id=base_id)


def full(checkpoint_id: int, slot: SlotId = A) -> CheckpointAck:
    """All state of a subtask, in the file ``f<id>``."""
    return acked(checkpoint_id, written(checkpoint_id, f"f{checkpoint_id}"), slot=slot)


def increment(checkpoint_id: int, base_id: int, slot: SlotId = A) -> CheckpointAck:
    """What changed since a checkpoint, in the file ``i<id>``."""
    return acked(checkpoint_id, written(checkpoint_id, f"i{checkpoint_id}"), base_id, slot)


def materialization(checkpoint_id: int) -> KeyGroupsStateHandle:
    return written(checkpoint_id, f"m{checkpoint_id}")


def shared(*names: str) -> set[str]:
    return {SHARED_PREFIX + name for name in names}


def chain(state: OperatorSubtaskState) -> list[str]:
    """The names of the files that are the keyed state, in order."""
    assert state.managed_keyed is not None
    return [file.path.removeprefix(SHARED_PREFIX) for file in state.managed_keyed.files()]


def completed(registry: SharedStateRegistry, *acks: CheckpointAck) -> dict[SlotId, OperatorSubtaskState]:
    """Lead a checkpoint to its end, as its acknowledgements are."""
    states = {each.slot: registry.whole(each) for each in acks}
    registry.register(acks[0].checkpoint_id, states)
    return states


def of_one_subtask(*acks: CheckpointAck) -> SharedStateRegistry:
    """A registry in which these checkpoints were completed, one after the other."""
    registry = SharedStateRegistry()
    for each in acks:
        completed(registry, each)
    return registry


def one_two_three() -> SharedStateRegistry:
    """All state at 1, and what changed until 2 and until 3."""
    return of_one_subtask(full(1), increment(2, 1), increment(3, 2))


class TestChains:
    def test_what_has_no_base_is_the_whole_state(self) -> None:
        assert one_two_three().whole(full(4)) == full(4).state

    def test_increments_follow_the_full_file_in_order(self) -> None:
        assert chain(one_two_three().whole(increment(4, 3))) == ["f1", "i2", "i3", "i4"]

    def test_a_chain_is_one_handle_with_increments_in_which_nothing_is_lost(self) -> None:
        (first, second) = (full(1).state.managed_keyed, increment(2, 1).state.managed_keyed)
        assert of_one_subtask(full(1)).whole(increment(2, 1)).managed_keyed == attrs.evolve(
            first, increments=(second,)
        )

    def test_a_later_checkpoint_than_the_base_is_good_as_well(self) -> None:
        """What changed since the base covers what changed since the later one."""
        assert chain(one_two_three().whole(increment(4, 1))) == ["f1", "i2", "i3", "i4"]
        registry = one_two_three()
        registry.unregister(1)
        registry.unregister(2)
        assert chain(registry.whole(increment(4, 1))) == ["f1", "i2", "i3", "i4"]

    def test_a_checkpoint_after_its_own_is_not(self) -> None:
        registry = of_one_subtask(full(1), increment(4, 1))
        assert chain(registry.whole(increment(3, 1))) == ["f1", "i3"]

    def test_a_checkpoint_in_which_all_was_written_anew_begins_the_chain(self) -> None:
        registry = of_one_subtask(full(1), increment(2, 1), full(3))
        assert chain(registry.whole(increment(4, 3))) == ["f3", "i4"]
        assert chain(registry.whole(increment(4, 2))) == ["f3", "i4"]

    def test_each_subtask_has_its_own(self) -> None:
        registry = SharedStateRegistry()
        other = acked(1, written(1, "other"), slot=B)
        completed(registry, full(1), other)
        states = completed(registry, increment(2, 1), acked(2, written(2, "other2"), 1, B))
        assert [chain(state) for state in states.values()] == [["f1", "i2"], ["other", "other2"]]

    def test_a_subtask_that_had_no_state_yet_begins_with_its_increment(self) -> None:
        registry = of_one_subtask(acked(1, None))
        assert registry.whole(acked(2, None, 1)).managed_keyed is None
        state = registry.whole(increment(2, 1))
        assert chain(state) == ["i2"]

    def test_where_no_increment_was_written_the_chain_stays(self) -> None:
        assert chain(one_two_three().whole(acked(4, None, 3))) == ["f1", "i2", "i3"]

    def test_what_is_in_the_metadata_has_its_place_in_the_chain(self) -> None:
        small = written(2, "", ByteStreamStateHandle(b"few changes"))
        state = of_one_subtask(full(1), acked(2, small, 1)).whole(increment(3, 2))
        assert chain(state) == ["f1", "i3"]
        assert state.managed_keyed is not None
        assert state.managed_keyed.increments[0] == small

    def test_other_state_is_the_checkpoints_own(self) -> None:
        own = attrs.evolve(
            increment(2, 1).state,
            raw_keyed=handle(data=b"raw"),
            managed_operator=OperatorStateHandle(ByteStreamStateHandle(b"list"), {}),
            raw_operator=RawOperatorStateHandle(ByteStreamStateHandle(b"raw list"), ()),
        )
        state = of_one_subtask(full(1)).whole(attrs.evolve(increment(2, 1), state=own))
        assert attrs.evolve(state, managed_keyed=own.managed_keyed) == own

    def test_asking_for_a_chain_changes_nothing(self) -> None:
        registry = one_two_three()
        assert registry.whole(increment(4, 3)) == registry.whole(increment(4, 3))
        assert registry.needed() == shared("f1", "i2", "i3")


class TestLostBase:
    def lost(self, registry: SharedStateRegistry) -> None:
        with pytest.raises(CheckpointError, match=r"count\[0\] .* checkpoint 3, which no longer exists"):
            registry.whole(increment(4, 3))

    def test_nothing_is_known(self) -> None:
        self.lost(SharedStateRegistry())

    def test_only_older_ones_are_known(self) -> None:
        self.lost(of_one_subtask(full(1), increment(2, 1)))

    def test_it_was_deleted(self) -> None:
        registry = one_two_three()
        registry.unregister(3)
        self.lost(registry)

    def test_it_is_of_an_attempt_before(self) -> None:
        registry = one_two_three()
        registry.begin_attempt()
        self.lost(registry)

    def test_it_is_of_an_earlier_run(self) -> None:
        registry = SharedStateRegistry()
        registry.register_restored(metadata_of(3, one_two_three().whole(increment(3, 2))))
        self.lost(registry)

    def test_what_is_whole_needs_none(self) -> None:
        assert chain(SharedStateRegistry().whole(full(4))) == ["f4"]


class TestMaterialization:
    @pytest.mark.parametrize(
        ("checkpoint_id", "expected"),
        [
            (1, ["f2", "i3", "i5", "i6"]),
            (2, ["f2", "i3", "i5", "i6"]),
            (3, ["m3", "i5", "i6"]),
            (4, ["m4", "i5", "i6"]),
            (5, ["m5", "i6"]),
            (6, ["m6"]),
            (7, ["f2", "i3", "i5", "i6"]),
        ],
        ids=[
            "older than the chain",
            "as old as the chain",
            "at an increment",
            "at one that was never complete",
            "at the base",
            "at the one acknowledged",
            "newer than the one acknowledged",
        ],
    )
    def test_a_chain_begins_at_it_where_it_fits(self, checkpoint_id: int, expected: list[str]) -> None:
        registry = of_one_subtask(full(2), increment(3, 2), increment(5, 3))
        registry.materialized(A, materialization(checkpoint_id))
        assert chain(registry.whole(increment(6, 5))) == expected

    def test_the_chains_after_it_go_on_from_it(self) -> None:
        registry = one_two_three()
        registry.materialized(A, materialization(3))
        completed(registry, increment(4, 3))
        assert chain(registry.whole(increment(5, 4))) == ["m3", "i4", "i5"]

    def test_a_checkpoint_whose_base_is_older_than_it_goes_on_from_it(self) -> None:
        registry = one_two_three()
        registry.materialized(A, materialization(2))
        assert chain(registry.whole(increment(4, 1))) == ["m2", "i3", "i4"]

    @pytest.mark.parametrize("order", [(2, 3), (3, 2)], ids=["in order", "the older one late"])
    def test_the_newest_counts(self, order: tuple[int, int]) -> None:
        registry = one_two_three()
        for checkpoint_id in order:
            registry.materialized(A, materialization(checkpoint_id))
        assert chain(registry.whole(increment(4, 3))) == ["m3", "i4"]

    def test_it_is_of_one_subtask(self) -> None:
        registry = SharedStateRegistry()
        completed(registry, full(1), full(1, B))
        registry.materialized(B, materialization(1))
        registry.materialized(B, materialization(2))
        assert chain(registry.whole(increment(2, 1))) == ["f1", "i2"]
        assert chain(registry.whole(increment(2, 1, B))) == ["m2"]

    def test_that_of_an_attempt_before_is_not_used(self) -> None:
        registry = one_two_three()
        registry.materialized(A, materialization(5))
        registry.begin_attempt()
        completed(registry, full(4))
        assert chain(registry.whole(increment(6, 4))) == ["f4", "i6"]

    def test_it_does_not_stand_for_what_is_whole(self) -> None:
        registry = one_two_three()
        registry.materialized(A, materialization(4))
        assert chain(registry.whole(full(4))) == ["f4"]

    def test_where_no_increment_was_written_it_stands_alone(self) -> None:
        registry = one_two_three()
        registry.materialized(A, materialization(3))
        assert chain(registry.whole(acked(4, None, 3))) == ["m3"]


def metadata_of(checkpoint_id: int, *states: OperatorSubtaskState) -> object:
    return metadata(checkpoint_id, operators=[OperatorState("count", len(states), 128, states)])


class TestFiles:
    def test_shared_files_are_those_of_managed_keyed_state_in_the_shared_folder(self) -> None:
        own = FileStateHandle("own", 10)
        keyed = attrs.evolve(
            written(1, "full"),
            increments=(written(2, "", own), written(3, "more"), written(4, "", ByteStreamStateHandle(b""))),
        )
        state = OperatorSubtaskState(keyed, written(1, "", own))
        assert shared_files([state, OperatorSubtaskState()]) == shared("full", "more")
        assert shared_files([OperatorSubtaskState(written(1, "", own))]) == set()
        assert shared_files([]) == set()

    def test_at_first_nothing_is_needed(self) -> None:
        assert SharedStateRegistry().needed() == set()

    def test_what_a_later_chain_is_made_of_stays(self) -> None:
        registry = one_two_three()
        assert [registry.unregister(1), registry.unregister(2)] == [set(), set()]
        assert registry.needed() == shared("f1", "i2", "i3")
        assert registry.unregister(3) == shared("f1", "i2", "i3")
        assert registry.needed() == set()

    def test_what_only_the_deleted_one_is_made_of_goes(self) -> None:
        registry = of_one_subtask(full(1), increment(2, 1), full(3))
        assert registry.unregister(1) == set()
        assert registry.unregister(2) == shared("f1", "i2")
        assert registry.needed() == shared("f3")

    def test_the_files_of_all_subtasks_go(self) -> None:
        registry = SharedStateRegistry()
        completed(registry, full(1), acked(1, written(1, "other"), slot=B))
        completed(registry, full(2), full(2, B))
        assert registry.unregister(1) == shared("f1", "other")

    def test_one_that_is_not_known_has_none(self) -> None:
        registry = one_two_three()
        registry.unregister(3)
        assert registry.unregister(3) == registry.unregister(9) == set()

    def test_after_a_materialization_the_chain_before_it_goes(self) -> None:
        registry = one_two_three()
        registry.materialized(A, materialization(3))
        completed(registry, increment(4, 3))
        assert [registry.unregister(1), registry.unregister(2)] == [set(), set()]
        assert registry.unregister(3) == shared("f1", "i2", "i3")
        assert registry.needed() == shared("m3", "i4")

    def test_a_materialization_stays_while_a_chain_may_begin_there(self) -> None:
        registry = one_two_three()
        registry.materialized(A, materialization(3))
        assert registry.needed() == shared("f1", "i2", "i3", "m3")

    def test_a_materialization_stays_while_a_chain_begins_there(self) -> None:
        registry = one_two_three()
        registry.materialized(A, materialization(2))
        completed(registry, increment(4, 3))
        registry.materialized(A, materialization(4))
        assert registry.needed() == shared("f1", "i2", "i3", "i4", "m2", "m4")

    def test_an_attempt_that_begins_keeps_what_completed_checkpoints_need(self) -> None:
        registry = one_two_three()
        registry.materialized(A, materialization(3))
        registry.begin_attempt()
        assert registry.needed() == shared("f1", "i2", "i3")
        completed(registry, full(4))
        assert [registry.unregister(1), registry.unregister(2)] == [set(), set()]
        assert registry.unregister(3) == shared("f1", "i2", "i3")

    def test_those_of_an_earlier_run_stay_until_it_is_deleted(self) -> None:
        state = one_two_three().whole(increment(4, 3))
        registry = SharedStateRegistry()
        registry.register_restored(metadata_of(4, state, OperatorSubtaskState()))
        registry.begin_attempt()
        completed(registry, full(5))
        assert registry.needed() == shared("f1", "i2", "i3", "i4", "f5")
        assert registry.unregister(4) == shared("f1", "i2", "i3", "i4")


class TestFilesThatNoChainTookUp:
    """They are in the shared folder, and somebody has to say that they may go."""

    def test_an_increment_that_a_materialization_overtook(self) -> None:
        registry = of_one_subtask(full(1))
        registry.materialized(A, materialization(2))
        assert chain(completed(registry, increment(2, 1))[A]) == ["m2"]
        assert registry.unregister(1) == shared("f1", "i2")

    @pytest.mark.parametrize("order", [(2, 3), (3, 2)], ids=["in order", "the older one late"])
    def test_a_materialization_that_a_newer_one_overtook(self, order: tuple[int, int]) -> None:
        registry = of_one_subtask(full(1))
        for checkpoint_id in order:
            registry.materialized(A, materialization(checkpoint_id))
        assert chain(completed(registry, increment(4, 1))[A]) == ["m3", "i4"]
        assert registry.unregister(1) == shared("f1", "m2")


# --- simulation ----------------------------------------------------------------------------------------

SEEDS_PER_BLOCK = 60
BLOCKS = 10
STEPS = 120
KEYS = range(6)
SLOTS = [A, B]
Changes = dict[int, int | None]  # None: deleted
State = dict[int, int]

REMARKABLE = {
    "completed",
    "aborted",
    "subsumed",
    "deleted",
    "given up",
    "late base",
    "restarted",
    "new run",
    "inline",
    "materialized",
    "materialized before its checkpoint completed",
    "materialized after a later checkpoint completed",
    "chain begins at a materialization",
    "chain of three",
    "no state yet",
}


@attrs.define
class Subtask:
    """What a slot knows: its state, and what changed between the barriers (None: it has no state yet)."""

    state: State | None
    cuts: dict[int, set[int]] = attrs.Factory(dict)
    changed: set[int] = attrs.Factory(set)
    base_id: int | None = None


@attrs.define
class Pending:
    checkpoint_id: int
    acks: dict[SlotId, CheckpointAck] = attrs.Factory(dict)
    model: dict[SlotId, State | None] = attrs.Factory(dict)
    base_id: int | None = None


class Simulation:
    """A job of two subtasks that change, delete, take checkpoints, lose some, restart.

    ``files`` is the storage, where a file is a dict of changes; ``model`` is what each checkpoint stands for.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.num_retained = self.rng.choice([1, 2, 4])
        self.max_concurrent = self.rng.choice([1, 2, 4])
        self.registry = SharedStateRegistry()
        self.files: dict[str, Changes] = {}
        self.subtasks = {slot: Subtask(None) for slot in SLOTS}
        self.model: dict[int, dict[SlotId, State | None]] = {}
        self.states: dict[int, dict[SlotId, OperatorSubtaskState]] = {}
        self.pending: dict[int, Pending] = {}
        self.on_the_way: list[tuple[SlotId, KeyGroupsStateHandle]] = []
        self.materializations: set[StreamStateHandle] = set()
        self.last_id = 0
        self.seen: Counter[str] = Counter()

    def run(self) -> Counter[str]:
        steps = [
            *[self.change] * 8,
            *[self.trigger] * 5,
            *[self.complete] * 4,
            *[self.materialize] * 3,
            self.abort,
        ]
        rarely = [self.restart, self.begin_new_run]
        for _ in range(STEPS):
            self.rng.choice(steps if self.rng.random() < 0.98 else rarely)()
            self.check()
        return self.seen

    def check(self) -> None:
        needed = self.registry.needed()
        for checkpoint_id, states in self.states.items():
            for slot, state in states.items():
                assert self.read(state) == self.model[checkpoint_id][slot], (checkpoint_id, slot)
            assert shared_files(states.values()) <= needed & set(self.files)

    def read(self, state: OperatorSubtaskState) -> State | None:
        """Restore from the files."""
        keyed = state.managed_keyed
        if keyed is None:
            return None
        self.seen["chain of three"] += len(keyed.increments) == 2
        self.seen["chain begins at a materialization"] += keyed.stream in self.materializations
        restored: State = {}
        for each in (keyed, *keyed.increments):
            for key, value in self.contents(each.stream).items():
                if value is None:
                    restored.pop(key, None)
                else:
                    restored[key] = value
        return restored

    def contents(self, stream: StreamStateHandle) -> Changes:
        if isinstance(stream, FileStateHandle):
            return self.files[stream.path]
        return pickle.loads(stream.data)

    def write(self, checkpoint_id: int, changes: Changes) -> KeyGroupsStateHandle:
        if self.rng.random() < 0.15:
            self.seen["inline"] += 1
            return written(checkpoint_id, "", ByteStreamStateHandle(pickle.dumps(changes)))
        name = f"{checkpoint_id}-{len(self.files)}-{self.rng.random()}"
        self.files[SHARED_PREFIX + name] = changes
        return written(checkpoint_id, name)

    # --- the subtasks ------------------------------------------------------------------------------

    def change(self) -> None:
        subtask = self.subtasks[self.rng.choice(SLOTS)]
        if subtask.state is None:
            subtask.state = {}
        key = self.rng.choice(KEYS)
        if self.rng.random() < 0.3:
            subtask.state.pop(key, None)
        else:
            subtask.state[key] = self.rng.randrange(1000)
        subtask.changed.add(key)

    def trigger(self) -> None:
        if len(self.pending) == self.max_concurrent:
            return
        self.last_id += 1
        pending = self.pending[self.last_id] = Pending(self.last_id, base_id=max(self.model, default=None))
        for slot in SLOTS:
            self.take_snapshot(pending, slot)

    def take_snapshot(self, pending: Pending, slot: SlotId) -> None:
        """As a slot does: what changed since the base, or all where the base is of an attempt before."""
        checkpoint_id, base_id, subtask = pending.checkpoint_id, pending.base_id, self.subtasks[slot]
        subtask.cuts[checkpoint_id], subtask.changed = subtask.changed, set()
        state = None if subtask.state is None else dict(subtask.state)
        pending.model[slot] = state
        if base_id is None or (base_id not in subtask.cuts and base_id != subtask.base_id):
            base_id, keys = None, set(state or ())
        else:
            subtask.base_id = base_id
            subtask.cuts = {cut: keys for cut, keys in subtask.cuts.items() if cut > base_id}
            keys = set().union(*subtask.cuts.values())
        self.seen["no state yet"] += state is None and base_id is not None
        keyed = None
        if state is not None:
            keyed = self.write(checkpoint_id, {key: state.get(key) for key in keys})
            if base_id is not None and self.rng.random() < 0.3:
                self.on_the_way.append((slot, self.write(checkpoint_id, dict(state))))
        pending.acks[slot] = acked(checkpoint_id, keyed, base_id, slot)

    # --- the coordinator ---------------------------------------------------------------------------

    def complete(self) -> None:
        if not self.pending:
            return
        done = self.pending.pop(self.rng.choice(list(self.pending)))
        checkpoint_id = done.checkpoint_id
        self.seen["late base"] += done.base_id != max(self.model, default=None)
        states = {slot: self.registry.whole(each) for slot, each in done.acks.items()}
        self.registry.register(checkpoint_id, states)
        self.states[checkpoint_id], self.model[checkpoint_id] = states, done.model
        self.seen["completed"] += 1
        for older in [number for number in self.pending if number < checkpoint_id]:
            self.seen["subsumed"] += 1
            self.abandon(older)
        for surplus in list(self.model)[: -self.num_retained]:
            self.delete(surplus)

    def materialize(self) -> None:
        """What a slot wrote in the background arrives, in any order; it may also have got lost."""
        if not self.on_the_way:
            return
        slot, keyed = self.on_the_way.pop(self.rng.randrange(len(self.on_the_way)))
        if self.rng.random() < 0.1:
            return
        self.seen["materialized"] += 1
        self.seen["materialized before its checkpoint completed"] += keyed.checkpoint_id in self.pending
        self.seen["materialized after a later checkpoint completed"] += keyed.checkpoint_id < max(self.model)
        self.registry.materialized(slot, keyed)
        self.materializations.add(keyed.stream)

    def abort(self) -> None:
        if self.pending:
            self.seen["aborted"] += 1
            self.abandon(self.rng.choice(list(self.pending)))

    def abandon(self, checkpoint_id: int) -> None:
        acks = self.pending.pop(checkpoint_id).acks.values()
        self.remove(shared_files(each.state for each in acks) - self.registry.needed())

    def delete(self, checkpoint_id: int) -> None:
        self.seen["deleted"] += 1
        del self.model[checkpoint_id], self.states[checkpoint_id]
        unneeded = self.registry.unregister(checkpoint_id)
        self.seen["given up"] += bool(unneeded)
        assert not unneeded & self.registry.needed()
        self.remove(unneeded)

    def remove(self, paths: set[str]) -> None:
        for path in paths:
            del self.files[path]

    def restart(self) -> None:
        """The slots are new, and have the state of the newest checkpoint; what nobody needs is swept away."""
        self.seen["restarted"] += 1
        self.pending.clear()
        self.on_the_way.clear()
        self.registry.begin_attempt()
        self.remove(set(self.files) - self.registry.needed())
        newest = self.model[max(self.model)] if self.model else dict.fromkeys(SLOTS)
        self.subtasks = {
            slot: Subtask(None if state is None else dict(state)) for slot, state in newest.items()
        }

    def begin_new_run(self) -> None:
        """Another driver, which knows of the checkpoints by their metadata."""
        self.seen["new run"] += 1
        self.registry = SharedStateRegistry()
        for checkpoint_id, states in self.states.items():
            self.registry.register_restored(metadata_of(checkpoint_id, *states.values()))
        self.restart()


@pytest.mark.parametrize("block", range(BLOCKS))
def test_every_chain_is_what_its_checkpoint_stands_for(block: int) -> None:
    seen: Counter[str] = Counter()
    for seed in range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK):
        try:
            seen += Simulation(seed).run()
        except (AssertionError, LookupError, CheckpointError) as error:
            raise AssertionError(f"seed {seed}: {error!r}") from error
    assert set(seen) == REMARKABLE, "the histories are too much alike to test anything"
