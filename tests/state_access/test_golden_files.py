"""The reader on what earlier releases wrote: the same golden files that restores are tested with."""

import attrs
import pytest
from backend_support import contents, restore
from golden_content import (
    KEYS,
    NOW,
    STORED,
    TTL_STORED,
    WINDOWS,
    changed_contents,
    changed_timers,
    changed_window_timers,
    read_golden,
    read_golden_chain,
    timers,
    window_timers,
    windowed,
)
from golden_tuple_keys import KEY_TYPE, MAX_PARALLELISM, PATH
from read_support import checkpoint_of, in_memory

from pyflinkstate.backends.format import CheckpointMetadata
from pyflinkstate.backends.keys import KeyGroupRange

UID = "op"


def values(checkpoint, name, **options):
    """Return what is stored of a state by key, or key and namespace, as a restored backend has it."""
    rows = checkpoint.keyed(UID, states=[name], allow_pickle=True, **options).rows()
    return {tuple(head) if len(head) > 1 else head[0]: value for *head, value in map(dict.values, rows)}


def untimed(stored):
    """Return a stored value without the times at which its parts were written."""
    if isinstance(stored, dict):
        return {key: value for key, (_, value) in stored.items()}
    return [value for _, value in stored] if isinstance(stored, list) else stored[1]


def found_timers(checkpoint):
    return {
        (row["timestamp_ms"], row["key"], row["namespace"], row["time_domain"], row["timer_service"])
        for row in checkpoint.timers(UID).rows()
    }


def expected_timers(plain, spaced):
    return {(t.timestamp_ms, t.key, None, "processing_time", "user-timers") for t in plain} | {
        (t.timestamp_ms, t.key, t.namespace, "event_time", "window-timers") for t in spaced
    }


@pytest.mark.parametrize("version", [1, 2, 3, 4, 5])
def test_the_states_of_version_1_are_read(version):
    checkpoint = checkpoint_of(read_golden(version))
    for name, stored in STORED.items():
        few = {KEYS[-1]: 7} if name == "value" else {}
        assert values(checkpoint, name) == dict.fromkeys(KEYS[:-1], stored) | few


@pytest.mark.parametrize("version", [2, 3, 4, 5])
class TestFromVersion2:
    def test_windows(self, version):
        checkpoint = checkpoint_of(read_golden(version))
        found = values(checkpoint, "windowed")
        assert found == {(key, window): windowed(key, window) for key in KEYS for window in WINDOWS}

    @pytest.mark.parametrize("name", TTL_STORED)
    def test_time_to_live(self, version, name):
        checkpoint = checkpoint_of(read_golden(version), clock=lambda: NOW)
        assert values(checkpoint, name) == dict.fromkeys(KEYS[:-1], untimed(TTL_STORED[name]))

    def test_timers(self, version):
        checkpoint = checkpoint_of(read_golden(version))
        assert found_timers(checkpoint) == expected_timers(timers(), window_timers())


@pytest.mark.parametrize("version", [3, 4, 5])
class TestIncrements:
    @pytest.mark.parametrize("name", changed_contents())
    def test_they_are_read_on_top_of_the_full_file(self, version, name):
        checkpoint = checkpoint_of(read_golden_chain(version))
        expected = changed_contents()[name]
        if name.startswith("ttl") or name == "cleaned":
            expected = {key: untimed(stored) for key, stored in expected.items()}
        assert values(checkpoint, name) == expected

    def test_timers(self, version):
        checkpoint = checkpoint_of(read_golden_chain(version))
        assert found_timers(checkpoint) == expected_timers(changed_timers(), changed_window_timers())


def test_files_of_two_versions_are_one_state():
    chain = attrs.evolve(read_golden(3), increments=(read_golden(5, "_increment"),))
    assert values(checkpoint_of(chain), "row") == changed_contents()["row"]


def test_only_from_version_5_on_is_it_known_when_values_expire():
    late = {"clock": lambda: 101_000}
    assert values(checkpoint_of(read_golden(4), **late), "ttl value") == dict.fromkeys(KEYS[:-1], 42)
    assert values(checkpoint_of(read_golden(5), **late), "ttl value") == {}


class TestKeysWhoseHashHasChanged:
    """Tuples hashed otherwise once, so their old checkpoints have them in other key groups."""

    @pytest.fixture
    def checkpoint(self):
        return in_memory(CheckpointMetadata.decode(PATH.read_bytes(), "golden"))

    @pytest.fixture
    def uid(self, checkpoint):
        return checkpoint.operators()[0].uid

    @pytest.fixture
    def expected(self, checkpoint, uid):
        handles = [subtask.managed_keyed for subtask in checkpoint.operator(uid).subtasks]
        own = KeyGroupRange(0, MAX_PARALLELISM - 1)
        return contents(restore(handles, KEY_TYPE, own, MAX_PARALLELISM))

    def test_all_of_it_is_read(self, checkpoint, uid, expected):
        rows = checkpoint.keyed(uid, states=["count"]).rows()
        assert {row["key"]: row["count"] for row in rows} == expected["count"]
        windows = checkpoint.windows(uid)
        assert windows.schema.names == ["key", "window", "in windows"]
        found = {(row["key"], row["window"]): row["in windows"] for row in windows.rows()}
        assert found == expected["in windows"]

    def test_keys_are_found_in_the_key_groups_that_they_have_now(self, checkpoint, uid, expected):
        for key in list(expected["count"])[:3]:
            (row,) = checkpoint.keyed(uid, [key], ["count"]).rows()
            assert (row["key"], row["count"]) == (key, expected["count"][key])
