"""ChunkWriter: where chunks end, where elements lie, and what becomes of chunks whose file has gone."""

from collections.abc import Sequence
from typing import Any

from headrace.core.elements import EndOfPartition
from headrace.network.stored.chunk_writer import ChunkWriter
from headrace.network.stored.file_format import pieces_bytes, prepare_event
from tests.unit.network.stored.held_io import HeldIo

ELEMENT = prepare_event(EndOfPartition())
SIZE = ELEMENT.size_bytes


class RecordedFile:
    """Keeps how many bytes each write had, and how many users there are."""

    def __init__(self) -> None:
        self.written_bytes: list[int] = []
        self.user_count = 1

    def retain(self) -> bool:
        if not self.user_count:
            return False
        self.user_count += 1
        return True

    def append(self, pieces: Sequence[Any]) -> int:
        assert self.user_count > 1
        self.written_bytes.append(pieces_bytes(pieces))
        return 0

    def let_go(self) -> None:
        self.user_count -= 1


def test_a_chunk_ends_with_the_element_that_reaches_its_size_or_where_it_is_flushed() -> None:
    file, io = RecordedFile(), HeldIo()
    chunks = ChunkWriter(file, io, chunk_bytes=2 * SIZE, limit_bytes=100 * SIZE)
    positions: list[int] = []
    for _ in range(5):
        positions.append(chunks.position)
        chunks.add(ELEMENT)
    assert positions == [0, SIZE, 2 * SIZE, 3 * SIZE, 4 * SIZE]
    assert chunks.pending_bytes == 4 * SIZE
    chunks.flush()
    chunks.flush()
    assert chunks.pending_bytes == chunks.position == 5 * SIZE
    io.close()
    chunks.drain()
    assert file.written_bytes == [2 * SIZE, 2 * SIZE, SIZE]
    assert file.user_count == 1


def test_chunks_of_a_file_that_has_gone_are_written_nowhere() -> None:
    file, io = RecordedFile(), HeldIo()
    chunks = ChunkWriter(file, io, chunk_bytes=SIZE, limit_bytes=100 * SIZE)
    chunks.add(ELEMENT)
    io.run_one()
    chunks.add(ELEMENT)
    file.let_go()
    io.close()
    chunks.drain()
    assert file.written_bytes == [SIZE]
    assert file.user_count == 0
