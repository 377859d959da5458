"""Merging namespaces, as merging windows do: rows L9 and M1 of the semantics.

What the snapshots hold that are open meanwhile is checked when they are released.
"""

import itertools

import pytest
from contract_backends import LONG, PICKLED, STRING, Joined, JoinedText

from pyflinkstate import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    Types,
)
from pyflinkstate.errors import StateValueError

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
    def test_l9_m1_the_order_of_the_sources_is_that_of_the_call(self, bare, descriptor):
        fill(bare, descriptor, {1: [1], 2: [2], 3: [3]})
        merge(bare, descriptor, 1, [3, 2])
        assert read(bare, descriptor, 1) == expected(descriptor, [1], [3], [2])

    @every_merging
    def test_l9_m1_no_sources_change_nothing(self, bare, descriptor):
        fill(bare, descriptor, {1: [1, 2]})
        merge(bare, descriptor, 1, [])
        merge(bare, descriptor, 2, [])
        assert read(bare, descriptor, 1) == expected(descriptor, [1, 2])
        assert bare.entries() == 1

    @every_merging
    def test_l9_m1_sources_may_come_from_an_iterator(self, bare, descriptor):
        fill(bare, descriptor, {1: [1], 2: [2]})
        merge(bare, descriptor, 3, iter((1, 2)))
        assert read(bare, descriptor, 3) == expected(descriptor, [], [1], [2])

    @every_merging
    def test_l9_m1_a_source_that_comes_twice_counts_once(self, bare, descriptor):
        fill(bare, descriptor, {1: [1], 2: [2]})
        merge(bare, descriptor, 1, [2, 2])
        assert read(bare, descriptor, 1) == expected(descriptor, [1], [2])
        assert bare.entries() == 1

    @every_merging
    def test_l9_m1_a_target_among_the_sources_counts_once(self, bare, descriptor):
        fill(bare, descriptor, {1: [1], 2: [2]})
        merge(bare, descriptor, 1, [2, 1])
        assert read(bare, descriptor, 1) == expected(descriptor, [], [2], [1])
        assert bare.entries() == 1

    @every_merging
    def test_l9_m1_just_the_current_key_is_merged(self, bare, descriptor):
        for number, key in enumerate(("a", "b")):
            fill(bare, descriptor, {1: [number], 2: [number + 2]}, key)
        merge(bare, descriptor, 1, [2], "a")
        assert read(bare, descriptor, 1, "a") == expected(descriptor, [0], [2])
        assert [read(bare, descriptor, namespace, "b") for namespace in (1, 2)] == [
            expected(descriptor, [1]),
            expected(descriptor, [3]),
        ]

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

    @every_merging
    def test_l9_m1_what_was_merged_goes_on_and_survives_a_restart(self, bare, descriptor):
        fill(bare, descriptor, {1: [1], 2: [2]})
        merge(bare, descriptor, 3, [1, 2])
        fill(bare, descriptor, {3: [5], 1: [6]})
        restarted = bare.restarted()
        for contract in (bare, restarted):
            assert sorted(contract.backend.get_keys_and_namespaces("merged")) == [("k", 1), ("k", 3)]
            assert read(contract, descriptor, 1) == expected(descriptor, [6])
        assert read(restarted, descriptor, 3) == read(bare, descriptor, 3) is not None


class TestFlinksExamples:
    @every_merging
    def test_l9_m1_values_that_are_false_are_merged_too(self, bare, descriptor):
        fill(bare, descriptor, {0: [0], 1: [0], 2: [7], 3: [0]})
        merge(bare, descriptor, 0, [1, 2, 3])
        assert read(bare, descriptor, 0) == expected(descriptor, [0], [0], [7], [0])
        assert bare.entries() == 1

    def test_m1_a_sum_of_nothing_much_is_still_a_value(self, bare):
        total = ReducingStateDescriptor("merged", lambda old, new: old + new, LONG)
        fill(bare, total, {1: [1, -1], 2: [0]})
        merge(bare, total, 3, [1, 2])
        assert read(bare, total, 3) == 0
        assert list(bare.backend.get_keys("merged", 3)) == ["k"]

    @pytest.mark.parametrize("descriptor", AGGREGATED.values(), ids=AGGREGATED)
    def test_m1_accumulators_are_merged_not_results(self, bare, descriptor):
        """PyFlink's thread mode merges results, and forgets what the target had."""
        fill(bare, descriptor, {0: [3], 1: [1], 2: [2]})
        merge(bare, descriptor, 0, [1, 2])
        assert read(bare, descriptor, 0) == ">3>1>2"
        fill(bare, descriptor, {0: [4]})
        assert read(bare, descriptor, 0) == ">3>1>24"

    @every_merging
    def test_l9_m1_one_key_each(self, bare, descriptor):
        """abc is spread over three namespaces, def over two, ghi has nothing; all of jkl is in the
        target already, all of mno in one source (Flink: testListStateMerging and its like)."""
        layout = {
            "abc": {1: [3, 5], 2: [2, 1], 3: [4]},
            "def": {1: [1, 4], 3: [2, 5, 3]},
            "ghi": {},
            "jkl": {1: [1, 2, 3, 4, 5]},
            "mno": {3: [1, 2, 3, 4, 5]},
        }
        for key, values_of in layout.items():
            fill(bare, descriptor, values_of, key)
        for key in layout:
            merge(bare, descriptor, 1, [2, 3], key)
        for key, values_of in layout.items():
            parts = [values_of.get(namespace, []) for namespace in (1, 2, 3)]
            assert read(bare, descriptor, 1, key) == expected(descriptor, *parts), key
            assert [read(bare, descriptor, namespace, key) for namespace in (2, 3)] == [None, None]
        assert bare.entries() == 4
        for key in layout:
            bare.state(descriptor, key, 1, LONG).clear()
        assert bare.entries() == 0


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
