"""The opening of a connection: proofs of the secret, in any cutting of the bytes; then frames."""

from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.security.hmac_handshake import Role
from headrace.rpc.authentication import Authentication, Proven
from headrace.rpc.codec import LENGTH, RpcFrameDecoder
from headrace.rpc.errors import OversizeFrameError, RpcHandshakeError

SECRET = b"s" * 32


def side(
    role: Role,
    secret: bytes = SECRET,
    frame_size: int = 1000,
    seed: int = 0,
    acceptor: str = "host:1",
) -> Authentication:
    return Authentication(role, secret, frame_size, Random(f"{role}{seed}"), "the peer", acceptor)


def feed(target: Authentication, data: bytes, sizes: list[int]) -> tuple[bytes, Proven | None]:
    """Feed `data` in pieces of the given sizes (the rest at once); what comes back, joined."""
    replies, proven = b"", None
    for size in [*sizes, len(data)]:
        piece, data = data[:size], data[size:]
        if piece:
            reply, proven = target.receive(piece)
            replies += reply
        if proven is not None:
            return replies, replace(proven, rest=proven.rest + data)
    return replies, proven


SIZES = st.lists(st.integers(1, 40), max_size=10)


@given(SIZES, SIZES, SIZES, st.binary(max_size=50))
def test_two_sides_with_one_secret_prove_themselves_however_bytes_are_cut(
    first: list[int], second: list[int], third: list[int], following: bytes
) -> None:
    dialler, acceptor = side(Role.DIALLER, frame_size=5), side(Role.ACCEPTOR, frame_size=7)
    proof, proven = feed(acceptor, dialler.hello, first)
    assert proven is None and len(proof) == 32
    answer, dialler_proven = feed(dialler, acceptor.hello + proof, second)
    assert dialler_proven is not None
    assert (dialler_proven.frame_size_max, dialler_proven.rest) == (7, b"")
    reply, acceptor_proven = feed(acceptor, answer + following, third)
    assert reply == b"" and acceptor_proven is not None
    assert (acceptor_proven.frame_size_max, acceptor_proven.rest) == (5, following)


def test_a_dialler_notices_another_secret_before_it_proves_its_own() -> None:
    dialler, acceptor = side(Role.DIALLER), side(Role.ACCEPTOR, b"t" * 32)
    proof, _ = acceptor.receive(dialler.hello)
    with pytest.raises(RpcHandshakeError, match="does not know the secret"):
        dialler.receive(acceptor.hello + proof)


def test_an_acceptor_notices_a_dialler_that_makes_its_proof_up() -> None:
    dialler, acceptor = side(Role.DIALLER), side(Role.ACCEPTOR)
    acceptor.receive(dialler.hello)
    with pytest.raises(RpcHandshakeError, match="does not know the secret"):
        acceptor.receive(bytes(32))


def test_a_proof_cannot_be_reflected() -> None:
    """An attacker dials back what it is asked, with the acceptor's own hello and proof."""
    acceptor = side(Role.ACCEPTOR)
    proof, _ = acceptor.receive(acceptor.hello)
    with pytest.raises(RpcHandshakeError):
        acceptor.receive(proof)


def test_a_proof_cannot_be_replayed() -> None:
    dialler, acceptor = side(Role.DIALLER), side(Role.ACCEPTOR)
    proof, _ = acceptor.receive(dialler.hello)
    answer, _ = dialler.receive(acceptor.hello + proof)
    later = side(Role.ACCEPTOR, seed=1)
    later.receive(dialler.hello)
    with pytest.raises(RpcHandshakeError):
        later.receive(answer)


def test_a_greeting_that_is_relayed_to_another_process_proves_nothing() -> None:
    """Somebody took the port of a process that has ended, and hands what comes to another one of the cluster."""
    dialler = side(Role.DIALLER, acceptor="host:1")
    other = side(Role.ACCEPTOR, acceptor="host:2")
    proof, _ = other.receive(dialler.hello)
    with pytest.raises(RpcHandshakeError, match="another process was meant"):
        dialler.receive(other.hello + proof)


@given(st.integers(0, 41), st.integers(1, 255))
def test_an_altered_hello_never_leads_to_a_proven_connection(position: int, change: int) -> None:
    dialler, acceptor = side(Role.DIALLER), side(Role.ACCEPTOR)
    altered = bytearray(dialler.hello)
    altered[position] ^= change
    with pytest.raises(RpcHandshakeError):
        proof, proven = acceptor.receive(bytes(altered))
        assert proven is None and len(proof) == 32, "the acceptor waits for its dialler"
        dialler.receive(acceptor.hello + proof)


def test_a_side_of_another_version_is_told_both_versions() -> None:
    hello = bytearray(side(Role.DIALLER).hello)
    hello[5] = 99
    with pytest.raises(RpcHandshakeError, match="version 99, this side 2"):
        side(Role.ACCEPTOR).receive(bytes(hello))


@pytest.mark.parametrize("data", [b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"H", b"HRPX"])
def test_a_stranger_is_recognised_by_its_first_bytes(data: bytes) -> None:
    acceptor = side(Role.ACCEPTOR)
    if b"HRPC".startswith(data):
        assert acceptor.receive(data) == (b"", None)
        data = b"TTP"
    with pytest.raises(RpcHandshakeError, match="does not speak this protocol"):
        acceptor.receive(data)


def proven_pair() -> tuple[Proven, Proven]:
    dialler, acceptor = side(Role.DIALLER), side(Role.ACCEPTOR)
    proof, _ = acceptor.receive(dialler.hello)
    answer, dialler_proven = dialler.receive(acceptor.hello + proof)
    _, acceptor_proven = acceptor.receive(answer)
    assert dialler_proven is not None and acceptor_proven is not None
    return dialler_proven, acceptor_proven


def test_frames_are_sealed_with_keys_of_their_connection_direction_and_number() -> None:
    dialler, acceptor = proven_pair()
    sealed = [(frame, dialler.sending.seal(frame)) for frame in (b"first", b"second", b"second")]
    assert [acceptor.receiving.holds(*one) for one in sealed] == [True] * 3
    assert len({seal for _, seal in sealed}) == 3


@pytest.mark.parametrize("frame", [b"", b"a call", b"x" * 100])
def test_a_frame_that_was_changed_repeated_left_out_or_sent_back_does_not_hold(
    frame: bytes,
) -> None:
    dialler, acceptor = proven_pair()
    seal = dialler.sending.seal(frame)
    assert not dialler.receiving.holds(frame, seal)
    assert acceptor.receiving.holds(frame, seal)
    assert not acceptor.receiving.holds(frame, seal)
    dialler, acceptor = proven_pair()
    seal = dialler.sending.seal(frame)
    assert not acceptor.receiving.holds(frame + b"!", seal)
    dialler, acceptor = proven_pair()
    dialler.sending.seal(b"lost")
    assert not acceptor.receiving.holds(frame, dialler.sending.seal(frame))


@given(st.lists(st.binary(max_size=30), max_size=10), SIZES)
def test_frames_come_out_as_they_went_in_however_bytes_are_cut(
    frames: list[bytes], sizes: list[int]
) -> None:
    data = b"".join(LENGTH.pack(len(frame)) + frame for frame in frames)
    assembler = RpcFrameDecoder(30)
    received: list[bytes] = []
    for size in [*sizes, len(data)]:
        piece, data = data[:size], data[size:]
        received += assembler.feed(piece)
    assert received == frames


def test_a_frame_past_the_limit_ends_the_stream_before_it_is_stored() -> None:
    with pytest.raises(
        OversizeFrameError, match=r"31 bytes, the maximum is 30 \('pekko.framesize'\)"
    ):
        RpcFrameDecoder(30).feed(LENGTH.pack(31))
