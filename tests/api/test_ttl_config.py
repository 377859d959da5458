"""StateTtlConfig and its builder: PyFlink's names and defaults, Flink's checks (T5, C1, C2)."""

import datetime
import pickle

import cloudpickle
import pytest

from pyflinkstate import (
    Duration,
    ListStateDescriptor,
    StateTtlConfig,
    StateTtlConfig as PublicStateTtlConfig,
    Time,
    ValueStateDescriptor,
)
from pyflinkstate.errors import ConfigurationError, DescriptorTypeError

UpdateType = StateTtlConfig.UpdateType
StateVisibility = StateTtlConfig.StateVisibility
TtlTimeCharacteristic = StateTtlConfig.TtlTimeCharacteristic
CleanupStrategies = StateTtlConfig.CleanupStrategies
Incremental = CleanupStrategies.IncrementalCleanupStrategy
CompactFilter = CleanupStrategies.RocksdbCompactFilterCleanupStrategy


@pytest.fixture
def builder():
    return StateTtlConfig.new_builder(Time.seconds(1))


def everything_set():
    return (
        StateTtlConfig.new_builder(Duration.of_days(3))
        .update_ttl_on_read_and_write()
        .return_expired_if_not_cleaned_up()
        .cleanup_full_snapshot()
        .cleanup_incrementally(7, True)
        .cleanup_in_rocksdb_compact_filter(9, Duration.of_days(2))
        .disable_cleanup_in_background()
        .build()
    )


def test_the_public_name_is_this_class():
    assert PublicStateTtlConfig is StateTtlConfig


def test_the_defaults_of_the_builder(builder):
    config = builder.build()
    assert config.get_ttl() == Time.seconds(1)
    assert config.get_update_type() is UpdateType.OnCreateAndWrite
    assert config.get_state_visibility() is StateVisibility.NeverReturnExpired
    assert config.get_ttl_time_characteristic() is TtlTimeCharacteristic.ProcessingTime
    assert config.is_enabled()


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
    ("set_it", "getter", "expected"),
    [
        (lambda b: b.set_update_type(UpdateType.Disabled), "get_update_type", UpdateType.Disabled),
        (lambda b: b.update_ttl_on_read_and_write(), "get_update_type", UpdateType.OnReadAndWrite),
        (
            lambda b: b.update_ttl_on_read_and_write().update_ttl_on_create_and_write(),
            "get_update_type",
            UpdateType.OnCreateAndWrite,
        ),
        (
            lambda b: b.set_state_visibility(StateVisibility.ReturnExpiredIfNotCleanedUp),
            "get_state_visibility",
            StateVisibility.ReturnExpiredIfNotCleanedUp,
        ),
        (
            lambda b: b.return_expired_if_not_cleaned_up(),
            "get_state_visibility",
            StateVisibility.ReturnExpiredIfNotCleanedUp,
        ),
        (
            lambda b: b.return_expired_if_not_cleaned_up().never_return_expired(),
            "get_state_visibility",
            StateVisibility.NeverReturnExpired,
        ),
        (
            lambda b: b.set_ttl_time_characteristic(TtlTimeCharacteristic.ProcessingTime),
            "get_ttl_time_characteristic",
            TtlTimeCharacteristic.ProcessingTime,
        ),
        (
            lambda b: b.use_processing_time(),
            "get_ttl_time_characteristic",
            TtlTimeCharacteristic.ProcessingTime,
        ),
        (lambda b: b.set_ttl(Time.days(2)), "get_ttl", Time.days(2)),
        (lambda b: b.set_ttl(Duration.of_days(2)), "get_ttl", Duration.of_days(2)),
        (lambda b: b.set_ttl(datetime.timedelta(days=2)), "get_ttl", Duration.of_days(2)),
    ],
)
def test_a_builder_method_sets_its_part_and_returns_the_builder(builder, set_it, getter, expected):
    assert set_it(builder) is builder
    assert getattr(builder.build(), getter)() == expected


@pytest.mark.parametrize(
    "ttl", [Time.minutes(1), Duration.of_minutes(1), datetime.timedelta(minutes=1)], ids=repr
)
def test_the_time_to_live_may_be_of_any_length_type(ttl):
    assert StateTtlConfig.new_builder(ttl).build().get_ttl().to_milliseconds() == 60_000


@pytest.mark.parametrize(
    "ttl",
    [Time.milliseconds(0), Time.seconds(-1), Duration.of_nanos(999_999), datetime.timedelta(0)],
    ids=repr,
)
def test_a_time_to_live_that_is_not_positive_is_refused(ttl):
    """T5."""
    builder = StateTtlConfig.new_builder(ttl)
    with pytest.raises(ConfigurationError, match="TTL is expected to be positive"):
        builder.build()


@pytest.mark.parametrize("ttl", [100, "1 h", None], ids=repr)
def test_a_time_to_live_that_is_no_length_is_refused(ttl):
    with pytest.raises(ConfigurationError, match="Time, Duration or timedelta"):
        StateTtlConfig.new_builder(ttl).build()


@pytest.mark.parametrize("cleanup_size", [0, -1])
def test_a_cleanup_size_that_is_not_positive_is_refused(builder, cleanup_size):
    """T5."""
    with pytest.raises(ConfigurationError, match="should be positive"):
        builder.cleanup_incrementally(cleanup_size, False)
    assert builder.build().get_cleanup_strategies().get_incremental_cleanup_strategy() == Incremental(
        5, False
    )


def test_disabled_is_not_enabled(builder):
    """T5."""
    config = builder.set_update_type(UpdateType.Disabled).build()
    assert not config.is_enabled()
    descriptor = ValueStateDescriptor("v")
    descriptor.enable_time_to_live(config)
    assert not descriptor.is_ttl_enabled


# --- clean-up ----------------------------------------------------------------------------------------


def test_by_default_five_entries_are_looked_at_but_not_for_every_record(builder):
    """C1."""
    strategies = builder.build().get_cleanup_strategies()
    assert strategies.is_cleanup_in_background()
    incremental = strategies.get_incremental_cleanup_strategy()
    assert incremental.get_cleanup_size() == 5
    assert incremental.run_cleanup_for_every_record() is False


def test_by_default_the_compaction_filter_has_pyflinks_settings(builder):
    """C1."""
    strategies = builder.build().get_cleanup_strategies()
    assert strategies.in_rocksdb_compact_filter()
    compact_filter = strategies.get_rocksdb_compact_filter_cleanup_strategy()
    assert compact_filter.get_query_time_after_num_entries() == 1000
    assert compact_filter.get_periodic_compaction_time() == Duration.of_days(30)


def test_by_default_full_snapshots_are_not_cleaned_up(builder):
    assert not builder.build().get_cleanup_strategies().in_full_snapshot()


def test_without_background_nothing_is_left_of_the_defaults(builder):
    """C2."""
    strategies = builder.disable_cleanup_in_background().build().get_cleanup_strategies()
    assert not strategies.is_cleanup_in_background()
    assert strategies.get_incremental_cleanup_strategy() is None
    assert strategies.get_rocksdb_compact_filter_cleanup_strategy() is None
    assert not strategies.in_rocksdb_compact_filter()
    assert not strategies.in_full_snapshot()


def test_without_background_what_was_set_stays():
    """C2."""
    strategies = everything_set().get_cleanup_strategies()
    assert strategies.in_full_snapshot()
    assert strategies.in_rocksdb_compact_filter()
    assert strategies.get_incremental_cleanup_strategy() == Incremental(7, True)
    assert strategies.get_rocksdb_compact_filter_cleanup_strategy() == CompactFilter(9, Duration.of_days(2))


def test_what_was_set_takes_the_place_of_the_default(builder):
    strategies = builder.cleanup_incrementally(3, True).build().get_cleanup_strategies()
    assert strategies.get_incremental_cleanup_strategy() == Incremental(3, True)
    assert strategies.get_rocksdb_compact_filter_cleanup_strategy() == CompactFilter(
        1000, Duration.of_days(30)
    )


def test_a_strategy_set_twice_is_the_last_one(builder):
    strategies = builder.cleanup_incrementally(3, True).cleanup_incrementally(4, False).build()
    assert strategies.get_cleanup_strategies().get_incremental_cleanup_strategy() == Incremental(4, False)


def test_the_compaction_period_is_thirty_days_where_it_is_left_out(builder):
    strategies = builder.cleanup_in_rocksdb_compact_filter(9).build().get_cleanup_strategies()
    assert strategies.get_rocksdb_compact_filter_cleanup_strategy() == CompactFilter(9, Duration.of_days(30))


def test_pyflinks_classes_of_strategies_can_be_made_by_hand():
    assert CompactFilter(1000).get_periodic_compaction_time() == Duration.of_days(30)
    strategies = CleanupStrategies(
        {CleanupStrategies.Strategies.INCREMENTAL_CLEANUP: Incremental(2, True)}, False
    )
    assert strategies.get_incremental_cleanup_strategy().get_cleanup_size() == 2
    assert isinstance(CleanupStrategies.EMPTY_STRATEGY, CleanupStrategies.EmptyCleanupStrategy)
    for strategy in (CleanupStrategies.EMPTY_STRATEGY, CompactFilter(1000), Incremental(2, True)):
        assert isinstance(strategy, CleanupStrategies.CleanupStrategy)


# --- a configuration is a value ----------------------------------------------------------------------


def test_a_configuration_can_be_made_without_the_builder():
    config = StateTtlConfig(
        UpdateType.OnReadAndWrite,
        StateVisibility.NeverReturnExpired,
        TtlTimeCharacteristic.ProcessingTime,
        Time.hours(1),
        CleanupStrategies({}, False),
    )
    built = StateTtlConfig.new_builder(Time.hours(1)).update_ttl_on_read_and_write()
    assert config == built.disable_cleanup_in_background().build()


def test_the_check_of_the_builder_is_that_of_the_class():
    with pytest.raises(ConfigurationError, match="positive"):
        StateTtlConfig(
            UpdateType.OnReadAndWrite,
            StateVisibility.NeverReturnExpired,
            TtlTimeCharacteristic.ProcessingTime,
            Time.hours(0),
            CleanupStrategies({}, False),
        )


def test_the_builder_may_go_on_after_build(builder):
    before = builder.build()
    builder.cleanup_incrementally(9, True).cleanup_full_snapshot().set_ttl(Time.days(1))
    assert before == StateTtlConfig.new_builder(Time.seconds(1)).build()
    assert builder.build().get_cleanup_strategies().in_full_snapshot()


def test_configurations_made_alike_are_equal():
    assert everything_set() == everything_set()
    assert hash(everything_set()) == hash(everything_set())


@pytest.mark.parametrize(
    "change",
    [
        lambda b: b.set_ttl(Time.seconds(2)),
        lambda b: b.update_ttl_on_read_and_write(),
        lambda b: b.return_expired_if_not_cleaned_up(),
        lambda b: b.cleanup_full_snapshot(),
        lambda b: b.cleanup_incrementally(6, False),
        lambda b: b.disable_cleanup_in_background(),
    ],
)
def test_configurations_that_differ_are_not_equal(builder, change):
    plain = builder.build()
    assert change(builder).build() != plain


@pytest.mark.parametrize("library", [pickle, cloudpickle], ids=lambda library: library.__name__)
def test_a_configuration_survives_pickling(library):
    """Functions take it with them to other processes."""
    again = pickle.loads(library.dumps(everything_set()))
    assert again == everything_set()
    assert again.get_update_type() is UpdateType.OnReadAndWrite


def test_a_configuration_cannot_be_changed():
    config = everything_set()
    with pytest.raises(AttributeError):
        config._ttl = Time.seconds(5)


# --- on a descriptor -----------------------------------------------------------------------------------


def test_a_descriptor_has_no_time_to_live_by_itself():
    assert not ListStateDescriptor("l").is_ttl_enabled


def test_a_descriptor_that_is_given_a_configuration_expires(builder):
    descriptor = ListStateDescriptor("l")
    descriptor.enable_time_to_live(builder.build())
    assert descriptor.is_ttl_enabled
    assert descriptor.ttl_config == builder.build()


@pytest.mark.parametrize("what", [None, 100, Time.hours(1), "builder"], ids=repr)
def test_a_descriptor_takes_nothing_but_a_configuration(builder, what):
    descriptor = ListStateDescriptor("l")
    with pytest.raises(DescriptorTypeError, match="StateTtlConfig"):
        descriptor.enable_time_to_live(builder if what == "builder" else what)
    assert not descriptor.is_ttl_enabled


@pytest.mark.parametrize("setter", ["set_update_type", "set_state_visibility", "set_ttl_time_characteristic"])
def test_a_setting_that_is_no_member_of_its_enum_is_refused(builder, setter):
    with pytest.raises(ConfigurationError, match="is needed, such as"):
        getattr(builder, setter)("OnReadAndWrite")
