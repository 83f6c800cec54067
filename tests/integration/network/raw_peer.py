"""A peer over a plain socket, which can say what a well-behaved one never would."""

import socket
from typing import TypeVar

from headrace.core.randomness import SeededRandom
from headrace.core.security.hmac_handshake import Role
from headrace.core.shuffle_descriptors import TaskManagerLocation
from headrace.network.wire.frame_decoder import FrameDecoder, refuse_large_bodies
from headrace.network.wire.framing import Frame, encode
from headrace.network.wire.handshake import Handshake
from tests.unit.network.exchange import SECRET

F = TypeVar("F", bound=Frame)


class RawPeer:
    """One connection, established."""

    def __init__(
        self,
        connection: socket.socket,
        role: Role,
        name: str = "raw",
        expected_name: str | None = None,
    ) -> None:
        self.socket = connection
        self.socket.settimeout(10)
        handshake = Handshake(
            role, name, SECRET, SeededRandom(name), "the tested side", expected_name=expected_name
        )
        if handshake.opening():
            self.socket.sendall(handshake.opening())
        established = None
        while established is None:
            reply, established = handshake.receive(self.socket.recv(4096))
            if reply:
                self.socket.sendall(reply)
        self._assembler = FrameDecoder("the tested side", refuse_large_bodies(1 << 24, "it"))
        self._frames: list[Frame] = []
        self._feed(established.rest)

    @classmethod
    def dial(cls, location: TaskManagerLocation, name: str = "raw") -> "RawPeer":
        connection = socket.create_connection((location.host, location.data_port))
        return cls(connection, Role.DIALLER, name, location.resource_id.name)

    def send(self, *messages: Frame) -> None:
        self.socket.sendall(
            b"".join(bytes(part) for message in messages for part in encode(message))
        )

    def expect(self, wanted: type[F]) -> F:
        """The next frame of a class; others before it are dropped."""
        while True:
            while self._frames:
                frame = self._frames.pop(0)
                if isinstance(frame, wanted):
                    return frame
            data = self.socket.recv(65536)
            assert data, f"the connection ended before a {wanted.__name__}"
            self._feed(data)

    def is_closed(self) -> bool:
        """Wait for the other side to close."""
        try:
            while self.socket.recv(65536):
                pass
        except ConnectionResetError:
            pass
        return True

    def close(self) -> None:
        self.socket.close()

    def _feed(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            room = self._assembler.buffer()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self._frames += self._assembler.received(count)
            view = view[count:]
