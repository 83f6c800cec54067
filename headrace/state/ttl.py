"""Time to live: when an entry has expired, and what reading and writing do about it; the same for every backend.

A value lives from its last access; at last access + time to live it has expired. The clock is read once for a batch, so
that all its rows see the same entries. Source: Flink StateTtlConfig, TtlUtils, AbstractTtlDecorator.
"""

from dataclasses import dataclass
from typing import Final

from headrace.core.clock import Clock
from headrace.functions.state import StateDescriptor
from headrace.functions.state_ttl import StateTtlConfig, StateVisibility, UpdateType

_MAX_TIME_MS: Final = 2**63 - 1


class BatchClock:
    """Processing time that stands still while a batch is handled. Mailbox thread only."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._batch_ms: int | None = None

    def now_ms(self) -> int:
        """Epoch ms: of the batch's beginning, or outside of one as it is."""
        return self._clock.now_ms() if self._batch_ms is None else self._batch_ms

    def begin_batch(self) -> None:
        """Stop the clock."""
        self._batch_ms = self._clock.now_ms()

    def end_batch(self) -> None:
        """Let the clock run again."""
        self._batch_ms = None


@dataclass(frozen=True)
class TtlRules:
    """What a state's StateTtlConfig says. `cleanup_size`: entries that are looked at per access (0: none)."""

    ttl_ms: int
    renews_on_read: bool
    returns_expired: bool
    cleanup_size: int
    cleans_every_record: bool
    filters_snapshots: bool
    sweeps_database: bool
    """Whether RocksDB is to be rid of what has expired, as Flink's compaction does it."""

    @classmethod
    def of(cls, descriptor: StateDescriptor) -> "TtlRules | None":
        """Return the rules of a state, or None where it has no time to live."""
        config: StateTtlConfig | None = descriptor.ttl_config
        if config is None or not config.is_enabled():
            return None
        strategies = config.get_cleanup_strategies()
        incremental = strategies.get_incremental_cleanup_strategy()
        return cls(
            ttl_ms=config.get_ttl().to_milliseconds(),
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
        """Whether its time is over."""
        return min(last_access_ms + self.ttl_ms, _MAX_TIME_MS) <= now_ms
