"""Handshake: agrees on version and features, and proves the shared secret both ways, before anything else is sent.

    DIALLER  Hello ─────────────►  ACCEPTOR
             ◄───────── Hello, Proof
             Proof ─────────────►
             both: ESTABLISHED

The proof is described in core/security/hmac_handshake.py. Pure: bytes in, bytes to send out; the shell owns socket and
timeout.
"""

from dataclasses import dataclass
from typing import Final

from headrace.core.config import ConfigOption, Settings
from headrace.core.randomness import SeededRandom
from headrace.core.security.hmac_handshake import NONCE_SIZE, HmacHandshake, Role
from headrace.network.errors import HandshakeError, NetworkError
from headrace.network.wire.frames import Feature, Hello, Proof
from headrace.network.wire.framing import (
    PREFIX,
    VERSION,
    Frame,
    decode_header,
    decode_prefix,
    encode,
)

CHECKSUM: Final = ConfigOption(
    "headrace.network.checksum", bool, False,
    "Whether rows, schemas and events sent between TaskManagers carry a CRC-32, which finds damage that "
    "TCP's own checksum misses. Costs each side about 1 ms per MiB; used if both sides have it set.",
)  # fmt: skip
_PLANE: Final = b"data"
OPENING_BYTES_MAX: Final = 1024
"""Most bytes read from a peer that has not authenticated itself."""


@dataclass(frozen=True)
class Established:
    """Result of a successful handshake.

    `rest` are bytes after the peer's proof; `version` and `features` are supported by both sides.
    """

    peer_name: str
    version: int
    rest: bytes
    features: int = 0


def offered_features(settings: Settings) -> int:
    """Return the bit set of features that this side supports."""
    return Feature.CHECKSUM if settings.get_option(CHECKSUM) else 0


class Handshake:
    """One side of the handshake: send `opening()` if it is not empty, then feed received bytes to `receive`.

    `expected_name` is the peer that a dialler wants to reach. The dialler's proof is valid for that peer only.
    """

    def __init__(
        self,
        role: Role,
        name: str,
        secret: bytes,
        random: SeededRandom,
        remote: str,
        features: int = 0,
        *,
        expected_name: str | None = None,
    ) -> None:
        assert (expected_name is not None) == (role is Role.DIALLER), (
            "a dialler knows whom it dials"
        )
        self._features = features
        self._role = role
        self._expected_name = expected_name
        self._proof = HmacHandshake(_PLANE, role, secret, expected_name or name)
        self._remote = remote
        self._own_hello = b"".join(
            encode(Hello(VERSION, VERSION, features, random.randbytes(NONCE_SIZE), name.encode()))
        )
        self._peer_hello = b""
        self._peer: Hello | None = None
        self._received = bytearray()

    @property
    def claimed_name(self) -> str | None:
        """Name that the peer claims, not authenticated yet, or None before it has sent one."""
        return None if self._peer is None else bytes(self._peer.body).decode(errors="replace")

    def opening(self) -> bytes:
        """Return the bytes to send before anything was received."""
        return self._own_hello if self._role is Role.DIALLER else b""

    def receive(self, data: bytes) -> tuple[bytes, Established | None]:
        """Process bytes of the peer; return bytes to send and, at the end, the result.

        HandshakeError if the peer is refused.
        """
        self._received += data
        reply = b""
        if self._peer is None:
            frame = self._take(Hello)
            if not isinstance(frame, Hello):
                return b"", None
            self._accept_hello(frame)
            if self._role is Role.ACCEPTOR:
                reply = self._own_hello
            reply += b"".join(encode(Proof(self._proof.prove(self._own_hello, self._peer_hello))))
        proof = self._take(Proof)
        if not isinstance(proof, Proof):
            return reply, None
        assert self._peer is not None
        if not self._proof.accepts(proof.digest, self._own_hello, self._peer_hello):
            raise HandshakeError(
                self._remote,
                "it does not know the secret of this cluster, or expected another process",
            )
        established = Established(
            bytes(self._peer.body).decode(),
            VERSION,
            bytes(self._received),
            self._features & self._peer.features,
        )
        return reply, established

    def _accept_hello(self, hello: Hello) -> None:
        if not hello.version_min <= VERSION <= hello.version_max:
            raise HandshakeError(
                self._remote,
                f"it speaks protocol versions {hello.version_min} to {hello.version_max}, but this side speaks "
                f"{VERSION}",
            )
        try:
            bytes(hello.body).decode()
        except UnicodeDecodeError as error:
            raise HandshakeError(self._remote, f"its name is not valid UTF-8: {error}") from error
        self._peer = hello
        if self._expected_name is not None and self.claimed_name != self._expected_name:
            raise HandshakeError(
                self._remote,
                f"{self.claimed_name} answered instead of {self._expected_name}, which may have been replaced",
            )
        self._peer_hello = b"".join(encode(hello))

    def _take(self, wanted: type[Frame]) -> Frame | None:
        """Cut off the next frame, which must be of class `wanted`; None while it is incomplete."""
        data = bytes(self._received)
        if len(data) < PREFIX.size:
            return None
        try:
            cls, header_length, body_length = decode_prefix(data, 0, self._remote)
        except NetworkError as error:
            raise HandshakeError(
                self._remote, f"it does not speak this protocol: {error}"
            ) from error
        length = PREFIX.size + header_length + body_length
        if cls is not wanted or length > OPENING_BYTES_MAX:
            raise HandshakeError(
                self._remote,
                f"it sent a frame of type {cls.__name__} of {length} bytes before it had authenticated itself",
            )
        if len(data) < length:
            return None
        body = data[PREFIX.size + header_length : length]
        del self._received[:length]
        try:
            return decode_header(cls, data, PREFIX.size, header_length, body, self._remote)
        except NetworkError as error:
            raise HandshakeError(self._remote, str(error)) from error
