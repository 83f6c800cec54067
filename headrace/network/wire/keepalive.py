"""Liveness: when one side of a connection says that it lives, and when it gives the other up.

TCP alone notices a half-open link after hours. Here whoever has sent nothing for an interval sends a KeepAlive frame,
which nobody answers; whoever has received nothing for the timeout closes. Neither a peer that reads nothing nor one
that drips a few bytes now and then counts as alive. Pure: time comes as an argument.
Source: the heart-beats of remote shuffle services; Flink's data plane has none.
"""

import enum
from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import ConfigurationError

KEEPALIVE_INTERVAL: Final = ConfigOption(
    "headrace.network.keepalive.interval", timedelta, timedelta(seconds=10),
    "Time without traffic on a connection between TaskManagers after which a sign of life is sent; 0: none is sent.",
)  # fmt: skip
KEEPALIVE_TIMEOUT: Final = ConfigOption(
    "headrace.network.keepalive.timeout", timedelta, timedelta(seconds=60),
    "Time after which a TaskManager is disconnected that sends nothing, or reads nothing.",
)  # fmt: skip
PROGRESS_BYTES: Final = 64 * 1024
"""Without a whole frame, so many bytes are a sign of life too: a large body may take its time."""


class LivenessAction(enum.Enum):
    """Actions that keep a connection alive or give it up."""

    NOTHING = enum.auto()
    SEND = enum.auto()
    GIVE_UP_SILENT = enum.auto()  # nothing came for the timeout
    GIVE_UP_STUCK = enum.auto()  # a sign of life could not be sent for the timeout


class KeepAlivePolicy:
    """Interval and timeout, in nanoseconds. An interval of 0 switches both off."""

    def __init__(self, interval_ns: int, timeout_ns: int) -> None:
        self.interval_ns: Final = interval_ns
        self.timeout_ns: Final = timeout_ns

    @classmethod
    def from_settings(cls, settings: Settings) -> "KeepAlivePolicy":
        """Read the options; ConfigurationError where live peers would be given up."""
        interval = settings.get_option(KEEPALIVE_INTERVAL)
        timeout = settings.get_option(KEEPALIVE_TIMEOUT)
        if interval and timeout < 2 * interval:
            reason = f"it must be at least twice '{KEEPALIVE_INTERVAL.key}'"
            raise ConfigurationError(KEEPALIVE_TIMEOUT.key, str(timeout), reason)
        microsecond = timedelta(microseconds=1)
        return cls(interval // microsecond * 1000, timeout // microsecond * 1000)


class Liveness:
    """One side of one connection. Call `check` at `due_ns`, the others as things happen."""

    __slots__ = ("_partial_bytes", "_pending_since_ns", "_policy", "_received_ns", "_sent_ns")

    def __init__(self, policy: KeepAlivePolicy, now_ns: int) -> None:
        self._policy = policy
        self._sent_ns = now_ns
        self._received_ns = now_ns
        self._partial_bytes = 0
        self._pending_since_ns: int | None = None

    def sent(self, now_ns: int) -> None:
        """The transport took something to send."""
        self._sent_ns = now_ns
        self._pending_since_ns = None

    def received(self, byte_count: int, has_frames: bool, now_ns: int) -> None:
        """Bytes came, and completed frames or not."""
        self._partial_bytes += byte_count
        if has_frames or self._partial_bytes >= PROGRESS_BYTES:
            self._partial_bytes = 0
            self._received_ns = now_ns

    @property
    def due_ns(self) -> int:
        """Time of the next check, in ns."""
        policy = self._policy
        own = self._sent_ns + policy.interval_ns
        if self._pending_since_ns is not None:
            own = self._pending_since_ns + policy.timeout_ns
        return min(own, self._received_ns + policy.timeout_ns)

    def check(self, now_ns: int) -> LivenessAction:
        """Decide."""
        policy = self._policy
        if now_ns - self._received_ns >= policy.timeout_ns:
            return LivenessAction.GIVE_UP_SILENT
        if self._pending_since_ns is not None:
            is_stuck = now_ns - self._pending_since_ns >= policy.timeout_ns
            return LivenessAction.GIVE_UP_STUCK if is_stuck else LivenessAction.NOTHING
        if now_ns - self._sent_ns < policy.interval_ns:
            return LivenessAction.NOTHING
        self._pending_since_ns = now_ns
        return LivenessAction.SEND
