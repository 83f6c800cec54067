"""StoredView: what a consumer of this process decodes itself, and how much is read for one in a row."""

import pyarrow as pa
import pytest

from headrace.core.elements import EndOfPartition
from headrace.network.batches import SealedBatch
from headrace.network.compression import BatchCompressor
from headrace.network.errors import CorruptFileError
from headrace.network.read_stretch import Stretch
from headrace.network.stored_batches import (
    SchemaTable,
    UndecodedElement,
    encode_batch,
    encode_stored_event,
    split_elements,
)
from headrace.network.stored_view import ReadMemory, StoredView
from headrace.network.subpartition import LOCAL_SEGMENT_BYTES, DataElement, QueuedEvent

UNLIMITED = 1 << 30


class Cursor:
    """Has elements in memory, each of which is one read."""

    def __init__(self, data: bytes, schemas: SchemaTable) -> None:
        self.left = list(split_elements(pa.py_buffer(data), schemas, "the file"))
        self.is_open = True

    @property
    def next_offset(self) -> int | None:
        return 0 if self.left else None

    def next_length(self, limit_bytes: int) -> int:
        return 0

    def read(self, limit_bytes: int, stretch: Stretch | None = None) -> list[UndecodedElement]:
        return [self.left.pop(0)]

    def close(self) -> None:
        self.is_open = False


def view_of(
    data: bytes, schemas: SchemaTable, segment_size: int = LOCAL_SEGMENT_BYTES
) -> tuple[StoredView, ReadMemory]:
    memory = ReadMemory(64 << 20)
    cursor = Cursor(data, schemas)
    view = StoredView(cursor, memory, lambda: None, segment_size, lambda _: None, lambda _: None)
    return view, memory


def batch(size: int, schemas: SchemaTable) -> bytes:
    sealed = SealedBatch(pa.RecordBatch.from_pydict({"n": pa.array(range(size // 8))}), ())
    return b"".join(encode_batch(sealed, sealed.body(), schemas, BatchCompressor(0)))


def test_rows_of_a_consumer_of_this_process_are_decoded_when_it_takes_them() -> None:
    schemas = SchemaTable()
    data = batch(800, schemas) + b"".join(encode_stored_event(EndOfPartition()))
    view, memory = view_of(data, schemas)
    view.fill()
    waiting = memory.used_bytes
    assert view.backlog == 1 and view.queued_bytes == waiting > 800
    element = view.poll(UNLIMITED)
    assert isinstance(element, DataElement) and element.sealed.arrow is not None
    assert element.sealed.arrow.column(0).to_pylist() == list(range(100))
    assert element.sealed.size_bytes == waiting
    assert view.backlog == 0 and memory.used_bytes == view.queued_bytes == 0
    assert view.poll(UNLIMITED) == QueuedEvent(EndOfPartition())
    assert view.poll(UNLIMITED) is None
    view.release()


@pytest.mark.parametrize("segment_size", [LOCAL_SEGMENT_BYTES, 1 << 20])
def test_rows_behind_spoilt_ones_are_never_handed_out(segment_size: int) -> None:
    schemas = SchemaTable()
    one = batch(800, schemas)
    spoilt = bytearray(one)
    spoilt[-20] ^= 1
    view, memory = view_of(one + bytes(spoilt) + one, schemas, segment_size)
    view.fill()
    assert isinstance(view.poll(UNLIMITED), DataElement)
    for _ in range(2):
        with pytest.raises(CorruptFileError, match=r"the file.*checksum"):
            view.poll(UNLIMITED)
    assert memory.used_bytes == 0
    view.release()


def test_reading_goes_on_for_one_consumer_up_to_a_few_megabytes() -> None:
    schemas = SchemaTable()
    view, _ = view_of(batch(512 << 10, schemas) * 8, schemas)
    view.fill()
    assert view.queued_count == 4
    view.fill()
    assert view.queued_count == 8
    view.release()
