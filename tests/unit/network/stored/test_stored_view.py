"""StoredView: what a consumer of this process decodes itself, and how much is read for one in a row."""

import pyarrow as pa
import pytest

from headrace.core.elements import EndOfPartition
from headrace.network.batches.sealed_batch import SealedBatch
from headrace.network.errors import CorruptFileError, ProducerFailedError
from headrace.network.partitions.result_subpartition import (
    LOCAL_SEGMENT_BYTES,
    DataElement,
    QueuedEvent,
)
from headrace.network.stored.file_format import (
    BatchCompressor,
    SchemaTable,
    UndecodedElement,
    encode_batch,
    encode_stored_event,
    split_elements,
)
from headrace.network.stored.stored_view import CoalescedRead, ReadMemory, StoredView

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

    def read(
        self, limit_bytes: int, stretch: CoalescedRead | None = None
    ) -> list[UndecodedElement]:
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


class ReleasedAmidReading(Cursor):
    """Its consumer leaves while it is read; what it reads from must stay open until then."""

    def __init__(self, data: bytes, schemas: SchemaTable) -> None:
        super().__init__(data, schemas)
        self.view: StoredView | None = None
        self.was_open_amid = False
        self.close_count = 0

    def read(
        self, limit_bytes: int, stretch: CoalescedRead | None = None
    ) -> list[UndecodedElement]:
        assert self.view is not None
        self.view.release()
        self.view.release()
        self.was_open_amid = self.is_open
        return super().read(limit_bytes, stretch)

    def close(self) -> None:
        super().close()
        self.close_count += 1


def test_a_file_stays_open_for_a_read_whose_consumer_leaves_and_is_closed_behind_it() -> None:
    schemas = SchemaTable()
    memory, told = ReadMemory(64 << 20), []
    cursor = ReleasedAmidReading(batch(800, schemas) * 3, schemas)
    view = StoredView(
        cursor,
        memory,
        lambda: told.append("data"),
        1 << 20,
        lambda _: None,
        lambda _: told.append("released"),
    )
    cursor.view = view
    view.fill()
    assert cursor.was_open_amid and not cursor.is_open
    view.release()
    view.fill()
    assert cursor.close_count == 1 and len(cursor.left) == 2
    assert told == ["released"]
    assert memory.used_bytes == view.queued_count == view.backlog == 0


def test_a_consumer_that_waits_is_told_of_a_failure_and_keeps_no_memory() -> None:
    schemas = SchemaTable()
    memory, told = ReadMemory(64 << 20), []
    cursor = Cursor(batch(800, schemas) * 3, schemas)
    view = StoredView(
        cursor, memory, lambda: told.append("data"), 1 << 20, lambda _: None, lambda _: None
    )
    view.fill()
    told.clear()
    view.fail(ProducerFailedError("p", "a bad row"))
    assert told == ["data"] and memory.used_bytes == 0
    for _ in range(2):
        with pytest.raises(ProducerFailedError, match="a bad row"):
            view.poll(UNLIMITED)
    view.fill()
    assert memory.used_bytes == 0
    view.release()
    assert not cursor.is_open
