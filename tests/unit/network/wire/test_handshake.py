"""The opening of a connection: who is let in, and who is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.core.randomness import SeededRandom
from headrace.core.security.hmac_handshake import HmacHandshake, Role
from headrace.network.errors import HandshakeError
from headrace.network.wire.frames import AddCredit, Feature, Hello
from headrace.network.wire.framing import PREFIX, encode
from headrace.network.wire.handshake import OPENING_BYTES_MAX, Established, Handshake

SECRET = b"s" * 32


def side(
    role: Role,
    name: str,
    secret: bytes = SECRET,
    features: int = 0,
    *,
    expected: str | None = "b",
) -> Handshake:
    expected = expected if role is Role.DIALLER else None
    return Handshake(
        role, name, secret, SeededRandom(name), "somebody", features, expected_name=expected
    )


def feed(handshake: Handshake, data: bytes, size: int) -> tuple[bytes, Established | None]:
    reply, established = b"", None
    for start in range(0, len(data), size):
        more, established = handshake.receive(data[start : start + size])
        reply += more
    return reply, established


@given(st.integers(1, 300))
def test_two_sides_with_one_secret_agree_however_their_bytes_are_cut(size: int) -> None:
    dialler, acceptor = side(Role.DIALLER, "a"), side(Role.ACCEPTOR, "b")
    answer, nobody = feed(acceptor, dialler.opening(), size)
    assert nobody is None
    proof, accepted_by = feed(dialler, answer, size)
    assert accepted_by == Established("b", 1, b"")
    nothing, admitted = feed(acceptor, proof, size)
    assert (nothing, admitted) == (b"", Established("a", 1, b""))


@pytest.mark.parametrize(
    ("offered", "answered", "agreed"),
    [(Feature.CHECKSUM, Feature.CHECKSUM, Feature.CHECKSUM), (Feature.CHECKSUM, 0, 0), (0, 3, 0)],
)
def test_features_are_those_that_both_sides_are_ready_for(
    offered: int, answered: int, agreed: int
) -> None:
    dialler = side(Role.DIALLER, "a", features=offered)
    acceptor = side(Role.ACCEPTOR, "b", features=answered)
    answer, _ = acceptor.receive(dialler.opening())
    proof, accepted_by = dialler.receive(answer)
    _, admitted = acceptor.receive(proof)
    assert accepted_by is not None and admitted is not None
    assert accepted_by.features == admitted.features == agreed


def test_a_feature_that_was_taken_out_of_a_hello_is_noticed() -> None:
    dialler = side(Role.DIALLER, "a", features=Feature.CHECKSUM)
    acceptor = side(Role.ACCEPTOR, "b", features=Feature.CHECKSUM)
    hello = bytearray(dialler.opening())
    hello[PREFIX.size + 5] ^= Feature.CHECKSUM
    answer, _ = acceptor.receive(bytes(hello))
    with pytest.raises(HandshakeError):
        dialler.receive(answer)


def test_bytes_behind_the_proof_are_handed_on() -> None:
    dialler, acceptor = side(Role.DIALLER, "a"), side(Role.ACCEPTOR, "b")
    answer, _ = acceptor.receive(dialler.opening())
    proof, _ = dialler.receive(answer)
    _, admitted = acceptor.receive(proof + b"first frame")
    assert admitted == Established("a", 1, b"first frame")


def test_another_secret_is_refused_by_both_sides() -> None:
    dialler, acceptor = side(Role.DIALLER, "a"), side(Role.ACCEPTOR, "b", b"other".ljust(32))
    answer, _ = acceptor.receive(dialler.opening())
    with pytest.raises(HandshakeError, match="does not know the secret"):
        dialler.receive(answer)
    impostor = side(Role.DIALLER, "a", b"guess".ljust(32))
    acceptor = side(Role.ACCEPTOR, "b")
    answer, _ = acceptor.receive(impostor.opening())
    with pytest.raises(HandshakeError):
        impostor.receive(answer)
    with pytest.raises(HandshakeError, match="does not know the secret"):
        acceptor.receive(b"".join(encode_proof(b"0" * 32)))


def encode_proof(digest: bytes) -> list[bytes]:
    from headrace.network.wire.frames import Proof

    return encode(Proof(digest))


def test_a_proof_cannot_be_reflected() -> None:
    acceptor = side(Role.ACCEPTOR, "b")
    hello = side(Role.DIALLER, "a").opening()
    answer, _ = acceptor.receive(hello)
    own_proof = answer[-len(b"".join(encode_proof(b"0" * 32))) :]
    with pytest.raises(HandshakeError, match="does not know the secret"):
        acceptor.receive(own_proof)


def test_a_dialler_proves_nothing_to_whom_it_does_not_mean() -> None:
    dialler = side(Role.DIALLER, "a", expected="gone")
    answer, _ = side(Role.ACCEPTOR, "b").receive(dialler.opening())
    with pytest.raises(HandshakeError, match="b answered instead of gone"):
        dialler.receive(answer)


def test_who_is_reached_by_a_relay_under_another_s_name_accepts_no_proof() -> None:
    """Somebody took the port of `gone`, hands greetings to `b`, and writes that name over `b`'s."""
    dialler, acceptor = side(Role.DIALLER, "a", expected="gone"), side(Role.ACCEPTOR, "b")
    answer, _ = acceptor.receive(dialler.opening())
    renamed = b"".join(encode(Hello(1, 1, 0, b"c" * 32, b"gone"))) + answer[-proof_size() :]
    with pytest.raises(HandshakeError, match="expected another process"):
        dialler.receive(renamed)
    careless = side(Role.DIALLER, "a", expected="gone")
    proof = encode_proof(HmacHandshake(b"data", Role.DIALLER, SECRET, "gone").prove(b"x", b"y"))
    acceptor = side(Role.ACCEPTOR, "b")
    acceptor.receive(careless.opening())
    with pytest.raises(HandshakeError, match="expected another process"):
        acceptor.receive(b"".join(proof))


def proof_size() -> int:
    return len(b"".join(encode_proof(b"0" * 32)))


def test_a_version_that_this_side_does_not_speak_is_named() -> None:
    hello = b"".join(bytes(part) for part in encode(Hello(2, 3, 0, b"c" * 32, b"a")))
    with pytest.raises(HandshakeError, match="versions 2 to 3, but this side speaks 1"):
        side(Role.ACCEPTOR, "b").receive(hello)


def test_garbage_is_refused() -> None:
    with pytest.raises(HandshakeError, match="does not speak this protocol"):
        side(Role.ACCEPTOR, "b").receive(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")


def test_nothing_else_is_read_before_the_proof() -> None:
    frame = b"".join(encode(AddCredit(1, 1)))
    with pytest.raises(HandshakeError, match="a frame of type AddCredit"):
        side(Role.ACCEPTOR, "b").receive(frame)


def test_a_hello_has_a_bounded_size() -> None:
    hello = b"".join(
        bytes(part) for part in encode(Hello(1, 1, 0, b"c" * 32, b"n" * OPENING_BYTES_MAX))
    )
    with pytest.raises(HandshakeError, match="before it had authenticated itself"):
        side(Role.ACCEPTOR, "b").receive(hello[:100])


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_are_waited_for_or_refused_by_name(data: bytes, is_framed: bool) -> None:
    """Also as the name in a hello that is none of these otherwise."""
    if is_framed:
        data = b"".join(bytes(part) for part in encode(Hello(1, 1, 0, b"c" * 32, data)))
    try:
        _, established = side(Role.ACCEPTOR, "b").receive(data)
    except HandshakeError:
        return
    assert established is None


def test_a_name_that_is_no_text_is_refused_before_anything_is_proved() -> None:
    hello = b"".join(bytes(part) for part in encode(Hello(1, 1, 0, b"c" * 32, b"\xff\xfe")))
    with pytest.raises(HandshakeError, match="its name is not valid UTF-8"):
        side(Role.ACCEPTOR, "b").receive(hello)
