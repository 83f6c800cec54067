"""Fault rules in a simulated network: a relay between the two sides of each connection, on virtual time."""

from collections.abc import Sequence
from typing import Final

from headrace.core.clock import Cancellable, Clock
from headrace.core.security.hmac_handshake import Role
from headrace.network.trace.simulated_transport import LetArrive, Schedule
from headrace.testing.fault_proxy.injector import (
    CutConnection,
    Deliver,
    EndStream,
    FaultInjector,
    ProxyAction,
)
from headrace.testing.fault_proxy.rules import Direction, FaultRule

_DIRECTIONS: Final = {Role.DIALLER: Direction.FORWARD, Role.ACCEPTOR: Direction.BACKWARD}
_ROLES: Final = {direction: role for role, direction in _DIRECTIONS.items()}


class SimulatedFaults:
    """Source of fault relays: pass `create_relay` to a SimulatedNetwork.

    Connections are numbered from 0 to vary the seed.
    """

    def __init__(
        self, rules: Sequence[FaultRule], seed: int, schedule: Schedule, clock: Clock
    ) -> None:
        self._rules = tuple(rules)
        self._seed = seed
        self._schedule = schedule
        self._clock = clock
        self.injectors: Final[list[FaultInjector]] = []

    def create_relay(
        self, dialler: str, acceptor: str, deliver: LetArrive
    ) -> "SimulatedFaultRelay":
        injector = FaultInjector(self._rules, f"{self._seed}:{len(self.injectors)}")
        self.injectors.append(injector)
        return SimulatedFaultRelay(injector, self._schedule, self._clock, deliver)


class SimulatedFaultRelay:
    """Relays the bytes of a simulated connection through a fault injector."""

    def __init__(
        self, injector: FaultInjector, schedule: Schedule, clock: Clock, deliver: LetArrive
    ) -> None:
        self._injector = injector
        self._schedule = schedule
        self._clock = clock
        self._deliver = deliver
        self._timer: Cancellable | None = None

    def carry(self, role: Role, data: bytes) -> None:
        direction, now_ns = _DIRECTIONS[role], self._clock.monotonic_ns()
        if data:
            self._perform(self._injector.received(direction, data, now_ns))
        else:
            self._perform(self._injector.ended(direction, now_ns))

    def _tick(self) -> None:
        self._timer = None
        self._perform(self._injector.time_passed(self._clock.monotonic_ns()))

    def _perform(self, actions: list[ProxyAction]) -> None:
        for action in actions:
            match action:
                case Deliver(direction, data, piece_bytes):
                    step = piece_bytes or len(data)
                    for start in range(0, len(data), step):
                        self._deliver(_ROLES[direction], data[start : start + step])
                case EndStream(direction):
                    self._deliver(_ROLES[direction], b"")
                case CutConnection():
                    for role in Role:
                        self._deliver(role, b"")
                case _:
                    pass
        self._arm()

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ns = self._injector.next_due_ns
        if due_ns is not None:
            # A microsecond late, since virtual time is in floating-point milliseconds and must not stop short.
            wait_ms = max(0, due_ns - self._clock.monotonic_ns()) / 1_000_000 + 0.001
            self._timer = self._schedule(wait_ms, self._tick)
