"""The five descriptors: PyFlink's names and argument order, defaults, and what they refuse."""

import pickle

import pytest

from pyflinkstate import AggregateFunction, ReduceFunction, Types
from pyflinkstate.api import (
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

#: Each class with its arguments after the name, in the order of PyFlink, its kind, and what it stores.
KINDS = [
    (ValueStateDescriptor, {"value_type_info": LONG}, StateKind.VALUE, LONG),
    (ListStateDescriptor, {"elem_type_info": LONG}, StateKind.LIST, Types.LIST(LONG)),
    (
        MapStateDescriptor,
        {"key_type_info": STRING, "value_type_info": LONG},
        StateKind.MAP,
        Types.MAP(STRING, LONG),
    ),
    (ReducingStateDescriptor, {"reduce_function": SUM, "type_info": LONG}, StateKind.REDUCING, LONG),
    (
        AggregatingStateDescriptor,
        {"agg_function": COUNT, "state_type_info": LONG},
        StateKind.AGGREGATING,
        LONG,
    ),
]


@pytest.mark.parametrize(("cls", "arguments", "kind", "stored_type"), KINDS)
def test_a_descriptor_is_a_value_with_pyflinks_arguments(cls, arguments, kind, stored_type):
    descriptor = cls("n", *arguments.values())
    assert (descriptor.get_name(), descriptor.kind, descriptor.stored_type) == ("n", kind, stored_type)
    assert {name: getattr(descriptor, name) for name in arguments} == arguments
    named = cls(name="n", **arguments)
    assert (named, hash(named)) == (descriptor, hash(descriptor))
    assert descriptor != cls("m", *arguments.values())
    assert cls("", *arguments.values()).get_name() == "", "an empty name is legal, as in Flink"
    with pytest.raises(AttributeError):
        descriptor.name = "other"
    for name in (None, 1, b"n", ("n",)):
        with pytest.raises(DescriptorTypeError, match="the name must be a str"):
            cls(name, *arguments.values())


def test_descriptors_of_different_kinds_differ():
    descriptors = {cls("n", *arguments.values()) for cls, arguments, *_ in KINDS}
    assert len(descriptors) == len({descriptor.kind for descriptor in descriptors}) == 5


def test_functions_are_given_back():
    assert ReducingStateDescriptor("n", SUM).get_reduce_function() is SUM
    assert AggregatingStateDescriptor("n", COUNT).get_agg_function() is COUNT


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


@pytest.mark.parametrize(
    "descriptor",
    [ValueStateDescriptor("n", LONG), ListStateDescriptor("n", LONG), MapStateDescriptor("n", STRING, LONG)],
    ids=lambda part: type(part).__name__,
)
def test_a_descriptor_without_a_function_survives_pickling(descriptor):
    assert pickle.loads(pickle.dumps(descriptor)) == descriptor


def test_a_callable_serves_as_a_reduce_function():
    reduce_function = ReducingStateDescriptor("n", lambda old, new: f"{old},{new}").get_reduce_function()
    assert isinstance(reduce_function, ReduceFunction)
    assert reduce_function.reduce("old", "new") == "old,new"
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
