"""How states are asked for, in a run and after a restore: rows G4 and G6 to G15 of the semantics.

Other than Flink, a state that is asked for as something else is always refused: within a run as
``StateRegistrationError``, after a restore as ``StateMigrationError``.
"""

import pytest
from backend_support import make_backend, restore, state_of, take_snapshot
from contract_backends import KINDS, LONG, PICKLED, STRING, Contract, JoinedText, lives
from slot_functions import Mean

from pyflinkstate import (
    AggregatingState,
    AggregatingStateDescriptor,
    ListState,
    ListStateDescriptor,
    MapState,
    MapStateDescriptor,
    ReducingState,
    ReducingStateDescriptor,
    Types,
    ValueState,
    ValueStateDescriptor,
)
from pyflinkstate.backends.keys import KeyGroupRange
from pyflinkstate.errors import (
    DescriptorTypeError,
    IncompatibleCheckpointError,
    NotKeyedStreamError,
    StateMigrationError,
    StateRegistrationError,
)
from pyflinkstate.runtime.operators.operators import OperatorContext

FACES = {
    "value": ValueState,
    "list": ListState,
    "map": MapState,
    "reducing": ReducingState,
    "aggregating": AggregatingState,
}

OTHER_TYPES = [
    (ValueStateDescriptor("s", LONG), ValueStateDescriptor("s", STRING)),
    (ValueStateDescriptor("s", LONG), ValueStateDescriptor("s", Types.INT())),
    (ValueStateDescriptor("s", LONG), ValueStateDescriptor("s")),
    (ValueStateDescriptor("s"), ValueStateDescriptor("s", LONG)),
    (ListStateDescriptor("s", LONG), ListStateDescriptor("s", STRING)),
    (MapStateDescriptor("s", LONG, LONG), MapStateDescriptor("s", STRING, LONG)),
    (MapStateDescriptor("s", LONG, LONG), MapStateDescriptor("s", LONG, STRING)),
    (ReducingStateDescriptor("s", max, LONG), ReducingStateDescriptor("s", max, STRING)),
    (AggregatingStateDescriptor("s", Mean(), Types.LIST(LONG)), AggregatingStateDescriptor("s", Mean())),
    (
        ValueStateDescriptor("s", Types.TUPLE([LONG, LONG])),
        ValueStateDescriptor("s", Types.TUPLE([LONG, STRING])),
    ),
]

every_kind = pytest.mark.parametrize("kind", KINDS)


def pairs_of_types(pairs):
    names = [f"{first.kind.value} {first.stored_type} as {second.stored_type}" for first, second in pairs]
    return pytest.mark.parametrize(("first", "second"), pairs, ids=names)


class TestNotKeyed:
    @every_kind
    def test_g4_off_a_keyed_stream_there_is_no_keyed_state(self, kind):
        context = OperatorContext("parse", 0, 1, 128, 0, backend=None)
        request = getattr(context, "get_state" if kind == "value" else f"get_{kind}_state")
        with pytest.raises(
            NotKeyedStreamError, match=rf"'parse': keyed state 'spend' \({kind.upper()}\).* key_by"
        ):
            request(KINDS[kind].describe("spend"))


class TestNames:
    @pytest.mark.parametrize("name", [None, 1, b"spend"], ids=repr)
    @pytest.mark.parametrize(
        "make",
        [
            ValueStateDescriptor,
            ListStateDescriptor,
            MapStateDescriptor,
            lambda name: ReducingStateDescriptor(name, max),
            lambda name: AggregatingStateDescriptor(name, Mean()),
        ],
        ids=list(KINDS),
    )
    def test_g6_a_name_is_a_str(self, make, name):
        with pytest.raises(DescriptorTypeError, match="the name must be a str"):
            make(name)

    @pytest.mark.parametrize("name", ["", " ", "é/\\..", "\U0001f600", "n" * 500], ids=len)
    def test_g6_any_str_is_a_name_also_in_a_snapshot(self, everywhere, name):
        everywhere.state(ValueStateDescriptor(name, LONG)).update(1)
        everywhere.state(ValueStateDescriptor(name + "2", LONG)).update(2)
        restarted = everywhere.restarted()
        assert restarted.state(ValueStateDescriptor(name, LONG)).value() == 1
        assert restarted.state(ValueStateDescriptor(name + "2", LONG)).value() == 2

    def test_g6_names_of_timers_are_kept_for_timers(self, everywhere):
        with pytest.raises(StateRegistrationError, match="belong to timers"):
            everywhere.state(ValueStateDescriptor("_timer_state/event_timers")).value()

    @pytest.mark.parametrize("thing", ["spend", None, LONG, ValueStateDescriptor], ids=repr)
    def test_a_state_is_asked_for_by_a_descriptor(self, bare, thing):
        with pytest.raises(StateRegistrationError, match="a state descriptor is needed"):
            bare.backend.get_partitioned_state(thing)


class TestWithinARun:
    @every_kind
    @pytest.mark.parametrize("ttl", [False, True], ids=["for ever", "for a time"])
    def test_g7_the_same_descriptor_gives_the_same_object(self, everywhere, kind, ttl):
        def describe(name):
            return lives(KINDS[kind].describe(name), 1000) if ttl else KINDS[kind].describe(name)

        descriptor = describe("spend")
        state = everywhere.run(descriptor, lambda state: state)
        assert isinstance(state, FACES[kind])
        assert everywhere.run(descriptor, lambda state: state, "other key") is state
        assert everywhere.run(describe("other name"), lambda state: state) is not state

    def test_g7_an_equal_descriptor_gives_the_same_object(self, everywhere):
        states = [everywhere.run(ListStateDescriptor("s", LONG), lambda state: state) for _ in range(2)]
        assert states[0] is states[1]

    @pairs_of_types(OTHER_TYPES)
    def test_g7_another_type_is_refused_and_the_state_stays(self, everywhere, first, second):
        """Flink overlooks it."""
        state = everywhere.run(first, lambda state: state)
        with pytest.raises(StateRegistrationError, match="'s' is in use as") as error:
            everywhere.run(second, lambda state: state)
        assert not isinstance(error.value, StateMigrationError)
        assert f"{first.stored_type}, and is requested as" in error.value.message
        assert f"{second.kind.value} of {second.stored_type}:" in error.value.message
        assert everywhere.run(first, lambda state: state) is state

    @every_kind
    @pytest.mark.parametrize("other", KINDS)
    def test_g8_another_kind_is_refused_and_the_state_stays(self, everywhere, kind, other):
        if kind == other:
            return
        everywhere.run(KINDS[kind].describe("spend"), lambda state: KINDS[kind].store(state, 7))
        with pytest.raises(StateRegistrationError, match=f"'spend' is in use as {kind.upper()}"):
            everywhere.run(KINDS[other].describe("spend"), lambda state: state)
        assert everywhere.run(KINDS[kind].describe("spend"), KINDS[kind].read) == 7

    def test_g8_the_kind_counts_where_the_stored_type_is_the_same(self, everywhere):
        everywhere.state(ListStateDescriptor("s", LONG)).add(1)
        with pytest.raises(StateRegistrationError):
            everywhere.state(ValueStateDescriptor("s", Types.LIST(LONG))).value()

    @pytest.mark.parametrize("kind", KINDS)
    def test_g8_an_operator_asks_each_kind_by_its_method(self, kind):
        context = OperatorContext("spend", 0, 1, 128, 0, make_backend())
        for other in KINDS:
            request = getattr(context, "get_state" if other == "value" else f"get_{other}_state")
            if other == kind:
                assert isinstance(request(KINDS[kind].describe("s")), FACES[kind])
                continue
            with pytest.raises(StateRegistrationError, match="Descriptor is needed here"):
                request(KINDS[kind].describe("s"))


class TestAfterARestore:
    @every_kind
    @pytest.mark.parametrize("other", KINDS)
    def test_g9_another_kind_is_refused_and_the_right_one_is_still_given(self, everywhere, kind, other):
        if kind == other:
            return
        everywhere.run(KINDS[kind].describe("spend"), lambda state: KINDS[kind].store(state, 7))
        restarted = everywhere.restarted()
        with pytest.raises(StateMigrationError, match=rf"'spend' was restored as {kind.upper()} of"):
            restarted.run(KINDS[other].describe("spend"), lambda state: state)
        assert restarted.run(KINDS[kind].describe("spend"), KINDS[kind].read) == 7

    def test_g10_the_functions_of_a_descriptor_may_change(self, everywhere):
        everywhere.state(ReducingStateDescriptor("reducing", max, LONG)).add(3)
        everywhere.state(AggregatingStateDescriptor("text", JoinedText(), STRING)).add(3)
        restarted = everywhere.restarted()
        smallest = restarted.state(ReducingStateDescriptor("reducing", min, LONG))
        smallest.add(1)
        assert smallest.get() == 1

        class Shouted(JoinedText):
            def get_result(self, accumulator):
                return accumulator + "!"

        assert restarted.state(AggregatingStateDescriptor("text", Shouted(), STRING)).get() == ">3!"

    @pytest.mark.parametrize(
        ("was", "now"), [(STRING, PICKLED), (PICKLED, STRING), (LONG, Types.INT()), (LONG, STRING)], ids=str
    )
    def test_g12_another_key_type_is_refused_by_the_restore(self, everywhere, was, now):
        contract = Contract(everywhere.mode, was)
        contract.state(ValueStateDescriptor("s", LONG), 1 if was == LONG else "k").update(1)
        with pytest.raises(IncompatibleCheckpointError, match=f"keys of {was}, and the program .* {now}"):
            contract.restarted(now)
        contract.close()

    def test_another_max_parallelism_is_refused_by_the_restore(self):
        backend = make_backend(max_parallelism=64, own=KeyGroupRange(0, 63))
        state_of(backend, ValueStateDescriptor("s", LONG), "k").update(1)
        with pytest.raises(
            IncompatibleCheckpointError, match="max parallelism 64, and the program declares 128"
        ):
            restore([take_snapshot(backend)])
