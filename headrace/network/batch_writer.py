"""BatchWriter: an Arrow batch as the pieces of its message, which refer to the batch's own memory.

`RecordBatch.serialize` copies every column into one new buffer; for a socket, which takes many buffers in one call,
that copy is the largest cost of sending. Arrow's stream writer hands its sink the buffers themselves.
"""

from typing import Any, Final

import pyarrow as pa

from headrace.network.framing import Body, BodyParts

SCATTER_BYTES: Final = 32 * 1024
"""Below this one copy is cheaper than many pieces."""


class _Pieces:
    """A file that keeps what is written to it."""

    closed = False

    def __init__(self) -> None:
        self.written: list[Any] = []

    def write(self, piece: Any) -> None:
        self.written.append(piece)

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        """Nothing to close."""


class BatchWriter:
    """Writes batches of one schema after another. Used by one thread."""

    def __init__(self) -> None:
        self._pieces = _Pieces()
        self._schema: pa.Schema | None = None
        self._stream: Any = None

    def message(self, batch: pa.RecordBatch, size_bytes: int) -> Body:
        """Return the batch as an Arrow message of `size_bytes`, without its schema."""
        if size_bytes < SCATTER_BYTES:
            return batch.serialize()
        if self._schema is None or not self._schema.equals(batch.schema):
            self._begin(batch)
        self._stream.write_batch(batch)
        pieces, self._pieces.written = self._pieces.written, []
        return BodyParts(tuple(pieces), size_bytes)

    def _begin(self, batch: pa.RecordBatch) -> None:
        self._schema = batch.schema
        self._stream = pa.ipc.new_stream(pa.PythonFile(self._pieces, mode="w"), batch.schema)
        # The stream begins with its schema when the first batch is written; channels announce it themselves.
        self._stream.write_batch(batch.slice(0, 0))
        self._pieces.written = []
