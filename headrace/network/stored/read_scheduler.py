"""ReadScheduler: reads one stored partition for its consumers on the I/O pool, in the best order.

A disk is fastest when it is read in one direction: among the waiting consumers the one with the lowest offset is served
first, so that one sweep over the file serves all of them, and consumers of one broadcast region find its pages in
memory. A consumer with an empty queue is served before one that only reads ahead. The waiting consumers are examined
once for many reads, which gives a plan: ranges of the file, in order, which a few jobs take one after the other.
While one job waits for the disk, another one hands over its data.
Source: Flink SortMergeResultPartitionReadScheduler.
"""

import heapq
import logging
import threading
from collections import deque
from collections.abc import Iterable
from typing import Final

from headrace.network.errors import StorageError
from headrace.network.stored.io_pool import IoExecutor
from headrace.network.stored.partitioned_file import Extent
from headrace.network.stored.stored_view import (
    STRETCH_BYTES,
    CoalescedRead,
    R,
    ReadCandidate,
    StoredView,
)

_LOG = logging.getLogger(__name__)

STRETCH_PARTS_MAX: Final = 1024
"""Most parts that one call to the operating system reads: IOV_MAX."""
STRETCHES_PER_TURN: Final = 4
"""Number of stretches after which other partitions get the thread."""
READS_PER_PLAN: Final = 16
"""Number of consumers that a plan is made for; see SHARE_PER_PLAN."""
SHARE_PER_PLAN: Final = 2
"""A plan covers at least 1 / SHARE_PER_PLAN of the waiting consumers, because each plan examines all of them."""
JOBS_MAX: Final = 2
"""Number of threads that read one partition.

Announcing reads to the kernel beforehand was slower, measured on a fast disk: it then reads by single pages.
"""

Candidates = list[ReadCandidate[StoredView]]


class ReadScheduler:
    """Schedules reads for views that want data, in a few jobs. Thread-safe."""

    def __init__(self, io: IoExecutor) -> None:
        self._io = io
        # Guards the fields below: consumers request, the I/O pool reads.
        self._lock = threading.Lock()
        # Number of requests per view: a request made while its view is examined must not be lost.
        self._wanting: dict[StoredView, int] = {}
        self._plan: deque[Candidates] = deque()
        self._is_planning = False
        self._job_count = 0

    def request(self, view: StoredView) -> None:
        """Read for `view` soon, if it has anything to read."""
        # A waiting view is only counted: consumers of hundreds of subpartitions ask with every batch.
        if view not in self._wanting and view.candidate() is None:
            return
        with self._lock:
            self._wanting[view] = self._wanting.get(view, 0) + 1
            # A planning job starts further jobs itself, once it knows how much there is to do.
            must_start = not self._is_planning and self._job_count < min(
                JOBS_MAX, len(self._wanting)
            )
            self._job_count += must_start
        if must_start:
            self._io.submit(self._run)

    def forget(self, view: StoredView) -> None:
        """Forget a view that was released."""
        with self._lock:
            self._wanting.pop(view, None)

    def _run(self) -> None:
        for _ in range(STRETCHES_PER_TURN):
            chosen = self._next_stretch()
            if chosen is None:
                return
            stretch = CoalescedRead([Extent(each.offset, each.length) for each in chosen])
            for candidate in chosen:
                self._fill(candidate.reader, stretch)
        self._io.submit(self._run)

    def _fill(self, view: StoredView, stretch: CoalescedRead) -> None:
        try:
            # Nothing is read if an earlier read has taken the memory.
            view.fill(stretch)
            # Check again: requests made during the read were ignored.
            self.request(view)
        except Exception as error:
            # A bug with one view, whose consumer gets the error: reading for others goes on.
            _LOG.exception("reading for a consumer of a stored result failed")
            self.forget(view)
            view.fail(StorageError("(being read)", f"{type(error).__name__}: {error}"))

    def _next_stretch(self) -> Candidates | None:
        """Return the candidates to read for next, together, or None if this job must end."""
        while True:
            with self._lock:
                if self._plan:
                    return self._plan.popleft()
                if self._is_planning or not self._wanting:
                    self._job_count -= 1
                    return None
                self._is_planning = True
                wanting = dict(self._wanting)
            started = self._make_plan(wanting)
            for _ in range(started):
                self._io.submit(self._run)

    def _make_plan(self, wanting: dict[StoredView, int]) -> int:
        """Plan reads for some of `wanting`; return how many more jobs to start for them."""
        # Outside the lock: a view has a lock of its own.
        candidates = [candidate for view in wanting if (candidate := view.candidate())]
        count = max(READS_PER_PLAN, len(candidates) // SHARE_PER_PLAN)
        stretches = side_by_side(next_to_read(candidates, count), STRETCH_BYTES)
        alive = {candidate.reader for candidate in candidates}
        with self._lock:
            self._is_planning = False
            self._plan += stretches
            # Views in the plan are asked again afterwards; views that want nothing now ask again when they do.
            for stretch in stretches:
                for candidate in stretch:
                    self._wanting.pop(candidate.reader, None)
            for view, times in wanting.items():
                if view not in alive and self._wanting.get(view) == times:
                    del self._wanting[view]
            more = max(0, min(JOBS_MAX, len(self._plan)) - self._job_count)
            self._job_count += more
        return more


def next_to_read(candidates: Iterable[ReadCandidate[R]], count_max: int) -> list[ReadCandidate[R]]:
    """Return the next candidates in order, at most `count_max`.

    Candidates with an empty queue come first, then by file offset.
    """
    return heapq.nsmallest(
        count_max,
        candidates,
        key=lambda candidate: (candidate.queued_bytes > 0, candidate.offset),
    )


def side_by_side(
    candidates: Iterable[ReadCandidate[R]], limit_bytes: int
) -> list[list[ReadCandidate[R]]]:
    """Group the candidates, in the same order, so that those adjacent in the file are read together.

    A group reads at most `limit_bytes`, unless a single candidate reads more, and has at most STRETCH_PARTS_MAX
    members.
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
