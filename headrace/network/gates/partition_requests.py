"""Repeated requests of a channel: for a partition that is not registered yet, and after a lost connection.

PartitionRequestBackoff limits how long a consumer asks for a partition that its producer has not registered yet,
ReconnectPolicy decides whether a channel goes on reading a stored result after its connection ended. ProducerVerdict
decides whether to ask again at all, by the state of the producer: one that is on its way, runs or has just finished is
asked again. If it was cancelled, failed or belongs to an attempt that is over, the consumer is cancelled rather than
failed: the end of the producer is the cause, and stays the reported one.
Source: Flink RemoteInputChannel, PartitionProducerStateChecker, RemoteChannelStateChecker.
"""

import enum
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption, Settings
from headrace.core.ids import ResultPartitionId
from headrace.core.lifecycle import ExecutionState
from headrace.network.errors import CorruptFrameError, HandshakeError, NetworkError, ProtocolError

REQUEST_BACKOFF_INITIAL: Final = ConfigOption(
    "taskmanager.network.request-backoff.initial", timedelta, timedelta(milliseconds=100),
    "Wait before a partition that was not found is requested again; doubled each time.",
)  # fmt: skip
REQUEST_BACKOFF_MAX: Final = ConfigOption(
    "taskmanager.network.request-backoff.max", timedelta, timedelta(seconds=10),
    "Longest wait between two requests for a partition, or between two attempts to reconnect to a shuffle service "
    "after its connection was lost. A consumer gives up after twice this time in all.",
)  # fmt: skip
PARTITION_REQUEST_TIMEOUT: Final = ConfigOption(
    "taskmanager.network.partition-request-timeout", timedelta, timedelta(seconds=10),
    "How long the producer's side keeps a request for a partition that does not exist yet.",
)  # fmt: skip


def to_ms(duration: timedelta) -> float:
    """Return a duration in milliseconds."""
    return duration.total_seconds() * 1000


class PartitionRequestBackoff:
    """Computes the delays between requests for a partition that is not registered yet, doubling up to a maximum.

    Ends after `total_ms`, including the time for which the producer's side keeps a request.

    Source: Flink RemoteInputChannel's back-off.
    """

    def __init__(self, initial_ms: float, max_ms: float, parked_ms: float) -> None:
        self.total_ms: Final = 2 * max_ms
        self._initial_ms: Final = initial_ms
        self._max_ms = max_ms
        self._parked_ms = parked_ms
        self._next_ms = initial_ms
        self._spent_ms = 0.0

    @classmethod
    def from_settings(cls, settings: Settings) -> "PartitionRequestBackoff":
        """Make a back-off from the options."""
        return cls(
            to_ms(settings.get_option(REQUEST_BACKOFF_INITIAL)),
            to_ms(settings.get_option(REQUEST_BACKOFF_MAX)),
            to_ms(settings.get_option(PARTITION_REQUEST_TIMEOUT)),
        )

    def unparked(self) -> "PartitionRequestBackoff":
        """Return a new back-off for use while no connection exists: the producer's side keeps no requests then."""
        return PartitionRequestBackoff(self._initial_ms, self._max_ms, 0.0)

    def next_delay_ms(self) -> float | None:
        """Return the delay before the next request after one came back unserved, or None to give up."""
        self._spent_ms += self._parked_ms
        if self._spent_ms >= self.total_ms:
            return None
        delay_ms = min(self._next_ms, self._max_ms)
        self._next_ms *= 2
        self._spent_ms += delay_ms
        return delay_ms


class ReconnectPolicy:
    """Decides whether and when a channel resumes reading a stored result after its connection ended. Pure.

        reading --lost--> waiting --delay--> connecting --connected--> reading, from the element that is next
                             ^                    |
                             +-----not reached----+          no element for `retry` in all: the first error is final

    Only for results that outlive their producer: when the connection with a task manager ends, its results are gone
    with it, and waiting for them would only delay the restart. Source: Flink Remote Shuffle's reads by offset.
    """

    def __init__(self, retry: PartitionRequestBackoff, *, is_external: bool) -> None:
        self._retry = retry
        self._is_external = is_external
        self._waits = retry
        self._first_error: NetworkError | None = None
        self._lost_at_sequence = -1

    @property
    def has_begun(self) -> bool:
        """Return whether a connection was lost; if none was ever made, its error is reported at once."""
        return self._first_error is not None

    def lost(self, error: NetworkError, next_sequence: int) -> float | NetworkError:
        """Return the delay in ms before the next attempt after a connection failed, or the final error."""
        if not self._is_external or not _may_pass(error):
            return error
        if self._first_error is None or next_sequence > self._lost_at_sequence:
            # It made progress since the last loss: the reader will reach its end despite lost connections.
            self._waits = self._retry.unparked()
            self._first_error = error
        self._lost_at_sequence = next_sequence
        delay_ms = self._waits.next_delay_ms()
        return self._first_error if delay_ms is None else delay_ms


def _may_pass(error: NetworkError) -> bool:
    """Return whether a new connection may succeed: not if the peer breaks the protocol or refuses the handshake."""
    if isinstance(error, CorruptFrameError):
        return True
    return not isinstance(error, ProtocolError | HandshakeError)


class ProducerVerdict(enum.Enum):
    """Reactions of a consumer to a partition that was not found."""

    ASK_AGAIN = "ASK_AGAIN"
    CANCEL = "CANCEL"
    FAIL = "FAIL"


AnswerVerdict = Callable[[ProducerVerdict], None]
CheckProducer = Callable[[ResultPartitionId, AnswerVerdict], None]
"""Asks for the verdict on a partition's producer; the answer comes once, or never if nobody knows the state."""

_V: Final = ProducerVerdict
VERDICTS: Final[Mapping[ExecutionState, ProducerVerdict]] = {
    ExecutionState.CREATED: _V.FAIL,  # nobody deploys a consumer before its producer
    ExecutionState.SCHEDULED: _V.ASK_AGAIN,
    ExecutionState.DEPLOYING: _V.ASK_AGAIN,
    ExecutionState.INITIALIZING: _V.ASK_AGAIN,
    ExecutionState.RUNNING: _V.ASK_AGAIN,
    ExecutionState.FINISHED: _V.ASK_AGAIN,
    ExecutionState.CANCELING: _V.CANCEL,
    ExecutionState.CANCELED: _V.CANCEL,
    ExecutionState.FAILED: _V.CANCEL,
}


def verdict_on(state: ExecutionState | None) -> ProducerVerdict:
    """Return the reaction to a producer in `state`; None means that its attempt is over and forgotten."""
    return ProducerVerdict.CANCEL if state is None else VERDICTS[state]
