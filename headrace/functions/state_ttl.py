"""StateTtlConfig: time to live of a state's values, the accesses that renew it, and the clean-up of expired ones."""

import enum
from dataclasses import dataclass, field
from typing import ClassVar

from headrace.core.types.time_values import Time

_MONTH = Time.days(30)


class UpdateType(enum.Enum):
    """Accesses that renew a value's time to live."""

    Disabled = 0
    OnCreateAndWrite = 1
    OnReadAndWrite = 2


class StateVisibility(enum.Enum):
    """Visibility of expired values that were not deleted yet."""

    ReturnExpiredIfNotCleanedUp = 0
    NeverReturnExpired = 1


class TtlTimeCharacteristic(enum.Enum):
    """The clock that determines the age of values."""

    ProcessingTime = 0

    EventTime = 1
    """Use records' timestamps and the watermark. Flink has only the other member of this enum."""


class Strategies(enum.Enum):
    """Kinds of clean-up."""

    FULL_STATE_SCAN_SNAPSHOT = 0
    INCREMENTAL_CLEANUP = 1
    ROCKSDB_COMPACTION_FILTER = 2


class CleanupStrategy:
    """Base of the kinds of clean-up."""


@dataclass(frozen=True)
class EmptyCleanupStrategy(CleanupStrategy):
    """A clean-up without settings."""


@dataclass(frozen=True)
class IncrementalCleanupStrategy(CleanupStrategy):
    """Checks a few entries at each access of the state, and optionally at each record too."""

    cleanup_size: int = 5
    every_record: bool = False

    def get_cleanup_size(self) -> int:
        return self.cleanup_size

    def run_cleanup_for_every_record(self) -> bool:
        return self.every_record


@dataclass(frozen=True)
class RocksdbCompactFilterCleanupStrategy(CleanupStrategy):
    """Drops expired entries during compaction; the clock is read again after a number of entries."""

    query_time_after_num_entries: int = 1000
    periodic_compaction_time: Time = _MONTH

    def get_query_time_after_num_entries(self) -> int:
        return self.query_time_after_num_entries

    def get_periodic_compaction_time(self) -> Time:
        return self.periodic_compaction_time


@dataclass(frozen=True)
class CleanupStrategies:
    """The chosen kinds of clean-up; with background clean-up, each backend's own kind has its defaults."""

    strategies: dict[Strategies, CleanupStrategy] = field(
        default_factory=dict[Strategies, CleanupStrategy]
    )
    in_background: bool = True

    def is_cleanup_in_background(self) -> bool:
        return self.in_background

    def in_full_snapshot(self) -> bool:
        return Strategies.FULL_STATE_SCAN_SNAPSHOT in self.strategies

    def in_rocksdb_compact_filter(self) -> bool:
        return self.get_rocksdb_compact_filter_cleanup_strategy() is not None

    def get_incremental_cleanup_strategy(self) -> IncrementalCleanupStrategy | None:
        chosen = self.strategies.get(Strategies.INCREMENTAL_CLEANUP)
        if isinstance(chosen, IncrementalCleanupStrategy):
            return chosen
        return IncrementalCleanupStrategy() if self.in_background else None

    def get_rocksdb_compact_filter_cleanup_strategy(
        self,
    ) -> RocksdbCompactFilterCleanupStrategy | None:
        chosen = self.strategies.get(Strategies.ROCKSDB_COMPACTION_FILTER)
        if isinstance(chosen, RocksdbCompactFilterCleanupStrategy):
            return chosen
        return RocksdbCompactFilterCleanupStrategy() if self.in_background else None

    # PyFlink programs find these in here.
    EMPTY_STRATEGY: ClassVar[CleanupStrategy] = EmptyCleanupStrategy()
    Strategies: ClassVar = Strategies
    CleanupStrategy: ClassVar = CleanupStrategy
    EmptyCleanupStrategy: ClassVar = EmptyCleanupStrategy
    IncrementalCleanupStrategy: ClassVar = IncrementalCleanupStrategy
    RocksdbCompactFilterCleanupStrategy: ClassVar = RocksdbCompactFilterCleanupStrategy


class StateTtlConfig:
    """Settings of one state's time to live; made with `new_builder`.

    Example:
        >>> config = StateTtlConfig.new_builder(Time.hours(1)).never_return_expired().build()
        >>> config.get_ttl() == Time.hours(1), config.is_enabled()
        (True, True)
    """

    UpdateType = UpdateType
    StateVisibility = StateVisibility
    TtlTimeCharacteristic = TtlTimeCharacteristic
    CleanupStrategies = CleanupStrategies

    def __init__(
        self,
        update_type: UpdateType,
        state_visibility: StateVisibility,
        ttl_time_characteristic: TtlTimeCharacteristic,
        ttl: Time,
        cleanup_strategies: CleanupStrategies,
    ) -> None:
        self._update_type = update_type
        self._state_visibility = state_visibility
        self._ttl_time_characteristic = ttl_time_characteristic
        self._ttl = ttl
        self._cleanup_strategies = cleanup_strategies

    @staticmethod
    def new_builder(ttl: Time) -> "StateTtlConfig.Builder":
        return StateTtlConfig.Builder(ttl)

    def get_update_type(self) -> UpdateType:
        return self._update_type

    def get_state_visibility(self) -> StateVisibility:
        return self._state_visibility

    def get_ttl(self) -> Time:
        return self._ttl

    def get_ttl_time_characteristic(self) -> TtlTimeCharacteristic:
        return self._ttl_time_characteristic

    def is_enabled(self) -> bool:
        return self._update_type is not UpdateType.Disabled

    def get_cleanup_strategies(self) -> CleanupStrategies:
        return self._cleanup_strategies

    def _settings(self) -> tuple[object, ...]:
        return (
            self._update_type,
            self._state_visibility,
            self._ttl_time_characteristic,
            self._ttl,
            self._cleanup_strategies,
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StateTtlConfig) and self._settings() == other._settings()

    def __hash__(self) -> int:
        return hash(self._settings()[:-1])

    def __repr__(self) -> str:
        return (
            f"StateTtlConfig(update_type={self._update_type.name}, "
            f"state_visibility={self._state_visibility.name}, "
            f"ttl_time_characteristic={self._ttl_time_characteristic.name}, ttl={self._ttl})"
        )

    class Builder:
        """Collects settings; each method returns the builder."""

        def __init__(self, ttl: Time) -> None:
            if ttl.to_milliseconds() <= 0:
                raise ValueError(f"the time to live must be longer than 0 ms, not {ttl}")
            self._ttl = ttl
            self._update_type = UpdateType.OnCreateAndWrite
            self._state_visibility = StateVisibility.NeverReturnExpired
            self._ttl_time_characteristic = TtlTimeCharacteristic.ProcessingTime
            self._is_cleanup_in_background = True
            self._strategies: dict[Strategies, CleanupStrategy] = {}

        def set_update_type(self, update_type: UpdateType) -> "StateTtlConfig.Builder":
            self._update_type = update_type
            return self

        def update_ttl_on_create_and_write(self) -> "StateTtlConfig.Builder":
            return self.set_update_type(UpdateType.OnCreateAndWrite)

        def update_ttl_on_read_and_write(self) -> "StateTtlConfig.Builder":
            return self.set_update_type(UpdateType.OnReadAndWrite)

        def set_state_visibility(
            self, state_visibility: StateVisibility
        ) -> "StateTtlConfig.Builder":
            self._state_visibility = state_visibility
            return self

        def return_expired_if_not_cleaned_up(self) -> "StateTtlConfig.Builder":
            return self.set_state_visibility(StateVisibility.ReturnExpiredIfNotCleanedUp)

        def never_return_expired(self) -> "StateTtlConfig.Builder":
            return self.set_state_visibility(StateVisibility.NeverReturnExpired)

        def set_ttl_time_characteristic(
            self, ttl_time_characteristic: TtlTimeCharacteristic
        ) -> "StateTtlConfig.Builder":
            self._ttl_time_characteristic = ttl_time_characteristic
            return self

        def use_processing_time(self) -> "StateTtlConfig.Builder":
            return self.set_ttl_time_characteristic(TtlTimeCharacteristic.ProcessingTime)

        def use_event_time(self) -> "StateTtlConfig.Builder":
            """Let values age in event time: last access is the record's timestamp, and watermarks let values expire."""
            return self.set_ttl_time_characteristic(TtlTimeCharacteristic.EventTime)

        def cleanup_full_snapshot(self) -> "StateTtlConfig.Builder":
            self._strategies[Strategies.FULL_STATE_SCAN_SNAPSHOT] = EmptyCleanupStrategy()
            return self

        def cleanup_incrementally(
            self, cleanup_size: int, run_cleanup_for_every_record: bool
        ) -> "StateTtlConfig.Builder":
            self._strategies[Strategies.INCREMENTAL_CLEANUP] = IncrementalCleanupStrategy(
                cleanup_size, run_cleanup_for_every_record
            )
            return self

        def cleanup_in_rocksdb_compact_filter(
            self,
            query_time_after_num_entries: int,
            periodic_compaction_time: Time | None = None,
        ) -> "StateTtlConfig.Builder":
            self._strategies[Strategies.ROCKSDB_COMPACTION_FILTER] = (
                RocksdbCompactFilterCleanupStrategy(
                    query_time_after_num_entries, periodic_compaction_time or _MONTH
                )
            )
            return self

        def disable_cleanup_in_background(self) -> "StateTtlConfig.Builder":
            self._is_cleanup_in_background = False
            return self

        def set_ttl(self, ttl: Time) -> "StateTtlConfig.Builder":
            self._ttl = ttl
            return self

        def build(self) -> "StateTtlConfig":
            return StateTtlConfig(
                self._update_type,
                self._state_visibility,
                self._ttl_time_characteristic,
                self._ttl,
                CleanupStrategies(dict(self._strategies), self._is_cleanup_in_background),
            )
