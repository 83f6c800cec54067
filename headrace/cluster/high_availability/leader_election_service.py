"""LeaderElectionService: makes this process the leader of its cluster, once, and knows whether it still leads.

    STANDBY --nobody else leads--> LEADING --not renewed in time, or a later epoch is there--> LOST
                                           --release--> LOST, and the next leader need not wait

A thread of its own renews the lease, so that a control thread that is busy does not lose it. `validate` needs neither
that thread nor the place of the records: it fails in time where a renewal hangs. One leadership covers all of a
process: Dispatcher, ResourceManager and JobMasters. A process that has lost it never contends again: it ends, and
whoever started it may start it anew. Source: Flink DefaultLeaderElectionService.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from headrace.checkpoint.errors import CheckpointError
from headrace.cluster.high_availability.leader_records import LeaderRecords
from headrace.cluster.high_availability.lease import (
    HeldLease,
    LeaderRecord,
    LeaseObserver,
    LeaseTerms,
)
from headrace.core.clock import Clock
from headrace.core.errors import HostError
from headrace.core.threads import Thread, start_thread

_LOG: Final = logging.getLogger(__name__)
_JOIN_TIMEOUT_S: Final = 10.0

OnStandby = Callable[[LeaderRecord], None]
"""Called with the leader that this process stands by for, again whenever it is another one or serves elsewhere."""


class LeadershipLostError(HostError):
    """This process does not lead its cluster (any more): it must change nothing that its successor may rely on."""

    def __init__(self, cluster: str, reason: str) -> None:
        super().__init__(
            f"this process does not lead the cluster '{cluster}' any more: {reason}; its jobs go on under the next "
            "leader, and this process ends"
        )


class LeaderElectionService:
    """One per process. `name` tells people who this process is.

    `await_leadership` comes first. `validate` may be called from any thread.
    """

    def __init__(
        self, records: LeaderRecords, terms: LeaseTerms, clock: Clock, cluster: str, name: str
    ) -> None:
        self._records: Final = records
        self._terms: Final = terms
        self._clock: Final = clock
        self._cluster: Final = cluster
        self._name: Final = name
        self._observer: Final = LeaseObserver(terms)
        self._seen: LeaderRecord | None = None
        self.on_standby: OnStandby | None = None
        # Set by the one thread that contends or renews, read by all.
        self._lease: HeldLease | None = None
        self._loss: LeadershipLostError | None = None
        self._address = ""
        self._renewals = 0
        self._should_stop: Final = threading.Event()
        self._thread: Thread | None = None

    @property
    def retry_period_ms(self) -> float:
        """Return the time after which a loss is to be noticed."""
        return self._terms.retry_period_ms

    @property
    def epoch(self) -> int:
        """Return the number of this leadership; 0 before it was granted."""
        return 0 if self._lease is None else self._lease.epoch

    def await_leadership(self) -> None:
        """Wait, as a standby, until this process leads; from then on the lease is renewed.

        RecordNotTrustedError where the folder holds somebody else's records.
        """
        wait_ms = self.step()
        while self._lease is None:
            if not self._should_stop.wait(wait_ms / 1000):
                wait_ms = self.step()
            else:
                raise LeadershipLostError(self._cluster, "it was closed before it led")
        _LOG.info("this process leads the cluster '%s' (epoch %d)", self._cluster, self.epoch)
        self._thread = start_thread("headrace-leader", self._renew_until_stopped)

    def announce(self, address: str) -> None:
        """Let others know where clients find this leader."""
        self._address = address

    def validate(self) -> None:
        """Raise LeadershipLostError unless nobody else can lead at this moment; waits for nothing."""
        if self._loss is not None:
            raise self._loss
        lease = self._lease
        if lease is None:
            raise LeadershipLostError(self._cluster, "it was never granted")
        doubt = self._records.doubt()
        if doubt:
            raise LeadershipLostError(self._cluster, doubt)
        if not lease.is_valid(self._clock.monotonic_ms()):
            raise LeadershipLostError(self._cluster, self._late_text)

    def confirm(self) -> None:
        """Raise LeadershipLostError where a successor may have read the storage before something was written there.

        Called after a write: a successor takes its epoch and reads afterwards, so that one of the two sees the other.
        CheckpointStorageError.
        """
        self.validate()
        newest = self._records.newest_epoch()
        if newest > self.epoch:
            raise LeadershipLostError(self._cluster, _later_text(newest))

    def step(self) -> float:
        """Take one look, or renew once; return the milliseconds until the next. Called by one thread at a time."""
        try:
            return self._contend() if self._lease is None else self._renew(self._lease)
        except CheckpointError as error:
            if not error.recoverable:
                raise
            _LOG.warning("the lease of cluster '%s' is not to be seen: %s", self._cluster, error)
            return self._terms.retry_period_ms

    def close(self) -> None:
        """Renew no longer, and let the next leader follow at once. Idempotent; may block."""
        self._should_stop.set()
        thread, self._thread = self._thread, None
        if thread is None:
            return
        thread.join(_JOIN_TIMEOUT_S)
        try:
            self.validate()
            self._loss = LeadershipLostError(self._cluster, "it was given back")
            self._records.renew(self._record(self.epoch, is_released=True))
        except (LeadershipLostError, CheckpointError) as error:
            _LOG.info("the lease was not given back: %s", error)

    def _contend(self) -> float:
        # Before anything is read or written: the lease counts from here.
        begun_ms = self._clock.monotonic_ms()
        record = self._records.newest()
        remaining_ms = self._observer.remaining_ms(record, self._clock.monotonic_ms())
        if record is not None and remaining_ms > 0:
            self._tell_standby(record)
            return min(remaining_ms, self._terms.retry_period_ms)
        epoch = 1 if record is None else record.epoch + 1
        if not self._records.take(self._record(epoch)):
            return self._terms.retry_period_ms
        self._lease = HeldLease(self._terms, epoch, begun_ms)
        return self._terms.retry_period_ms

    def _tell_standby(self, leader: LeaderRecord) -> None:
        before, self._seen = self._seen, leader
        if before is None or (before.epoch, before.address) != (leader.epoch, leader.address):
            _LOG.warning(
                "standby: %s leads the cluster '%s' (epoch %d)%s; this process takes over when it is gone",
                leader.holder, self._cluster, leader.epoch, f" at {leader.address}" if leader.address else "",
            )  # fmt: skip
            if self.on_standby is not None:
                self.on_standby(leader)

    def _renew(self, lease: HeldLease) -> float:
        begun_ms = self._clock.monotonic_ms()
        doubt = self._records.doubt()
        if doubt or not lease.is_valid(begun_ms):
            self._lose(doubt or self._late_text)
            return self._terms.retry_period_ms
        newest = self._records.newest_epoch()
        if newest <= lease.epoch:
            self._renewals += 1
            self._records.renew(self._record(lease.epoch))
            newest = self._records.newest_epoch()
        if newest > lease.epoch:
            self._lose(_later_text(newest))
        else:
            lease.renewed(begun_ms)
        return self._terms.retry_period_ms

    def _renew_until_stopped(self) -> None:
        while self._loss is None and not self._should_stop.is_set():
            try:
                wait_ms = self.step()
            except Exception as error:
                _LOG.exception("the lease of cluster '%s' cannot be renewed", self._cluster)
                self._lose(f"{type(error).__name__}: {error}")
            else:
                self._should_stop.wait(wait_ms / 1000)

    def _lose(self, reason: str) -> None:
        self._loss = loss = LeadershipLostError(self._cluster, reason)
        _LOG.critical("%s", loss)

    def _record(self, epoch: int, *, is_released: bool = False) -> LeaderRecord:
        return LeaderRecord(epoch, self._name, self._renewals, self._address, is_released)

    @property
    def _late_text(self) -> str:
        return f"its lease was not renewed within {self._terms.renew_deadline_ms / 1000:g} s"


def _later_text(epoch: int) -> str:
    return f"another process leads it since (epoch {epoch})"
