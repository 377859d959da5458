"""State by namespace, as windows keep it, and its merging: rows G5, G16 to G19, L9 and M1 of the semantics.

What the snapshots hold that are open meanwhile is checked when they are released.
"""

import itertools

import pytest
from contract_backends import KINDS, LONG, PICKLED, STRING, Joined, JoinedText, lives

from pyflinkstate import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.types.internal_types import VOID_NAMESPACE, VOID_NAMESPACE_TYPE
from pyflinkstate.errors import (
    StateMigrationError,
    StateRegistrationError,
    StateValueError,
)

SPEND = ValueStateDescriptor("spend", LONG)
WINDOW = Types.TUPLE([LONG, LONG])
DOUBLES = Types.TUPLE([Types.DOUBLE()])
NAN = float("nan")

every_kind = pytest.mark.parametrize("kind", KINDS)


def store(contract, kind, places):
    """Store the position of each (key, namespace) of ``places`` under it."""
    descriptor = KINDS[kind].describe("spend")
    for number, (key, namespace) in enumerate(places):
        contract.run(
            descriptor, lambda state, number=number: KINDS[kind].store(state, number), key, namespace, STRING
        )
    return descriptor


class TestNamespace:
    def test_g5_none_is_no_namespace(self, bare):
        with pytest.raises(StateValueError, match=r"'spend'.*a namespace must not be None"):
            bare.backend.get_partitioned_state(SPEND, None, STRING)
        state = bare.backend.get_partitioned_state(SPEND, "w", STRING)
        with pytest.raises(StateValueError, match="must not be None"):
            state.set_current_namespace(None)

    @pytest.mark.parametrize(
        ("namespace_type", "namespace"),
        [
            *((STRING, 1), (LONG, "w"), (LONG, 2**63), (WINDOW, (1,)), (WINDOW, 1)),
            *((PICKLED, [1]), (PICKLED, {})),
            *((PICKLED, NAN), (PICKLED, ("w", NAN)), (DOUBLES, (NAN,))),
        ],
        ids=str,
    )
    def test_g5_a_namespace_has_to_fit_its_type_and_have_a_hash(self, bare, namespace_type, namespace):
        with pytest.raises(StateValueError, match=r"'spend'.*namespace"):
            bare.backend.get_partitioned_state(SPEND, namespace, namespace_type)

    def test_g5_state_without_namespaces_takes_none_but_the_void_one(self, bare):
        state = bare.backend.get_partitioned_state(SPEND)
        with pytest.raises(StateValueError, match="not the void namespace"):
            state.set_current_namespace("w")
        state.set_current_namespace(VOID_NAMESPACE)

    @pytest.mark.parametrize("namespace_type", [STRING, LONG, WINDOW, PICKLED], ids=str)
    def test_g5_state_by_namespace_does_not_take_the_void_one(self, bare, namespace_type):
        with pytest.raises(StateValueError, match="namespace"):
            bare.backend.get_partitioned_state(SPEND, VOID_NAMESPACE, namespace_type)

    def test_g5_when_a_namespace_is_refused_the_one_before_stays(self, bare):
        state = bare.state(SPEND, "k", "w", STRING)
        state.update(1)

        def set_wrong(spend):
            with pytest.raises(StateValueError):
                spend.set_current_namespace(1)
            return spend.value()

        assert state.run(set_wrong) == 1

    def test_within_a_run_the_type_of_namespaces_cannot_change(self, bare):
        bare.backend.get_partitioned_state(SPEND, "w", STRING)
        for namespace, namespace_type in ((1, LONG), ("w", PICKLED), (VOID_NAMESPACE, VOID_NAMESPACE_TYPE)):
            with pytest.raises(StateRegistrationError, match="'spend' is in use as VALUE of LONG by STRING"):
                bare.backend.get_partitioned_state(SPEND, namespace, namespace_type)

    @pytest.mark.parametrize("ttl", [False, True], ids=["for ever", "for a time"])
    def test_g11_after_a_restore_the_type_of_namespaces_cannot_change(self, bare, ttl):
        spend = ValueStateDescriptor("spend", LONG)
        if ttl:
            lives(spend, 1000)
        bare.state(spend, "k", "w", STRING).update(1)
        restarted = bare.restarted()
        for namespace, namespace_type in ((1, LONG), ("w", PICKLED), (VOID_NAMESPACE, VOID_NAMESPACE_TYPE)):
            with pytest.raises(StateMigrationError, match="the type of namespaces cannot change"):
                restarted.backend.get_partitioned_state(spend, namespace, namespace_type)
        assert restarted.state(spend, "k", "w", STRING).value() == 1


class TestListing:
    @every_kind
    def test_g17_a_key_is_listed_once_for_each_namespace(self, bare, kind):
        store(bare, kind, [("a", "w1"), ("b", "w1"), ("a", "w2"), ("a", "w1"), ("c", "w3")])
        backend = bare.backend
        assert sorted(backend.get_keys("spend", "w1")) == ["a", "b"]
        assert sorted(backend.get_keys("spend", "w2")) == ["a"]
        assert list(backend.get_keys("spend", "w4")) == []
        assert list(backend.get_keys("spend")) == []
        assert sorted(backend.registered_kv_states["spend"].keys_and_namespaces()) == [
            *(("a", "w1"), ("a", "w2"), ("b", "w1"), ("c", "w3"))
        ]

    @pytest.mark.parametrize(
        ("namespace_type", "namespace"),
        [(Types.FLOAT(), 0.1), (Types.TUPLE([Types.FLOAT()]), (0.1,)), (Types.DOUBLE(), 1)],
        ids=str,
    )
    def test_g17_a_namespace_lists_its_keys_as_it_was_given(self, bare, namespace_type, namespace):
        """FLOAT rounds on the way in."""
        bare.state(SPEND, "k", namespace, namespace_type).update(1)
        assert bare.state(SPEND, "k", namespace, namespace_type).value() == 1
        assert list(bare.backend.get_keys("spend", namespace)) == ["k"]

    @every_kind
    def test_g18_all_keys_of_one_namespace_are_visited(self, bare, kind):
        descriptor = store(bare, kind, [("a", "w1"), ("b", "w2"), ("c", "w1"), ("a", "w2")])
        visited = {}
        bare.backend.set_current_key("b")
        bare.backend.apply_to_all_keys(
            "w1", STRING, descriptor, lambda key, state: visited.update({key: KINDS[kind].read(state)})
        )
        assert visited == {"a": 0, "c": 2}
        assert bare.backend.get_current_key() == "b"


class TestRestart:
    @pytest.mark.parametrize(
        ("namespace_type", "namespaces"),
        [
            (STRING, ["", "w", "é", "\U0001f600"]),
            (LONG, [0, -1, 2**63 - 1]),
            (WINDOW, [(0, 10), (10, 20), (-5, 5)]),
            (PICKLED, ["w", 1, ("w", 1), None.__class__]),
        ],
        ids=str,
    )
    def test_namespaces_of_every_type_survive_a_restart(self, bare, namespace_type, namespaces):
        for number, namespace in enumerate(namespaces):
            for key in ("a", "b"):
                bare.state(SPEND, key, namespace, namespace_type).update(number)
        restarted = bare.restarted()
        assert restarted.entries() == 2 * len(namespaces)
        for number, namespace in enumerate(namespaces):
            assert sorted(restarted.backend.get_keys("spend", namespace)) == ["a", "b"]
            assert restarted.state(SPEND, "b", namespace, namespace_type).value() == number


LISTED = ListStateDescriptor("merged", LONG)
#: Not commutative and not associative, so that every wrong order and grouping shows.
REDUCED = ReducingStateDescriptor("merged", lambda old, new: old * 10 + new, LONG)


def joined(function, declared):
    accumulator_type = Types.LIST(STRING) if isinstance(function, Joined) else STRING
    return AggregatingStateDescriptor("merged", function, accumulator_type if declared else PICKLED)


AGGREGATED = {
    "aggregating, mutable": joined(Joined(), declared=False),
    "aggregating, mutable, declared": joined(Joined(), declared=True),
    "aggregating, immutable": joined(JoinedText(), declared=False),
    "aggregating, immutable, declared": joined(JoinedText(), declared=True),
}

MERGING = {
    "list": LISTED,
    "list, undeclared": ListStateDescriptor("merged"),
    "reducing": REDUCED,
    "reducing, undeclared": ReducingStateDescriptor("merged", lambda old, new: old * 10 + new),
    **AGGREGATED,
}

every_merging = pytest.mark.parametrize("descriptor", MERGING.values(), ids=MERGING)


def fill(contract, descriptor, values_of, key="k"):
    """Add values to namespaces."""
    for namespace, values in values_of.items():
        for value in values:
            contract.state(descriptor, key, namespace, LONG).add(value)


def merge(contract, descriptor, target, sources, key="k"):
    contract.state(descriptor, key, target, LONG).merge_namespaces(target, sources)


def read(contract, descriptor, namespace, key="k"):
    """What is in a namespace; an empty list state reads as None."""
    got = contract.state(descriptor, key, namespace, LONG).get()
    return (list(got) or None) if isinstance(descriptor, ListStateDescriptor) else got


def expected(descriptor, target, *sources):
    """What a merge gives, from the values that each namespace was given; None where it had none."""
    sources = [values for values in sources if values]
    if isinstance(descriptor, ListStateDescriptor):
        return [*target, *itertools.chain(*sources)] or None
    if isinstance(descriptor, AggregatingStateDescriptor):
        return "".join(">" + "".join(map(str, values)) for values in [target, *sources] if values) or None

    def folded(values):
        total = None
        for value in values:
            total = value if total is None else total * 10 + value
        return total

    merged = folded([folded(values) for values in sources])
    return folded([value for value in (folded(target), merged) if value is not None])


class TestCombinations:
    """Each of a target and two or three sources has something or nothing."""

    @every_merging
    @pytest.mark.parametrize("filled", list(itertools.product([False, True], repeat=4)), ids=str)
    def test_l9_m1_target_first_then_the_sources_in_order(self, bare, descriptor, filled):
        values_of = {
            namespace: [2 * namespace + 1, namespace] if there else []
            for namespace, there in zip((3, 1, 4, 2), filled, strict=True)
        }
        fill(bare, descriptor, values_of)
        merge(bare, descriptor, 3, [1, 4, 2])
        assert read(bare, descriptor, 3) == expected(descriptor, *values_of.values())
        assert [read(bare, descriptor, source) for source in (1, 4, 2)] == [None] * 3
        assert bare.entries() == any(filled)

    @every_merging
    def test_l9_m1_a_target_among_the_sources_counts_once(self, bare, descriptor):
        fill(bare, descriptor, {1: [1], 2: [2]})
        merge(bare, descriptor, 1, [2, 1])
        assert read(bare, descriptor, 1) == expected(descriptor, [], [2], [1])
        assert bare.entries() == 1

    @every_merging
    def test_l9_m1_the_current_namespace_stays(self, bare, descriptor):
        fill(bare, descriptor, {1: [1], 2: [2], 3: [3]})
        state = bare.state(descriptor, "k", 3, LONG)

        def merge_and_add(merging):
            merging.merge_namespaces(1, [2])
            merging.add(4)

        state.run(merge_and_add)
        assert read(bare, descriptor, 3) == expected(descriptor, [3, 4])
        assert read(bare, descriptor, 1) == expected(descriptor, [1], [2])


class TestRefusals:
    @pytest.mark.parametrize("kind", ["list", "reducing", "aggregating, mutable"])
    @pytest.mark.parametrize(
        ("target", "sources"), [("wrong", [1, 2]), (3, [1, "wrong", 2]), (None, [1])], ids=str
    )
    def test_l9_m1_a_namespace_that_is_refused_loses_nothing(self, bare, kind, target, sources):
        descriptor = MERGING[kind]
        fill(bare, descriptor, {1: [1], 2: [2], 3: [3]})
        state = bare.state(descriptor, "k", 3, LONG)
        with pytest.raises(StateValueError, match="'merged', key 'k': namespace"):
            state.merge_namespaces(target, sources)
        assert [read(bare, descriptor, namespace) for namespace in (1, 2, 3)] == [
            expected(descriptor, [number]) for number in (1, 2, 3)
        ]

    @pytest.mark.parametrize("declared_type", [LONG, PICKLED], ids=str)
    def test_value_and_map_states_cannot_be_merged(self, bare, declared_type):
        counts = MapStateDescriptor("counts", declared_type, declared_type)
        assert not bare.state(counts, "k", 1, LONG).run(lambda state: hasattr(state, "merge_namespaces"))
