"""ReadLoop: reads one stored partition for its consumers on the I/O pool, in the best order.

Source: Flink SortMergeResultPartitionReadScheduler.
"""

import logging
import threading
from typing import Final

from headrace.network.io_pool import IoExecutor
from headrace.network.read_scheduler import next_to_read
from headrace.network.stored_view import StoredView

_LOG = logging.getLogger(__name__)

READS_PER_TURN: Final = 16
"""Then other partitions have the thread ..."""
SHARE_PER_TURN: Final = 2
"""... but at least half of those who wait are read for, as all of them are looked at each time."""
JOBS_MAX: Final = 2
"""Threads that read one partition: while one of them waits for the disk, the other decodes. (To announce reads to the
kernel beforehand was slower, measured on a fast disk: it then reads by single pages.)"""


class ReadLoop:
    """Views that want to be read for, and the few jobs that do so. Thread-safe."""

    def __init__(self, io: IoExecutor) -> None:
        self._io = io
        # Guards the fields below: consumers ask, the I/O pool answers.
        self._lock = threading.Lock()
        # How often each has asked: who asks again while it is being looked at must not be forgotten.
        self._wanting: dict[StoredView, int] = {}
        self._job_count = 0

    def request(self, view: StoredView) -> None:
        """Read for `view` soon, if there is anything to read for it."""
        # Who waits already is only counted: consumers of hundreds of subpartitions ask with every batch.
        if view not in self._wanting and view.candidate() is None:
            return
        with self._lock:
            self._wanting[view] = self._wanting.get(view, 0) + 1
            must_start = self._job_count < min(JOBS_MAX, len(self._wanting))
            self._job_count += must_start
        if must_start:
            self._io.submit(self._run)

    def forget(self, view: StoredView) -> None:
        """The view was released."""
        with self._lock:
            self._wanting.pop(view, None)

    def _run(self) -> None:
        views = self._next_sweep()
        for view in views:
            try:
                # Nothing is read where an earlier read of the sweep has taken the memory.
                view.fill()
                # What it asked for while it was being read for was not heard.
                self.request(view)
            except Exception:
                # A mistake of ours with one view, which is left out from now on: others are read for all the same.
                _LOG.exception("reading for a consumer of a stored result failed")
                self.forget(view)
        if views:
            self._io.submit(self._run)

    def _next_sweep(self) -> list[StoredView]:
        """Whom to read for next, in order. Several, as looking at hundreds of views costs more than a read."""
        while True:
            with self._lock:
                wanting = dict(self._wanting)
                if not wanting:
                    self._job_count -= 1
                    return []
            # Outside the lock: a view has a lock of its own.
            candidates = [candidate for view in wanting if (candidate := view.candidate())]
            count = max(READS_PER_TURN, len(candidates) // SHARE_PER_TURN)
            # The other half is for the other job.
            chosen = next_to_read(candidates, min(count, -(-len(candidates) // JOBS_MAX)))
            mine = [candidate.reader for candidate in chosen]
            self._drop(wanting, {candidate.reader for candidate in candidates}, mine)
            if mine:
                return mine

    def _drop(
        self, wanting: dict[StoredView, int], candidates: set[StoredView], mine: list[StoredView]
    ) -> None:
        """Those that want nothing now ask again when they do; those that are read for are asked afterwards."""
        with self._lock:
            for view in mine:
                self._wanting.pop(view, None)
            for view, times in wanting.items():
                if view not in candidates and self._wanting.get(view) == times:
                    del self._wanting[view]
