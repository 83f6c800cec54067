"""Heartbeats: a peer that was silent for too long, or cannot be reached at all, is reported as lost, exactly once.

In each pair one side asks (HeartbeatSender) and the other answers (HeartbeatReceiver); an answer tells the sender and a
request tells the receiver that the other is alive. Both run on their endpoint's main thread, so a blocked main thread
looks like a dead peer. A timer that fires late shows that this process was suspended: the peer gets another whole
timeout. HeartbeatMonitor watches one peer; pure, events in, actions out:

    RUNNING --silence for `heartbeat.timeout`--> TIMEOUT
    RUNNING --`heartbeat.rpc-failure-threshold` requests in a row could not be delivered--> UNREACHABLE
    RUNNING --silence, but a witness reports the peer alive--> RUNNING: the witness is asked again after an interval
    RUNNING --monitoring is cancelled--> CANCELED; all three are final, so that a loss is reported once.

Source: Flink HeartbeatManagerImpl, HeartbeatManagerSenderImpl, DefaultHeartbeatMonitor.
"""

import enum
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Generic, Self, TypeVar

from headrace.core.clock import Cancellable
from headrace.core.config import Settings
from headrace.core.ids import ResourceId
from headrace.rpc.endpoint import RpcEndpoint
from headrace.rpc.errors import RecipientUnreachableError, SerializationError
from headrace.rpc.options import (
    HEARTBEAT_INTERVAL,
    HEARTBEAT_RPC_FAILURE_THRESHOLD,
    HEARTBEAT_TIMEOUT,
)

P = TypeVar("P")
Witness = Callable[[ResourceId], Awaitable[bool]]
"""Function that returns whether a silent peer is nevertheless alive; raises nothing."""
_LOG = logging.getLogger(__name__)
_OUTSTANDING_MAX = 8
"""Maximum number of requests to one target that wait for an answer."""

_LATE_PART = 20
"""A timer that is late by more than this part of the timeout shows that the process was suspended."""


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
    """States of monitoring one peer. All but RUNNING are final."""

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
    """A request could not be delivered."""


@dataclass(frozen=True)
class TimerFired:
    """The armed timer is due."""

    now_ns: int


@dataclass(frozen=True)
class MonitoringCanceled:
    """The caller has ended the monitoring of the peer."""


@dataclass(frozen=True)
class WitnessAnswered:
    """The witness has reported whether the silent peer is alive."""

    now_ns: int
    is_alive: bool


HeartbeatEvent = (
    HeartbeatReceived | PeerUnreachable | TimerFired | WitnessAnswered | MonitoringCanceled
)


@dataclass(frozen=True)
class ArmTimer:
    """Send TimerFired after `delay_ms`."""

    delay_ms: float


@dataclass(frozen=True)
class NotifyLost:
    """Report the peer as lost; `state` says how the loss was found out."""

    state: MonitorState


@dataclass(frozen=True)
class AskWitness:
    """Ask whether the silent peer is alive, and send WitnessAnswered."""


HeartbeatAction = ArmTimer | AskWitness | NotifyLost


class HeartbeatMonitor:
    """Watches one peer, from `now_ns` on. It needs one timer, which checks the age of the last sign of life."""

    def __init__(
        self, timings: HeartbeatTimings, now_ns: int, *, has_witness: bool = False
    ) -> None:
        self._timeout_ns = int(timings.timeout_ms * 1_000_000)
        self._interval_ns = int(timings.interval_ms * 1_000_000)
        self._has_witness = has_witness
        self._due_ns = now_ns + self._timeout_ns
        self._threshold = timings.rpc_failure_threshold
        self._last_sign_ns = now_ns
        self._unreachable_count = 0
        self.state = MonitorState.RUNNING

    @property
    def last_sign_ns(self) -> int:
        """Return the time of the latest sign of life, or of the start of monitoring."""
        return self._last_sign_ns

    def start(self) -> list[HeartbeatAction]:
        """Return the action that arms the first timer."""
        return [ArmTimer(self._timeout_ns / 1_000_000)]

    def handle(self, event: HeartbeatEvent) -> list[HeartbeatAction]:
        """Handle an event; NotifyLost is returned at most once."""
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
                if self._last_sign_ns + self._timeout_ns > now_ns:
                    return self._arm(self._last_sign_ns + self._timeout_ns, now_ns)
                if now_ns - self._due_ns > self._timeout_ns // _LATE_PART:
                    return self._arm(now_ns + self._timeout_ns, now_ns)
                return [AskWitness()] if self._has_witness else self._lose(MonitorState.TIMEOUT)
            case WitnessAnswered(now_ns, is_alive):
                if self._last_sign_ns + self._timeout_ns > now_ns:
                    return self._arm(self._last_sign_ns + self._timeout_ns, now_ns)
                if is_alive:
                    return self._arm(now_ns + self._interval_ns, now_ns)
                return self._lose(MonitorState.TIMEOUT)
            case MonitoringCanceled():
                self.state = MonitorState.CANCELED
                return []

    def _arm(self, due_ns: int, now_ns: int) -> list[HeartbeatAction]:
        self._due_ns = due_ns
        return [ArmTimer((due_ns - now_ns) / 1_000_000)]

    def _lose(self, state: MonitorState) -> list[HeartbeatAction]:
        self.state = state
        return [NotifyLost(state)]


@dataclass(frozen=True)
class HeartbeatLoss:
    """The reason why a peer counts as lost: TIMEOUT or UNREACHABLE, and a sentence for messages."""

    state: MonitorState
    text: str


class _Watched:
    """One monitored peer: the monitor, its timer, and the callback for its loss."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        timings: HeartbeatTimings,
        resource_id: ResourceId,
        on_lost: Callable[[ResourceId, HeartbeatLoss], None],
        witness: Witness | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._timings = timings
        self._witness = witness
        self._resource_id = resource_id
        self._on_lost = on_lost
        self._monitor = HeartbeatMonitor(
            timings, endpoint.clock.monotonic_ns(), has_witness=witness is not None
        )
        self._timer: Cancellable | None = None
        self._perform(self._monitor.start())

    @property
    def is_running(self) -> bool:
        return self._monitor.state is MonitorState.RUNNING

    def sign_of_life(self) -> None:
        self._perform(self._monitor.handle(HeartbeatReceived(self._endpoint.clock.monotonic_ns())))

    def unreachable(self) -> None:
        self._perform(self._monitor.handle(PeerUnreachable()))

    def cancel(self) -> None:
        self._perform(self._monitor.handle(MonitoringCanceled()))
        self._cancel_timer()

    def _perform(self, actions: list[HeartbeatAction]) -> None:
        for action in actions:
            match action:
                case ArmTimer(delay_ms):
                    self._timer = self._endpoint.schedule_run_async(delay_ms, self._timer_fired)
                case AskWitness():
                    self._endpoint.spawn(self._ask_witness(), f"witness of {self._resource_id}")
                case NotifyLost(state):
                    self._cancel_timer()
                    self._on_lost(self._resource_id, HeartbeatLoss(state, self._explain(state)))

    def _timer_fired(self) -> None:
        self._perform(self._monitor.handle(TimerFired(self._endpoint.clock.monotonic_ns())))

    async def _ask_witness(self) -> None:
        assert self._witness is not None
        is_alive = await self._witness(self._resource_id)
        now_ns = self._endpoint.clock.monotonic_ns()
        self._perform(self._monitor.handle(WitnessAnswered(now_ns, is_alive)))

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _explain(self, state: MonitorState) -> str:
        if state is MonitorState.UNREACHABLE:
            return (
                f"{self._resource_id} could not be reached by "
                f"{self._timings.rpc_failure_threshold} heartbeats in a row"
            )
        silent_ns = self._endpoint.clock.monotonic_ns() - self._monitor.last_sign_ns
        return (
            f"no heartbeat from {self._resource_id} for {silent_ns // 1_000_000} ms "
            "('heartbeat.timeout')"
        )


class HeartbeatReceiver:
    """The side that answers heartbeats. Its handler of the request calls `request_received`."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        on_lost: Callable[[ResourceId, HeartbeatLoss], None],
        timings: HeartbeatTimings | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._timings = timings or HeartbeatTimings.from_settings(endpoint.settings)
        self._on_lost = on_lost
        self._watched: dict[ResourceId, _Watched] = {}

    def monitor_target(self, resource_id: ResourceId) -> None:
        """Expect requests of a peer from now on; a second call restarts the monitoring."""
        self.unmonitor_target(resource_id)
        self._watched[resource_id] = _Watched(
            self._endpoint, self._timings, resource_id, self._lost
        )

    def unmonitor_target(self, resource_id: ResourceId) -> None:
        """Stop monitoring a peer; unknown ones are ignored."""
        watched = self._watched.pop(resource_id, None)
        if watched is not None:
            watched.cancel()

    def request_received(self, resource_id: ResourceId) -> bool:
        """Note a request of a peer; return False if the peer is not monitored."""
        watched = self._watched.get(resource_id)
        if watched is None:
            return False
        watched.sign_of_life()
        return True

    def stop(self) -> None:
        """Stop monitoring all peers."""
        for resource_id in tuple(self._watched):
            self.unmonitor_target(resource_id)

    def _lost(self, resource_id: ResourceId, loss: HeartbeatLoss) -> None:
        self._watched.pop(resource_id, None)
        self._on_lost(resource_id, loss)


class HeartbeatSender(Generic[P]):
    """The side that sends heartbeats, to each monitored peer every `heartbeat.interval`; `on_payload` gets the answers.

    A `witness` is asked about a silent peer before the peer counts as lost.
    """

    def __init__(
        self,
        endpoint: RpcEndpoint,
        on_lost: Callable[[ResourceId, HeartbeatLoss], None],
        on_payload: Callable[[ResourceId, P], None],
        timings: HeartbeatTimings | None = None,
        witness: Witness | None = None,
    ) -> None:
        self._endpoint = endpoint
        self._timings = timings or HeartbeatTimings.from_settings(endpoint.settings)
        self._on_lost = on_lost
        self._witness = witness
        self._on_payload = on_payload
        self._targets: dict[ResourceId, _Target[P]] = {}

    def monitor_target(self, resource_id: ResourceId, request: Callable[[], Awaitable[P]]) -> None:
        """Send heartbeats to a peer from now on, the first one at once.

        `request()` calls its gateway, returns the payload.
        """
        self.unmonitor_target(resource_id)
        watched = _Watched(self._endpoint, self._timings, resource_id, self._lost, self._witness)
        target = _Target(
            self._endpoint, resource_id, request, watched, self._timings.interval_ms, self._answered
        )
        self._targets[resource_id] = target
        target.beat()

    def unmonitor_target(self, resource_id: ResourceId) -> None:
        """Stop monitoring a peer; unknown ones are ignored, and later answers are dropped."""
        target = self._targets.pop(resource_id, None)
        if target is not None:
            target.cancel()

    def stop(self) -> None:
        """Stop monitoring all peers."""
        for resource_id in tuple(self._targets):
            self.unmonitor_target(resource_id)

    def _answered(self, target: "_Target[P]", payload: P) -> None:
        if self._targets.get(target.resource_id) is target:
            self._on_payload(target.resource_id, payload)

    def _lost(self, resource_id: ResourceId, loss: HeartbeatLoss) -> None:
        self.unmonitor_target(resource_id)
        self._on_lost(resource_id, loss)


class _Target(Generic[P]):
    """One peer that gets a heartbeat at intervals."""

    def __init__(
        self,
        endpoint: RpcEndpoint,
        resource_id: ResourceId,
        request: Callable[[], Awaitable[P]],
        watched: _Watched,
        interval_ms: float,
        on_answer: "Callable[[_Target[P], P], None]",
    ) -> None:
        self._endpoint = endpoint
        self.resource_id = resource_id
        self._request = request
        self._watched = watched
        self._interval_ms = interval_ms
        self._on_answer = on_answer
        self._next: Cancellable | None = None
        self._outstanding_count = 0
        self._is_failure_logged = False

    def beat(self) -> None:
        """Send one request and schedule the next."""
        self._next = self._endpoint.schedule_run_async(self._interval_ms, self.beat)
        if self._outstanding_count < _OUTSTANDING_MAX:
            self._outstanding_count += 1
            self._endpoint.spawn(self._ask(), f"heartbeat of {self.resource_id}")

    def cancel(self) -> None:
        self._watched.cancel()
        if self._next is not None:
            self._next.cancel()

    async def _ask(self) -> None:
        try:
            payload = await self._request()
        except RecipientUnreachableError as error:
            _LOG.debug("heartbeat of %s: %s", self.resource_id, error)
            self._watched.unreachable()
        except SerializationError as error:
            # Each answer will fail like this one, and the resulting timeout would not say why.
            if not self._is_failure_logged:
                self._is_failure_logged = True
                _LOG.warning(
                    "heartbeats of %s fail, so that it will count as lost: %s",
                    self.resource_id,
                    error,
                )
        except Exception as error:
            # A timeout or an error of the handler is no proof of death; silence will be.
            _LOG.debug("heartbeat of %s: %s: %s", self.resource_id, type(error).__name__, error)
        else:
            if self._watched.is_running:
                self._watched.sign_of_life()
                self._on_answer(self, payload)
        finally:
            self._outstanding_count -= 1
