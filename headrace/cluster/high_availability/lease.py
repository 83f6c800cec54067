"""Lease: the right to lead until a time, which each observer judges by its own monotonic clock. Pure.

    standby     takes over once a record has not changed for `lease_duration_ms` since the standby first saw it
    leader      gives up `renew_deadline_ms` after it *began* the last successful renewal

Readings of different clocks are never compared: only the rates of two clocks matter, and the leader has
given up before any standby takes over as long as no clock runs faster than another by more than the lease duration is
longer than the renew deadline. A standby that has just started waits for a whole lease, whenever the leader died.
A process that was stopped meanwhile finds its lease expired as soon as it resumes.
After a leader that has certainly ended (`process_lock`), standbys wait only for its last writes to arrive.
Source: Gray and Cheriton 1989; Kubernetes client-go LeaderElector.
"""

from dataclasses import dataclass
from typing import Final

import msgspec

from headrace.cluster.high_availability.options import LEASE_DURATION, RENEW_DEADLINE, RETRY_PERIOD
from headrace.core.config import Settings, default_text
from headrace.core.errors import ConfigurationError


@dataclass(frozen=True)
class LeaseTerms:
    """Durations of a lease, equal in all drivers of a cluster."""

    lease_duration_ms: float
    renew_deadline_ms: float
    retry_period_ms: float

    @classmethod
    def from_settings(cls, settings: Settings) -> "LeaseTerms":
        """Make the terms from the options. ConfigurationError if a leader could overlap with its successor."""
        deadline = settings.get_option(RENEW_DEADLINE)
        if deadline >= settings.get_option(LEASE_DURATION):
            raise ConfigurationError(
                RENEW_DEADLINE.key,
                default_text(deadline),
                f"it must be shorter than {LEASE_DURATION.key}: a leader must give up before another one takes over",
            )
        period = settings.get_option(RETRY_PERIOD)
        if 2 * period > deadline:
            raise ConfigurationError(
                RETRY_PERIOD.key,
                default_text(period),
                f"it must be at most half of {RENEW_DEADLINE.key}: one slow renewal must not end a leadership",
            )
        return cls(
            settings.duration_ms(LEASE_DURATION),
            deadline.total_seconds() * 1000,
            period.total_seconds() * 1000,
        )


class LeaderRecord(msgspec.Struct, frozen=True):
    """Record that a leader stores about itself. `epoch`: the number of its leadership.

    `renewals` only makes each record differ. `holder` and `address` (empty until clients are served) are for people.
    `is_released`: it no longer leads.
    """

    epoch: int
    holder: str
    renewals: int = 0
    address: str = ""
    is_released: bool = False
    process_lock: str = ""
    """Name of the leader's ProcessLock; empty if it has none."""


def leader_at(holder: str, address: str) -> str:
    """Return a leader with its address, if known, for messages."""
    return f"{holder} at {address}" if address else holder


LAST_WRITES_MS: Final = 2_000.0
"""Shortest wait in ms after the end of a leader's process was seen, unless its lease ends before.

Writes of the ended process may still arrive in storage, and the JVM that it has started needs time to end.
"""


class LeaseObserver:
    """Judges the lease of another process by the observer's clock."""

    def __init__(self, terms: LeaseTerms) -> None:
        self._terms: Final = terms
        self._seen: LeaderRecord | None = None
        self._has_ended = False
        self._until_ms = 0.0

    def remaining_ms(
        self, record: LeaderRecord | None, now_ms: float, *, has_ended: bool = False
    ) -> float:
        """Return how long the lease may still hold, in ms; 0 if there is no leader.

        `now_ms`: after the record was read. `has_ended`: whether the leading process has certainly ended. This holds
        until the record changes.
        """
        if record is None or record.is_released:
            self._seen = record
            return 0.0
        if record != self._seen:
            self._seen, self._until_ms = record, now_ms + self._terms.lease_duration_ms
            self._has_ended = False
        if has_ended and not self._has_ended:
            self._has_ended = True
            margin_ms = self._terms.lease_duration_ms - self._terms.renew_deadline_ms
            self._until_ms = min(self._until_ms, now_ms + max(LAST_WRITES_MS, margin_ms))
        return max(0.0, self._until_ms - now_ms)


class HeldLease:
    """Lease of this process. `begun_ms`: time before any write that others may have seen."""

    def __init__(self, terms: LeaseTerms, epoch: int, begun_ms: float) -> None:
        self.epoch: Final = epoch
        self._terms: Final = terms
        self._renewed_ms = begun_ms

    def renewed(self, begun_ms: float) -> None:
        """Extend the lease by a renewal that began at `begun_ms`."""
        self._renewed_ms = begun_ms

    def is_valid(self, now_ms: float) -> bool:
        """Return whether no other process can lead at this moment."""
        return now_ms < self._renewed_ms + self._terms.renew_deadline_ms
