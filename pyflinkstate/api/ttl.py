"""Time to live of state: when values expire, whether a reader still sees them, how they are cleaned up.

Names are PyFlink's (``pyflink.datastream.state.StateTtlConfig``), semantics those of Flink's
``StateTtlConfig``. Only processing time is supported, as in Flink.
"""

from __future__ import annotations

import datetime
import enum
from typing import Any, ClassVar

import attrs

from pyflinkstate.api.checks import check_kind
from pyflinkstate.api.time import Duration, LengthOfTime, Time, milliseconds_of
from pyflinkstate.errors import ConfigurationError

_COMPACTION_PERIOD = Duration.of_days(30)


@attrs.frozen
class StateTtlConfig:
    """How long state lives after it was last written, or read. :meth:`new_builder` makes one.

    >>> config = StateTtlConfig.new_builder(Time.hours(1)).never_return_expired().build()
    >>> config.get_ttl().to_milliseconds(), config.get_update_type().name
    (3600000, 'OnCreateAndWrite')
    """

    class UpdateType(enum.Enum):
        """What prolongs the life of a value."""

        #: Nothing ever expires.
        Disabled = 0
        #: Writing it.
        OnCreateAndWrite = 1
        #: Writing and reading it.
        OnReadAndWrite = 2

    class StateVisibility(enum.Enum):
        """Whether a value is visible that has expired but is not yet cleaned up."""

        #: It is returned once, which cleans it up.
        ReturnExpiredIfNotCleanedUp = 0
        #: It is never returned.
        NeverReturnExpired = 1

    class TtlTimeCharacteristic(enum.Enum):
        """The kind of time by which state expires."""

        ProcessingTime = 0

    @attrs.frozen
    class CleanupStrategies:
        """The strategies of a configuration.

        Args:
            strategies: those that were set.
            is_cleanup_in_background: whether the default strategies are used if none is set.
        """

        class Strategies(enum.Enum):
            """The ways of removing expired values that nobody reads."""

            FULL_STATE_SCAN_SNAPSHOT = 0
            INCREMENTAL_CLEANUP = 1
            ROCKSDB_COMPACTION_FILTER = 2

        class CleanupStrategy:
            """The base of all strategies."""

        @attrs.frozen
        class EmptyCleanupStrategy(CleanupStrategy):
            """A strategy without settings: the full snapshot."""

        @attrs.frozen
        class IncrementalCleanupStrategy(CleanupStrategy):
            """Checks some entries whenever state is accessed.

            Args:
                cleanup_size: how many entries are checked each time; more than 0.
                run_cleanup_for_every_record: whether to do so for every record as well, when its key is
                    selected.
            """

            _cleanup_size: int
            _run_cleanup_for_every_record: bool

            def get_cleanup_size(self) -> int:
                """Return how many entries are checked each time."""
                return self._cleanup_size

            def run_cleanup_for_every_record(self) -> bool:
                """Return whether entries are also checked for every record."""
                return self._run_cleanup_for_every_record

        @attrs.frozen
        class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
            """Kept for programs that set it; the heap has nothing to compact.

            Args:
                query_time_after_num_entries: kept without effect.
                periodic_compaction_time: kept without effect. Default: 30 days.
            """

            _query_time_after_num_entries: int
            _periodic_compaction_time: Time | Duration = _COMPACTION_PERIOD

            def get_query_time_after_num_entries(self) -> int:
                """Return the number of entries after which the filter asks for the time."""
                return self._query_time_after_num_entries

            def get_periodic_compaction_time(self) -> Time | Duration:
                """Return how old a file gets before it is compacted."""
                return self._periodic_compaction_time

        EMPTY_STRATEGY: ClassVar[CleanupStrategy] = EmptyCleanupStrategy()
        #: The defaults in the background (Flink: 5 entries, not for every record).
        _DEFAULTS: ClassVar[dict[Strategies, Any]] = {
            Strategies.INCREMENTAL_CLEANUP: IncrementalCleanupStrategy(5, False),
            Strategies.ROCKSDB_COMPACTION_FILTER: RocksdbCompactFilterCleanupStrategy(1000),
        }

        _strategies: dict[Strategies, Any] = attrs.field(factory=dict, hash=False)
        _is_cleanup_in_background: bool = True

        def is_cleanup_in_background(self) -> bool:
            """Return whether the default strategies are used if none is set."""
            return self._is_cleanup_in_background

        def in_full_snapshot(self) -> bool:
            """Return whether full snapshots leave expired entries out."""
            return self.Strategies.FULL_STATE_SCAN_SNAPSHOT in self._strategies

        def in_rocksdb_compact_filter(self) -> bool:
            """Return whether the RocksDB compaction filter was set."""
            return self.get_rocksdb_compact_filter_cleanup_strategy() is not None

        def get_incremental_cleanup_strategy(self) -> IncrementalCleanupStrategy | None:
            """Return the incremental strategy that was set, or the background default, or None."""
            found: _Incremental | None = self._strategy(self.Strategies.INCREMENTAL_CLEANUP)
            return found

        def get_rocksdb_compact_filter_cleanup_strategy(self) -> RocksdbCompactFilterCleanupStrategy | None:
            """Return the compaction filter that was set, or the background default, or None."""
            found: _CompactFilter | None = self._strategy(self.Strategies.ROCKSDB_COMPACTION_FILTER)
            return found

        def _strategy(self, kind: Strategies) -> Any:
            defaults = self._DEFAULTS if self._is_cleanup_in_background else {}
            return self._strategies.get(kind, defaults.get(kind))

    Builder: ClassVar[type[StateTtlConfigBuilder]]

    _update_type: UpdateType
    _state_visibility: StateVisibility
    _ttl_time_characteristic: TtlTimeCharacteristic
    _ttl: Time | Duration
    _cleanup_strategies: CleanupStrategies = attrs.field(factory=CleanupStrategies)

    def __attrs_post_init__(self) -> None:
        if milliseconds_of(self._ttl) <= 0:
            raise ConfigurationError(f"TTL is expected to be positive, not {self._ttl}")

    @staticmethod
    def new_builder(ttl: LengthOfTime) -> StateTtlConfigBuilder:
        """Return a builder for state that lives ``ttl``."""
        return StateTtlConfigBuilder(ttl)

    def get_ttl(self) -> Time | Duration:
        """Return how long state lives."""
        return self._ttl

    def get_update_type(self) -> UpdateType:
        """Return what prolongs the life of a value."""
        return self._update_type

    def get_state_visibility(self) -> StateVisibility:
        """Return whether expired values are visible."""
        return self._state_visibility

    def get_ttl_time_characteristic(self) -> TtlTimeCharacteristic:
        """Return the kind of time by which state expires."""
        return self._ttl_time_characteristic

    def get_cleanup_strategies(self) -> CleanupStrategies:
        """Return how expired values are removed."""
        return self._cleanup_strategies

    def is_enabled(self) -> bool:
        """Return whether anything expires at all."""
        return self._update_type is not UpdateType.Disabled


UpdateType = StateTtlConfig.UpdateType
StateVisibility = StateTtlConfig.StateVisibility
CleanupStrategies = StateTtlConfig.CleanupStrategies
_Characteristic = StateTtlConfig.TtlTimeCharacteristic
_Incremental = CleanupStrategies.IncrementalCleanupStrategy
_CompactFilter = CleanupStrategies.RocksdbCompactFilterCleanupStrategy


def _as_length(ttl: LengthOfTime) -> Time | Duration:
    return Duration.of_millis(milliseconds_of(ttl)) if isinstance(ttl, datetime.timedelta) else ttl


def _of_its_enum(_: object, attribute: attrs.Attribute[Any], value: object) -> None:
    expected: Any = type(attribute.default)
    check_kind(f"a {expected.__name__} is needed, such as {next(iter(expected))}", value, expected)


@attrs.define(eq=False)
class StateTtlConfigBuilder:
    """Builds a :class:`StateTtlConfig`; each method returns the builder.

    Defaults: writing prolongs life, expired values are never returned, clean-up runs in the background.
    """

    _ttl: Time | Duration = attrs.field(converter=_as_length)
    _update_type: UpdateType = attrs.field(default=UpdateType.OnCreateAndWrite, validator=_of_its_enum)
    _visibility: StateVisibility = attrs.field(
        default=StateVisibility.NeverReturnExpired, validator=_of_its_enum
    )
    _characteristic: _Characteristic = attrs.field(
        default=_Characteristic.ProcessingTime, validator=_of_its_enum
    )
    _in_background: bool = True
    _strategies: dict[CleanupStrategies.Strategies, Any] = attrs.field(factory=dict)

    def set_update_type(self, update_type: UpdateType) -> StateTtlConfigBuilder:
        """Set what prolongs the life of a value."""
        self._update_type = update_type
        return self

    def update_ttl_on_create_and_write(self) -> StateTtlConfigBuilder:
        """Let writing prolong the life of a value."""
        return self.set_update_type(UpdateType.OnCreateAndWrite)

    def update_ttl_on_read_and_write(self) -> StateTtlConfigBuilder:
        """Let writing and reading prolong the life of a value."""
        return self.set_update_type(UpdateType.OnReadAndWrite)

    def set_state_visibility(self, state_visibility: StateVisibility) -> StateTtlConfigBuilder:
        """Set whether expired values are visible."""
        self._visibility = state_visibility
        return self

    def return_expired_if_not_cleaned_up(self) -> StateTtlConfigBuilder:
        """Return an expired value once, if it is not yet cleaned up."""
        return self.set_state_visibility(StateVisibility.ReturnExpiredIfNotCleanedUp)

    def never_return_expired(self) -> StateTtlConfigBuilder:
        """Never return expired values."""
        return self.set_state_visibility(StateVisibility.NeverReturnExpired)

    def set_ttl_time_characteristic(self, ttl_time_characteristic: _Characteristic) -> StateTtlConfigBuilder:
        """Set the kind of time by which state expires; there is only processing time."""
        self._characteristic = ttl_time_characteristic
        return self

    def use_processing_time(self) -> StateTtlConfigBuilder:
        """Let state expire by processing time."""
        return self.set_ttl_time_characteristic(_Characteristic.ProcessingTime)

    def set_ttl(self, ttl: LengthOfTime) -> StateTtlConfigBuilder:
        """Set how long state lives."""
        self._ttl = ttl  # type: ignore[assignment]  # it is converted
        return self

    def cleanup_full_snapshot(self) -> StateTtlConfigBuilder:
        """Leave expired entries out of full snapshots; state in memory stays as it is."""
        return self._with(
            CleanupStrategies.Strategies.FULL_STATE_SCAN_SNAPSHOT, CleanupStrategies.EMPTY_STRATEGY
        )

    def cleanup_incrementally(
        self, cleanup_size: int, run_cleanup_for_every_record: bool
    ) -> StateTtlConfigBuilder:
        """Check ``cleanup_size`` entries at each access and, on request, for every record.

        Raises:
            ConfigurationError: ``cleanup_size`` is not positive.
        """
        if cleanup_size <= 0:
            raise ConfigurationError(
                f"the number of incrementally cleaned up state entries should be positive, not {cleanup_size}"
            )
        incremental = _Incremental(cleanup_size, run_cleanup_for_every_record)
        return self._with(CleanupStrategies.Strategies.INCREMENTAL_CLEANUP, incremental)

    def cleanup_in_rocksdb_compact_filter(
        self, query_time_after_num_entries: int, periodic_compaction_time: Time | Duration | None = None
    ) -> StateTtlConfigBuilder:
        """Keep the settings, which have no effect, as on Flink's heap backend."""
        compact_filter = _CompactFilter(
            query_time_after_num_entries, periodic_compaction_time or _COMPACTION_PERIOD
        )
        return self._with(CleanupStrategies.Strategies.ROCKSDB_COMPACTION_FILTER, compact_filter)

    def _with(self, kind: CleanupStrategies.Strategies, strategy: object) -> StateTtlConfigBuilder:
        self._strategies[kind] = strategy
        return self

    def disable_cleanup_in_background(self) -> StateTtlConfigBuilder:
        """Do without the default strategies; those that were set stay."""
        self._in_background = False
        return self

    def build(self) -> StateTtlConfig:
        """Return the configuration.

        Raises:
            ConfigurationError: the time to live is not positive.
        """
        strategies = CleanupStrategies(dict(self._strategies), self._in_background)
        return StateTtlConfig(
            self._update_type, self._visibility, self._characteristic, self._ttl, strategies
        )


StateTtlConfig.Builder = StateTtlConfigBuilder
