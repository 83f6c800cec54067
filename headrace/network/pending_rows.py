"""PendingRows: rows and markers that wait to be sealed into one batch for one channel."""

from typing import Final

import pyarrow as pa

from headrace.core.elements import PlacedMarker, StreamMarker, Watermark
from headrace.core.record_batch import RecordBatch, concat_batches
from headrace.network.batches import SealedBatch, decode_dictionaries, has_dictionaries

# A guess until the first batch was sealed; then the size of the rows that were.
_FIRST_ROW_BYTES: Final = 64.0
MARKERS_MAX: Final = 1000


class PendingRows:
    """References to slices, with their totals. `row_bytes` is learnt from what was sealed before."""

    __slots__ = (
        "_has_dictionaries",
        "_markers",
        "_row_bytes",
        "_schema",
        "_slices",
        "row_count",
        "size_estimate",
    )

    def __init__(self) -> None:
        self._slices: list[RecordBatch] = []
        self._markers: list[PlacedMarker] = []
        self._row_bytes = _FIRST_ROW_BYTES
        self._schema: pa.Schema | None = None
        self._has_dictionaries = False
        self.row_count = 0
        self.size_estimate = 0.0

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to seal."""
        return not self._slices and not self._markers

    @property
    def is_crowded(self) -> bool:
        """Whether it holds as many markers as a frame should."""
        return len(self._markers) >= MARKERS_MAX

    def append(self, batch: RecordBatch) -> None:
        """Add rows behind what waits."""
        self._slices.append(batch)
        self.row_count += batch.num_rows
        # Not `nbytes`, which walks every buffer and takes ten times as long.
        self.size_estimate += (
            pa.ipc.get_record_batch_size(batch.columns())
            if batch.is_columnar
            else batch.num_rows * self._row_bytes
        )

    def append_marker(self, marker: StreamMarker) -> None:
        """Add a marker behind what waits; of watermarks with no row between them the last one counts."""
        placed = PlacedMarker(self.row_count, marker)
        if self._markers and isinstance(marker, Watermark):
            last = self._markers[-1]
            if last.row_offset == self.row_count and isinstance(last.marker, Watermark):
                self._markers[-1] = placed
                return
        self._markers.append(placed)

    def seal(self) -> SealedBatch:
        """Return everything as one batch and begin anew."""
        markers = tuple(self._markers)
        self._markers.clear()
        if not self._slices:
            return SealedBatch(None, markers)
        arrow = concat_batches(self._slices).to_arrow()
        if self._schema is None or not arrow.schema.equals(self._schema):
            self._schema = arrow.schema
            self._has_dictionaries = has_dictionaries(arrow.schema)
        if self._has_dictionaries:
            arrow = decode_dictionaries(arrow)
        self._slices.clear()
        sealed = SealedBatch(arrow, markers)
        self._row_bytes = sealed.size_bytes / self.row_count
        self.row_count, self.size_estimate = 0, 0.0
        return sealed
