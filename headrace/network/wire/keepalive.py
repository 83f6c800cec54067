"""Liveness: decides when one side of a connection sends a keepalive, and when it considers its peer dead.

TCP alone notices a half-open link after hours. Here a side that has sent nothing for an interval sends a KeepAlive
frame, which is not answered; a side that has received nothing for the timeout closes. Neither a peer that reads nothing
nor one that sends a few bytes now and then counts as alive. Pure: time is an argument.
Source: the heart-beats of remote shuffle services; Flink's data plane has none.
"""

import enum
from datetime import timedelta
from typing import Final

from headrace.core.config import ConfigOption, Settings
from headrace.core.errors import ConfigurationError

KEEPALIVE_INTERVAL: Final = ConfigOption(
    "headrace.network.keepalive.interval", timedelta, timedelta(seconds=10),
    "Time without traffic on a connection between TaskManagers after which a keepalive is sent; 0: none is sent.",
)  # fmt: skip
KEEPALIVE_TIMEOUT: Final = ConfigOption(
    "headrace.network.keepalive.timeout", timedelta, timedelta(seconds=60),
    "Time after which a TaskManager that sends nothing, or reads nothing, is disconnected.",
)  # fmt: skip
PROGRESS_BYTES: Final = 64 * 1024
"""Number of bytes that count as a sign of life without a whole frame, since a large body may take its time."""


class LivenessAction(enum.Enum):
    """Actions that keep a connection alive or end it."""

    NOTHING = enum.auto()
    SEND = enum.auto()
    GIVE_UP_SILENT = enum.auto()  # nothing was received for the timeout
    GIVE_UP_STUCK = enum.auto()  # a keepalive could not be sent for the timeout


class KeepAlivePolicy:
    """Interval and timeout, in nanoseconds. An interval of 0 switches both off."""

    def __init__(self, interval_ns: int, timeout_ns: int) -> None:
        self.interval_ns: Final = interval_ns
        self.timeout_ns: Final = timeout_ns

    @classmethod
    def from_settings(cls, settings: Settings) -> "KeepAlivePolicy":
        """Make the policy from the options. ConfigurationError if the timeout is shorter than twice the interval."""
        interval = settings.get_option(KEEPALIVE_INTERVAL)
        timeout = settings.get_option(KEEPALIVE_TIMEOUT)
        if interval and timeout < 2 * interval:
            reason = f"it must be at least twice '{KEEPALIVE_INTERVAL.key}'"
            raise ConfigurationError(KEEPALIVE_TIMEOUT.key, str(timeout), reason)
        microsecond = timedelta(microseconds=1)
        return cls(interval // microsecond * 1000, timeout // microsecond * 1000)


class Liveness:
    """Liveness of one side of one connection. Call `check` at `due_ns`, the other methods as events happen."""

    __slots__ = ("_partial_bytes", "_pending_since_ns", "_policy", "_received_ns", "_sent_ns")

    def __init__(self, policy: KeepAlivePolicy, now_ns: int) -> None:
        self._policy = policy
        self._sent_ns = now_ns
        self._received_ns = now_ns
        self._partial_bytes = 0
        self._pending_since_ns: int | None = None

    def sent(self, now_ns: int) -> None:
        """Record that the transport accepted output."""
        self._sent_ns = now_ns
        self._pending_since_ns = None

    def received(self, byte_count: int, has_frames: bool, now_ns: int) -> None:
        """Record received bytes, and whether they completed a frame."""
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
        """Return the action to take now."""
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
