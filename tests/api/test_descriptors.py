"""The five descriptors: PyFlink's names and argument order, defaults, and what they refuse."""

import pickle

import pytest

from pyflinkstate import AggregateFunction, ReduceFunction, Types
from pyflinkstate.api.state import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateKind,
    ValueStateDescriptor,
)
from pyflinkstate.errors import DescriptorTypeError, StateRegistrationError

LONG, STRING, PICKLED = Types.LONG(), Types.STRING(), Types.PICKLED_BYTE_ARRAY()


class Sum(ReduceFunction):
    def reduce(self, value1, value2):
        return value1 + value2


class Count(AggregateFunction):
    def create_accumulator(self):
        return 0

    def add(self, value, accumulator):
        return accumulator + 1

    def get_result(self, accumulator):
        return accumulator

    def merge(self, acc_a, acc_b):
        return acc_a + acc_b


SUM, COUNT = Sum(), Count()

MAKERS = {
    "value": lambda name: ValueStateDescriptor(name, LONG),
    "list": lambda name: ListStateDescriptor(name, LONG),
    "map": lambda name: MapStateDescriptor(name, STRING, LONG),
    "reducing": lambda name: ReducingStateDescriptor(name, SUM, LONG),
    "aggregating": lambda name: AggregatingStateDescriptor(name, COUNT, LONG),
}

every_kind = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


def test_value_takes_name_and_type():
    descriptor = ValueStateDescriptor("n", LONG)
    assert (descriptor.name, descriptor.value_type_info) == ("n", LONG)
    assert (descriptor.kind, descriptor.stored_type) == (StateKind.VALUE, LONG)


def test_list_takes_name_and_element_type():
    descriptor = ListStateDescriptor("n", LONG)
    assert (descriptor.name, descriptor.elem_type_info) == ("n", LONG)
    assert (descriptor.kind, descriptor.stored_type) == (StateKind.LIST, Types.LIST(LONG))


def test_map_takes_name_key_type_and_value_type():
    descriptor = MapStateDescriptor("n", STRING, LONG)
    assert (descriptor.name, descriptor.key_type_info, descriptor.value_type_info) == ("n", STRING, LONG)
    assert (descriptor.kind, descriptor.stored_type) == (StateKind.MAP, Types.MAP(STRING, LONG))


def test_reducing_takes_name_function_and_type():
    descriptor = ReducingStateDescriptor("n", SUM, LONG)
    assert (descriptor.name, descriptor.type_info) == ("n", LONG)
    assert descriptor.get_reduce_function() is descriptor.reduce_function is SUM
    assert (descriptor.kind, descriptor.stored_type) == (StateKind.REDUCING, LONG)


def test_aggregating_takes_name_function_and_accumulator_type():
    descriptor = AggregatingStateDescriptor("n", COUNT, LONG)
    assert (descriptor.name, descriptor.state_type_info) == ("n", LONG)
    assert descriptor.get_agg_function() is descriptor.agg_function is COUNT
    assert (descriptor.kind, descriptor.stored_type) == (StateKind.AGGREGATING, LONG)


@pytest.mark.parametrize(
    ("descriptor", "stored_type"),
    [
        (ValueStateDescriptor("n"), PICKLED),
        (ValueStateDescriptor("n", None), PICKLED),
        (ListStateDescriptor("n"), Types.LIST(PICKLED)),
        (MapStateDescriptor("n"), Types.MAP(PICKLED, PICKLED)),
        (MapStateDescriptor("n", STRING), Types.MAP(STRING, PICKLED)),
        (ReducingStateDescriptor("n", SUM), PICKLED),
        (AggregatingStateDescriptor("n", COUNT), PICKLED),
    ],
    ids=lambda part: type(part).__name__,
)
def test_a_type_that_is_left_out_is_pickled(descriptor, stored_type):
    assert descriptor.stored_type == stored_type


def test_arguments_may_be_named_as_in_pyflink():
    assert ValueStateDescriptor(name="n", value_type_info=LONG) == ValueStateDescriptor("n", LONG)
    assert ListStateDescriptor(name="n", elem_type_info=LONG) == ListStateDescriptor("n", LONG)
    named = MapStateDescriptor(name="n", key_type_info=STRING, value_type_info=LONG)
    assert named == MapStateDescriptor("n", STRING, LONG)
    named = ReducingStateDescriptor(name="n", reduce_function=SUM, type_info=LONG)
    assert named == ReducingStateDescriptor("n", SUM, LONG)
    named = AggregatingStateDescriptor(name="n", agg_function=COUNT, state_type_info=LONG)
    assert named == AggregatingStateDescriptor("n", COUNT, LONG)


@every_kind
def test_a_descriptor_gives_its_name(make):
    assert make("spend").get_name() == "spend"


@every_kind
def test_an_empty_name_is_legal_as_in_flink(make):
    assert make("").get_name() == ""


@every_kind
@pytest.mark.parametrize("name", [None, 1, b"n", ("n",)], ids=repr)
def test_a_name_that_is_no_str_is_refused(make, name):
    with pytest.raises(DescriptorTypeError, match="the name must be a str"):
        make(name)


@every_kind
def test_a_descriptor_is_frozen(make):
    descriptor = make("n")
    with pytest.raises(AttributeError):
        descriptor.name = "other"
    assert descriptor.name == "n"


@every_kind
def test_a_descriptor_is_a_value(make):
    assert make("n") == make("n")
    assert hash(make("n")) == hash(make("n"))
    assert make("n") != make("m")


@pytest.mark.parametrize(
    "make",
    [MAKERS[kind] for kind in ("value", "list", "map")],
    ids=["value", "list", "map"],
)
def test_a_descriptor_without_a_function_survives_pickling(make):
    assert pickle.loads(pickle.dumps(make("n"))) == make("n")


def test_descriptors_of_different_kinds_differ():
    descriptors = [make("n") for make in MAKERS.values()]
    assert len(set(descriptors)) == len({descriptor.kind for descriptor in descriptors}) == 5


def test_a_callable_serves_as_a_reduce_function():
    reduce_function = ReducingStateDescriptor("n", lambda old, new: f"{old},{new}").get_reduce_function()
    assert isinstance(reduce_function, ReduceFunction)
    assert reduce_function.reduce("old", "new") == "old,new"


def test_descriptors_of_the_same_callable_are_equal():
    assert ReducingStateDescriptor("n", max) == ReducingStateDescriptor("n", max)


WRONG_ARGUMENTS = {
    "value type is a class": lambda: ValueStateDescriptor("spend", int),
    "value type is a str": lambda: ValueStateDescriptor("spend", "LONG"),
    "value type is not called": lambda: ValueStateDescriptor("spend", Types.LONG),
    "element type": lambda: ListStateDescriptor("spend", list),
    "map key type": lambda: MapStateDescriptor("spend", str, LONG),
    "map value type": lambda: MapStateDescriptor("spend", STRING, int),
    "reduce function is None": lambda: ReducingStateDescriptor("spend", None, LONG),
    "reduce function is a type info": lambda: ReducingStateDescriptor("spend", LONG, SUM),
    "reduce type": lambda: ReducingStateDescriptor("spend", SUM, int),
    "aggregate function is a callable": lambda: AggregatingStateDescriptor("spend", max, LONG),
    "aggregate function is a ReduceFunction": lambda: AggregatingStateDescriptor("spend", SUM, LONG),
    "aggregate function is a class": lambda: AggregatingStateDescriptor("spend", Count, LONG),
    "aggregate function is None": lambda: AggregatingStateDescriptor("spend", None),
    "accumulator type": lambda: AggregatingStateDescriptor("spend", COUNT, dict),
}


@pytest.mark.parametrize("make", WRONG_ARGUMENTS.values(), ids=WRONG_ARGUMENTS)
def test_a_wrong_argument_is_refused_and_the_state_is_named(make):
    with pytest.raises(DescriptorTypeError, match=r"StateDescriptor 'spend': .* must be") as refusal:
        make()
    assert refusal.value.context["state"] == "spend"


def test_the_refusal_is_caught_as_type_error_and_as_value_error():
    for caught in (TypeError, ValueError, StateRegistrationError):
        with pytest.raises(caught):
            ValueStateDescriptor("spend", int)


def test_the_refusal_of_a_name_pickles_whatever_the_name_was():
    with pytest.raises(DescriptorTypeError) as refusal:
        ValueStateDescriptor(lambda: "spend")
    assert "must be a str" in str(pickle.loads(pickle.dumps(refusal.value)))
