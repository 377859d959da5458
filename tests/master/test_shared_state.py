"""The files that checkpoints share: which chains there are, and what goes with a deleted checkpoint."""

from __future__ import annotations

import pickle
import random
from collections import Counter

import attrs
import pytest
from support_runtime import ack, handle, metadata

from pyflinkstate.backends.format import (
    ByteStreamStateHandle,
    FileStateHandle,
    KeyGroupsStateHandle,
    OperatorState,
    OperatorStateHandle,
    OperatorSubtaskState,
    RawOperatorStateHandle,
    StreamStateHandle,
)
from pyflinkstate.errors import CheckpointError
from pyflinkstate.runtime.master.checkpoint_files import SHARED_PREFIX, SharedStateRegistry, shared_files
from pyflinkstate.runtime.wire import CheckpointAck, SlotId

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


def shared(names: str) -> set[str]:
    return {SHARED_PREFIX + name for name in names.split()}


def chain(state: OperatorSubtaskState) -> str:
    """The names of the files that are the keyed state, in order."""
    files = () if state.managed_keyed is None else state.managed_keyed.files()
    return " ".join(file.path.removeprefix(SHARED_PREFIX) for file in files)


def completed(registry: SharedStateRegistry, *acks: CheckpointAck) -> None:
    """Lead a checkpoint to its end, as its acknowledgements are."""
    registry.register(acks[0].checkpoint_id, {each.slot: registry.whole(each) for each in acks})


def slot_of(name: str) -> SlotId:
    return B if name.endswith("B") else A


def acknowledged(text: str) -> CheckpointAck:
    """``f1``: all state at 1. ``i2/1``: what changed since 1. ``n2/1``: nothing did. ``B``: another slot."""
    name, _, base = text.removesuffix("B").partition("/")
    number, slot, suffix = int(name[1:]), slot_of(text), text[-1:] if text.endswith("B") else ""
    keyed = None if name[0] == "n" else written(number, name + suffix)
    return acked(number, keyed, int(base) if base else None, slot)


def after(history: str) -> SharedStateRegistry:
    """A registry after completed checkpoints, ``m3``: a materialization, ``-1``: a deletion, and restarts."""
    registry = SharedStateRegistry()
    for step in history.split():
        if step == "restart":
            registry.begin_attempt()
        elif step[0] == "m":
            registry.materialized(slot_of(step), written(int(step[1:].removesuffix("B")), step))
        elif step[0] == "-":
            registry.unregister(int(step[1:]))
        else:
            completed(registry, *map(acknowledged, step.split("+")))
    return registry


@pytest.mark.parametrize(
    ("history", "ack", "expected"),
    [
        ("f1 i2/1 i3/2", "f4", "f4"),
        ("f1 i2/1 i3/2", "i4/3", "f1 i2 i3 i4"),
        ("f1 i2/1 i3/2", "i4/1", "f1 i2 i3 i4"),
        ("f1 i2/1 i3/2 -1 -2", "i4/1", "f1 i2 i3 i4"),
        ("f1 i4/1", "i3/1", "f1 i3"),
        ("f1 i2/1 f3", "i4/3", "f3 i4"),
        ("f1 i2/1 f3", "i4/2", "f3 i4"),
        ("f1+f1B i2/1+i2/1B", "i3/2B", "f1B i2B i3B"),
        ("n1", "n2/1", ""),
        ("n1", "i2/1", "i2"),
        ("f1 i2/1 i3/2", "n4/3", "f1 i2 i3"),
        ("", "f4", "f4"),
        # materializations: older than the chain, as old, at an increment, at one that was never complete,
        # at the base, at the one acknowledged, newer than that
        ("f2 i3/2 i5/3 m1", "i6/5", "f2 i3 i5 i6"),
        ("f2 i3/2 i5/3 m2", "i6/5", "f2 i3 i5 i6"),
        ("f2 i3/2 i5/3 m3", "i6/5", "m3 i5 i6"),
        ("f2 i3/2 i5/3 m4", "i6/5", "m4 i5 i6"),
        ("f2 i3/2 i5/3 m5", "i6/5", "m5 i6"),
        ("f2 i3/2 i5/3 m6", "i6/5", "m6"),
        ("f2 i3/2 i5/3 m7", "i6/5", "f2 i3 i5 i6"),
        ("f1 i2/1 i3/2 m3 i4/3", "i5/4", "m3 i4 i5"),
        ("f1 i2/1 i3/2 m2", "i4/1", "m2 i3 i4"),
        ("f1 i2/1 i3/2 m2 m3", "i4/3", "m3 i4"),
        ("f1 i2/1 i3/2 m3 m2", "i4/3", "m3 i4"),
        ("f1+f1B m1B m2B", "i2/1", "f1 i2"),
        ("f1+f1B m1B m2B", "i2/1B", "m2B"),
        ("f1 i2/1 i3/2 m5 restart f4", "i6/4", "f4 i6"),
        ("f1 i2/1 i3/2 m4", "f4", "f4"),
        ("f1 i2/1 i3/2 m3", "n4/3", "m3"),
        ("f1 m2", "i2/1", "m2"),
    ],
)
def test_the_chain_of_what_was_acknowledged(history: str, ack: str, expected: str) -> None:
    registry = after(history)
    needed = registry.needed()
    assert chain(registry.whole(acknowledged(ack))) == expected
    assert chain(registry.whole(acknowledged(ack))) == expected
    assert registry.needed() == needed, "asking changes nothing"


def test_a_chain_is_one_handle_with_increments_in_which_nothing_is_lost() -> None:
    (first, second) = (full(1).state.managed_keyed, increment(2, 1).state.managed_keyed)
    assert after("f1").whole(increment(2, 1)).managed_keyed == attrs.evolve(first, increments=(second,))


def test_what_is_in_the_metadata_has_its_place_in_the_chain() -> None:
    small, registry = written(2, "", ByteStreamStateHandle(b"few changes")), after("f1")
    completed(registry, acked(2, small, 1))
    state = registry.whole(increment(3, 2))
    assert (chain(state), state.managed_keyed.increments[0]) == ("f1 i3", small)


def test_other_state_is_the_checkpoints_own() -> None:
    own = attrs.evolve(
        increment(2, 1).state,
        raw_keyed=handle(data=b"raw"),
        managed_operator=OperatorStateHandle(ByteStreamStateHandle(b"list"), {}),
        raw_operator=RawOperatorStateHandle(ByteStreamStateHandle(b"raw list"), ()),
    )
    state = after("f1").whole(attrs.evolve(increment(2, 1), state=own))
    assert attrs.evolve(state, managed_keyed=own.managed_keyed) == own


@pytest.mark.parametrize("history", ["", "f1 i2/1", "f1 i2/1 i3/2 -3", "f1 i2/1 i3/2 restart"])
def test_a_base_that_is_not_known_is_an_error(history: str) -> None:
    with pytest.raises(CheckpointError, match=r"count\[0\] .* checkpoint 3, which no longer exists"):
        after(history).whole(increment(4, 3))


def metadata_of(checkpoint_id: int, *states: OperatorSubtaskState) -> object:
    return metadata(checkpoint_id, operators=[OperatorState("count", len(states), 128, states)])


def test_an_earlier_run_has_no_chains_and_its_files_stay_until_it_is_deleted() -> None:
    registry = SharedStateRegistry()
    state = after("f1 i2/1 i3/2").whole(increment(4, 3))
    registry.register_restored(metadata_of(4, state, OperatorSubtaskState()))
    with pytest.raises(CheckpointError, match="no longer exists"):
        registry.whole(increment(5, 4))
    registry.begin_attempt()
    completed(registry, full(5))
    assert registry.needed() == shared("f1 i2 i3 i4 f5")
    assert registry.unregister(4) == shared("f1 i2 i3 i4")


def test_shared_files_are_those_of_managed_keyed_state_in_the_shared_folder() -> None:
    own = FileStateHandle("own", 10)
    inline = written(4, "", ByteStreamStateHandle(b""))
    keyed = attrs.evolve(written(1, "full"), increments=(written(2, "", own), written(3, "more"), inline))
    state = OperatorSubtaskState(keyed, written(1, "", own))
    assert shared_files([state, OperatorSubtaskState()]) == shared("full more")
    assert shared_files([OperatorSubtaskState(written(1, "", own))]) == shared_files([]) == set()


@pytest.mark.parametrize(
    ("history", "needed"),
    [
        ("", ""),
        ("f1 i2/1 i3/2 m3", "f1 i2 i3 m3"),
        ("f1 i2/1 i3/2 m2 i4/3 m4", "f1 i2 i3 i4 m2 m4"),
        ("f1 i2/1 i3/2 m3 restart", "f1 i2 i3"),
    ],
)
def test_what_chains_are_made_of_or_may_begin_at_is_needed(history: str, needed: str) -> None:
    assert after(history).needed() == shared(needed)


@pytest.mark.parametrize(
    ("history", "deleted", "gone", "needed"),
    [
        ("f1 i2/1 i3/2", 1, "", "f1 i2 i3"),
        ("f1 i2/1 i3/2 -1", 2, "", "f1 i2 i3"),
        ("f1 i2/1 i3/2 -1 -2", 3, "f1 i2 i3", ""),
        ("f1 i2/1 f3 -1", 2, "f1 i2", "f3"),
        ("f1+f1B f2+f2B", 1, "f1 f1B", "f2 f2B"),
        ("f1 i2/1 i3/2 -3", 3, "", "f1 i2"),
        ("f1 i2/1 i3/2", 9, "", "f1 i2 i3"),
        ("f1 i2/1 i3/2 m3 i4/3 -1", 2, "", "f1 i2 i3 m3 i4"),
        ("f1 i2/1 i3/2 m3 i4/3 -1 -2", 3, "f1 i2 i3", "m3 i4"),
        ("f1 i2/1 i3/2 m3 restart f4 -1 -2", 3, "f1 i2 i3", "f4"),
        # no chain took these up: an increment, and materializations that a newer one overtook
        ("f1 m2 i2/1", 1, "f1 i2", "m2"),
        ("f1 m2 m3 i4/1", 1, "f1 m2", "m3 i4"),
        ("f1 m3 m2 i4/1", 1, "f1 m2", "m3 i4"),
    ],
)
def test_what_goes_with_a_deleted_checkpoint(history: str, deleted: int, gone: str, needed: str) -> None:
    registry = after(history)
    assert registry.unregister(deleted) == shared(gone)
    assert registry.needed() == shared(needed)


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
