"""Frames: what they look like on the wire, and what is refused."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headrace.core.elements import PlacedMarker, Watermark, WatermarkStatus
from headrace.network.assembler import FrameAssembler, refuse_large_bodies
from headrace.network.errors import ProtocolError, UnknownFrameError
from headrace.network.framing import (
    HEADER_BYTES_MAX,
    PREFIX,
    Frame,
    declared_frames,
    decode_prefix,
    encode,
)
from headrace.network.markers import decode_markers, encode_markers
from headrace.network.wire import Close, Data
from tests.unit.network.frames import GOLDEN, golden_bytes

OFFSETS = st.integers(0, 2**32 - 1)
MARKERS = st.lists(
    st.builds(
        PlacedMarker,
        OFFSETS,
        st.builds(Watermark, st.integers(-(2**63), 2**63 - 1))
        | st.builds(WatermarkStatus, st.booleans()),
    ),
    max_size=20,
).map(tuple)


def assemble(data: bytes, cuts: list[int], body_limit: int = 1 << 20) -> list[Frame]:
    """Feed `data` in pieces that end at `cuts`."""
    assembler = FrameAssembler("peer", refuse_large_bodies(body_limit, "peer"))
    frames: list[Frame] = []
    position = 0
    for end in [*sorted(cuts), len(data)]:
        while position < end:
            room = assembler.buffer()
            count = min(len(room), end - position)
            room[:count] = data[position : position + count]
            frames += assembler.received(count)
            position += count
    assert assembler.is_between_frames
    return frames


def content(frame: Frame) -> tuple[object, ...]:
    """A frame's class and values, with its body as bytes."""
    values = [bytes(value) if name == "body" else value for name, value in frame_fields(frame)]
    return (type(frame), *values)


def frame_fields(frame: Frame) -> list[tuple[str, object]]:
    return [(name, getattr(frame, name)) for name in frame.__struct_fields__]


@pytest.mark.parametrize("name", GOLDEN)
def test_a_frame_has_its_golden_bytes(name: str) -> None:
    frame, _ = GOLDEN[name]
    assert b"".join(encode(frame)).hex() == golden_bytes(name).hex()


@pytest.mark.parametrize("name", GOLDEN)
def test_golden_bytes_are_read_as_their_frame(name: str) -> None:
    (frame,) = assemble(golden_bytes(name), [])
    assert content(frame) == content(GOLDEN[name][0])


def test_every_frame_has_golden_bytes() -> None:
    assert {type(frame) for frame, _ in GOLDEN.values()} == set(declared_frames())


@settings(max_examples=40)
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
    assembler = FrameAssembler("peer", refuse_large_bodies(1 << 20, "peer"))
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
        (PREFIX.pack(0xDEADBEEF, 1, 3, 0, 0, 0), "bytes that are no frame"),
        (PREFIX.pack(0x48445257, 2, 3, 0, 0, 0), "a frame of version 2"),
        (PREFIX.pack(0x48445257, 1, 99, 0, 0, 0), "the unknown id 99"),
    ],
)
def test_a_frame_that_is_not_ours_is_refused(data: bytes, what: str) -> None:
    with pytest.raises(UnknownFrameError, match=what):
        decode_prefix(data, 0, "peer")


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (PREFIX.pack(0x48445257, 1, 12, 0, HEADER_BYTES_MAX + 1, 0), "a header of 65537 bytes"),
        (PREFIX.pack(0x48445257, 1, 12, 0, 3, 0), "a header of 3 bytes"),
        (PREFIX.pack(0x48445257, 1, 14, 0, 8, 5), "a body of 5 bytes"),
        (PREFIX.pack(0x48445257, 1, 14, 0, 9, 0) + bytes(9), "1 bytes too many"),
        (PREFIX.pack(0x48445257, 1, 12, 0, 37, 0) + bytes(37), "a marker vector of 5 bytes"),
    ],
)
def test_impossible_lengths_are_refused(data: bytes, what: str) -> None:
    with pytest.raises(ProtocolError, match=what):
        assemble(data, [])


def test_a_claimed_length_is_refused_before_memory_is_taken() -> None:
    header = GOLDEN["data without rows"][0].header_values()
    layout = Data.LAYOUT.pack(*header)
    data = PREFIX.pack(0x48445257, 1, 12, 0, len(layout), 0xFFFFFFFF) + layout
    with pytest.raises(ProtocolError, match="a body of 4294967295 bytes, at most 1000"):
        assemble(data, [], body_limit=1000)


def test_an_unknown_marker_is_refused() -> None:
    with pytest.raises(ProtocolError, match="the unknown kind 9"):
        decode_markers(b"\0\0\0\0\x09" + bytes(8), 0, 13, "peer")


def test_a_frame_without_fields_is_its_prefix() -> None:
    assert encode(Close()) == [golden_bytes("close")]
