"""Incremental checkpoints of a backend with every kind of state, at random, against a model.

Any number of checkpoints is in flight while state goes on; they are written in any order, or aborted. A base
is any earlier barrier that is still allowed, so an increment may have more than what changed since the
checkpoint that it is put on top of.
"""

import contextlib
import threading
from copy import deepcopy

import attrs
from backend_support import PICKLED, Snapshot, chained, contents, make_backend, rescale, restore, rows_of
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from test_state_machines import Concatenate, extended, keys, lists, namespaces, numbers
from tiers import runs_of
from ttl_contract import ttl_config, with_ttl

from pyflinkstate import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.heap.timer_queue import Timer
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.snapshots import ChangeHistory
from pyflinkstate.backends.types.internal_types import VOID_NAMESPACE, VOID_NAMESPACE_TYPE
from pyflinkstate.errors import SnapshotCancelledError

LONG, STRING = Types.LONG(), Types.STRING()
OWN = KeyGroupRange(0, 1)
TTL_MS = 100
TIMERS, WINDOW_TIMERS = "_timer_state/t", "_timer_state/w"
times = st.integers(0, 2)

BOTH_CLEANUPS = ttl_config(
    cleanup=lambda builder: builder.cleanup_full_snapshot().cleanup_incrementally(2, False)
)
DESCRIPTORS = {
    "value": ValueStateDescriptor("value", PICKLED),
    "list": ListStateDescriptor("list", LONG),
    "map": MapStateDescriptor("map", STRING, PICKLED),
    "reducing": ReducingStateDescriptor("reducing", extended, PICKLED),
    "aggregating": AggregatingStateDescriptor("aggregating", Concatenate(), PICKLED),
    "windowed": ListStateDescriptor("windowed", LONG),
    "ttl": with_ttl(ValueStateDescriptor("ttl", LONG)),
    "cleaned": with_ttl(ListStateDescriptor("cleaned", LONG), BOTH_CLEANUPS),
}


@attrs.define
class Checkpoint:
    """One that was triggered, and what must be in it."""

    checkpoint_id: int
    base_id: int | None
    snapshot: Snapshot
    #: All of the state at the same barrier.
    full: Snapshot | None
    model: dict
    #: By state: the entry keys that were noted since the base.
    touched: dict
    now_ms: int


def alive(found, now_ms):
    """Return contents without what has expired of the state that is cleaned up whenever it pleases."""
    kept = {
        where: [element for element in stored if element[0] + TTL_MS > now_ms]
        for where, stored in found.get("cleaned", {}).items()
    }
    cleaned = {where: stored for where, stored in kept.items() if stored}
    others = {name: entries for name, entries in found.items() if entries and name != "cleaned"}
    return {**others, "cleaned": cleaned} if cleaned else others


class IncrementalCheckpoints(RuleBasedStateMachine):
    """The model has what is stored, and which entries were changed or handed out to be changed."""

    def __init__(self):
        super().__init__()
        self.now_ms, self.last_id = 0, 0
        self.backend = None

    @initialize()
    def make(self):
        self.begin_attempt(make_backend(own=OWN, max_parallelism=2, clock=self.now), {})

    def now(self):
        return self.now_ms

    def begin_attempt(self, backend, model):
        self.backend, self.history = backend, ChangeHistory(backend)
        self.model = {name: deepcopy(model.get(name, {})) for name in DESCRIPTORS}
        self.timers = {name: set(model.get(name, ())) for name in (TIMERS, WINDOW_TIMERS)}
        #: What was noted since the last barrier, and between each barrier and the one before.
        self.touched, self.cuts = {}, {}
        self.last_base = self.last_id + 1
        self.in_flight, self.chains, self.completed = [], {}, {}

    # --- operations --------------------------------------------------------------------------------

    def bind(self, name, key, namespace=None):
        """Return a state, bound, and its entry key."""
        self.backend.set_current_key(key)
        if namespace is None:
            return self.backend.get_partitioned_state(DESCRIPTORS[name]), key
        state = self.backend.get_partitioned_state(DESCRIPTORS[name], namespace, STRING)
        return state, (key, namespace)

    def touch(self, name, where):
        self.touched.setdefault(name, set()).add(where)

    def set_model(self, name, where, stored):
        """Note an entry that was or is there; None and what is empty are no entries."""
        if where in self.model[name]:
            self.touch(name, where)
            del self.model[name][where]
        if stored:
            self.touch(name, where)
            self.model[name][where] = stored

    @rule(name=st.sampled_from([*DESCRIPTORS]), key=keys, namespace=namespaces)
    def clear(self, name, key, namespace):
        state, where = self.bind(name, key, namespace if name == "windowed" else None)
        state.clear()
        self.set_model(name, where, None)

    @rule(key=keys, value=lists)
    def update(self, key, value):
        state, where = self.bind("value", key)
        state.update(list(value))
        self.set_model("value", where, value)

    @rule(count=st.sampled_from([10, 260, 266, 540]))
    def update_many(self, count):
        """With 260 or 266 entries both maps are amid a doubling."""
        for key in range(2, 2 + count):
            self.update(key, [key])

    @rule(name=st.sampled_from(["value", "list"]), key=keys, number=numbers)
    def change_in_place(self, name, key, number):
        state, where = self.bind(name, key)
        live = state.get_internal()
        stored = self.model[name].get(where)
        assert live == stored
        if stored is not None:
            live.append(number)
            self.set_model(name, where, [*stored, number])

    @rule(name=st.sampled_from(["reducing", "aggregating"]), key=keys)
    def read(self, name, key):
        state, where = self.bind(name, key)
        stored = self.model[name].get(where)
        assert list(state.get() or ()) == (stored or [])
        self.set_model(name, where, stored)

    @rule(name=st.sampled_from(["list", "reducing", "aggregating"]), key=keys, number=numbers)
    def add(self, name, key, number):
        state, where = self.bind(name, key)
        state.add([number] if name == "reducing" else number)
        self.set_model(name, where, [*self.model[name].get(where, []), number])

    @rule(cleared=st.sets(keys))
    def clear_over_all_keys(self, cleared):
        def function(key, state):
            if key in cleared:
                state.clear()

        self.backend.apply_to_all_keys(VOID_NAMESPACE, VOID_NAMESPACE_TYPE, DESCRIPTORS["list"], function)
        for key in cleared:
            self.set_model("list", key, None)

    @rule(
        key=keys, name=st.sampled_from("abc"), value=lists, how=st.sampled_from(["put", "remove", "append"])
    )
    def change_map(self, key, name, value, how):
        state, where = self.bind("map", key)
        entries = dict(self.model["map"].get(where, {}))
        if how == "put":
            state.put(name, list(value))
            entries[name] = value
        elif how == "remove":
            state.remove(name)
            if name not in entries:
                return  # nothing has changed, and nothing counts as changed
            del entries[name]
        elif (found := state.get(name)) is not None:
            found.extend(value)
            entries[name] = entries[name] + value
        self.set_model("map", where, entries)

    @rule(key=keys, removed=st.sets(st.sampled_from("abc")))
    def iterate_over_map(self, key, removed):
        state, where = self.bind("map", key)
        entries = dict(self.model["map"].get(where, {}))
        pairs = iter(state.items())
        for name, value in pairs:
            assert value == entries[name]
            if name in removed:
                pairs.remove()
                del entries[name]
        assert not entries.keys() & removed
        self.set_model("map", where, entries)

    @rule(key=keys, namespace=namespaces, number=numbers)
    def add_to_window(self, key, namespace, number):
        state, where = self.bind("windowed", key, namespace)
        state.add(number)
        self.set_model("windowed", where, [*self.model["windowed"].get(where, []), number])

    @rule(key=keys, into=namespaces, sources=st.sets(namespaces))
    def merge_windows(self, key, into, sources):
        sources = sorted(sources - {into})
        state, where = self.bind("windowed", key, into)
        state.merge_namespaces(into, sources)
        merged = []
        for source in sources:
            merged += self.model["windowed"].get((key, source), [])
            self.set_model("windowed", (key, source), None)
        if merged:
            self.set_model("windowed", where, self.model["windowed"].get(where, []) + merged)

    @rule(passed_ms=st.integers(1, TTL_MS))
    def let_time_pass(self, passed_ms):
        self.now_ms += passed_ms

    @rule(key=keys, number=st.one_of(st.none(), numbers))
    def use_what_expires(self, key, number):
        state, where = self.bind("ttl", key)
        stored = self.model["ttl"].get(where)
        if number is not None:
            state.update(number)
            self.set_model("ttl", where, (self.now_ms, number))
        elif stored is not None and stored[0] + TTL_MS <= self.now_ms:
            assert state.value() is None
            self.set_model("ttl", where, None)
        else:
            assert state.value() == (None if stored is None else stored[1])

    @rule(key=keys, number=numbers)
    def use_what_is_cleaned_up(self, key, number):
        state, where = self.bind("cleaned", key)
        state.add(number)
        self.set_model("cleaned", where, [*self.model["cleaned"].get(where, []), (self.now_ms, number)])

    @rule(key=keys, namespace=namespaces, time=times, is_added=st.booleans())
    def use_timers(self, key, namespace, time, is_added):
        key_group = self.backend.key_group_of(key)
        for name, timer in ((TIMERS, Timer(time, key)), (WINDOW_TIMERS, Timer(time, key, namespace))):
            queue = self.queue(name)
            changes = (queue.add if is_added else queue.remove)(timer, key_group)
            assert changes is ((timer in self.timers[name]) is not is_added)
            if changes:
                self.toggle(name, timer)

    @rule(name=st.sampled_from([TIMERS, WINDOW_TIMERS]), time=times)
    def let_timers_fire(self, name, time):
        while (timer := self.queue(name).poll(time)) is not None:
            self.toggle(name, timer)
        assert all(timer.timestamp_ms > time for timer in self.timers[name])

    def queue(self, name):
        namespace_type = STRING if name == WINDOW_TIMERS else VOID_NAMESPACE_TYPE
        return self.backend.create_timer_queue(name.removeprefix("_timer_state/"), namespace_type)

    def toggle(self, name, timer):
        self.timers[name] ^= {timer}
        self.touch(name, timer)

    # --- checkpoints -------------------------------------------------------------------------------

    @rule(data=st.data(), is_full_too=st.booleans())
    def barrier(self, data, is_full_too):
        base_id = data.draw(st.sampled_from(self.bases()), "base")
        is_known = base_id in self.cuts and base_id >= self.last_base
        self.last_id += 1
        changes = self.history.cut(self.last_id, base_id)
        self.cuts[self.last_id], self.touched = self.touched, {}
        assert (changes is not None) is is_known
        touched = {}
        if is_known:
            self.last_base = base_id
            for noted in [noted for cut, noted in self.cuts.items() if cut > base_id]:
                for name, entries in noted.items():
                    touched[name] = touched.get(name, set()) | entries
        model = deepcopy({**self.model, **self.timers})
        full = Snapshot.of(self.backend) if is_full_too else None
        snapshot = Snapshot.of(self.backend, changes)
        base_id = base_id if is_known else None
        self.in_flight.append(Checkpoint(self.last_id, base_id, snapshot, full, model, touched, self.now_ms))

    def bases(self):
        """Return what to choose from: mostly such as are allowed, also one that is not, or none."""
        allowed = [cut for cut in self.cuts if cut >= self.last_base]
        return [*allowed, *allowed[-2:], self.last_base - 1, None]

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data())
    def write(self, data):
        """A later one may be written before an earlier one."""
        checkpoint = self.in_flight.pop(data.draw(st.integers(0, len(self.in_flight) - 1), "which"))
        self.complete(checkpoint, lambda bases: data.draw(st.sampled_from(bases), "on top of"))

    def complete(self, checkpoint, choose):
        handle = checkpoint.snapshot.write()
        self.check_rows(handle, checkpoint)
        chain = [handle]
        if checkpoint.base_id is not None:
            bases = [known for known in self.chains if checkpoint.base_id <= known < checkpoint.checkpoint_id]
            chain = [*self.chains[choose(bases)], handle] if bases else None
        if chain is not None:
            self.check_chain(chain, checkpoint)
        if checkpoint.full is not None:
            # Later increments may begin here as well as in the chain, in the runtime as here.
            chain = [checkpoint.full.write()]
            self.check_chain(chain, checkpoint)
        if chain is not None:
            self.chains[checkpoint.checkpoint_id] = chain
            self.completed[checkpoint.checkpoint_id] = checkpoint

    @staticmethod
    def check_rows(handle, checkpoint):
        """An increment has the entries that were noted and says which are gone; else there are all."""
        model, touched = checkpoint.model, checkpoint.touched
        if checkpoint.base_id is None:
            expected = {name: dict.fromkeys(entries) for name, entries in model.items()}
        else:
            expected = {
                name: {where: where not in model[name] for where in entries}
                for name, entries in touched.items()
            }
        found = {} if handle is None else rows_of(handle)
        for name in {*found, *expected} - {"cleaned"}:
            assert found.get(name, {}) == expected.get(name, {})

    @staticmethod
    def check_chain(chain, checkpoint):
        handle, now_ms = chained(*chain), checkpoint.now_ms
        expected = alive(checkpoint.model, now_ms)
        assert alive(contents(restore([handle], own=OWN, max_parallelism=2)), now_ms) == expected
        assert alive(contents(*rescale([handle], 2, max_parallelism=2)), now_ms) == expected

    @precondition(lambda self: self.in_flight)
    @rule(data=st.data(), has_begun=st.booleans())
    def abort(self, data, has_begun):
        checkpoint = self.in_flight.pop(data.draw(st.integers(0, len(self.in_flight) - 1), "which"))
        cancelled = threading.Event()
        cancelled.set()
        for snapshot in filter(None, (checkpoint.snapshot, checkpoint.full)):
            if has_begun:
                with contextlib.suppress(SnapshotCancelledError):
                    assert snapshot.write(cancelled=cancelled) is None
            snapshot.resources.release()

    @rule(data=st.data(), keys=st.lists(keys, max_size=3))
    def checkpoint(self, data, keys):
        """As most of them are: written before the next one is triggered."""
        for key in keys:
            self.change_in_place("value", key, 0)
        self.barrier(data, is_full_too=False)
        self.complete(self.in_flight.pop(), max)

    @precondition(lambda self: self.completed)
    @rule(data=st.data())
    def recover(self, data):
        """A new attempt begins with a checkpoint that writes all; what was in flight is nobody's."""
        checkpoint_id = data.draw(st.sampled_from(list(self.completed)), "which")
        checkpoint, handle = self.completed[checkpoint_id], chained(*self.chains[checkpoint_id])
        self.begin_attempt(restore([handle], own=OWN, max_parallelism=2, clock=self.now), checkpoint.model)
        self.last_id += 1
        assert self.history.cut(self.last_id, checkpoint_id) is None
        self.cuts[self.last_id] = {}

    def teardown(self):
        if self.backend is None:
            return
        for checkpoint in self.in_flight:
            self.complete(checkpoint, max)
        for table in self.backend.registered_kv_states.values():
            for state_map in table.maps:
                state_map._check()
                assert not state_map._snapshot_versions
        found = alive(contents(self.backend), self.now_ms)
        assert found == alive({**self.model, **self.timers}, self.now_ms)


TestIncrementalCheckpoints, TestIncrementalCheckpointsInDepth = runs_of(
    IncrementalCheckpoints, quick=15, full=60, steps=100
)
