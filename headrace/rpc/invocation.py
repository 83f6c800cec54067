"""Invocation: a call in a mailbox, and the reply ports that receive its outcome."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from headrace.core.error_codec import decode_error, encode_error
from headrace.rpc import codec
from headrace.rpc.contract import MethodContract
from headrace.rpc.errors import OversizeReplyError, RpcError
from headrace.rpc.options import FRAME_SIZE

_LOG = logging.getLogger(__name__)


Respond = Callable[[codec.Response, bytes], None]
"""Sends a response (and its encoded form) back to the caller's process; never raises."""


class ReplyPort(Protocol):
    """Receives the outcome of one invocation, once. Neither method raises."""

    def succeed(self, method: MethodContract, value: object) -> None:
        """Report that the handler returned `value`."""
        ...

    def fail(self, error: BaseException) -> None:
        """Report that the handler failed, or was never reached."""
        ...


@dataclass(frozen=True, eq=False)
class Invocation:
    """A call that has arrived at an endpoint.

    `arguments` are the caller's own objects for a local call, else encoded; they are decoded only after the endpoint
    has accepted the call. `reply` is None for a tell.
    """

    gateway: str
    method: str
    token: bytes | None
    arguments: tuple[Any, ...] | msgspec.Raw
    reply: ReplyPort | None

    @property
    def full_name(self) -> str:
        """Return `Gateway.method`, for messages."""
        return f"{self.gateway.rpartition('.')[2]}.{self.method}"

    def fail(self, error: BaseException, target: str) -> None:
        """Report `error` to the caller; for a tell, which has no reply, log it."""
        if self.reply is not None:
            self.reply.fail(error)
        elif isinstance(error, Exception):
            _LOG.warning("%s on %s failed: %s", self.full_name, target, error, exc_info=error)


class FutureReply:
    """Outcome of a local call, by reference."""

    def __init__(self, future: asyncio.Future[Any]) -> None:
        self._future = future

    def succeed(self, method: MethodContract, value: object) -> None:
        """Complete the future with the object itself."""
        if not self._future.done():
            self._future.set_result(value)

    def fail(self, error: BaseException) -> None:
        """Fail the future with the exception itself."""
        if not self._future.done():
            self._future.set_exception(error)


class SerializedFutureReply:
    """Outcome of a local call that is encoded and decoded as if it came from another process."""

    def __init__(self, future: asyncio.Future[Any], origin: str, limit_bytes: int) -> None:
        self._future = future
        self._origin = origin
        self._limit_bytes = limit_bytes

    def succeed(self, method: MethodContract, value: object) -> None:
        """Complete the future with a copy of the result, or fail it if the result cannot be encoded."""
        if self._future.done():
            return
        try:
            encoded = encode_bounded_reply(method, value, self._limit_bytes)
            self._future.set_result(method.decode_reply(encoded))
        except Exception as error:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Fail the future with a rebuilt exception."""
        if not self._future.done():
            self._future.set_exception(decode_error(encode_error(error), self._origin))


class RemoteReply:
    """Outcome of a call from another process: encoded and sent back; if that fails, the error is sent."""

    def __init__(self, call_id: int, method: str, respond: Respond, limit_bytes: int) -> None:
        self._call_id = call_id
        self._method = method
        self._respond = respond
        self._limit_bytes = limit_bytes

    def succeed(self, method: MethodContract, value: object) -> None:
        """Send the result."""
        try:
            self.send(codec.Answer(self._call_id, msgspec.Raw(method.encode_reply(value))))
        except RpcError as error:
            self.fail(error)

    def fail(self, error: BaseException) -> None:
        """Send a description of the exception."""
        failure = encode_error(error)
        try:
            self.send(codec.ErrorResponse(self._call_id, failure))
        except OversizeReplyError as too_large:
            self.send(codec.ErrorResponse(self._call_id, encode_error(too_large)))

    def send(self, response: codec.Response) -> None:
        """Send a response; OversizeReplyError if it exceeds the limit."""
        frame = codec.encode(response)
        if len(frame) > self._limit_bytes:
            raise OversizeReplyError(self._method, len(frame), self._limit_bytes, FRAME_SIZE.key)
        self._respond(response, frame)


def encode_bounded_reply(method: MethodContract, value: object, limit_bytes: int) -> bytes:
    """Encode a result; OversizeReplyError if it exceeds `limit_bytes`."""
    encoded = method.encode_reply(value)
    if len(encoded) > limit_bytes:
        raise OversizeReplyError(method.full_name, len(encoded), limit_bytes, FRAME_SIZE.key)
    return encoded
