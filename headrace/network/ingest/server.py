"""IngestServer: lets Spark tasks connect, authenticate and push partitions of a DataFrame into source subtasks.

Rows are numbered within their partition. A retried Spark task that pushes a partition again is told how many
of its rows have arrived already; if it sends those again they are dropped, so that each row enters once however the
batches were cut. A newer attempt closes the connection of an older one. Connections belong to the transport's thread; a
source subtask polls its receiver from its own.
"""

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from headrace.core.clock import Cancellable
from headrace.core.config import ConfigOption
from headrace.core.ids import ExecutionAttemptId, JobId, OperatorId
from headrace.functions.ingest import Ingested, IngestedBatch, IngestedEnd
from headrace.network.batches.sealed_batch import SchemaMemory, read_batch
from headrace.network.errors import IngestRefusedError, NetworkError, ProtocolError
from headrace.network.sessions.transport import Link, Transport
from headrace.network.wire.frames import (
    TEXT_BYTES_MAX,
    AddCredit,
    Close,
    Error,
    ErrorCode,
    IngestAccept,
    IngestData,
    IngestEnd,
    IngestOpen,
    Schema,
)
from headrace.network.wire.framing import Body, Frame, encode

INGEST_CREDIT: Final = ConfigOption(
    "headrace.ingest.batches-in-flight", int, 4,
    "Batches that a Spark task may push into a source before the source has read the first of them.",
)  # fmt: skip
INGEST_NAME: Final = "ingest"
"""Name that a pusher sends in its handshake; no resource id may be equal to it."""
INGEST_BODY_BYTES_MAX: Final = 256 << 20

IngestTarget = tuple[JobId, OperatorId, int]
_NOTHING_ACCEPTED: Final[Mapping[int, int]] = {}


@dataclass(slots=True)
class _Partition:
    """State of one partition of the DataFrame. Transport's thread."""

    accepted_row_count: int = 0
    attempt: int = -1
    pusher: "IngestSession | None" = None
    is_ended: bool = False


@dataclass(slots=True)
class _Queued:
    """A queued batch or end, and the session to answer when it is taken."""

    ingested: Ingested
    pusher: "IngestSession"


class IngestReceiver:
    """Receiving end of one source subtask. `poll` is called on its thread, `close` on any."""

    def __init__(
        self, server: "IngestServer", target: IngestTarget, on_data: Callable[[], None]
    ) -> None:
        self._server = server
        self._on_data = on_data
        self._queue: deque[_Queued] = deque()
        self._taken: deque[_Queued] = deque()
        # Elements of paused partitions; never more than their pushers had credit for.
        self._held: dict[int, deque[_Queued]] = {}
        self._paused: frozenset[int] = frozenset()
        self.target: Final = target
        self.partitions: Final[dict[int, _Partition]] = {}

    def poll(self) -> Ingested | None:
        """Return the next element or None; its pusher gets credit for another batch."""
        queued = self._next_held() or self._next_queued()
        if queued is None:
            return None
        self._taken.append(queued)
        if len(self._taken) == 1:
            # If several wait, the transport has not handled the first one yet, and will find this one too.
            self._server.transport.post(self._answer)
        return queued.ingested

    def pause(self, partitions: frozenset[int]) -> None:
        """Hold back these partitions from now on, and no others. Subtask's thread."""
        self._paused = partitions

    def forget_before(self, partition: int) -> None:
        """Forget the partitions with smaller numbers, which have ended for good. Subtask's thread."""
        self._server.transport.post(lambda: self._forget_before(partition))

    def _forget_before(self, partition: int) -> None:
        for number in [each for each in self.partitions if each < partition]:
            del self.partitions[number]

    def _next_held(self) -> _Queued | None:
        for partition, held in self._held.items():
            if held and partition not in self._paused:
                return held.popleft()
        return None

    def _next_queued(self) -> _Queued | None:
        while True:
            try:
                queued = self._queue.popleft()
            except IndexError:
                return None
            partition = queued.ingested.partition
            if partition not in self._paused:
                return queued
            self._held.setdefault(partition, deque()).append(queued)

    def close(self) -> None:
        """Refuse all further pushes. Idempotent."""
        self._server.unregister(self)

    def enqueue(self, ingested: Ingested, pusher: "IngestSession") -> None:
        """Queue an element from a pusher. Transport's thread."""
        self._queue.append(_Queued(ingested, pusher))
        if len(self._queue) == 1:
            self._on_data()

    def end(self, reason: str) -> None:
        """Refuse all pushers, because the subtask has ended or was replaced. Transport's thread."""
        self._queue.clear()
        for partition in self.partitions.values():
            if partition.pusher is not None:
                partition.pusher.refuse(reason)

    def _answer(self) -> None:
        while self._taken:
            queued = self._taken.popleft()
            if isinstance(queued.ingested, IngestedEnd):
                queued.pusher.acknowledge_end(queued.ingested)
            else:
                queued.pusher.grant()


@dataclass(slots=True)
class _Parked:
    session: "IngestSession"
    frame: IngestOpen
    timer: Cancellable | None = field(default=None)


class IngestServer:
    """Receivers of this TaskManager by job, operator and subtask, and the sessions that push to them."""

    def __init__(self, transport: Transport, credit_count: int, wait_ms: float) -> None:
        self.transport: Final = transport
        self.credit_count: Final = credit_count
        self._wait_ms = wait_ms
        # Guards the maps: tasks register and leave from their own threads.
        self._lock = threading.Lock()
        self._receivers: dict[IngestTarget, tuple[int, IngestReceiver]] = {}
        self._parked: dict[IngestTarget, list[_Parked]] = {}

    def register(
        self,
        job_id: JobId,
        operator_id: OperatorId,
        subtask_index: int,
        attempt: ExecutionAttemptId,
        on_data: Callable[[], None],
        accepted_row_counts: Mapping[int, int] = _NOTHING_ACCEPTED,
    ) -> IngestReceiver:
        """Start to accept pushes for one source subtask; the receiver of an older attempt is ended.

        `on_data` is called on the transport's thread when the first element is queued. `accepted_row_counts`: number
        of rows per partition that the subtask has restored from a checkpoint.
        """
        target = (job_id, operator_id, subtask_index)
        receiver = IngestReceiver(self, target, on_data)
        for partition, row_count in accepted_row_counts.items():
            receiver.partitions[partition] = _Partition(row_count)
        with self._lock:
            replaced = self._receivers.get(target)
            self._receivers[target] = (attempt.attempt_number, receiver)
        if replaced is not None:
            self.transport.post(lambda: replaced[1].end("a newer attempt of the source took over"))
        self.transport.post(lambda: self._admit_parked(target))
        return receiver

    def unregister(self, receiver: IngestReceiver) -> None:
        with self._lock:
            known = self._receivers.get(receiver.target)
            if known is not None and known[1] is receiver:
                del self._receivers[receiver.target]
        self.transport.post(lambda: receiver.end("the source subtask has ended"))

    def open(self, session: "IngestSession", frame: IngestOpen) -> None:
        """Connect a pusher to its subtask, and wait for a subtask that is still being deployed. Transport's thread."""
        target = (frame.job_id, frame.operator_id, frame.subtask_index)
        with self._lock:
            known = self._receivers.get(target)
        if known is not None:
            session.accept(known[1], frame)
            return
        parked = _Parked(session, frame)
        parked.timer = self.transport.call_later(
            self._wait_ms, lambda: self._give_up(target, parked)
        )
        self._parked.setdefault(target, []).append(parked)

    def _admit_parked(self, target: IngestTarget) -> None:
        for parked in self._parked.pop(target, []):
            if parked.timer is not None:
                parked.timer.cancel()
            self.open(parked.session, parked.frame)

    def _give_up(self, target: IngestTarget, parked: _Parked) -> None:
        waiting = self._parked.get(target, [])
        if parked in waiting:
            waiting.remove(parked)
            if not waiting:
                del self._parked[target]
            parked.session.refuse("the source subtask does not run on this task manager")


class IngestSession:
    """Connection of one pusher for one partition; a Session of the transport's thread."""

    # A pusher is one blocking thread: while it waits for credit, or for its Spark task, it can say nothing.
    is_kept_alive = False
    has_output_left = False
    is_spent = False

    def __init__(self, link: Link, server: IngestServer, *, has_checksums: bool = False) -> None:
        self._link = link
        self._server = server
        self._has_checksums = has_checksums
        self._output: list[Body] = []
        self._schema = SchemaMemory(link.peer)
        self._receiver: IngestReceiver | None = None
        self._request: IngestOpen | None = None
        self._credit = 0
        self._is_over = False

    def check_body(self, cls: type[Frame], frame: Frame, body_length: int) -> None:
        if body_length > INGEST_BODY_BYTES_MAX:
            raise ProtocolError(
                self._link.peer,
                f"a pushed batch has {body_length} bytes, but at most {INGEST_BODY_BYTES_MAX} are allowed",
            )
        if cls is IngestData and self._credit < 1:
            raise ProtocolError(self._link.peer, "a batch was pushed without credit")

    def frame_received(self, frame: Frame) -> None:
        if self._is_over:
            return
        match frame:
            case IngestOpen() if self._request is None:
                self._request = frame
                self._server.open(self, frame)
            case Schema():
                self._schema.announced(frame.fingerprint, frame.body)
            case IngestData() if self._receiver is not None:
                self._take_batch(frame, self._receiver)
            case IngestEnd() if self._receiver is not None:
                self._take_end(frame, self._receiver)
            case Close():
                raise IngestRefusedError(self._link.peer, "the pusher closed the connection")
            case _:
                raise ProtocolError(
                    self._link.peer,
                    f"a pusher may not send a frame of type {type(frame).__name__} now",
                )

    def accept(self, receiver: IngestReceiver, request: IngestOpen) -> None:
        """Tell the pusher the row to continue from, unless a newer attempt pushes the partition already."""
        if self._is_over:
            return
        partition = receiver.partitions.setdefault(request.partition, _Partition())
        if request.spark_attempt < partition.attempt:
            self.refuse(f"attempt {partition.attempt} of its Spark task already pushes it")
            return
        if partition.pusher is not None:
            partition.pusher.refuse(f"attempt {request.spark_attempt} of its Spark task took over")
        partition.attempt = request.spark_attempt
        partition.pusher = self
        self._receiver = receiver
        self._credit = self._server.credit_count
        self._send(IngestAccept(request.channel, partition.accepted_row_count, self._credit))

    def grant(self) -> None:
        """Send credit for another batch after one of this pusher was taken."""
        if not self._is_over and self._request is not None:
            self._credit += 1
            self._send(AddCredit(self._request.channel, 1))

    def acknowledge_end(self, end: IngestedEnd) -> None:
        """Confirm to the pusher that the end of its partition was taken."""
        if not self._is_over and self._request is not None:
            self._send(IngestEnd(self._request.channel, end.row_count))

    def refuse(self, reason: str) -> None:
        """Tell the pusher to stop, and accept nothing more from it."""
        if not self._is_over:
            self._is_over = True
            channel = 0 if self._request is None else self._request.channel
            self._send(Error(channel, ErrorCode.INGEST_REFUSED, reason.encode()[:TEXT_BYTES_MAX]))

    def take_output(self, budget_bytes: int) -> list[Body]:
        output, self._output = self._output, []
        return output

    def lost(self, error: NetworkError) -> None:
        self._is_over = True
        if self._receiver is not None and self._request is not None:
            partition = self._receiver.partitions.get(self._request.partition)
            if partition is not None and partition.pusher is self:
                partition.pusher = None

    def _take_batch(self, frame: IngestData, receiver: IngestReceiver) -> None:
        assert self._request is not None
        number = self._request.partition
        partition = receiver.partitions[number]
        accepted = partition.accepted_row_count
        if frame.row_offset > accepted:
            raise ProtocolError(
                self._link.peer,
                f"rows of partition {number} begin at {frame.row_offset}, but {accepted} have arrived so far",
            )
        if self._credit < 1:
            raise ProtocolError(self._link.peer, "a batch was pushed without credit")
        self._credit -= 1
        end = frame.row_offset + frame.row_count
        if end <= accepted:
            self.grant()
            return
        batch = read_batch(
            frame.body,
            self._schema.schema_of(frame.fingerprint),
            frame.row_count,
            self._link.peer,
            is_verified=self._has_checksums,
        )
        known = accepted - frame.row_offset
        partition.accepted_row_count = end
        ingested = IngestedBatch(number, self._request.spark_attempt, accepted, batch.slice(known))
        receiver.enqueue(ingested, self)

    def _take_end(self, frame: IngestEnd, receiver: IngestReceiver) -> None:
        assert self._request is not None
        partition = receiver.partitions[self._request.partition]
        if frame.row_count != partition.accepted_row_count:
            raise ProtocolError(
                self._link.peer,
                f"partition {self._request.partition} ends after {frame.row_count} rows, but "
                f"{partition.accepted_row_count} have arrived",
            )
        end = IngestedEnd(self._request.partition, frame.row_count)
        if partition.is_ended:
            self.acknowledge_end(end)
            return
        partition.is_ended = True
        receiver.enqueue(end, self)

    def _send(self, message: Frame) -> None:
        self._output += encode(message)
        self._link.wake()
