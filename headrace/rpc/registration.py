"""Registration at another endpoint, retried until it accepts or rejects: a policy, and the shell around it.

The policy is pure and maps each outcome of an attempt to register to an action:

| what happens                     | what follows                                                         |
| -------------------------------- | -------------------------------------------------------------------- |
| the target cannot be connected   | wait `error-delay`, connect again                                    |
| an attempt times out             | the next attempt at once, with twice the timeout up to `max-timeout` |
| an attempt fails otherwise       | wait `error-delay`, begin again with `initial-timeout`               |
| the target refuses (for now)     | wait `refused-registration-delay`, begin again                       |
| the target rejects (for good)    | stop, tell the owner                                                 |
| the target accepts               | stop, hand gateway and response to the owner                         |

Retries are unbounded; an owner that must give up uses its own timer. Source: Flink RetryingRegistration,
RegisteredRpcConnection.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from headrace.core.config import Settings
from headrace.core.ids import FencingToken
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.errors import AskTimeoutError, RecipientUnreachableError, RpcError
from headrace.rpc.options import (
    REGISTRATION_ERROR_DELAY,
    REGISTRATION_INITIAL_TIMEOUT,
    REGISTRATION_MAX_TIMEOUT,
    REGISTRATION_REFUSED_DELAY,
)
from headrace.rpc.proxies import with_timeout

G = TypeVar("G")
R = TypeVar("R")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class RegistrationTimings:
    """The four `cluster.registration.*` options, in milliseconds."""

    initial_timeout_ms: float = 100
    max_timeout_ms: float = 30_000
    error_delay_ms: float = 10_000
    refused_delay_ms: float = 30_000

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Read the options."""
        return cls(
            settings.duration_ms(REGISTRATION_INITIAL_TIMEOUT),
            settings.duration_ms(REGISTRATION_MAX_TIMEOUT),
            settings.duration_ms(REGISTRATION_ERROR_DELAY),
            settings.duration_ms(REGISTRATION_REFUSED_DELAY),
        )


@dataclass(frozen=True)
class Connected:
    """The target answered the handshake."""


@dataclass(frozen=True)
class ConnectFailed:
    """The connection to the target failed."""


@dataclass(frozen=True)
class AttemptTimedOut:
    """A registration was not answered in time."""


@dataclass(frozen=True)
class AttemptFailed:
    """A registration failed with any other error."""


@dataclass(frozen=True)
class Refused:
    """The target refused the registration for now."""

    reason: str


@dataclass(frozen=True)
class Rejected:
    """The target rejected the registration for good."""

    reason: str


@dataclass(frozen=True)
class Accepted:
    """The target accepted the registration."""


RegistrationEvent = (
    Connected | ConnectFailed | AttemptTimedOut | AttemptFailed | Refused | Rejected | Accepted
)


@dataclass(frozen=True)
class Connect:
    """After `delay_ms`, connect to the target."""

    delay_ms: float = 0


@dataclass(frozen=True)
class Register:
    """After `delay_ms`, send registration number `attempt` (from 1) and wait `timeout_ms` for the answer."""

    attempt: int
    timeout_ms: float
    delay_ms: float = 0


@dataclass(frozen=True)
class Stop:
    """Stop: nothing is left to do."""


RegistrationAction = Connect | Register | Stop


class RegistrationPolicy:
    """Decides the action after each outcome; the first action is `Connect()`."""

    def __init__(self, timings: RegistrationTimings) -> None:
        self._timings = timings
        self._current = Register(1, timings.initial_timeout_ms)

    def handle(self, event: RegistrationEvent) -> RegistrationAction:
        """Return the next action."""
        timings = self._timings
        match event:
            case ConnectFailed():
                return Connect(timings.error_delay_ms)
            case Connected():
                return self._begin(0)
            case AttemptFailed():
                return self._begin(timings.error_delay_ms)
            case Refused():
                return self._begin(timings.refused_delay_ms)
            case AttemptTimedOut():
                timeout_ms = min(2 * self._current.timeout_ms, timings.max_timeout_ms)
                self._current = Register(self._current.attempt + 1, timeout_ms)
                return self._current
            case Rejected() | Accepted():
                return Stop()

    def _begin(self, delay_ms: float) -> Register:
        timeout_ms = min(self._timings.initial_timeout_ms, self._timings.max_timeout_ms)
        self._current = Register(1, timeout_ms, delay_ms)
        return self._current


class RetryingRegistration(Generic[G, R]):
    """The connection of `endpoint` to one target leader, registered and renewed on demand.

    `register(gateway)` sends one registration. `interpret(response)` returns the response's meaning: Refused, Rejected,
    or None for accepted. `on_success(gateway, response)` and `on_rejected(reason)` run on the endpoint's main thread,
    at most once per `start` or `try_reconnect`, and never after `close`. A new leader needs a new object.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        *,
        target_address: str,
        gateway_type: type[G],
        fencing_token: FencingToken | None,
        register: Callable[[G], Awaitable[R]],
        interpret: Callable[[R], Refused | Rejected | None],
        on_success: Callable[[G, R], None],
        on_rejected: Callable[[str], None],
        timings: RegistrationTimings | None = None,
        gives_up_when_gone: bool = False,
    ) -> None:
        """Create a registration.

        With `gives_up_when_gone`, a target that has existed and is gone counts as rejecting.
        """
        self._endpoint = endpoint
        self.target_address = target_address
        self._gateway_type = gateway_type
        self.fencing_token = fencing_token
        self._register = register
        self._interpret = interpret
        self._on_success = on_success
        self._on_rejected = on_rejected
        self._gives_up_when_gone = gives_up_when_gone
        self._timings = timings or RegistrationTimings.from_settings(endpoint.settings)
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self.gateway: G | None = None
        """Gateway of the target while registered there."""
        self.last_failure = ""
        """Reason why the newest attempt failed, for the error of a caller that gives up waiting."""

    @property
    def is_registered(self) -> bool:
        """Return whether the target has accepted and no new registration was requested since."""
        return self.gateway is not None

    def start(self) -> None:
        """Begin to register; call once."""
        assert self._task is None and not self._is_closed, "start() comes once"
        self._begin()

    def try_reconnect(self) -> None:
        """Register anew after the connection was lost. A running attempt is dropped."""
        if not self._is_closed:
            self._cancel()
            self._begin()

    def close(self) -> None:
        """Stop registering; idempotent. No callback is called any more."""
        self._is_closed = True
        self._cancel()

    def _begin(self) -> None:
        self._task = self._endpoint.spawn(self._run(), f"registration at {self.target_address}")

    def _cancel(self) -> None:
        self.gateway = None
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        policy = RegistrationPolicy(self._timings)
        action: RegistrationAction = Connect()
        gateway: G | None = None
        response: R | None = None
        event: RegistrationEvent = ConnectFailed()
        while not isinstance(action, Stop):
            if action.delay_ms:
                await asyncio.sleep(action.delay_ms / 1000)
            if isinstance(action, Connect):
                gateway, event = await self._connect()
            else:
                assert gateway is not None
                response, event = await self._attempt(gateway, action)
            action = policy.handle(event)
            self._log(event, action)
        if isinstance(event, Rejected):
            self._on_rejected(event.reason)
        else:
            assert gateway is not None
            self.gateway = gateway
            self._on_success(gateway, response)  # pyright: ignore[reportArgumentType] - R of the accepting answer

    async def _connect(self) -> tuple[G | None, RegistrationEvent]:
        try:
            gateway = await self._endpoint.rpc_service.connect(
                self.target_address, self._gateway_type, self.fencing_token
            )
        except RpcError as error:
            self.last_failure = str(error)
            return None, self._rejection_by_absence(error) or ConnectFailed()
        return gateway, Connected()

    async def _attempt(self, gateway: G, attempt: Register) -> tuple[R | None, RegistrationEvent]:
        try:
            response = await self._register(with_timeout(gateway, attempt.timeout_ms))
        except AskTimeoutError as error:
            self.last_failure = str(error)
            # A timeout may also come from a call that the target's handler made; that is an error of the attempt.
            is_own = error.target == self.target_address and error.timeout_ms == attempt.timeout_ms
            return None, AttemptTimedOut() if is_own else AttemptFailed()
        except Exception as error:
            self.last_failure = f"{type(error).__name__}: {error}"
            return None, self._rejection_by_absence(error) or AttemptFailed()
        answer = self._interpret(response)
        if answer is not None:
            self.last_failure = answer.reason
            return response, answer
        self.last_failure = ""
        return response, Accepted()

    def _rejection_by_absence(self, error: Exception) -> Rejected | None:
        # A failed connect says why in its cause.
        reasons = (error, error.__cause__)
        is_gone = any(isinstance(one, RecipientUnreachableError) and one.is_gone for one in reasons)
        return Rejected(str(error)) if is_gone and self._gives_up_when_gone else None

    def _log(self, event: RegistrationEvent, action: RegistrationAction) -> None:
        match event, action:
            case AttemptTimedOut(), _:
                _LOG.debug("registration at %s: %s", self.target_address, self.last_failure)
            case ConnectFailed() | AttemptFailed() | Refused(), (Connect() | Register()):
                _LOG.warning(
                    "registration at %s failed, next attempt in %g ms: %s",
                    self.target_address,
                    action.delay_ms,
                    self.last_failure,
                )
            case _:
                pass
