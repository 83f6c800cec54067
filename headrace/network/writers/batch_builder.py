"""BatchBuilder: collects rows and markers to seal as one batch for one channel."""

from typing import Final

import pyarrow as pa

from headrace.core.elements import PlacedMarker, StreamMarker
from headrace.network.batches.sealed_batch import SealedBatch, decode_dictionaries, has_dictionaries
from headrace.network.wire.framing import add_marker

MARKERS_MAX: Final = 1000


class BatchBuilder:
    """Collects slices in their wire form, all of one schema, with their totals."""

    __slots__ = (
        "_exact_bytes",
        "_has_dictionaries",
        "_markers",
        "_schema",
        "_slices",
        "row_count",
        "size_estimate",
    )

    def __init__(self) -> None:
        self._slices: list[pa.RecordBatch] = []
        self._markers: list[PlacedMarker] = []
        self._schema: pa.Schema | None = None
        self._has_dictionaries = False
        # Exact size of the rows if they are a single slice.
        self._exact_bytes: int | None = None
        self.row_count = 0
        self.size_estimate = 0.0

    @property
    def is_empty(self) -> bool:
        """Return whether there is nothing to seal."""
        return not self._slices and not self._markers

    @property
    def is_crowded(self) -> bool:
        """Return whether the builder holds as many markers as a frame should."""
        return len(self._markers) >= MARKERS_MAX

    def accepts(self, schema: pa.Schema) -> bool:
        """Return whether rows of `schema` may be added; otherwise the builder must be sealed first.

        The schema changes within a stream as row kinds and timestamps of timers come and go.
        """
        if schema is self._schema:
            return True
        if self._schema is not None and self._schema.equals(schema):
            return True
        if self._slices:
            return False
        self._schema = schema
        self._has_dictionaries = has_dictionaries(schema)
        return True

    def append(
        self, rows: pa.RecordBatch, size_bytes: float, exact_bytes: int | None = None
    ) -> None:
        """Add rows of an accepted schema behind the others.

        They take about `size_bytes` on the wire; `exact_bytes` is given if it is known.
        """
        self._exact_bytes = None if self._slices else exact_bytes
        self._slices.append(rows)
        self.row_count += rows.num_rows
        self.size_estimate += size_bytes

    def append_marker(self, marker: StreamMarker) -> None:
        """Add a marker behind the rows; of several watermarks without a row between them only the last one is kept."""
        add_marker(self._markers, PlacedMarker(self.row_count, marker))

    def append_markers(self, placed: tuple[PlacedMarker, ...]) -> None:
        """Add markers of the rows that are appended next."""
        for each in placed:
            add_marker(self._markers, PlacedMarker(self.row_count + each.row_offset, each.marker))

    def peek(self) -> SealedBatch:
        """Return the contents as one batch, and keep them."""
        markers = tuple(self._markers)
        if not self._slices:
            return SealedBatch(None, markers)
        if len(self._slices) > 1:
            self._slices = [pa.concat_batches(self._slices)]
        arrow = self._slices[0]
        if self._has_dictionaries:
            return SealedBatch(decode_dictionaries(arrow), markers)
        return SealedBatch(arrow, markers, self._exact_bytes)

    def seal(self) -> SealedBatch:
        """Return the contents as one batch, and clear the builder."""
        sealed = self.peek()
        self._markers.clear()
        self._slices.clear()
        self.row_count, self.size_estimate = 0, 0.0
        return sealed
