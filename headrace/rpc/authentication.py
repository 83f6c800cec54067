"""The opening of a TCP connection: both sides prove that they know the cluster's secret before anything is decoded.

    DIALLER   Hello ──────────►            ◄────────── Hello   ACCEPTOR
              ◄───────────────────────────────────────  Proof
              Proof ───────────────────────────────────►
              sealed requests ─────────►   ◄──── sealed responses

Every message has a fixed size, so that a stranger can make this side hold 74 bytes at most. The proof is described
in core/security/hmac_handshake.py. Pure: bytes in, bytes out; the shell owns socket and timeout.
"""

import struct
from dataclasses import dataclass
from typing import Final

from headrace.core.randomness import SeededRandom
from headrace.core.security.hmac_handshake import (
    NONCE_SIZE,
    PROOF_SIZE,
    FrameSeal,
    HmacHandshake,
    Role,
)
from headrace.rpc.codec import PROTOCOL_VERSION
from headrace.rpc.errors import RpcHandshakeError

_PLANE: Final = b"rpc"
_MAGIC: Final = b"HRPC"
_HELLO: Final = struct.Struct(f"!4sHI{NONCE_SIZE}s")
"""Magic, protocol version, largest frame that this side accepts, nonce."""


@dataclass(frozen=True)
class Proven:
    """Result: the peer knows the secret.

    `rest`: bytes after its proof; `sending` and `receiving`: the seals of frames.
    """

    frame_size_max: int
    rest: bytes
    sending: FrameSeal
    receiving: FrameSeal


class Authentication:
    """One side of the opening handshake. Send `hello`, then pass received bytes to `receive`."""

    def __init__(
        self,
        role: Role,
        secret: bytes,
        frame_size_max: int,
        random: SeededRandom,
        remote: str,
        acceptor: str,
    ) -> None:
        """Create one side; `acceptor`: the `host:port` that is dialled, or at which this side is reached."""
        self._role = role
        self._proof = HmacHandshake(_PLANE, role, secret, acceptor)
        self.remote = remote
        self.hello = _HELLO.pack(
            _MAGIC, PROTOCOL_VERSION, frame_size_max, random.randbytes(NONCE_SIZE)
        )
        self._peer_hello = b""
        self._peer_frame_size = 0
        self._received = bytearray()

    def receive(self, data: bytes) -> tuple[bytes, Proven | None]:
        """Process bytes of the peer; return bytes to send and, at the end, the proof's result.

        RpcHandshakeError if it fails.
        """
        self._received += data
        reply = b""
        if not self._peer_hello:
            # A stranger is recognised by its first bytes, however slowly they drip.
            if not _MAGIC.startswith(bytes(self._received[: len(_MAGIC)])):
                raise self._error("the peer does not speak this protocol")
            if len(self._received) < _HELLO.size:
                return b"", None
            self._accept_hello(self._take(_HELLO.size))
            if self._role is Role.ACCEPTOR:
                reply = self._proof.prove(self.hello, self._peer_hello)
        if len(self._received) < PROOF_SIZE:
            return reply, None
        if not self._proof.accepts(self._take(PROOF_SIZE), self.hello, self._peer_hello):
            raise self._error(
                "the peer does not know the secret of this cluster, or another process was meant (dial a process by "
                "the address that it advertises)"
            )
        if self._role is Role.DIALLER:
            reply = self._proof.prove(self.hello, self._peer_hello)
        proven = Proven(
            self._peer_frame_size,
            bytes(self._received),
            self._proof.sending_seal(self.hello, self._peer_hello),
            self._proof.receiving_seal(self.hello, self._peer_hello),
        )
        return reply, proven

    def _accept_hello(self, hello: bytes) -> None:
        _, version, frame_size, _ = _HELLO.unpack(hello)
        if version != PROTOCOL_VERSION:
            raise self._error(
                f"the peer speaks protocol version {version}, this side {PROTOCOL_VERSION}"
            )
        self._peer_hello = hello
        self._peer_frame_size = frame_size

    def _take(self, size: int) -> bytes:
        taken = bytes(self._received[:size])
        del self._received[:size]
        return taken

    def _error(self, reason: str) -> RpcHandshakeError:
        return RpcHandshakeError(self.remote, reason)
