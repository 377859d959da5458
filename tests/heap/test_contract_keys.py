"""The current key, isolation, listing and counting: rows G1 to G3 and G16 to G19 of the semantics."""

from contextlib import nullcontext

import pytest
from backend_support import make_backend
from contract_backends import KINDS, LONG, STRING, lives

from pyflinkstate import (
    KeyedProcessFunction,
    Types,
    ValueStateDescriptor,
)
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.backends.types.internal_types import VOID_NAMESPACE, VOID_NAMESPACE_TYPE
from pyflinkstate.errors import InvalidKeyError, KeyGroupRangeError, NoCurrentKeyError
from pyflinkstate.testing import KeyedOneInputOperatorHarness

SPEND = ValueStateDescriptor("spend", LONG)

every_kind = pytest.mark.parametrize("kind", KINDS)

METHODS = {
    "value": [lambda s: s.value(), lambda s: s.update(1), lambda s: s.update(None)],
    "list": [
        *(list, lambda s: s.get(), lambda s: s.add(1), lambda s: s.add_all([1])),
        *(lambda s: s.update([1]), lambda s: s.update([])),
    ],
    "map": [
        *(list, lambda s: s.get("n"), lambda s: s.put("n", 1), lambda s: s.put_all({"n": 1})),
        *(lambda s: s.remove("n"), lambda s: s.contains("n"), lambda s: s.is_empty()),
        *(lambda s: s.items(), lambda s: s.keys(), lambda s: s.values()),
        *(lambda s: s["n"], lambda s: "n" in s, lambda s: s.__setitem__("n", 1)),
    ],
    "reducing": [lambda s: s.get(), lambda s: s.add(1), lambda s: s.add(None)],
    "aggregating": [lambda s: s.get(), lambda s: s.add(1), lambda s: s.add(None)],
}


def stored(contract, kind, keys, name="spend"):
    """Store the position of each of ``keys`` under it."""
    descriptor = KINDS[kind].describe(name)
    for number, key in enumerate(keys):
        contract.run(descriptor, lambda state, number=number: KINDS[kind].store(state, number), key)
    return descriptor


class TestCurrentKey:
    @every_kind
    @pytest.mark.parametrize("ttl", [False, True], ids=["for ever", "for a time"])
    def test_g1_without_a_key_no_method_works(self, bare, kind, ttl):
        descriptor = KINDS[kind].describe("spend")
        state = bare.backend.get_partitioned_state(lives(descriptor, 1000) if ttl else descriptor)
        for method in [*METHODS[kind], lambda s: s.clear()]:
            with pytest.raises(NoCurrentKeyError, match="'spend' was used with no key set") as error:
                method(state)
            assert error.value.context["state"] == "spend"
        assert bare.entries() == 0

    def test_g1_no_key_can_be_asked_for_while_there_is_none(self, bare):
        with pytest.raises(NoCurrentKeyError, match="no key is set"):
            bare.backend.get_current_key()

    @pytest.mark.parametrize("place", ["open", "close"])
    def test_g1_an_operator_has_no_key_before_and_after_its_records(self, place):
        class Eager(KeyedProcessFunction):
            def open(self, runtime_context):
                self.spend = runtime_context.get_state(SPEND)
                if place == "open":
                    self.spend.value()

            def process_element(self, value, ctx):
                self.spend.update(value)

            def close(self):
                self.spend.value()

        def run():
            harness = KeyedOneInputOperatorHarness(Eager(), lambda value: "k")
            harness.process_element(1)
            harness.close()

        with pytest.raises(NoCurrentKeyError, match=rf"not in open\(\) or close\(\)[^\0]*in {place}\(\)"):
            run()

    def test_g2_none_is_no_key(self, bare):
        with pytest.raises(InvalidKeyError, match="None cannot be a key"):
            bare.backend.set_current_key(None)

    @pytest.mark.parametrize(
        "refused", [None, float("nan"), [1], {}, object()], ids=lambda k: type(k).__name__
    )
    def test_g2_when_a_key_is_refused_the_one_before_stays(self, bare, refused):
        spend = bare.state(SPEND)
        spend.update(1)
        with pytest.raises(InvalidKeyError):
            bare.backend.set_current_key(refused)
        assert bare.backend.get_current_key() == "k"
        assert bare.backend.get_partitioned_state(SPEND).value() == 1

    @pytest.mark.parametrize("is_async", [True, False], ids=["copy-on-write", "plain"])
    def test_g3_a_key_of_another_subtask_is_refused_and_the_one_before_stays(self, is_async):
        """The empty string is in key group 94."""
        backend = make_backend(STRING, KeyGroupRange(90, 94), async_snapshots=is_async)
        backend.set_current_key("")
        with pytest.raises(KeyGroupRangeError, match=r"key group 20, .* range 90\.\.94") as error:
            backend.set_current_key("user-42")
        assert error.value.context["key"] == "'user-42'"
        assert backend.get_current_key() == ""

    def test_a_key_is_converted_to_its_type_or_refused(self):
        backend = make_backend(Types.DOUBLE())
        backend.set_current_key(1)
        assert type(backend.get_current_key()) is float
        with pytest.raises(InvalidKeyError, match="does not fit DOUBLE"):
            backend.set_current_key("1")

    def test_a_listener_hears_of_every_key(self, bare):
        heard = []
        bare.backend.key_context.add_listener(heard.append)
        for key in ("a", "b", "b"):
            bare.backend.set_current_key(key)
        bare.backend.clear_current_key()
        assert heard == ["a", "b", "b"]

    @pytest.mark.parametrize("keys", [(1, 1.0, True), (0, -0.0, False)], ids=str)
    def test_keys_that_python_calls_equal_are_one_key(self, everywhere, keys):
        for key in keys:
            everywhere.run(KINDS["reducing"].describe("visits"), lambda state: state.add(1), key)
        assert everywhere.run(KINDS["reducing"].describe("visits"), lambda state: state.get(), keys[0]) == 3
        assert everywhere.entries() == 1


class TestListing:
    @every_kind
    def test_g17_each_key_is_listed_once(self, bare, kind):
        descriptor = stored(bare, kind, ["a", "b", "a", "c"])
        assert sorted(bare.backend.get_keys("spend")) == ["a", "b", "c"]
        bare.state(descriptor, "b").clear()
        assert sorted(bare.backend.get_keys("spend")) == ["a", "c"]

    def test_g17_a_state_that_is_not_there_or_empty_lists_nothing(self, bare):
        bare.state(SPEND).value()
        for name in ("spend", "unknown"):
            assert list(bare.backend.get_keys(name)) == []

    def test_g17_no_key_is_needed_and_the_current_one_stays(self, bare):
        stored(bare, "value", ["a", "b"])
        bare.backend.set_current_key("a")
        assert sorted(bare.backend.get_keys("spend")) == ["a", "b"]
        assert bare.backend.get_current_key() == "a"
        bare.backend.clear_current_key()
        assert sorted(bare.backend.get_keys("spend")) == ["a", "b"]

    def test_g17_state_may_change_while_keys_are_listed(self, bare):
        stored(bare, "value", range(200))
        visited = []
        for key in bare.backend.get_keys("spend"):
            visited.append(key)
            bare.state(SPEND, key).clear()
            bare.state(SPEND, f"new {key}").update(0)
        assert set(range(200)) <= set(visited)
        assert len(visited) == len(set(visited))
        assert bare.entries() == 200  # one went and one came with each visit

    def test_g17_restored_keys_are_listed_before_the_state_is_asked_for(self, bare):
        stored(bare, "value", ["a", "b"])
        assert sorted(bare.restarted().backend.get_keys("spend")) == ["a", "b"]


class TestApplyToAllKeys:
    @staticmethod
    def apply(contract, descriptor, function):
        contract.backend.apply_to_all_keys(VOID_NAMESPACE, VOID_NAMESPACE_TYPE, descriptor, function)

    @every_kind
    def test_g18_every_key_is_visited_with_its_state(self, bare, kind):
        descriptor = stored(bare, kind, ["a", "b", "c"])
        visited = {}

        def visit(key, state):
            assert bare.backend.get_current_key() == key
            visited[key] = KINDS[kind].read(state)

        self.apply(bare, descriptor, visit)
        assert visited == {"a": 0, "b": 1, "c": 2}

    @pytest.mark.parametrize("current", ["b", "without state", None], ids=str)
    @pytest.mark.parametrize("fails", [False, True], ids=["visited", "the function raises"])
    def test_g18_the_current_key_is_set_back(self, bare, current, fails):
        stored(bare, "value", ["a", "b", "c"])
        bare.backend.clear_current_key() if current is None else bare.backend.set_current_key(current)

        def visit(key, state):
            if fails:
                raise KeyError("of the function")

        with pytest.raises(KeyError, match="of the function") if fails else nullcontext():
            self.apply(bare, SPEND, visit)
        if current is None:
            with pytest.raises(NoCurrentKeyError):
                bare.backend.get_current_key()
        else:
            assert bare.backend.get_current_key() == current
            assert bare.backend.get_partitioned_state(SPEND).value() == {"b": 1}.get(current)

    def test_g18_restored_state_is_visited_though_it_was_never_asked_for(self, bare):
        stored(bare, "value", ["a", "b"])
        visited = []
        self.apply(bare.restarted(), SPEND, lambda key, state: visited.append((key, state.value())))
        assert sorted(visited) == [("a", 0), ("b", 1)]
