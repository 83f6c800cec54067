"""RowsWanted: how many rows a source may emit at once, by what the consumers of its chain want to have in flight.

A checkpoint waits for what a source has emitted, so a slow consumer wants few rows. Where filters, aggregations and the
like lie between the source and the network, few of its rows come so far, and it may emit as many more.
"""

from typing import Final, Protocol

from headrace.network.flow.buffer_debloater import UNLIMITED_ROWS

_MEMORY: Final = 0.5
"""What a batch weighs against the one after it."""


class RowCounter(Protocol):
    """Counts the rows that it has emitted."""

    records_out: int


class RowConsumers(RowCounter, Protocol):
    """Counts the rows that were emitted to it, and knows how many its consumers want at once."""

    @property
    def rows_wanted(self) -> int:
        """UNLIMITED_ROWS where it does not matter."""
        ...


class RowsWanted:
    """Learns from the latest batches how many of a source's rows come to a writer at the end of its chain."""

    def __init__(self, writer: RowConsumers, source: RowCounter) -> None:
        self._writer: Final = writer
        self._source: Final = source
        self._emitted_before = 0
        self._arrived_before = 0
        self._emitted_lately = 0.0
        self._arrived_lately = 0.0

    def rows(self) -> int:
        """Return how many rows the source may emit at once so that no more than the wanted ones come to the writer."""
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
