"""Order and size of reads from a stored partition for its consumers. Pure.

A disk is fastest when it is read in one direction: among the waiting consumers the one with the lowest offset is served
first, so that one sweep over the file serves all of them, and consumers of one broadcast region find its pages in
memory. A consumer with an empty queue is served before one that only reads ahead. Source: Flink
SortMergeResultPartitionReadScheduler.

Stretch: adjacent parts of one file, for several consumers, that are read together.

With hundreds of consumers each has little of a region. The adjacent parts of those that wait are read by one system
call, into separate memory for each consumer, so that none holds the memory of another. Source: Flink
PartitionedFileReader, which reads a region buffer by buffer.
"""

import heapq
from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeVar

import msgspec
import pyarrow as pa

from headrace.network.errors import StorageError
from headrace.network.stored.partitioned_file import Extent
from headrace.network.stored.spill_files import SpillFile

READ_AHEAD_BYTES: Final = 4 << 20
"""What one consumer may have waiting in memory before it is read for again."""
READ_BYTES: Final = 1 << 20
"""What is read in one go, where it lies together."""
STRETCH_BYTES: Final = 2 << 20
"""What is read in one go for consumers whose parts lie side by side."""
STRETCH_PARTS_MAX: Final = 1024
"""So many parts one call to the operating system reads at most: IOV_MAX."""
SHORT_READ_BYTES: Final = 528 << 10
"""The same where memory is short: a little more than what is stored as one batch."""

R = TypeVar("R")


class ReadCandidate(msgspec.Struct, Generic[R], frozen=True, gc=False):
    """A consumer that can be read for: bytes that wait for it, and where in the file it goes on.

    `length`: bytes that it would read there, or 0 where nobody can read them with it.

    Made for every consumer in every sweep, which is why it is no dataclass: those of 512 took a tenth of the reading.
    """

    reader: R
    queued_bytes: int
    offset: int
    length: int


def next_to_read(candidates: Iterable[ReadCandidate[R]], count_max: int) -> list[ReadCandidate[R]]:
    """Return whose turn it is, one after the other, at most so many; none if nobody wants to be read for."""
    return heapq.nsmallest(
        count_max,
        candidates,
        key=lambda candidate: (candidate.queued_bytes > 0, candidate.offset),
    )


def side_by_side(
    candidates: Iterable[ReadCandidate[R]], limit_bytes: int
) -> list[list[ReadCandidate[R]]]:
    """Return the candidates in the same order, those together who follow each other in the file.

    Together they read `limit_bytes` at most, unless one alone reads more, and are STRETCH_PARTS_MAX at most.
    """
    groups: list[list[ReadCandidate[R]]] = []
    size = 0
    end = -1
    for candidate in candidates:
        size += candidate.length
        follows = bool(candidate.length) and candidate.offset == end
        if follows and size <= limit_bytes and len(groups[-1]) < STRETCH_PARTS_MAX:
            groups[-1].append(candidate)
        else:
            groups.append([candidate])
            size = candidate.length
        end = candidate.offset + candidate.length if candidate.length else -1
    return groups


def read_size(used_bytes: int, limit_bytes: int) -> int:
    """Return how much to read in one go: less where memory is short, though one element in any case."""
    return READ_BYTES if used_bytes + READ_BYTES <= limit_bytes else SHORT_READ_BYTES


def may_read(queued_bytes: int, used_bytes: int, limit_bytes: int) -> bool:
    """Whether a consumer with `queued_bytes` waiting may be read for, `used_bytes` of `limit_bytes` being in use.

    Who has nothing may always read: memory is bounded by the limit and one short read for each consumer, and nobody
    waits for memory that another one holds.
    """
    return queued_bytes == 0 or (queued_bytes < READ_AHEAD_BYTES and used_bytes < limit_bytes)


class Stretch:
    """`extents` lie one behind the other. Read when the first of them is asked for. By one thread."""

    def __init__(self, extents: Sequence[Extent]) -> None:
        self._extents: Final = tuple(extents)
        self._parts: dict[Extent, pa.Buffer] | None = None

    def read(self, file: SpillFile, offset: int, length: int) -> pa.Buffer:
        """Return `length` bytes from `offset` on, in aligned memory. StorageError.

        By itself where that is not one of the extents, or where not all of them can be read: nobody is to suffer
        from the bad sector of another.
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
