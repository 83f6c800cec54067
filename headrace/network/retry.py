"""PartitionRequestRetry: how long a consumer asks for a partition that its producer has not registered yet."""

from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption, Settings

REQUEST_BACKOFF_INITIAL: Final = ConfigOption(
    "taskmanager.network.request-backoff.initial", timedelta, timedelta(milliseconds=100),
    "Wait before a partition that was not found is requested again; doubled each time.",
)  # fmt: skip
REQUEST_BACKOFF_MAX: Final = ConfigOption(
    "taskmanager.network.request-backoff.max", timedelta, timedelta(seconds=10),
    "Longest wait between two requests for a partition, or two tries to reach a shuffle service again whose connection "
    "was lost. A consumer gives up after twice this time in all.",
)  # fmt: skip
PARTITION_REQUEST_TIMEOUT: Final = ConfigOption(
    "taskmanager.network.partition-request-timeout", timedelta, timedelta(seconds=10),
    "How long the producer's side keeps a request for a partition that does not exist yet.",
)  # fmt: skip


def to_ms(duration: timedelta) -> float:
    """Milliseconds of a duration."""
    return duration.total_seconds() * 1000


class PartitionRequestRetry:
    """Waits between requests, doubling up to a maximum; ends after `total_ms`, the time parked there included.

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
    def from_settings(cls, settings: Settings) -> "PartitionRequestRetry":
        """Read the options."""
        return cls(
            to_ms(settings.get_option(REQUEST_BACKOFF_INITIAL)),
            to_ms(settings.get_option(REQUEST_BACKOFF_MAX)),
            to_ms(settings.get_option(PARTITION_REQUEST_TIMEOUT)),
        )

    def unparked(self) -> "PartitionRequestRetry":
        """Return a new one for who waits for a connection: nobody keeps its requests meanwhile."""
        return PartitionRequestRetry(self._initial_ms, self._max_ms, 0.0)

    def next_delay_ms(self) -> float | None:
        """A request came back unserved: return the wait before the next one, or None to give up."""
        self._spent_ms += self._parked_ms
        if self._spent_ms >= self.total_ms:
            return None
        delay_ms = min(self._next_ms, self._max_ms)
        self._next_ms *= 2
        self._spent_ms += delay_ms
        return delay_ms
