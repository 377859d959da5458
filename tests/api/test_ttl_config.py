"""StateTtlConfig and its builder: PyFlink's names and defaults, Flink's checks (T5, C1, C2)."""

import datetime
import pickle

import cloudpickle
import pytest

from pyflinkstate import Duration, ListStateDescriptor, StateTtlConfig, Time, ValueStateDescriptor
from pyflinkstate.errors import ConfigurationError, DescriptorTypeError

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
