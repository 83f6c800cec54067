"""TaskOutbox: queue of one task's reports to its JobMaster, in order, each kept until it is acknowledged.

State reports and operator events share one queue, so that the JobMaster never gets FINISHED before the last event.
Each is sent until it is acknowledged: after a lost reply it is repeated, which the JobMaster recognises. The queue is
bounded: a task thread that runs ahead of the JobMaster waits, which is back pressure.
"""

import threading
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from headrace.checkpoint.errors import CheckpointFailureReason
from headrace.checkpoint.handles import CheckpointMetrics, TaskStateSnapshot
from headrace.core.elements import CancelTaskException
from headrace.core.ids import ExecutionAttemptId, OperatorId
from headrace.core.lifecycle import ExecutionState
from headrace.core.process.failpoints import Failpoint, reach
from headrace.gateways.errors import CoordinatorBusyError
from headrace.gateways.job_master import JobMasterGateway
from headrace.gateways.messages import ExecutionReport
from headrace.rpc.errors import AskTimeoutError, MailboxFullError, RecipientUnreachableError

CAPACITY: Final = 16
RETRY_MS: Final = 500.0
BUSY_RETRY_MS: Final = 20.0


@dataclass(frozen=True)
class OperatorEvent:
    """One event of an operator; numbered per operator and attempt, from 0."""

    operator_id: OperatorId
    sequence_number: int
    payload: bytes


@dataclass(frozen=True)
class CheckpointAcknowledged:
    """The task has stored its part of a checkpoint."""

    checkpoint_id: int
    snapshot: TaskStateSnapshot
    metrics: CheckpointMetrics


@dataclass(frozen=True)
class CheckpointDeclined:
    """The task declines its part of a checkpoint."""

    checkpoint_id: int
    reason: CheckpointFailureReason
    text: str


@dataclass(frozen=True)
class DataEnded:
    """The task's operators have finished."""


CheckpointMessage = CheckpointAcknowledged | CheckpointDeclined | DataEnded
OutboxEntry = ExecutionReport | OperatorEvent | CheckpointMessage


class TaskOutbox:
    """Report queue of one attempt. Everything runs on the control thread, except `await_room`.

    `drain` is a coroutine that the owner starts when `put` returns True and that ends when the queue is empty.
    """

    def __init__(self, attempt_id: ExecutionAttemptId) -> None:
        self.attempt_id: Final = attempt_id
        self._entries: deque[OutboxEntry] = deque()
        self._next_sequence: dict[OperatorId, int] = {}
        self._is_draining = False
        self._is_closed = False
        # The only state shared with the task's thread: the number of further events that it may queue.
        self._room = threading.Condition()
        self._room_count = CAPACITY
        self._is_interrupted = False

    def await_room(self, *, may_block: bool) -> None:
        """Wait for room; the task calls this before it queues an event. CancelTaskException once interrupted."""
        with self._room:
            while may_block and self._room_count <= 0 and not self._is_interrupted:
                self._room.wait()
            if self._is_interrupted:
                raise CancelTaskException("the task's events are no longer accepted")
            self._room_count -= 1

    def put_event(self, operator_id: OperatorId, payload: bytes) -> bool:
        """Queue an event; return True if `drain` must be started."""
        sequence_number = self._next_sequence.get(operator_id, 0)
        self._next_sequence[operator_id] = sequence_number + 1
        return self._put(OperatorEvent(operator_id, sequence_number, payload))

    def put_checkpoint_message(self, message: CheckpointMessage) -> bool:
        """Queue a message about checkpoints after earlier events; returns as `put_event`.

        Not bounded by room: there are never more of them than pending checkpoints.
        """
        return self._put(message)

    def put_report(self, report: ExecutionReport) -> bool:
        """Queue a state report; return True if `drain` must be started.

        After a failure or cancellation the events are dropped, so that a busy coordinator does not delay the report.
        """
        if report.state in (ExecutionState.FAILED, ExecutionState.CANCELED):
            self._drop_events()
        return self._put(report)

    @property
    def is_empty(self) -> bool:
        """Return whether everything was delivered."""
        return not self._entries

    def interrupt(self) -> None:
        """Interrupt a task that must end: it no longer waits for room, and its events are dropped.

        Its reports are still sent.
        """
        self._drop_events()
        with self._room:
            self._is_interrupted = True
            self._room.notify_all()

    @property
    def is_closed(self) -> bool:
        """Return whether the outbox is closed."""
        return self._is_closed

    def close(self) -> None:
        """Drop all entries, because the JobMaster no longer listens, and let the task continue to its cancellation."""
        self._is_closed = True
        self._entries.clear()
        self.interrupt()

    async def drain(
        self, gateway: JobMasterGateway, pause: Callable[[float], Awaitable[None]]
    ) -> None:
        """Send all entries in order. A refusal for good is raised, with its entry still queued.

        `pause(ms)` waits on the owner's clock. Entries are repeated after silence and for busy coordinators.
        """
        self._is_draining = True
        try:
            while self._entries and not self._is_closed:
                entry = self._entries[0]
                try:
                    await self._send(gateway, entry)
                except (AskTimeoutError, RecipientUnreachableError, MailboxFullError):
                    await pause(RETRY_MS)
                    continue
                except CoordinatorBusyError:
                    await pause(BUSY_RETRY_MS)
                    continue
                self._delivered(entry)
        finally:
            self._is_draining = False

    def skip(self) -> None:
        """Drop the first entry, which was refused for good."""
        if self._entries:
            self._delivered(self._entries[0])

    async def _send(self, gateway: JobMasterGateway, entry: OutboxEntry) -> None:
        match entry:
            case ExecutionReport():
                await gateway.update_task_execution_state(entry)
            case CheckpointAcknowledged(checkpoint_id, snapshot, metrics):
                await gateway.acknowledge_checkpoint(
                    self.attempt_id, checkpoint_id, snapshot, metrics
                )
            case CheckpointDeclined(checkpoint_id, reason, text):
                await gateway.decline_checkpoint(self.attempt_id, checkpoint_id, reason, text)
            case DataEnded():
                await gateway.notify_end_of_data(self.attempt_id)
            case OperatorEvent():
                await self._send_event(gateway, entry)

    async def _send_event(self, gateway: JobMasterGateway, entry: OperatorEvent) -> None:
        await gateway.send_operator_event_to_coordinator(
            self.attempt_id, entry.operator_id, entry.sequence_number, entry.payload
        )

    def _put(self, entry: OutboxEntry) -> bool:
        if self._is_closed:
            return False
        self._entries.append(entry)
        if self._is_draining:
            return False
        self._is_draining = True
        return True

    def _drop_events(self) -> None:
        reports = [entry for entry in self._entries if isinstance(entry, ExecutionReport)]
        self._entries = deque(reports)

    def _delivered(self, entry: OutboxEntry) -> None:
        if isinstance(entry, CheckpointAcknowledged):
            reach(Failpoint.ACKNOWLEDGED)
        # `close` may have emptied the queue before the answer arrived.
        if self._entries and self._entries[0] is entry:
            self._entries.popleft()
        if isinstance(entry, OperatorEvent):
            with self._room:
                self._room_count += 1
                self._room.notify()
