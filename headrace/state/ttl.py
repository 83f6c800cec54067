"""Time to live: the expiry of state entries, and its effect on reads and writes; the same for every backend.

A value lives from its last access; at last access + time to live it has expired. There are two clocks, and neither
moves while a batch is handled, so that all its rows see the same entries. Source: Flink StateTtlConfig, TtlUtils,
AbstractTtlDecorator; in event time FLINK-12005, which Flink has not built.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from operator import length_hint
from typing import Any, Final, Protocol

from headrace.core.clock import Clock
from headrace.core.elements import MIN_TIMESTAMP
from headrace.core.record_batch import Timestamps
from headrace.functions.state import StateDescriptor
from headrace.functions.state_ttl import (
    StateTtlConfig,
    StateVisibility,
    TtlTimeCharacteristic,
    UpdateType,
)

NO_STAMP: Final = MIN_TIMESTAMP
"""Last access of a value that was written without a time to live, or before any event time was known."""

_MAX_TIME_MS: Final = 2**63 - 1


class TtlClock(Protocol):
    """Clock that measures the time to live. Mailbox thread only."""

    def now_ms(self) -> int:
        """Return the time that decides whether a value has expired."""
        ...

    def access_ms(self) -> int:
        """Return the time to store as the last access of a value accessed now; not before `now_ms`."""
        ...

    def untimed_ms(self) -> int:
        """Return the last access to assume for values whose stamp is NO_STAMP."""
        ...


class BatchClock:
    """Processing time that stands still while a batch is handled."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._opened_ms = clock.now_ms()
        self._batch_ms: int | None = None

    def now_ms(self) -> int:
        """Return the time at which the batch began, or outside of a batch the present time; epoch ms."""
        return self._clock.now_ms() if self._batch_ms is None else self._batch_ms

    def access_ms(self) -> int:
        return self.now_ms()

    def untimed_ms(self) -> int:
        """Return the time of the restore."""
        return self._opened_ms

    def begin_batch(self) -> None:
        """Stop the clock."""
        self._batch_ms = self._clock.now_ms()

    def end_batch(self) -> None:
        """Let the clock run again."""
        self._batch_ms = None


class EventClock:
    """Event time: an access is stamped with the record's timestamp, and values expire by the watermark.

    If accesses were stamped with the watermark, a watermark that lags and then leaps, as with a backlog, would expire
    values that records of that time still use. While timers fire, the present time is that of the timer, however far
    the watermark leapt: the state that timers find does not depend on how often watermarks come.
    """

    def __init__(self) -> None:
        self._now_ms = MIN_TIMESTAMP
        self._first_ms = MIN_TIMESTAMP
        self._to_come: Iterator[Any] = iter(())
        self._timestamps: Timestamps | None = None

    def now_ms(self) -> int:
        """Return the watermark, or the time of the timer that fires; MIN_TIMESTAMP before there is any."""
        return self._now_ms

    def access_ms(self) -> int:
        """Return the record's timestamp, or the watermark for a late record, whose value would have expired already."""
        if self._timestamps is None:
            return self._now_ms
        record_ms: int = self._timestamps.item(-1 - length_hint(self._to_come))
        return max(record_ms, self._now_ms)

    def untimed_ms(self) -> int:
        """Return the first watermark."""
        return self._first_ms

    def advance(self, time_ms: int) -> None:
        """Advance to a watermark, or to the time of a timer that fires; the clock does not go back."""
        if time_ms > self._now_ms:
            self._now_ms = time_ms
            if self._first_ms == MIN_TIMESTAMP:
                self._first_ms = time_ms

    def restart(self) -> None:
        """Restart the clock: the following records have other keys, whose time begins anew."""
        self._now_ms = self._first_ms = MIN_TIMESTAMP

    def along(self, keys: Sequence[Any], timestamps: Timestamps | None) -> Iterator[Any]:
        """Yield `keys` of the records of a batch, whose times are `timestamps`.

        An access finds the time of its record by the iterator's position, as states may be requested while records are
        handled. Without a state in event time this costs nothing.
        """
        self._to_come, self._timestamps = iter(keys), timestamps
        return self._to_come

    def end_batch(self) -> None:
        """End the records of a batch."""
        self._timestamps = None


@dataclass(frozen=True)
class TtlRules:
    """The settings of a state's StateTtlConfig. `cleanup_size`: entries examined per access (0: none)."""

    ttl_ms: int
    is_event_time: bool
    renews_on_read: bool
    returns_expired: bool
    cleanup_size: int
    cleans_every_record: bool
    filters_snapshots: bool
    sweeps_database: bool
    """True if expired values are deleted from RocksDB, as Flink's compaction filter does."""

    @classmethod
    def of(cls, descriptor: StateDescriptor) -> "TtlRules | None":
        """Return the rules of a state, or None if it has no time to live."""
        config: StateTtlConfig | None = descriptor.ttl_config
        if config is None or not config.is_enabled():
            return None
        strategies = config.get_cleanup_strategies()
        incremental = strategies.get_incremental_cleanup_strategy()
        return cls(
            ttl_ms=config.get_ttl().to_milliseconds(),
            is_event_time=config.get_ttl_time_characteristic() is TtlTimeCharacteristic.EventTime,
            renews_on_read=config.get_update_type() is UpdateType.OnReadAndWrite,
            returns_expired=config.get_state_visibility()
            is StateVisibility.ReturnExpiredIfNotCleanedUp,
            cleanup_size=0 if incremental is None else incremental.get_cleanup_size(),
            cleans_every_record=incremental is not None
            and incremental.run_cleanup_for_every_record(),
            filters_snapshots=strategies.in_full_snapshot(),
            sweeps_database=strategies.in_rocksdb_compact_filter(),
        )

    def is_expired(self, last_access_ms: int, now_ms: int) -> bool:
        """Return whether a value has expired."""
        return min(last_access_ms + self.ttl_ms, _MAX_TIME_MS) <= now_ms

    def expired_until_ms(self, now_ms: int) -> int:
        """Return the latest last access of expired values."""
        return now_ms if now_ms == _MAX_TIME_MS else max(now_ms - self.ttl_ms, MIN_TIMESTAMP)


@dataclass(frozen=True)
class TtlClocks:
    """The processing-time and event-time clocks of a backend."""

    processing: BatchClock
    event: EventClock

    def of(self, rules: TtlRules) -> TtlClock:
        """Return the clock that the rules of a state require."""
        return self.event if rules.is_event_time else self.processing
