"""What follows each outcome of an attempt to register at another endpoint: pure, an event in, an action out.

| what happens                     | what follows                                                         |
| -------------------------------- | -------------------------------------------------------------------- |
| the target cannot be connected   | wait `error-delay`, connect again                                    |
| an attempt times out             | the next attempt at once, with twice the timeout up to `max-timeout` |
| an attempt fails otherwise       | wait `error-delay`, begin again with `initial-timeout`               |
| the target refuses (for now)     | wait `refused-registration-delay`, begin again                       |
| the target rejects (for good)    | stop, tell the owner                                                 |
| the target accepts               | stop, hand gateway and response to the owner                         |

Retries are unbounded; whoever must give up has a timer of its own. Source: Flink RetryingRegistration.
"""

from dataclasses import dataclass
from typing import Self

from headrace.core.config import Settings
from headrace.rpc.options import (
    REGISTRATION_ERROR_DELAY,
    REGISTRATION_INITIAL_TIMEOUT,
    REGISTRATION_MAX_TIMEOUT,
    REGISTRATION_REFUSED_DELAY,
)


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
    """The target could not be connected to."""


@dataclass(frozen=True)
class AttemptTimedOut:
    """No answer to a registration in time."""


@dataclass(frozen=True)
class AttemptFailed:
    """A registration failed with any other error."""


@dataclass(frozen=True)
class Refused:
    """The target's answer: not now."""

    reason: str


@dataclass(frozen=True)
class Rejected:
    """The target's answer: never."""

    reason: str


@dataclass(frozen=True)
class Accepted:
    """The target's answer: welcome."""


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
    """Nothing more to do."""


RegistrationAction = Connect | Register | Stop


class RegistrationPolicy:
    """Decides what follows what; begins with `Connect()`."""

    def __init__(self, timings: RegistrationTimings) -> None:
        self._timings = timings
        self._current = Register(1, timings.initial_timeout_ms)

    def handle(self, event: RegistrationEvent) -> RegistrationAction:
        """Return what to do next."""
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
