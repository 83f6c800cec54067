"""Frames: what they look like on the wire, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.elements import LatencyMarker, PlacedMarker
from headrace.core.ids import OperatorId
from headrace.network.errors import CorruptFrameError, ProtocolError, UnknownFrameError
from headrace.network.wire.frame_decoder import FrameDecoder, refuse_large_bodies
from headrace.network.wire.frames import Close, Data
from headrace.network.wire.framing import (
    HEADER_BYTES_MAX,
    PREFIX,
    BodyParts,
    Frame,
    declared_frames,
    decode_markers,
    decode_prefix,
    encode,
    encode_markers,
    frame,
    reserve,
    reserved_frames,
)
from tests.unit.network.frames import CHECKSUMMED, GOLDEN, golden_bytes
from tests.unit.network.wire.wire_samples import MARKERS, content


def assemble(
    data: bytes, cuts: list[int], body_limit: int = 1 << 20, *, needs_checksums: bool = False
) -> list[Frame]:
    """Feed `data` in pieces that end at `cuts`."""
    check = refuse_large_bodies(body_limit, "peer")
    assembler = FrameDecoder("peer", check, needs_checksums=needs_checksums)
    frames: list[Frame] = []
    position = 0
    for end in [*sorted(cuts), len(data)]:
        while position < end:
            room = assembler.buffer()
            count = min(len(room), end - position)
            room[:count] = data[position : position + count]
            frames += assembler.received(count)
            position += count
    return frames


@pytest.mark.parametrize("name", GOLDEN)
def test_a_frame_has_its_golden_bytes(name: str) -> None:
    frame, _ = GOLDEN[name]
    assert b"".join(encode(frame)).hex() == golden_bytes(name).hex()


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bytes_are_read_as_their_frame(name: str) -> None:
    (frame,) = assemble(golden_bytes(name), [])
    assert content(frame) == content(GOLDEN[name][0])


@pytest.mark.parametrize("name", CHECKSUMMED)
def test_a_frame_with_checksums_has_its_golden_bytes_and_is_read_as_its_frame(name: str) -> None:
    frame, data = GOLDEN[name][0], bytes.fromhex(CHECKSUMMED[name])
    assert b"".join(encode(frame, with_checksum=True)).hex() == data.hex()
    for needs_checksums in (True, False):
        (read,) = assemble(data, [], needs_checksums=needs_checksums)
        assert content(read) == content(frame)


@pytest.mark.parametrize("name", CHECKSUMMED)
def test_every_bit_of_a_frame_with_checksums_is_covered(name: str) -> None:
    data = bytes.fromhex(CHECKSUMMED[name])
    for position in range(len(data) * 8):
        spoiled = bytearray(data)
        spoiled[position // 8] ^= 1 << position % 8
        # Behind it more follows, so that a length that grew is filled up.
        stream = bytes(spoiled) + data * 2
        with pytest.raises(ProtocolError) as caught:
            assemble(stream + bytes(HEADER_BYTES_MAX), [], needs_checksums=True)
        if position // 8 >= PREFIX.size:
            assert isinstance(caught.value, CorruptFrameError)


@pytest.mark.parametrize("size", [1, 16_383, 16_384, 200_000])
@pytest.mark.parametrize("is_in_parts", [True, False])
def test_a_body_in_one_piece_or_several_is_checked_wherever_it_is_received(
    size: int, is_in_parts: bool
) -> None:
    body = bytes(index % 251 for index in range(size))
    parts = BodyParts((body[: size // 3], memoryview(body)[size // 3 :]), size)
    frame = Data(1, 0, 1, 0, 1, 2, (), parts if is_in_parts else body)
    data = b"".join(bytes(part) for part in encode(frame, with_checksum=True))
    (read,) = assemble(data, [min(cut, len(data)) for cut in (7, 90, 20_000)], needs_checksums=True)
    assert isinstance(read, Data) and bytes(read.body) == body
    for position in (len(data) - size, len(data) - 1):
        spoiled = bytearray(data)
        spoiled[position] ^= 0x10
        with pytest.raises(CorruptFrameError, match="the body of a frame of type Data was changed"):
            assemble(bytes(spoiled), [], needs_checksums=True)


def test_a_header_is_checked_before_it_is_believed() -> None:
    asked: list[Frame] = []

    def check_body(cls: type[Frame], header: Frame, body_length: int) -> None:
        asked.append(header)

    data = bytearray(
        b"".join(encode(Data(1, 0, 1, 0, 1, 2, (), bytes(50_000)), with_checksum=True))
    )
    data[PREFIX.size + 3] ^= 1
    assembler = FrameDecoder("peer", check_body, needs_checksums=True)
    assembler.buffer()[:100] = data[:100]
    with pytest.raises(CorruptFrameError, match="the header of a frame of type Data was changed"):
        assembler.received(100)
    assert not asked


@pytest.mark.parametrize("name", CHECKSUMMED)
def test_a_frame_without_the_checksums_that_were_agreed_on_is_refused(name: str) -> None:
    with pytest.raises(CorruptFrameError, match="lacks the checksum that both sides agreed on"):
        assemble(golden_bytes(name), [], needs_checksums=True)


def test_frames_of_few_bytes_have_no_checksums() -> None:
    plain = [name for name, (frame, _) in GOLDEN.items() if not frame.HAS_CHECKSUM]
    assert {type(GOLDEN[name][0]).__name__ for name in plain} >= {"AddCredit", "Hello", "Error"}
    for name in plain:
        (frame,) = assemble(golden_bytes(name), [], needs_checksums=True)
        assert content(frame) == content(GOLDEN[name][0])


@pytest.mark.parametrize(("frame_id", "flags"), [(12, 2), (12, 0x8001), (14, 1), (3, 0x100)])
def test_unknown_flags_are_refused(frame_id: int, flags: int) -> None:
    data = PREFIX.pack(0x48445257, 1, frame_id, flags, 40, 0)
    with pytest.raises(ProtocolError, match=f"unknown flags {flags:#06x}"):
        decode_prefix(data, 0, "peer")


def test_a_reserved_id_is_given_to_no_frame() -> None:
    assert reserved_frames() == {25: "TaskEvent"}
    with pytest.raises(AssertionError, match="id 25"):
        frame(id=25, layout="!")(Close)
    with pytest.raises(AssertionError, match="id 3 is taken"):
        reserve(3, "Close")


def test_every_frame_has_golden_bytes() -> None:
    assert {type(frame) for frame, _ in GOLDEN.values()} == set(declared_frames())


@given(
    st.lists(st.sampled_from(sorted(GOLDEN)), min_size=1, max_size=8),
    st.lists(st.integers(0, 800), max_size=30),
    st.lists(st.sampled_from([0, 1, 100, 16_383, 16_384, 60_000, 200_000]), max_size=4),
)
def test_frames_survive_any_fragmentation(
    names: list[str], cuts: list[int], sizes: list[int]
) -> None:
    frames = [GOLDEN[name][0] for name in names]
    frames += [
        Data(1, 0, 1, 0, 1, 2, (), bytes(index % 251 for index in range(size))) for size in sizes
    ]
    data = b"".join(bytes(part) for frame in frames for part in encode(frame))
    received = assemble(data, [min(cut, len(data)) for cut in cuts])
    assert [content(frame) for frame in received] == [content(frame) for frame in frames]


def test_frames_survive_single_bytes() -> None:
    data = b"".join(golden_bytes(name) for name in GOLDEN)
    received = assemble(data, list(range(len(data))))
    assert [content(frame) for frame in received] == [
        content(frame) for frame, _ in GOLDEN.values()
    ]


def test_a_large_body_is_received_in_place() -> None:
    body = b"x" * 100_000
    data = b"".join(encode(Data(1, 0, 1, 0, 1, 2, (), body)))
    assembler = FrameDecoder("peer", refuse_large_bodies(1 << 20, "peer"))
    room = assembler.buffer()
    room[:5000] = data[:5000]
    assert assembler.received(5000) == []
    room = assembler.buffer()
    assert len(room) >= len(data) - 5000
    room[: len(data) - 5000] = data[5000:]
    (frame,) = assembler.received(len(data) - 5000)
    assert isinstance(frame, Data)
    assert frame.body.to_pybytes() == body


@given(MARKERS)
def test_markers_survive_the_wire(markers: tuple[PlacedMarker, ...]) -> None:
    data = encode_markers(markers)
    assert decode_markers(data, 0, len(data), "peer") == markers


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (PREFIX.pack(0xDEADBEEF, 1, 3, 0, 0, 0), "the bytes are not a frame"),
        (PREFIX.pack(0x48445257, 2, 3, 0, 0, 0), "a frame has version 2"),
        (PREFIX.pack(0x48445257, 1, 99, 0, 0, 0), "the unknown id 99"),
        (PREFIX.pack(0x48445257, 1, 25, 0, 4, 0), r"the reserved id 25 \(TaskEvent\)"),
    ],
)
def test_a_frame_that_is_not_ours_is_refused(data: bytes, what: str) -> None:
    with pytest.raises(UnknownFrameError, match=what):
        decode_prefix(data, 0, "peer")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (
            PREFIX.pack(0x48445257, 1, 12, 0, HEADER_BYTES_MAX + 1, 0),
            "header length of 65537 bytes",
        ),
        (PREFIX.pack(0x48445257, 1, 12, 0, 3, 0), "header length of 3 bytes"),
        (PREFIX.pack(0x48445257, 1, 14, 0, 8, 5), "body length of 5 bytes"),
        (PREFIX.pack(0x48445257, 1, 14, 0, 9, 0) + bytes(9), "1 bytes too long"),
        (
            PREFIX.pack(0x48445257, 1, 12, 0, 37, 0) + bytes(37),
            "the markers have an invalid length of 5 bytes",
        ),
    ],
)
def test_impossible_lengths_are_refused(data: bytes, what: str) -> None:
    with pytest.raises(ProtocolError, match=what):
        assemble(data, [])


def test_a_claimed_length_is_refused_before_memory_is_taken() -> None:
    header = GOLDEN["data without rows"][0].header_values()
    layout = Data.LAYOUT.pack(*header)
    data = PREFIX.pack(0x48445257, 1, 12, 0, len(layout), 0xFFFFFFFF) + layout
    with pytest.raises(ProtocolError, match="a body of 4294967295 bytes, but at most 1000"):
        assemble(data, [], body_limit=1000)


@pytest.mark.parametrize("length", [14, 32, 45])
def test_a_marker_that_is_cut_short_is_refused(length: int) -> None:
    marker = PlacedMarker(0, LatencyMarker(1, OperatorId(bytes(16)), 0))
    data = encode_markers((marker, marker))[:length]
    with pytest.raises(
        ProtocolError, match=f"the markers have an invalid length of {length} bytes"
    ):
        decode_markers(data, 0, length, "peer")


def test_an_unknown_marker_is_refused() -> None:
    with pytest.raises(ProtocolError, match="the unknown kind 9"):
        decode_markers(b"\0\0\0\0\x09" + bytes(8), 0, 13, "peer")


def test_a_frame_without_fields_is_its_prefix() -> None:
    assert encode(Close()) == [golden_bytes("close")]
