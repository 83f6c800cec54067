"""The observer's view of a stream: the same frames, with exactly their bytes."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.network.errors import ProtocolError, UnknownFrameError
from headrace.network.wire.frame_splitter import EncryptedStreamError, FrameSplitter
from headrace.network.wire.frames import PushCommit, Schema
from headrace.network.wire.framing import MAGIC, PREFIX, encode
from tests.unit.network.frames import GOLDEN, golden_bytes

NAMES = sorted(GOLDEN)


@given(st.lists(st.sampled_from(NAMES), max_size=8), st.data())
def test_frames_do_not_depend_on_how_the_stream_was_cut(
    names: list[str], data: st.DataObject
) -> None:
    stream = b"".join(golden_bytes(name) for name in names)
    cutter, found = FrameSplitter("it"), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        found += cutter.cut(stream[:size])
        stream = stream[size:]
    assert [item.frame for item in found] == [GOLDEN[name][0] for name in names]
    assert [item.raw for item in found] == [golden_bytes(name) for name in names]
    assert [item.offset for item in found] == [
        sum(len(golden_bytes(name)) for name in names[:index]) for index in range(len(names))
    ]
    assert cutter.rest == b""


def test_only_hello_and_proof_belong_to_the_opening() -> None:
    opening = {name for name in NAMES if FrameSplitter("it").cut(golden_bytes(name))[0].is_opening}
    assert opening == {"hello", "proof"}


def test_an_unfinished_frame_is_kept() -> None:
    cutter = FrameSplitter("it")
    assert cutter.cut(golden_bytes("data")[:30]) == []
    assert cutter.rest == golden_bytes("data")[:30]


@pytest.mark.parametrize("pieces", [[b"\x16\x03\x01\x02\x00"], [b"\x16", b"\x03\x01"]])
def test_a_tls_stream_is_named_as_such(pieces: list[bytes]) -> None:
    cutter = FrameSplitter("tm-1")
    with pytest.raises((EncryptedStreamError, ProtocolError)) as raised:
        for piece in pieces:
            cutter.cut(piece)
    assert isinstance(raised.value, EncryptedStreamError)
    assert "tm-1" in str(raised.value) and "security.ssl.internal.enabled" in str(raised.value)


def test_what_is_no_frame_is_refused_at_its_first_byte() -> None:
    with pytest.raises(ProtocolError, match="does not begin with a frame"):
        FrameSplitter("it").cut(b"G")


def test_a_bad_frame_in_the_middle_is_refused() -> None:
    cutter = FrameSplitter("it")
    with pytest.raises(UnknownFrameError):
        cutter.cut(golden_bytes("cancel") + b"x" * 40)


def test_a_monstrous_body_is_refused_before_it_is_collected() -> None:
    prefix = PREFIX.pack(MAGIC, 1, Schema.FRAME_ID, 0, Schema.LAYOUT.size, 0xFFFF_FFFF)
    with pytest.raises(
        ProtocolError, match="a frame of type Schema has a body of 4294967295 bytes"
    ):
        FrameSplitter("it").cut(prefix)


def test_frames_of_pushed_results_are_known_to_an_observer_that_pushes_nothing_itself() -> None:
    raw = b"".join(bytes(piece) for piece in encode(PushCommit(0, 5)))
    # In a process of its own: in this one the frames may be known because a test has imported them.
    program = (
        "from headrace.network.wire.frame_splitter import FrameSplitter\n"
        f"print(FrameSplitter('producer').cut({raw!r})[0].frame)"
    )
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert said.stdout.strip() == str(PushCommit(0, 5)), said.stderr
