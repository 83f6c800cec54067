"""RowsWanted: limits the rows that a source emits at once, so that its consumers get the number that they want.

A checkpoint waits for the rows that a source has emitted, so that a slow consumer wants few rows. If filters or
aggregations lie between source and network, only some of its rows reach the network, and it may emit more.
"""

from typing import Final

from headrace.network.flow.buffer_debloater import UNLIMITED_ROWS
from headrace.network.writers.record_writer import RecordWriter
from headrace.task.chain.outputs import OperatorOutput

_MEMORY: Final = 0.5
"""Weight of a batch against the next one."""


class RowsWanted:
    """Learns from the latest batches the share of a source's rows that come to a writer at the end of its chain."""

    def __init__(self, writer: RecordWriter, source: OperatorOutput) -> None:
        self._writer: Final = writer
        self._source: Final = source
        self._emitted_before = 0
        self._arrived_before = 0
        self._emitted_lately = 0.0
        self._arrived_lately = 0.0

    def rows(self) -> int:
        """Return the limit of rows that the source emits at once, so that the writer gets no more than wanted."""
        wanted = self._writer.rows_wanted
        if wanted >= UNLIMITED_ROWS:
            return UNLIMITED_ROWS
        emitted, arrived = self._source.records_out, self._writer.records_out
        if emitted > self._emitted_before:
            self._emitted_lately *= _MEMORY
            self._arrived_lately *= _MEMORY
            self._emitted_lately += emitted - self._emitted_before
            self._arrived_lately += arrived - self._arrived_before
            self._emitted_before, self._arrived_before = emitted, arrived
        # At least one row counts as arrived: a filter may drop all of the latest batches, and not the next ones.
        return int(wanted * max(1.0, self._emitted_lately / max(1.0, self._arrived_lately)))
