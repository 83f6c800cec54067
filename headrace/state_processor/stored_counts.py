"""StoredCounts: figures of a snapshot's states by key group, key and timer, counted from the rows in its files.

Metadata only contains rows and bytes of files. So files are read, the largest first, up to a number of bytes and for
some seconds; each state has an equal share of both. Pickled keys are not shown: nothing is unpickled.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from headrace.checkpoint.handles import StateTable
from headrace.checkpoint.metadata import OperatorSnapshot
from headrace.checkpoint.state_queries import StateTotals
from headrace.checkpoint.storage.snapshot_files import SnapshotReader
from headrace.core.clock import Clock
from headrace.core.elements import MIN_TIMESTAMP
from headrace.state.columns import KEY
from headrace.state.keyed_chunks import read_tables
from headrace.state.queryable.live_figures import FigureCollector
from headrace.state.queryable.live_rows import LiveSource
from headrace.state_processor.stored_state import BY_KEY_GROUP, StoredChunk, chunks_of

_BYTES_MAX: Final = 128 << 20
"""Maximum bytes of files that are read for one answer."""
_TIME_MAX_MS: Final = 10_000


@dataclass(frozen=True)
class StoredCount:
    """Figures counted for one state. `is_partial`: not all its files were read."""

    totals: StateTotals
    is_partial: bool


class StoredCounts:
    """Counts the states of one operator. `taken_ms`: time of the snapshot."""

    def __init__(
        self,
        reader: SnapshotReader,
        clock: Clock,
        operator: OperatorSnapshot,
        taken_ms: int,
        *,
        bytes_max: int = _BYTES_MAX,
        time_max_ms: int = _TIME_MAX_MS,
    ) -> None:
        self._reader: Final = reader
        self._clock: Final = clock
        self._key_groups: Final = range(operator.max_parallelism)
        self._taken_ms: Final = taken_ms
        # Timers do not record whether their keys are pickles.
        keyed = chunks_of(operator, StateTable.KEYED)
        self._has_opaque_keys: Final = any(KEY in one.opaque for one in keyed)
        counted = [one.chunk for table in BY_KEY_GROUP for one in chunks_of(operator, table)]
        state_count = len({(one.table, one.name) for one in counted})
        self._share_bytes: Final = bytes_max // max(1, state_count)
        self._share_ms: Final = time_max_ms / max(1, state_count)

    def of(self, chunks: Sequence[StoredChunk]) -> StoredCount:
        """Return the figures of one state from its chunks; without subtasks for a state without key groups."""
        first = chunks[0].chunk
        if first.table not in BY_KEY_GROUP:
            return StoredCount(StateTotals(first.table.value, first.name, ()), is_partial=False)
        collectors: dict[int, FigureCollector] = {}
        is_partial = False
        room = self._share_bytes
        end_ms = self._clock.monotonic_ms() + self._share_ms
        for one in sorted(chunks, key=lambda one: one.chunk.file.size_bytes, reverse=True):
            size_bytes = one.chunk.file.size_bytes
            if size_bytes > room or self._clock.monotonic_ms() >= end_ms:
                is_partial = True
                continue
            room -= size_bytes
            collector = collectors.setdefault(
                one.subtask_index,
                FigureCollector(LiveSource(first.table, first.name, None), None),
            )
            for table in read_tables([one.chunk], self._reader, self._key_groups):
                collector.add(table.drop_columns([KEY]) if self._has_opaque_keys else table)
                if self._clock.monotonic_ms() >= end_ms:
                    is_partial = True
                    break
        # The watermark is not stored: event-time timers have a due time, but it is unknown how soon that is.
        figures = {
            index: one.figures(watermark_ms=MIN_TIMESTAMP, now_ms=self._taken_ms)
            for index, one in collectors.items()
        }
        subtasks = tuple(figures.get(index) for index in range(max(figures, default=-1) + 1))
        return StoredCount(StateTotals(first.table.value, first.name, subtasks), is_partial)
