"""State by namespace, as windows keep it: rows G5, G16 to G19 of the semantics where namespaces matter.

Merging is in ``test_contract_merging.py``.
"""

import pytest
from contract_backends import KINDS, LONG, PICKLED, STRING, lives

from pyflinkstate import MapStateDescriptor, Types, ValueStateDescriptor
from pyflinkstate.backends.types.internal_types import VOID_NAMESPACE, VOID_NAMESPACE_TYPE
from pyflinkstate.errors import (
    PyFlinkStateError,
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

    @pytest.mark.parametrize("namespace_type", [STRING, PICKLED], ids=str)
    def test_g5_state_by_namespace_cannot_be_used_before_one_is_set(self, bare, namespace_type):
        """Or a snapshot meets an entry that has a key and no namespace."""
        bare.backend.set_current_key("kw")
        state = bare.backend.get_or_create_keyed_state(SPEND, namespace_type)
        with pytest.raises(PyFlinkStateError, match="namespace"):
            state.update(1)
        assert bare.entries() == 0
        assert bare.restarted().entries() == 0

    def test_the_same_state_is_given_for_every_namespace(self, bare):
        one = bare.backend.get_partitioned_state(SPEND, "w1", STRING)
        assert bare.backend.get_partitioned_state(SPEND, "w2", STRING) is one
        assert bare.backend.get_or_create_keyed_state(SPEND, STRING) is one

    def test_the_namespace_can_be_set_at_the_state(self, bare):
        bare.backend.set_current_key("k")
        state = bare.backend.get_or_create_keyed_state(SPEND, STRING)
        for number, namespace in enumerate(("w1", "w2", "w3")):
            state.set_current_namespace(namespace)
            assert state.value() is None
            state.update(number)
        read = []
        for namespace in ("w3", "w1", "w2"):
            state.set_current_namespace(namespace)
            read.append(state.value())
        assert read == [2, 0, 1]

    def test_the_namespace_stays_while_the_key_changes(self, bare):
        bare.backend.set_current_key("a")
        state = bare.backend.get_partitioned_state(SPEND, "w", STRING)
        state.update(1)
        bare.backend.set_current_key("b")
        state.update(2)
        assert sorted(bare.backend.get_keys_and_namespaces("spend")) == [("a", "w"), ("b", "w")]

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


class TestIsolation:
    @every_kind
    def test_g16_each_key_and_namespace_has_state_of_its_own(self, bare, kind):
        places = [(key, f"w{number}") for key in ("a", "b", "c") for number in range(5)]
        descriptor = store(bare, kind, places)
        assert [bare.run(descriptor, KINDS[kind].read, *place, STRING) for place in places] == list(range(15))
        assert not bare.run(descriptor, KINDS[kind].read, "a", "w5", STRING)
        assert bare.entries() == 15

    @every_kind
    def test_g16_clear_removes_just_the_current_namespace(self, bare, kind):
        places = [("a", "w1"), ("a", "w2"), ("b", "w1")]
        descriptor = store(bare, kind, places)
        bare.state(descriptor, "a", "w1", STRING).clear()
        assert sorted(bare.backend.get_keys_and_namespaces("spend")) == [("a", "w2"), ("b", "w1")]
        assert bare.run(descriptor, KINDS[kind].read, "a", "w2", STRING) == 1

    def test_g16_key_and_namespace_are_not_mixed_up(self, bare):
        for number, place in enumerate((("a", "b"), ("b", "a"), ("ab", ""), ("", "ab"))):
            bare.state(SPEND, *place, STRING).update(number)
        assert bare.state(SPEND, "a", "b", STRING).value() == 0
        assert bare.state(SPEND, "", "ab", STRING).value() == 3
        assert bare.entries() == 4

    def test_g16_the_default_value_is_there_in_every_namespace(self, bare):
        spend = ValueStateDescriptor("spend", LONG, default_value=42)
        bare.state(spend, "k", "w1", STRING).update(1)
        assert bare.state(spend, "k", "w1", STRING).value() == 1
        assert bare.state(spend, "k", "w2", STRING).value() == 42
        assert bare.entries() == 1

    def test_g16_a_map_state_never_keeps_an_empty_entry_in_any_namespace(self, bare):
        counts = MapStateDescriptor("counts", STRING, LONG)
        for namespace in ("w1", "w2"):
            bare.state(counts, "k", namespace, STRING).put("a", 1)

        def remove_all(state):
            iterator = iter(state)
            for _ in iterator:
                iterator.remove()

        bare.state(counts, "k", "w1", STRING).run(remove_all)
        assert list(bare.backend.get_keys_and_namespaces("counts")) == [("k", "w2")]
        bare.state(counts, "k", "w2", STRING).remove("a")
        assert bare.entries() == 0


class TestListing:
    @every_kind
    def test_g17_a_key_is_listed_once_for_each_namespace(self, bare, kind):
        store(bare, kind, [("a", "w1"), ("b", "w1"), ("a", "w2"), ("a", "w1"), ("c", "w3")])
        backend = bare.backend
        assert sorted(backend.get_keys("spend", "w1")) == ["a", "b"]
        assert sorted(backend.get_keys("spend", "w2")) == ["a"]
        assert list(backend.get_keys("spend", "w4")) == []
        assert list(backend.get_keys("spend")) == []
        assert sorted(backend.get_keys_and_namespaces("spend")) == [
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

    def test_g18_clearing_what_is_visited_leaves_the_other_namespaces(self, bare):
        store(bare, "list", [(key, namespace) for key in range(50) for namespace in ("w1", "w2")])
        descriptor = KINDS["list"].describe("spend")
        bare.backend.apply_to_all_keys("w1", STRING, descriptor, lambda key, state: state.clear())
        assert list(bare.backend.get_keys("spend", "w1")) == []
        assert sorted(bare.backend.get_keys("spend", "w2")) == list(range(50))

    def test_g19_each_key_and_namespace_counts(self, bare):
        places = [(key, namespace) for key in ("a", "b") for namespace in ("w1", "w2", "w3")]
        for count, place in enumerate(places, start=1):
            bare.state(SPEND, *place, STRING).update(count)
            assert bare.entries() == count
        for place in places:
            bare.state(SPEND, *place, STRING).clear()
        assert bare.entries() == 0


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

    @every_kind
    def test_all_kinds_survive_a_restart_and_go_on(self, bare, kind):
        descriptor = store(bare, kind, [("a", "w1"), ("a", "w2"), ("b", "w2")])
        restarted = bare.restarted()
        restarted.run(descriptor, lambda state: KINDS[kind].store(state, 7), "a", "w3", STRING)
        read = [restarted.run(descriptor, KINDS[kind].read, "a", f"w{n}", STRING) for n in (1, 2, 3)]
        assert read == [0, 1, 7]

    def test_state_with_and_without_namespaces_live_beside_each_other(self, bare):
        bare.state(ValueStateDescriptor("plain", LONG), "ab").update(1)
        bare.state(SPEND, "a", "b", STRING).update(2)
        restarted = bare.restarted()
        assert restarted.state(ValueStateDescriptor("plain", LONG), "ab").value() == 1
        assert list(restarted.backend.get_keys("plain")) == ["ab"]
        assert restarted.state(SPEND, "a", "b", STRING).value() == 2
