"""Errors of calls between endpoints. Their fields are plain values, so that they can be sent to other processes.

RpcError
+- RpcConnectionError             an endpoint cannot be connected to
|  +- RpcHandshakeError           the peer answers, with the wrong version, secret or gateway
+- AskTimeoutError                no answer in time; the effect may have happened
+- RecipientUnreachableError      the endpoint or its process is gone
+- EndpointNotStartedError        the endpoint exists but was not started yet
+- EndpointStartError             its on_start failed
+- EndpointFailedError            a task or action of the endpoint failed
+- MailboxFullError               too many calls wait at the endpoint
+- FencingTokenError              the call belongs to another leader session
+- UnknownMethodError             the endpoint does not offer the method
+- OversizeRequestError           a request was too large; it was not sent
+- OversizeReplyError             a result was too large to send
+- OversizeFrameError             a peer sent a larger frame than this side accepts
+- SerializationError             an argument or a reply does not fit its declared type
+- GatewayDefinitionError         a Protocol cannot serve as a gateway
"""

from typing import Final

from headrace.core.errors import HeadraceError


class RpcError(HeadraceError):
    """A call between endpoints failed for a reason that is not the handler's."""


class RpcConnectionError(RpcError):
    """The endpoint under an address could not be connected to."""

    is_consequence = True

    def __init__(self, address: str, reason: str) -> None:
        super().__init__(f"could not connect to rpc endpoint under address {address}: {reason}")
        self.address = address
        self.reason = reason


class RpcHandshakeError(RpcConnectionError):
    """The peer answers, but its version, secret or gateway differs."""

    recoverable = False
    is_consequence = False

    def __init__(self, address: str, reason: str) -> None:
        RpcError.__init__(self, f"handshake with {address} failed: {reason}")
        self.address = address
        self.reason = reason


class AskTimeoutError(RpcError):
    """No answer came in time. The call may have had an effect: repeat only idempotent calls."""

    def __init__(self, method: str, target: str, timeout_ms: float, load: str = "") -> None:
        super().__init__(
            f"call of {method} on {target} was not answered within {timeout_ms:g} ms"
            + (f" ({load})" if load else "")
            + "; raise 'pekko.ask.timeout' if the target is only slow"
        )
        self.method = method
        self.target = target
        self.timeout_ms = timeout_ms


NO_SUCH_ENDPOINT: Final = "there is no such endpoint"
ENDPOINT_TERMINATED: Final = "the endpoint has terminated"


class RecipientUnreachableError(RpcError):
    """The endpoint, its process or the connection to it is gone."""

    is_consequence = True

    def __init__(self, target: str, method: str, reason: str) -> None:
        super().__init__(f"call of {method} could not reach {target}: {reason}")
        self.target = target
        self.method = method
        self.reason = reason

    @property
    def is_gone(self) -> bool:
        """Return whether the peer answered that the endpoint no longer exists, so that retries are pointless."""
        return self.reason in (NO_SUCH_ENDPOINT, ENDPOINT_TERMINATED)


class EndpointNotStartedError(RpcError):
    """The endpoint exists, but `start` was not called yet; the call was dropped."""

    def __init__(self, target: str, method: str) -> None:
        super().__init__(f"call of {method} on {target} was dropped: the endpoint is not started")
        self.target = target
        self.method = method


class EndpointStartError(RpcError):
    """`on_start` failed; the endpoint terminated itself. The cause is chained."""

    recoverable = False

    def __init__(self, target: str, reason: str) -> None:
        super().__init__(f"endpoint {target} could not start: {reason}")
        self.target = target


class EndpointFailedError(RpcError):
    """A task or an action of an endpoint failed, so that its state cannot be trusted any more. The cause is chained."""

    recoverable = False

    def __init__(self, target: str, cause: BaseException) -> None:
        super().__init__(f"{type(cause).__name__}: {cause} (in endpoint {target})")
        self.__cause__ = cause
        self.target = target


class MailboxFullError(RpcError):
    """A call was refused, as `headrace.rpc.mailbox-capacity` calls wait at the endpoint already."""

    def __init__(self, target: str, method: str, capacity: int) -> None:
        super().__init__(
            f"call of {method} on {target} was refused: {capacity} calls wait there already "
            "(headrace.rpc.mailbox-capacity)"
        )
        self.target = target
        self.method = method
        self.capacity = capacity


class FencingTokenError(RpcError):
    """The call carries the session of another leader, or none. `expected` and `actual` are hex texts.

    The error shows a refused caller only the first digits of the accepted token.
    """

    def __init__(self, target: str, method: str, expected: str | None, actual: str | None) -> None:
        super().__init__(
            f"call of {method} on {target} was refused: it carries "
            + (f"fencing token {actual}" if actual else "no fencing token")
            + (
                f", the endpoint has {_beginning(expected)}"
                if expected
                else ", the endpoint has none"
            )
        )
        self.target = target
        self.method = method
        self.expected = None if expected is None else _beginning(expected)
        self.actual = actual


class UnknownMethodError(RpcError):
    """The endpoint does not offer this method of this gateway."""

    recoverable = False

    def __init__(self, target: str, gateway: str, method: str) -> None:
        super().__init__(f"{target} does not offer {method} of gateway {gateway}")
        self.target = target
        self.gateway = gateway
        self.method = method


class OversizeRequestError(RpcError):
    """A request is larger than a message may be; it was not sent."""

    recoverable = False

    def __init__(self, method: str, size_bytes: int, limit_bytes: int, option_key: str) -> None:
        super().__init__(
            f"request of {method} has {size_bytes} bytes, the maximum is {limit_bytes}: raise "
            f"'{option_key}', or make the captured data smaller"
        )
        self.method = method
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        self.option_key = option_key


class OversizeReplyError(RpcError):
    """The result of a method is larger than a message may be. The method did run."""

    recoverable = False

    def __init__(self, method: str, size_bytes: int, limit_bytes: int, option_key: str) -> None:
        super().__init__(
            f"result of {method} has {size_bytes} bytes, the maximum is {limit_bytes}: raise '{option_key}', or "
            f"request less at once"
        )
        self.method = method
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        self.option_key = option_key


class OversizeFrameError(RpcError):
    """A peer sent a larger frame than this side accepts; the stream cannot be trusted any further."""

    recoverable = False

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(
            f"the peer sent a message of {size_bytes} bytes, the maximum is {limit_bytes} ('pekko.framesize')"
        )
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes


class SerializationError(RpcError):
    """An argument or a reply cannot be encoded, or does not decode to its declared type."""

    recoverable = False

    def __init__(self, method: str, what: str, reason: str) -> None:
        super().__init__(f"{what} of {method} does not fit the gateway's types: {reason}")
        self.method = method
        self.what = what
        self.reason = reason


class GatewayDefinitionError(RpcError):
    """A Protocol cannot serve as a gateway, or an endpoint does not implement the gateway it declares."""

    recoverable = False


def _beginning(token: str) -> str:
    """Return the first digits of a token, enough to distinguish it in a log."""
    return token if token.endswith("…") else f"{token[:8]}…"
