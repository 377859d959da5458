"""The five descriptors and StateTtlConfig: names and arguments as in PyFlink, defaults, what they refuse."""

import datetime
import pickle

import cloudpickle
import pytest
from pass_through import Count

from pyflinkstate import Duration, ReduceFunction, StateTtlConfig, Time, Types
from pyflinkstate.api import (
    AggregatingStateDescriptor,
    ListStateDescriptor,
    MapStateDescriptor,
    ReducingStateDescriptor,
    StateKind,
    ValueStateDescriptor,
)
from pyflinkstate.errors import ConfigurationError, DescriptorTypeError, StateRegistrationError

LONG, STRING, PICKLED = Types.LONG(), Types.STRING(), Types.PICKLED_BYTE_ARRAY()


class Sum(ReduceFunction):
    def reduce(self, value1, value2):
        return value1 + value2


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


# --- StateTtlConfig and its builder (T5, C1, C2) -----------------------------------------------------------


UpdateType = StateTtlConfig.UpdateType
StateVisibility = StateTtlConfig.StateVisibility
TtlTimeCharacteristic = StateTtlConfig.TtlTimeCharacteristic
CleanupStrategies = StateTtlConfig.CleanupStrategies
Incremental = CleanupStrategies.IncrementalCleanupStrategy
CompactFilter = CleanupStrategies.RocksdbCompactFilterCleanupStrategy
RELAXED, STRICT = StateVisibility.ReturnExpiredIfNotCleanedUp, StateVisibility.NeverReturnExpired
MONTH = Duration.of_days(30)


@pytest.fixture
def builder():
    return StateTtlConfig.new_builder(Time.seconds(1))


def everything_set(builder):
    return (
        builder.update_ttl_on_read_and_write()
        .return_expired_if_not_cleaned_up()
        .cleanup_full_snapshot()
        .cleanup_incrementally(7, True)
        .cleanup_in_rocksdb_compact_filter(9, Duration.of_days(2))
        .disable_cleanup_in_background()
    )


def content(config):
    """Return what the getters of a configuration and of its strategies give."""
    strategies = config.get_cleanup_strategies()
    assert config.get_ttl_time_characteristic() is TtlTimeCharacteristic.ProcessingTime
    return {
        "ttl": config.get_ttl(),
        "update": config.get_update_type(),
        "visibility": config.get_state_visibility(),
        "background": strategies.is_cleanup_in_background(),
        "full snapshot": strategies.in_full_snapshot(),
        "incremental": strategies.get_incremental_cleanup_strategy(),
        "has filter": strategies.in_rocksdb_compact_filter(),
        "filter": strategies.get_rocksdb_compact_filter_cleanup_strategy(),
    }


#: As in PyFlink: five entries are looked at (C1), but not for every record.
DEFAULTS = {
    "ttl": Time.seconds(1),
    "update": UpdateType.OnCreateAndWrite,
    "visibility": STRICT,
    "background": True,
    "full snapshot": False,
    "incremental": Incremental(5, False),
    "has filter": True,
    "filter": CompactFilter(1000, MONTH),
}
#: What a call of the builder changes; C2 is about those without background.
CHANGES = [
    (lambda b: b.set_update_type(UpdateType.Disabled), {"update": UpdateType.Disabled}),
    (lambda b: b.update_ttl_on_read_and_write(), {"update": UpdateType.OnReadAndWrite}),
    (lambda b: b.update_ttl_on_read_and_write().update_ttl_on_create_and_write(), {}),
    (lambda b: b.set_state_visibility(RELAXED), {"visibility": RELAXED}),
    (lambda b: b.return_expired_if_not_cleaned_up(), {"visibility": RELAXED}),
    (lambda b: b.return_expired_if_not_cleaned_up().never_return_expired(), {}),
    (lambda b: b.set_ttl_time_characteristic(TtlTimeCharacteristic.ProcessingTime), {}),
    (lambda b: b.use_processing_time(), {}),
    (lambda b: b.set_ttl(Time.days(2)), {"ttl": Time.days(2)}),
    (lambda b: b.set_ttl(Duration.of_days(2)), {"ttl": Duration.of_days(2)}),
    (lambda b: b.set_ttl(datetime.timedelta(days=2)), {"ttl": Duration.of_days(2)}),
    (lambda b: b.cleanup_full_snapshot(), {"full snapshot": True}),
    (lambda b: b.cleanup_incrementally(3, True), {"incremental": Incremental(3, True)}),
    (
        lambda b: b.cleanup_incrementally(3, True).cleanup_incrementally(4, False),
        {"incremental": Incremental(4, False)},
    ),
    (lambda b: b.cleanup_in_rocksdb_compact_filter(9), {"filter": CompactFilter(9, MONTH)}),
    (
        lambda b: b.disable_cleanup_in_background(),
        {"background": False, "incremental": None, "has filter": False, "filter": None},
    ),
    (
        everything_set,
        {
            "update": UpdateType.OnReadAndWrite,
            "visibility": RELAXED,
            "background": False,
            "full snapshot": True,
            "incremental": Incremental(7, True),
            "filter": CompactFilter(9, Duration.of_days(2)),
        },
    ),
]


@pytest.mark.parametrize(("change", "changed"), CHANGES)
def test_a_builder_method_sets_its_part_and_returns_the_builder(builder, change, changed):
    plain = builder.build()
    assert content(plain) == DEFAULTS
    assert change(builder) is builder
    made, again = builder.build(), change(StateTtlConfig.new_builder(Time.seconds(1))).build()
    assert content(made) == {**DEFAULTS, **changed}
    assert (made == plain) is (changed == {})
    assert (made, hash(made)) == (again, hash(again))
    assert content(plain) == DEFAULTS, "it does not change any more"


@pytest.mark.parametrize(
    ("enum_class", "numbers"),
    [
        (UpdateType, {"Disabled": 0, "OnCreateAndWrite": 1, "OnReadAndWrite": 2}),
        (StateVisibility, {"ReturnExpiredIfNotCleanedUp": 0, "NeverReturnExpired": 1}),
        (TtlTimeCharacteristic, {"ProcessingTime": 0}),
        (
            CleanupStrategies.Strategies,
            {"FULL_STATE_SCAN_SNAPSHOT": 0, "INCREMENTAL_CLEANUP": 1, "ROCKSDB_COMPACTION_FILTER": 2},
        ),
    ],
    ids=lambda part: getattr(part, "__name__", ""),
)
def test_the_choices_have_pyflinks_names_and_numbers(enum_class, numbers):
    assert {choice.name: choice.value for choice in enum_class} == numbers


@pytest.mark.parametrize(
    "ttl", [Time.minutes(1), Duration.of_minutes(1), datetime.timedelta(minutes=1)], ids=repr
)
def test_the_time_to_live_may_be_of_any_length_type(ttl):
    assert StateTtlConfig.new_builder(ttl).build().get_ttl().to_milliseconds() == 60_000


@pytest.mark.parametrize(
    ("ttl", "message"),
    [
        (Time.milliseconds(0), "TTL is expected to be positive"),
        (Time.seconds(-1), "TTL is expected to be positive"),
        (Duration.of_nanos(999_999), "TTL is expected to be positive"),
        (datetime.timedelta(0), "TTL is expected to be positive"),
        (100, "Time, Duration or timedelta"),
        ("1 h", "Time, Duration or timedelta"),
        (None, "Time, Duration or timedelta"),
    ],
    ids=repr,
)
def test_a_time_to_live_is_a_positive_length(ttl, message):
    """T5."""
    builder = StateTtlConfig.new_builder(ttl)
    with pytest.raises(ConfigurationError, match=message):
        builder.build()


@pytest.mark.parametrize("cleanup_size", [0, -1])
def test_a_cleanup_size_that_is_not_positive_is_refused(builder, cleanup_size):
    """T5."""
    with pytest.raises(ConfigurationError, match="should be positive"):
        builder.cleanup_incrementally(cleanup_size, False)
    assert content(builder.build()) == DEFAULTS


@pytest.mark.parametrize("setter", ["set_update_type", "set_state_visibility", "set_ttl_time_characteristic"])
def test_a_setting_that_is_no_member_of_its_enum_is_refused(builder, setter):
    with pytest.raises(ConfigurationError, match="is needed, such as"):
        getattr(builder, setter)("OnReadAndWrite")


def test_pyflinks_classes_can_be_used_without_the_builder():
    incremental, compact_filter = Incremental(2, True), CompactFilter(1000)
    assert (incremental.get_cleanup_size(), incremental.run_cleanup_for_every_record()) == (2, True)
    assert compact_filter.get_query_time_after_num_entries() == 1000
    assert compact_filter.get_periodic_compaction_time() == MONTH
    assert isinstance(CleanupStrategies.EMPTY_STRATEGY, CleanupStrategies.EmptyCleanupStrategy)
    for strategy in (CleanupStrategies.EMPTY_STRATEGY, compact_filter, incremental):
        assert isinstance(strategy, CleanupStrategies.CleanupStrategy)
    strategies = CleanupStrategies({CleanupStrategies.Strategies.INCREMENTAL_CLEANUP: incremental}, False)
    parts = UpdateType.OnReadAndWrite, STRICT, TtlTimeCharacteristic.ProcessingTime
    builder = StateTtlConfig.new_builder(Time.hours(1)).update_ttl_on_read_and_write()
    built = builder.cleanup_incrementally(2, True).disable_cleanup_in_background().build()
    assert StateTtlConfig(*parts, Time.hours(1), strategies) == built
    with pytest.raises(ConfigurationError, match="positive"):
        StateTtlConfig(*parts, Time.hours(0), strategies)


@pytest.mark.parametrize("library", [pickle, cloudpickle], ids=lambda library: library.__name__)
def test_a_configuration_survives_pickling_and_cannot_be_changed(builder, library):
    """Functions take it with them to other processes."""
    config = everything_set(builder).build()
    again = pickle.loads(library.dumps(config))
    assert again == config
    assert again.get_update_type() is UpdateType.OnReadAndWrite
    with pytest.raises(AttributeError):
        config._ttl = Time.seconds(5)


# --- on a descriptor -----------------------------------------------------------------------------------


@pytest.mark.parametrize("update_type", UpdateType)
def test_a_descriptor_that_is_given_a_configuration_expires_unless_that_is_disabled(builder, update_type):
    """T5."""
    descriptor, config = ValueStateDescriptor("v"), builder.set_update_type(update_type).build()
    assert not descriptor.is_ttl_enabled
    descriptor.enable_time_to_live(config)
    assert descriptor.ttl_config == config
    assert descriptor.is_ttl_enabled == config.is_enabled() == (update_type is not UpdateType.Disabled)


@pytest.mark.parametrize("what", [None, 100, Time.hours(1), "builder"], ids=repr)
def test_a_descriptor_takes_nothing_but_a_configuration(builder, what):
    descriptor = ListStateDescriptor("l")
    with pytest.raises(DescriptorTypeError, match="StateTtlConfig"):
        descriptor.enable_time_to_live(builder if what == "builder" else what)
    assert not descriptor.is_ttl_enabled
