"""Laws of the frames: whatever is encoded is decoded, however the bytes are cut; whatever is not ours is refused."""

import struct
import tracemalloc

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.network.errors import ProtocolError
from headrace.network.wire.frame_decoder import FrameDecoder, refuse_large_bodies
from headrace.network.wire.frames import Data
from headrace.network.wire.framing import (
    MAGIC,
    PREFIX,
    Frame,
    declared_frames,
    encode,
)
from tests.unit.network.frames import GOLDEN, golden_bytes
from tests.unit.network.wire.wire_samples import MARKERS, content

MIB = 1 << 20
_RANGES = {"B": (0, 2**8 - 1), "H": (0, 2**16 - 1), "I": (0, 2**32 - 1)} | {
    "Q": (0, 2**64 - 1),
    "q": (-(2**63), 2**63 - 1),
}


def values_of_layout(layout: str) -> st.SearchStrategy[tuple[object, ...]]:
    """Anything the header of a frame can hold."""
    fields: list[st.SearchStrategy[object]] = []
    count = ""
    for code in layout.removeprefix("!"):
        if code.isdigit():
            count += code
        elif code == "s":
            fields.append(st.binary(min_size=int(count), max_size=int(count)))
            count = ""
        else:
            fields.append(st.integers(*_RANGES[code]))
    return st.tuples(*fields)


@st.composite
def frames(draw: st.DrawFn) -> Frame:
    """A frame of any declared class with any values; bodies are repetitions, to be cheap to draw."""
    cls = draw(st.sampled_from(declared_frames()))
    values = draw(values_of_layout(cls.LAYOUT.format))
    markers = draw(MARKERS) if cls.HAS_MARKERS else ()
    body = b""
    if cls.HAS_BODY:
        size = draw(st.integers(0, 200) | st.integers(16_300, 16_500) | st.integers(0, MIB))
        body = (draw(st.binary(min_size=1, max_size=9)) * size)[:size]
    return cls.from_header(values, markers, body)


def feed(assembler: FrameDecoder, data: bytes, piece: int) -> list[Frame]:
    """Give `data` to the assembler, at most `piece` bytes at a time."""
    received: list[Frame] = []
    view = memoryview(data)
    while view:
        room = assembler.buffer()
        count = min(len(room), len(view), piece)
        room[:count] = view[:count]
        received += assembler.received(count)
        view = view[count:]
    return received


def new_assembler(limit: int = 2 * MIB) -> FrameDecoder:
    return FrameDecoder("peer", refuse_large_bodies(limit, "peer"))


@given(st.lists(frames(), min_size=1, max_size=5), st.integers(0, 20))
def test_every_frame_survives_pieces_from_one_byte_to_a_mebibyte(
    sent: list[Frame], exponent: int
) -> None:
    data = b"".join(bytes(part) for frame in sent for part in encode(frame))
    # A piece of one byte takes one step for each byte: only short streams are cut so finely.
    piece = max(1 << exponent, len(data) // 5000)
    assembler = new_assembler()
    received = feed(assembler, data, piece)
    # The second time shows that nothing of the first is left in the assembler.
    received += feed(assembler, data, piece)
    assert [content(frame) for frame in received] == [content(frame) for frame in sent * 2]


@given(
    st.lists(st.sampled_from(sorted(GOLDEN)), min_size=1, max_size=4),
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(1, 600),
)
def test_corrupt_bytes_make_frames_or_a_protocol_error_and_nothing_else(
    names: list[str], damages: list[tuple[int, int]], piece: int
) -> None:
    data = bytearray(b"".join(golden_bytes(name) for name in names))
    for position, value in damages:
        data[position % len(data)] = value
    try:
        received = feed(new_assembler(), bytes(data), piece)
    except ProtocolError as error:
        assert error.peer == "peer"
    else:
        assert all(isinstance(frame, Frame) for frame in received)


@given(st.binary(min_size=PREFIX.size, max_size=300), st.integers(1, 300))
def test_garbage_is_refused_with_its_first_prefix(data: bytes, piece: int) -> None:
    if data[:4] == struct.pack("!I", MAGIC):
        data = b"\0" + data[1:]
    with pytest.raises(ProtocolError, match="the bytes are not a frame"):
        feed(new_assembler(), data, piece)


@given(st.sampled_from(sorted(GOLDEN)), st.data())
def test_a_truncated_frame_is_never_delivered(name: str, data: st.DataObject) -> None:
    whole = golden_bytes(name)
    assembler = new_assembler()
    length = data.draw(st.integers(1, len(whole) - 1))
    assert feed(assembler, whole[:length], 7) == []
    assert len(feed(assembler, whole[length:], 7)) == 1


@pytest.mark.parametrize("claimed", [3 * MIB, 1 << 30, 0xFFFF_FFFF])
def test_an_absurd_length_costs_no_memory(claimed: int) -> None:
    layout = Data.LAYOUT.pack(1, 0, 1, 0, 1, 2)
    prefix = PREFIX.pack(MAGIC, 1, Data.FRAME_ID, 0, len(layout), claimed)
    assembler = new_assembler()
    arrow_bytes = pa.total_allocated_bytes()
    tracemalloc.start()
    with pytest.raises(ProtocolError, match=f"a body of {claimed} bytes"):
        feed(assembler, prefix + layout + bytes(100), 50)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 100_000
    assert pa.total_allocated_bytes() == arrow_bytes


def test_a_large_body_that_never_ends_gives_its_memory_back() -> None:
    arrow_bytes = pa.total_allocated_bytes()
    frame = b"".join(bytes(part) for part in encode(Data(1, 0, 1, 0, 1, 2, (), b"x" * MIB)))
    assembler = new_assembler()
    assert feed(assembler, frame[: MIB // 2], 4096) == []
    assert pa.total_allocated_bytes() >= arrow_bytes + MIB
    del assembler
    assert pa.total_allocated_bytes() == arrow_bytes
