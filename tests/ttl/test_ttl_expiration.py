"""When state expires, beyond what the model draws: the longest time, another time, and merges of nothing.

After Flink's ``TtlStateTestBase``. Each test runs for every context; and with declared and pickled types, on
both kinds of table, with and without a snapshot and a restore between all steps, so that each two meet.
"""

import pytest
from tiers import cases
from ttl_contract import CONTEXTS, MAX_LONG, TTL_MS, Arena, ttl_config

from pyflinkstate.api import StateTtlConfigBuilder, StateVisibility, Types, UpdateType

ON_WRITE, ON_READ = UpdateType.OnCreateAndWrite, UpdateType.OnReadAndWrite
NEVER, RELAXED = StateVisibility.NeverReturnExpired, StateVisibility.ReturnExpiredIfNotCleanedUp

every_rule = pytest.mark.parametrize(
    "config",
    [
        ttl_config(TTL_MS, update, visibility)
        for update in (ON_WRITE, ON_READ)
        for visibility in (NEVER, RELAXED)
    ],
    ids=lambda config: f"{config.get_update_type().name}-{config.get_state_visibility().name}",
)

merging = pytest.mark.parametrize(
    "context", [context for context in CONTEXTS if context.merging], ids=lambda context: context.name
)


@pytest.fixture(params=CONTEXTS, ids=lambda context: context.name)
def context(request):
    return request.param


#: Types, kind of table, and whether each step restores: each pair of these comes once.
WAYS = {
    "declared, copy on write, one run": (True, True, False),
    "declared, nested maps, restored": (True, False, True),
    "pickled, copy on write, restored": (False, True, True),
    "pickled, nested maps, one run": (False, False, False),
}
QUICK_WAYS = ("declared, nested maps, restored", "pickled, copy on write, restored")


@pytest.fixture(params=cases(WAYS, QUICK_WAYS))
def arena(request, context):
    is_declared, async_snapshots, restores = WAYS[request.param]
    declared = (lambda type_info: type_info) if is_declared else (lambda _: Types.PICKLED_BYTE_ARRAY())
    return Arena(context, declared, async_snapshots, restores)


@every_rule
@pytest.mark.parametrize("now_ms", [10, 2**40], ids=["small", "of this age"])
def test_the_longest_time_to_live_never_ends(arena, config, now_ms):
    """T2: the sum does not overflow."""
    arena.start(ttl_config(MAX_LONG, config.get_update_type(), config.get_state_visibility()))
    arena.at(now_ms).update(arena.context.first)
    assert arena.at(now_ms + 40).get() == arena.context.read_first
    assert arena.at(2**62).get() == arena.context.read_first


def test_another_time_to_live_after_a_restore_counts_from_the_old_timestamps(arena):
    """T17."""
    arena.start(ttl_config(1000))
    arena.at(0).update(arena.context.first)
    snapshot = arena.take_snapshot()
    arena.start(ttl_config(60))
    arena.restore(snapshot)
    arena.clock.now_ms = 59
    assert arena.get() == arena.context.read_first
    arena.clock.now_ms = 60
    assert arena.get() == arena.context.empty


@merging
@pytest.mark.parametrize("target", ["target", "expired 1"], ids=["empty target", "target among the expired"])
def test_merging_what_has_expired_gives_nothing_that_lives_on(arena, target):
    arena.start(ttl_config(cleanup=StateTtlConfigBuilder.cleanup_full_snapshot))
    namespaces = ["expired 1", "expired 2", "expired 3"]
    arena.at(0)
    for namespace in namespaces:
        arena.in_namespace(namespace).update(arena.context.first)
    arena.clock.now_ms = 150
    sources = [namespace for namespace in namespaces if namespace != target]
    arena.state.merge_namespaces(target, sources)
    arena.restore(arena.take_snapshot())
    assert arena.backend.num_key_value_state_entries() == 0
    assert arena.in_namespace(target).get() == arena.context.empty
