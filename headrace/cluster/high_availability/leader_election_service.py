"""LeaderElectionService: contends for the leadership of the cluster, repeatedly, and tells whether this process leads.

    STANDBY --no other process leads--> LEADING --not renewed in time, or a later epoch exists--> LOST
    LOST --contend_again, when all of the leadership has ended--> STANDBY
    LEADING --close--> LOST, and the next leader need not wait

A separate thread renews the lease, so that a busy control thread does not lose it. A Leadership is one term;
once lost it stays lost, and the next one of the same process has a new number, like that of another process.
Its `validate` needs neither that thread nor the records: it fails in time even if a renewal hangs. One
leadership covers Dispatcher and JobMasters of a process. Source: Flink DefaultLeaderElectionService.
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
    leader_at,
)
from headrace.cluster.high_availability.process_lock import ProcessLock
from headrace.core.clock import Clock
from headrace.core.errors import HostError
from headrace.core.threads import Thread, start_thread

_LOG: Final = logging.getLogger(__name__)
_JOIN_TIMEOUT_S: Final = 10.0

OnStandby = Callable[[LeaderRecord | None], None]
"""Called with the leader for which this process is a standby, and again when the leader or its address changes.

None: this process leads.
"""


class LeadershipLostError(HostError):
    """This process does not lead its cluster (any more): it must not change anything that its successor may use."""

    def __init__(self, cluster: str, reason: str) -> None:
        super().__init__(
            f"this process no longer leads the cluster '{cluster}': {reason}; its jobs continue under the next "
            "leader, which may be this process again"
        )


class Leadership:
    """One term of leadership of this process, with its number `epoch`. Any thread."""

    def __init__(
        self, records: LeaderRecords, lease: HeldLease, clock: Clock, cluster: str, late_text: str
    ) -> None:
        self.epoch: Final = lease.epoch
        self.lease: Final = lease
        self._records: Final = records
        self._clock: Final = clock
        self._cluster: Final = cluster
        self._late_text: Final = late_text
        # The reason, not the error: an error raised repeatedly keeps the frames of all its callers alive.
        self._loss: str | None = None

    @property
    def is_lost(self) -> bool:
        """Return whether the term was found to be over; `validate` may find so at any moment."""
        return self._loss is not None

    def validate(self) -> None:
        """Raise LeadershipLostError unless no other process can lead at this moment. Does not wait."""
        if self._loss is None:
            doubt = self._records.doubt()
            if doubt:
                self.lose(doubt)
            elif not self.lease.is_valid(self._clock.monotonic_ms()):
                self.lose(self._late_text)
        if self._loss is not None:
            raise LeadershipLostError(self._cluster, self._loss)

    def confirm(self) -> None:
        """Raise LeadershipLostError if a successor may have read the storage before this process's last write.

        Call after a write: a successor first takes its epoch and then reads, so that one of the two sees the other.
        CheckpointStorageError if the records cannot be read.
        """
        self.validate()
        newest = self._records.newest_epoch()
        if newest > self.epoch:
            self.lose(later_text(newest))
            self.validate()

    def lose(self, reason: str, *, is_wanted: bool = False) -> None:
        """End the term for good. The first reason counts."""
        if self._loss is None:
            self._loss = reason
            error = LeadershipLostError(self._cluster, reason)
            _LOG.log(logging.INFO if is_wanted else logging.CRITICAL, "%s", error)


class LeaderElectionService:
    """Contends for the leadership on behalf of this process.

    `name` identifies the process to people; `process_lock` shows its end to others. Call `await_leadership` first, and
    `contend_again` when a term is over. Any thread may read `leadership`.
    """

    def __init__(
        self,
        records: LeaderRecords,
        terms: LeaseTerms,
        clock: Clock,
        cluster: str,
        name: str,
        process_lock: ProcessLock | None = None,
    ) -> None:
        self._process_lock: Final = process_lock
        self._records: Final = records
        self._terms: Final = terms
        self._clock: Final = clock
        self.cluster: Final = cluster
        self._name: Final = name
        self._observer: Final = LeaseObserver(terms)
        self._seen: LeaderRecord | None = None
        self.on_standby: OnStandby | None = None
        # Set by the only thread that contends or renews, read by all.
        self._leadership: Leadership | None = None
        self._may_contend = True
        self.failure: BaseException | None = None
        """Error because of which this process no longer contends, or None."""
        self._address = ""
        self._renewals = 0
        self._should_stop: Final = threading.Event()
        self._thread: Thread | None = None

    @property
    def retry_period_ms(self) -> float:
        """Time in ms within which a loss must be noticed."""
        return self._terms.retry_period_ms

    @property
    def leadership(self) -> Leadership | None:
        """Newest term of this process, which may be over; None before the first one."""
        return self._leadership

    @property
    def epoch(self) -> int:
        """Number of the newest term; 0 before the first one."""
        return 0 if self._leadership is None else self._leadership.epoch

    @property
    def leading_epoch(self) -> int:
        """Number of the term that holds now; 0 if none does."""
        try:
            self.validate()
        except LeadershipLostError:
            return 0
        return self.epoch

    @property
    def leader_text(self) -> str:
        """Clause that names the cluster's leader, as far as this process knows."""
        if self._leadership is not None and not self._leadership.is_lost:
            return "this process leads it"
        leader = self._seen
        if leader is None or leader.is_released or leader.epoch <= self.epoch:
            return "no leader is known now"
        return f"{leader_at(leader.holder, leader.address)} leads it"

    def await_leadership(self, check: Callable[[], object] = lambda: None) -> None:
        """Wait, as a standby, until this process leads; then start to renew the lease.

        `check` is called before each attempt, and raises if this process could not lead.
        RecordNotTrustedError if a record has a bad seal, or another version wrote it.
        """
        wait_ms = 0.0
        while self._leadership is None:
            if self._should_stop.wait(wait_ms / 1000):
                raise LeadershipLostError(self.cluster, "it was closed before it led")
            check()
            wait_ms = self.step()
        self._thread = start_thread("headrace-leader", self._run)

    def announce(self, address: str) -> None:
        """Publish the address at which clients reach this leader."""
        self._address = address

    def contend_again(self) -> None:
        """Become a standby again, once everything of the lost term has ended in this process."""
        assert self._leadership is not None and self._leadership.is_lost, "this process still leads"
        self._may_contend = True

    def validate(self) -> None:
        """Raise LeadershipLostError unless the newest term still holds. Does not wait."""
        if self._leadership is None:
            raise LeadershipLostError(self.cluster, "the leadership was never granted")
        self._leadership.validate()

    def step(self) -> float:
        """Check the records or renew the lease once; return the ms until the next step. One thread at a time."""
        leadership = self._leadership
        if self._process_lock is not None:
            self._process_lock.touch()
        try:
            if leadership is not None and not leadership.is_lost:
                self._renew(leadership)
            elif self._may_contend:
                return self._contend()
        except CheckpointError as error:
            if not error.recoverable:
                raise
            _LOG.warning("cannot read the lease of cluster '%s': %s", self.cluster, error)
        return self._terms.retry_period_ms

    def close(self) -> None:
        """Stop renewing, and let the next leader follow at once. Idempotent; may block."""
        self._should_stop.set()
        thread, self._thread = self._thread, None
        leadership = self._leadership
        if thread is None or leadership is None:
            return
        thread.join(_JOIN_TIMEOUT_S)
        try:
            leadership.validate()
            leadership.lose("it was released", is_wanted=True)
            self._records.renew(self._record(leadership.epoch, is_released=True))
        except (LeadershipLostError, CheckpointError) as error:
            _LOG.info("the lease could not be released: %s", error)

    def _contend(self) -> float:
        # Taken before any read or write: the lease counts from here.
        begun_ms = self._clock.monotonic_ms()
        record = self._records.newest()
        lock = self._process_lock
        has_ended = record is not None and lock is not None and lock.has_ended(record.process_lock)
        remaining_ms = self._observer.remaining_ms(
            record, self._clock.monotonic_ms(), has_ended=has_ended
        )
        # The process's own term is over, and no other process has that number: no need to wait.
        is_own = record is not None and (record.epoch, record.holder) == (self.epoch, self._name)
        if record is not None and remaining_ms > 0 and not is_own:
            self._tell_standby(record)
            return min(remaining_ms, self._terms.retry_period_ms)
        epoch = 1 if record is None else record.epoch + 1
        if not self._records.take(self._record(epoch)):
            return self._terms.retry_period_ms
        if has_ended and lock is not None and record is not None:
            lock.remove_ended(record.process_lock)
        self._may_contend = False
        lease = HeldLease(self._terms, epoch, begun_ms)
        late_text = f"its lease was not renewed within {self._terms.renew_deadline_ms / 1000:g} s"
        self._leadership = Leadership(self._records, lease, self._clock, self.cluster, late_text)
        _LOG.info("this process now leads the cluster '%s' (epoch %d)", self.cluster, epoch)
        self._seen = None
        if self.on_standby is not None:
            self.on_standby(None)
        return self._terms.retry_period_ms

    def _tell_standby(self, leader: LeaderRecord) -> None:
        before, self._seen = self._seen, leader
        if before is None or (before.epoch, before.address) != (leader.epoch, leader.address):
            _LOG.warning(
                "standby: %s leads the cluster '%s' (epoch %d); this process takes over when that leader is gone",
                leader_at(leader.holder, leader.address),
                self.cluster,
                leader.epoch,
            )
            if self.on_standby is not None:
                self.on_standby(leader)

    def _renew(self, leadership: Leadership) -> None:
        begun_ms = self._clock.monotonic_ms()
        try:
            leadership.validate()
        except LeadershipLostError:
            return
        newest = self._records.newest_epoch()
        if newest <= leadership.epoch:
            self._renewals += 1
            self._records.renew(self._record(leadership.epoch))
            newest = self._records.newest_epoch()
        if newest > leadership.epoch:
            leadership.lose(later_text(newest))
        else:
            leadership.lease.renewed(begun_ms)

    def _run(self) -> None:
        while not self._should_stop.is_set():
            try:
                wait_ms = self.step()
            except Exception as error:
                leadership = self._leadership
                if leadership is None or leadership.is_lost:
                    _LOG.exception(
                        "this process is no longer a standby of cluster '%s'", self.cluster
                    )
                    self.failure = error
                    return
                # A service refuses writes of an earlier leader.
                if not isinstance(error, LeadershipLostError):
                    _LOG.exception("cannot renew the lease of cluster '%s'", self.cluster)
                leadership.lose(f"{type(error).__name__}: {error}")
            else:
                self._should_stop.wait(wait_ms / 1000)

    def _record(self, epoch: int, *, is_released: bool = False) -> LeaderRecord:
        lock = "" if self._process_lock is None else self._process_lock.name
        return LeaderRecord(
            epoch, self._name, self._renewals, self._address, is_released, process_lock=lock
        )


def later_text(epoch: int) -> str:
    """Return the reason for a loss to a leader of that epoch."""
    return f"another process leads it now (epoch {epoch})"
