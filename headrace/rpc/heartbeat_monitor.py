"""Watching one peer by its heartbeats: pure, events in, actions out.

RUNNING --silence for `heartbeat.timeout`--> TIMEOUT
RUNNING --`heartbeat.rpc-failure-threshold` requests in a row found nobody--> UNREACHABLE
RUNNING --nobody wants to know--> CANCELED; all three are final, so a loss is told once.

Source: Flink DefaultHeartbeatMonitor.
"""

import enum
from dataclasses import dataclass
from typing import Self

from headrace.core.config import Settings
from headrace.rpc.options import (
    HEARTBEAT_INTERVAL,
    HEARTBEAT_RPC_FAILURE_THRESHOLD,
    HEARTBEAT_TIMEOUT,
)


@dataclass(frozen=True)
class HeartbeatTimings:
    """The three `heartbeat.*` options. `rpc_failure_threshold` -1: only silence counts."""

    interval_ms: float = 10_000
    timeout_ms: float = 50_000
    rpc_failure_threshold: int = 2

    @classmethod
    def from_settings(cls, settings: Settings) -> Self:
        """Read the options."""
        return cls(
            settings.duration_ms(HEARTBEAT_INTERVAL),
            settings.duration_ms(HEARTBEAT_TIMEOUT),
            settings.get_option(HEARTBEAT_RPC_FAILURE_THRESHOLD),
        )


class MonitorState(enum.Enum):
    """Of one peer. All but RUNNING are final."""

    RUNNING = "RUNNING"
    TIMEOUT = "TIMEOUT"
    UNREACHABLE = "UNREACHABLE"
    CANCELED = "CANCELED"


@dataclass(frozen=True)
class HeartbeatReceived:
    """A sign of life."""

    now_ns: int


@dataclass(frozen=True)
class PeerUnreachable:
    """A request found nobody."""


@dataclass(frozen=True)
class TimerFired:
    """The armed timer is due."""

    now_ns: int


@dataclass(frozen=True)
class MonitoringCanceled:
    """Nobody wants to know any more."""


HeartbeatEvent = HeartbeatReceived | PeerUnreachable | TimerFired | MonitoringCanceled


@dataclass(frozen=True)
class ArmTimer:
    """Send TimerFired after `delay_ms`."""

    delay_ms: float


@dataclass(frozen=True)
class NotifyLost:
    """The peer is lost; `state` says how it was found out."""

    state: MonitorState


HeartbeatAction = ArmTimer | NotifyLost


class HeartbeatMonitor:
    """Watches one peer, from `now_ns` on. One timer serves: when it is due it looks how old the last sign is."""

    def __init__(self, timings: HeartbeatTimings, now_ns: int) -> None:
        self._timeout_ns = int(timings.timeout_ms * 1_000_000)
        self._threshold = timings.rpc_failure_threshold
        self._last_sign_ns = now_ns
        self._unreachable_count = 0
        self.state = MonitorState.RUNNING

    @property
    def last_sign_ns(self) -> int:
        """When the newest sign of life came, or monitoring began."""
        return self._last_sign_ns

    def start(self) -> list[HeartbeatAction]:
        """The first timer."""
        return [ArmTimer(self._timeout_ns / 1_000_000)]

    def handle(self, event: HeartbeatEvent) -> list[HeartbeatAction]:
        """Take an event; at most one NotifyLost ever comes back."""
        if self.state is not MonitorState.RUNNING:
            return []
        match event:
            case HeartbeatReceived(now_ns):
                self._last_sign_ns = max(self._last_sign_ns, now_ns)
                self._unreachable_count = 0
                return []
            case PeerUnreachable():
                self._unreachable_count += 1
                if 0 <= self._threshold <= self._unreachable_count:
                    return self._lose(MonitorState.UNREACHABLE)
                return []
            case TimerFired(now_ns):
                left_ns = self._last_sign_ns + self._timeout_ns - now_ns
                if left_ns > 0:
                    return [ArmTimer(left_ns / 1_000_000)]
                return self._lose(MonitorState.TIMEOUT)
            case MonitoringCanceled():
                self.state = MonitorState.CANCELED
                return []

    def _lose(self, state: MonitorState) -> list[HeartbeatAction]:
        self.state = state
        return [NotifyLost(state)]
