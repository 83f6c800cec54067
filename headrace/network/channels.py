"""InputChannel: where one gate reads one subpartition, wherever its producer is.

All kinds deliver the same elements for the same trace of the producer. Source: Flink InputChannel.
"""

from typing import Protocol

import msgspec
import pyarrow as pa

from headrace.core.elements import PlacedMarker, StreamEvent


class ReceivedBatch(msgspec.Struct, frozen=True, gc=False):
    """Rows (None: only markers) as they left the producer. `size_bytes` is their size on the wire."""

    arrow: pa.RecordBatch | None
    markers: tuple[PlacedMarker, ...]
    row_count: int
    size_bytes: int


class InputChannel(Protocol):
    """One channel of a gate. `request` and `poll` are for the task's thread, `close` for any."""

    is_local: bool

    @property
    def queued_count(self) -> int:
        """Elements that wait."""
        ...

    def request(self) -> None:
        """Begin to read."""
        ...

    def poll(self) -> ReceivedBatch | StreamEvent | None:
        """Return the next element if there is one; raise the channel's error."""
        ...

    def close(self) -> None:
        """Stop reading. Idempotent."""
        ...
