"""When state expires, over all kinds of state: the properties of Flink's ``TtlStateTestBase``.

Each test runs for every context; and with declared and pickled types, on both kinds of table, with and
without a snapshot and a restore between all steps, so that each two of these three meet.
"""

from functools import partial

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
def test_it_lives_to_the_last_millisecond(arena, config):
    """T2."""
    arena.start(config)
    arena.at(0).update(arena.context.first)
    assert arena.at(99).get() == arena.context.read_first


def test_it_is_gone_from_the_moment_at_which_its_time_is_over(arena):
    """T2: the end counts as expired."""
    arena.start(ttl_config())
    arena.at(0).update(arena.context.first)
    assert arena.at(100).get() == arena.context.empty
    assert arena.is_cleared()


def test_writing_prolongs_and_reading_does_not(arena):
    """T3, T4, T17."""
    context = arena.context
    arena.start(ttl_config(TTL_MS, ON_WRITE, NEVER))
    arena.at(0).update(context.first)
    assert arena.at(20).get() == context.read_first
    arena.at(50).update(context.second)
    assert arena.at(120).get() == context.read_second
    arena.at(170).update(context.third)
    assert arena.at(220).get() == context.read_third
    assert arena.at(300).get() == context.empty
    assert arena.is_cleared()


def test_what_has_expired_is_returned_once_where_that_is_configured(arena):
    """T4, T11."""
    arena.start(ttl_config(TTL_MS, ON_WRITE, RELAXED))
    arena.at(0).update(arena.context.first)
    assert arena.at(120).get() == arena.context.read_first
    assert arena.is_cleared()
    assert arena.get() == arena.context.empty


def test_reading_prolongs_where_that_is_configured(arena):
    """T3."""
    arena.start(ttl_config(TTL_MS, ON_READ, NEVER))
    arena.at(0).update(arena.context.first)
    assert arena.at(50).get() == arena.context.read_first
    assert arena.at(120).get() == arena.context.read_first
    assert arena.at(250).get() == arena.context.empty
    assert arena.is_cleared()


@every_rule
@pytest.mark.parametrize("now_ms", [10, 2**40], ids=["small", "of this age"])
def test_the_longest_time_to_live_never_ends(arena, config, now_ms):
    """T2: the sum does not overflow."""
    arena.start(ttl_config(MAX_LONG, config.get_update_type(), config.get_state_visibility()))
    arena.at(now_ms).update(arena.context.first)
    assert arena.at(now_ms + 40).get() == arena.context.read_first
    assert arena.at(2**62).get() == arena.context.read_first


def change_and_read_two(arena, select, back_after_restore):
    """Write and expire under two keys or namespaces; after a restore the clock may be set back.

    What had expired when the snapshot was taken, and was left out, is then still gone.
    """
    context = arena.context
    arena.restore(arena.take_snapshot())
    arena.at(0)
    select("two").update(context.first)
    arena.at(50)
    select("one").update(context.first)
    select("two").update(context.second)
    arena.clock.now_ms = 120
    arena.restore(arena.take_snapshot())
    assert select("one").get() == context.read_first
    assert select("two").get() == context.read_second
    arena.at(170)
    select("two").update(context.third)

    arena.clock.now_ms = 230
    arena.restore(arena.take_snapshot())
    arena.clock.now_ms = 170 if back_after_restore else 230
    # "one" died at 150, at the clock's former time.
    assert (select("one").is_cleared(), arena.get()) == (back_after_restore, context.empty)
    assert select("two").get() == context.read_third

    arena.clock.now_ms = 300
    arena.restore(arena.take_snapshot())
    arena.clock.now_ms = 230 if back_after_restore else 300
    assert select("one").get() == context.empty
    assert select("two").get() == context.empty


@pytest.mark.parametrize("is_left_out", [False, True], ids=["kept in snapshots", "left out of snapshots"])
@pytest.mark.parametrize("select", [Arena.under_key, Arena.in_namespace], ids=["key", "namespace"])
def test_each_key_and_namespace_expires_for_itself(arena, select, is_left_out):
    """C3: what a full snapshot left out does not come back."""
    full_snapshot = ttl_config(cleanup=StateTtlConfigBuilder.cleanup_full_snapshot)
    arena.start(full_snapshot if is_left_out else ttl_config())
    change_and_read_two(arena, partial(select, arena), back_after_restore=is_left_out)


def test_a_restore_takes_back_what_was_written_after_the_snapshot(arena):
    """The timestamps too, so what was prolonged since has its old time again."""
    context = arena.context
    arena.start(ttl_config())
    arena.under_key("k1").at(0).update(context.first)
    arena.at(50).update(context.second)
    arena.under_key("k2").at(100).update(context.first)
    snapshot = arena.take_snapshot()
    arena.under_key("k1").at(170).update(context.third)
    arena.under_key("k2").update(context.second)
    arena.restore(snapshot)
    arena.clock.now_ms = 180
    assert arena.under_key("k1").get() == context.empty
    assert arena.under_key("k2").get() == context.read_first


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


# --- merging namespaces ----------------------------------------------------------------------------

SOURCES = ["unset 1", "unset 2", "expired", "expired and updated", "unexpired", "final"]


def updates(arena, base, *namespaces):
    """Write two different values into each namespace."""
    for number, namespace in enumerate(namespaces, start=base):
        for value in (number, 10 * number):
            arena.in_namespace(namespace)
            arena.update([str(value)] if arena.context.name == "list" else value)


def merged_at_230(arena, target="target"):
    """Write at 0, 120 and 150, merge at 230, and bind the state to the target."""
    arena.at(0)
    updates(arena, 1, "expired", "expired and updated")
    arena.at(120)
    updates(arena, 3, "expired and updated", "unexpired")
    arena.at(150)
    updates(arena, 5, "expired and updated", "unexpired", "final")
    arena.at(230)
    arena.state.merge_namespaces(target, SOURCES)
    return arena.in_namespace(target)


@merging
def test_merged_namespaces_hold_what_has_not_expired(arena):
    """T16: of lists the elements of 150; of the others what was touched at 150, with the parts of 120."""
    arena.start(ttl_config())
    total = sum(11 * number for number in (3, 4, 5, 6, 7))
    expected = {
        "list": ["5", "50", "6", "60", "7", "70"],
        "reducing": total,
        "aggregating": str(3 * 3 + total),  # three accumulators, each from 3
    }
    assert merged_at_230(arena).get() == expected[arena.context.name]


@merging
def test_what_lives_is_stamped_anew_when_it_is_merged_but_list_elements_are_not(arena):
    arena.start(ttl_config())
    arena.in_namespace("target").at(0).update(arena.context.first)
    arena.in_namespace("source").at(50).update(arena.context.third)
    arena.at(90).state.merge_namespaces("target", ["source"])
    end = 150 if arena.context.name == "list" else 190
    arena.in_namespace("target").at(end - 1)
    assert arena.get() != arena.context.empty
    arena.clock.now_ms = end
    assert arena.get() == arena.context.empty


@merging
def test_what_is_merged_into_an_empty_namespace_alone_keeps_its_time(arena):
    arena.start(ttl_config())
    arena.in_namespace("source").at(50).update(arena.context.first)
    arena.at(90).state.merge_namespaces("target", ["source", "unset"])
    assert arena.in_namespace("target").at(149).get() == arena.context.read_first
    assert arena.at(150).get() == arena.context.empty


@merging
def test_an_expired_target_has_no_part_in_the_merge(arena):
    arena.start(ttl_config())
    arena.in_namespace("target").at(0).update(arena.context.first)
    arena.in_namespace("source").at(100).update(arena.context.third)
    arena.at(110).state.merge_namespaces("target", ["source"])
    assert arena.in_namespace("target").get() == arena.context.read_third


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
