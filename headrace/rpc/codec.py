"""Messages between two processes, and their encoding as frames: a length (u32, big endian), then that many bytes.

The msgpack schema is closed: nothing is ever unpickled. Arguments and results are nested as raw bytes; the contract
of their method decodes them, after the endpoint has accepted the call. Tags are the wire ids and never
change their meaning. Pure.
"""

import struct
from typing import Final

import msgspec

from headrace.core.error_codec import RemoteFailure
from headrace.rpc.errors import OversizeFrameError

PROTOCOL_VERSION: Final = 2
"""Version of the opening and of the messages of this module: raised with every change of them. Sides with different
versions refuse each other in the handshake.

It does not cover the arguments of the gateways' methods: the ResourceManager accepts only TaskManagers with its
own versions of Headrace and msgspec (`cluster/versions`), and a call whose arguments are not of the callee's types is
refused by the callee. Only a shuffle service may be of another release: for it, changes of its gateway's arguments
count too.
"""


class ConnectRequest(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """Dialler → acceptor: asks if an endpoint of this name offers this gateway. Answered with nil."""

    call_id: int
    endpoint_name: str
    gateway: str


class Call(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """Dialler → acceptor: an invocation. `call_id` 0 is a tell. `token` is the fencing token's 16 bytes."""

    call_id: int
    endpoint_name: str
    gateway: str
    method: str
    token: bytes | None
    arguments: msgspec.Raw


class Answer(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Acceptor → dialler: the result of call `call_id`."""

    call_id: int
    value: msgspec.Raw


class ErrorResponse(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Acceptor → dialler: call `call_id` failed."""

    call_id: int
    failure: RemoteFailure


Request = ConnectRequest | Call
Response = Answer | ErrorResponse

_ENCODER: Final = msgspec.msgpack.Encoder()
_REQUESTS: Final = msgspec.msgpack.Decoder(Request)
_RESPONSES: Final = msgspec.msgpack.Decoder(Response)

NIL: Final = msgspec.Raw(_ENCODER.encode(None))
"""An encoded None."""


def encode(message: Request | Response) -> bytes:
    """Return one message as bytes."""
    return _ENCODER.encode(message)


def decode_request(data: bytes | memoryview) -> Request:
    """Decode a request; one of DECODE_ERRORS for anything else."""
    return _REQUESTS.decode(data)


def decode_response(data: bytes | memoryview) -> Response:
    """Decode a response; one of DECODE_ERRORS for anything else."""
    return _RESPONSES.decode(data)


LENGTH: Final = struct.Struct("!I")


class RpcFrameDecoder:
    """Cuts a byte stream into frames; holds at most one incomplete frame of `size_max` bytes."""

    def __init__(self, size_max: int) -> None:
        self._size_max = size_max
        self._received = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Add bytes and return the frames that they complete.

        OversizeFrameError, which ends the stream, for a too large one.
        """
        self._received += data
        frames: list[bytes] = []
        start = 0
        while len(self._received) - start >= LENGTH.size:
            (size,) = LENGTH.unpack_from(self._received, start)
            if size > self._size_max:
                raise OversizeFrameError(size, self._size_max)
            end = start + LENGTH.size + size
            if len(self._received) < end:
                break
            frames.append(bytes(self._received[start + LENGTH.size : end]))
            start = end
        del self._received[:start]
        return frames
