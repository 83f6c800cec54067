"""StoredView: one consumer's reader of a partition in files, with the batches read ahead for it.

The consumer's thread only takes from a queue; the I/O pool fills it through the consumer's SubpartitionCursor. Batches
in memory count against one budget of the whole TaskManager, on which `may_read` and `read_size` decide.
Source: Flink SortMergeSubpartitionReader.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, Generic, Protocol, TypeVar

import msgspec
import pyarrow as pa

from headrace.core.config import ConfigOption, SizeBytes
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.errors import NetworkError, StorageError, copy_of
from headrace.network.partitions.result_subpartition import (
    LOCAL_SEGMENT_BYTES,
    DataElement,
    Element,
    QueuedEvent,
    Stalled,
)
from headrace.network.stored.file_format import StoredElement, UndecodedElement
from headrace.network.stored.partitioned_file import Extent
from headrace.network.stored.spill_files import SpillFile

_LOG = logging.getLogger(__name__)

BATCH_SHUFFLE_READ_SIZE: Final = ConfigOption(
    "taskmanager.memory.framework.off-heap.batch-shuffle.size", SizeBytes, SizeBytes(64 << 20),
    "Memory for batches that were read from blocking results ahead of their consumers, for the whole TaskManager.",
)  # fmt: skip

READ_AHEAD_BYTES: Final = 4 << 20
"""Number of bytes queued for a consumer at which reading for it pauses."""
READ_BYTES: Final = 1 << 20
"""Number of bytes read at once if they are contiguous."""
SHORT_READ_BYTES: Final = 528 << 10
"""Number of bytes read at once while memory is short: a little more than one stored batch."""
STRETCH_BYTES: Final = 2 << 20
"""Number of bytes read at once for consumers whose parts are adjacent."""
ASK_BELOW_BYTES: Final = READ_AHEAD_BYTES // 2
"""Number of queued bytes below which a consumer requests more; large steps, because a request has its cost."""
R = TypeVar("R")


class ReadCandidate(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """A consumer that wants data: its queued bytes and its next file offset.

    `length`: bytes that it would read there, or 0 if they cannot be read together with others.

    Made for every consumer in every sweep, so it is no dataclass: those of 512 consumers took a tenth of the reading
    time.
    """

    reader: R
    queued_bytes: int
    offset: int
    length: int


class CoalescedRead:
    """Adjacent parts of one file, `extents`, that are read together for several consumers. Used by one thread.

    With hundreds of consumers each owns little of a region. The adjacent parts of those that wait are read by one
    system call, when the first of them is requested, into separate memory for each consumer, so that none holds the
    memory of another. Source: Flink PartitionedFileReader, which reads a region buffer by buffer.
    """

    def __init__(self, extents: Sequence[Extent]) -> None:
        self._extents: Final = tuple(extents)
        self._parts: dict[Extent, pa.Buffer] | None = None

    def read(self, file: SpillFile, offset: int, length: int) -> pa.Buffer:
        """Return `length` bytes from `offset` on, in aligned memory. StorageError if they cannot be read.

        Reads them alone if they are not one of the extents, or if the joint read fails: a bad sector of one consumer
        must not affect others.
        """
        wanted = Extent(offset, length)
        if self._parts is None:
            self._parts = {}
            if wanted in self._extents and len(self._extents) > 1:
                self._read_all(file, self._parts)
        part = self._parts.pop(wanted, None)
        return file.read(offset, length) if part is None else part

    def _read_all(self, file: SpillFile, parts: dict[Extent, pa.Buffer]) -> None:
        try:
            found = file.read_parts(
                self._extents[0].offset, [extent.length for extent in self._extents]
            )
        except StorageError:
            return
        parts.update(zip(self._extents, found, strict=True))


class SubpartitionCursor(Protocol):
    """Read position of one consumer in its subpartition."""

    @property
    def next_offset(self) -> int | None:
        """File offset of the next element, or None if there is none now. Any thread."""
        ...

    def next_length(self, limit_bytes: int) -> int:
        """Return the bytes that `read` takes from that offset on, or 0 if they are not contiguous. Any thread."""
        ...

    def read(
        self, limit_bytes: int, stretch: CoalescedRead | None = None
    ) -> Sequence[StoredElement | UndecodedElement]:
        """Return about `limit_bytes` of elements, at least one, and advance. One thread at a time.

        `stretch`: a read shared by several consumers. StorageError if the file cannot be read.
        """
        ...

    def close(self) -> None:
        """Release the files; called once, never during `read`."""
        ...


class ReadMemory:
    """Counts the bytes read ahead for all consumers of a TaskManager."""

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes: Final = limit_bytes
        # Guards the sum: I/O threads add, consumers subtract.
        self._lock = threading.Lock()
        self.used_bytes = 0

    def add(self, size_bytes: int) -> None:
        """Add `size_bytes` to the count; a negative number subtracts."""
        with self._lock:
            self.used_bytes += size_bytes
            assert self.used_bytes >= 0, "more bytes were returned than were read"


class StoredView:
    """ResultSubpartitionView of a stored partition.

    `poll` is called on the consumer's thread, `fill` on the I/O pool, the rest on any.
    """

    def __init__(
        self,
        cursor: SubpartitionCursor,
        memory: ReadMemory,
        listener: Callable[[], None],
        segment_size: int,
        request_reading: "Callable[[StoredView], None]",
        on_released: "Callable[[StoredView], None]",
        first_element: int = 0,
    ) -> None:
        self._cursor = cursor
        self._memory = memory
        self._listener = listener
        self._segment_size = segment_size
        self._request_reading = request_reading
        self._on_released = on_released
        # Guards the fields below: the I/O pool adds, the consumer takes, cancellation may come from a third thread.
        self._lock = threading.Lock()
        self._queue: deque[Element | UndecodedElement] = deque()
        self._queued_bytes = 0
        self._backlog = 0
        self._failure: NetworkError | None = None
        self._is_reading = False
        self._is_released = False
        # Used by the I/O pool: number of elements that the consumer already has.
        self._passed_over = first_element

    @property
    def queued_count(self) -> int:
        """Number of elements read ahead; a failure is queued behind them, and counts."""
        return len(self._queue) + (self._failure is not None)

    @property
    def queued_bytes(self) -> int:
        """Number of bytes that were read ahead."""
        return self._queued_bytes

    @property
    def has_priority_event(self) -> bool:
        """Return False: nothing overtakes stored elements."""
        return False

    @property
    def backlog(self) -> int:
        """Number of segments that the elements read ahead occupy."""
        return self._backlog

    def poll(self, credit: int) -> Element | Stalled | None:
        taken = 0
        with self._lock:
            if not self._queue and self._failure is not None:
                raise copy_of(self._failure)
            head = self._queue[0] if self._queue else None
            if head is not None:
                cost, taken = _measure(head)
                if cost > credit:
                    return Stalled(cost, self._backlog)
                self._backlog -= cost
                self._queued_bytes -= taken
                self._queue.popleft()
        if taken:
            self._memory.add(-taken)
        if self._queued_bytes <= ASK_BELOW_BYTES:
            self._request_reading(self)
        return self._decoded(head) if isinstance(head, UndecodedElement) else head

    def resume(self) -> None:
        """Not supported: no stored event blocks."""
        raise AssertionError("a stored partition has no event that blocks upstream")

    def acknowledge_all_data(self) -> None:
        """Do nothing: the producer does not wait for the acknowledgement."""

    def notify_in_flight_rows(self, in_flight_rows: int) -> None:
        """Do nothing: the read memory bounds the rows in flight."""

    def candidate(self) -> ReadCandidate["StoredView"] | None:
        """Return this view as a candidate for the read scheduler, or None while it needs no read."""
        with self._lock:
            offset = self._offset_to_read()
            if offset is None:
                return None
            length = self._cursor.next_length(self._read_size())
            return ReadCandidate(self, self._queued_bytes, offset, length)

    def fill(self, stretch: CoalescedRead | None = None) -> None:
        """Read for the consumer and notify it, as long as it needs data. On a thread that may block.

        Makes several reads in a row, because contiguous reads are fastest; `stretch` is for the first of them.
        """
        size = 0
        while size < STRETCH_BYTES and (added := self._read(stretch)):
            size += added
            stretch = None

    def _read(self, stretch: CoalescedRead | None) -> int:
        """Read once if needed; return the number of bytes added."""
        with self._lock:
            if self._offset_to_read() is None:
                return 0
            self._is_reading = True
        queued: list[Element | UndecodedElement] = []
        failure: NetworkError | None = None
        added = 0
        try:
            for stored in self._cursor.read(self._read_size(), stretch):
                queued += self._to_elements(stored)
            if self._passed_over:
                self._pass_over(queued)
        except NetworkError as error:
            failure = copy_of(error)
        except Exception as error:
            # A bug, or no memory: the consumer must get the error, or it would wait for ever.
            _LOG.exception("reading a stored result failed")
            failure = StorageError("(being read)", f"{type(error).__name__}: {error}")
        with self._lock:
            self._is_reading = False
            is_released = self._is_released
            if not is_released:
                added = self._add(queued)
                self._failure = self._failure or failure
        if is_released:
            self._cursor.close()
        elif queued or failure is not None:
            self._notify()
        return added

    def fail(self, error: NetworkError) -> None:
        """Fail the view because the producer failed before it had finished; drop elements read ahead."""
        with self._lock:
            self._failure = self._failure or copy_of(error)
            dropped = self._drop()
        self._memory.add(-dropped)
        self._notify()

    def release(self) -> None:
        with self._lock:
            if self._is_released:
                return
            self._is_released = True
            is_reading = self._is_reading
            dropped = self._drop()
        self._memory.add(-dropped)
        if not is_reading:
            self._cursor.close()
        self._on_released(self)

    def _offset_to_read(self) -> int | None:
        """Return the file offset of the next read, or None while no read is needed. Lock held."""
        if self._is_released or self._is_reading or self._failure is not None:
            return None
        if not may_read(self._queued_bytes, self._memory.used_bytes, self._memory.limit_bytes):
            return None
        return self._cursor.next_offset

    def _notify(self) -> None:
        try:
            self._listener()
        except Exception:
            # An error of one consumer on a thread that reads for all: others must still be notified.
            _LOG.exception("a consumer of a stored result failed when it was told of rows")

    def _decoded(self, element: UndecodedElement) -> Element:
        """Decode an element for a consumer in this process. CorruptFileError, on this and every later call."""
        try:
            stored = element.decode()
        except NetworkError as error:
            self.fail(error)
            raise
        if isinstance(stored, SealedBatch):
            return DataElement(stored, None, 1)
        return QueuedEvent(stored)

    def _read_size(self) -> int:
        return read_size(self._memory.used_bytes, self._memory.limit_bytes)

    def _add(self, elements: Sequence[Element | UndecodedElement]) -> int:
        added = 0
        for element in elements:
            cost, size = _measure(element)
            self._backlog += cost
            added += size
        self._queue += elements
        self._queued_bytes += added
        self._memory.add(added)
        return added

    def _drop(self) -> int:
        dropped, self._queued_bytes, self._backlog = self._queued_bytes, 0, 0
        self._queue.clear()
        return dropped

    def _pass_over(self, elements: list[Element | UndecodedElement]) -> None:
        """Remove the elements that the consumer already has. NetworkError if it claims more than exist."""
        passed = min(self._passed_over, len(elements))
        self._passed_over -= passed
        del elements[:passed]
        if self._passed_over and self._cursor.next_offset is None:
            raise NetworkError(
                f"a consumer asks for data {self._passed_over} elements beyond the end of a stored result"
            )

    def _to_elements(
        self, stored: StoredElement | UndecodedElement
    ) -> Sequence[Element | UndecodedElement]:
        if isinstance(stored, UndecodedElement):
            if self._segment_size == LOCAL_SEGMENT_BYTES and not stored.is_compressed:
                # The task reads the bytes next, and has them in its caches then. Here each checksum, of some
                # microseconds, would have two threads contend for the interpreter.
                return [stored]
            stored = stored.decode()
        if not isinstance(stored, SealedBatch):
            return [QueuedEvent(stored)]
        pieces = [stored]
        if self._segment_size != LOCAL_SEGMENT_BYTES:
            # Here, on the I/O pool, so that the network thread only copies bytes.
            pieces = stored.cut(self._segment_size)
            for piece in pieces:
                piece.body()
        return [DataElement(piece, None, self._cost_of(piece)) for piece in pieces]

    def _cost_of(self, sealed: SealedBatch) -> int:
        return max(1, -(-sealed.size_bytes // self._segment_size))


def _measure(element: Element | UndecodedElement) -> tuple[int, int]:
    """Return the cost in segments and the bytes in memory; an element decoded later costs one segment."""
    if isinstance(element, DataElement):
        return element.cost, element.sealed.size_bytes
    if isinstance(element, UndecodedElement) and element.size_bytes:
        return 1, element.size_bytes
    return 0, 0


def read_size(used_bytes: int, limit_bytes: int) -> int:
    """Return the bytes to read at once: fewer while memory is short."""
    return READ_BYTES if used_bytes + READ_BYTES <= limit_bytes else SHORT_READ_BYTES


def may_read(queued_bytes: int, used_bytes: int, limit_bytes: int) -> bool:
    """Return whether to read for a consumer with `queued_bytes`, while `used_bytes` of `limit_bytes` are in use.

    A consumer with an empty queue may always read: memory is bounded by the limit and one short read per consumer, and
    no consumer waits for memory that another one holds.
    """
    return queued_bytes == 0 or (queued_bytes < READ_AHEAD_BYTES and used_bytes < limit_bytes)
